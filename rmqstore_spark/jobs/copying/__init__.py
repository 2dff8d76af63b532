"""The parts of a copy, in the order in which copy.py uses them: which messages wait for their time (waiting.py), what
config/ says (config.py), the messages of each source without damage (rows.py, misplaced.py), and, after a salvage, what
is lost (lost.py, report.py)."""
