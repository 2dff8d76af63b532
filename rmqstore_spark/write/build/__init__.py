"""From staged units to the files of a store.

target is the store before a write: file sizes, where the log ends, where each queue goes on (checked keeps that for the
next write). staging reads what tasks have staged, messages is what is to be written. placing gives each message its
place in the log (`Placing`); store_files has the one builder (`StoreFiles`), with logfiles, queuefiles and batchqueues
(tails is what both share), indexfiles, topics and times. stretch and patch append in place. gaps, kept_offsets and
kept_units serve copies, whose messages keep their queue offsets; config_from is what comes along from another
store's configuration, and other_files are files that are taken over as they are; write_ids are writes that were
done already.
"""
