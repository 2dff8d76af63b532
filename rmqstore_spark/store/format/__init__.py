"""Bytes to values, without a file: what a structure's bytes mean.

message (the fields of a unit, as native_io/unit.h has them), units (`Run`: units in memory, and record batches of
them), bodies (decompression), queue_block (`QueueBlock`: units of a ConsumeQueue and what each stands for), by_queue
(rows sorted by queue), stretches (of consecutive numbers), sizes (how large files may be), clock (how far store times
can be trusted), system_topics, light_queues (which LMQ a message is in), sent_properties (which properties no producer
sends).
"""
