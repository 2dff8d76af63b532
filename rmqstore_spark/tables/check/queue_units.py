"""What the units of queues say, held against the messages of a stretch of the log.

Each message must have its unit, which is found by its queueOffset. And where a queue has units for which the log has no
message, they come before one that is right, or at the queue's end. The first of these are found here, the others by
queues.py.
"""

import itertools
from collections.abc import Iterable, Iterator
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
from rmqstore_spark.store.structures.queues import ConsumeQueues
from rmqstore_spark.store.structures.segments import Damage
from rmqstore_spark.tables.check.log_view import LogView, Wanted
from rmqstore_spark.tables.check.problems import Finding
from rmqstore_spark.tables.consumequeue import used_units

_RECOVERED_FILES = 3  # of a queue

_Longs = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]
_LEAST_AT_ONCE, _MOST_AT_ONCE = 8, 16 * 1024  # units that are read backwards

_Expected = list[QueueBlock]  # units in a row, numbered by their queue offsets


class Candidate(NamedTuple):
    """A unit for which the log does not have the message where it points.

    Attributes:
        after: the number that was begun with to look for it: all units from this one up to there are alike.
    """

    queue: Queue
    unit: QueueUnit
    after: int


class QueueStretch:
    """Holds the queues against stretches of the log, one after the other.

    Args:
        store: whose.
        view: its log, where units point elsewhere.
    """

    def __init__(self, store: Snapshot, view: LogView) -> None:
        self._store = store
        self._view = view
        self._late: list[tuple[Queue, QueueBlock]] = []  # units that a broker makes yet

    def check(
        self, found: Dispatched, names: list[tuple[str, int]], start: int, stop: int, damages: list[Damage]
    ) -> Iterator[Finding]:
        """What is wrong with the units of a stretch's messages.

        Args:
            found: what follows from its units.
            names: topic and queueId of the queues by their numbers.
            start, stop: its physical offsets.
            damages: what is damaged in it.
        """
        extra: list[Candidate] = []
        for number, runs in itertools.groupby(found.runs(), key=lambda run: run[0]):
            topic, queue_id = names[number]
            expected = [QueueBlock.of(units, offset) for _, offset, units in runs]
            if queue_path(topic, queue_id) is None:
                yield Finding("impossibleTopic", position=expected[0][0].position, topic=topic, queue_id=queue_id)
                continue
            batch = self._store.queues.queue(topic, queue_id, is_batch=True)
            if batch is not None and batch.in_files and not is_beside_simple(batch, self._store.queues):
                yield from self._check_batch(batch, expected, start, stop)
                extra += self._before_batch(batch, expected, start, stop)
                continue
            queue = self._store.queues.queue(topic, queue_id)
            assert queue is not None
            for units in expected:
                yield from self._check_simple(queue, units)
            extra += self._before(queue, expected)
        yield from extra_units(self._view, extra, stop, damages)

    def not_dispatched(self) -> Iterator[Finding]:
        """What a broker puts into queues yet: one row for all of it since the last time."""
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
        """What is wrong with the units of messages whose queue offsets go on from one to the next."""
        actual, is_there, is_wrong = self._compared(queue, units)
        if is_there.all() and not is_wrong.any():
            return
        if self._view.moment.is_unsettled:
            # Looked at once more: a queue is written in order, so what is missing before a unit seen by now stays so.
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
        """What is wrong where a queue's unit is not the one of a message: as the log has it, or in the log itself.

        Args:
            right: the message's unit.
            there: the queue's.
        """
        header = None if there.position == right.position else self._view.header(there.position)
        if header is None or not header.is_queued or (header.topic, header.queue_id) != (queue.topic, queue.queue_id):
            return "wrongQueueUnit"
        if header.queue_offset == right.queue_offset:
            return "repeatedQueueOffset"
        # A queue that is made anew from a log with a gap has what comes after it too early.
        return "shiftedQueueUnit" if header.queue_offset > right.queue_offset else "wrongQueueUnit"

    def _compared(self, queue: Queue, units: QueueBlock) -> tuple[QueueBlock, _Flags, _Flags]:
        """The units that stand where some should; which are there at all, and which of these are others."""
        actual = _read(queue, int(units.numbers[0]), len(units))
        is_there = actual.are_messages
        is_wrong = (actual.positions != units.positions) | (actual.sizes != units.sizes)
        if (actual.tags_codes != units.tags_codes).any():
            is_wrong |= ~self._same_tags(queue, actual, units)
        return actual, is_there, is_there & is_wrong

    def _same_tags(self, queue: Queue, actual: QueueBlock, expected: QueueBlock) -> npt.NDArray[np.bool_]:
        """Of which units is the tagsCode right? Delayed messages have there when they are due, which depends on a
        broker's setting; and with ConsumeQueueExt it is an address."""
        if queue.topic == SCHEDULE_TOPIC:
            return np.ones(len(actual), np.bool_)
        codes = actual.tags_codes
        is_ext = codes <= LAST_ADDRESS
        if is_ext.any():
            ext = read_ext(self._store.root, queue.topic, queue.queue_id, codes[is_ext].tolist(), self._store.files)
            # Where nothing is, a broker lets the message pass any filter.
            pairs = zip(codes.tolist(), expected.tags_codes.tolist(), strict=True)
            resolved = [ext[code].tags_code if code in ext else right for code, right in pairs]
            codes = np.where(is_ext, np.array(resolved, np.int64), codes)
        same: npt.NDArray[np.bool_] = codes == expected.tags_codes
        return same

    # ---- BatchCQ

    def _check_batch(self, queue: Queue, expected: _Expected, start: int, stop: int) -> Iterator[Finding]:
        """Units are found by where they point, as nothing else tells which one is a message's."""
        units = QueueBlock.joined(expected)
        positions = units.positions
        actual = _near(queue, start, stop)
        missing = ~np.isin(positions, actual.positions)
        if missing.any():  # a queue that is not in order does not lead there; and a broker may have written meanwhile
            queue = self._store.queues.queue(queue.topic, queue.queue_id, is_batch=True) or queue
            actual = QueueBlock.joined([each.units for each in used_units(queue, 0, 1 << 62, ALL, self._store.files)])
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
        for there, wanted in zip(actual.only(is_wrong), right.only(is_wrong), strict=True):
            yield Finding(
                "wrongQueueUnit",
                *place_of(queue, there.number),
                there.position,
                queue.topic,
                queue.queue_id,
                wanted.queue_offset,
                f"queueOffset {wanted.queue_offset}, {_shown(wanted)}",
                f"queueOffset {there.queue_offset}, {_shown(there)}",
            )

    # ---- units that no message has

    def _before_batch(self, queue: Queue, expected: _Expected, start: int, stop: int) -> Iterator[Candidate]:
        """The same in a BatchCQ."""
        actual = _near(queue, start, stop)
        are_expected = np.isin(actual.positions, QueueBlock.joined(expected).positions)
        least = 0
        for number in actual.numbers[are_expected].tolist():
            yield from unconfirmed(self._view, queue, number, least)
            least = number + 1

    def _before(self, queue: Queue, expected: _Expected) -> Iterator[Candidate]:
        """Units before those of messages that are not those of messages themselves."""
        least = 0
        for units in expected:
            yield from unconfirmed(self._view, queue, units[0].number, least)
            least = units[-1].number + 1


def _near(queue: Queue, start: int, stop: int) -> QueueBlock:
    """The units of a BatchCQ that point into [start, stop), if it is in order."""
    cursor = QueueCursor(queue)
    first, after = cursor.seek(start), cursor.seek(stop)
    units = queue.block(first, max(0, after - first))
    return units.only(units.are_messages)


def after_last_taken(queue: Queue) -> int:
    """The number after that of the last unit of a simple queue that a broker counts when it starts, wherever there are
    unused ones before it. To a broker those before a queue's first message, and of lost ones, are units like others
    (ConsumeQueue.recover): it puts none before them."""
    for file in reversed(queue.in_files):
        taken = np.flatnonzero(queue.block(file.first, file.capacity).are_used)
        if len(taken):
            return file.first + int(taken[-1]) + 1
    return 0


def recovered_end(queue: Queue) -> int:
    """The number from which on a broker that finds `abort` drops the units of a simple queue, to make them anew from
    the log: that of the first one in the last three files that does not count (ConsumeQueue.recover)."""
    end = 0
    for file in queue.in_files[-_RECOVERED_FILES:]:
        lacking = np.flatnonzero(~queue.block(file.first, file.capacity).are_used)
        if len(lacking):
            return file.first + int(lacking[0])
        end = file.end
    return end


def unconfirmed(view: LogView, queue: Queue, number: int, least: int = 0) -> Iterator[Candidate]:
    """The units in a row before a number for which the log does not have the message there, nearest first.

    Args:
        least: only units from this number on.
    """
    for unit in _backwards(queue, number, least):
        if unit.position < view.start or view.is_of(queue, unit.queue_offset, unit):
            return
        yield Candidate(queue, unit, number)


def _backwards(queue: Queue, number: int, least: int) -> Iterator[QueueUnit]:
    """The units of messages in a row before a number, nearest first. Mostly the first one is all that is asked for."""
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


def extra_units(view: LogView, some: list[Candidate], stop: int, damages: Iterable[Damage] = ()) -> Iterator[Finding]:
    """Those of some unconfirmed units that belong to no message: not to one that is damaged, and not to one that is
    elsewhere in the log (then they are wrong, which is found with that message).

    Args:
        stop: their messages, if there are some, are before this physical offset.
        damages: what is known to be damaged.
    """
    some = [each for each in some if not is_in(damages, each.unit.position) and not view.is_lost(each.unit.position)]
    some = [each for each in some if not _is_told_with_message(view, each)]
    wanted: Wanted = {}
    for each in some:
        wanted.setdefault((each.queue.topic, each.queue.queue_id), set()).add(each.unit.queue_offset)
    present = view.present(wanted, view.start, stop)
    found: list[Candidate] = []
    for begun, group in itertools.groupby(some, key=_begun):
        for each in group:
            if each.unit.queue_offset in present.get(begun[:2], ()):
                break  # what comes before a unit whose message is elsewhere is found with that message
            found.append(each)
    found.sort(key=lambda each: (*_begun(each)[:2], each.unit.number))
    yield from _told(found, view.end)


def is_beside_simple(batch: Queue, queues: ConsumeQueues) -> bool:
    """Is a BatchCQ without any unit beside a simple queue, which is then the one that counts? A topic has queues of one
    kind."""
    simple = queues.queue(batch.topic, batch.queue_id)
    return simple is not None and bool(simple.in_files) and batch.last() is None


def _is_odd(view: LogView, queue: Queue, queue_offset: int, position: int) -> bool:
    """Is it the queueOffset of a message that is wrong, and not its queue? It is where no queue can have such a one,
    where the queue has the message among those that are right, or after it a right one that comes before it in the log.
    A queue that is made anew from the log has it so, too."""
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
    """Is a unit of no message that of one whose queueOffset is odd, and has no unit?"""
    queue, header = candidate.queue, view.header(candidate.unit.position)
    if header is None or queue.is_batch or queue.is_lmq or not header.is_queued:
        return False
    if (header.topic, header.queue_id, header.size) != (queue.topic, queue.queue_id, candidate.unit.size):
        return False
    return queue.unit(header.queue_offset) is None and _is_odd(view, queue, header.queue_offset, header.position)


def _told(found: list[Candidate], end: int) -> Iterator[Finding]:
    """The findings for units of no message. Those of messages after the log's end that follow each other are one."""

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
    """So many units of a simple queue from a number on; zeros where there is no file, or not so much of it."""
    data = bytearray(count * UNIT_SIZE)
    for first, part in queue.chunks(number, number + count, at_once=count, over_gaps=True):
        data[(first - number) * UNIT_SIZE : (first - number) * UNIT_SIZE + len(part)] = part
    return QueueBlock.of(data, number)


def is_in(damages: Iterable[Damage], position: int) -> bool:
    """Is a physical offset in one of these?"""
    return any(damage.start <= position < damage.stop for damage in damages)


def place_of(queue: Queue, number: int) -> tuple[str | None, int | None]:
    """The file of a unit, and where in it; (None, None) where there is no file for it."""
    return queue.place_of(number) or (None, None)


def stretches(mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Where a mask is true: [first, stop) of what is side by side."""
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


def _shown(unit: QueueUnit) -> str:
    if unit.size <= 0:
        return "none"
    if unit.kind is UnitKind.PRE_BLANK:
        return "none, as before a queue's first message"
    return f"commitLogOffset {unit.position}, size {unit.size}, tagsCode {unit.tags_code}"
