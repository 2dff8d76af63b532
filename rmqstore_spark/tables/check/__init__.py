"""The table `check`: what is wrong with a store, or suspicious, and what to do.

problems is the only table of problems: severity, area, advice, effect and fix. table runs the parts, each of which
finds some: layout (names, sizes, links), config, log (what the log itself shows, over log_view) with unwritten (pages
of zeros), damaged (where), lost (the messages that damage took) and waited (lost delayed and half messages), queues
with queue_units and ends (each unit against the log, and back), index_files and index_items, queue_logs (of compaction
topics and tiered stores). moment keeps all of them at one moment of a live store.
"""
