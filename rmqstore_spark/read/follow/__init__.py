"""A log that grows, read batch by batch: streams, and `tail`.

follow has `Follower`, from one `StreamOffset` (stream_offset: what Spark keeps in its checkpoint) to the next. edge
says up to where a live log has whole messages that stay, stream_start where a stream begins, admission how much one
batch reads.
"""
