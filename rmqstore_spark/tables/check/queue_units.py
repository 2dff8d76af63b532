"""The units of queues, compared with the messages of a stretch of the log.

Each message must have its unit, which is found by its queueOffset. Units for which the log has no message stand before
a right unit or at the queue's end. Those before a right unit are found here, those at the end by queues.py.
"""

import itertools
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native_io import Dispatched
from rmqstore_spark.store.format.queue_block import MOST_OFFSETS, QueueBlock, QueueUnit
from rmqstore_spark.store.format.stretches import numbers_in
from rmqstore_spark.store.format.system_topics import SCHEDULE_TOPIC
from rmqstore_spark.store.queue_members import Offsets
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue, are_far
from rmqstore_spark.store.structures.consumequeue_ext import LAST_ADDRESS, read_ext
from rmqstore_spark.store.structures.expected_units import ExpectedUnits
from rmqstore_spark.store.structures.layout import queue_path
from rmqstore_spark.store.structures.queue_cursor import QueueCursor
from rmqstore_spark.tables.check.damaged import Damaged
from rmqstore_spark.tables.check.log_view import LogView
from rmqstore_spark.tables.check.problems import Finding

_QUEUES_AHEAD = 512  # queues whose pages, and those of the log that they lead to, are kept at the same time

_Longs = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]
_LEAST_AT_ONCE, _MOST_AT_ONCE = 8, 16 * 1024  # units that are read backwards


class Candidate(NamedTuple):
    """A unit for which the log does not have the message where it points.

    Attributes:
        after: the number at which the search backwards began: all units from this one up to there are unconfirmed.
    """

    queue: Queue
    unit: QueueUnit
    after: int


class _Runs(NamedTuple):
    """What a stretch of the log has for a queue: units in runs, of which a damaged log has very many.

    Attributes:
        units: those of all runs.
        offsets: the queue offset of the first unit of each run.
        counts: the number of units of each run.
    """

    topic: str
    queue_id: int
    units: memoryview
    offsets: _Longs
    counts: _Longs

    @classmethod
    def each(cls, found: Dispatched, names: list[tuple[str, int]]) -> "Iterator[_Runs]":
        """Those of each queue.

        Args:
            names: topic and queueId of the queues by their numbers.
        """
        units, ends = found.units.data, np.cumsum(found.run_count * found.run_size)
        edges = np.flatnonzero(np.diff(found.run_queue)) + 1
        begin = 0
        for first, stop in itertools.pairwise([0, *edges.tolist(), len(ends)] if len(ends) else ()):
            end, runs = int(ends[stop - 1]), slice(first, stop)
            yield cls(
                *names[int(found.run_queue[first])], units[begin:end], found.run_offset[runs], found.run_count[runs]
            )
            begin = end

    @property
    def numbers(self) -> _Longs:
        """The queue offset of each unit."""
        return numbers_in(self.offsets, self.counts)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The first and the last queue offset of runs that are near each other."""
        lasts = self.offsets + self.counts - 1
        begins = np.append(0, np.flatnonzero(are_far(lasts[:-1], self.offsets[1:])) + 1)
        ends = np.append(begins[1:], len(lasts)) - 1
        return list(zip(self.offsets[begins].tolist(), lasts[ends].tolist(), strict=True))


class QueueStretch:
    """Compares the queues with stretches of the log, one after the other.

    Args:
        store: the store.
        view: the store's log, for units that point elsewhere.

    Attributes:
        expected: what the queues have to have.
    """

    def __init__(self, store: Snapshot, view: LogView) -> None:
        self._store = store
        self._view = view
        self._late: list[tuple[Queue, QueueBlock]] = []  # units that a broker will still make
        self._last = Damaged()  # the damage of the stretch before
        self.expected = ExpectedUnits.of(store.queues)

    def check(self, found: Dispatched, names: list[tuple[str, int]], stop: int, damaged: Damaged) -> Iterator[Finding]:
        """Problems of the units of a stretch's messages.

        Args:
            found: the queue units that follow from the stretch.
            names: topic and queueId of the queues by their numbers.
            stop: the physical offset at which the stretch ends.
            damaged: the stretch's damage.
        """
        extra: list[Candidate] = []
        of_queues = _Runs.each(found, names)
        while some := list(itertools.islice(of_queues, _QUEUES_AHEAD)):
            self._fetch_ahead(some)
            for each in some:
                queue, units = self._queue_of(each), self._units_of(each)
                if queue is None:
                    position = next(units)[0].position
                    yield Finding("impossibleTopic", position=position, topic=each.topic, queue_id=each.queue_id)
                elif queue.is_expected:
                    least = 0
                    for right, there in queue.in_places_of(units):
                        yield from self._check_units(queue, right, there)
                        extra += self._before(queue, there.numbers, least, damaged)
                        least = next((number + 1 for number in reversed(there.numbers.tolist()) if number >= 0), least)
        yield from extra_units(self._view, extra, stop)
        self._last = damaged

    def _queue_of(self, runs: _Runs) -> Queue | None:
        """The queue of units; None where there can be none."""
        topic, queue_id = runs.topic, runs.queue_id
        if queue_path(topic, queue_id) is None:
            return None
        return self._store.queues.dispatched_to(topic, queue_id) or self._without_files(topic, queue_id)

    def _units_of(self, runs: _Runs) -> Iterator[QueueBlock]:
        """Units, numbered by their queue offsets, so many at a time."""
        numbers = runs.numbers
        size = len(runs.units) // len(numbers)
        for at in range(0, len(numbers), _MOST_AT_ONCE):
            some = slice(size * at, size * (at + _MOST_AT_ONCE))
            yield self.expected.parsed(runs.topic, runs.units[some], numbers[at : at + _MOST_AT_ONCE])

    def _fetch_ahead(self, some: "list[_Runs]") -> None:
        """Ask for what check() of some queues reads of these, and then of the log: the messages of the units before
        theirs."""
        files = self._store.files
        if not files.is_slow:
            return
        asked = [
            (queue, first, last)
            for each in some
            if (queue := self._store.queues.queue(each.topic, each.queue_id)) is not None and queue.is_in_files
            for first, last in each.spans
        ]
        ends = ((queue, n) for queue, first, last in asked for n in (first - 1, first, last))
        files.prefetch(place for queue, n in ends if (place := queue.place_of(n)) is not None)
        before = (queue.any_unit(first - 1) for queue, first, _ in asked if first > 0)
        at = sorted(unit.position for unit in before if unit is not None and unit.is_message)
        extents = ((position, self._view.store.log.extent_at(position)) for position in at)
        files.prefetch((e.segment.path, position - e.segment.start) for position, e in extents if e is not None)

    def not_dispatched(self) -> Iterator[Finding]:
        """One row for all units since the last call that a broker will still put into queues."""
        if self._late:
            queue, units = min(self._late, key=lambda late: late[1][0].position)
            yield Finding(
                "notDispatched",
                *place_of(queue, units[0].number),
                units[0].position,
                queue.topic,
                queue.queue_id,
                units[0].queue_offset,
                "a unit for each message",
                "none for some of the last messages",
                sum(len(units) for _, units in self._late),
            )
        self._late = []

    # ---- units of messages

    def _check_units(self, queue: Queue, units: QueueBlock, actual: QueueBlock) -> Iterator[Finding]:
        """Problems of the units of messages.

        Args:
            units: these units, as they follow from the log.
            actual: the units in their places.
        """
        is_there, is_wrong = self._compared(queue, units, actual)
        if is_there.all() and not is_wrong.any():
            return
        if self._view.moment.is_unsettled:
            # Read again: a queue is written in order, so a unit missing before one that is there by now stays missing.
            queue = self._store.queues.named(queue.name) or queue
            after_end = units.positions[queue.are_after_end(units, self._view.moment.is_left)]
            ((units, actual),) = queue.in_places_of([units])
            is_there, is_wrong = self._compared(queue, units, actual)
            expired = units.positions < self._view.start_now()
            is_late = (~is_there | is_wrong) & np.isin(units.positions, after_end)
            is_late &= units.positions >= self._view.moment.dispatched_from
            self._late += [(queue, units.only(slice(*ends))) for ends in stretches(is_late & ~expired)]
            is_there |= is_late | expired
            is_wrong &= ~is_late & ~expired
        for first, last in in_a_row(actual.numbers, ~is_there):
            unit = units[first]
            is_odd = _is_odd(self._view, queue, unit.queue_offset, unit.position)
            problem = "shiftedQueueUnit" if is_odd else "missingQueueUnit"
            yield _of_unit(problem, queue, unit, actual[first], (unit.text, actual[first].text), last - first)
        for at in np.flatnonzero(is_wrong).tolist():
            right, there = units[at], actual[at]
            problem = self._kind_of(queue, right, there)
            yield _of_unit(problem, queue, right, there, (queue.text_of(units, at), queue.text_of(actual, at)))

    def _kind_of(self, queue: Queue, right: QueueUnit, there: QueueUnit) -> str:
        """The problem where a queue's unit is not the one of a message: a wrong unit, or a wrong message in the log.

        Args:
            right: the message's unit.
            there: the queue's unit.
        """
        header = None if there.position == right.position else self._view.header(there.position)
        if header is None or not header.is_queued or (header.topic, header.queue_id) != (queue.topic, queue.queue_id):
            return "wrongQueueUnit"
        if header.queue_offset == right.queue_offset:
            return "repeatedQueueOffset"
        # In a queue that is made anew from a log with a gap, units after the gap come too early.
        return "shiftedQueueUnit" if header.queue_offset > right.queue_offset else "wrongQueueUnit"

    def _compared(self, queue: Queue, units: QueueBlock, actual: QueueBlock) -> tuple[_Flags, _Flags]:
        """Which units are there in the places of expected ones, and which of these differ."""
        is_wrong = self.expected.differ(queue.topic, units, actual)
        if (actual.tags_codes != units.tags_codes).any():
            is_wrong |= ~self._same_tags(queue, actual, units)
        return actual.are_messages, actual.are_messages & is_wrong

    def _same_tags(self, queue: Queue, actual: QueueBlock, expected: QueueBlock) -> npt.NDArray[np.bool_]:
        """True for units with the right tagsCode. Delayed messages have the time there at which they are due, which
        depends on a broker's setting; with ConsumeQueueExt the tagsCode is an address."""
        if queue.topic == SCHEDULE_TOPIC:
            return np.ones(len(actual), np.bool_)
        codes = actual.tags_codes
        is_ext = (codes <= LAST_ADDRESS) & queue.has_ext
        if is_ext.any():
            ext = read_ext(self._store.root, queue.topic, queue.queue_id, codes[is_ext].tolist(), self._store.files)
            # Where there is nothing at the address, a broker lets the message pass any filter.
            pairs = zip(codes.tolist(), expected.tags_codes.tolist(), strict=True)
            resolved = [ext[code].tags_code if code in ext else right for code, right in pairs]
            codes = np.where(is_ext, np.array(resolved, np.int64), codes)
        same: npt.NDArray[np.bool_] = codes == expected.tags_codes
        return same

    def _without_files(self, topic: str, queue_id: int) -> Queue:
        """A queue of a store that has no directory of simple queues, as all its topics are BatchCQ topics, or none."""
        directory = os.path.join(self._store.root, "consumequeue", topic, str(queue_id))
        return Queue(directory, topic, queue_id, self._store.files)

    # ---- units that no message has

    def _before(self, queue: Queue, numbers: _Longs, least: int, damaged: Damaged) -> Iterator[Candidate]:
        """Units of no message, which is not known to be damaged, that stand before the units of messages.

        Args:
            numbers: those of the messages' units; -1 where there is none.
            least: only units from this number on.
        """
        rows = np.array(in_a_row(numbers, numbers >= 0), np.int64).reshape(-1, 2)
        begins, ends = numbers[rows[:, 0]], numbers[rows[:, 1] - 1] + 1
        leasts = np.append(least, ends)[:-1]
        asked = np.flatnonzero((begins > leasts) & ~_are_damaged(queue, leasts, begins, damaged))
        for number, first in zip(begins[asked].tolist(), leasts[asked].tolist(), strict=True):
            found = unconfirmed(self._view, queue, number, first)
            yield from (each for each in found if not any(each.unit.position in of for of in (damaged, self._last)))


def _are_damaged(queue: Queue, leasts: _Longs, begins: _Longs, damaged: Damaged) -> _Flags:
    """Which rows of units [least, begin) have units of damaged messages alone? Long rows are not looked at. In a
    damaged log there are very many, and the log is not asked for each unit."""
    found, is_short = np.zeros(len(begins), np.bool_), (begins > leasts) & ~are_far(leasts, begins)
    counts = (begins - leasts)[is_short]
    if len(counts):
        units = queue.numbered(numbers_in(leasts[is_short], counts))
        are_of_damaged = units.are_messages & damaged.have(units.positions)
        found[is_short] = np.logical_and.reduceat(are_of_damaged, np.cumsum(counts) - counts)
    return found


def unconfirmed(view: LogView, queue: Queue, number: int, least: int = 0) -> Iterator[Candidate]:
    """The consecutive units before a number for which the log does not have the message there, nearest first.

    Args:
        least: only units from this number on.
    """
    for unit in _backwards(queue, number, least):
        if unit.position < view.start or view.is_of(queue, unit.queue_offset, unit):
            return
        yield Candidate(queue, unit, number)


def _backwards(queue: Queue, number: int, least: int) -> Iterator[QueueUnit]:
    """The consecutive used units before a number, nearest first. Mostly only the first unit is needed."""
    count = _LEAST_AT_ONCE
    while number > least:
        file = next((each for each in queue.in_files if each.first < number <= each.end), None)
        if file is None:
            return
        first = max(least, file.first, number - count)
        units = queue.block(first, number - first)
        if len(units) < number - first:
            return
        for unit in units.only(slice(None, None, -1)):
            if not unit.is_message:
                return
            yield unit
        number, count = first, min(2 * count, _MOST_AT_ONCE)


def extra_units(view: LogView, some: list[Candidate], stop: int) -> Iterator[Finding]:
    """Findings for the unconfirmed units that belong to no message: neither to a damaged one nor to one elsewhere in
    the log (such a unit is wrong, which is found with that message).

    Args:
        stop: messages of the units, if there are any, are before this physical offset.
    """
    some = [each for each in some if not view.is_lost(each.unit.position)]
    some = [each for each in some if not _is_told_with_message(view, each)]
    wanted: Offsets = {}
    for each in some:
        wanted.setdefault((each.queue.topic, each.queue.queue_id), set()).add(each.unit.queue_offset)
    present = view.present(wanted, view.start, stop)
    found: list[Candidate] = []
    for begun, group in itertools.groupby(some, key=_begun):
        for each in group:
            if each.unit.queue_offset in present.get(begun[:2], ()):
                break  # units before one whose message is elsewhere are found with that message
            found.append(each)
    found.sort(key=lambda each: (*_begun(each)[:2], each.unit.number))
    yield from _findings(found, view.end)


def _is_odd(view: LogView, queue: Queue, queue_offset: int, position: int) -> bool:
    """Is a message's queueOffset wrong, and not its queue? Yes if no queue can have such an offset, if the queue has
    the message among right units, or if a right unit after it has a message before it in the log. A queue that is made
    anew from the log looks so, too."""
    if not 0 <= queue_offset < MOST_OFFSETS:
        return True
    number = QueueCursor(queue).seek(position)
    before, there = queue.unit(number - 1), queue.unit(number)
    if there is not None and there.position == position:
        return _is_right(view, queue, before) or _is_right(view, queue, queue.unit(number + 1))
    return before is not None and before.queue_offset > queue_offset and _is_right(view, queue, before)


def _is_right(view: LogView, queue: Queue, unit: QueueUnit | None) -> bool:
    return unit is not None and view.is_of(queue, unit.queue_offset, unit)


def _is_told_with_message(view: LogView, candidate: Candidate) -> bool:
    """Does a unit of no message belong to a message whose queueOffset is odd, and which has no unit?"""
    queue, header = candidate.queue, view.header(candidate.unit.position)
    if header is None or not header.is_queued:
        return False
    if (header.topic, header.queue_id, header.size) != (queue.topic, queue.queue_id, candidate.unit.size):
        return False
    return queue.unit_of(header) is None and _is_odd(view, queue, header.queue_offset, header.position)


def _findings(found: list[Candidate], end: int) -> Iterator[Finding]:
    """The findings for units of no message. Consecutive units of messages after the log's end are one finding."""

    def stretch(numbered: tuple[int, Candidate]) -> tuple[object, ...]:
        at, each = numbered
        is_ahead = each.unit.position >= end
        return each.queue.topic, each.queue.queue_id, is_ahead, each.unit.number - at if is_ahead else at

    for _, group in itertools.groupby(enumerate(found), key=stretch):
        some = [each for _, each in group]
        finding = extra_unit(some[0].queue, some[0].unit)
        if some[0].unit.position < end:
            yield finding
        else:
            expected = f"one before the log's end at {end}"
            yield replace(finding, problem="queueAheadOfLog", expected=expected, count=len(some))


def _begun(candidate: Candidate) -> tuple[str, int, int]:
    return candidate.queue.topic, candidate.queue.queue_id, candidate.after


def extra_unit(queue: Queue, unit: QueueUnit) -> Finding:
    """The finding for a unit of no message."""
    return Finding(
        "extraQueueUnit",
        *place_of(queue, unit.number),
        unit.position,
        queue.topic,
        queue.queue_id,
        unit.queue_offset,
        "none",
        f"commitLogOffset {unit.position}, size {unit.size}, tagsCode {unit.tags_code}",
    )


def place_of(queue: Queue, number: int) -> tuple[str | None, int | None]:
    """The file of a unit and the unit's byte offset in it; (None, None) if there is no file for it."""
    return queue.place_of(number) or (None, None)


def stretches(mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The runs [first, stop) in which a mask is true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8))).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def in_a_row(numbers: _Longs, which: _Flags) -> list[tuple[int, int]]:
    """The parts [first, stop) with all of those that a mask names, in which numbers follow each other."""
    at = np.flatnonzero(which)
    begins = np.append(0, np.flatnonzero((np.diff(at) != 1) | (np.diff(numbers[at]) != 1)) + 1)[: len(at)]
    ends = np.append(begins, len(at))[1:] - 1
    return list(zip(at[begins].tolist(), (at[ends] + 1).tolist(), strict=True))


def _of_unit(
    problem: str, queue: Queue, right: QueueUnit, there: QueueUnit, texts: tuple[str, str], count: int = 1
) -> Finding:
    """The finding for a message's unit in a queue.

    Args:
        right, there: the unit, and what is in its place.
        texts: of both.
    """
    return Finding(
        problem,
        *place_of(queue, there.number),
        right.position,
        queue.topic,
        queue.queue_id,
        right.queue_offset,
        *texts,
        count,
    )
