"""Where the messages of queues begin and end, as the log confirms it, with few requests for each queue.

The units of the first and the last message are looked up in the queue, and both messages in the log, for many queues at
once in the order of the log. A queue whose last unit the log does not confirm is searched for the last one that it
does: what comes after that is left over from a truncated log, or noise. Messages that their queue does not know yet, or
no more, do not count; a broker does not know them either.
"""

import bisect
import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore_spark.store.consumequeue import PRE_BLANK, Queue, is_used, parsed
from rmqstore_spark.store.message import Header
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.store.units import BatchBuilder

_QUEUES_AT_ONCE = 4096  # so that the log is read in its order
_HEADERS_AT_ONCE = 256  # are asked for before the first of them is needed
_UNITS_AT_ONCE = 128  # so many are read in one request rather than searched
_UNITS_TO_TRY = 1024  # from the first on, until the log confirms one
_DISPATCH = "INNER_MULTI_DISPATCH"  # the light queues of a message, with commas between them (MessageConst)


@dataclass(frozen=True)
class QueueBounds:
    """Where the messages of a queue begin and end.

    Attributes:
        least: queue offset of the first message that exists; `end` where there is none.
        end: the queue offset after the last message.
        first, last: these messages; None where there is none. Of a light queue they are of another topic.
    """

    queue: Queue
    least: int
    end: int
    first: Header | None = None
    last: Header | None = None


class _Unit(NamedTuple):
    """A used unit: where it is in its queue, and what it says."""

    number: int
    position: int
    size: int
    offset: int  # queue offset of its first message
    messages: int


def queue_bounds(store: OpenStore, queues: Iterable[Queue]) -> Iterator[QueueBounds]:
    """The bounds of each of these queues, in their order."""
    remaining = iter(queues)
    confirmed = _Confirmed(store)
    while some := list(itertools.islice(remaining, _QUEUES_AT_ONCE)):
        by_kind = (list(same) for _, same in itertools.groupby(some, key=lambda queue: queue.is_batch))
        units = list(itertools.chain.from_iterable(_outer_units(store, same) for same in by_kind))
        confirmed.look_up(unit.position for pair in units for unit in pair if unit is not None)
        for queue, (first, last) in zip(some, units, strict=True):
            yield _bounds(store, queue, first, last, confirmed)
        confirmed.forget()


def unit_of(queue: Queue, number: int) -> _Unit | None:
    """The unit of a number; None where there is none, or it is not used."""
    units = parsed(queue.read_units(number, 1), queue.is_batch)
    return _unit(queue, number, units[0]) if len(units) else None


def _unit(queue: Queue, number: int, raw: Any) -> _Unit | None:
    """A unit as it stands in the queue's file; None where it is not used."""
    position, size, tags_code, *more = raw.item()
    if position < 0 or size <= 0 or (position, size, tags_code) == PRE_BLANK:
        return None
    if not queue.is_batch:
        return _Unit(number, position, size, number, 1)
    _, base, count, *_ = more
    return _Unit(number, position, size, base, max(1, count))


class _Shown(NamedTuple):
    """What one small read shows of a queue: the units that it begins with.

    Attributes:
        beyond: the index of the first that points to the log's end or after it, or is not used; None where all of them
            come before.
        inside: that of the first one that points into the log.
    """

    units: Any
    beyond: int | None
    inside: int | None


def _outer_units(store: OpenStore, queues: list[Queue]) -> Iterable[tuple[_Unit | None, _Unit | None]]:
    """Of each queue the first unit that points into the log, None where there is none; and the last one before the
    log's end. The queues are of one kind."""
    return store.files.each(functools.partial(_outer, store), zip(queues, _shown(store, queues), strict=True))


def _shown(store: OpenStore, queues: list[Queue]) -> Iterator[_Shown]:
    """What each of these queues begins with; all of them are looked at together, as most are short."""
    at_once = max(_UNITS_AT_ONCE, store.files.prices.narrow)
    data = list(store.files.each(lambda queue: queue.read_units(queue.first, at_once), queues))
    bounds = np.cumsum([0, *(len(each) // queues[0].unit_size for each in data)])
    units = parsed(b"".join(data), queues[0].is_batch)
    beyond = _first_of_each((units["position"] >= store.end) | (units["size"] <= 0), bounds)
    inside = _first_of_each((units["position"] >= _begin(store)) & is_used(units), bounds)
    for (start, stop), *found in zip(itertools.pairwise(bounds.tolist()), beyond, inside, strict=True):
        yield _Shown(units[start:stop], *found)


def _first_of_each(which: npt.NDArray[np.bool_], bounds: npt.NDArray[np.int64]) -> list[int | None]:
    """In each stretch between two bounds the index of the first that is so, from the stretch's beginning on."""
    found = np.append(np.flatnonzero(which), len(which))
    first = found[np.searchsorted(found, bounds[:-1])]
    is_there = (first < bounds[1:]).tolist()
    return [index if there else None for index, there in zip((first - bounds[:-1]).tolist(), is_there, strict=True)]


def _outer(store: OpenStore, item: tuple[Queue, _Shown]) -> tuple[_Unit | None, _Unit | None]:
    queue, shown = item
    if shown.beyond is not None:
        stop = queue.first + shown.beyond
    else:
        stop = queue.search(store.end, _guess(queue, shown.units, store.end))
    last = _unit_in(queue, shown.units, stop - 1) if stop > queue.first else None
    begin = _begin(store)
    if last is None or last.position < begin:
        return None, last
    number = queue.first + shown.inside if shown.inside is not None else queue.search(begin)
    return (last if number == last.number else _unit_in(queue, shown.units, number)), last


def _guess(queue: Queue, shown: Any, position: int) -> int | None:
    """Which unit would point to a physical offset if the queue went on as evenly as it begins."""
    if not len(shown):
        return None
    begin, end = int(shown["position"][0]), int(shown["position"][-1])
    return queue.first + (position - begin) * (len(shown) - 1) // (end - begin) if end > begin else None


def _unit_in(queue: Queue, shown: Any, number: int) -> _Unit | None:
    """unit_of() where the units that a queue begins with are at hand."""
    index = number - queue.first
    return _unit(queue, number, shown[index]) if index < len(shown) else unit_of(queue, number)


def _begin(store: OpenStore) -> int:
    return store.log.extents[0].start if store.log.extents else store.end


def _bounds(
    store: OpenStore, queue: Queue, first: _Unit | None, last: _Unit | None, confirmed: "_Confirmed"
) -> QueueBounds:
    if last is not None and last.position >= _begin(store) and confirmed.message(queue, last) is None:
        last = _last_confirmed(store, queue, confirmed)
    if last is None:
        nothing = queue.first if queue.is_batch else queue.search(1)  # after what is pre-blank
        return QueueBounds(queue, nothing, nothing)
    end = last.offset + last.messages
    header = confirmed.message(queue, last)
    if header is None:  # its message has expired
        return QueueBounds(queue, end, end)
    begin = last.number if first is None else first.number
    for number in range(begin, min(last.number, begin + _UNITS_TO_TRY)):
        unit = first if first is not None and number == begin else unit_of(queue, number)
        found = None if unit is None else confirmed.message(queue, unit)
        if unit is not None and found is not None:
            return QueueBounds(queue, unit.offset, end, found, header)
    return QueueBounds(queue, last.offset, end, header, header)


def _last_confirmed(store: OpenStore, queue: Queue, confirmed: "_Confirmed") -> _Unit | None:
    """The last unit that the log confirms, or whose message has expired."""
    begin = _begin(store)

    def is_left_over(number: int) -> bool:
        unit = unit_of(queue, number)
        return unit is not None and unit.position >= begin and confirmed.message(queue, unit) is None

    end = bisect.bisect_left(range(queue.search(store.end)), True, lo=queue.first, key=is_left_over)
    return unit_of(queue, end - 1) if end > queue.first else None


class _Confirmed:
    """Messages of the live log, as far as they were asked for."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._headers: dict[int, Header | None] = {}

    def look_up(self, positions: Iterable[int]) -> None:
        """What is at these physical offsets, in the order of the log."""
        log = self._store.log
        located = ((log.extent_at(position), position) for position in sorted(set(positions)))
        for extent, group in itertools.groupby(located, key=lambda pair: pair[0]):
            if extent is None:
                continue
            here = [position for _, position in group]
            with self._store.reader(extent.segment) as reader:
                for first in range(0, len(here), _HEADERS_AT_ONCE):
                    some = here[first : first + _HEADERS_AT_ONCE]
                    self._store.files.soon((extent.segment.path, position - extent.segment.start) for position in some)
                    for position in some:
                        self._headers[position] = reader.header(position)

    def forget(self) -> None:
        """Free the memory."""
        self._headers.clear()

    def message(self, queue: Queue, unit: _Unit) -> Header | None:
        """The live message that a queue has this unit for; None where the log has none there."""
        if unit.position not in self._headers:
            self._headers[unit.position] = self._store.log.header(unit.position)
        header = self._headers[unit.position]
        if header is None or header.size != unit.size or not self._is_live(unit.position):
            return None
        if queue.is_lmq:
            return header if self._is_dispatched(header, queue.topic) else None
        found = header.topic, header.queue_id, header.queue_offset
        return header if found == (queue.topic, queue.queue_id, unit.offset) else None

    def _is_live(self, position: int) -> bool:
        log = self._store.log
        extent = log.extent_at(position)
        # What is known of a whole segment answers for all queues.
        return extent is not None and (position < log.live_end(extent) or log.is_live(position, however_far=True))

    def _is_dispatched(self, header: Header, topic: str) -> bool:
        """Is a message in a light queue, by its own properties?"""
        extent = self._store.log.extent_at(header.position)
        if extent is None:
            return False
        builder = BatchBuilder(["properties"])
        with self._store.reader(extent.segment) as reader:
            run = reader.run_at(header.position, extent.stop)
            if run is None:
                return False
            run.only(slice(1)).add_to(builder)
        (properties,) = builder.finish().column("properties").to_pylist()
        return topic in dict(properties).get(_DISPATCH, "").split(",")
