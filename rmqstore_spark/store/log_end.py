"""Where the log ends. Files are preallocated, so the end is found, not read off a length
(docs/design.md, Where the log ends).

From the last segment that begins with a unit on, the first bytes that are not a unit are the end, unless one of these
proves that a message was lost there:
  * the bytes are not all zero, and a ConsumeQueue unit points exactly there;
  * a later unit, whole in every check and not older than the last unit before, that its ConsumeQueue knows, or whose
    queueOffset is beyond those seen for its queue, or that is in no queue (a half message): the remains of a truncated
    log fail this. The time of a damaged message that can still be recognized counts as well. Times prove nothing in
    stretches that our writer has written (store/structures/written.py);
  * the bytes are such as no broker leaves there: a header that reaches over the end of its file, no space for a blank,
    or a blank that does not reach to the end. The file was cut.
In any earlier segment all bytes that are neither a unit nor the closing blank are damage.

In a log of entries (structures/entries.py) their order tells what no time can, as each of several nodes has its own
clock: an entry that does not go on from the one before it ends the log, unless its ConsumeQueue knows its message (a
broker puts a message there only once it can no longer be rolled back), or only one field of its header stands against
it (store/entry_evidence.py). And an entry that is later in that order proves that the log goes on.
"""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from native_io import FORMAT, Status
from rmqstore_spark.kept import kept
from rmqstore_spark.store.claims import Claim, ClaimSearch
from rmqstore_spark.store.entry_evidence import EntryEvidence, LikelyEntry
from rmqstore_spark.store.format.clock import CLOCK_SLACK
from rmqstore_spark.store.format.message import (
    HEAD_SIZE,
    MARK_SIZE,
    Head,
    Header,
    Mark,
    mark_of,
    microseconds,
    store_time_in,
)
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.entries import Entry, EntryOrder
from rmqstore_spark.store.structures.layout import Layout
from rmqstore_spark.store.structures.past_damage import PastDamage
from rmqstore_spark.store.structures.queues import ConsumeQueues
from rmqstore_spark.store.structures.segments import Segment, index_of
from rmqstore_spark.store.structures.written import load

PAGE = 4096  # bytes; a copy of a growing file is made in pieces of this size
_SETTLE_SECONDS = 0.005
_SETTLE_TRIES = 40
_LOOK_SIZE = 64 * 1024  # bytes that are read where a message may be lost, to see whether any are not zero
# For a hint where the log ends:
_TAIL_SIZE = 16 * 1024  # bytes before the end of the data that are searched for a unit
_UNITS_TO_TRY = 16
_QUEUES_TO_ASK = 64
_SHORT = 64 * 1024  # bytes; a segment with less data is walked instead
# For looks ahead where requests take long:
_SEGMENTS_TO_LOOK_AT = 3
_BYTES_TO_LOOK_AT = 8 * 1024 * 1024  # at a time
_BEFORE_HEADER = (Status.NO_ENTRY, Status.BAD_ENTRY)  # a walk that stopped so is where an entry would begin


@dataclass(frozen=True)
class End:
    """Where the log ends.

    Attributes:
        position: the physical offset after the last message. Damage before this offset shows when the log is read.
        segments: the segments; a segment that was cut, where its neighbours do not show the cut, is a little longer
            than its file.
        last: the last message; None if unknown.
        entry: the last entry, in a log of such; None if unknown.
    """

    position: int
    segments: list[Segment]
    last: Header | None = None
    entry: Entry | None = None

    @property
    def timestamp(self) -> int | None:
        """Store time (ms) of the last message; None if unknown."""
        microseconds = None if self.last is None else self.last.store_timestamp
        return None if microseconds is None else microseconds // 1000


@dataclass(frozen=True)
class _Stop:
    """Where a walk from unit to unit stopped.

    Attributes:
        segment, at: the index of the segment, and the physical offset of the stop.
        status: why the walk stopped there.
        last: the last unit before the stop; None when there is none or that unit is damaged.
        newest: store time (us) that messages after the stop are not older than; None if unknown.
        order: where entries wrap units: up to the last one before the stop, if that is known.
        is_damage: units follow that would prove that the log goes on if they were not older than the damaged message
            here: either these units are left over from a truncated log, or the damaged message's time is damaged, too.
    """

    segment: int
    at: int
    status: Status
    last: Header | None
    newest: int | None
    order: EntryOrder = field(default_factory=EntryOrder)
    is_damage: bool = False


class LogEnd:
    """Finds the end of a store's commitlog.

    Large because a log can end in many ways (whole, cut, torn, left over, lost, still being written), each with its
    test, and all of them share what queues claim.

    Args:
        layout: the store.
        segments: the store's segments, by start.
        queues: the store's ConsumeQueues. All of them are searched only where bytes are left after the end.
        files: how to reach files, and where requests and bytes are counted.
        checkpoint: gives the fields of the store's `checkpoint` (structures/checkpoint.py). They are not always needed.
        is_followed: whether the caller will ask again. A last unit without proof then waits for the next call where
            files are a snapshot: a unit that was copied while a broker wrote it stays unchanged without being whole.
    """

    def __init__(
        self,
        layout: Layout,
        segments: list[Segment],
        queues: ConsumeQueues,
        files: Files,
        checkpoint: Callable[[], Mapping[str, int]],
        is_followed: bool = False,
    ) -> None:
        self._checkpoint = checkpoint
        self._layout = layout
        self._segments = list(segments)
        self._queues = queues
        self._files = files
        self._must_prove = is_followed and files.is_snapshot
        self._claims = ClaimSearch(queues, self._segments, files)
        self._evidence = EntryEvidence(layout.root, files)
        self._looks: dict[int, tuple[int, Future[bool]]] = {}  # by segment: from where on, and whether it is empty
        self._seen_in: dict[int, tuple[int, dict[tuple[str, int], int]]] = {}  # by segment: up to where, and what
        self._held: tuple[int, SegmentReader] | None = None  # of the segment that was read last, while a call lasts

    def find(self, known: tuple[int, Mark] | None = None) -> End:
        """The end as of now.

        Args:
            known: a physical offset where a live unit begins, or where the log ended at an earlier look, so that the
                log before it need not be walked; and the message before that offset.
        """
        if not self._segments:
            return End(0, [])
        with self._holding():
            return self._find(known)

    def _find(self, known: tuple[int, Mark] | None) -> End:
        started = self._last_started()
        segment = self._segments[started]
        if known is not None and segment.start <= known[0] < segment.end:
            stop = self._walk_after(started, *known)
        else:
            hinted = None if self._is_short(started) else self._walk_from_hint(started)
            stop = hinted or self._walk(started, segment.start)
        while not stop.is_damage and (beyond := self._beyond(stop)) is not None:
            stop = self._walk_on(stop) or beyond
        position = self._settled(stop) if self._layout.abort else stop.at
        last = stop.last if position == stop.at else None  # else the last unit was torn
        return End(self._cut(stop) or self._before_header(position), self._segments, last, stop.order.last)

    def _walk_on(self, stop: _Stop) -> _Stop | None:
        """Walk on from a stop where something else is by now; None where nothing has changed. Else what our writer has
        put behind the stop meanwhile, and hides there (write/build/stretch.py), would prove that its blank is damage.
        """
        if self._files.is_snapshot or self._has_order(stop.segment):
            return None
        self._let_go()  # it has bytes from before
        again = self._walk(stop.segment, stop.at, stop.newest)
        if (again.segment, again.at, again.status) == (stop.segment, stop.at, stop.status):
            return None
        return again if again.last is not None else replace(again, last=stop.last)

    def onward(self, known: int, last: Mark | None = None) -> End:
        """How far the log goes on, unit by unit, from a physical offset in one of the segments, at which a live unit
        begins or the log ended, behind its last message, if that is known.

        The cost is that of the new units. Only find() can tell whether the walk stopped at something other than the
        end. A running broker's last unit that nothing proves yet is not waited for.
        """
        with self._holding():
            stop = self._walk_after(self._segment_of(known), known, last)
            position = self._settled(stop, may_wait=False)
        reached = stop.last if position == stop.at else None
        return End(self._before_header(position), self._segments, reached)

    def late_message(self) -> Header | None:
        """The last message near the apparent end of the data that its ConsumeQueue knows; None where there is none.

        The call costs little, however much finding the log's end would cost. The message may be left over from a
        truncated log.
        """
        if not self._segments:
            return None
        with self._holding():
            started = self._last_started()
            first = self._late_unit(started)
            if first is None:
                return None
            found = list(self._reader(started).headers(first, self._segments[started].end))
        return next((header for header in reversed(found) if self._queues.vouch_for(header)), None)

    @contextlib.contextmanager
    def _holding(self) -> Iterator[None]:
        """Afterwards no reader is open."""
        try:
            yield
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._held is not None:
            self._held[1].close()
            self._held = None

    def _reader(self, index: int) -> SegmentReader:
        """The reader of a segment. It stays open until another segment's is asked for: most calls read in one segment,
        which seven steps would open otherwise. Where requests take long it is opened for each step, as only a file that
        is opened anew knows what was brought for another one meanwhile."""
        if self._held is None or self._held[0] != index or self._files.is_slow:
            self._let_go()
            self._held = index, self._open(index)
        self._held[1].begin_anew()
        return self._held[1]

    def _open(self, index: int, verify_crc: bool = False) -> SegmentReader:
        """Another reader of a segment, beside that one."""
        return SegmentReader(self._segments[index], self._files, verify_crc)

    def _last_started(self) -> int:
        """The last segment that begins with a unit; the first one when none does."""
        began: tuple[int, Entry | None] | None = None  # the last one so far, and its first entry
        for index in reversed(range(len(self._segments))):
            reader = self._reader(index)
            first = reader.header(self._segments[index].start)
            entry = None if first is None else reader.entry(first)
            if began is not None and (entry is None or began[1] is None or entry.is_before(began[1])):
                break
            if first is not None:
                began = index, entry  # a file that begins with an older entry is left over
                if entry is None:
                    break
        if began is None:
            return 0
        return began[0] - 1 if self._is_out_of_order(*began) else began[0]

    def _is_out_of_order(self, index: int, first: Entry | None) -> bool:
        """Does a segment begin with an entry that does not go on from the last ones before it? After a loss of power a
        file may begin with a page of entries that were taken back, and written over."""
        if index == 0 or first is None or not self._layout.abort:
            return False
        at, order = self._late_unit(index - 1), EntryOrder()
        if at is not None:
            self._reader(index - 1).walk(at, self._segments[index - 1].end, order)
        return order.last is not None and not order.last.is_before(first)

    def _walk(self, index: int, at: int, newest: int | None = None, order: EntryOrder | None = None) -> _Stop:
        last, order = None, order or EntryOrder()
        while True:
            segment = self._segments[index]
            reader = self._reader(index)
            position, walked = reader.walk(at, segment.end, order)
            at, status = walked.at, walked.status
            if position is not None:
                last = reader.header(position)
            newest = newest if last is None or last.store_timestamp is None else last.store_timestamp
            following = index + 1
            if status is not Status.BLANK or following == len(self._segments) or not self._is_begun(following):
                return _Stop(index, at, status, last, newest, order)
            if self._segments[following].start != segment.end:
                return _Stop(index, at, status, last, newest, order)
            if segment.wrapping is not None:
                order.skip(at, segment.end, segment.wrapping)
            index, at = following, segment.end

    def _walk_after(self, index: int, at: int, last: Mark | None) -> _Stop:
        """Walk on from a physical offset, behind a message. Where entries have an order, the walk begins with that
        message: what a truncation has left over may stand behind it."""
        before = None if last is None else index_of(self._segments, last.position)
        if last is not None and before is not None and self._has_order(before):
            stop = self._walk(before, last.position)
            if stop.at >= at and stop.last is not None:
                return stop if stop.last.position != last.position else replace(stop, last=None)
        return self._walk(index, at, None if last is None else microseconds(last.store_timestamp))

    def _is_begun(self, index: int) -> bool:
        """Are there any bytes but zeros at the beginning of a segment? If not, the log ends before the blank that leads
        to the segment, and may go on there (write/build/stretch.py; or a broker that was killed just then)."""
        segment = self._segments[index]
        return any(self._reader(index).read(segment.start, FORMAT["BLANK_SIZE"]))

    def _is_short(self, index: int) -> bool:
        """Is so little in a segment that to walk all of it costs less than to look for a hint? It is in memory then."""
        if self._files.is_slow:
            return False
        reader, start = self._reader(index), self._segments[index].start
        size = reader.data_end() - start
        if size > _SHORT:
            return False
        reader.load(start, size + FORMAT["SMALLEST_UNIT"])
        return True

    def _walk_from_hint(self, started: int) -> _Stop | None:
        """Walk from a unit near the end that its ConsumeQueue knows; None where that walk may lead astray.

        A truncated log and its queues keep their old units, which confirm each other. But these are older than the
        messages written afterwards, and the checkpoint of a clean shutdown knows how old the newest message is.
        """
        newest = self._newest
        if self._layout.abort or newest <= 0:
            return None
        hint = self._late_unit(started, is_end=True) or self._unit_of_some(started)
        stop = None if hint is None else self._walk(started, hint)
        if stop is None or stop.last is None or stop.last.store_timestamp is None:
            return None
        return stop if stop.last.store_timestamp // 1000 >= newest else None

    def _late_unit(self, index: int, is_end: bool = False) -> int | None:
        """The start of a unit shortly before the end of a segment's data, if the unit's ConsumeQueue knows it. No queue
        knows bytes in a body that look like a unit.

        Args:
            is_end: whether the log probably ends there. What follows is then looked at meanwhile.
        """
        segment = self._segments[index]
        reader = self._reader(index)
        end = reader.data_end()
        if is_end:
            self._begin_looks(index, end)
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
        """The start of a segment's last unit that one of a few queues knows."""
        segment = self._segments[index]
        last = (queue.last() for queue in itertools.islice(self._queues.some(), _QUEUES_TO_ASK))
        hint = max((u.position for u in last if u and segment.start <= u.position < segment.end), default=None)
        header = None if hint is None else self._reader(index).header(hint)
        return hint if header is not None and self._queues.vouch_for(header) else None

    def _settled(self, stop: _Stop, may_wait: bool = True) -> int:
        """The end, without a last unit that a broker may be writing just now: a reader sees the unit's head before its
        tail.

        A unit that a ConsumeQueue knows was written to its end; if such a unit is not whole, it is damaged. Without
        that proof a unit whose properties are half written looks like a whole one. So while a process holds the store's
        lock, the unit waits for its proof, or for a later unit. Where no process does, the unit counts if its bytes
        stay the same: a broker on another machine, whose lock cannot be seen, would have to pause in the middle of a
        copy. Our writer holds the lock, too, and its messages are in no queue yet when they come; they come whole, and
        the last one of a write was noted down before.

        Args:
            may_wait: whether to wait for the proof.
        """
        last = stop.last
        if last is None or last.position + last.size != stop.at or stop.status is Status.BLANK:
            return stop.at
        if self._is_torn(last):
            return last.position
        is_written = self._must_prove or self._files.is_locked(self._layout.lock)
        seen = b""
        for attempt in range(_SETTLE_TRIES):
            if self._queues.vouch_for(last) or (not attempt and self._is_noted_down(last)):
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

    def _before_header(self, position: int) -> int:
        """Where the entry begins whose unit begins at a physical offset; else the offset itself. A walk stops at a unit
        that is not whole yet, but the log ends before the header of its entry."""
        index = index_of(self._segments, position)
        wrapping = None if index is None else self._segments[index].wrapping
        if index is None or wrapping is None or position - wrapping.header < self._segments[index].start:
            return position
        begin = position - wrapping.header
        size = wrapping.entry_size(bytes(self._reader(index).read(begin, wrapping.header)), begin)
        return position if size is None or size == wrapping.header else begin

    def _segment_of(self, position: int) -> int:
        index = index_of(self._segments, position)
        assert index is not None
        return index

    def _cut(self, stop: _Stop) -> int | None:
        """The end of the damage, where the log stops at bytes that no broker leaves there; None where the log just
        ends."""
        segment = self._segments[stop.segment]
        file_end = min(segment.end, segment.start + segment.size)
        # Enough for a reader to meet the damage, and no more: the remains of a truncated log may follow.
        damaged = min(stop.at + FORMAT["SMALLEST_UNIT"], file_end)
        if stop.is_damage or stop.status in (Status.NO_BLANK, Status.MORE, Status.BAD_BLANK):
            return damaged
        if stop.status in _BEFORE_HEADER and self._is_cut_entry(stop):
            return damaged
        data = self._reader(stop.segment).read(stop.at, HEAD_SIZE)
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

    def _is_cut_entry(self, stop: _Stop) -> bool:
        """Does an entry begin at a stop that reaches over the end of its file? Or does it not even have its header?"""
        segment = self._segments[stop.segment]
        data = self._reader(stop.segment).read(stop.at, segment.header)
        if segment.wrapping is None or len(data) < segment.header:
            return any(data)
        size = segment.wrapping.entry_size(data, stop.at)
        return size is not None and stop.at + size + FORMAT["BLANK_SIZE"] > segment.end

    def _beyond(self, stop: _Stop) -> _Stop | None:
        """The stop after a proof that the log goes on; None where it ends."""
        likely = self._likely_entry(stop)
        if likely is None or not likely.is_sure:
            return self._lost_unit(stop) or self._later_unit(stop, likely)
        return self._walk_behind(stop.segment, likely.unit, likely.order)

    def _walk_behind(self, index: int, unit: Header, order: EntryOrder) -> _Stop:
        """Walk on behind a unit in a log of entries.

        Args:
            order: up to the unit's entry.
        """
        beyond = self._walk(index, unit.position + unit.size, unit.store_timestamp, order)
        return beyond if beyond.last is not None else replace(beyond, last=unit)

    def _likely_entry(self, stop: _Stop) -> LikelyEntry | None:
        """A whole message whose entry may be the next one, though the walk stopped at its header."""
        if stop.status not in _BEFORE_HEADER or stop.order.last is None:
            return None
        with self._open(stop.segment, verify_crc=True) as reader:
            return self._evidence.likely(reader, stop.at, stop.order)

    def _lost_unit(self, stop: _Stop) -> _Stop | None:
        """The stop after a lost message, proved by a ConsumeQueue unit that points exactly to bytes that are no unit.
        Where there are only zeros the message never came here: the queues of a copy may have been copied later than its
        commitlog. But where other bytes stand right after these zeros, a queue unit that points exactly there proves
        the loss. After a crash a torn message may stand where an old queue unit points to, so what is left of the
        message must agree with that queue unit. An old queue unit may also reach over a later message, which refutes
        the queue unit."""
        if stop.status is Status.BLANK:
            return None
        segment = self._segments[stop.segment]
        header, order = segment.header, stop.order
        at = first = stop.at + header if stop.status in _BEFORE_HEADER else stop.at
        reader = self._reader(stop.segment)
        while at + FORMAT["SMALLEST_UNIT"] + FORMAT["BLANK_SIZE"] <= segment.end:
            if _are_zeros(reader, at, at + _LOOK_SIZE):
                return None  # whatever a queue unit says
            if (at > first or order.last is not None) and reader.header(at) is not None:
                return None  # a whole unit, which no queue unit proves lost: _later_unit() tells whether it is live
            found = reader.read(at, _LOOK_SIZE)
            after = None
            for claim in self._claims.at(at, Head.of(found)):
                size = claim.size
                if at + size + FORMAT["BLANK_SIZE"] > segment.end:
                    continue
                if not found[:size].strip(b"\0"):
                    after = at + size
                    order = self._evidence.lost(reader, at - header, after, order)
                elif self._has_known(reader, at + 1, at + size, stop.newest):
                    continue
                elif not self._layout.abort or _agrees(Head.of(found), claim):
                    order = self._evidence.lost(reader, at - header, at + size, order)
                    return self._walk(stop.segment, at + size, _later(stop.newest, self._time_at(stop, at)), order)
            if after is None:
                return None
            at = after + header
        return None

    def _has_known(self, reader: SegmentReader, start: int, end: int, newest: int | None) -> bool:
        """Does a unit that its ConsumeQueue knows, and that is not too old, begin in a part of the log?"""
        at = reader.find(start, end)
        while at is not None and (header := reader.header(at)) is not None:
            if header.is_queued and _not_older(header, newest) and self._queues.vouch_for(header):
                return True
            at = reader.find(at + 1, end)
        return False

    def _later_unit(self, stop: _Stop, likely: LikelyEntry | None = None) -> _Stop | None:
        """A later unit that proves that the log goes on.

        Args:
            likely: what stands at the stop, if that belongs to the log where anything later does.
        """
        seen: dict[tuple[str, int], int] | None = None
        damaged: int | None = None
        is_older = False
        joined: set[int] | None = None
        for number, (index, header) in enumerate(self._units_after(stop)):
            if self._has_order(index):
                if self._is_later_entry(index, header, stop, likely):
                    return self._walk_behind(index, header, self._order_up_to(index, header, stop))
                continue
            if number == 0:
                damaged = self._time_at(stop, stop.at)
                if self._is_written(stop):
                    stop, damaged = replace(stop, newest=None), None
            if not _not_older(header, stop.newest):
                continue
            # A half message is in no queue, so only its age can prove it.
            known = self._queues.vouch_for(header) if header.is_queued else None
            if not (known or self._is_whole(index, header)):
                continue
            if known is None and header.is_queued:
                seen = self._seen(stop) if seen is None else seen
                known = header.queue_offset > seen.get((header.topic, header.queue_id), -1)
            if known is False:
                continue
            if not _not_older(header, damaged):
                # The time of the damaged message may be the damaged part. The log then goes on where that message ends.
                joined = self._joined(stop) if joined is None else joined
                if header.position not in joined:
                    is_older = True
                    continue
            return self._walk(index, header.position)
        return replace(stop, is_damage=True) if is_older else None

    def _has_order(self, index: int) -> bool:
        wrapping = self._segments[index].wrapping
        return wrapping is not None and wrapping.at_order is not None

    def _is_later_entry(self, index: int, header: Header, stop: _Stop, likely: LikelyEntry | None) -> bool:
        """Does the order of entries, or a ConsumeQueue, prove that a unit after a stop belongs to the log?

        Left-over entries of a truncated log are known to left-over queue units, but have an older term and an older
        store time. Either of the two may be the damaged part of a live entry, not both."""
        with self._open(index) as reader:
            entry = reader.entry(header)
        is_later = entry is not None and self._may_follow(stop, likely, header, entry)
        may_be_known = header.is_queued and (is_later or _not_older(header, stop.newest))
        return (may_be_known and self._queues.vouch_for(header)) or (is_later and self._is_whole(index, header))

    def _order_up_to(self, index: int, header: Header, stop: _Stop) -> EntryOrder:
        """The order up to the entry of a unit that belongs to the log, behind a stop."""
        with self._open(index) as reader:
            entry = reader.entry(header)
        last = self._evidence.sure(stop.order).last
        if entry is not None and last is not None:
            entry = entry._replace(term=max(entry.term, last.term))
        return EntryOrder(entry, header.position + header.size)

    def _may_follow(self, stop: _Stop, likely: LikelyEntry | None, header: Header, entry: Entry) -> bool:
        """May the entry of a unit belong to the log that stops before it? A leader's own clock tells, too: in one term
        no entry is older than the one before."""
        order, newest = self._evidence.sure(stop.order), stop.newest
        if likely is not None:
            order, newest = likely.order, likely.unit.store_timestamp
        if order.last is None:
            return True
        return order.last.is_before(entry) and (entry.term > order.last.term or _not_older(header, newest))

    def _is_written(self, stop: _Stop) -> bool:
        """Was everything after a stop written by our writer, and none of it cut off by a broker that went on there? If
        so, the last message before the stop is our writer's, or comes before all of its messages."""
        record = load(self._layout.root, self._files)
        for written in record.stretches:
            if written.start <= stop.at < written.stop:
                last = stop.last
                return last is None or last.position < written.start or written.may_have(last.position, stop.newest)
        return not record.is_whole

    def _is_noted_down(self, last: Header) -> bool:
        """Is a message the last one of those that our writer has written in one go?"""
        if self._must_prove:  # the record may be newer than the segment
            return False
        with self._open(self._segment_of(last.position)) as reader:
            mark = mark_of(reader.read(last.position, MARK_SIZE), last.position)
        stretches = load(self._layout.root, self._files).stretches
        return mark is not None and any(written.last == mark for written in stretches)

    def _is_torn(self, last: Header) -> bool:
        """Has the last page of the log nothing but zeros of the last unit? A copy made beside a running broker may get
        a page before its bytes are written. No check of a unit covers its properties, which come last; no message's
        properties end in zeros from the beginning of a page on."""
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
        """The ends of a chain of damaged messages: the first begins where the walk stopped, each next one where the one
        before ends."""
        found: set[int] = set()
        segment, at = self._segments[stop.segment], stop.at
        with self._open(stop.segment, verify_crc=True) as reader:
            past = PastDamage(reader, self._queues)
            while True:
                end = past.end_of(at, segment.end)
                if end is None:
                    claims = self._claims.at(at, Head.of(reader.read(at, HEAD_SIZE)))
                    end = next((at + claim.size for claim in claims), segment.end)
                if end >= segment.end:
                    break
                at = end
                found.add(at)
                if reader.status_at(at, segment.end) is Status.LIMIT or reader.header(at) is not None:
                    break
        return found

    def _time_at(self, stop: _Stop, at: int) -> int | None:
        """The store time (us) of a damaged message after a stop, if its head can be recognized. In doubt the smaller
        time is returned, as older messages are not taken for live."""
        if stop.status is Status.BLANK:
            return None
        data = self._reader(stop.segment).read(at, FORMAT["SMALLEST_UNIT"])
        head = Head.of(data)
        if head.magic not in (FORMAT["MAGIC_V1"], FORMAT["MAGIC_V2"]) or head.physical_offset != at:
            return None
        # The flag that says where the time is may be the damaged part.
        flags = (head.sys_flag, head.sys_flag ^ FORMAT["SYSFLAG_BORNHOST_V6"])
        times = [microseconds(found) for flag in flags if (found := store_time_in(data, flag)) is not None]
        # An older time, or one in the future, is no time of a message there.
        least, most = (stop.newest or 0) - 1000 * CLOCK_SLACK, int(time.time() * 1_000_000) + 1000 * CLOCK_SLACK
        return min((each for each in times if each is not None and least <= each <= most), default=None)

    def _units_after(self, stop: _Stop) -> Iterator[tuple[int, Header]]:
        """All units after a stop, live or left over, also those with a damaged body; in the stop's own segment none
        after a blank."""
        first = stop.segment + (stop.status is Status.BLANK)
        may_be_empty = self._files.is_slow and not self._reads_all_after(stop)
        if may_be_empty:
            self._begin_looks(first, stop.at + 1 if first == stop.segment else 0)
        for index in range(first, len(self._segments)):
            segment = self._segments[index]
            at = stop.at + 1 if index == stop.segment else segment.start
            if (may_be_empty and self._is_empty(index, at)) or self._is_bare(index, at):
                continue
            with self._open(index) as reader:
                for begin, end in self._extents(reader, at, stop):
                    reader.expect(max(at, begin), end)
                    found_at = reader.find(max(at, begin), end)
                    while found_at is not None:
                        run = reader.run_at(found_at, segment.end)
                        found = run.headers() if run is not None else []  # a running broker may have overwritten it
                        for header in found:
                            yield index, header
                        at = found[-1].position + found[-1].size if found else found_at + 1
                        found_at = reader.find(max(at, begin), end)

    def _is_bare(self, index: int, at: int) -> bool:
        """Are there only zeros in a segment from `at` on? This is seen only where it costs little."""
        if self._files.is_slow or self._files.is_snapshot:
            return False
        reader = self._reader(index)
        parts = list(itertools.islice(reader.data_extents(at, self._segments[index].end), 2))
        if not parts:
            return True
        begin, end = parts[0]
        return len(parts) == 1 and end - begin <= _LOOK_SIZE and not reader.read(begin, end - begin).strip(b"\0")

    def _extents(self, reader: SegmentReader, at: int, stop: _Stop) -> Iterator[tuple[int, int]]:
        """The parts of a segment from `at` on that may hold data. Where holes cannot be seen, far parts are only
        sampled, but read in full where the checkpoint knows a later message than was found."""
        if self._reads_all_after(stop):
            return iter([(at, reader.file_end)])
        return reader.data_extents(at, reader.segment.end)

    def _reads_all_after(self, stop: _Stop) -> bool:
        return self._files.is_snapshot and not self._layout.abort and self._newest > (stop.newest or 0) // 1000

    def _begin_looks(self, first: int, at: int) -> None:
        """Begin to look, where requests take long, at the parts of a few segments that may hold data, all side by side:
        after the log's end they are mostly empty.

        Args:
            first, at: the first segment, and the physical offset in it from which on it is looked at.
        """
        if not self._files.is_slow:
            return
        for index, segment in enumerate(self._segments[first : first + _SEGMENTS_TO_LOOK_AT], first):
            begin = max(at, segment.start)
            if index not in self._looks or self._looks[index][0] > begin:
                look = self._files.schedule.in_background(functools.partial(self._has_nothing, index, begin))
                if look is not None:
                    self._looks[index] = begin, look

    def _is_empty(self, index: int, at: int) -> bool:
        """Did a look show that no unit begins in the parts of a segment, from `at` on, that may hold data?"""
        begin, look = self._looks.get(index, (at + 1, None))
        return look is not None and begin <= at and look.result()

    def _has_nothing(self, index: int, at: int) -> bool:
        after = FORMAT["BLANK_SIZE"]  # a unit that begins in the last bytes of a part shows so much later
        with self._open(index) as reader:
            for begin, end in reader.data_extents(at, self._segments[index].end):
                for start in range(begin, end, _BYTES_TO_LOOK_AT):
                    size = min(_BYTES_TO_LOOK_AT, end - start) + after
                    if reader.read(start, size).strip(b"\0"):
                        return False
        return True

    @kept
    def _newest(self) -> int:
        """Store time (ms) of the newest message when the broker stopped, by the checkpoint; 0 without a checkpoint."""
        return self._checkpoint().get("logicsMsgTimestamp", 0)

    def _seen(self, stop: _Stop) -> dict[tuple[str, int], int]:
        """The highest queueOffset of each queue before a stop, in the stop's segment, up to the first damage there.
        Units passed for an earlier stop are not passed again."""
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


def _agrees(head: Head, claim: Claim) -> bool:
    """Do at least two of three fields agree?"""
    return sum(map(int.__eq__, (head.size, head.queue_id, head.queue_offset), claim)) >= 2


def _not_older(header: Header, newest: int | None) -> bool:
    return newest is None or (header.store_timestamp is not None and header.store_timestamp >= newest)


def _later(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _are_zeros(reader: SegmentReader, start: int, stop: int) -> bool:
    """Are there only zeros at these physical offsets? Mostly the first bytes tell; else holes are not read."""
    if reader.read(start, min(HEAD_SIZE, stop - start)).strip(b"\0"):
        return False
    return not any(reader.read(begin, end - begin).strip(b"\0") for begin, end in reader.data_extents(start, stop))
