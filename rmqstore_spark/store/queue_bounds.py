"""Where the messages of queues begin and end, as the log confirms it, with few requests for each queue.

The units of the first and the last message are looked up in the queue, and both messages in the log, for many queues at
once in the order of the log. Mostly the log has the message of a queue's last unit, and that is the end. Where it has
not, the end is looked for from there back: first a unit whose message is live, in steps that double, then the border
between that and what is left over (store/unit_evidence.py). Damaged messages at the end keep their places, as those in
the middle do: a group may have consumed them. Messages that their queue does not know yet, or no more, do not count; a
broker does not know them either.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore_spark.store.consumequeue import Kind, Queue, kinds, parsed
from rmqstore_spark.store.evidence import Evidence
from rmqstore_spark.store.message import Header
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.unit_evidence import Unit, UnitEvidence, unit_at, unit_in

_QUEUES_AT_ONCE = 4096  # so that the log is read in its order
_UNITS_AT_ONCE = 128  # so many are read in one request rather than searched
_MOST_AT_ONCE = 16 * 1024
_BLOCK = 4096  # space on a disk is, mostly in so many bytes
_UNITS_TO_TRY = 1024  # from the first on, until the log confirms one


@dataclass(frozen=True)
class QueueBounds:
    """Where the messages of a queue begin and end.

    Attributes:
        least: queue offset of the first message that exists; `end` where there is none.
        end: the queue offset after the last message, which may be damaged.
        first, last: the first and the last message that is whole; None where there is none. Of a light queue they are
            of another topic.
        numbers: those of the units from the first one's to the last one's.
    """

    queue: Queue
    least: int
    end: int
    first: Header | None = None
    last: Header | None = None
    numbers: range = range(0)


def queue_bounds(
    store: Snapshot, queues: Iterable[Queue], evidence: UnitEvidence | None = None
) -> Iterator[QueueBounds]:
    """The bounds of each of these queues, in their order.

    Args:
        evidence: what the log was found to say of units, for who asks more.
    """
    remaining = iter(queues)
    evidence = UnitEvidence(store) if evidence is None else evidence
    while some := list(itertools.islice(remaining, _QUEUES_AT_ONCE)):
        by_kind = (list(same) for _, same in itertools.groupby(some, key=lambda queue: queue.is_batch))
        found = list(itertools.chain.from_iterable(_outer_units(store, same, evidence.begin) for same in by_kind))
        evidence.look_up(unit.position for each in found for unit in (each.first, each.last) if unit is not None)
        for queue, outer in zip(some, found, strict=True):
            yield _bounds(queue, outer, evidence)
        evidence.forget()


class _Outer(NamedTuple):
    """The outer units of a queue.

    Attributes:
        first: the first one that points into the log, of those that one small read shows; None where there is none.
        last: the last one that is in use, whatever it is; None where none is.
        is_all: whether that read shows all of the queue.
    """

    first: Unit | None
    last: Unit | None
    is_all: bool = True


class _Shown(NamedTuple):
    """What one small read shows of a queue: the units that it begins with.

    Attributes:
        inside: the index of the first one that points into the log, or after it; None where there is none.
        last: the index of the last one that is in use; None where none is.
    """

    units: Any
    kinds: npt.NDArray[np.uint8]
    inside: int | None
    last: int | None


def _outer_units(store: Snapshot, queues: list[Queue], begin: int) -> Iterable[_Outer]:
    """The outer units of each of these queues, which are of one kind."""
    return store.files.schedule.mapped(_outer, zip(queues, _shown(store, queues, begin), strict=True))


def _shown(store: Snapshot, queues: list[Queue], begin: int) -> Iterator[_Shown]:
    """What each of these queues begins with; all of them are looked at together, as most are short."""
    at_once = max(_UNITS_AT_ONCE, store.files.prices.linear_below)
    data = store.files.schedule.mapped(lambda queue: queue.read_units(queue.first, at_once), queues)
    bounds = np.cumsum([0, *(len(each) // queues[0].unit_size for each in data)])
    units = parsed(b"".join(data), queues[0].is_batch)
    found = kinds(units)
    inside = _first_of_each((found == Kind.MESSAGE) & (units["position"] >= begin), bounds)
    last = _last_of_each(found != Kind.NOTHING, bounds)
    for (start, stop), *indexes in zip(itertools.pairwise(bounds.tolist()), inside, last, strict=True):
        yield _Shown(units[start:stop], found[start:stop], *indexes)


def _first_of_each(which: npt.NDArray[np.bool_], bounds: npt.NDArray[np.int64]) -> list[int | None]:
    """In each stretch between two bounds the index of the first that is so, from the stretch's beginning on."""
    found = np.append(np.flatnonzero(which), len(which))
    first = found[np.searchsorted(found, bounds[:-1])]
    is_there = (first < bounds[1:]).tolist()
    return [index if there else None for index, there in zip((first - bounds[:-1]).tolist(), is_there, strict=True)]


def _last_of_each(which: npt.NDArray[np.bool_], bounds: npt.NDArray[np.int64]) -> list[int | None]:
    """The same of the last one."""
    found = np.insert(np.flatnonzero(which), 0, -1)
    last = found[np.searchsorted(found, bounds[1:]) - 1]
    is_there = (last >= bounds[:-1]).tolist()
    return [index if there else None for index, there in zip((last - bounds[:-1]).tolist(), is_there, strict=True)]


def _outer(item: tuple[Queue, _Shown]) -> _Outer:
    queue, shown = item
    first = None if shown.inside is None else _unit_shown(queue, shown, shown.inside)
    if _may_have_more(queue, shown):
        number = queue.end - 1
        if number >= queue.first + len(shown.units):
            return _Outer(first, unit_at(queue, number), is_all=False)
    return _Outer(first, None if shown.last is None else _unit_shown(queue, shown, shown.last))


def _may_have_more(queue: Queue, shown: _Shown) -> bool:
    """May units in use come after those that were read? Zeros may be between them, as where a disk has lost a block."""
    count, files = len(shown.units), queue.in_files
    if queue.first + count >= queue.stop:
        return False
    if shown.last is None or shown.last == count - 1 or files[-1].first >= queue.first + count:
        return True
    return count * queue.unit_size + _BLOCK < files[0].allocated < files[0].size  # more than zeros need


def _unit_shown(queue: Queue, shown: _Shown, index: int) -> Unit:
    return unit_in(queue, queue.first + index, shown.units[index], Kind(shown.kinds[index]))


def _bounds(queue: Queue, outer: _Outer, evidence: UnitEvidence) -> QueueBounds:
    if outer.last is None:
        return QueueBounds(queue, queue.first, queue.first)
    last, end = outer.last, outer.last.end
    header = evidence.message(queue, last)
    has_expired = outer.is_all and outer.first is None and last.position < evidence.begin
    if header is None and not has_expired:
        found, end = _Tail(queue, evidence).find(last.number + 1)
        if found is not None:
            last, header = found, evidence.message(queue, found)
    if header is None:  # none is whole
        return QueueBounds(queue, end, end)
    for unit in _from_first(queue, outer.first, last, evidence.begin):
        first = evidence.message(queue, unit)
        if first is not None:
            return QueueBounds(queue, unit.offset, end, first, header, range(unit.number, last.number + 1))
    return QueueBounds(queue, last.offset, end, header, header, range(last.number, last.number + 1))


def _from_first(queue: Queue, first: Unit | None, last: Unit, begin: int) -> Iterator[Unit]:
    """Units from the first one that points into the log on."""
    if first is not None and first.number <= last.number:
        yield first
        start = first.number + 1
    else:
        start = queue.search(max(begin, 1), stop=last.number)
        start -= start > queue.first  # the message at 0 comes after what points to 0 as it is pre-blank
    yield from itertools.islice(_messages(queue, start, last.number, begin), _UNITS_TO_TRY)


def _messages(queue: Queue, start: int, stop: int, begin: int) -> Iterator[Unit]:
    """The units of messages from number `start` to before `stop` that point into the log. Zeros may be between them,
    and files may be short or missing."""
    count = _UNITS_AT_ONCE
    while start < stop:
        data = queue.read_units(start, min(count, stop - start))
        if not data:
            start = next((file.first for file in queue.in_files if file.first > start), stop)
            continue
        units = parsed(data, queue.is_batch)
        found = kinds(units)
        for index in np.flatnonzero((found == Kind.MESSAGE) & (units["position"] >= begin)).tolist():
            yield unit_in(queue, start + index, units[index], Kind.MESSAGE)
        start, count = start + len(units), min(2 * count, _MOST_AT_ONCE)


class _Units:
    """The units of a queue, some read at a time."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._blocks: dict[int, tuple[Any, npt.NDArray[np.uint8]]] = {}

    def at(self, number: int) -> Unit | None:
        """The unit of a number; None where there is none."""
        block, index = divmod(number - self._queue.first, _UNITS_AT_ONCE)
        if block not in self._blocks:
            data = self._queue.read_units(self._queue.first + block * _UNITS_AT_ONCE, _UNITS_AT_ONCE)
            units = parsed(data, self._queue.is_batch)
            self._blocks[block] = units, kinds(units)
        units, found = self._blocks[block]
        if index >= len(units):  # a file before this one is missing
            return unit_at(self._queue, number)
        return unit_in(self._queue, number, units[index], Kind(found[index]))


class _Tail:
    """Where the live part of a queue ends, whose last unit is not of a live message.

    What is asked of a unit is decided where its message is live, or something else stands there. Damaged ones are not:
    those beside the border are taken for the queue's, as far as they point to later and later places.
    """

    def __init__(self, queue: Queue, evidence: UnitEvidence) -> None:
        self._queue = queue
        self._evidence = evidence
        self._units = _Units(queue)

    def find(self, stop: int) -> tuple[Unit | None, int]:
        """The last unit whose message is live, None where none is; and the queue offset after the last that counts.

        Args:
            stop: the number after the last unit in use.
        """
        last = low = self._some_live(stop)
        number = self._queue.first - 1 if last is None else last.number
        refuted = top = stop
        while top - number > 1:
            middle = (number + top) // 2
            decided = next(((n, e) for n in range(middle, top) if (e := self._judge(n, low)) is not None), None)
            if decided is None:
                top = middle
            elif decided[1]:
                number = decided[0]
                low = self._units.at(number)
                last = low if self._is_live(number) else last
            else:
                refuted, top = decided[0], middle
        return last, self._after(low, number + 1, refuted)

    def _some_live(self, stop: int) -> Unit | None:
        """The last live unit that steps which double come upon, back from a number."""
        number, step = stop - 1, 1
        while not self._is_live(number):
            if number == self._queue.first:
                return None
            number, step = max(self._queue.first, number - step), 2 * step
        return self._units.at(number)

    def _is_live(self, number: int) -> bool:
        unit = self._units.at(number)
        return unit is not None and self._evidence.message(self._queue, unit) is not None

    def _judge(self, number: int, low: Unit | None) -> bool | None:
        """Is a unit of the queue (True), or left over (False)? None where it is neither sure.

        Args:
            low: one before it that is of the queue.
        """
        unit = self._units.at(number)
        after = low if low is not None and low.kind is Kind.MESSAGE else None
        if after is not None and unit is not None and unit.kind is Kind.MESSAGE and unit.position <= after.position:
            return False
        found = self._evidence.of(self._queue, unit, None if after is None else after.position)
        if found is Evidence.EXPIRED and after is not None and after.position >= self._evidence.begin:
            return False
        return {Evidence.LIVE: True, Evidence.EXPIRED: True, Evidence.LEFT_OVER: False}.get(found)

    def _after(self, low: Unit | None, start: int, refuted: int) -> int:
        """The queue offset after the last of the units that are not decided, from a number on, and still ascend."""
        end = low.end if low is not None else self._queue.first
        position = -1 if low is None else low.position
        for number in range(start, refuted):
            unit = self._units.at(number)
            if unit is None or unit.kind is Kind.NOTHING:
                continue
            if unit.position < position:
                break
            end, position = unit.end, unit.position
        return end
