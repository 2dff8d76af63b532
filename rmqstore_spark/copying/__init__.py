"""Copies of stores: what `Store.copy` and `Store.salvage` do. It reads with `read/` and `tables/`, and writes with `write/`."""
