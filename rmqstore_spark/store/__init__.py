"""What can be proved of a store: where its log ends, which of its units are live, where each queue begins and ends.

The room answers: which messages does this store hold, and how sure is that? A `Snapshot` is what the driver has found
out about a store; a `StoreRef` is all that a task gets of it. `Evidence` says how sure a single answer is.

Read in this order: snapshot (the one handle), log_end with claims (what queues say of damaged bytes) and entry_evidence
(what proves an entry with a damaged header), live_log and evidence (which units are of today's log), log_times (between
which store times a part of the log is), committed (what of a log of entries may be taken back); then queues:
message_headers, unit_evidence, bounds_search (one queue), queue_bounds (many), queue_ends, queue_times, due_times
(delay levels), queue_coverage (what the queues prove of the log), queue_members (which queues the log says messages are
in), offset_parts (where in the log queue offsets are); queue_log (`QueueLog`, the log of one queue alone) as
compaction_log and tiered_log, brought (what killed brokers left in the latter twice, or never brought), logs (all of
them under a directory); then index_live, geometry (file sizes that a broker was told),
elsewhere (what a broker keeps in a form that this package does not read).

Below it: structures (a module for each structure on disk), rocksdb, io (files, local and remote), format (bytes to
values). Nothing here writes, and nothing here knows Spark or options.
"""
