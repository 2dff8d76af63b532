"""Which units are of today's log, and which are left over from a truncated one.

Left-over units stay on disk after the closing blank of a segment that was written anew, and so do those of queues and
index files: they confirm each other. Everything before the log's end in its last segment is live (store/log_end.py
finds that end). In an earlier segment live units come first, from its start to its blank, so one fact answers for all
of them: an offset up to which they surely reach. It is cheap to know: in a queue all left-over units come after its
live ones. So what comes in a queue before one of the first units of the next segment, which are live, is live, and so
is all of the log before it. How much further live units reach, only a walk tells.
"""

import bisect
import itertools
from collections.abc import Callable

from rmqstore_spark.store.commitlog import SegmentReader
from rmqstore_spark.store.consumequeue import ConsumeQueues
from rmqstore_spark.store.message import Header
from rmqstore_spark.store.segments import Extent, Segment

_QUEUES_TO_ASK = 16
_WORTH_WALKING = 128 * 1024  # bytes, where the answer may be "not sure" as well


class LiveLog:
    """The segments of a log as far as they hold messages.

    Attributes:
        extents: by start.
        size: bytes of all of them.

    Args:
        last_timestamp: store time (ms) of the last message, None when not known.
        queues: the store's ConsumeQueues.
        reader: opens a segment; bodies need not be looked at.
    """

    def __init__(
        self,
        extents: list[Extent],
        last_timestamp: int | None,
        queues: ConsumeQueues,
        reader: Callable[[Segment], SegmentReader],
    ) -> None:
        self.extents = extents
        self.size = sum(extent.stop - extent.start for extent in extents)
        self._end = extents[-1].stop if extents else 0
        self._queues = queues
        self._reader = reader
        self._starts = [extent.start for extent in extents]
        self._timestamps = {self._end: last_timestamp} if extents else {}
        self._live_ends: dict[int, int] = {}  # by where the segment starts

    def extent_at(self, position: int) -> Extent | None:
        """The extent that holds a physical offset, or None."""
        index = self._index_at(position)
        return self.extents[index] if index >= 0 and position < self.extents[index].stop else None

    def live_end(self, extent: Extent) -> int:
        """Up to which physical offset the segment of an extent has live units only: a unit begins there, or what ends
        the segment. Accelerators can be trusted no further."""
        index = self._index_at(extent.start)
        if index + 1 == len(self.extents):
            return self._end
        start = self.extents[index].start
        if start not in self._live_ends:
            with self._reader(extent.segment) as reader:
                self._live_ends[start] = self._find_live_end(reader, self.extents[index + 1].segment)
        return self._live_ends[start]

    def is_live(self, position: int, however_far: bool = False) -> bool:
        """Is the unit at a physical offset sure to be live?

        Args:
            however_far: whether to walk as far as it takes. Else False means "not sure" where that is far.
        """
        extent = self.extent_at(position)
        if extent is None:
            return False
        end = self.live_end(extent)
        if position < end:
            return True
        if position - end > _WORTH_WALKING and not however_far:
            return False
        with self._reader(extent.segment) as reader:
            reached = reader.walk(end, position)[1]
        self._live_ends[self.extents[self._index_at(position)].start] = reached
        return reached == position

    def timestamp(self, position: int) -> int | None:
        """The store time (ms) of the message at a physical offset, or after a segment's end; at the log's end of the
        last message. None when there is none."""
        if position not in self._timestamps:
            header = self.header(position)
            microseconds = None if header is None else header.store_timestamp
            self._timestamps[position] = None if microseconds is None else microseconds // 1000
        return self._timestamps[position]

    def header(self, position: int) -> Header | None:
        """The unit at a physical offset, live or not; None when there is none."""
        extent = self.extent_at(position)
        if extent is None:
            return None
        with self._reader(extent.segment) as reader:
            return reader.header(position)

    def _index_at(self, position: int) -> int:
        return bisect.bisect_right(self._starts, position) - 1

    def _find_live_end(self, reader: SegmentReader, later: Segment) -> int:
        """By the queues of the first units of the next segment that has messages."""
        with self._reader(later) as following:
            run = following.run_at(later.start, later.end)
            first = run.headers() if run is not None else []
        by_queue = {(header.topic, header.queue_id): header for header in reversed(first)}
        asked = itertools.islice(by_queue.values(), _QUEUES_TO_ASK)
        ends = (self._end_before(header, reader) for header in asked)
        return max((end for end in ends if end is not None), default=reader.segment.start)

    def _end_before(self, header: Header, reader: SegmentReader) -> int | None:
        """Where the message ends that comes before this one in its queue, if it is in the reader's segment."""
        queue = self._queues.queue(header.topic, header.queue_id)
        unit = None if queue is None else queue.unit(header.queue_offset - 1)
        if queue is None or unit is None or not reader.segment.start <= unit.position < reader.segment.end:
            return None
        here = queue.unit(header.queue_offset)
        is_known = here is not None and (here.position, here.size) == (header.position, header.size)
        return unit.position + unit.size if is_known and reader.holds(queue, header.queue_offset - 1, unit) else None
