"""The size of partitions, and small pieces packed together into one."""

from collections.abc import Iterator

from rmqstore_spark.cores import cores
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.read.pieces.task import Covered, Range, Task

_SMALL_PARTITION = 4 * 1024 * 1024  # bytes; smaller partitions are made only where minPartitions asks for them
_OPEN_COST = 256 * 1024  # bytes that a task could have read in the least time that a range takes
# Without maxPartitionBytes: Spark's driver pays for each task, and reading a gibibyte still takes only seconds.
_USUAL_PARTITION, _LARGEST_PARTITION = 128 * 1024 * 1024, 1024 * 1024 * 1024
_MOST_USUAL_PARTITIONS = 2000

Pieces = list[tuple[Range, int]]  # each with about how many of its bytes are to be read


def target_size(total: int, options: ReadOptions, cost: int = 0) -> int:
    """The bytes that a partition should have, computed as in Spark's file sources, but with the driver's cores instead
    of the cluster's, which planning cannot see.

    Args:
        total: bytes to read.
        cost: bytes to be divided evenly, where that is more than `total`: the same bytes and the costs of small pieces.
    """
    most = options.max_partition_bytes or _most_bytes(total)
    if options.min_partitions is not None:
        return min(most, max(1, total // options.min_partitions))
    share = max(total, cost) // cores()
    return min(most, max(_SMALL_PARTITION, share + share // 16))


def _most_bytes(total: int) -> int:
    return min(_LARGEST_PARTITION, max(_USUAL_PARTITION, -(-total // _MOST_USUAL_PARTITIONS)))


def pack(pieces: Pieces, options: ReadOptions) -> list[Task]:
    """Pack small pieces together, as Spark pays some 20 ms for a task, and cut large pieces where they can be cut
    anywhere."""
    sizes = [size for _, size in pieces]
    target = target_size(sum(sizes), options, sum(max(size, _OPEN_COST) for size in sizes))
    open_cost = min(_OPEN_COST, target // 16)
    tasks: list[Task] = []
    packed: list[Range] = []
    size = 0
    for piece, bytes_to_read in _cut(pieces, target):
        cost = max(bytes_to_read, open_cost)  # so that two pieces of 1g are no more than 2g
        if packed and size + cost > target:
            tasks.append(Task(tuple(packed)))
            packed, size = [], 0
        packed.append(piece)
        size += cost
    if packed:
        tasks.append(Task(tuple(packed)))
    return tasks


def _cut(pieces: Pieces, target: int) -> Iterator[tuple[Range, int]]:
    for piece, bytes_to_read in pieces:
        parts = -(-bytes_to_read // (target + 1)) if isinstance(piece, Covered) else 1
        if isinstance(piece, Covered) and parts > 1:
            yield from ((part, bytes_to_read // parts) for part in piece.cut(parts))
        else:
            yield piece, bytes_to_read
