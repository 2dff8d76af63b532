"""A copy is a pipeline of values: source (a store and what is selected), rows (units in order), chunks, a new store.

selected reads units as they stand, rows merges several logs, chunks makes of rows what the writer takes. config carries
topics, groups and offsets over, index says which index files could not be used. lost and report tell what a salvage
loses, misplaced finds messages that are out of their queue's order, waiting half messages and delayed ones that go
along.
"""
