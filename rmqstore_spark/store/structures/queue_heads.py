"""The first units of many queues, read together: most queues of a large store have one file with few units."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from native_io import UnitKind, read_queue_heads
from rmqstore_spark.store.format.queue_block import UNIT_SIZE, QueueBlock
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.consumequeue import FEW_UNITS, Queue

_SHORT = 205  # units: they fill the first block of a disk, after which a short queue is a hole
QUEUES_AT_ONCE = 512  # their units and what each stands for are 8 MB


_Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class QueueHeads:
    """The first units of some queues: row by row, with the same number of units in each.

    Attributes:
        width: units in a row; zeros stand behind the last unit in use. Units that are not shown are not in use.
        numbers: of each queue's first unit.
        counts: how many of its units are in the file; -1 where the queue has to be read in another way.
        sizes, allocated: bytes of the file, and those that it takes on the disk.
        block: the units of all rows; their numbers do not count.
    """

    width: int
    numbers: _Longs
    counts: _Longs
    sizes: _Longs
    allocated: _Longs
    block: QueueBlock

    def first_of(self, which: npt.NDArray[np.bool_]) -> _Longs:
        """The place in each row of the first of some units; -1 where the row has none."""
        rows = which.reshape(-1, self.width)
        return np.where(rows.any(axis=1), rows.argmax(axis=1), -1)

    def last_of(self, which: npt.NDArray[np.bool_]) -> _Longs:
        """The place in each row of the last of some units; -1 where the row has none."""
        rows = which.reshape(-1, self.width)[:, ::-1]
        return np.where(rows.any(axis=1), self.width - 1 - rows.argmax(axis=1), -1)

    def places(self, rows: _Longs, numbers: _Longs, width: int) -> tuple[_Longs, npt.NDArray[np.bool_]]:
        """Where the messages of some units are: rows of positions and sizes, -1 for a unit that stands for no message;
        and which units have to be read in another way.

        Args:
            rows: the row of each unit.
            numbers: of the units.
            width: how many units of each queue were asked for.
        """
        places = numbers - self.numbers[rows]
        at = rows * self.width + np.clip(places, 0, self.width - 1)
        are_there = (places >= 0) & (places < self.width) & self.block.are_messages[at]
        found = np.where(are_there, (self.block.positions[at], self.block.sizes[at]), -1)
        return found, (self.counts[rows] < 0) | (places >= width)

    def at(self, places: _Longs) -> QueueBlock:
        """The unit at a place in each row; one that is not in use where that is -1."""
        found = self.block.only(np.arange(len(places)) * self.width + np.maximum(places, 0))
        found.kinds[places < 0] = UnitKind.NOTHING
        found.numbers = found.queue_offsets = self.numbers + places
        return found


def queue_heads(queues: Sequence[Queue], width: int, files: Files) -> QueueHeads:
    """The first units of queues, of at most QUEUES_AT_ONCE. Queues that have one file know it from then on.

    Args:
        width: how many units of each.
    """
    heads, buffer = _read(queues, width, files)
    numbers, counts = heads[:, 0] // UNIT_SIZE, heads[:, 3] // UNIT_SIZE
    used = max(1, -(-int(heads[:, 4].max(initial=0)) // UNIT_SIZE))  # rows are no longer than any of them needs
    rows = np.frombuffer(buffer, np.uint8).reshape(len(queues), -1) if queues else np.empty((0, 0), np.uint8)
    return QueueHeads(
        used, numbers, counts, heads[:, 1], heads[:, 2], QueueBlock.of(rows[:, : used * UNIT_SIZE].tobytes())
    )


def places_in(queue: Queue, numbers: _Longs) -> _Longs:
    """QueueHeads.places() of one queue, whose units are read in stretches.

    Args:
        numbers: of the units, ascending.
    """
    found, at = np.full((2, len(numbers)), -1, np.int64), 0
    for stop in [*(np.flatnonzero(np.diff(numbers) > FEW_UNITS) + 1).tolist(), len(numbers)]:
        first = int(numbers[at])
        block = queue.block(first, int(numbers[stop - 1]) + 1 - first) if stop - at > 1 else None
        for index in range(at, stop):
            number = int(numbers[index])
            is_shown = block is not None and number - first < len(block)
            unit = block[number - first] if block is not None and is_shown else queue.any_unit(number)
            if unit is not None and unit.is_message:
                found[:, index] = unit.position, unit.size
        at = stop
    return found


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


def _read(queues: Sequence[Queue], width: int, files: Files) -> tuple[_Longs, bytearray]:
    """Rows of read_queue_heads(), and the units."""
    heads = np.full((len(queues), 6), -1, np.int64)
    buffer = bytearray(len(queues) * width * UNIT_SIZE)
    if queues and files.are_paths_the_systems and all(queue.is_in_files and not queue.is_batch for queue in queues):
        paths = os.fsencode("".join(queue.directory + "\0" for queue in queues))
        nbytes, requests = read_queue_heads(paths, heads, buffer)
        files.count(requests, nbytes)
    for queue, (start, size, allocated, read, *_) in zip(queues, heads.tolist(), strict=True):
        if read >= 0:
            queue.know_file(start, size, allocated)
    return heads, buffer
