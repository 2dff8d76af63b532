"""Where ranges of the log can be cut: at starts of units that a ConsumeQueue names and the log confirms, or that a walk
finds. Never at a guess, which a message's body could fool."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

from rmqstore_spark.partition import Home, Range
from rmqstore_spark.store.commitlog import SegmentReader
from rmqstore_spark.store.consumequeue import ConsumeQueues, Queue
from rmqstore_spark.store.files import Files

_QUEUES_TO_SPLIT_BY = 8  # the longest queues name units near any place where a split is wanted
_QUEUES_TO_MEASURE = 256  # how many are measured to find them


class Splitter:
    """Cuts ranges into pieces of about `target` bytes, at starts of units only.

    Args:
        log: the whole live log of all stores.
        target: bytes.
        may_walk: where no ConsumeQueue helps, whether to walk through a segment.
        queues: each store's ConsumeQueues.
        files: how to reach files, and where requests and bytes are counted.
    """

    def __init__(
        self,
        log: list[Range],
        target: int,
        may_walk: bool,
        queues: dict[Home, ConsumeQueues],
        files: Files,
    ) -> None:
        self._log = log
        self._target = target
        self._may_walk = may_walk
        self._consumequeues = queues
        self._files = files
        self._longest: dict[Home, list[Queue]] = {}

    def split(self, whole: Range, least: int = 0) -> list[Range]:
        """The pieces of a range, in order; the range itself where it is small, or where no unit start is to be had.

        Args:
            whole: the range.
            least: cut no smaller pieces than about so many bytes.
        """
        target = max(self._target, least)
        if whole.stop - whole.start <= target + target // 4:
            return [whole]
        with self._open(whole) as reader:
            if queues := self._queues_through(whole):
                cuts = list(self._queued_starts(whole, target, reader, queues))
            else:
                cuts = list(self._walked_starts(whole, target, reader)) if self._may_walk else []
        bounds = [whole.start, *cuts, whole.stop]
        return [replace(whole, start=start, stop=stop) for start, stop in itertools.pairwise(bounds)]

    def around(self, whole: Range, least: int, most: int) -> Range:
        """The smallest part of a range that surely holds all its units that begin in [least, most]."""
        start, stop = whole.start, whole.stop
        with self._open(whole) as reader:
            for queue, end in self._queues_through(whole):
                number = queue.search(least + 1) - 1
                unit = queue.unit(number) if number < end else None
                if unit and start < unit.position <= least and reader.holds(queue, number, unit):
                    start = unit.position
                number = queue.search(most + 1)
                unit = queue.unit(number) if number < end else None
                if unit and most < unit.position < stop and unit.position + unit.size <= whole.stop:
                    stop = unit.position if reader.holds(queue, number, unit) else stop
        return replace(whole, start=start, stop=stop)

    def _open(self, place: Range) -> SegmentReader:
        return SegmentReader(place.segment, False, self._consumequeues[place.home], self._files)

    def _queues_through(self, whole: Range) -> list[tuple[Queue, int]]:
        """Long queues, each with the queue offset before which its units are the live log's.

        A truncated log and its queues keep their old units, and those confirm each other. They can lie behind the blank
        of any segment but the last. In a queue they all lie behind its live units; so what comes before a unit in a
        later segment, which the log confirms, is live.
        """
        queues = self._queues(whole.home)
        later = [r for r in self._log if r.home == whole.home and r.start >= whole.segment.end]
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

    def _queues(self, home: Home) -> list[Queue]:
        if home not in self._longest:
            roomiest = sorted(self._consumequeues[home], key=lambda queue: queue.room, reverse=True)[
                :_QUEUES_TO_MEASURE
            ]
            by_length = sorted(roomiest, key=lambda queue: queue.end - queue.first, reverse=True)
            self._longest[home] = [queue for queue in by_length[:_QUEUES_TO_SPLIT_BY] if queue.last() is not None]
        return self._longest[home]

    def _queued_starts(
        self, whole: Range, target: int, reader: SegmentReader, queues: list[tuple[Queue, int]]
    ) -> Iterator[int]:
        """Unit starts that a ConsumeQueue names and the log confirms. A message's body could hold what looks like a
        unit, but only the broker writes the queue."""
        wanted, least = whole.start + target, whole.stop - target // 2
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
            wanted = max(target + (wanted if cut is None else cut), named[0][0].position + 1)

    def _walked_starts(self, whole: Range, target: int, reader: SegmentReader) -> Iterator[int]:
        """Unit starts found by walking from unit to unit; none behind damage."""
        at, least = whole.start, whole.stop - target // 2
        while at + target < least:
            last, at, _ = reader.walk(at, at + target)
            unit = reader.header(at)
            if last is None and unit is not None:  # larger than a partition should be
                at += unit.size
                unit = reader.header(at)
            if unit is None or at >= least:
                return
            yield at
