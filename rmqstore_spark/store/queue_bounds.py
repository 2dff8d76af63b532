"""The bounds of queues: where their messages begin and end, confirmed by the log, with few requests for each queue.

The units of the first and the last message are looked up in the queue, and both messages in the log, for many queues at
once, in columns and in the order of the log. Where the log has both messages, these are the bounds. All other queues
are searched one by one (bounds_search.py). Messages that their queue does not know yet, or no longer, do not count; a
broker does not know them either.
"""

import functools
import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from rmqstore_spark.kept import kept
from rmqstore_spark.store.bounds_search import Outer, QueueBounds, searched
from rmqstore_spark.store.format.light_queues import is_light
from rmqstore_spark.store.format.message import are_queued
from rmqstore_spark.store.format.queue_block import UNIT_SIZE, QueueBlock, QueueUnit
from rmqstore_spark.store.format.stretches import numbers_in
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.message_headers import many_headers
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import FEW_UNITS, Queue
from rmqstore_spark.store.structures.many_headers import NO_TIME
from rmqstore_spark.store.structures.queue_heads import (
    QUEUES_AT_ONCE,
    many_places,
    places_in,
    queue_ends,
)
from rmqstore_spark.store.unit_evidence import UnitEvidence

if TYPE_CHECKING:
    from rmqstore_spark.store.structures.rocksdb_ends import RecordEnds

_QUEUES_AT_ONCE = 4096  # queues whose messages are looked up together, so that the log is read in its order
_BLOCK = 4096  # bytes: disk space is mostly allocated in such blocks

_Item = TypeVar("_Item")
_Longs = npt.NDArray[np.int64]
_Ints = npt.NDArray[np.int32]
_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ManyBounds:
    """The bounds of queues as QueueBounds has them, in arrays with an item for each queue.

    Large because the bounds of a queue have as many numbers.

    Attributes:
        queues: the queues.
        least, end: queue offsets.
        numbers: rows: the unit numbers of the first and of the last message.
        positions: rows: physical offsets of the first and of the last whole message; -1 where there is none.
        times: rows: store times (us) of these; NO_TIME where there is none, or it is not known.
        files, nbytes: the number of files, and the bytes that they take on the disk.
        asked_times: of the unit numbers that were asked for, NO_TIME where the log has no message or no known time.
        ahead: the number of messages after `end` that the queue knows and that would be after the log's end; of light
            queues, whose messages other queues have, none.
    """

    queues: list[Queue]
    least: _Longs
    end: _Longs
    numbers: _Longs
    positions: _Longs
    times: _Longs
    files: _Longs
    nbytes: _Longs
    asked_times: _Longs
    ahead: _Longs

    def __len__(self) -> int:
        return len(self.queues)

    @kept
    def names(self) -> list[tuple[str, int]]:
        """Topic and queueId of each queue."""
        return [(queue.topic, queue.queue_id) for queue in self.queues]

    @kept
    def rows(self) -> dict[tuple[str, int], int]:
        """The index of each queue by its name; that of the last one where several have the same."""
        return {name: row for row, name in enumerate(self.names)}

    @property
    def have_messages(self) -> _Flags:
        """Which of the queues have a whole message."""
        have_messages: _Flags = self.positions[1] >= 0
        return have_messages

    @kept
    def by_offset(self) -> list[Queue | None]:
        """The queues; None for those whose units are not found by their message's queue offset."""
        return [queue if queue.is_by_offset else None for queue in self.queues]

    def is_lacking(self, row: int, queue_offset: int, position: int) -> bool:
        """Does a queue lack a message at its end? It says where it begins: a broker serves neither messages before
        that, nor older messages of a topic that was deleted and made anew. Of a queue of batches the log does not say
        at what queue offset a further one would begin.

        Args:
            position: the message's physical offset.
        """
        if not self.have_messages[row] and self.queues[row].last() is None:
            return True
        if self.by_offset[row] is None:
            return False
        return bool(queue_offset >= self.end[row] and position > self.positions[1, row])

    def of_existing(self) -> "ManyBounds":
        """Those of queues that have a unit, or space for one."""
        exist = self.have_messages | (self.end > self.least)
        for row in np.flatnonzero(~exist).tolist():
            exist[row] = bool(self.queues[row].in_files)
        if exist.all():
            return self
        names = ("least", "end", "numbers", "positions", "times", "files", "nbytes", "ahead")
        queues = [self.queues[row] for row in np.flatnonzero(exist).tolist()]
        return replace(self, queues=queues, **{name: getattr(self, name)[..., exist] for name in names})

    @classmethod
    def joined(cls, parts: "list[ManyBounds]") -> "ManyBounds":
        """The bounds of all queues of some."""
        queues = [queue for part in parts for queue in part.queues]
        names = ("least", "end", "numbers", "positions", "times", "files", "nbytes", "asked_times", "ahead")
        return cls(queues, *(np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in names))

    @classmethod
    def of(cls, found: list[QueueBounds]) -> "ManyBounds":
        """The columns of bounds. What files take is not known: 0."""
        nothing, pairs = np.zeros(len(found), np.int64), np.zeros((2, len(found)), np.int64)
        bounds = cls(
            queues=[each.queue for each in found],
            least=np.array([each.least for each in found], np.int64),
            end=np.array([each.end for each in found], np.int64),
            numbers=pairs.copy(),
            positions=pairs.copy(),
            times=pairs.copy(),
            files=nothing,
            nbytes=nothing,
            asked_times=np.zeros(0, np.int64),
            ahead=nothing,
        )
        for row, each in enumerate(found):
            bounds.put_messages(row, each)
        return bounds

    def put_messages(self, row: int, bounds: QueueBounds) -> None:
        """Fill in the messages at both ends of a queue."""
        self.numbers[:, row] = (bounds.numbers[0], bounds.numbers[-1]) if bounds.numbers else (0, -1)
        for which, header in enumerate((bounds.first, bounds.last)):
            time = None if header is None else header.store_timestamp
            self.positions[which, row] = -1 if header is None else header.position
            self.times[which, row] = NO_TIME if time is None else time


@dataclass(frozen=True)
class UnitNumbers:
    """Unit numbers of queues.

    Attributes:
        starts: where each queue's numbers begin among all of them, and how many there are.
        numbers: of each queue in ascending order.
    """

    starts: _Longs
    numbers: _Longs

    @classmethod
    def nothing(cls, queues: int) -> "UnitNumbers":
        """No number of so many queues."""
        return cls(np.zeros(queues + 1, np.int64), np.zeros(0, np.int64))

    def part(self, first: int, stop: int) -> "UnitNumbers":
        """The numbers of some of the queues."""
        starts = self.starts[first : stop + 1]
        return UnitNumbers(starts - starts[0], self.numbers[starts[0] : starts[-1]])

    @classmethod
    def of(cls, queues: int, which: _Longs | _Ints, numbers: _Longs) -> "tuple[UnitNumbers, _Longs]":
        """Each number of each queue once; and for each item of `which` the index of its number there.

        Args:
            queues: how many there are.
            which, numbers: the index of a queue, and a number.
        """
        order = np.lexsort((numbers, which))
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = (np.diff(which[order]) != 0) | (np.diff(numbers[order]) != 0)
        unique, index = order[is_new], np.empty(len(order), np.int64)
        index[order] = np.cumsum(is_new) - 1
        return cls(np.searchsorted(which[unique], np.arange(queues + 1)), numbers[unique]), index

    def with_more(self, others: "list[UnitNumbers]") -> "UnitNumbers":
        """These and others of the same queues, each number of each queue once."""
        every = [self, *others]
        which, numbers = (
            np.concatenate(of) for of in zip(*((each.queues, each.numbers) for each in every), strict=True)
        )
        return UnitNumbers.of(len(self.starts) - 1, which, numbers)[0]

    def index_of(self, which: _Longs | _Ints, numbers: _Longs) -> _Longs:
        """The index of numbers that are among these, given the index of the queue of each."""
        low, high = self.starts[which], self.starts[which + 1]
        while len(rows := np.flatnonzero(low < high)):
            middle = (low[rows] + high[rows]) // 2
            is_before = self.numbers[middle] < numbers[rows]
            low[rows[is_before]], high[rows[~is_before]] = middle[is_before] + 1, middle[~is_before]
        return low

    @property
    def queues(self) -> _Longs:
        """The queue of each number, by its index."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))


def queue_bounds(
    store: Snapshot, queues: Iterable[Queue], evidence: UnitEvidence | None = None
) -> Iterator[QueueBounds]:
    """The bounds of each of these queues, in their order.

    Args:
        evidence: answers of the log about units, shared with callers that ask more.
    """
    remaining = iter(queues)
    some = iter(lambda: list(itertools.islice(remaining, _QUEUES_AT_ONCE)), [])
    for found in _found(store, ((each, UnitNumbers.nothing(len(each))) for each in some), evidence):
        yield from map(found.bounds, range(len(found)))


def ask_for_ends(store: Snapshot, queues: list[Queue]) -> None:
    """Where requests take long, have those begin that the bounds of queues need first. Nobody waits for the answers, or
    is told what fails: whoever asks again is."""
    _begun(store.files, queues, UnitNumbers.nothing(len(queues)), 0)


def many_bounds(store: Snapshot, queues: list[Queue], asked: UnitNumbers | None = None) -> ManyBounds:
    """queue_bounds() in columns.

    Args:
        asked: unit numbers of simple queues whose messages' store times are wanted, too.
    """
    asked = asked or UnitNumbers.nothing(len(queues))
    starts = [*range(0, len(queues), _QUEUES_AT_ONCE)] or [0]
    some = ((queues[first:stop], asked.part(first, stop)) for first, stop in itertools.pairwise([*starts, len(queues)]))
    return ManyBounds.joined([found.columns() for found in _found(store, some)])


def _found(
    store: Snapshot, parts: "Iterable[tuple[list[Queue], UnitNumbers]]", evidence: UnitEvidence | None = None
) -> "Iterator[_Found]":
    """What is found of queues, a part of them after the other. Where requests take long, their outer units are asked
    for meanwhile: those of the first ones while the log's end is searched, those of others while the log is asked for
    the messages of the ones before.

    Args:
        parts: queues, and the unit numbers that are asked for.
    """
    begin = store.segments[0].start if store.segments else 0  # where the log begins, if there is anything in it
    begun = ((part, _begun(store.files, *part, begin)) for part in parts)
    for (queues, asked), coming in _ahead(begun, 1 if store.files.is_slow else 0):
        evidence = UnitEvidence(store) if evidence is None else evidence
        if coming is not None and evidence.begin == begin:
            outer = coming.result()
        else:
            outer = _outer_units(store.files, queues, evidence.begin, asked)
        yield _Found(store, queues, evidence, outer)
        evidence.forget()


def _begun(files: Files, queues: list[Queue], asked: UnitNumbers, begin: int) -> "Future[_OuterUnits] | None":
    """The outer units of queues, which another thread looks for; None where that brings nothing."""
    if not queues or not all(queue.is_in_files for queue in queues):
        return None
    return files.schedule.in_background(functools.partial(_outer_units, files, queues, begin, asked))


def _ahead(items: Iterable[_Item], count: int) -> Iterator[_Item]:
    """Some items, of which so many more are asked for than were given."""
    waiting: deque[_Item] = deque()
    for item in items:
        waiting.append(item)
        if len(waiting) > count:
            yield waiting.popleft()
    yield from waiting


class _Found:
    """What is found of some queues at once.

    Large because it has two sources for each end of a queue, units and messages, and two for its bounds: columns, and
    a search where these do not agree.
    """

    def __init__(self, store: Snapshot, queues: list[Queue], evidence: UnitEvidence, outer: "_OuterUnits") -> None:
        self._queues = queues
        self._evidence = evidence
        self._log_end = store.end
        self._outer = outer
        positions, sizes = (
            np.concatenate([getattr(ends, name)[ends.are_messages] for ends in outer.ends] + [of_asked])
            for name, of_asked in (("positions", outer.numbered[0]), ("sizes", outer.numbered[1]))
        )
        unique, first = np.unique(positions, return_index=True)
        evidence.expect(unique)
        self._headers = many_headers(store, unique, sizes[first])
        self._at = [np.searchsorted(unique, ends.positions) for ends in outer.ends]  # of no meaning for no message
        topics = np.empty(len(queues), np.object_)
        topics[:] = [queue.topic for queue in queues]
        ids = np.array([queue.queue_id for queue in queues], np.int64)
        are_plain = [
            self._are_there(store, ends, at, topics, ids) for ends, at in zip(outer.ends, self._at, strict=True)
        ]
        light = {topic for topic in set(topics.tolist()) if is_light(topic)}  # their messages are of other topics
        self._are_light = np.array([topic in light for topic in topics.tolist()], np.bool_)
        self._are_plain = are_plain[0] & are_plain[1] & ~self._are_light
        for row in np.flatnonzero(
            self._are_plain & ~np.array([queue.is_by_offset for queue in queues], np.bool_)
        ).tolist():
            last = outer.ends[1]
            last.messages[row] = evidence.settled(queues[row], last[row]).messages
        others = np.flatnonzero(~self._are_plain)
        evidence.prove(np.unique(np.concatenate([ends.only(others).positions for ends in outer.ends])))
        self._others = {row: self._searched(row) for row in others.tolist()}

    def _are_there(
        self, store: Snapshot, ends: QueueBlock, at: _Longs, topics: npt.NDArray[np.object_], ids: _Longs
    ) -> _Flags:
        """Which units have a message in the log that is surely live and the queue's own."""
        found = ends.are_messages.copy()
        rows = np.flatnonzero(found)
        if not len(rows):
            return found
        units, at, headers = ends.only(rows), at[rows], self._headers
        sizes, queue_ids, queue_offsets, sys_flags = headers.numbers[:, at]
        found[rows] = (
            headers.are_there[at]
            & (sizes == units.sizes)
            & (queue_ids == ids[rows])
            & (queue_offsets == units.queue_offsets)
            & (headers.topics[at] == topics[rows])
            & are_queued(sys_flags)
            & self._evidence.are_surely_live(units.positions, units.sizes)
        )
        return found

    def _searched(self, row: int) -> QueueBounds:
        ends, queue = self._outer.ends, self._queues[row]
        is_known = [ends[which].are_messages[row] for which in (0, 1)]
        known = [int(self._at[which][row]) for which in (0, 1) if is_known[which]]
        self._evidence.learn(zip(self._headers.positions[known].tolist(), self._headers.at(known), strict=True))
        return searched(queue, self._outer.of(row), self._evidence)

    def __len__(self) -> int:
        return len(self._queues)

    def bounds(self, row: int) -> QueueBounds:
        """The bounds of one of the queues."""
        if row in self._others:
            return self._others[row]
        first, last = (ends[row] for ends in self._outer.ends)
        headers = self._headers.at([int(at[row]) for at in self._at])
        numbers = range(first.number, last.number + 1)
        return QueueBounds(self._queues[row], first.queue_offset, last.end, headers[0], headers[1], numbers)

    def columns(self) -> ManyBounds:
        """The bounds of all of the queues."""
        first, last = self._outer.ends
        count, at = len(self._queues), [np.where(self._are_plain, at, 0) for at in self._at]
        found = ManyBounds(
            self._queues,
            first.queue_offsets.copy(),
            last.queue_offsets + last.messages,
            np.stack([first.numbers, last.numbers]),
            np.stack([first.positions, last.positions]),
            np.stack([self._headers.times[each] for each in at])
            if self._are_plain.any()
            else np.zeros((2, count), np.int64),
            self._outer.files,
            self._outer.nbytes,
            self._asked_times(),
            np.zeros(count, np.int64),
        )
        are_ahead = last.are_messages & (last.positions >= self._log_end) & ~self._are_light
        for row, bounds in self._others.items():
            found.least[row], found.end[row] = bounds.least, bounds.end
            if are_ahead[row]:
                found.ahead[row] = max(0, int(last.queue_offsets[row] + last.messages[row]) - bounds.end)
            found.put_messages(row, bounds)
        return found

    def _asked_times(self) -> _Longs:
        positions, _, are_there = self._outer.numbered
        times = np.full(len(are_there), NO_TIME, np.int64)
        times[are_there] = self._headers.times[np.searchsorted(self._headers.positions, positions)]
        return times


@dataclass(eq=False)
class _OuterUnits:
    """Outer units of queues, in columns (Outer).

    Attributes:
        ends: the first units that point into the log, and the last units in use; where there is none, one that is not
            in use.
        are_all: whether the small read shows all of the queue.
        files, nbytes: as of ManyBounds.
        places: rows: positions and sizes of the units that were asked for by number; -1 where there is no message.
    """

    ends: tuple[QueueBlock, QueueBlock]
    are_all: _Flags
    files: _Longs
    nbytes: _Longs
    places: _Longs

    @property
    def numbered(self) -> tuple[_Longs, _Longs, _Flags]:
        """Positions and sizes of the messages that were asked for, and which of the numbers have one."""
        are_there = self.places[0] >= 0
        positions, sizes = self.places[:, are_there]
        return positions, sizes, are_there

    def of(self, row: int) -> Outer:
        """Those of one queue."""
        first, last = (ends[row] if ends.kinds[row] else None for ends in self.ends)
        return Outer(first, last, bool(self.are_all[row]))

    def put_records(self, ends: "RecordEnds", width: int) -> None:
        """Fill in queues in RocksDB, of which the first `width` records were looked at for the first."""
        for block, other in zip(self.ends, (ends.first, ends.last), strict=True):
            block.fill(ends.rows, other)
        self.are_all[ends.rows] = ends.counts <= width
        self.files[ends.rows] = self.nbytes[ends.rows] = 0
        self.places[:, ends.numbers] = ends.places

    def put(self, row: int, queue: Queue, outer: Outer) -> None:
        """Fill in a queue that was read by itself."""
        for ends, unit in zip(self.ends, (outer.first, outer.last), strict=True):
            ends.put(row, unit)
        self.are_all[row] = outer.is_all
        self.files[row], self.nbytes[row] = len(queue.on_disk), sum(file.allocated for file in queue.on_disk)


def _outer_units(files: Files, queues: list[Queue], begin: int, asked: UnitNumbers) -> _OuterUnits:
    """The outer units of queues, for a log that begins at `begin`, and where the messages of asked numbers are. Most
    queues are so short that one read shows all units, and have one file."""
    width, count = max(FEW_UNITS, files.prices.linear_below), len(queues)
    found = _OuterUnits(
        ends=(QueueBlock.of(bytes(UNIT_SIZE * count)), QueueBlock.of(bytes(UNIT_SIZE * count))),
        are_all=np.ones(count, np.bool_),
        files=np.ones(count, np.int64),
        nbytes=np.zeros(count, np.int64),
        places=np.full((2, len(asked.numbers)), -1, np.int64),
    )
    are_alone, are_asked_alone = np.ones(count, np.bool_), np.ones(len(asked.numbers), np.bool_)
    for at in range(0, 0 if files.is_slow else count, QUEUES_AT_ONCE):
        here = slice(at, min(at + QUEUES_AT_ONCE, count))
        numbers, some = slice(*asked.starts[[here.start, here.stop]].tolist()), asked.part(here.start, here.stop)
        ends = queue_ends(queues[here], begin, files, some.starts, some.numbers)
        found.ends[0].fill(here, ends.first)
        found.ends[1].fill(here, ends.last)
        found.are_all[here], found.nbytes[here], found.places[:, numbers] = ends.are_all, ends.allocated, ends.places
        are_alone[here], are_asked_alone[numbers] = ~ends.are_known, ~ends.are_known[some.queues]
    if (records := _record_ends(queues, asked, width, begin)) is not None:
        found.put_records(records, width)
        are_alone[records.rows] = are_asked_alone[records.numbers] = False
    alone = np.flatnonzero(are_alone).tolist()
    outer = files.schedule.mapped(functools.partial(_outer, width=width, begin=begin), [queues[row] for row in alone])
    for row, each in zip(alone, outer, strict=True):
        found.put(row, queues[row], each)
    _look_for(files, queues, asked, np.unique(asked.queues[are_asked_alone]).tolist(), found.places)
    return found


def _record_ends(queues: list[Queue], asked: UnitNumbers, width: int, begin: int) -> "RecordEnds | None":
    """The outer units of queues in RocksDB; None where none is there."""
    if all(queue.is_in_files for queue in queues):
        return None
    # Imported here, as most stores have no such database.
    from rmqstore_spark.store.structures.rocksdb_ends import record_ends

    return record_ends(queues, asked.starts, asked.numbers, width, begin)


def places_of(files: Files, queues: list[Queue], asked: UnitNumbers) -> _Longs:
    """Where the messages of asked numbers are: rows of positions and sizes, -1 where there is no message."""
    found = np.full((2, len(asked.numbers)), -1, np.int64)
    are_alone = np.ones(len(asked.numbers), np.bool_)
    for at in range(0, 0 if files.is_slow else len(queues), QUEUES_AT_ONCE):
        stop = min(at + QUEUES_AT_ONCE, len(queues))
        numbers = slice(*asked.starts[[at, stop]].tolist())
        some = asked.part(at, stop)
        heads = queue_ends(queues[at:stop], 0, files, some.starts, some.numbers)
        found[:, numbers], are_alone[numbers] = heads.places, ~heads.are_known[some.queues]
    if (ends := _record_ends(queues, asked, FEW_UNITS, 0)) is not None:
        found[:, ends.numbers], are_alone[ends.numbers] = ends.places, False
    _look_for(files, queues, asked, np.unique(asked.queues[are_alone]).tolist(), found)
    return found


def _look_for(files: Files, queues: list[Queue], asked: UnitNumbers, rows: list[int], places: _Longs) -> None:
    """Fill in the places of all asked numbers of some queues."""
    if not files.is_slow:
        rows = [
            row
            for at in range(0, len(rows), QUEUES_AT_ONCE)
            for row in _put_places(files, queues, asked, rows[at : at + QUEUES_AT_ONCE], places)
        ]
    parts = [slice(*asked.starts[row : row + 2].tolist()) for row in rows]

    def found(each: tuple[int, slice]) -> _Longs:
        return places_in(queues[each[0]], asked.numbers[each[1]])

    for part, some in zip(parts, files.schedule.mapped(found, list(zip(rows, parts, strict=True))), strict=True):
        places[:, part] = some


def _put_places(files: Files, queues: list[Queue], asked: UnitNumbers, rows: list[int], places: _Longs) -> list[int]:
    """Fill in the places of all asked numbers of some queues; answers those that have to be read in another way."""
    counts = np.diff(asked.starts)[rows]
    starts = np.concatenate([[0], np.cumsum(counts)])
    numbers = numbers_in(asked.starts[rows], counts)
    found, are_others = many_places([queues[row] for row in rows], starts, asked.numbers[numbers], files)
    places[:, numbers] = found
    others: list[int] = np.unique(asked.queues[numbers[are_others]]).tolist()
    return others


def _outer(queue: Queue, width: int, begin: int) -> Outer:
    """The outer units of a queue that is read by itself, the first `width` units at once."""
    shown = queue.block(queue.first, width)
    inside = np.flatnonzero(shown.are_messages & (shown.positions >= begin))
    used = np.flatnonzero(shown.are_used)
    first = shown[inside[0]] if len(inside) else None
    last = shown[used[-1]] if len(used) else None
    if _may_go_on(queue, len(shown), last):
        number = queue.end - 1
        if number >= queue.first + len(shown):
            return Outer(first, queue.any_unit(number), is_all=False)
    return Outer(first, last)


def _may_go_on(queue: Queue, count: int, last: QueueUnit | None) -> bool:
    """Whether units in use may come after the first `count` ones of a queue, of which `last` is the last in use. Zeros
    may stand between units, as where a disk has lost a block. The kernel says the same of many queues
    (native_io/queue_ends.h)."""
    end, files = queue.first + count, queue.in_files
    if end >= queue.stop:
        return False
    if last is None or last.number == end - 1 or files[-1].first >= end:
        return True
    return count * queue.unit_size + _BLOCK < files[0].allocated < files[0].size
