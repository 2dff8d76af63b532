"""In a task: from a piece of the log to record batches.

batches has `read_task`. unit_source takes units from the log, find finds the selected ones, batch_maker makes columns
of them (origins: columns of messages that the broker has stored under another name; original: these as their producers
sent them; dispatched: their light queues; logic_offsets: static topics), damage_reports tells of damage that a read has
passed over. parts and parallel read tasks on all cores in one process; stored gives units as they are in the log, for
copies; messages reads a few columns of all messages, for a plan.
"""
