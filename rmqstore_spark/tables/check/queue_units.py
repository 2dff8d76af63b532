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

from native_io import Dispatched, UnitKind
from rmqstore_spark.query.selection import ALL
from rmqstore_spark.store.format.queue_block import MOST_OFFSETS, UNIT_SIZE, QueueBlock, QueueUnit
from rmqstore_spark.store.format.system_topics import SCHEDULE_TOPIC
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.consumequeue_ext import LAST_ADDRESS, read_ext
from rmqstore_spark.store.structures.layout import queue_path
from rmqstore_spark.store.structures.queue_cursor import QueueCursor
from rmqstore_spark.tables.check.damaged import Damaged
from rmqstore_spark.tables.check.log_view import LogView, Wanted
from rmqstore_spark.tables.check.problems import Finding
from rmqstore_spark.tables.consumequeue import used_units

_RECOVERED_FILES = 3  # of a queue
_QUEUES_AHEAD = 512  # queues whose pages, and those of the log that they lead to, are kept at the same time

_Longs = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]
_LEAST_AT_ONCE, _MOST_AT_ONCE = 8, 16 * 1024  # units that are read backwards

_Expected = list[QueueBlock]  # units in a row, numbered by their queue offsets


class Candidate(NamedTuple):
    """A unit for which the log does not have the message where it points.

    Attributes:
        after: the number at which the search backwards began: all units from this one up to there are unconfirmed.
    """

    queue: Queue
    unit: QueueUnit
    after: int


class _Runs(NamedTuple):
    """What a stretch of the log has for a queue: units in a row, each run with the queue offset of its first one."""

    topic: str
    queue_id: int
    runs: list[tuple[int, memoryview]]


class QueueStretch:
    """Compares the queues with stretches of the log, one after the other.

    Args:
        store: the store.
        view: the store's log, for units that point elsewhere.

    Attributes:
        batch_topics: the topics whose queues are BatchCQs; not those that have simple queues as well.
    """

    def __init__(self, store: Snapshot, view: LogView) -> None:
        self._store = store
        self._view = view
        self._late: list[tuple[Queue, QueueBlock]] = []  # units that a broker will still make
        self.batch_topics = {
            topic
            for topic in {queue.topic for queue in store.queues.batch}
            if not any(queue.in_files for queue in store.queues.of_topic(topic))
        }

    def check(
        self, found: Dispatched, names: list[tuple[str, int]], start: int, stop: int, damaged: Damaged
    ) -> Iterator[Finding]:
        """Problems of the units of a stretch's messages.

        Args:
            found: the queue units that follow from the stretch.
            names: topic and queueId of the queues by their numbers.
            start, stop: the stretch's physical offsets.
            damaged: the stretch's damage.
        """
        extra: list[Candidate] = []
        runs = itertools.groupby(found.runs(), key=lambda run: run[0])
        of_queues = ((*names[number], [run[1:] for run in of_queue]) for number, of_queue in runs)
        while some := [_Runs(*each) for each in itertools.islice(of_queues, _QUEUES_AHEAD)]:
            self._fetch_ahead(some)
            for each in some:
                yield from self._check_queue(each, start, stop, extra)
        yield from extra_units(self._view, extra, stop, damaged)

    def _check_queue(self, runs: "_Runs", start: int, stop: int, extra: list[Candidate]) -> Iterator[Finding]:
        """check() of one queue. Units that the log does not confirm are added to `extra`."""
        topic, queue_id = runs.topic, runs.queue_id
        expected = [QueueBlock.of(units, offset, topic in self.batch_topics) for offset, units in runs.runs]
        if queue_path(topic, queue_id) is None:
            yield Finding("impossibleTopic", position=expected[0][0].position, topic=topic, queue_id=queue_id)
            return
        batch = self._store.queues.batch_queue(topic, queue_id)
        if batch is not None and batch.in_files and not self._store.queues.is_passed_over(batch):
            yield from self._check_batch(batch, expected, start, stop)
            extra += self._before_batch(batch, expected, start, stop)
            return
        queue = self._store.queues.queue(topic, queue_id) or self._without_files(topic, queue_id)
        if queue.is_lmq and not queue.in_files:
            return  # a broker deletes light queues that are not used, and keeps their messages
        for units in expected:
            yield from self._check_simple(queue, units)
        if not queue.is_lmq:  # each unit of which is looked at by queues.py
            extra += self._before(queue, expected)

    def _fetch_ahead(self, some: "list[_Runs]") -> None:
        """Ask for what check() of some queues reads of these, and then of the log: the messages of the units before
        theirs."""
        files = self._store.files
        if not files.is_slow:
            return
        asked = [
            (queue, offset, len(units) // UNIT_SIZE)
            for each in some
            if (queue := self._store.queues.queue(each.topic, each.queue_id)) is not None and queue.is_in_files
            for offset, units in each.runs
        ]
        ends = ((queue, n) for queue, first, count in asked for n in (first - 1, first, first + max(count, 1) - 1))
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

    # ---- simple queues

    def _check_simple(self, queue: Queue, units: QueueBlock) -> Iterator[Finding]:
        """Problems of the units of messages with consecutive queue offsets."""
        actual, is_there, is_wrong = self._compared(queue, units)
        if is_there.all() and not is_wrong.any():
            return
        if self._view.moment.is_unsettled:
            # Read again: a queue is written in order, so a unit missing before one that is there by now stays missing.
            queue = self._store.queues.queue(queue.topic, queue.queue_id) or queue
            end = recovered_end(queue) if self._view.moment.is_left else after_last_taken(queue)
            actual, is_there, is_wrong = self._compared(queue, units)
            expired = units.positions < self._view.start_now()
            is_late = units.numbers >= end
            is_late &= (~is_there | is_wrong) & (units.positions >= self._view.moment.dispatched_from)
            self._late += [(queue, units.only(slice(*ends))) for ends in stretches(is_late & ~expired)]
            is_there |= is_late | expired
            is_wrong &= ~is_late & ~expired
        for first, last in stretches(~is_there):
            unit = units[first]
            is_odd = _is_odd(self._view, queue, unit.queue_offset, unit.position)
            yield _of_unit(
                "shiftedQueueUnit" if is_odd else "missingQueueUnit", queue, unit, actual[first], last - first
            )
        for at in np.flatnonzero(is_wrong).tolist():
            yield _of_unit(self._kind_of(queue, units[at], actual[at]), queue, units[at], actual[at])

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

    def _compared(self, queue: Queue, units: QueueBlock) -> tuple[QueueBlock, _Flags, _Flags]:
        """The units in the places of expected ones; two masks: which exist, and which of these differ."""
        actual = _read(queue, int(units.numbers[0]), len(units))
        is_there = actual.are_messages
        is_wrong = (actual.positions != units.positions) | (actual.sizes != units.sizes)
        if (actual.tags_codes != units.tags_codes).any():
            is_wrong |= ~self._same_tags(queue, actual, units)
        return actual, is_there, is_there & is_wrong

    def _same_tags(self, queue: Queue, actual: QueueBlock, expected: QueueBlock) -> npt.NDArray[np.bool_]:
        """True for units with the right tagsCode. Delayed messages have the time there at which they are due, which
        depends on a broker's setting; with ConsumeQueueExt the tagsCode is an address."""
        if queue.topic == SCHEDULE_TOPIC:
            return np.ones(len(actual), np.bool_)
        codes = actual.tags_codes
        is_ext = codes <= LAST_ADDRESS
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

    # ---- BatchCQ

    def _check_batch(self, queue: Queue, expected: _Expected, start: int, stop: int) -> Iterator[Finding]:
        """Check units of a BatchCQ. Units are found by where they point, as nothing else links them to messages."""
        units = QueueBlock.joined(expected)
        units = units.only(units.are_messages)  # a broker takes no message whose number of messages it cannot read
        positions = units.positions
        actual = _near(queue, start, stop)
        missing = ~np.isin(positions, actual.positions)
        if missing.any():  # the search fails in a queue that is not in order; and a broker may have written meanwhile
            queue = self._store.queues.batch_queue(queue.topic, queue.queue_id) or queue
            actual = QueueBlock.joined([each.units for each in used_units(queue, 0, 1 << 62, ALL)])
            missing = ~np.isin(positions, actual.positions)
        if missing.any() and self._view.moment.is_unsettled:
            newest = int(actual.positions.max(initial=-1))
            is_late = missing & (positions > newest) & (positions >= self._view.moment.dispatched_from)
            self._late += [(queue, units.only(slice(*ends))) for ends in stretches(is_late)]
            missing &= ~is_late & (positions >= self._view.start_now())
        for unit in units.only(missing):
            yield Finding(
                "missingQueueUnit",
                position=unit.position,
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=unit.queue_offset,
                expected=_shown(unit),
                found="none",
            )
        actual = actual.only(np.isin(actual.positions, positions))
        right = units.only(np.searchsorted(positions, actual.positions))
        is_wrong = (actual.sizes != right.sizes) | (actual.tags_codes != right.tags_codes)
        is_wrong |= actual.queue_offsets != right.queue_offsets
        if queue.topic in self.batch_topics:
            is_wrong |= (actual.messages != right.messages) | (actual.store_times != right.store_times)
        else:  # the log's units are those of simple queues, which say neither
            actual.messages, actual.store_times = right.messages, right.store_times
        for at in np.flatnonzero(is_wrong).tolist():
            there, wanted = actual[at], right[at]
            yield Finding(
                "wrongQueueUnit",
                *place_of(queue, there.number),
                there.position,
                queue.topic,
                queue.queue_id,
                wanted.queue_offset,
                _shown_batch(right, at),
                _shown_batch(actual, at),
            )

    # ---- units that no message has

    def _before_batch(self, queue: Queue, expected: _Expected, start: int, stop: int) -> Iterator[Candidate]:
        """_before() in a BatchCQ."""
        actual = _near(queue, start, stop)
        are_expected = np.isin(actual.positions, QueueBlock.joined(expected).positions)
        least = 0
        for number in actual.numbers[are_expected].tolist():
            yield from unconfirmed(self._view, queue, number, least)
            least = number + 1

    def _before(self, queue: Queue, expected: _Expected) -> Iterator[Candidate]:
        """Units of no message that stand before the units of messages."""
        least = 0
        for units in expected:
            yield from unconfirmed(self._view, queue, units[0].number, least)
            least = units[-1].number + 1


def _near(queue: Queue, start: int, stop: int) -> QueueBlock:
    """The units of a BatchCQ that point into [start, stop), if the queue is in order."""
    cursor = QueueCursor(queue)
    first, after = cursor.seek(start), cursor.seek(stop)
    units = queue.block(first, max(0, after - first))
    return units.only(units.are_messages)


def after_last_taken(queue: Queue) -> int:
    """The number after the last unit of a simple queue that a broker counts when it starts, even with unused units
    before it. To a broker, the units before a queue's first message and those of lost messages are units like others
    (ConsumeQueue.recover): no new unit comes before them."""
    for file in reversed(queue.in_files):
        taken = np.flatnonzero(queue.block(file.first, file.capacity).are_used)
        if len(taken):
            return file.first + int(taken[-1]) + 1
    return 0


def recovered_end(queue: Queue) -> int:
    """The number from which a broker that finds `abort` drops the units of a simple queue, to make them anew from the
    log: the first unit in the last three files that does not count (ConsumeQueue.recover)."""
    end = 0
    for file in queue.in_files[-_RECOVERED_FILES:]:
        lacking = np.flatnonzero(~queue.block(file.first, file.capacity).are_used)
        if len(lacking):
            return file.first + int(lacking[0])
        end = file.end
    return end


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


def extra_units(view: LogView, some: list[Candidate], stop: int, damaged: Damaged) -> Iterator[Finding]:
    """Findings for the unconfirmed units that belong to no message: neither to a damaged one nor to one elsewhere in
    the log (such a unit is wrong, which is found with that message).

    Args:
        stop: messages of the units, if there are any, are before this physical offset.
        damaged: the physical offsets that are known to be damaged.
    """
    some = [each for each in some if each.unit.position not in damaged and not view.is_lost(each.unit.position)]
    some = [each for each in some if not _is_told_with_message(view, each)]
    wanted: Wanted = {}
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
    there = queue.unit(number)
    if there is not None and there.position == position:
        return any(_is_right(view, queue, each) for each in (number - 1, number + 1))
    return number - 1 > queue_offset and _is_right(view, queue, number - 1)


def _is_right(view: LogView, queue: Queue, number: int) -> bool:
    unit = queue.unit(number)
    return unit is not None and view.is_of(queue, number, unit)


def _is_told_with_message(view: LogView, candidate: Candidate) -> bool:
    """Does a unit of no message belong to a message whose queueOffset is odd, and which has no unit?"""
    queue, header = candidate.queue, view.header(candidate.unit.position)
    if header is None or not queue.is_by_offset or queue.is_lmq or not header.is_queued:
        return False
    if (header.topic, header.queue_id, header.size) != (queue.topic, queue.queue_id, candidate.unit.size):
        return False
    return queue.unit(header.queue_offset) is None and _is_odd(view, queue, header.queue_offset, header.position)


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


def _read(queue: Queue, number: int, count: int) -> QueueBlock:
    """`count` units of a simple queue from a number on; zeros where there is no file or the file is shorter."""
    data = bytearray(count * UNIT_SIZE)
    for first, part in queue.chunks(number, number + count, at_once=count, over_gaps=True):
        data[(first - number) * UNIT_SIZE : (first - number) * UNIT_SIZE + len(part)] = part
    return QueueBlock.of(data, number)


def place_of(queue: Queue, number: int) -> tuple[str | None, int | None]:
    """The file of a unit and the unit's byte offset in it; (None, None) if there is no file for it."""
    return queue.place_of(number) or (None, None)


def stretches(mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The runs [first, stop) in which a mask is true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8))).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _of_unit(problem: str, queue: Queue, expected: QueueUnit, found: QueueUnit, count: int = 1) -> Finding:
    """The finding for a message's unit in a simple queue."""
    return Finding(
        problem,
        *place_of(queue, expected.number),
        expected.position,
        queue.topic,
        queue.queue_id,
        expected.queue_offset,
        _shown(expected),
        _shown(found),
        count,
    )


def _shown_batch(units: QueueBlock, at: int) -> str:
    unit, time = units[at], int(units.store_times[at])
    rest = f"messages {unit.messages}, storeTimestamp {time}"
    return f"queueOffset {unit.queue_offset}, {_shown(unit)}, {rest}"


def _shown(unit: QueueUnit) -> str:
    if unit.size <= 0:
        return "none"
    if unit.kind is UnitKind.PRE_BLANK:
        return "none, as before a queue's first message"
    return f"commitLogOffset {unit.position}, size {unit.size}, tagsCode {unit.tags_code}"
