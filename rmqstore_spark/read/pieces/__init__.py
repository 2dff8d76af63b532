"""The values that the driver hands to a task, and code that both need for them.

task has the vocabulary: a `Task` has ranges of logs (`Range`), each with the way to its messages. pinned adds proofs of
the state of the store at planning, so that a task notices another state. kernel_filter is the selection as the kernel
tests it, queue_claims the claims of ConsumeQueues on a piece, queue_rows rows made of ConsumeQueues alone.
"""
