"""In a task: from a piece of the log to record batches.

batches has `read_task`. unit_source takes units from the log, find those that are selected, batch_maker makes columns
of them (origins: those that the broker has stored under another name), told says what was passed over. parts and
parallel read tasks on all cores in one process; stored gives units as they stand in the log, for copies.
"""
