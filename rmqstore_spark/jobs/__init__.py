"""Work on whole stores, by way of tables, reads and writes.

copy has `CopyJob`, for copies and salvages (its parts are in copying). history tells what happened to one message;
summary tells what is in a store, for `rmqstore show` and the repr of a Store (summary_text); pending counts what waits
there. findings adds up the rows of a check by problem, and verdict makes one sentence of them, with the commands to
call. lag tells how far consumer groups are behind, growth when the disk is full. starts finds the places where groups
are told to go on, for a copy or in place (set_offsets). rebuild_config makes config/ anew.
"""
