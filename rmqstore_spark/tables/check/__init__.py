"""The table `check`: what is wrong with a store, or suspicious, and what to do.

problems is the only table of problems: severity, area, advice. table runs the parts, each of which finds some: layout
(names, sizes, links), config, log with unwritten, lost, waited and log_view (what the log itself shows), queues with
queue_units and ends (each unit against the log, and back), index_files and index_items, queue_logs (of compaction
topics and tiered stores). moment keeps all of them at one moment of a live store.
"""
