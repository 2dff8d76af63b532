"""On the driver: from options to tasks. Run once for a read, so that all tasks are of one snapshot.

planner is the pipeline, from top to bottom: stores (opened), store_options with check_names and groups (the options as
they are for each store), related with compared (no two stores are copies of one), copies with nodes (several read as
one log), prune (parts that cannot hold selected messages are left out), access_path (the cheapest
way: a scan, the queues, or the index), split (where the log may be cut), pack (how large a task is), deferred (what a
process that reads its own tasks does when their turn comes).

The index is asked in three steps: index_evidence (a look-up in one file), index_join (conclusions from one file to the
next), index_path (the cost); beside_index finds what no index knows, the messages of batches. again repeats a read when
a broker has deleted files meanwhile; lost_end and unqueued find messages that the log, or its queues, lack. compacted
with newest chooses the last value of each key of compaction topics, joined reads a tiered store beside its broker's
own.
"""
