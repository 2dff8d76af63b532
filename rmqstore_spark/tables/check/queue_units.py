"""What the units of queues say, held against the messages of a stretch of the log.

Each message must have its unit, which is found by its queueOffset. And where a queue has units for which the log has no
message, they come before one that is right, or at the queue's end. The first of these are found here, the others by
queues.py.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from native_io import Dispatched
from rmqstore_spark.selection import ALL
from rmqstore_spark.store.consumequeue import (
    MOST_OFFSETS,
    PRE_BLANK,
    UNIT_SIZE,
    ConsumeQueues,
    Kind,
    Queue,
    QueueUnit,
    is_used,
    kinds,
    parsed,
)
from rmqstore_spark.store.consumequeue_ext import LAST_ADDRESS, read_ext
from rmqstore_spark.store.files import Files
from rmqstore_spark.store.layout import queue_path
from rmqstore_spark.store.segments import Damage
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.system_topics import SCHEDULE_TOPIC
from rmqstore_spark.tables.check.log_view import LogView, Wanted
from rmqstore_spark.tables.check.problems import Finding
from rmqstore_spark.tables.consumequeue import used_units

_RECOVERED_FILES = 3  # of a queue

_Longs = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]
_LEAST_AT_ONCE, _MOST_AT_ONCE = 8, 16 * 1024  # units that are read backwards

_Expected = tuple[int, Any]  # the queue offset of the first of some units in a row, and the units


class Candidate(NamedTuple):
    """A unit for which the log does not have the message where it points.

    Attributes:
        after: the number that was begun with to look for it: all units from this one up to there are alike.
    """

    queue: Queue
    number: int
    queue_offset: int
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
        self._late: list[tuple[Queue, int, Any]] = []  # units that a broker makes yet: the queue offset, and they

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
            expected = [(offset, parsed(bytes(units))) for _, offset, units in runs]
            if queue_path(topic, queue_id) is None:
                yield Finding(
                    "impossibleTopic", position=int(expected[0][1]["position"][0]), topic=topic, queue_id=queue_id
                )
                continue
            batch = self._store.queues.queue(topic, queue_id, is_batch=True)
            if batch is not None and batch.in_files and not is_beside_simple(batch, self._store.queues):
                yield from self._check_batch(batch, expected, start, stop)
                extra += self._before_batch(batch, expected, start, stop)
                continue
            queue = self._store.queues.queue(topic, queue_id)
            assert queue is not None
            for offset, units in expected:
                yield from self._check_simple(queue, offset, units)
            extra += self._before(queue, expected)
        yield from extra_units(self._view, extra, stop, damages)

    def not_dispatched(self) -> Iterator[Finding]:
        """What a broker puts into queues yet: one row for all of it since the last time."""
        if self._late:
            queue, offset, units = min(self._late, key=lambda late: int(late[2]["position"][0]))
            yield Finding(
                "notDispatched",
                *place_of(queue, offset),
                int(units["position"][0]),
                queue.topic,
                queue.queue_id,
                offset,
                "a unit for each message",
                "none for some of the last messages",
                sum(len(units) for _, _, units in self._late),
            )
        self._late = []

    # ---- simple queues

    def _check_simple(self, queue: Queue, offset: int, units: Any) -> Iterator[Finding]:
        """What is wrong with the units of messages whose queue offsets go on from one to the next."""
        actual, is_there, is_wrong = self._compared(queue, offset, units)
        if is_there.all() and not is_wrong.any():
            return
        if self._view.moment.is_unsettled:
            # Looked at once more: a queue is written in order, so what is missing before a unit seen by now stays so.
            queue = self._store.queues.queue(queue.topic, queue.queue_id) or queue
            end = recovered_end(queue) if self._view.moment.is_left else after_last_taken(queue)
            actual, is_there, is_wrong = self._compared(queue, offset, units)
            expired = units["position"] < self._view.start_now()
            is_late = np.arange(offset, offset + len(units)) >= end
            is_late &= (~is_there | is_wrong) & (units["position"] >= self._view.moment.dispatched_from)
            self._late += [(queue, offset + at, units[at:last]) for at, last in stretches(is_late & ~expired)]
            is_there |= is_late | expired
            is_wrong &= ~is_late & ~expired
        for first, last in stretches(~is_there):
            at = offset + first
            problem = "missingQueueUnit"
            if _is_odd(self._view, queue, at, int(units[first]["position"])):
                problem = "shiftedQueueUnit"
            yield _of_unit(problem, queue, at, units[first], actual[first], last - first)
        for at in np.flatnonzero(is_wrong).tolist():
            there = QueueUnit(*(int(actual[name][at]) for name in ("position", "size", "tags_code")))
            problem = self._kind_of(queue, offset + at, int(units["position"][at]), there)
            yield _of_unit(problem, queue, offset + at, units[at], actual[at])

    def _kind_of(self, queue: Queue, queue_offset: int, right: int, there: QueueUnit) -> str:
        """What is wrong where a queue's unit is not the one of a message: as the log has it, or in the log itself.

        Args:
            right: the message's physical offset.
            there: the unit.
        """
        header = None if there.position == right else self._view.header(there.position)
        if header is None or not header.is_queued or (header.topic, header.queue_id) != (queue.topic, queue.queue_id):
            return "wrongQueueUnit"
        if header.queue_offset == queue_offset:
            return "repeatedQueueOffset"
        # A queue that is made anew from a log with a gap has what comes after it too early.
        return "shiftedQueueUnit" if header.queue_offset > queue_offset else "wrongQueueUnit"

    def _compared(self, queue: Queue, offset: int, units: Any) -> tuple[Any, _Flags, _Flags]:
        """The units that stand where some should; which are there at all, and which of these are others."""
        data = _read(queue, offset, len(units))
        actual = parsed(data)
        if data == units.tobytes():
            return actual, np.ones(len(units), np.bool_), np.zeros(len(units), np.bool_)
        is_there = is_used(actual)
        is_right = (actual["position"] == units["position"]) & (actual["size"] == units["size"])
        return actual, is_there, is_there & (~is_right | ~self._same_tags(queue, actual, units))

    def _same_tags(self, queue: Queue, actual: Any, expected: Any) -> npt.NDArray[np.bool_]:
        """Of which units is the tagsCode right? Delayed messages have there when they are due, which depends on a
        broker's setting; and with ConsumeQueueExt it is an address."""
        if queue.topic == SCHEDULE_TOPIC:
            return np.ones(len(actual), np.bool_)
        codes = actual["tags_code"].astype(np.int64)
        is_ext = codes <= LAST_ADDRESS
        if is_ext.any():
            ext = read_ext(self._store.root, queue.topic, queue.queue_id, codes[is_ext].tolist(), self._store.files)
            # Where nothing is, a broker lets the message pass any filter.
            pairs = zip(codes.tolist(), expected["tags_code"].tolist(), strict=True)
            resolved = [ext[code].tags_code if code in ext else right for code, right in pairs]
            codes = np.where(is_ext, np.array(resolved, np.int64), codes)
        same: npt.NDArray[np.bool_] = codes == expected["tags_code"]
        return same

    # ---- BatchCQ

    def _check_batch(self, queue: Queue, expected: list[_Expected], start: int, stop: int) -> Iterator[Finding]:
        """Units are found by where they point, as nothing else tells which one is a message's."""
        offsets = np.concatenate([np.arange(offset, offset + len(units)) for offset, units in expected])
        units = np.concatenate([units for _, units in expected])
        positions = units["position"].astype(np.int64)
        numbers, actual = _near(queue, start, stop)
        missing = ~np.isin(positions, actual["position"])
        if missing.any():  # a queue that is not in order does not lead there; and a broker may have written meanwhile
            queue = self._store.queues.queue(queue.topic, queue.queue_id, is_batch=True) or queue
            numbers, actual = _all_of(queue, self._store.files)
            missing = ~np.isin(positions, actual["position"])
        if missing.any() and self._view.moment.is_unsettled:
            newest = int(actual["position"].max(initial=-1))
            is_late = missing & (positions > newest) & (positions >= self._view.moment.dispatched_from)
            self._late += [(queue, int(offsets[at]), units[at:last]) for at, last in stretches(is_late)]
            missing &= ~is_late & (positions >= self._view.start_now())
        for at in np.flatnonzero(missing).tolist():
            yield Finding(
                "missingQueueUnit",
                position=int(positions[at]),
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=int(offsets[at]),
                expected=_shown(units[at]),
                found="none",
            )
        is_here = np.isin(actual["position"], positions)
        numbers, actual = numbers[is_here], actual[is_here]
        index = np.searchsorted(positions, actual["position"])
        is_wrong = (actual["size"] != units["size"][index]) | (actual["tags_code"] != units["tags_code"][index])
        is_wrong |= actual["base"] != offsets[index]
        for at in np.flatnonzero(is_wrong).tolist():
            right = index[at]
            yield Finding(
                "wrongQueueUnit",
                *place_of(queue, int(numbers[at])),
                int(actual["position"][at]),
                queue.topic,
                queue.queue_id,
                int(offsets[right]),
                f"queueOffset {offsets[right]}, {_shown(units[right])}",
                f"queueOffset {actual['base'][at]}, {_shown(actual[at])}",
            )

    # ---- units that no message has

    def _before_batch(self, queue: Queue, expected: list[_Expected], start: int, stop: int) -> Iterator[Candidate]:
        """The same in a BatchCQ."""
        positions = np.concatenate([units["position"] for _, units in expected])
        numbers, actual = _near(queue, start, stop)
        least = 0
        for number in numbers[np.isin(actual["position"], positions)].tolist():
            yield from unconfirmed(self._view, queue, number, least)
            least = number + 1

    def _before(self, queue: Queue, expected: list[_Expected]) -> Iterator[Candidate]:
        """Units before those of messages that are not those of messages themselves."""
        least = 0
        for offset, units in expected:
            yield from unconfirmed(self._view, queue, offset, least)
            least = offset + len(units)


def _near(queue: Queue, start: int, stop: int) -> tuple[_Longs, Any]:
    """The units of a BatchCQ that point into [start, stop), if it is in order; and their numbers."""
    first = queue.search(start)
    units = parsed(queue.read_units(first, max(0, queue.search(stop) - first)), is_batch=True)
    used = is_used(units)
    return first + np.flatnonzero(used), units[used]


def _all_of(queue: Queue, files: Files) -> tuple[_Longs, Any]:
    """All units of a BatchCQ, and their numbers."""
    found = list(used_units(queue, 0, 1 << 62, ALL, files))
    numbers = [each.numbers for each in found]
    units = [each.units for each in found]
    return np.concatenate([np.empty(0, np.int64), *numbers]), np.concatenate([parsed(b"", is_batch=True), *units])


def after_last_taken(queue: Queue) -> int:
    """The number after that of the last unit of a simple queue that a broker counts when it starts, wherever there are
    unused ones before it. To a broker those before a queue's first message, and of lost ones, are units like others
    (ConsumeQueue.recover): it puts none before them."""
    for file in reversed(queue.in_files):
        taken = np.flatnonzero(kinds(parsed(queue.read_units(file.first, file.capacity))) != Kind.NOTHING)
        if len(taken):
            return file.first + int(taken[-1]) + 1
    return 0


def recovered_end(queue: Queue) -> int:
    """The number from which on a broker that finds `abort` drops the units of a simple queue, to make them anew from
    the log: that of the first one in the last three files that does not count (ConsumeQueue.recover)."""
    end = 0
    for file in queue.in_files[-_RECOVERED_FILES:]:
        lacking = np.flatnonzero(kinds(parsed(queue.read_units(file.first, file.capacity))) == Kind.NOTHING)
        if len(lacking):
            return file.first + int(lacking[0])
        end = file.first + file.capacity
    return end


def unconfirmed(view: LogView, queue: Queue, number: int, least: int = 0) -> Iterator[Candidate]:
    """The units in a row before a number for which the log does not have the message there, nearest first.

    Args:
        least: only units from this number on.
    """
    for at, queue_offset, unit in _backwards(queue, number, least):
        if unit.position < view.start or view.is_of(queue, queue_offset, unit):
            return
        yield Candidate(queue, at, queue_offset, unit, number)


def _backwards(queue: Queue, number: int, least: int) -> Iterator[tuple[int, int, QueueUnit]]:
    """The used units in a row before a number, nearest first: their numbers, queue offsets, and they. Mostly the first
    one is all that is asked for."""
    count = _LEAST_AT_ONCE
    while number > least:
        file = next((each for each in queue.in_files if each.first < number <= each.first + each.capacity), None)
        if file is None:
            return
        first = max(least, file.first, number - count)
        units = parsed(queue.read_units(first, number - first), queue.is_batch)
        if len(units) < number - first:
            return
        offsets = units["base"].tolist() if queue.is_batch else range(first, number)
        fields = (units[name].tolist() for name in QueueUnit._fields)
        for at, used, queue_offset, *unit in reversed(
            list(zip(range(first, number), is_used(units).tolist(), offsets, *fields, strict=True))
        ):
            if not used:
                return
            yield at, queue_offset, QueueUnit(*unit)
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
        wanted.setdefault((each.queue.topic, each.queue.queue_id), set()).add(each.queue_offset)
    present = view.present(wanted, view.start, stop)
    found: list[Candidate] = []
    for begun, group in itertools.groupby(some, key=_begun):
        for each in group:
            if each.queue_offset in present.get(begun[:2], ()):
                break  # what comes before a unit whose message is elsewhere is found with that message
            found.append(each)
    found.sort(key=lambda each: (*_begun(each)[:2], each.number))
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
    number = queue.search(position)
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
        return each.queue.topic, each.queue.queue_id, is_ahead, each.number - at if is_ahead else at

    for _, group in itertools.groupby(enumerate(found), key=stretch):
        some = [each for _, each in group]
        finding = extra_unit(some[0].queue, some[0].number, some[0].queue_offset, some[0].unit)
        if some[0].unit.position < end:
            yield finding
        else:
            expected = f"one before the log's end at {end}"
            yield replace(finding, problem="queueAheadOfLog", expected=expected, count=len(some))


def _begun(candidate: Candidate) -> tuple[str, int, int]:
    return candidate.queue.topic, candidate.queue.queue_id, candidate.after


def extra_unit(queue: Queue, number: int, queue_offset: int, unit: QueueUnit) -> Finding:
    """The finding for a unit of no message."""
    return Finding(
        "extraQueueUnit",
        *place_of(queue, number),
        unit.position,
        queue.topic,
        queue.queue_id,
        queue_offset,
        "none",
        f"commitLogOffset {unit.position}, size {unit.size}, tagsCode {unit.tags_code}",
    )


def _read(queue: Queue, number: int, count: int) -> bytes:
    """So many units of a simple queue from a number on; zeros where there is no file, or not so much of it."""
    data, stop = bytearray(count * UNIT_SIZE), number + count
    for file in queue.in_files:
        first, end = max(number, file.first), min(stop, file.first + file.capacity)
        if first >= end:
            continue
        part = queue.read_units(first, end - first)
        data[(first - number) * UNIT_SIZE : (first - number) * UNIT_SIZE + len(part)] = part
    return bytes(data)


def is_in(damages: Iterable[Damage], position: int) -> bool:
    """Is a physical offset in one of these?"""
    return any(damage.start <= position < damage.stop for damage in damages)


def place_of(queue: Queue, number: int) -> tuple[str | None, int | None]:
    """The file of a unit, and where in it; (None, None) where there is no file for it."""
    for file in queue.in_files:
        if file.first <= number < file.first + file.capacity:
            return file.path, (number - file.first) * queue.unit_size
    return None, None


def stretches(mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Where a mask is true: [first, stop) of what is side by side."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8))).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _of_unit(problem: str, queue: Queue, number: int, expected: Any, found: Any, count: int = 1) -> Finding:
    """The finding for a message's unit in a simple queue."""
    return Finding(
        problem,
        *place_of(queue, number),
        int(expected["position"]),
        queue.topic,
        queue.queue_id,
        number,
        _shown(expected),
        _shown(found),
        count,
    )


def _shown(unit: Any) -> str:
    position, size, tags_code = int(unit["position"]), int(unit["size"]), int(unit["tags_code"])
    if size <= 0:
        return "none"
    if (position, size, tags_code) == PRE_BLANK:
        return "none, as before a queue's first message"
    return f"commitLogOffset {position}, size {size}, tagsCode {tags_code}"
