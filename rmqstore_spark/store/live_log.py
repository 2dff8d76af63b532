"""Which units are of today's log, and which are left over from a truncated one.

Left-over units stay on disk after the closing blank of a rewritten segment. Left-over units of queues and index files
stay as well, and confirm the ones in the log. Everything before the log's end in its last segment is live
(store/log_end.py finds that end). In an earlier segment live units come first, from its start to its blank, so one fact
answers for all of them: an offset up to which the units are surely live. The ways to prove this offset, cheapest first:

* A segment is closed with a blank only where the next message does not fit, and that message begins the next segment.
  So left-over units stand only in the segment's last bytes, fewer bytes than that message takes. The message may be
  lost, when the disk was full just then or the broker was killed. Brokers take no message above 16 MiB unless told to,
  so the last 16 MiB of a segment are always proved in another way. Only a larger message that was lost escapes this
  rule.
* A truncation within a segment deletes all later files. So everything in a later file was written after the last
  truncation, and a queue is written in order. If a queue names a unit, and after it a unit in a later segment that the
  log has, the first unit is live, whether the second one is live or not.
* Live units come first in a segment. So one of the next few units answers for the units before it: where a queue has no
  later message, the queue of a neighbouring unit mostly has one.
* In a queue all left-over units come after the live ones. The first units of the next segment are live. So a unit that
  comes before one of them in its queue is live, and so is all of the log before that unit.
* A walk from unit to unit finds how much further live units reach.
"""

import bisect
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from native_io import FORMAT, Status
from rmqstore_spark.store.evidence import Evidence
from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.format.queue_block import QueueUnit
from rmqstore_spark.store.structures.commitlog import SegmentReader, is_in_own
from rmqstore_spark.store.structures.consumequeue import Queue, QueueName
from rmqstore_spark.store.structures.queue_cursor import QueueCursor
from rmqstore_spark.store.structures.queues import ConsumeQueues
from rmqstore_spark.store.structures.segments import Extent, Segment

_LARGEST_SENT = 16 * 1024 * 1024  # bytes of a message (remoting.netty.NettySystemConfig: frameMaxLength)
_UNITS_TO_LOOK_AT = 32  # units of a queue after a message that are searched for one in a later segment
_GUESS = 1.5  # factor on a queue's spacing: real spacing mostly varies less
_NEAR = 4 * 1024  # bytes after a message within which its neighbours are asked in its place
_QUEUES_NEAR = 8  # neighbours' queues that are asked at most
_QUEUES_TO_ASK, _FIRST_ASKED = 16, 2  # the others only where the first ones prove too little
_QUEUES_TO_KEEP = 256
_WORTH_WALKING = 128 * 1024  # bytes, where the answer may be "not sure" as well

_Before = tuple[Queue, int, QueueUnit]  # a queue, and the number and the unit before that of one of its messages


class _Proved(NamedTuple):
    """The proved facts about one segment. The facts only grow.

    Attributes:
        to: the physical offset up to which its units are proved live.
        asked: whether every proof of a whole segment that needs no walk from message to message was tried.
        asked_near: whether the neighbours of a message were tried.
    """

    to: int = 0
    asked: bool = False
    asked_near: bool = False

    def and_also(self, other: "_Proved") -> "_Proved":
        return _Proved(max(self.to, other.to), self.asked or other.asked, self.asked_near or other.asked_near)


@dataclass
class _Seen:
    """The units of a queue that were read.

    Attributes:
        queue: the queue, with its files as they were then; None where there is none.
        later: number and physical offset of a unit whose message the log has.
        last_live: number and physical offset of the last live unit; None until first needed, (-1, -1) where no unit is
            proved live.
    """

    queue: Queue | None
    later: tuple[int, int] = (0, 0)
    last_live: tuple[int, int] | None = None


_NOTHING, _NOT_SEEN = _Proved(), _Seen(None)


class LiveLog:
    """The segments of a log as far as they hold messages.

    Answers are kept. Several threads may share a LiveLog: the facts about a segment only grow, so two threads at worst
    find out the same fact twice.

    Large because there are several proofs that a message is live (a later segment, queues, the messages after it),
    and all of them share what is known of a segment.

    Attributes:
        extents: the extents, by start.
        size: bytes of all extents together.

    Args:
        last_timestamp: store time (ms) of the last message, None when not known.
        queues: the store's ConsumeQueues.
        reader: opens a segment; the reader need not check bodies.
        has_end: whether the log ends where the last extent does. If not, nothing in the last extent is proved live.
    """

    def __init__(
        self,
        extents: list[Extent],
        last_timestamp: int | None,
        queues: ConsumeQueues,
        reader: Callable[[Segment], SegmentReader],
        has_end: bool = True,
    ) -> None:
        self.extents = extents
        self.size = sum(extent.stop - extent.start for extent in extents)
        self._starts = [extent.start for extent in extents]
        self._last_timestamp = last_timestamp
        self._queues = queues
        self._reader = reader
        self._has_end = has_end
        self._proved: dict[int, _Proved] = {}  # by the start of the segment
        self._learning = threading.Lock()  # segments are asked about side by side
        self._firsts: dict[int, Header | None] = {}  # first messages of segments, by the start of the segment
        self._seen: dict[QueueName, _Seen] = {}

    @property
    def _end(self) -> int:
        return self.extents[-1].stop if self.extents else 0

    def extent_at(self, position: int) -> Extent | None:
        """The extent that holds a physical offset, or None."""
        index = self._index_at(position)
        return self.extents[index] if index >= 0 and position < self.extents[index].stop else None

    def header(self, position: int) -> Header | None:
        """The unit at a physical offset, live or not; None when there is none."""
        extent = self.extent_at(position)
        if extent is None:
            return None
        with self._reader(extent.segment) as reader:
            header = reader.header(position)
        self._keep_first(extent, position, header)
        return header

    def headers_at(self, position: int) -> list[Header]:
        """The header of the unit at a physical offset, and those of the next ones as far as the same read shows them;
        none where there is no unit."""
        extent = self.extent_at(position)
        if extent is None:
            return []
        with self._reader(extent.segment) as reader:
            found = reader.headers_at(position)
        self._keep_first(extent, position, found[0] if found else None)
        return found

    def two_headers(self, first: int, second: int) -> tuple[list[Header], list[Header]]:
        """headers_at() of two physical offsets; for the first one, only its own header. The second unit is free where
        it comes soon after the first one."""
        extent = self.extent_at(first)
        if extent is None or extent is not self.extent_at(second):
            return self.headers_at(first), self.headers_at(second)
        with self._reader(extent.segment) as reader:
            return reader.two_headers(first, second)

    def timestamp(self, position: int) -> int | None:
        """The store time (ms) of the message that a segment begins with; at the log's end, the store time of the last
        message. None when there is no message."""
        if position == self._end:
            return self._last_timestamp
        header = self._header_once(position)
        return None if header is None or header.store_timestamp is None else header.store_timestamp // 1000

    def has_message(self, queue: Queue, queue_offset: int, unit: QueueUnit) -> bool:
        """Does the log hold the message that a ConsumeQueue has this unit for, live or not?"""
        extent = self.extent_at(unit.position)
        if extent is None:
            return False
        with self._reader(extent.segment) as reader:
            return reader.has_message(queue, queue_offset, unit)

    def is_in(self, header: Header, queue: Queue, queue_offset: int) -> bool:
        """Is a message of the log, live or not, in a queue at an offset?"""
        if not queue.is_additional:
            return is_in_own(header, queue, queue_offset)
        extent = self.extent_at(header.position)
        if extent is None:
            return False
        with self._reader(extent.segment) as reader:
            return reader.is_in(header, queue, queue_offset)

    def evidence(self, queue: Queue, queue_offset: int, unit: QueueUnit, may_walk_far: bool = False) -> Evidence:
        """How sure it is that the message a ConsumeQueue unit stands for exists and is live.

        Args:
            may_walk_far: see liveness().
        """
        if not self.has_message(queue, queue_offset, unit):
            return Evidence.ABSENT
        return self.liveness(unit.position, unit.size, may_walk_far=may_walk_far)

    def liveness(
        self, position: int, size: int = 0, headers: Sequence[Header] = (), may_walk_far: bool = False
    ) -> Evidence:
        """How sure it is that the unit at a physical offset is live.

        Args:
            size: bytes of the unit, if known. An old unit can begin in the last bytes of a live one, if these bytes
                equal the old unit's beginning. The old unit then ends after the live one.
            headers: the header of the unit and of some units after it, if known.
            may_walk_far: whether to walk as far as the proof needs. If not, the answer is UNSURE where the walk would
                be long.
        """
        extent = self.extent_at(position)
        if extent is None or position + size > extent.stop:
            return Evidence.ABSENT
        if position >= self.proved_to(extent):
            found = self._prove(extent, position, headers, may_walk_far)
            if found is not Evidence.LIVE:
                return found
        return Evidence.LEFT_OVER if position < self.proved_to(extent) < position + size else Evidence.LIVE

    def proved_to(self, extent: Extent) -> int:
        """live_end() as far as already proved."""
        return min(max(self._known(self._whole(extent)).to, extent.start), extent.stop)

    def prove(self, extent: Extent, end: int) -> None:
        """Record that the units of an extent's segment are live up to a physical offset. For callers that have walked
        along all queues."""
        self._learn(self._whole(extent), _Proved(end))

    @property
    def proved(self) -> dict[int, int]:
        """The physical offset up to which each segment is already proved live, by the start of the segment."""
        return {start: known.to for start, known in self._proved.items()}

    def live_end(self, extent: Extent) -> int:
        """The physical offset up to which an extent has live units only: its start, its stop, or the beginning of a
        unit. Accelerators can be trusted no further. The proofs of a whole segment are tried once."""
        whole = self._whole(extent)
        if not self._known(whole).asked:
            end = self._end_of_last(whole) if whole is self.extents[-1] else self._end_by_queues(whole)
            self._learn(whole, _Proved(end, asked=True))
        return self.proved_to(extent)

    def last_live_unit(self, queue: Queue) -> tuple[int, int] | None:
        """The last unit of a queue that points into the log, as its number and its physical offset; None where
        its message is not proved live. Earlier units of the queue are live if the log has their messages.

        The answer is kept: whoever goes along a queue asks once for the queue, where evidence() would be asked for each
        unit, with a look into the log each time."""
        seen = self._seen_of(queue.name)
        if seen.last_live is None:
            number = queue.end - 1
            unit = queue.unit(number)
            if unit is None or unit.position >= self._end:
                cursor = QueueCursor(queue)
                number = cursor.seek(self._end) - 1
                unit = cursor.unit(number)
            extent = None if unit is None else self.extent_at(unit.position)
            seen.last_live = (-1, -1)
            if unit is not None and extent is not None and self.has_message(queue, unit.queue_offset, unit):
                # An old unit can begin in the last live bytes, but then the old unit ends after them.
                is_live = unit.position + unit.size <= self.live_end(extent)
                seen.last_live = (number, unit.position) if is_live else (-1, -1)
        return seen.last_live if seen.last_live[0] >= 0 else None

    def _index_at(self, position: int) -> int:
        return bisect.bisect_right(self._starts, position) - 1

    def _whole(self, part: Extent) -> Extent:
        return self.extents[self._index_at(part.start)]

    def _known(self, whole: Extent) -> _Proved:
        return self._proved.get(whole.start, _NOTHING)

    def _learn(self, whole: Extent, more: _Proved) -> None:
        with self._learning:
            self._proved[whole.start] = self._known(whole).and_also(more)

    def _header_once(self, position: int) -> Header | None:
        """header() with a cache for the few units that are needed again and again, mostly the first ones of
        segments."""
        if position not in self._firsts:
            self._firsts[position] = self.header(position)
        return self._firsts[position]

    def _keep_first(self, extent: Extent, position: int, header: Header | None) -> None:
        if position == extent.start:
            self._firsts[position] = header

    def _prove(self, extent: Extent, position: int, headers: Sequence[Header], may_walk_far: bool) -> Evidence:
        """How sure it is that a unit is live, for a unit after the proved part."""
        if extent is self.extents[-1] and not self._has_end:
            return Evidence.UNSURE
        if extent is self.extents[-1]:
            return Evidence.LIVE if position < self.live_end(extent) else Evidence.LEFT_OVER
        headers = headers or self.headers_at(position)
        if not headers:
            return Evidence.ABSENT
        if (
            position == extent.start
            or self._is_before_left_over(position)
            or self._is_one_followed(headers, extent.segment.end)
            or self._is_one_followed(self._more_headers(headers, extent), extent.segment.end)
        ):
            self._learn(extent, _Proved(position + headers[0].size))
            return Evidence.LIVE
        end = self.live_end(extent)
        if position < end:
            return Evidence.LIVE
        if position - end > _WORTH_WALKING and not may_walk_far:
            return Evidence.UNSURE
        with self._reader(extent.segment) as reader:
            _, walked = reader.walk(end, position)
        reached, status = walked.at, walked.status
        is_there = reached == position
        self._learn(extent, _Proved(position + headers[0].size if is_there else reached))
        if is_there:
            return Evidence.LIVE
        # A walk ends at damage as well, and units after the damage may be live.
        return Evidence.LEFT_OVER if status in (Status.BLANK, Status.CROSSES_STOP) else Evidence.UNSURE

    def _end_of_last(self, extent: Extent) -> int:
        """live_end() of the last extent: the log's end. Where the log ends at the beginning of another segment that has
        nothing whole in it, the last extent's segment may be closed and hold left-over units."""
        if not self._has_end:
            return extent.start
        if extent.stop < extent.segment.end:
            return self._end
        with self._reader(extent.segment) as reader:
            return reader.walk(extent.start, extent.stop)[1].at

    def _is_before_left_over(self, position: int) -> bool:
        """Is a physical offset so far before the end of its segment, not the last one, that no left-over unit can begin
        there?"""
        extent, following = self.extents[self._index_at(position) :][:2]
        left = extent.segment.end - position - FORMAT["BLANK_SIZE"]
        if left <= _LARGEST_SENT or following.start != extent.segment.end:
            return False
        first = self._header_once(following.start)
        return first is not None and left > following.segment.header + first.size

    def _is_followed(self, header: Header) -> bool:
        """Does a message's queue have a unit for it, and a later unit for a message in a later segment that the log
        has?"""
        seen, extent = self._seen_of(_name_of(header)), self.extent_at(header.position)
        if seen.queue is None or extent is None:
            return False
        queue, number, end = seen.queue, header.queue_offset, extent.segment.end
        units = list(queue.block(number, _UNITS_TO_LOOK_AT))
        if not units or (units[0].position, units[0].size) != (header.position, header.size):
            return False
        known, position = seen.later
        if known > number and position >= end:
            return True
        for later, unit in self._later_units(queue, number, units, end):
            if later > number and unit is not None and unit.position >= end and self.has_message(queue, later, unit):
                seen.later = later, unit.position
                return True
        return False

    def _later_units(
        self, queue: Queue, number: int, units: list[QueueUnit], end: int
    ) -> Iterator[tuple[int, QueueUnit | None]]:
        """Units of a queue that may point to `end` or after it, each with its number. Far units come first, as they
        answer for more segments; the first unit that points there comes last.

        Args:
            number, units: units that were already read, and the number of the first one.
        """
        used = next((index for index, unit in enumerate(units) if unit.size <= 0), len(units))
        beyond = next((index for index, unit in enumerate(units) if unit.position >= end), None)
        if beyond is not None:
            yield number + used - 1, units[used - 1]
            yield number + beyond, units[beyond]
        elif used == _UNITS_TO_LOOK_AT:
            # Two single units are guessed at before the queue is searched for the first one after `end`: one far behind
            # `end` is kept in _Seen.later and answers for all segments before that one, where the first one after `end`
            # answers for this segment alone.
            start, passed = units[0].position, max(units[-1].position - units[0].position, 1)
            for distance in ((self._end - start) // 2, _GUESS * (end - start)):
                guess = number + int(used * distance / passed)
                yield guess, queue.unit(guess)
            first = QueueCursor(queue).seek(end)
            yield first, queue.unit(first)

    def _is_one_followed(self, headers: Sequence[Header], end: int) -> bool:
        """Is one of these units, of a segment that stops at `end`, followed (_is_followed)? If so, the units before it
        are live, too."""
        by_queue: dict[QueueName, Header] = {}
        for header in headers:
            by_queue.setdefault(_name_of(header), header)
        # Queues known to go on come first, then long queues, as these mostly go on.
        asked = sorted(
            by_queue,
            key=lambda name: (self._seen.get(name, _NOT_SEEN).later[1] < end, -by_queue[name].queue_offset),
        )
        return any(self._is_followed(by_queue[name]) for name in asked[:_QUEUES_NEAR])

    def _more_headers(self, headers: Sequence[Header], extent: Extent) -> list[Header]:
        """Headers of units of other queues that come soon after. Read once for a segment: live_end() answers for all of
        it."""
        proved = self._known(extent)
        if proved.asked or proved.asked_near:
            return []
        self._learn(extent, _Proved(asked_near=True))
        known = {(header.topic, header.queue_id) for header in headers}
        with self._reader(extent.segment) as reader:
            near = reader.first_headers(headers[-1].position, _NEAR)
        return [header for header in near if (header.topic, header.queue_id) not in known]

    def _end_by_queues(self, extent: Extent) -> int:
        """live_end() of an extent before the last one, by the queues of the first units of the next segment that has
        messages."""
        following, segment = self.extents[self._index_at(extent.start) + 1], extent.segment
        with self._reader(following.segment) as later:
            first = later.first_headers(following.segment.start)
        by_queue = {(header.topic, header.queue_id): header for header in reversed(first)}
        counts = Counter((header.topic, header.queue_id) for header in first)
        # A busy queue has a message shortly before; so has one that has no message for a while, where they take turns.
        asked = [by_queue[name] for name in sorted(by_queue, key=lambda name: -counts[name])][:_QUEUES_TO_ASK]
        some, rest = self._all_before(asked[:_FIRST_ASKED], segment), asked[_FIRST_ASKED:]
        end = segment.start
        with self._reader(segment) as reader:
            # The log is not asked about the first ones where they would prove too little.
            if any(segment.end - unit.position - unit.size <= _WORTH_WALKING for _, _, unit in some):
                end = _last_end(reader, some, segment.start)
            if segment.end - end > _WORTH_WALKING:
                end = _last_end(reader, some + self._all_before(rest, segment), segment.start)
        return end

    def _all_before(self, headers: Sequence[Header], segment: Segment) -> list[_Before]:
        """_before() of some messages, where it is known."""
        found = self._queues.files.schedule.mapped(lambda header: self._before(header, segment), headers)
        return [before for before in found if before is not None]

    def _before(self, header: Header, segment: Segment) -> _Before | None:
        """The queue of a message, and the number and unit that come before the message's own, if that unit points into
        a segment."""
        queue = self._seen_of(_name_of(header)).queue
        units = None if queue is None else queue.block(header.queue_offset - 1, 2)
        if queue is None or units is None or len(units) < 2:
            return None
        unit, here = units
        is_known = (here.position, here.size) == (header.position, header.size)
        is_in_it = segment.start <= unit.position < segment.end
        return (queue, header.queue_offset - 1, unit) if is_known and is_in_it else None

    def _seen_of(self, name: QueueName) -> _Seen:
        """The units of a queue that were last read."""
        seen = self._seen.get(name)
        if seen is None:
            if len(self._seen) >= _QUEUES_TO_KEEP:
                self._seen.clear()
            seen = self._seen[name] = _Seen(self._queues.named(name))
        return seen


def _name_of(header: Header) -> QueueName:
    """The simple queue of a message."""
    return QueueName(header.topic, header.queue_id, Queue.form)


def _last_end(reader: SegmentReader, named: list[_Before], start: int) -> int:
    """Where the last message ends that the log has where one of these units says; `start`, where it has none."""
    latest_first = sorted(named, key=lambda each: each[2].position, reverse=True)
    ends = (
        unit.position + unit.size for queue, number, unit in latest_first if reader.has_message(queue, number, unit)
    )
    return next(ends, start)
