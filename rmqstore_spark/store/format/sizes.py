"""The sizes of a store's files: each kind has one size, and the broker must be configured with the same.

A broker holds each of these numbers in an int, the bytes of a file too, and maps each file as a whole. Source:
org.apache.rocketmq.store.config.MessageStoreConfig, store.index.IndexFile.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rmqstore_spark.errors import OptionError
from rmqstore_spark.store.format.queue_block import BATCH_UNIT_SIZE, UNIT_SIZE

MOST_BYTES = (1 << 31) - 1  # bytes of a file
MOST_QUEUES = (1 << 31) - 1  # queues of a topic (TopicConfig)
_HEADER, _SLOT, _ITEM = 40, 4, 20  # bytes in an index file (indexfile.py)


def most_slots(items: int) -> int:
    """How many slots an index file can have beside so many items."""
    return (MOST_BYTES - _HEADER - _ITEM * items) // _SLOT


def most_items(slots: int) -> int:
    """How many items an index file can have beside so many slots."""
    return (MOST_BYTES - _HEADER - _SLOT * slots) // _ITEM


def usual_size(rows: Iterable[Sequence[tuple[int, int]]], unit: int = 1) -> int:
    """The size in bytes that each file of a kind should have, as some files may be cut or padded.

    Each file is named after the offset it begins with, which is a multiple of that size. So names count before sizes,
    and sizes of more files before those of fewer.

    Args:
        rows: for each row of files that follow each other, the first offset and the bytes of each file.
        unit: the bytes that file sizes are a multiple of.

    Returns:
        0 if unknown.
    """
    starts, sizes, steps = 0, Counter[int](), set[int]()
    for row in rows:
        starts = math.gcd(starts, *(start for start, _ in row))
        sizes.update(size for _, size in row if size)
        steps.update(after - before for (before, _), (after, _) in itertools.pairwise(row))
    steps.discard(0)
    step = min(steps, default=0)
    possible = {*sizes, max(step, *sizes)} if sizes else set()  # all files may be cut; none reaches into the next one
    return max(
        (size for size in possible if size % unit == 0),
        key=lambda size: (starts % size == 0, size == step and size in sizes, sizes[size], size),
        default=0,
    )


@dataclass(frozen=True)
class Sizes:
    """The sizes of a store's files. None is a size that is unknown, or that the user leaves to the store.

    Attributes:
        segment: bytes of a commitlog file (mappedFileSizeCommitLog).
        queue_file: bytes of a ConsumeQueue file (mappedFileSizeConsumeQueue), a multiple of UNIT_SIZE.
        slots: hash slots of an index file (maxHashSlotNum).
        items: entries of an index file, the unused first one included (maxIndexNum).
    """

    segment: int | None = None
    queue_file: int | None = None
    slots: int | None = None
    items: int | None = None

    def or_defaults(self) -> "FileSizes":
        """These sizes, with RocketMQ's defaults for those that are None.

        Raises:
            OptionError: an index file would be too large with both of its numbers.
        """
        sizes = FileSizes(
            self.segment or DEFAULT_SIZES.segment,
            self.queue_file or DEFAULT_SIZES.queue_file,
            self.slots or DEFAULT_SIZES.slots,
            self.items or DEFAULT_SIZES.items,
        )
        if sizes.items > most_items(sizes.slots):
            raise OptionError(
                f"options 'maxHashSlotNum' and 'maxIndexNum': expected an index file of at most {MOST_BYTES} bytes, as "
                f"a broker can map no more, found {sizes.slots} slots of {_SLOT} bytes and {sizes.items} entries of "
                f"{_ITEM}; with so many slots there can be {max(most_items(sizes.slots), 0)} entries"
            )
        return sizes


@dataclass(frozen=True)
class FileSizes:
    """Sizes, all known.

    Attributes:
        batch_file: bytes of a file of a BatchCQ (mapperFileSizeBatchConsumeQueue). There is no option for it: as of the
            existing files, else RocketMQ's default.
    """

    segment: int
    queue_file: int
    slots: int
    items: int
    batch_file: int = 300_000 * BATCH_UNIT_SIZE


# RocketMQ's defaults (MessageStoreConfig).
DEFAULT_SIZES = FileSizes(segment=1 << 30, queue_file=300_000 * UNIT_SIZE, slots=5_000_000, items=20_000_000)
