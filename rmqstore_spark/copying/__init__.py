"""Copies of stores: what `Store.copy` and `Store.salvage` do, with `read/`, `tables/` and `write/`."""
