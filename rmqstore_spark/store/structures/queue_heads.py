"""The first units of many queues, read together: most queues of a large store have one file with few units."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from native_io import UnitKind, read_queue_heads
from rmqstore_spark.store.format.queue_block import UNIT_SIZE, QueueBlock, QueueUnit
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.many_headers import Place

_KINDS = {int(kind): kind for kind in UnitKind}
_SHORT = 205  # units: they fill the first block of a disk, after which a short queue is a hole
QUEUES_AT_ONCE = 512  # their units and what each stands for are 8 MB


@dataclass(frozen=True, eq=False)
class QueueHeads:
    """The first units of some queues: row by row, with the same number of units in each.

    Attributes:
        width: units in a row; zeros stand behind the last unit in use. Units that are not shown are not in use.
        numbers: of each queue's first unit.
        counts: how many of its units are in the file; -1 where the queue has to be read in another way.
        block: the units of all rows; their numbers do not count.
    """

    width: int
    numbers: npt.NDArray[np.int64]
    counts: list[int]
    block: QueueBlock

    def first_of(self, which: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """The place in each row of the first of some units; -1 where the row has none."""
        rows = which.reshape(-1, self.width)
        return np.where(rows.any(axis=1), rows.argmax(axis=1), -1)

    def last_of(self, which: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """The place in each row of the last of some units; -1 where the row has none."""
        rows = which.reshape(-1, self.width)[:, ::-1]
        return np.where(rows.any(axis=1), self.width - 1 - rows.argmax(axis=1), -1)

    def places(self, numbers: Sequence[Sequence[int]]) -> list[list[Place | None] | None]:
        """For each queue where the messages of some of its units are; None for a unit that stands for no message, and
        for a queue that has to be read in another way.

        Args:
            numbers: of the units; less than the width that was asked for after the queue's first one.
        """
        rows = np.repeat(np.arange(len(numbers)), [len(some) for some in numbers])
        places = np.array([number for some in numbers for number in some], np.int64) - self.numbers[rows]
        at = rows * self.width + np.clip(places, 0, self.width - 1)
        are_there = (places >= 0) & (places < self.width) & (self.block.kinds[at] == np.uint8(UnitKind.MESSAGE))
        found = [
            Place(position, size) if is_there else None
            for position, size, is_there in zip(
                self.block.positions[at].tolist(), self.block.sizes[at].tolist(), are_there.tolist(), strict=True
            )
        ]
        stops = np.cumsum([len(some) for some in numbers]).tolist()
        return [
            found[stop - len(some) : stop] if count >= 0 else None
            for some, stop, count in zip(numbers, stops, self.counts, strict=True)
        ]

    def units(self, places: npt.NDArray[np.int64]) -> list[QueueUnit | None]:
        """The unit at a place in each row; None where that is -1."""
        rows, block = np.arange(len(places)) * self.width, self.block
        some = rows + np.maximum(places, 0)
        numbers = self.numbers + places
        fields = (places, numbers, *(of[some] for of in (block.positions, block.sizes, block.tags_codes)))
        return [
            None if place < 0 else QueueUnit(number, position, size, tags_code, number, messages, _KINDS[kind])
            for place, number, position, size, tags_code, messages, kind in zip(
                *(of.tolist() for of in (*fields, block.messages[some], block.kinds[some])), strict=True
            )
        ]


def queue_heads(queues: Sequence[Queue], width: int, files: Files) -> QueueHeads:
    """The first units of queues, of at most QUEUES_AT_ONCE. Queues that have one file know it from then on.

    Args:
        width: how many units of each.
    """
    heads, buffer = _read(queues, width, files)
    numbers, counts = heads[:, 0] // UNIT_SIZE, (heads[:, 3] // UNIT_SIZE).tolist()
    used = max(1, -(-int(heads[:, 4].max(initial=0)) // UNIT_SIZE))  # rows are no longer than any of them needs
    rows = np.frombuffer(buffer, np.uint8).reshape(len(queues), -1) if queues else np.empty((0, 0), np.uint8)
    return QueueHeads(used, numbers, counts, QueueBlock.of(rows[:, : used * UNIT_SIZE].tobytes()))


def short_queues(queues: Sequence[Queue], files: Files) -> tuple[QueueBlock, list[int]]:
    """The units of short queues, of at most QUEUES_AT_ONCE: all up to the last one in use, queue by queue; and how many
    each queue has, -1 where it has to be read in another way. Queues that have one file know it from then on."""
    heads, buffer = _read(queues, _SHORT, files)
    _, _, _, read, used, is_all = heads.T
    is_short = (read >= 0) & (is_all == 1)
    counts = np.where(is_short, np.minimum(-(-used // UNIT_SIZE), read // UNIT_SIZE), 0)
    starts = np.arange(len(queues)) * _SHORT * UNIT_SIZE
    bounds = zip(starts.tolist(), (starts + counts * UNIT_SIZE).tolist(), strict=True)
    view = memoryview(buffer)
    units = QueueBlock.of(b"".join(view[start:stop] for start, stop in bounds))
    units.numbers = units.numbers + np.repeat(heads[:, 0] // UNIT_SIZE - np.cumsum(counts) + counts, counts)
    units.queue_offsets = units.numbers
    return units, np.where(is_short, counts, -1).tolist()


def _read(queues: Sequence[Queue], width: int, files: Files) -> tuple[npt.NDArray[np.int64], bytearray]:
    """Rows of read_queue_heads(), and the units."""
    heads = np.full((len(queues), 6), -1, np.int64)
    buffer = bytearray(len(queues) * width * UNIT_SIZE)
    if queues and files.are_paths_the_systems and all(queue.is_in_files and not queue.is_batch for queue in queues):
        paths = b"".join(os.fsencode(queue.directory) + b"\0" for queue in queues)
        nbytes, requests = read_queue_heads(paths, heads, buffer)
        files.count(requests, nbytes)
    for queue, (start, size, allocated, read, *_) in zip(queues, heads.tolist(), strict=True):
        if read >= 0:
            queue.know_file(start, size, allocated)
    return heads, buffer
