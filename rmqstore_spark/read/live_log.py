"""The live log of a store: what planning asks of it."""

import bisect

from rmqstore_spark.read.task import Home, Range
from rmqstore_spark.store.commitlog import SegmentReader
from rmqstore_spark.store.consumequeue import ConsumeQueues
from rmqstore_spark.store.files import Files
from rmqstore_spark.store.live import live_end

_WORTH_WALKING = 128 * 1024  # bytes, to see whether a unit is of the live log


class Log:
    """The live log of one store, as the planner looks at it.

    Args:
        home: the store.
        ranges: its segments as far as they hold messages.
        last_timestamp: store time (ms) of its last message, None when not known.
        queues: its ConsumeQueues.
        files: how to reach files, and where requests and bytes are counted.
    """

    def __init__(
        self,
        home: Home,
        ranges: list[Range],
        last_timestamp: int | None,
        queues: ConsumeQueues,
        files: Files,
    ) -> None:
        self.home = home
        self.ranges = ranges
        self.queues = queues
        self.files = files
        self.size = sum(r.stop - r.start for r in ranges)
        self._starts = [r.start for r in ranges]
        self._timestamps = {ranges[-1].stop: last_timestamp} if ranges else {}
        self._live_ends: dict[int, int] = {}  # by where the segment starts

    def open(self, place: Range) -> SegmentReader:
        """A reader of the segment that a range is in. It does not look at bodies."""
        return SegmentReader(place.segment, False, self.queues, self.files)

    def range_at(self, position: int) -> Range | None:
        """The range that holds a physical offset, or None."""
        index = self._index_at(position)
        return self.ranges[index] if index >= 0 and position < self.ranges[index].stop else None

    def live_end(self, place: Range) -> int:
        """Up to which physical offset the segment of a range has live units only (store.live): accelerators can be
        trusted no further. What comes after it may be the remains of a truncated log."""
        index = self._index_at(place.start)
        if index + 1 == len(self.ranges):
            return self.ranges[-1].stop
        start = self.ranges[index].start
        if start not in self._live_ends:
            with self.open(place) as reader:
                later = self.ranges[index + 1].segment
                self._live_ends[start] = live_end(reader, later, self.queues, self.files)
        return self._live_ends[start]

    def is_live(self, position: int) -> bool:
        """Is a unit at a physical offset sure to be no old one of a truncated log?"""
        place = self.range_at(position)
        if place is None:
            return False
        end = self.live_end(place)
        if position < end:
            return True
        with self.open(place) as reader:
            return position - end <= _WORTH_WALKING and reader.walk(end, position)[1] == position

    def timestamp(self, position: int) -> int | None:
        """The store time (ms) of the message at a physical offset, or behind a segment's end; at the log's end of the
        last message. None when there is none."""
        if position not in self._timestamps:
            place = self.range_at(position)
            microseconds = None
            if place is not None:
                with self.open(place) as reader:
                    header = reader.header(position)
                microseconds = None if header is None else header.store_timestamp
            self._timestamps[position] = None if microseconds is None else microseconds // 1000
        return self._timestamps[position]

    def _index_at(self, position: int) -> int:
        return bisect.bisect_right(self._starts, position) - 1
