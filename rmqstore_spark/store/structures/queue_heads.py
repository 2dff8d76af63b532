"""The first and the last units of many queues, and some by number, read together: most queues of a large store have one
file."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from native_io import find_queue_files, list_queue_ids, read_queue_ends, read_queue_heads, read_queue_parts
from rmqstore_spark.store.format.queue_block import UNIT_SIZE, QueueBlock
from rmqstore_spark.store.format.stretches import numbers_in
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.consumequeue import FEW_UNITS, Queue, path_of_file

_NOWHERE = -1  # in place of a position in a file
_SHORT = 205  # units: they fill the first block of a disk, after which a short queue is a hole
_IDS_AT_ONCE = 64 * 1024  # queueIds of topics whose directories are listed together
QUEUES_AT_ONCE = 512  # their units and what each stands for are 8 MB

_Longs = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class QueueEnds:
    """Both ends of some queues, row by row.

    Attributes:
        first, last: the first unit that points into the log, among the first few units, and the last unit in use; one
            that is not in use where there is none.
        are_all: whether the first few units show all that are in use.
        allocated: bytes of the file that has the units, on the disk.
        are_known: where this is not set, the queue has to be read in another way.
        places: rows: physical offsets and sizes of the messages of the units asked for; -1 where a unit stands for no
            message.
    """

    first: QueueBlock
    last: QueueBlock
    are_all: _Flags
    allocated: _Longs
    are_known: _Flags
    places: _Longs


def queue_ends(
    queues: Sequence[Queue], begin: int, files: Files, starts: _Longs | None = None, numbers: _Longs | None = None
) -> QueueEnds:
    """The ends of queues. Queues that have one file know it from then on.

    Args:
        begin: the physical offset that the log begins with.
        starts: where the numbers of each queue begin, and how many there are.
        numbers: of units whose places are wanted.
    """
    if starts is None or numbers is None:
        starts, numbers = np.zeros(len(queues) + 1, np.int64), np.zeros(0, np.int64)
    found, units = np.zeros((len(queues), 7), np.int64), bytearray(2 * UNIT_SIZE * len(queues))
    places = np.full((2, len(numbers)), -1, np.int64)
    if queues and files.are_paths_the_systems:
        paths = _listed([queue.directory if queue.is_plain else "" for queue in queues])
        nbytes, requests = read_queue_ends(
            paths, found, units, starts=starts, numbers=numbers, places=places, begin=begin, width=FEW_UNITS
        )
        files.count(requests, nbytes)
    for queue, (start, size, allocated, *_, is_known) in zip(queues, found.tolist(), strict=True):
        if is_known:
            queue.know_file(start, size, allocated)
    first, last = (QueueBlock.of(units).only(slice(which, None, 2)) for which in (0, 1))
    first.numbers, last.numbers = first.queue_offsets, last.queue_offsets = found[:, 3].copy(), found[:, 4].copy()
    return QueueEnds(first, last, found[:, 5] == 1, found[:, 2], found[:, 6] == 1, places)


def queue_ids(topics: Sequence[str], files: Files) -> list[list[int] | None]:
    """The queueIds that are names in each of some topics' directories, in no order; None where a directory has to be
    listed in another way."""
    found: list[list[int] | None] = [None] * len(topics)
    ids, at = np.empty(_IDS_AT_ONCE, np.int32), 0
    while at < len(topics) and files.are_paths_the_systems:
        counts = np.zeros(len(topics) - at, np.int64)
        listed = list_queue_ids(_listed(topics[at:]), counts, ids)
        ends = np.cumsum(np.maximum(counts[:listed], 0))
        every, start = ids[: ends[-1] if listed else 0].tolist(), 0
        for count, end in zip(counts[:listed].tolist(), ends.tolist(), strict=True):
            found[at] = every[start:end] if count >= 0 else None
            at, start = at + 1, end
        at += listed == 0  # it has more queues than there is room for
    return found


def find_files(queues: Sequence[Queue], files: Files) -> None:
    """Have plain queues that have one file know it, without opening it; those that are not in the system's files are
    left as they are."""
    some = [queue for queue in queues if queue.is_plain] if files.are_paths_the_systems else []
    found = np.empty((len(some), 3), np.int64)
    find_queue_files(_listed([queue.directory for queue in some]), found)
    for queue, (start, size, allocated) in zip(some, found.tolist(), strict=True):
        if start >= 0:
            queue.know_file(start, size, allocated)


def count_units(queues: Sequence[Queue], files: Files) -> int:
    """How many units there are in some queues, each up to its last one in use."""
    if files.is_slow:
        return sum(files.schedule.mapped(_count_units, queues))
    total = 0
    for at in range(0, len(queues), QUEUES_AT_ONCE):
        some = queues[at : at + QUEUES_AT_ONCE]
        ends = queue_ends(some, 0, files)
        firsts = [queue.first if is_known else 0 for queue, is_known in zip(some, ends.are_known.tolist(), strict=True)]
        counts = np.where(ends.last.are_used, ends.last.numbers + 1 - firsts, 0)
        total += int(counts[ends.are_known].sum())
        total += sum(_count_units(some[row]) for row in np.flatnonzero(~ends.are_known).tolist())
    return total


def _count_units(queue: Queue) -> int:
    return queue.end - queue.first


def places_in(queue: Queue, numbers: _Longs) -> _Longs:
    """QueueEnds.places of one queue, whose units are read in stretches.

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


def many_places(queues: Sequence[Queue], starts: _Longs, numbers: _Longs, files: Files) -> tuple[_Longs, _Flags]:
    """QueueEnds.places of some queues that know their files, of at most QUEUES_AT_ONCE; and which of the units have to
    be looked for in another way.

    Args:
        starts: where the numbers of each queue begin, and how many there are.
        numbers: of the units.
    """
    only = [queue.in_files[0] if _has_one_file(queue) else None for queue in queues]
    ends = np.array([(0, 0) if file is None else (file.first, file.end) for file in only], np.int64).reshape(-1, 2)
    firsts, stops = np.repeat(ends, np.diff(starts), axis=0).T
    are_inside = (firsts <= numbers) & (numbers < stops)
    positions = np.where(are_inside, (numbers - firsts) * UNIT_SIZE, _NOWHERE)
    sizes, units = np.full(len(positions), -1, np.int64), bytearray(len(positions) * UNIT_SIZE)
    if len(positions) and files.are_paths_the_systems:
        paths = _listed(["" if file is None else file.path for file in only])
        files.count(*reversed(read_queue_parts(paths, starts, positions, sizes, units)))
    block = QueueBlock.of(units)
    found = np.where(block.are_messages & (sizes == UNIT_SIZE), (block.positions, block.sizes), -1)
    are_others = np.repeat([file is None for file in only], np.diff(starts)) | (are_inside & (sizes < 0))
    return found, are_others


def _has_one_file(queue: Queue) -> bool:
    return queue.is_plain and len(queue.in_files) == 1


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
    units.number(numbers_in(heads[:, 0] // UNIT_SIZE, counts), are_offsets=True)
    return units, np.where(is_short, counts, -1).tolist()


def _read(queues: Sequence[Queue], width: int, files: Files) -> tuple[_Longs, bytearray]:
    """Rows of read_queue_heads(), and the units. Where a queue's only file is known, no directory is listed."""
    heads = np.full((len(queues), 6), -1, np.int64)
    buffer = bytearray(len(queues) * width * UNIT_SIZE)
    if queues and files.are_paths_the_systems and all(queue.is_plain for queue in queues):
        only = [queue.only_file for queue in queues]
        paths = [
            queue.directory if file is None else path_of_file(queue.directory, file.start)
            for queue, file in zip(queues, only, strict=True)
        ]
        starts = np.array([-1 if file is None else file.start for file in only], np.int64)
        nbytes, requests = read_queue_heads(_listed(paths), starts, heads, buffer)
        files.count(requests, nbytes)
    for queue, (start, size, allocated, read, *_) in zip(queues, heads.tolist(), strict=True):
        if read >= 0:
            queue.know_file(start, size, allocated)
    return heads, buffer


def _listed(paths: Sequence[str]) -> bytes:
    """Paths as the kernel takes them: each followed by a NUL byte."""
    return os.fsencode("\0".join([*paths, ""]))
