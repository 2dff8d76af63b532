"""What the ConsumeQueues know of the log: where its messages are, queue by queue, and which bytes no queue knows.

This proof makes queues safe to rely on. A queue can be missing, cut, lag or be full of old units, and nothing in the
queue shows that. But a broker puts every message into a queue. So along each stretch of the log the units of *all*
queues must follow each other without gaps or overlaps. Where they do, no message is missing in any queue; gaps are read
in the log.

Every queue is walked along once, however many stretches there are: a sum of fingerprints for each stretch tells whether
each unit begins where another ends. Only where this test fails, the units are sorted to find the gaps. The first and
the last unit of each queue are checked in the log: directories may have been mixed up, so that one queue's units stand
under another queue's name; and left-over units of a truncation are at a queue's end. So units before a unit in a later
segment are live (store/live_log.py), and where the walk meets the unit of a segment's last message, only the segment's
closing blank is left to be checked.
"""

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from native_io import Filter, QueueWalk, Status, Tiles, Tiling, fingerprint, read_short_queues, tile_queues
from rmqstore_spark.cores import cores
from rmqstore_spark.progress import Progress
from rmqstore_spark.store.format.queue_block import QueueUnit
from rmqstore_spark.store.format.units import BatchBuilder, Claims
from rmqstore_spark.store.io.files import Files, cannot_read, ignore_unreadable
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.consumequeue import UNITS_AT_ONCE, Queue
from rmqstore_spark.store.structures.queue_cursor import QueueCursor
from rmqstore_spark.store.structures.segments import Extent

_THREADS = 4
_UNITS_AT_ONCE = 16 * 1024 * 1024  # units that are sorted at once
_QUEUES_AT_ONCE = 64  # short queues that are read with one call of the kernel
_SHORT = 16 * 1024  # bytes of the units of a short queue
_EVERY = 1 << 62  # bytes
_TILED_AT_ONCE = 256 * 1024  # bytes of a queue: so many stay in the processor's cache
_LEAST_AT_ONCE = 256  # units, where a walk begins in the middle of a queue
_LARGE = 64 * 1024  # bytes: of a larger message only the head and the tail are read

Gaps = list[tuple[int, int]]
QueueEnd = tuple[Queue, tuple[int, int, int]]  # a queue, and a unit's physical offset, size and queue offset
_Sums = tuple[int, int, list[tuple[int, int, int]]]  # of a queue: units in stretches, their messages' bytes, and ends
QueueUnits = tuple[Queue, int, int]  # a queue, the number of its units, and their messages' bytes
_Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Coverage:
    """What the queues know of an extent.

    Attributes:
        gaps: the parts that have to be read in the log, as physical offsets [start, stop), ascending: bytes that no
            queue knows, or that are not proved live. None where the queues contradict each other or the log.
        count: the number of units in the extent, of the queues that were asked for.
        nbytes: bytes of the messages of these units.
        print: native_io.fingerprint() of the physical offsets of these units.
    """

    gaps: Gaps | None
    count: int
    nbytes: int
    print: int


def claimed(store: Snapshot, extents: Sequence[Extent], queues: Sequence[Queue]) -> list[Coverage]:
    """The coverage of extents as some queues claim it: without a proof, and so without gaps."""
    if not extents:
        return []
    tiles = _walk(store, extents, queues, lambda queue: True).tiles
    return [Coverage([], *_asked(tiles, at)) for at in range(len(extents))]


def coverage(store: Snapshot, extents: Sequence[Extent], asked: Callable[[Queue], bool]) -> list[Coverage]:
    """What the queues know of extents.

    Args:
        extents: ascending; each begins with a unit, and ends with a unit, at the log's end, or at its segment's end.
        asked: whether the units of a queue are counted.
    """
    if not extents:
        return []
    queues = _proving(store)
    return _judged(store, extents, queues, _walk(store, extents, queues, asked))


def coverage_of_each(
    store: Snapshot, extents: Sequence[Extent], asked: Callable[[Queue], bool]
) -> tuple[list[Gaps], Iterable[QueueUnits]] | None:
    """What each queue knows of extents.

    Args:
        extents, asked: as in coverage().

    Returns:
        the parts of each extent of which the queues prove nothing; and the units outside of them, of each queue that
        was asked for and has some. Only where queues know units in these parts, they are walked along once more, when
        the units are asked for. None where a queue is asked for whose units do not prove how many messages they are of.
    """
    if not extents:
        return [], ()
    queues = _proving(store)
    if not all(queue.is_by_offset or not asked(queue) for queue in queues):
        return None
    walked = _walk(store, extents, queues, asked)
    found = _judged(store, extents, queues, walked)
    gaps = [
        [(extent.start, extent.stop)] if each.gaps is None else each.gaps
        for extent, each in zip(extents, found, strict=True)
    ]
    # Gaps are where no unit is, but for the last one of an extent: what is not proved live.
    last = [some[-1] if some else (extent.stop, extent.stop) for extent, some in zip(extents, gaps, strict=True)]
    if all(
        stop < extent.stop or start >= furthest
        for (start, stop), extent, furthest in zip(last, extents, walked.tiles.furthest.tolist(), strict=True)
    ):
        return gaps, walked.units
    return gaps, _units_of_each(store, _outside(extents, gaps), [queue for queue in queues if asked(queue)])


def _proving(store: Snapshot) -> list[Queue]:
    """The queues that have each message once."""
    return store.queues.without_light()


def _judged(store: Snapshot, extents: Sequence[Extent], queues: Sequence[Queue], walked: "_Walked") -> list[Coverage]:
    """The coverage of extents, after a walk along all queues."""
    tiles = walked.tiles
    is_sound = tiles.crossed == 0
    false = liars(store, walked.ends)
    if false:
        is_sound &= _walk(store, extents, false, lambda queue: False).tiles.counts == 0
    furthest = np.maximum(tiles.furthest, [extent.start for extent in extents])
    gaps = [
        [(end, extent.stop)] if end < extent.stop else []
        for extent, end in zip(extents, furthest.tolist(), strict=True)
    ]
    # Without gaps and overlaps each unit begins where another ends, all but the first and the last.
    is_tiled = [
        int(tiles.open_ends[at]) in _closed(extent, end)
        for at, (extent, end) in enumerate(zip(extents, furthest.tolist(), strict=True))
    ]
    doubtful = [at for at, tiled in enumerate(is_tiled) if is_sound[at] and not tiled]
    for at, parts in _sorted_out(store, extents, doubtful, tiles, queues):
        gaps[at] = parts or []
        is_sound[at] &= parts is not None
    sound = np.flatnonzero(is_sound).tolist()
    lives = _live_ends(store, extents, sound, tiles)
    for at, live in zip(sound, lives, strict=True):
        gaps[at] = _without_headers(extents[at], _with_what_is_not_live(extents[at], gaps[at], live))
    # The last gap may be no more than the segment's closing blank; but not where a queue still has units after it.
    last = {at: gaps[at][-1][0] for at in sound if gaps[at] and furthest[at] <= gaps[at][-1][0]}
    for at, is_blank in zip(last, _are_blank(store, [(extents[at], last[at]) for at in last]), strict=True):
        if is_blank:
            gaps[at].pop()
    return [Coverage(gaps[at] if is_sound[at] else None, *_asked(tiles, at)) for at in range(len(extents))]


def _units_of_each(store: Snapshot, extents: Sequence[Extent], queues: Sequence[Queue]) -> Iterable[QueueUnits]:
    """The units in some extents of each queue that has any, as the queue claims."""
    return _walk(store, extents, queues, lambda queue: True).units if extents else ()


def _outside(extents: Sequence[Extent], gaps: Sequence[Gaps]) -> list[Extent]:
    """The parts of extents outside of their gaps."""
    parts = []
    for extent, some in zip(extents, gaps, strict=True):
        starts = [extent.start, *(stop for _, stop in some)]
        stops = [*(start for start, _ in some), extent.stop]
        parts += [
            replace(extent, start=start, stop=stop) for start, stop in zip(starts, stops, strict=True) if start < stop
        ]
    return parts


@dataclass(frozen=True)
class _Walked:
    """The result of a walk along queues: what they know of extents, each queue's first and last unit in one, and the
    units of each queue that was asked for."""

    tiles: Tiles
    ends: list[QueueEnd]
    units: list[QueueUnits]


def _walk(
    store: Snapshot, extents: Sequence[Extent], queues: Sequence[Queue], asked: Callable[[Queue], bool]
) -> _Walked:
    begin = _from(store, extents[0].start)
    shares = _shares(queues, max(min(_THREADS, cores()), min(store.files.prices.concurrency, len(queues))))
    threads = len(shares)
    done = [0] * threads

    def walk(thread: int) -> _Walked:
        tiling = _tiling(extents)
        ends: list[QueueEnd] = []
        units: list[QueueUnits] = []
        for queue, (count, nbytes, found) in _tiled(store, shares[thread], tiling, asked, begin):
            ends += [(queue, end) for end in found]
            if found and asked(queue):
                units.append((queue, count, nbytes))
            done[thread] += 1
        return _Walked(tiling.tiles, ends, units)

    with ThreadPoolExecutor(threads) as pool:
        parts = [pool.submit(walk, thread) for thread in range(threads)]
        progress, reported = Progress(f"planning: reading ConsumeQueues of {store.root}", len(queues), "queues"), 0
        while wait(parts, timeout=1).not_done:
            now = sum(done)
            progress.add(now - reported)
            reported = now
    walked = [part.result() for part in parts]
    tiles = functools.reduce(_both, (each.tiles for each in walked))
    return _Walked(tiles, [end for each in walked for end in each.ends], [one for each in walked for one in each.units])


def _tiled(
    store: Snapshot, queues: Sequence[Queue], tiling: Tiling, asked: Callable[[Queue], bool], begin: int | None
) -> Iterator[tuple[Queue, _Sums]]:
    """Add the units of queues to a tiling; what is known of each queue then.

    Args:
        asked: whether the units of a queue are also summed up separately.
        begin: as of _all_chunks().
    """
    buffer = memoryview(bytearray(_TILED_AT_ONCE))
    for first in range(0, len(queues), _QUEUES_AT_ONCE):
        some = queues[first : first + _QUEUES_AT_ONCE]
        are_asked = list(map(asked, some))
        in_files = _tiled_in_files(store.files, some, tiling, are_asked, begin, buffer)
        for queue, is_asked, known in zip(some, are_asked, in_files, strict=True):
            if known is None:
                number, chunks = _chunks(store, queue, begin)
                tiling.begin(number, unit_size=queue.unit_size, asked=is_asked)
                all(map(tiling.add, chunks))  # until add() says that no more chunks are needed
                known = (*tiling.units, tiling.ends)
            yield queue, known


def _tiled_in_files(
    files: Files,
    queues: Sequence[Queue],
    tiling: Tiling,
    asked: Sequence[bool],
    begin: int | None,
    buffer: memoryview,
) -> Sequence[_Sums | None]:
    """_tiled() for queues of one file, with one call of the kernel; None for those that have to be read in another way,
    and of which nothing is added. Long ones, of which not all units are wanted, are searched in another way.

    Args:
        buffer: memory for units.

    Raises:
        StorageError: a file can be read in part only.
    """
    plain = [at for at, queue in enumerate(queues) if queue.is_plain] if files.are_paths_the_systems else []
    if not plain:
        return [None] * len(queues)
    found = np.zeros((len(queues), 9), np.int64)
    of_plain = np.empty((len(plain), 9), np.int64)
    paths = b"".join(os.fsencode(queues[at].directory) + b"\0" for at in plain)
    most = _EVERY if begin is None else _SHORT
    nbytes, requests = tile_queues(tiling, paths, np.array(asked, np.uint8)[plain], of_plain, buffer, most=most)
    files.count(requests, nbytes)
    found[plain] = of_plain
    for queue, known in zip(queues, found[:, 0].tolist(), strict=True):
        with ignore_unreadable():
            if known < 0:
                raise cannot_read(queue.directory, OSError(-known, os.strerror(-known)))
    return [_sums(*row) if is_known else None for is_known, *row in found.tolist()]


def _sums(
    count: int, nbytes: int, start: int, size: int, offset: int, last_start: int, last_size: int, last_offset: int
) -> _Sums:
    """What is known of a queue, from a row of tile_queues()."""
    ends = [(start, size, offset), (last_start, last_size, last_offset)]
    return count, nbytes, [] if start < 0 else ends[start == last_start :]


def _shares(queues: Sequence[Queue], threads: int) -> list[list[Queue]]:
    """The queues that each thread walks along. Those in a RocksDB are left to one, in their order: threads would drive
    the pages of its records out of memory that others need next."""
    in_files = [queue for queue in queues if queue.is_in_files]
    shares = [in_files[thread::threads] for thread in range(threads)]
    return [*filter(None, shares), [queue for queue in queues if not queue.is_in_files]]


def _tiling(extents: Sequence[Extent]) -> Tiling:
    starts = np.array([extent.start for extent in extents], np.int64)
    stops = np.array([extent.stop for extent in extents], np.int64)
    segments = np.array([extent.segment.start for extent in extents], np.int64)
    headers = np.array([extent.segment.header for extent in extents], np.int64)
    return Tiling(starts, stops, segments, headers)


def _both(one: Tiles, other: Tiles) -> Tiles:
    """What some queues and some others know."""
    return Tiles(
        open_ends=one.open_ends + other.open_ends,
        furthest=np.maximum(one.furthest, other.furthest),
        counts=one.counts + other.counts,
        crossed=np.maximum(one.crossed, other.crossed),
        asked_counts=one.asked_counts + other.asked_counts,
        asked_prints=one.asked_prints + other.asked_prints,
        asked_bytes=one.asked_bytes + other.asked_bytes,
        latest=np.maximum(one.latest, other.latest),
        followed=np.maximum(one.followed, other.followed),
    )


def _asked(tiles: Tiles, at: int) -> tuple[int, int, int]:
    return int(tiles.asked_counts[at]), int(tiles.asked_bytes[at]), int(tiles.asked_prints[at])


def _wrapped(number: int) -> int:
    """A number wrapped around as an int64 that overflows."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def liars(store: Snapshot, ends: list[QueueEnd]) -> list[Queue]:
    """The queues of which the log does not confirm one of these units: mostly the first and the last one of a queue."""
    found: list[Queue] = []
    numbers = itertools.chain.from_iterable(place for _, place in ends)
    places = np.fromiter(numbers, np.int64, 3 * len(ends)).reshape(-1, 3)
    order = np.argsort(places[:, 0], kind="stable")
    ends, places = [ends[at] for at in order.tolist()], places[order]
    parts: list[tuple[Extent, int, int]] = []
    first = 0
    while first < len(ends):
        position = int(places[first, 0])
        extent = store.log.extent_at(position)
        after = int(np.searchsorted(places[:, 0], position + 1 if extent is None else extent.stop))
        if extent is None:
            found += [queue for queue, _ in ends[first:after]]
        else:
            parts.append((extent, first, after))
        first = after

    def not_held(part: tuple[Extent, int, int]) -> list[Queue]:
        extent, first, after = part
        here = [queue for queue, _ in ends[first:after]]
        are_held = _are_held(store, extent, here, places[first:after])
        return [queue for queue, is_held in zip(here, are_held.tolist(), strict=True) if not is_held]

    return found + [queue for some in store.files.schedule.mapped(not_held, parts) for queue in some]


def _are_held(store: Snapshot, extent: Extent, queues: list[Queue], places: _Array) -> npt.NDArray[np.bool_]:
    """Does the log have the messages that units of queues stand for?

    Args:
        places: physical offset, size and queue offset of each unit, in the order of the log.
    """
    is_small = places[:, 1] <= _LARGE
    are_held = np.zeros(len(queues), np.bool_)
    with store.reader(extent.segment) as reader:
        for at in np.flatnonzero(~is_small).tolist():
            position, size, queue_offset = places[at].tolist()
            unit = QueueUnit(queue_offset, position, size, 0, queue_offset, 1)
            are_held[at] = reader.has_message(queues[at], queue_offset, unit)
        small = np.flatnonzero(is_small)
        are_held[small] = _are_messages_of([queues[at] for at in small.tolist()], places[small], reader)
    return are_held


def _are_messages_of(queues: list[Queue], places: _Array, reader: SegmentReader) -> npt.NDArray[np.bool_]:
    """_are_held() for messages that are read whole, many at a time."""
    builder = BatchBuilder(["commitLogOffset", "storeSize", "queueOffset", "queueId", "topic"])
    positions, sizes, queue_offsets = places.T.copy()
    claims, every, at = Claims(positions, sizes.astype(np.int32), queue_offsets), Filter(), 0
    while at < len(claims):
        run, walked = reader.pick(claims, at, every)
        if run is not None:
            run.add_to(builder)
        at = walked.at + (walked.status is not Status.LIMIT)
    *numbers, topics = builder.finish().columns
    if len(topics) == 0:
        return np.zeros(len(queues), np.bool_)
    # Not to_numpy(), nor an Arrow array of names: both import pandas where that is installed, which takes longer.
    there = np.stack([np.from_dlpack(column) for column in numbers], axis=1)
    which = np.minimum(np.searchsorted(there[:, 0], positions), len(there) - 1)
    said = np.column_stack([places, [queue.queue_id for queue in queues]])
    names = topics.to_pylist()
    are_equal = [names[at] == queue.topic for at, queue in zip(which.tolist(), queues, strict=True)]
    same: npt.NDArray[np.bool_] = (there[which] == said).all(axis=1) & np.array(are_equal, np.bool_)
    return same


def _sorted_out(
    store: Snapshot, extents: Sequence[Extent], doubtful: list[int], tiles: Tiles, queues: Sequence[Queue]
) -> Iterator[tuple[int, Gaps | None]]:
    """The gaps of some of the extents, each with the extent's index; None where units overlap, or differ from those
    that the walk found."""
    for here in _together(extents, doubtful, tiles.counts):
        first, last = here[0], here[-1]
        most = int(tiles.counts[first : last + 1].sum())
        begins, ends = _units(store, queues, extents[first].start, extents[last].stop, most)
        for at in here:
            extent = extents[at]
            one, after = np.searchsorted(begins, [extent.start, extent.stop])
            some = begins[one:after], ends[one:after]
            is_same = (
                after - one == tiles.counts[at]
                and _wrapped(fingerprint(some[1]) - fingerprint(some[0])) == tiles.open_ends[at]
            )
            yield at, _gaps(*some, extent) if is_same else None


def _together(extents: Sequence[Extent], doubtful: list[int], counts: _Array) -> Iterator[list[int]]:
    """Groups of extents, by their indices, whose units are sorted at once: extents that adjoin in the log, up to
    _UNITS_AT_ONCE units."""
    here: list[int] = []
    for at in doubtful:
        if here and (
            counts[here[0] : at + 1].sum() > _UNITS_AT_ONCE
            or any(extents[n].stop != extents[n + 1].start for n in range(here[-1], at))
        ):
            yield here
            here = []
        here.append(at)
    if here:
        yield here


def _units(store: Snapshot, queues: Sequence[Queue], start: int, stop: int, most: int) -> tuple[_Array, _Array]:
    """The physical offsets where the units of queues in [start, stop) begin and end, in the order of the log: all
    units, if there are no more than `most`."""
    positions, queue_offsets = np.empty((2, most + 1), np.int64)
    sizes = np.empty(most + 1, np.int32)
    walk = QueueWalk()
    walk.fill(positions, sizes, queue_offsets)
    progress = Progress(f"planning: looking for gaps in ConsumeQueues of {store.root}", len(queues), "queues")
    for queue, number, chunks in _all_chunks(store, queues, _from(store, start)):
        walk.begin(number, unit_size=queue.unit_size, start=start, stop=stop)
        for chunk in chunks:
            if walk.take(chunk) < len(chunk) // queue.unit_size:
                break
        progress.add()
    order = np.argsort(positions[: walk.rows], kind="stable")
    begins = positions[order]
    return begins, begins + sizes[order]


def _all_chunks(
    store: Snapshot, queues: Sequence[Queue], begin: int | None
) -> Iterator[tuple[Queue, int, Iterable[bytes | memoryview]]]:
    """The units of queues, as they stand in their files: for each queue the number of the first unit, and
    Queue.chunks() from there on, valid until the next queue is asked for. Short queues come from their beginning.

    Args:
        begin: units that point to before this physical offset may be left out; None: all units are given.
    """
    buffer = memoryview(bytearray(_QUEUES_AT_ONCE * _SHORT))
    for first in range(0, len(queues), _QUEUES_AT_ONCE):
        some = queues[first : first + _QUEUES_AT_ONCE]
        for queue, known in zip(some, _short_queues(some, buffer, store.files), strict=True):
            yield queue, *(_chunks(store, queue, begin) if known is None else (known[0], known[1:]))


def _chunks(store: Snapshot, queue: Queue, begin: int | None) -> tuple[int, Iterable[bytes | memoryview]]:
    """_all_chunks() of one queue."""
    known, prices = queue.at_once(), store.files.prices
    if known is not None:
        return known[0], known[1:]
    # Where a request takes long, zeros are not read to the end: a unit behind them would only make a gap.
    stop = queue.end if prices.concurrency > 1 else None
    at_once = max(_LEAST_AT_ONCE, prices.gap // queue.unit_size)
    if begin is None:
        return queue.first, _bytes(queue.chunks(queue.first, stop, at_once=max(UNITS_AT_ONCE, at_once)))
    number = QueueCursor(queue).seek(begin)
    return number, _bytes(queue.chunks(number, stop, at_once=at_once))


def _short_queues(queues: Sequence[Queue], buffer: memoryview, files: Files) -> Iterable[tuple[int, memoryview] | None]:
    """The units of short queues, those in files read with one call of the kernel.

    Args:
        buffer: memory for the units, an equal share for each queue.

    Returns:
        for each queue the number of the first unit, and the units at least up to the first unused one. None where the
        queue has to be read in another way.
    """
    if not _are_the_kernels(queues, files):
        return (queue.at_once() for queue in queues)
    numbers, sizes = np.empty((2, len(queues)), np.int64)
    paths = b"".join(os.fsencode(queue.directory) + b"\0" for queue in queues)
    nbytes, requests = read_short_queues(paths, numbers, sizes, buffer)
    files.count(requests, nbytes)
    share = len(buffer) // len(queues)
    return [
        None if size < 0 else (number, buffer[at * share : at * share + size])
        for at, (number, size) in enumerate(zip(numbers.tolist(), sizes.tolist(), strict=True))
    ]


def _are_the_kernels(queues: Sequence[Queue], files: Files) -> bool:
    """May the kernel open and read all of these queues?"""
    return files.are_paths_the_systems and all(queue.is_plain for queue in queues)


def _bytes(chunks: Iterable[tuple[int, bytes | memoryview]]) -> Iterable[bytes | memoryview]:
    return (data for _, data in chunks)


def _from(store: Snapshot, start: int) -> int | None:
    """The physical offset from which units of queues are wanted; None: from the queues' beginning, as the units of what
    comes before cost less than a search in each queue."""
    return None if start - store.log.extents[0].start <= store.files.prices.search else start


def _gaps(begins: _Array, ends: _Array, extent: Extent) -> Gaps | None:
    """The parts of an extent between the units; None when two units overlap."""
    begins = np.maximum(begins - extent.segment.header, extent.start)
    begins, ends = np.append(begins, extent.stop), np.insert(ends, 0, extent.start)
    if (begins < ends).any():
        return None
    return [(int(ends[i]), int(begins[i])) for i in np.flatnonzero(begins > ends)]


def _closed(extent: Extent, end: int) -> set[int]:
    """What the open ends of units come to that follow each other from the start of an extent to an end. Where units are
    wrapped, an extent begins with a unit or with what wraps it."""
    header = extent.segment.header
    behind = fingerprint(np.array([end + header]))
    return {_wrapped(behind - fingerprint(np.array([extent.start + passed]))) for passed in (0, header)}


def _without_headers(extent: Extent, gaps: Gaps) -> Gaps:
    """The gaps without those that have space for a header only, and for no message."""
    return [(start, stop) for start, stop in gaps if stop - start != extent.segment.header]


def _live_ends(store: Snapshot, extents: Sequence[Extent], sound: list[int], tiles: Tiles) -> list[int]:
    """The physical offsets up to which some of the extents, by their indices, surely have live units only."""
    lives = []
    for at in reversed(sound):  # the end of a segment answers for everything before it
        extent, log = extents[at], store.log
        followed, furthest = int(tiles.followed[at]), int(tiles.furthest[at])
        log.prove(extent, followed)
        if log.proved_to(extent) < furthest and log.live_end(extent) < furthest:
            log.liveness(int(tiles.latest[at]))
        lives.append(log.proved_to(extent))
    return lives[::-1]


def _with_what_is_not_live(extent: Extent, gaps: Gaps, live: int) -> Gaps:
    """The gaps, joined with everything after the units that are proved live."""
    known = [(start, min(stop, live)) for start, stop in gaps if start < live]
    return known + ([(live, extent.stop)] if live < extent.stop else [])


def _are_blank(store: Snapshot, places: Sequence[tuple[Extent, int]]) -> Iterable[bool]:
    """Does the closing blank of its segment stand at each of these physical offsets in an extent?"""

    def is_blank(place: tuple[Extent, int]) -> bool:
        extent, at = place
        with store.reader(extent.segment) as reader:
            return reader.is_closed_at(at)

    return store.files.schedule.mapped(is_blank, places)
