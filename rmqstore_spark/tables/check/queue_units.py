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
from rmqstore_spark.store.consumequeue import PRE_BLANK, UNIT_SIZE, Queue, QueueUnit, is_used, parsed
from rmqstore_spark.store.consumequeue_ext import LAST_ADDRESS, read_ext
from rmqstore_spark.store.layout import queue_path
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.store.segments import Damage
from rmqstore_spark.store.system_topics import SCHEDULE_TOPIC
from rmqstore_spark.tables.check.log_view import LogView, Wanted
from rmqstore_spark.tables.check.problems import Finding

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

    def __init__(self, store: OpenStore, view: LogView) -> None:
        self._store = store
        self._view = view

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
            if batch is not None and batch.in_files:
                yield from self._check_batch(batch, expected, start, stop)
                extra += self._before_batch(batch, expected, start, stop)
                continue
            queue = self._store.queues.queue(topic, queue_id)
            assert queue is not None
            yield from self._check_simple(queue, expected)
            extra += self._before(queue, expected)
        yield from extra_units(self._view, extra, stop, damages)

    # ---- simple queues

    def _check_simple(self, queue: Queue, expected: list[_Expected]) -> Iterator[Finding]:
        for offset, units in expected:
            data = _read(queue, offset, len(units))
            if data == units.tobytes():
                continue
            actual = parsed(data)
            is_there = is_used(actual)
            is_right = (actual["position"] == units["position"]) & (actual["size"] == units["size"])
            is_wrong = is_there & (~is_right | ~self._same_tags(queue, actual, units))
            for first, last in stretches(~is_there):
                yield Finding(
                    "missingQueueUnit",
                    *place_of(queue, offset + first),
                    int(units["position"][first]),
                    queue.topic,
                    queue.queue_id,
                    offset + first,
                    _shown(units[first]),
                    _shown(actual[first]),
                    last - first,
                )
            for at in np.flatnonzero(is_wrong).tolist():
                yield Finding(
                    "wrongQueueUnit",
                    *place_of(queue, offset + at),
                    int(units["position"][at]),
                    queue.topic,
                    queue.queue_id,
                    offset + at,
                    _shown(units[at]),
                    _shown(actual[at]),
                )

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

    @staticmethod
    def _check_batch(queue: Queue, expected: list[_Expected], start: int, stop: int) -> Iterator[Finding]:
        """Units are found by where they point, as nothing else tells which one is a message's."""
        offsets = np.concatenate([np.arange(offset, offset + len(units)) for offset, units in expected])
        units = np.concatenate([units for _, units in expected])
        positions = units["position"].astype(np.int64)
        number = queue.search(start)
        actual, _ = queue.units(number, stop)
        there, right = np.isin(positions, actual.positions), np.isin(actual.positions, positions)
        for at in np.flatnonzero(~there).tolist():
            yield Finding(
                "missingQueueUnit",
                position=int(positions[at]),
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=int(offsets[at]),
                expected=_shown(units[at]),
                found="none",
            )
        index = np.searchsorted(positions, actual.positions[right])
        said = [values[right] for values in actual]
        is_wrong = (
            (said[1] != units["size"][index]) | (said[2] != units["tags_code"][index]) | (said[3] != offsets[index])
        )
        for at in np.flatnonzero(is_wrong).tolist():
            found = f"queueOffset {said[3][at]}, size {said[1][at]}, tagsCode {said[2][at]}"
            yield Finding(
                "wrongQueueUnit",
                *place_of(queue, number + int(np.flatnonzero(right)[at])),
                int(said[0][at]),
                queue.topic,
                queue.queue_id,
                int(offsets[index[at]]),
                f"queueOffset {offsets[index[at]]}, {_shown(units[index[at]])}",
                found,
            )

    # ---- units that no message has

    def _before_batch(self, queue: Queue, expected: list[_Expected], start: int, stop: int) -> Iterator[Candidate]:
        """The same in a BatchCQ."""
        positions = np.concatenate([units["position"] for _, units in expected])
        number = queue.search(start)
        actual, _ = queue.units(number, stop)
        least = 0
        for at in np.flatnonzero(np.isin(actual.positions, positions)).tolist():
            yield from unconfirmed(self._view, queue, number + at, least)
            least = number + at + 1

    def _before(self, queue: Queue, expected: list[_Expected]) -> Iterator[Candidate]:
        """Units before those of messages that are not those of messages themselves."""
        least = 0
        for offset, units in expected:
            yield from unconfirmed(self._view, queue, offset, least)
            least = offset + len(units)


def unconfirmed(view: LogView, queue: Queue, number: int, least: int = 0) -> Iterator[Candidate]:
    """The units in a row before a number for which the log does not have the message there, nearest first.

    Args:
        least: only units from this number on.
    """
    after = number
    while number > least:
        number -= 1
        units = parsed(queue.read_units(number, 1), queue.is_batch)
        if not is_used(units).all() or not len(units):
            return
        unit = QueueUnit(*(int(units[name][0]) for name in ("position", "size", "tags_code")))
        queue_offset = int(units["base"][0]) if queue.is_batch else number
        if unit.position < view.start or view.is_of(queue, queue_offset, unit):
            return
        yield Candidate(queue, number, queue_offset, unit, after)


def extra_units(view: LogView, some: list[Candidate], stop: int, damages: Iterable[Damage] = ()) -> Iterator[Finding]:
    """Those of some unconfirmed units that belong to no message: not to one that is damaged, and not to one that is
    elsewhere in the log (then they are wrong, which is found with that message).

    Args:
        stop: their messages, if there are some, are before this physical offset.
        damages: what is known to be damaged.
    """
    some = [each for each in some if not is_in(damages, each.unit.position) and not view.is_lost(each.unit.position)]
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
    for each in sorted(found, key=lambda each: (*_begun(each)[:2], each.number)):
        finding = extra_unit(each.queue, each.number, each.queue_offset, each.unit)
        if each.unit.position >= view.end:
            finding = replace(finding, problem="queueAheadOfLog", expected=f"one before the log's end at {view.end}")
        yield finding


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


def _shown(unit: Any) -> str:
    position, size, tags_code = int(unit["position"]), int(unit["size"]), int(unit["tags_code"])
    if size <= 0:
        return "none"
    if (position, size, tags_code) == PRE_BLANK:
        return "none, as before a queue's first message"
    return f"commitLogOffset {position}, size {size}, tagsCode {tags_code}"
