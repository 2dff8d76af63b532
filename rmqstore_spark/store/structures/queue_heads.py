"""The first and the last units of many queues, and some by number, read together: most queues of a large store have one
file."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from native_io import UnitKind, read_queue_heads, read_queue_parts
from rmqstore_spark.store.format.queue_block import UNIT_SIZE, QueueBlock
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.consumequeue import FEW_UNITS, Queue

_AT_THE_END, _NOWHERE = -1, -2  # in place of a position in a file
_TAIL = 206  # units that the last page with data may show, also in part
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


def last_units(queues: Sequence[Queue], files: Files) -> tuple[QueueBlock, npt.NDArray[np.bool_]]:
    """The last unit in use of each of some queues, of at most QUEUES_AT_ONCE, that queue_heads() has read; and of which
    it is known. The others have to be read in another way."""
    positions = np.full(len(queues), _AT_THE_END, np.int64)
    sizes, tails = _read_parts(queues, np.arange(len(queues) + 1), positions, _TAIL, files)
    are_used = QueueBlock.of(tails).are_used.reshape(len(queues), _TAIL)
    are_known = (sizes >= 0) & are_used.any(axis=1)
    places = _TAIL - 1 - are_used[:, ::-1].argmax(axis=1)
    rows = np.frombuffer(tails, np.uint8).reshape(-1, UNIT_SIZE)
    found = QueueBlock.of(rows[np.arange(len(queues)) * _TAIL + places].tobytes())
    firsts = np.array([queue.first for queue in queues], np.int64)
    found.numbers = found.queue_offsets = firsts + positions // UNIT_SIZE + places
    return found, are_known


def many_places(
    queues: Sequence[Queue], starts: _Longs, numbers: _Longs, files: Files
) -> tuple[_Longs, npt.NDArray[np.bool_]]:
    """QueueHeads.places() of some queues, of at most QUEUES_AT_ONCE, whatever their length.

    Args:
        starts: where the numbers of each queue begin, and how many there are.
        numbers: of the units.
    """
    only = [queue.in_files[0] if _has_one_file(queue) else None for queue in queues]
    ends = np.array([(0, 0) if file is None else (file.first, file.end) for file in only], np.int64).reshape(-1, 2)
    firsts, stops = np.repeat(ends, np.diff(starts), axis=0).T
    are_inside = (firsts <= numbers) & (numbers < stops)
    positions = np.where(are_inside, (numbers - firsts) * UNIT_SIZE, _NOWHERE)
    sizes, units = _read_parts(queues, starts, positions, 1, files)
    block = QueueBlock.of(units)
    found = np.where(block.are_messages & (sizes == UNIT_SIZE), (block.positions, block.sizes), -1)
    are_others = np.repeat([file is None for file in only], np.diff(starts)) | (are_inside & (sizes < 0))
    return found, are_others


def _has_one_file(queue: Queue) -> bool:
    return queue.is_in_files and not queue.is_batch and len(queue.in_files) == 1


def _read_parts(
    queues: Sequence[Queue], starts: _Longs, positions: _Longs, width: int, files: Files
) -> tuple[_Longs, bytearray]:
    """read_queue_parts() of the first file of each queue: the sizes of the parts, and their units, `width` of each.
    Positions at the end are replaced."""
    sizes, buffer = np.full(len(positions), -1, np.int64), bytearray(len(positions) * width * UNIT_SIZE)
    if len(positions) and files.are_paths_the_systems:
        paths = os.fsencode("".join(f"{queue.in_files[0].path}\0" if queue.in_files else "\0" for queue in queues))
        files.count(*reversed(read_queue_parts(paths, starts, positions, sizes, buffer)))
    return sizes, buffer


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
