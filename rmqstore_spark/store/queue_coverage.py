"""What the ConsumeQueues know of the log: where its messages are, queue by queue, and which bytes no queue knows.

This is what makes them safe to rely on. A queue can be missing, cut, lag or be full of old units, and does not say so.
But a broker puts every message into a queue. So along each stretch of the log the units of *all* queues must follow
each other without gaps or overlaps. Where they do, no message is missing in any queue; the gaps are looked at in the
log.

Every queue is walked along once, however many stretches there are: a sum of fingerprints for each of them tells
whether each unit begins where another ends. Only where that fails the units are put in order, to find the gaps. And of
each queue the first and the last unit are looked at in the log: directories may have been mixed up, and then what is
known of one queue stands under the name of another; and what a truncation has left over is at a queue's end.
"""

import bisect
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from native_io import TILING_ROWS, Filter, Status, Tiling, fingerprint
from rmqstore_spark.progress import Progress
from rmqstore_spark.store.consumequeue import Queue
from rmqstore_spark.store.message import Header
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.store.segments import Extent
from rmqstore_spark.store.units import Claims

_LANES = 16  # so many queues per stretch may vouch for its end
_THREADS = 4
_UNITS_AT_FIRST = 256  # where only a part of a queue is looked at
_UNITS_AT_ONCE = 16 * 1024 * 1024  # where they are put in order
_LARGE = 64 * 1024  # a message of which only its head and its tail are read

Gaps = list[tuple[int, int]]
_End = tuple[Queue, tuple[int, int, int]]  # and its physical offset, size and queue offset
_Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Coverage:
    """What the queues know of an extent.

    Attributes:
        gaps: the parts that are to be looked at in the log, as physical offsets [start, stop), ascending: what no queue
            knows, and what is not sure to be live. None where the queues contradict each other or the log.
        count: units in it of queues that were asked for.
        nbytes: of their messages.
        print: native_io.fingerprint() of where they begin.
    """

    gaps: Gaps | None
    count: int
    nbytes: int
    print: int


def claimed(store: OpenStore, extents: Sequence[Extent], queues: Sequence[Queue]) -> list[Coverage]:
    """What some queues have in extents, as they say: without a proof, and so without gaps."""
    if not extents:
        return []
    found = _walk(store, extents, queues, lambda queue: True).found
    return [Coverage([], *_asked(found, at)) for at in range(len(extents))]


def coverage(store: OpenStore, extents: Sequence[Extent], asked: Callable[[Queue], bool]) -> list[Coverage]:
    """What the queues know of extents.

    Args:
        extents: ascending; each begins with a unit, and ends with one, at the log's end, or at its segment's.
        asked: of which queues the units are counted.
    """
    if not extents:
        return []
    queues = [queue for queue in store.queues.with_batch if not queue.is_lmq]
    walked = _walk(store, extents, queues, asked)
    found = walked.found
    is_sound = found[_CROSSED] == 0
    liars = _liars(store, walked.ends)
    if liars:
        is_sound &= _walk(store, extents, liars, asked).found[_COUNTS] == 0
    furthest = np.maximum(found[_FURTHEST], [extent.start for extent in extents])
    gaps = [
        [(end, extent.stop)] if end < extent.stop else []
        for extent, end in zip(extents, furthest.tolist(), strict=True)
    ]
    # Without gaps and overlaps each unit begins where another ends, all but the first and the last.
    is_tiled = [
        int(found[_OPEN_ENDS, at])
        == _wrapped(fingerprint(furthest[at : at + 1]) - fingerprint(np.array([extent.start])))
        for at, extent in enumerate(extents)
    ]
    doubtful = [at for at, tiled in enumerate(is_tiled) if is_sound[at] and not tiled]
    for at, parts in _sorted_out(extents, doubtful, found, queues):
        gaps[at] = parts or []
        is_sound[at] &= parts is not None
    answers = []
    for at in reversed(range(len(extents))):  # the end of a segment tells of what comes before it
        latest = found[_LATEST:, at].tolist()
        parts = _with_what_is_not_live(store, extents[at], gaps[at], latest) if is_sound[at] else None
        answers.append(Coverage(parts, *_asked(found, at)))
    return answers[::-1]


_OPEN_ENDS, _FURTHEST, _COUNTS, _CROSSED, _ASKED_COUNTS, _ASKED_PRINTS, _ASKED_BYTES = range(len(TILING_ROWS))
_LATEST = len(TILING_ROWS)
_SUMMED = [_OPEN_ENDS, _COUNTS, _ASKED_COUNTS, _ASKED_PRINTS, _ASKED_BYTES]


@dataclass(frozen=True)
class _Walked:
    """What a walk along queues has found: the array of a Tiling, and the first and last unit of each in an extent."""

    found: _Array
    ends: list[_End]


def _walk(
    store: OpenStore, extents: Sequence[Extent], queues: Sequence[Queue], asked: Callable[[Queue], bool]
) -> _Walked:
    begin = None if extents[0].start == store.log.extents[0].start else extents[0].start
    starts = np.array([extent.start for extent in extents], np.int64)
    stops = np.array([extent.stop for extent in extents], np.int64)
    threads = max(min(_THREADS, os.cpu_count() or 1), min(store.files.prices.at_once, len(queues)))
    done = [0] * threads

    def walk(thread: int) -> _Walked:
        found = np.zeros((_LATEST + _LANES, len(extents)), np.int64)
        found[_LATEST:] = -1
        tiling = Tiling(starts, stops, found)
        ends: list[_End] = []
        for number in range(thread, len(queues), threads):
            queue = queues[number]
            first = queue.first if begin is None else queue.search(begin)
            tiling.begin(first, unit_size=queue.unit_size, asked=asked(queue), lane=number % _LANES)
            chunks = queue.chunks(first) if begin is None else queue.chunks(first, count=_UNITS_AT_FIRST)
            all(map(tiling.add, chunks))  # up to where it says that no more need be looked at
            ends += [(queue, end) for end in tiling.ends]
            done[thread] += 1
        return _Walked(found, ends)

    with ThreadPoolExecutor(threads) as pool:
        parts = [pool.submit(walk, thread) for thread in range(threads)]
        progress, reported = Progress(f"planning: reading ConsumeQueues of {store.root}", len(queues), "queues"), 0
        while wait(parts, timeout=1).not_done:
            now = sum(done)
            progress.add(now - reported)
            reported = now
    first, *others = (part.result() for part in parts)
    found = first.found
    for other in others:
        found[_SUMMED] += other.found[_SUMMED]
        found[_CROSSED] |= other.found[_CROSSED]
        for rows in (slice(_FURTHEST, _FURTHEST + 1), slice(_LATEST, None)):
            np.maximum(found[rows], other.found[rows], out=found[rows])
    return _Walked(found, [end for part in (first, *others) for end in part.ends])


def _asked(found: _Array, at: int) -> tuple[int, int, int]:
    return int(found[_ASKED_COUNTS, at]), int(found[_ASKED_BYTES, at]), int(found[_ASKED_PRINTS, at])


def _wrapped(number: int) -> int:
    """As an int64 that overflows."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _liars(store: OpenStore, ends: list[_End]) -> list[Queue]:
    """The queues of which the log does not confirm the first or the last unit."""
    liars: list[Queue] = []
    in_order = sorted(ends, key=lambda end: end[1])
    first = 0
    while first < len(in_order):
        extent = store.log.extent_at(in_order[first][1][0])
        stop = in_order[first][1][0] + 1 if extent is None else extent.stop
        after = bisect.bisect_left(in_order, stop, lo=first, key=lambda end: end[1][0])
        here = in_order[first:after]
        liars += [queue for queue, _ in here] if extent is None else _liars_in(store, extent, here)
        first = after
    return liars


def _liars_in(store: OpenStore, extent: Extent, ends: list[_End]) -> list[Queue]:
    places = np.array([place for _, place in ends if place[1] <= _LARGE], np.int64).reshape(-1, 3)
    claims = Claims(places[:, 0].copy(), places[:, 1].astype(np.int32), places[:, 2].copy())
    found: dict[int, Header | None] = {}
    every = Filter()
    at = 0
    with store.reader(extent.segment) as reader:
        while at < len(claims):
            run, at, hold = reader.pick(claims, at, every)
            found |= {header.position: header for header in run.headers()} if run is not None else {}
            at += not hold
        found |= {position: reader.header(position) for _, (position, size, _) in ends if size > _LARGE}
    return [queue for queue, place in ends if not _is_of(found.get(place[0]), queue, place)]


def _is_of(header: Header | None, queue: Queue, place: tuple[int, int, int]) -> bool:
    expected = (queue.topic, queue.queue_id, place[1], place[2])
    return header is not None and (header.topic, header.queue_id, header.size, header.queue_offset) == expected


def _sorted_out(
    extents: Sequence[Extent], doubtful: list[int], found: _Array, queues: Sequence[Queue]
) -> Iterator[tuple[int, Gaps | None]]:
    """The gaps of some of the extents, by their numbers; None where units overlap, or are not those that were found."""
    while doubtful:
        total = np.cumsum(found[_COUNTS, doubtful])
        here = doubtful[: max(1, int(np.searchsorted(total, _UNITS_AT_ONCE, "right")))]
        doubtful = doubtful[len(here) :]
        start, stop = extents[here[0]].start, extents[here[-1]].stop
        parts = [_spans(queue, start, stop) for queue in queues]
        begins, ends = np.concatenate([np.empty((2, 0), np.int64), *parts], axis=1)
        order = np.argsort(begins)
        begins, ends = begins[order], ends[order]
        for at in here:
            extent = extents[at]
            first, after = np.searchsorted(begins, [extent.start, extent.stop])
            some = begins[first:after], ends[first:after]
            is_same = (
                after - first == found[_COUNTS, at]
                and _wrapped(fingerprint(some[1]) - fingerprint(some[0])) == found[_OPEN_ENDS, at]
            )
            yield at, _gaps(*some, extent) if is_same else None


def _spans(queue: Queue, start: int, stop: int) -> _Array:
    """Where a queue's units in [start, stop) begin and end, as far as they ascend."""
    units = queue.units(queue.search(start), stop)[0].ascending()
    return np.stack([units.positions, units.positions + units.sizes])


def _gaps(begins: _Array, ends: _Array, extent: Extent) -> Gaps | None:
    """What is between the units; None when two overlap."""
    begins, ends = np.append(begins, extent.stop), np.insert(ends, 0, extent.start)
    if (begins < ends).any():
        return None
    return [(int(ends[i]), int(begins[i])) for i in np.flatnonzero(begins > ends)]


def _with_what_is_not_live(store: OpenStore, extent: Extent, gaps: Gaps, latest: list[int]) -> Gaps:
    """The gaps, and what comes after the live units that are known; without the blank at the segment's end.

    Args:
        latest: where the last units of some queues begin.
    """
    live = store.log.live_end(extent)
    for position in sorted({position for position in latest if live <= position}, reverse=True):
        if store.log.is_live(position):
            live = store.log.live_end(extent)
            break
    if gaps and gaps[-1] == (live, extent.stop):
        with store.reader(extent.segment) as reader:
            if reader.walk(live, extent.stop) == (None, live, Status.BLANK):
                return gaps[:-1]
    known = [(start, min(stop, live)) for start, stop in gaps if start < live]
    return known + ([(live, extent.stop)] if live < extent.stop else [])
