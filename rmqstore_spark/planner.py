"""From stores to partitions: which byte ranges a task reads.

Knows no Spark. It is run once for a read, so that what comes out is a snapshot of the stores as they were then.
"""

import itertools
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rmqstore_spark.errors import DamagedStoreError, OptionError
from rmqstore_spark.options import ReadOptions
from rmqstore_spark.store.commitlog import Damage, Segment, SegmentReader, segments_of
from rmqstore_spark.store.consumequeue import ConsumeQueues, Queue
from rmqstore_spark.store.files import Counters
from rmqstore_spark.store.layout import expand, find_store
from rmqstore_spark.store.logend import LogEnd

log = logging.getLogger(__name__)

_SMALL_PARTITION = 4 * 1024 * 1024  # smaller ones only where minPartitions asks for them
_OPEN_COST = 256 * 1024  # what a further range costs a task, in bytes it could have read meanwhile
_QUEUES_TO_SPLIT_BY = 8  # the longest queues name units near any place where a split is wanted
_QUEUES_TO_MEASURE = 256  # how many are measured to find them
_SEGMENTS_TO_WALK = 16  # without ConsumeQueue, more segments than these are not walked through for split points


@dataclass(frozen=True)
class Range:
    """The units of a segment that begin at the physical offsets [start, stop)."""

    store: str
    consumequeue: str | None
    segment: Segment
    start: int
    stop: int


@dataclass(frozen=True)
class Task:
    """What one partition reads: ranges in log order, and damage that planning met already."""

    ranges: tuple[Range, ...] = ()
    faults: tuple[tuple[str, Damage], ...] = ()  # (store, damage)


@dataclass
class Plan:
    """The tasks of a read, and what making them has cost."""

    tasks: list[Task] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)


def plan(options: ReadOptions) -> Plan:
    """Plan a read.

    Raises:
        NotAStoreError: a path is no store.
        OptionError: storePathCommitLog is given for more than one store.
        DamagedStoreError: mode FAILFAST, and names or sizes of segments are wrong.
    """
    result = Plan()
    ranges: list[Range] = []
    faults: list[tuple[str, Damage]] = []
    queues: dict[str | None, ConsumeQueues] = {}  # by directory: finding the end and splitting look at the same ones
    roots = expand(options.paths)
    if options.store_path_commit_log and len(roots) > 1:
        raise OptionError(f"option 'storePathCommitLog' belongs to one store, but the path gives {len(roots)}")
    for root in roots:
        store_ranges, store_faults = _plan_store(root, options, queues, result.counters)
        if store_faults and options.mode == "FAILFAST":
            raise DamagedStoreError(str(store_faults[0]))
        ranges += store_ranges
        faults += [(root, fault) for fault in store_faults]
    total = sum(r.stop - r.start for r in ranges)
    target = _target(total, options)
    may_walk = len(ranges) <= max(_SEGMENTS_TO_WALK, options.min_partitions or 0)
    splitter = _Splitter(ranges, target, may_walk, queues, result.counters)
    pieces = [piece for r in ranges for piece in splitter.split(r)]
    result.tasks = _pack(pieces, target)
    if faults:
        result.tasks.append(Task(faults=tuple(faults)))
    return result


def _plan_store(
    root: str, options: ReadOptions, queues: dict[str | None, ConsumeQueues], counters: Counters
) -> tuple[list[Range], list[Damage]]:
    layout = find_store(root, options.store_path_commit_log, counters)
    for stray in layout.strays:
        log.warning("%s: not a commitlog file, ignored; a broker would not start with it", stray)
    segments, faults = segments_of(layout)
    queues[layout.consumequeue] = ConsumeQueues(layout.consumequeue, counters)
    end = LogEnd(layout, segments, queues[layout.consumequeue], counters).find()
    ranges = []
    for segment in end.segments:
        # A cut file is read as far as it goes: what is missing behind is one of the faults.
        stop = min(segment.end, segment.start + segment.size, end.position)
        if stop > segment.start:
            ranges.append(Range(root, layout.consumequeue, segment, segment.start, stop))
    return ranges, faults


class _Splitter:
    """Cuts ranges into pieces of about `target` bytes, at starts of units only."""

    def __init__(
        self,
        ranges: list[Range],
        target: int,
        may_walk: bool,
        queues: dict[str | None, ConsumeQueues],
        counters: Counters,
    ) -> None:
        self._ranges = ranges
        self._target = target
        self._may_walk = may_walk
        self._consumequeues = queues
        self._counters = counters
        self._longest: dict[str | None, list[Queue]] = {}  # by consumequeue directory

    def split(self, whole: Range) -> list[Range]:
        """The pieces of a range, in order; the range itself where it is small, or where no unit start is to be had."""
        if whole.stop - whole.start <= self._target + self._target // 4:
            return [whole]
        with self._open(whole) as reader:
            if queues := self._queues_through(whole):
                cuts = list(self._queued_starts(whole, reader, queues))
            else:
                cuts = list(self._walked_starts(whole, reader)) if self._may_walk else []
        bounds = [whole.start, *cuts, whole.stop]
        return [replace(whole, start=start, stop=stop) for start, stop in itertools.pairwise(bounds)]

    def _open(self, place: Range) -> SegmentReader:
        return SegmentReader(place.segment, False, self._consumequeues[place.consumequeue], self._counters)

    def _queues_through(self, whole: Range) -> list[tuple[Queue, int]]:
        """Long queues, each with the queue offset before which its units are the live log's.

        A truncated log and its queues keep their old units, and those confirm each other. They can lie behind the blank
        of any segment but the last. In a queue they all lie behind its live units; so what comes before a unit in a
        later segment, which the log confirms, is live.
        """
        queues = self._queues(whole.consumequeue)
        later = [r for r in self._ranges if r.store == whole.store and r.start >= whole.segment.end]
        if not later:
            return [(queue, queue.first + queue.room) for queue in queues]
        through = []
        for queue in queues:
            offset = queue.search(whole.segment.end)
            unit = queue.unit(offset)
            there = next((r for r in later if unit and r.start <= unit.position < r.stop), None)
            if unit and there:
                with self._open(there) as reader:
                    if reader.holds(queue, offset, unit):
                        through.append((queue, offset))
        return through

    def _queues(self, directory: str | None) -> list[Queue]:
        if directory not in self._longest:
            roomiest = sorted(self._consumequeues[directory], key=lambda queue: queue.room, reverse=True)[
                :_QUEUES_TO_MEASURE
            ]
            by_length = sorted(roomiest, key=lambda queue: queue.end - queue.first, reverse=True)
            self._longest[directory] = [queue for queue in by_length[:_QUEUES_TO_SPLIT_BY] if queue.last() is not None]
        return self._longest[directory]

    def _queued_starts(self, whole: Range, reader: SegmentReader, queues: list[tuple[Queue, int]]) -> Iterator[int]:
        """Unit starts that a ConsumeQueue names and the log confirms. A message body could hold what looks like a unit,
        but only the broker writes the queue."""
        wanted, least = whole.start + self._target, whole.stop - self._target // 2
        while wanted < least:
            named = []
            for queue, end in queues:
                offset = queue.search(wanted)
                unit = queue.unit(offset) if offset < end else None
                # An old unit can begin in the last bytes of the log's last message, but then it ends behind it.
                if unit and wanted <= unit.position < least and unit.position + unit.size <= whole.stop:
                    named.append((unit, queue, offset))
            if not named:
                return
            named.sort(key=lambda name: name[0])
            cut = next((unit.position for unit, queue, offset in named if reader.holds(queue, offset, unit)), None)
            if cut is not None:
                yield cut
            wanted = max(self._target + (wanted if cut is None else cut), named[0][0].position + 1)

    def _walked_starts(self, whole: Range, reader: SegmentReader) -> Iterator[int]:
        """Unit starts found by walking from unit to unit; none behind damage."""
        at, least = whole.start, whole.stop - self._target // 2
        while at + self._target < least:
            last, at, _ = reader.walk(at, at + self._target)
            unit = reader.header(at)
            if last is None and unit is not None:  # larger than a partition should be
                at += unit.size
                unit = reader.header(at)
            if unit is None or at >= least:
                return
            yield at


def _target(total: int, options: ReadOptions) -> int:
    """Bytes a partition should have: as Spark's file sources reckon, with the driver's cores for the cluster's, which
    planning cannot see."""
    if options.min_partitions is not None:
        return min(options.max_partition_bytes, max(1, total // options.min_partitions))
    return min(options.max_partition_bytes, max(_SMALL_PARTITION, total // (os.cpu_count() or 1)))


def _pack(pieces: list[Range], target: int) -> list[Task]:
    """Put small ranges together: Spark pays some 20 ms for a task."""
    open_cost = min(_OPEN_COST, target // 16)
    tasks: list[Task] = []
    packed: list[Range] = []
    size = 0
    for piece in pieces:
        cost = piece.stop - piece.start + open_cost
        if packed and size + cost > target:
            tasks.append(Task(tuple(packed)))
            packed, size = [], 0
        packed.append(piece)
        size += cost
    if packed:
        tasks.append(Task(tuple(packed)))
    return tasks
