"""The parts of a copy, in the order in which jobs/copy.py uses them.

What config/ says (config.py) and what of index files is not used (index.py); each store as a Source (source.py) with
the messages in it that wait for their time (waiting.py); the messages that come along, as Rows (rows.py), without
damaged and misplaced ones (selected.py, misplaced.py); chunks of units for the writer (chunks.py); and, after a
salvage, what is lost (lost.py, report.py).
"""
