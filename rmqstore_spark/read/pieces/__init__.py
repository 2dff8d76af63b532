"""What the driver hands to a task, and what both know of it.

task is the vocabulary: a `Task` has ranges of logs (`Range`), each with the way to its messages. pinned adds what the
plan saw in a store, so that a task notices another one. kernel_filter is the selection as the kernel tests it,
queue_claims what ConsumeQueues claim of a piece, queue_rows rows made of ConsumeQueues alone.
"""
