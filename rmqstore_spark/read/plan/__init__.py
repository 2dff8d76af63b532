"""On the driver: from options to tasks. Run once for a read, so that the tasks are of one snapshot.

planner is the pipeline, from top to bottom: stores (opened), asked with check_names and groups (what the options ask of
each), twins with compared (no two are copies of one), copies (several copies read as one log), prune (what cannot hold
selected messages), access_path (the cheapest way: a scan, the queues, or the index), split (where the log may be cut),
pack (how large a task is).

The index is asked in three steps: index_evidence (a look-up in one file), index_join (what follows from one file to the
next), index_path (what it costs). again begins anew where a broker has deleted files meanwhile; lost_end and unqueued
tell what the log lacks.
"""
