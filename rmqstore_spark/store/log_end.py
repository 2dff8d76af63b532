"""Where the log ends. Files are preallocated, so the end is found, not read off a length
(docs/design.md, Where the log ends).

From the last segment that begins with a unit on, the first thing that is not a unit is the end, unless something proves
that a message was lost there:
  * its bytes are not all zero, and a ConsumeQueue unit points exactly there;
  * a later unit, whole in every check, not older than the last one before, that its ConsumeQueue knows, or whose
    queueOffset is beyond those seen for its queue, or that is in no queue (a half message): the remains of a truncated
    log fail this. Of a damaged message that can still be recognized, the time counts as well. In what our writer has
    written (store/structures/written.py) times say nothing;
  * it is what no broker leaves there: a header that reaches over the end of its file, no space for a blank, or a blank
    that does not reach to the end. The file was cut.
In any earlier segment whatever is not a unit or the closing blank is damage.
"""

import bisect
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from native_io import FORMAT, Status
from rmqstore_spark.kept import kept
from rmqstore_spark.store.format.clock import CLOCK_SLACK
from rmqstore_spark.store.format.message import HEAD_SIZE, Head, Header, microseconds, store_time_in
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.checkpoint import logics_timestamp
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.layout import Layout
from rmqstore_spark.store.structures.past_damage import PastDamage
from rmqstore_spark.store.structures.queue_cursor import QueueCursor
from rmqstore_spark.store.structures.queues import ConsumeQueues
from rmqstore_spark.store.structures.segments import Segment
from rmqstore_spark.store.structures.written import load

PAGE = 4096  # bytes; in such pieces a file comes to whoever copies it
_SETTLE_SECONDS = 0.005
_SETTLE_TRIES = 40
_LOOK_SIZE = 64 * 1024  # of what may be a lost message, to see whether there is anything
# For a hint where the log ends:
_TAIL_SIZE = 16 * 1024  # before the end of the data a unit is looked for
_UNITS_TO_TRY = 16
_QUEUES_TO_ASK = 64


@dataclass(frozen=True)
class End:
    """Where the log ends.

    Attributes:
        position: the physical offset after the last message. Damage before it is met when it is read.
        segments: the segments; one that was cut without its neighbours telling is a little longer than its file.
        last: the last message, None when not known.
    """

    position: int
    segments: list[Segment]
    last: Header | None = None

    @property
    def timestamp(self) -> int | None:
        """Store time (ms) of the last message, None when not known."""
        microseconds = None if self.last is None else self.last.store_timestamp
        return None if microseconds is None else microseconds // 1000


@dataclass(frozen=True)
class _Stop:
    """Where walking came to.

    Attributes:
        segment, at: the number of the segment, and the physical offset in it.
        status: why it stopped there.
        last: the last unit before it, None when there is none or it is damaged.
        newest: store time (us) that messages after it are not older than, None when not known.
        is_damage: units follow that could prove that the log goes on, were they not older than the damaged message
            here: either they are left over from a truncated log, or that message's time is damaged, too.
    """

    segment: int
    at: int
    status: Status
    last: Header | None
    newest: int | None
    is_damage: bool = False


class LogEnd:
    """Finds the end of a store's commitlog.

    Args:
        layout: the store.
        segments: its segments, by start.
        queues: its ConsumeQueues. All of them are asked only where something is left after the end.
        files: how to reach files, and where requests and bytes are counted.
        is_followed: whether who asks will ask again. Then a last unit that nothing proves waits where files are a
            snapshot: what was copied while a broker wrote it stays the same without being whole.
    """

    def __init__(
        self,
        layout: Layout,
        segments: list[Segment],
        queues: ConsumeQueues,
        files: Files,
        is_followed: bool = False,
    ) -> None:
        self._layout = layout
        self._segments = list(segments)
        self._queues = queues
        self._files = files
        self._must_prove = is_followed and files.is_snapshot
        self._claimed: dict[int, list[tuple[int, int, int]]] = {}  # by physical offset, where all queues were asked
        self._seen_in: dict[int, tuple[int, dict[tuple[str, int], int]]] = {}  # by segment: up to where, and what

    def find(self, known: tuple[int, int] | None = None) -> End:
        """The end as of now.

        Args:
            known: a physical offset where a live unit begins, or the log ended when it was looked at before; so what
                comes before it need not be walked over. And the store time (ms) of the message before it.
        """
        if not self._segments:
            return End(0, [])
        started = self._last_started()
        segment = self._segments[started]
        if known is not None and segment.start <= known[0] < segment.end:
            stop = self._walk(started, known[0], microseconds(known[1]))
        else:
            stop = self._walk_from_hint(started) or self._walk(started, segment.start)
        while not stop.is_damage and (beyond := self._lost_unit(stop) or self._later_unit(stop)) is not None:
            stop = beyond
        position = self._settled(stop) if self._layout.abort else stop.at
        last = stop.last if position == stop.at else None  # else it was torn
        return End(self._cut(stop) or position, self._segments, last)

    def onward(self, known: int) -> End:
        """How far the log goes on, unit by unit, from a physical offset in one of the segments: a live unit begins
        there, or the log ended.

        It costs as much as there is new. Whether something else than the end stops it only find() can tell. A last unit
        of a running broker's that nothing proves yet is not waited for.
        """
        stop = self._walk(self._segment_of(known), known)
        position = self._settled(stop, may_wait=False)
        return End(position, self._segments, stop.last if position == stop.at else None)

    def late_message(self) -> Header | None:
        """The last message that its ConsumeQueue knows, where data seems to end; None where there is none near that.

        It costs little, whatever the log's end would cost. It may be left over from a truncated log.
        """
        started = self._last_started() if self._segments else 0
        first = self._late_unit(started) if self._segments else None
        if first is None:
            return None
        with self._open(started) as reader:
            found = list(reader.headers(first, self._segments[started].end))
        return next((header for header in reversed(found) if self._queues.vouch_for(header)), None)

    def _open(self, index: int, verify_crc: bool = False) -> SegmentReader:
        return SegmentReader(self._segments[index], self._files, verify_crc)

    def _last_started(self) -> int:
        """The last segment that begins with a unit; the first one when none does."""
        for index in reversed(range(len(self._segments))):
            with self._open(index) as reader:
                if reader.header(self._segments[index].start) is not None:
                    return index
        return 0

    def _walk(self, index: int, at: int, newest: int | None = None) -> _Stop:
        last = None
        while True:
            segment = self._segments[index]
            with self._open(index) as reader:
                position, walked = reader.walk(at, segment.end)
                at, status = walked.at, walked.status
                if position is not None:
                    last = reader.header(position)
            newest = newest if last is None or last.store_timestamp is None else last.store_timestamp
            following = index + 1
            if status is not Status.BLANK or following == len(self._segments) or not self._is_begun(following):
                return _Stop(index, at, status, last, newest)
            if self._segments[following].start != segment.end:
                return _Stop(index, at, status, last, newest)
            index, at = following, segment.end

    def _is_begun(self, index: int) -> bool:
        """Is there anything at the beginning of a segment? As long as there is not, the log ends before the blank that
        leads to it: it may go on there (write/build/stretch.py; or a broker that was killed just then)."""
        segment = self._segments[index]
        with self._open(index) as reader:
            return any(reader.read(segment.start, FORMAT["BLANK_SIZE"]))

    def _walk_from_hint(self, started: int) -> _Stop | None:
        """Walk from a unit near the end that its ConsumeQueue knows; None where that may lead astray.

        A truncated log and its queues keep their old units, and those confirm each other. They are older than what came
        after them, though, and the checkpoint of a clean shutdown knows how old the newest message is.
        """
        newest = self._newest
        if self._layout.abort or newest <= 0:
            return None
        hint = self._late_unit(started) or self._unit_of_some(started)
        stop = None if hint is None else self._walk(started, hint)
        if stop is None or stop.last is None or stop.last.store_timestamp is None:
            return None
        return stop if stop.last.store_timestamp // 1000 >= newest else None

    def _late_unit(self, index: int) -> int | None:
        """A unit not far before where the data of a segment ends, if its ConsumeQueue knows it. What stands in a body
        and looks like one, no queue knows."""
        segment = self._segments[index]
        with self._open(index) as reader:
            end = reader.data_end()
            at = max(segment.start, end - _TAIL_SIZE)
            for _ in range(_UNITS_TO_TRY):
                found_at = reader.find(at, end)
                header = None if found_at is None else reader.header(found_at)
                if header is None:
                    return None
                if self._queues.vouch_for(header):
                    return header.position
                at = header.position + header.size
        return None

    def _unit_of_some(self, index: int) -> int | None:
        """The last unit of a segment that one of some queues knows."""
        segment = self._segments[index]
        last = (queue.last() for queue in itertools.islice(self._queues.some(), _QUEUES_TO_ASK))
        hint = max((u.position for u in last if u and segment.start <= u.position < segment.end), default=None)
        with self._open(index) as reader:
            header = None if hint is None else reader.header(hint)
        return hint if header is not None and self._queues.vouch_for(header) else None

    def _settled(self, stop: _Stop, may_wait: bool = True) -> int:
        """The end, without a last unit that a broker may be writing just now: its head is seen before its tail.

        What a ConsumeQueue knows was written to its end; if it is not whole, then it is damaged. Without that proof
        nothing tells a unit whose properties are half written from a whole one. So while somebody holds the store's
        lock, the unit waits for its proof, or for a later one. Where nobody does, it counts if it stays the same: a
        broker on another machine, whose lock cannot be seen, would have to pause in the middle of a copy.

        Args:
            may_wait: for the proof.
        """
        last = stop.last
        if last is None or last.position + last.size != stop.at or stop.status is Status.BLANK:
            return stop.at
        if self._is_torn(last):
            return last.position
        is_written = self._must_prove or self._files.is_locked(self._layout.lock)
        seen = b""
        for _ in range(_SETTLE_TRIES):
            if self._queues.vouch_for(last):
                return stop.at
            if self._must_prove or (is_written and not may_wait):
                break
            with self._open(self._segment_of(last.position), verify_crc=True) as reader:
                data = reader.read(last.position, last.size)
                if data == seen and not is_written and reader.header(last.position) is not None:
                    return stop.at
            seen = data
            time.sleep(_SETTLE_SECONDS)
        return last.position

    def _segment_of(self, position: int) -> int:
        index = self._index_of(position)
        assert index is not None
        return index

    def _index_of(self, position: int) -> int | None:
        """The number of the segment that a physical offset is in; None where that is missing."""
        found = (i for i, segment in enumerate(self._segments) if segment.start <= position < segment.end)
        return next(found, None)

    def _cut(self, stop: _Stop) -> int | None:
        """The end of the damage, where the log stops with what no broker leaves there; None where it just ends."""
        segment = self._segments[stop.segment]
        file_end = min(segment.end, segment.start + segment.size)
        # Enough to meet the damage when it is read, and no more: what follows may be the remains of a truncated log.
        damaged = min(stop.at + FORMAT["SMALLEST_UNIT"], file_end)
        if stop.is_damage or stop.status in (Status.NO_BLANK, Status.MORE, Status.BAD_BLANK):
            return damaged
        with self._open(stop.segment) as reader:
            data = reader.read(stop.at, HEAD_SIZE)
        if stop.status is Status.BAD_TOTAL_SIZE:
            head = Head.of(data)
            over = stop.at + head.size + FORMAT["BLANK_SIZE"] - segment.end
            if over > 0 and (len(data) < HEAD_SIZE or head.physical_offset == stop.at):
                if over > FORMAT["BLANK_SIZE"]:
                    return damaged
                # All of the unit is there, but not the space for a blank after it.
                self._segments[stop.segment] = replace(segment, end=segment.end + over)
                return file_end
        # A log that does not even begin with a unit is no log; unless a broker is writing its first message.
        is_empty = stop.last is None and stop.at == self._segments[0].start and stop.status is not Status.BLANK
        return file_end if is_empty and any(data[: FORMAT["BLANK_SIZE"]]) and not self._layout.abort else None

    def _lost_unit(self, stop: _Stop) -> _Stop | None:
        """A ConsumeQueue unit that points exactly to what is no unit. Where there are only zeros the message never came
        here: the queues of a copy may have been copied later than its commitlog. But where more stands right after
        these zeros, a queue unit that points exactly there proves it. After a crash a torn message may stand where an
        old queue unit points to, so there what is left of the message must be that unit's. An old one may also reach
        over a later message, which refutes it."""
        if stop.status is Status.BLANK:
            return None
        segment, at = self._segments[stop.segment], stop.at
        with self._open(stop.segment) as reader:
            while at + FORMAT["SMALLEST_UNIT"] + FORMAT["BLANK_SIZE"] <= segment.end:
                extents = reader.data_extents(at, at + _LOOK_SIZE)
                if not any(reader.read(start, end - start).strip(b"\0") for start, end in extents):
                    return None  # only zeros, whatever a queue says
                found = reader.read(at, _LOOK_SIZE)
                after = None
                for claim in self._claims(at, Head.of(found)):
                    size = claim[0]
                    if at + size + FORMAT["BLANK_SIZE"] > segment.end:
                        continue
                    if not found[:size].strip(b"\0"):
                        after = at + size
                    elif self._has_known(reader, at + 1, at + size, stop.newest):
                        continue
                    elif not self._layout.abort or _agrees(Head.of(found), claim):
                        return self._walk(stop.segment, at + size, _later(stop.newest, self._time_at(stop, at)))
                if after is None:
                    return None
                at = after
        return None

    def _has_known(self, reader: SegmentReader, start: int, end: int, newest: int | None) -> bool:
        """Does a unit begin in a part of the log that its ConsumeQueue knows, and that is not too old?"""
        at = reader.find(start, end)
        while at is not None and (header := reader.header(at)) is not None:
            if header.is_queued and _not_older(header, newest) and self._queues.vouch_for(header):
                return True
            at = reader.find(at + 1, end)
        return False

    def _claims(self, position: int, head: Head) -> Iterator[tuple[int, int, int]]:
        """What the queues say of a message at a physical offset: size, queueId, queueOffset."""
        if position in self._claimed:
            yield from self._claimed[position]
            return
        claims = []
        for queue in self._queues:
            found = self._claim(queue, position, head)
            if found is not None:
                claims.append((found[1], queue.queue_id, found[0]))
                yield claims[-1]
        self._claimed[position] = claims

    def _claim(self, queue: Queue, position: int, head: Head) -> tuple[int, int] | None:
        """The queue offset and the size of the message that a queue has at a physical offset; None where it has none.

        Args:
            head: what is left of it.
        """
        found = QueueCursor(queue).seek(position)
        likely = [head.queue_offset] if queue.queue_id == head.queue_id else []
        for number in itertools.chain(likely, [found], self._past_left_over(queue, position)):
            unit = queue.unit(number)
            if unit is not None and unit.position == position and unit.size >= FORMAT["SMALLEST_UNIT"]:
                return number, unit.size
        return None

    def _past_left_over(self, queue: Queue, position: int) -> Iterator[int]:
        """QueueCursor.seek() where units left over from a truncated log mislead it: among those that the log has."""
        number = QueueCursor(queue).seek(position)
        if number > queue.first and not self._has(queue, number - 1, position):
            units = range(number)
            yield bisect.bisect_left(units, True, lo=queue.first, key=lambda n: not self._has(queue, n, position))

    def _has(self, queue: Queue, number: int, position: int) -> bool:
        """Is a queue's unit one of a message before a physical offset that the log has, or has had?"""
        unit = queue.unit(number)
        if unit is None or unit.position < self._segments[0].start:
            return True  # None: before the queue's first message
        if unit.position >= position:
            return False
        index = self._index_of(unit.position)
        if index is None:
            return True
        with self._open(index) as reader:
            return reader.has_message(queue, number, unit)

    def _later_unit(self, stop: _Stop) -> _Stop | None:
        """A later unit that proves that the log goes on."""
        seen: dict[tuple[str, int], int] | None = None
        damaged = self._time_at(stop, stop.at)
        is_older = False
        joined: set[int] | None = None
        for number, (index, header) in enumerate(self._units_after(stop)):
            if number == 0 and self._is_written(stop):
                stop, damaged = replace(stop, newest=None), None
            if not _not_older(header, stop.newest):
                continue
            # A half message is in no queue, so that only its age can speak for it.
            known = self._queues.vouch_for(header) if header.is_queued else None
            if not (known or self._is_whole(index, header)):
                continue
            if known is None and header.is_queued:
                seen = self._seen(stop) if seen is None else seen
                known = header.queue_offset > seen.get((header.topic, header.queue_id), -1)
            if known is False:
                continue
            if not _not_older(header, damaged):
                # The time of the damaged message may be what is damaged. Then the log goes on where it ends.
                joined = self._joined(stop) if joined is None else joined
                if header.position not in joined:
                    is_older = True
                    continue
            return self._walk(index, header.position)
        return replace(stop, is_damage=True) if is_older else None

    def _is_written(self, stop: _Stop) -> bool:
        """Is what comes after a stop our writer's, and none of it cut off by a broker that went on there? Then the last
        message before it is ours, or comes before all that is."""
        record = load(self._layout.root, self._files)
        for written in record.stretches:
            if written.start <= stop.at < written.stop:
                last = stop.last
                return last is None or last.position < written.start or written.may_have(last.position, stop.newest)
        return not record.is_whole

    def _is_torn(self, last: Header) -> bool:
        """Are zeros all that the last page of the log has of a unit? Who copies a file beside a broker may get a page
        before its bytes are in it. No check of a unit covers its properties, and these come last; none of a message
        ends in zeros from a page's begin on."""
        segment = self._segments[self._segment_of(last.position)]
        end = last.position + last.size - segment.start
        page = (end - 1) // PAGE * PAGE
        if page <= last.position - segment.start:
            return False
        with self._open(self._segment_of(last.position)) as reader:
            return not any(reader.read(segment.start + page, end - page))

    def _is_whole(self, index: int, header: Header) -> bool:
        with self._open(index, verify_crc=True) as reader:
            return reader.header(header.position) is not None

    def _joined(self, stop: _Stop) -> set[int]:
        """Where damaged messages end, the first of which begins where walking stopped, each where the one before it
        ends."""
        found: set[int] = set()
        segment, at = self._segments[stop.segment], stop.at
        with self._open(stop.segment, verify_crc=True) as reader:
            past = PastDamage(reader, self._queues)
            while True:
                end = past.end_of(at, segment.end)
                if end is None:
                    claims = self._claims(at, Head.of(reader.read(at, HEAD_SIZE)))
                    end = next((at + size for size, _, _ in claims), segment.end)
                if end >= segment.end:
                    break
                at = end
                found.add(at)
                if reader.status_at(at, segment.end) is Status.LIMIT or reader.header(at) is not None:
                    break
        return found

    def _time_at(self, stop: _Stop, at: int) -> int | None:
        """The store time (us) of a damaged message after a stop, if its head can be recognized; rather too small than
        too large, as what is older than it is not taken for live."""
        if stop.status is Status.BLANK:
            return None
        with self._open(stop.segment) as reader:
            data = reader.read(at, FORMAT["SMALLEST_UNIT"])
        head = Head.of(data)
        if head.magic not in (FORMAT["MAGIC_V1"], FORMAT["MAGIC_V2"]) or head.physical_offset != at:
            return None
        # The flag that says where the time is may be what is damaged.
        flags = (head.sys_flag, head.sys_flag ^ FORMAT["SYSFLAG_BORNHOST_V6"])
        times = [microseconds(found) for flag in flags if (found := store_time_in(data, flag)) is not None]
        # What is older, or yet to come, is no time of a message there.
        least, most = (stop.newest or 0) - 1000 * CLOCK_SLACK, int(time.time() * 1_000_000) + 1000 * CLOCK_SLACK
        return min((each for each in times if each is not None and least <= each <= most), default=None)

    def _units_after(self, stop: _Stop) -> Iterator[tuple[int, Header]]:
        """Whatever is a unit after it, but that its body may be damaged; live or left over; not in the same segment
        after a blank."""
        for index in range(stop.segment, len(self._segments)):
            segment = self._segments[index]
            at = stop.at + 1 if index == stop.segment else segment.start
            if index == stop.segment and stop.status is Status.BLANK:
                continue
            with self._open(index) as reader:
                for begin, end in self._extents(reader, at, stop):
                    reader.expect(max(at, begin), end)
                    found_at = reader.find(max(at, begin), end)
                    while found_at is not None:
                        run = reader.run_at(found_at, segment.end)
                        found = run.headers() if run is not None else []  # a live broker may have written over it
                        for header in found:
                            yield index, header
                        at = found[-1].position + found[-1].size if found else found_at + 1
                        found_at = reader.find(max(at, begin), end)

    def _extents(self, reader: SegmentReader, at: int, stop: _Stop) -> Iterator[tuple[int, int]]:
        """The parts of a segment from `at` on in which something may be. Where holes cannot be seen, far away is only
        looked at here and there; but at all of it where the checkpoint knows a later message than was found."""
        if self._files.is_snapshot and not self._layout.abort and self._newest > (stop.newest or 0) // 1000:
            return iter([(at, reader.file_end)])
        return reader.data_extents(at, reader.segment.end)

    @kept
    def _newest(self) -> int:
        """Store time (ms) of the newest message when the broker stopped, as the checkpoint says; 0 where none does."""
        return logics_timestamp(self._layout.checkpoint, self._files)

    def _seen(self, stop: _Stop) -> dict[tuple[str, int], int]:
        """The highest queueOffset of each queue before a stop, in its segment, up to the first damage in it. What was
        passed for an earlier stop is not passed again."""
        segment = self._segments[stop.segment]
        at, seen = self._seen_in.get(stop.segment, (segment.start, {}))
        with self._open(stop.segment) as reader:
            for header in reader.headers(at, stop.at):
                at = header.position + header.size
                if header.is_queued:
                    queue = (header.topic, header.queue_id)
                    seen[queue] = max(seen.get(queue, -1), header.queue_offset)
        self._seen_in[stop.segment] = at, seen
        return seen


def _agrees(head: Head, claim: tuple[int, int, int]) -> bool:
    """Do two of three fields at least say the same?"""
    return sum(map(int.__eq__, (head.size, head.queue_id, head.queue_offset), claim)) >= 2


def _not_older(header: Header, newest: int | None) -> bool:
    return newest is None or (header.store_timestamp is not None and header.store_timestamp >= newest)


def _later(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)
