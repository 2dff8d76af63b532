"""Where ranges of the log can be cut: at starts of units that a ConsumeQueue names and the log confirms, or that a walk
finds. Never at a guess, which a message's body could fool."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

from rmqstore_spark.read.task import Range
from rmqstore_spark.store.commitlog import SegmentReader
from rmqstore_spark.store.consumequeue import Queue, QueueUnit
from rmqstore_spark.store.opened import OpenStore

_QUEUES_TO_SPLIT_BY = 8  # the longest queues name units near any offset where a split is due
_NEAR = 8  # a piece may be larger by such a part
_QUEUES_TO_MEASURE = 256  # how many are measured to find them


class Splitter:
    """Cuts ranges into pieces of about `target` bytes, at starts of units only.

    Args:
        target: bytes.
        may_walk: where no ConsumeQueue helps, whether to walk through a segment.
    """

    def __init__(self, target: int, may_walk: bool) -> None:
        self._target = target
        self._may_walk = may_walk
        self._longest: dict[OpenStore, list[Queue]] = {}

    def split(self, whole: Range, least: int = 0) -> list[Range]:
        """The pieces of a range, in order; the range itself where it is small, or where no unit start is to be had.

        Args:
            whole: the range.
            least: cut no smaller pieces than about so many bytes.
        """
        target = max(self._target, least)
        if whole.stop - whole.start <= target + target // 4:
            return [whole]
        with whole.store.reader(whole.segment) as reader:
            queues = self._queues(whole.store)
            live = whole.store.log.live_end(whole) if queues else whole.start
            if live > whole.start:
                cuts = list(self._queued_starts(whole, target, reader, queues, live))
            else:
                cuts = list(self._walked_starts(whole, target, reader)) if self._may_walk else []
        bounds = [whole.start, *cuts, whole.stop]
        return [replace(whole, start=start, stop=stop) for start, stop in itertools.pairwise(bounds)]

    def around(self, whole: Range, least: int, most: int) -> Range:
        """The smallest part of a range that surely holds all its units that begin in [least, most]."""
        start, stop = whole.start, whole.stop
        live = min(whole.store.log.live_end(whole), whole.stop)
        with whole.store.reader(whole.segment) as reader:
            for queue in self._queues(whole.store):
                number = queue.search(min(least, live - 1) + 1) - 1
                unit = queue.unit(number)
                if unit and start < unit.position <= least and _is_live(unit, live):
                    start = unit.position if reader.holds(queue, number, unit) else start
                number = queue.search(most + 1)
                unit = queue.unit(number)
                if unit and most < unit.position < stop and _is_live(unit, live):
                    stop = unit.position if reader.holds(queue, number, unit) else stop
        return replace(whole, start=start, stop=stop)

    def _queues(self, store: OpenStore) -> list[Queue]:
        """Long queues, the longest first."""
        if store not in self._longest:
            largest = sorted(store.queues, key=lambda queue: queue.capacity, reverse=True)[:_QUEUES_TO_MEASURE]
            by_length = sorted(largest, key=lambda queue: queue.end - queue.first, reverse=True)
            self._longest[store] = [queue for queue in by_length[:_QUEUES_TO_SPLIT_BY] if queue.last() is not None]
        return self._longest[store]

    def _queued_starts(
        self, whole: Range, target: int, reader: SegmentReader, queues: list[Queue], live: int
    ) -> Iterator[int]:
        """Unit starts that a ConsumeQueue names and the log confirms. A message's body could hold what looks like a
        unit, but only the broker writes the queue; and of what it has written, only what is before `live` is of this
        log."""
        due, least = whole.start + target, whole.stop - target // 2
        while due < least:
            named = []
            for queue in queues:
                offset = queue.search(due)
                unit = queue.unit(offset)
                if unit and due <= unit.position < least and _is_live(unit, min(live, whole.stop)):
                    named.append((unit, queue, offset))
                    if unit.position - due <= target // _NEAR:
                        break  # no need to ask for a nearer one
            if not named:
                return
            named.sort(key=lambda name: name[0])
            cut = next((unit.position for unit, queue, offset in named if reader.holds(queue, offset, unit)), None)
            if cut is not None:
                yield cut
            due = max(target + (due if cut is None else cut), named[0][0].position + 1)

    def _walked_starts(self, whole: Range, target: int, reader: SegmentReader) -> Iterator[int]:
        """Unit starts found by walking from unit to unit; none after damage."""
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


def _is_live(unit: QueueUnit, live: int) -> bool:
    """Is it before the end of what is live? An old unit can begin in the last bytes, but then it ends after them."""
    return unit.position + unit.size <= live
