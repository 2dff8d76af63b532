"""Which units are of today's log, and which are left over from a truncated one.

Left-over units stay on disk after the closing blank of a segment that was written anew, and so do those of queues and
index files: they confirm each other. Everything before the log's end in its last segment is live (store/log_end.py
finds that end). In an earlier segment live units come first, from its start to its blank, so one fact answers for all
of them: an offset up to which they surely reach. How that is known, the cheapest first:

* A segment is closed with a blank only where the next message does not fit, and that message begins the next segment.
  So left-over units stand in its last bytes, fewer of them than that message takes. The message may be lost: when the
  disk was full just then, or the broker was killed. As brokers take none larger than 16 MiB unless they are told to,
  so much at the end of a segment is always proved otherwise. A larger one that was lost is all that this cannot see.
* A cut in a segment deletes all later files. So whatever stands in a later one was written after the last cut, and a
  queue is written in order: where one still names a unit, and after it one in a later segment that the log has, the
  first is live, whether the other is or not.
* Live units come first in a segment. So one of the next few units answers for those before it: where a queue has no
  later message, that of a neighbour mostly has.
* In a queue all left-over units come after its live ones. So what comes in a queue before one of the first units of the
  next segment, which are live, is live, and so is all of the log before it.
* How much further live units reach, a walk tells.
"""

import bisect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from native_io import FORMAT
from rmqstore_spark.store.commitlog import SegmentReader
from rmqstore_spark.store.consumequeue import UNIT, UNIT_SIZE, ConsumeQueues, Queue, QueueUnit
from rmqstore_spark.store.message import HEAD_SIZE, Head, Header
from rmqstore_spark.store.segments import Extent, Segment

_LARGEST_SENT = 16 * 1024 * 1024  # bytes of a message (remoting.netty.NettySystemConfig: frameMaxLength)
_UNITS_TO_LOOK_AT = 32  # of a queue: from a message on, whether one in a later segment comes soon
_GUESS = 1.5  # a queue goes on less evenly than this, mostly
_NEAR = 4 * 1024  # bytes after a message, whose next ones are asked about in its place
_QUEUES_NEAR = 8  # that are asked, at the most
_QUEUES_TO_ASK = 16
_QUEUES_TO_KEEP = 256
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
        self._first_sizes: dict[int, int] = {}  # of the message that a segment begins with, by where that is
        self._live_ends: dict[int, int] = {}  # by where the segment starts, as _find_live_end() knows them
        self._asked_near: set[int] = set()  # likewise: where neighbours of a message were asked about
        self._reached: dict[int, int] = {}  # likewise: how far units were found to be live besides
        self._confirmed: dict[tuple[str, int], tuple[int, int]] = {}  # by queue: a unit that the log was found to have
        self._asked_queues: dict[tuple[str, int], Queue | None] = {}
        self._live_units: dict[tuple[str, int], tuple[int, int]] = {}  # by queue, as last_live_unit() gives them

    def again(self) -> "LiveLog":
        """The same log, of which nothing is known yet: one for another thread."""
        return LiveLog(self.extents, self._timestamps.get(self._end), self._queues, self._reader)

    def adopt(self, other: "LiveLog") -> None:
        """Know what another one of the same log has found to be live."""
        for start, end in other._reached.items():
            self._reach(start, end)

    def places(self, positions: Iterable[int]) -> set[tuple[str, int]]:
        """Where in which files is_live() looks in any case: at the messages, and at the beginnings of the segments
        after theirs."""
        found = set()
        for position in positions:
            following = self._index_at(position) + 1
            for at in (position, *self._starts[following : following + 1]):
                extent = self.extent_at(at)
                if extent is not None:
                    found.add((extent.segment.path, at - extent.segment.start))
        return found

    def extent_at(self, position: int) -> Extent | None:
        """The extent that holds a physical offset, or None."""
        index = self._index_at(position)
        return self.extents[index] if index >= 0 and position < self.extents[index].stop else None

    def know_live(self, extent: Extent, end: int) -> None:
        """The units of an extent's segment are live up to a physical offset: who has walked along all queues knows."""
        self._reach(self.extents[self._index_at(extent.start)].start, end)

    def live_end(self, extent: Extent, enough: int | None = None) -> int:
        """Up to which physical offset a part of an extent has live units only: its start, its stop, or where a unit
        begins. Accelerators can be trusted no further.

        Args:
            enough: whether it is further than that need not be known.
        """
        index = self._index_at(extent.start)
        live = max(self._known_live(self.extents[index]), extent.start)
        if enough is None or live < enough:
            live = max(live, self._live_end(index))
        return min(live, extent.stop)

    def is_live(self, position: int, however_far: bool = False, headers: Sequence[Header] = ()) -> bool:
        """Is the unit at a physical offset sure to be live?

        Args:
            however_far: whether to walk as far as it takes. Else False means "not sure" where that is far.
            headers: of the unit, and of some that come after it, if that is known.
        """
        extent = self.extent_at(position)
        if extent is None:
            return False
        if position < self._known_live(extent):
            return True
        if extent is self.extents[-1]:
            return position < self._live_end(len(self.extents) - 1)
        headers = headers or self.headers_at(position)
        if not headers:
            return False
        is_first = position == extent.start
        if not (
            is_first
            or self._is_before_left_over(position)
            or self._is_one_followed(headers, extent.segment.end)
            or self._is_one_followed(self._more_headers(headers, extent), extent.segment.end)
        ):
            end = self.live_end(extent)
            if position < end:
                return True
            if position - end > _WORTH_WALKING and not however_far:
                return False
            with self._reader(extent.segment) as reader:
                reached = reader.walk(end, position)[1]
            if reached != position:
                self._reached[extent.start] = reached
                return False
        self._reached[extent.start] = position + headers[0].size
        return True

    def last_live_unit(self, queue: Queue) -> tuple[int, int] | None:
        """The last unit of a simple queue that points into the log, as its number and its physical offset; None where
        it is not sure to be of a live message. Those before it in the queue are live, if the log confirms them."""
        name = queue.topic, queue.queue_id
        if name not in self._live_units:
            number = queue.search(self._end) - 1
            unit = queue.unit(number)
            is_live = unit is not None and self._is_surely_live(queue, number, unit)
            self._live_units[name] = (number, unit.position) if unit is not None and is_live else (-1, -1)
        number, position = self._live_units[name]
        return (number, position) if number >= 0 else None

    def holds(self, queue: Queue, queue_offset: int, unit: QueueUnit, however_far: bool = False) -> bool:
        """Is there the live message that a ConsumeQueue has this unit for?

        Args:
            however_far: as of is_live().
        """
        return self.confirms(queue, queue_offset, unit) and self.is_live_unit(unit.position, unit.size, however_far)

    def is_live_unit(self, position: int, size: int, however_far: bool = False) -> bool:
        """is_live() of a unit of which the size is known, too. An old one can begin in the last bytes of a live one, if
        these are what the old one began with; but then it ends after it."""

        extent = self.extent_at(position)
        if extent is None or position + size > extent.stop or not self.is_live(position, however_far):
            return False
        return not position < self._known_live(extent) < position + size

    def confirms(self, queue: Queue, queue_offset: int, unit: QueueUnit) -> bool:
        """Is there the message that a ConsumeQueue has this unit for, live or not?"""
        extent = self.extent_at(unit.position)
        if extent is None:
            return False
        with self._reader(extent.segment) as reader:
            return reader.holds(queue, queue_offset, unit)

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
            header = reader.header(position)
        self._note(extent, position, header)
        return header

    def headers_at(self, position: int) -> list[Header]:
        """The header of the unit at a physical offset, and those of the next ones as far as the same read shows them;
        none where there is no unit."""
        extent = self.extent_at(position)
        if extent is None:
            return []
        with self._reader(extent.segment) as reader:
            found = reader.headers_at(position)
        self._note(extent, position, found[0] if found else None)
        return found

    def two_headers(self, first: int, second: int) -> tuple[list[Header], list[Header]]:
        """headers_at() of two, of the first alone. Where the second unit comes soon after the first it costs nothing
        more."""
        extent = self.extent_at(first)
        if extent is None or extent is not self.extent_at(second):
            return self.headers_at(first), self.headers_at(second)
        with self._reader(extent.segment) as reader:
            return reader.two_headers(first, second)

    def _note(self, extent: Extent, position: int, header: Header | None) -> None:
        if header is not None and position == extent.start:
            self._first_sizes[position] = header.size

    def _index_at(self, position: int) -> int:
        return bisect.bisect_right(self._starts, position) - 1

    def _reach(self, start: int, end: int) -> None:
        self._reached[start] = max(end, self._reached.get(start, 0))

    def _known_live(self, extent: Extent) -> int:
        return max(self._live_ends.get(extent.start, 0), self._reached.get(extent.start, 0))

    def _live_end(self, index: int) -> int:
        if index + 1 == len(self.extents):
            return self._last_live_end()
        extent, following = self.extents[index : index + 2]
        if extent.start not in self._live_ends:
            with self._reader(extent.segment) as reader:
                self._live_ends[extent.start] = self._find_live_end(reader, following.segment)
        return self._live_ends[extent.start]

    def _last_live_end(self) -> int:
        """That of the last segment: the log's end. Where that is the beginning of another segment, of which nothing is
        whole, this one may be closed, and hold left-over units."""
        extent = self.extents[-1]
        if extent.stop < extent.segment.end:
            return self._end
        if extent.start not in self._live_ends:
            with self._reader(extent.segment) as reader:
                self._live_ends[extent.start] = reader.walk(extent.start, extent.stop)[1]
        return self._live_ends[extent.start]

    def _is_before_left_over(self, position: int) -> bool:
        """Is a physical offset so far before the end of its segment, not the last one, that no left-over unit can begin
        there?"""
        extent, following = self.extents[self._index_at(position) :][:2]
        left = extent.segment.end - position - FORMAT["BLANK_SIZE"]
        if left <= _LARGEST_SENT or following.start != extent.segment.end:
            return False
        if following.start not in self._first_sizes:
            with self._reader(following.segment) as reader:
                head = Head.of(reader.window.read(following.start, HEAD_SIZE))
            is_unit = head.magic in (FORMAT["MAGIC_V1"], FORMAT["MAGIC_V2"]) and head.physical_offset == following.start
            self._first_sizes[following.start] = head.size if is_unit else following.segment.end
        return left > self._first_sizes[following.start]

    def _is_followed(self, header: Header) -> bool:
        """Does its queue know this message, and after it one in a later segment that the log has?"""
        name = header.topic, header.queue_id
        queue, extent = self._queue(*name), self.extent_at(header.position)
        if queue is None or extent is None:
            return False
        number, end = header.queue_offset, extent.segment.end
        units = [QueueUnit(*each) for each in UNIT.iter_unpack(queue.read_units(number, _UNITS_TO_LOOK_AT))]
        if not units or (units[0].position, units[0].size) != (header.position, header.size):
            return False
        known, position = self._confirmed.get(name, (0, 0))
        if known > number and position >= end:
            return True
        for later, unit in self._later_units(queue, number, units, end):
            if later > number and unit is not None and unit.position >= end and self.confirms(queue, later, unit):
                self._confirmed[name] = later, unit.position
                return True
        return False

    def _later_units(
        self, queue: Queue, number: int, units: list[QueueUnit], end: int
    ) -> Iterator[tuple[int, QueueUnit | None]]:
        """Units of a queue that may point to `end` or after it, each with its number, and the first that does so at the
        last. Those that are far away come first, as they answer for more segments.

        Args:
            number, units: of some in it, which were read.
        """
        used = next((index for index, unit in enumerate(units) if unit.size <= 0), len(units))
        beyond = next((index for index, unit in enumerate(units) if unit.position >= end), None)
        if beyond is not None:
            yield number + used - 1, units[used - 1]
            yield number + beyond, units[beyond]
        elif used == _UNITS_TO_LOOK_AT:
            start, passed = units[0].position, max(units[-1].position - units[0].position, 1)
            for distance in ((self._end - start) // 2, _GUESS * (end - start)):
                guess = number + int(used * distance / passed)
                yield guess, queue.unit(guess)
            first = queue.search(end)
            yield first, queue.unit(first)

    def _is_one_followed(self, headers: Sequence[Header], end: int) -> bool:
        """Is one of these units of a segment that ends there followed? Then the others before it are live, too."""
        by_queue: dict[tuple[str, int], Header] = {}
        for header in headers:
            by_queue.setdefault((header.topic, header.queue_id), header)
        # First those of whose queue it is known that it goes on, then those of long queues, as they mostly do.
        asked = sorted(
            by_queue,
            key=lambda name: (self._confirmed.get(name, (0, 0))[1] < end, -by_queue[name].queue_offset),
        )
        return any(self._is_followed(by_queue[name]) for name in asked[:_QUEUES_NEAR])

    def _more_headers(self, headers: Sequence[Header], extent: Extent) -> list[Header]:
        """Those of other queues that come soon after. Once for a segment: live_end() answers for all of it."""
        if extent.start in self._live_ends or extent.start in self._asked_near:
            return []
        self._asked_near.add(extent.start)
        known = {(header.topic, header.queue_id) for header in headers}
        with self._reader(extent.segment) as reader:
            near = reader.first_headers(headers[-1].position, _NEAR)
        return [header for header in near if (header.topic, header.queue_id) not in known]

    def _is_surely_live(self, queue: Queue, number: int, unit: QueueUnit) -> bool:
        """Does the log hold the message of a unit, before the end of what is live there? An old unit can begin in the
        last live bytes, but then it ends after them."""
        extent = self.extent_at(unit.position)
        return (
            extent is not None
            and self.confirms(queue, number, unit)
            and unit.position + unit.size <= self.live_end(extent)
        )

    def _find_live_end(self, reader: SegmentReader, later: Segment) -> int:
        """By the queues of the first units of the next segment that has messages."""
        with self._reader(later) as following:
            first = following.first_headers(later.start)
        by_queue = {(header.topic, header.queue_id): header for header in reversed(first)}
        asked = itertools.islice(by_queue.values(), _QUEUES_TO_ASK)
        named = [before for header in asked if (before := self._before(header, reader.segment)) is not None]
        named.sort(key=lambda each: each[2].position, reverse=True)
        return next((u.position + u.size for queue, n, u in named if reader.holds(queue, n, u)), reader.segment.start)

    def _before(self, header: Header, segment: Segment) -> tuple[Queue, int, QueueUnit] | None:
        """The unit that comes before that of a message in its queue, with its number, if it points into a segment."""
        queue = self._queue(header.topic, header.queue_id)
        units = b"" if queue is None else queue.read_units(header.queue_offset - 1, 2)
        if queue is None or len(units) < 2 * UNIT_SIZE:
            return None
        unit, here = (QueueUnit(*fields) for fields in UNIT.iter_unpack(units))
        is_known = (here.position, here.size) == (header.position, header.size)
        is_in_it = segment.start <= unit.position < segment.end
        return (queue, header.queue_offset - 1, unit) if is_known and is_in_it else None

    def _queue(self, topic: str, queue_id: int) -> Queue | None:
        """A queue, with its files as they were when it was asked for lately."""
        name = topic, queue_id
        if name not in self._asked_queues:
            if len(self._asked_queues) >= _QUEUES_TO_KEEP:
                self._asked_queues.clear()
            self._asked_queues[name] = self._queues.queue(*name)
        return self._asked_queues[name]
