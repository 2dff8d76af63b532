"""What is done with whole stores by way of tables, reads and writes: `copy` and `salvage` (copy.py; its parts are in
copying/), the history of a message (history.py), and a store at a glance (summary.py)."""
