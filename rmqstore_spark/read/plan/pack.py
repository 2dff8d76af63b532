"""How large a partition should be, and small pieces put together into one."""

from collections.abc import Iterator

from rmqstore_spark.cores import cores
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.read.pieces.task import Covered, Range, Task

_SMALL_PARTITION = 4 * 1024 * 1024  # smaller ones only where minPartitions asks for them
_OPEN_COST = 256 * 1024  # what a range costs a task at least, in bytes it could have read meanwhile
# Without maxPartitionBytes: Spark's driver pays for each task, and to read a gibibyte still takes no more than seconds.
_USUAL_PARTITION, _LARGEST_PARTITION = 128 * 1024 * 1024, 1024 * 1024 * 1024
_MOST_USUAL_PARTITIONS = 2000

Pieces = list[tuple[Range, int]]  # each with about how many bytes are to be read in it


def target_size(total: int, options: ReadOptions, cost: int = 0) -> int:
    """Bytes a partition should have: as Spark's file sources reckon, with the driver's cores for the cluster's, which
    planning cannot see.

    Args:
        total: bytes to read.
        cost: what is to be divided evenly, where that is more: the same bytes, and what small pieces cost besides.
    """
    most = options.max_partition_bytes or _most_bytes(total)
    if options.min_partitions is not None:
        return min(most, max(1, total // options.min_partitions))
    share = max(total, cost) // cores()
    return min(most, max(_SMALL_PARTITION, share + share // 16))


def _most_bytes(total: int) -> int:
    return min(_LARGEST_PARTITION, max(_USUAL_PARTITION, -(-total // _MOST_USUAL_PARTITIONS)))


def pack(pieces: Pieces, options: ReadOptions) -> list[Task]:
    """Put pieces together where they are small: Spark pays some 20 ms for a task. Cut those that can be cut anywhere
    where they are large."""
    sizes = [size for _, size in pieces]
    target = target_size(sum(sizes), options, sum(max(size, _OPEN_COST) for size in sizes))
    open_cost = min(_OPEN_COST, target // 16)
    tasks: list[Task] = []
    packed: list[Range] = []
    size = 0
    for piece, bytes_to_read in _cut(pieces, target):
        cost = max(bytes_to_read, open_cost)  # so that two of 1g are no more than 2g
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
