"""The command `rmqstore`: what is in a store, at a terminal and for scripts."""
