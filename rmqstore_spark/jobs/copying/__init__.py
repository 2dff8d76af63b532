"""A copy is a pipeline of values: source (a store), rows (units in order), chunks, a new store.

selected makes rows of a read, rows merges several logs, chunks makes rows into chunks for the writer. config copies
topics, groups and offsets, index warns of index files that could not be used. lost and report list the losses of a
salvage, lost_waiting those that waited for their time, misplaced finds messages that are out of their queue's order,
waiting decides which half, delayed and timed messages come along. excluded finds what options leave out, and proves
that the copy has nothing of it. tiered gives the rows of a tiered store, compaction the files of compaction logs.
"""
