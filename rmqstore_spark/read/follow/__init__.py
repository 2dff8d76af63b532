"""A log that grows, read batch by batch: streams, and `tail`.

follow has `Follower`, which goes from one `StreamOffset` (stream_offset: the value that Spark keeps in its checkpoint)
to the next; tier has that of tiered stores, and `follower_of`, which knows which one is needed. edge finds the point up
to which a live log has whole messages that stay, stream_start the point where a stream begins, admission how much one
batch reads.
"""
