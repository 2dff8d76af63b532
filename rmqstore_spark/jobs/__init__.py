"""Work on whole stores, by way of tables, reads and writes.

copy has `CopyJob`, for copies and salvages (its parts are in copying). history tells what happened to one message;
summary tells what is in a store, for `rmqstore show` and the repr of a Store (summary_text); pending counts what waits
there. verdict says what the findings of a check come to, of which findings makes sums; lag how far consumer groups are
behind, and growth when the disk is full. starts says where groups go on, other than so far, in a copy or in place
(set_offsets). rebuild_config makes config/ anew.
"""
