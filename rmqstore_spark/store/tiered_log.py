"""The log of a queue in a tiered store (store/structures/tiered.py), as a log of its own."""

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from native_io import FORMAT
from rmqstore_spark.kept import kept
from rmqstore_spark.store.brought import BROUGHT_AT_ONCE, Brought, EachOnce, FirstOfCopies, Found, whole_at
from rmqstore_spark.store.format.message import HEAD_SIZE, Head, Header, is_batch
from rmqstore_spark.store.format.units import BatchBuilder, Budget
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.queue_log import QueueLog, units_end
from rmqstore_spark.store.snapshot import AskedOffsets, LogQueue, Snapshot, StoreRef
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.layout import Layout, SegmentFile, names_there
from rmqstore_spark.store.structures.past_damage import PastDamage
from rmqstore_spark.store.structures.queues import ConsumeQueues
from rmqstore_spark.store.structures.segments import Damage, Extent, Segment
from rmqstore_spark.store.structures.tiered import (
    CODA,
    QueuesOfTier,
    TieredQueue,
    between_last_units,
    flat_start,
    last_tiered_units,
    seconds_since_unit,
    tiered_logs,
    tiered_queue_files,
    tiered_unit_at,
    tiled_to,
    units_from,
)

_BROUGHT_WITHIN = 3.0  # seconds from the units of a full file to their messages, many times what a broker needs
_LOOK_AGAIN_AFTER = 0.05  # seconds
_LOOKED_AT = 1 << 16  # messages at once
_TILED_AFTER = 8  # messages that are looked at one by one, before the units are asked
_MOST = (1 << 63) - 1
_BUDGET = Budget(16 * 1024, 16 * 1024 * 1024)


class TieredLog(QueueLog):
    """A queue's log in a tiered store: its files have their real length, and each begins where the one before ends.

    Large because a broker that was killed, or is at work, leaves holes, lost ends, halves and messages twice, which
    only units and log together tell apart.

    Args:
        known: the first queueOffset that is known elsewhere, and the one after the last: a hole in which only such
            messages are missing is no fault.
        of_topic: the logs of all queues of the topic, this one among them, by queueId; looked for when needed if None.
        of_tier: the logs of all queues of the tiered store, in order; as of_topic.
        beside: as of StoreRef.
    """

    what: ClassVar[str] = "a tiered store"

    def __init__(
        self,
        layout: Layout,
        files: Files,
        known: tuple[int, int] = (0, 0),
        of_topic: Sequence[Layout] | None = None,
        of_tier: Sequence[Layout] | None = None,
        beside: StoreRef | None = None,
    ) -> None:
        super().__init__(layout, files)
        self.beside = beside
        self.known = known
        self._of_topic = of_topic
        self._of_tier = of_tier

    @kept
    def topics(self) -> dict[str, int]:
        """The queue's topic: nothing else is known of topics here."""
        topic, queue_id = self.queue
        return {topic: queue_id + 1}

    @kept
    def stored_queues(self) -> ConsumeQueues:
        """The queue beside the log."""
        assert self.layout.units is not None
        return QueuesOfTier(TieredQueue(self.layout.units, *self.queue, self.files))

    @kept
    def _logs_of_tier(self) -> Sequence[Layout]:
        return list(tiered_logs(self.root, self.files)) if self._of_tier is None else self._of_tier

    def leads(self, asked: AskedOffsets) -> bool:
        """Is it the first of logs() that may have what is asked for?"""
        queues = (each.queue for each in self._logs_of_tier if each.queue is not None)
        return next((queue for queue in queues if asked(*queue) is not None), None) == self.queue

    def logs(self) -> list[Snapshot]:
        """The logs of all queues of the tiered store, in order."""
        return [
            self if each.queue == self.queue else TieredLog(each, self.files, of_tier=self._logs_of_tier)
            for each in self._logs_of_tier
        ]

    @kept
    def _logs_of_topic(self) -> Sequence[Layout]:
        if self._of_topic is not None:
            return self._of_topic
        return list(tiered_logs(self.root, self.files, lambda topic, _: topic == self.queue[0]))

    @property
    def leads_topic(self) -> bool:
        """Is this the topic's first queue?"""
        return self._logs_of_topic[0].queue == self.queue

    def may_hold(self, starts: Sequence[int], asked: AskedOffsets) -> list[bool]:
        """As of QueueLog."""
        found, span = super().may_hold(starts, asked), asked(*self.queue)
        if span is None or all(found):
            return found
        queue = self.stored_queues.queue(*self.queue)
        unit = None if queue is None else queue.unit(min(span[0], self._units_end - 1))
        first, place = (0, _MOST) if unit is None else (self.first_of(unit.position, *span), unit.position)
        parts = zip(found, starts, [*starts[1:], _MOST], strict=True)
        return [may or (first < stop and start <= place) for may, start, stop in parts]

    def _number_at(self, position: int) -> int | None:
        # Only where a unit leads to it: after another one a broker that was killed may go on with lower numbers.
        number = super()._number_at(position)
        queue = self.stored_queues.queue(*self.queue)
        unit = None if number is None or queue is None else queue.unit(number)
        return None if unit is None or unit.position != position else number

    def first_of(self, start: int, least: int, most: int) -> int:
        """As of Snapshot. Of messages that a broker was to bring again when it was killed once more, some are only
        where they were brought first: before messages with lower queue offsets, by no more than what it has under way.
        Their units lead into other messages, or are not there yet."""
        if most >= self._units_end:
            return max(0, min(start, *(position for _, position, _ in self._last_units)) - BROUGHT_AT_ONCE)
        return max(0, start - BROUGHT_AT_ONCE) if self._cross(least, most) else start

    def _cross(self, least: int, most: int) -> bool:
        """May units of these queue offsets lead into each other's messages?"""
        if most - least > _LOOKED_AT:
            return True
        end = 0
        for _, starts, ends in units_from(tiered_queue_files(self.layout, self.files), self.files, least, most + 1):
            if starts[0] < end or (starts[1:] < ends[:-1]).any():
                return True
            end = int(ends[-1])
        return False

    @property
    def _units_end(self) -> int:
        """The number after the last unit."""
        return self._last_units[-1][0] + 1 if self._last_units else 0

    def ends(self) -> tuple[Header, Header] | None:
        """As of QueueLog. Messages that a broker has brought again, or was to bring again when it was killed once more,
        may stand after higher queue offsets."""
        ends = super().ends()
        if ends is None:
            return None
        first, last = ends
        if first.queue_offset and not self._is_sound(first):
            first = min([first, *self._headers(first.position, first.position + BROUGHT_AT_ONCE)], key=_queue_offset)
        least = max(self.log.extents[0].start, last.position - BROUGHT_AT_ONCE)
        parts = [(least, _MOST)]
        is_whole = self.whole_at(last.position) is not None
        if is_whole and (known := self._message_of_last_unit(last)) is not None:
            parts = between_last_units(self.layout, self.files, least)
            parts += [(known.position, _MOST)] if known.position != last.position else []
        found = [each for part in parts for each in self._headers(*part)]
        return first, max(found if found and not is_whole else [last, *found], key=_queue_offset)

    def _message_of_last_unit(self, last: Header) -> Header | None:
        """The message that the queue's last unit leads to; None where it does not.

        Args:
            last: the log's last message, which it mostly is.
        """
        if not self._last_units:
            return None
        number, position, size = self._last_units[-1]
        found = last if position == last.position else self.whole_at(position)
        return found if found is not None and (found.queue_offset, found.size) == (number, size) else None

    def _is_sound(self, header: Header) -> bool:
        """Does the unit of a message lead to it? Then those after it have higher queue offsets."""
        queue = self.stored_queues.queue(*self.queue)
        unit = None if queue is None else queue.unit(header.queue_offset)
        return unit is not None and unit.position == header.position

    def _headers(self, start: int, stop: int) -> Iterator[Header]:
        """Of the messages in a part of each file of the log that a read gives, those with the lowest and the highest
        queue offset; the part may begin within a message."""
        for extent in self.log.extents:
            begin, end = max(start, extent.start), min(stop, extent.stop)
            if begin >= end:
                continue
            with self.reader(extent.segment) as reader:
                at = reader.find(begin, end)
                builder = BatchBuilder(["queueOffset", "commitLogOffset"], _BUDGET)
                found: list[tuple[int, int]] = []
                for _ in () if at is None else self.past_damage(reader).decode(at, end, builder):
                    if builder.is_full:
                        found = _outer(found, builder)
                headers = (reader.header(at) for _, at in _outer(found, builder))
                yield from (each for each in headers if each and (each.topic, each.queue_id) == self.queue)

    def queues_of_topic(self) -> list[LogQueue]:
        """The queues of the topic, each as its own log has it."""
        others = (self if each.queue == self.queue else TieredLog(each, self.files) for each in self._logs_of_topic)
        return [queue for each in others for queue in each.queues_of_log()]

    def __reduce__(self) -> tuple[type[StoreRef], tuple[Any, ...]]:
        return TieredRef, (replace(self.layout, segments=(), strays=()), self.files, self.brought, self.beside)

    @kept
    def brought(self) -> Brought:
        """What a broker that was killed has brought again, or never."""
        return Brought(
            Found(
                self.queue,
                tuple(self.log.extents),
                self.layout.units or "",
                self._units_end,
                self.known,
            ),
            self.files,
        )

    def past_damage(self, reader: SegmentReader) -> PastDamage:
        """A reader of a segment with the damage in it, and each message once."""
        return EachOnce(reader, self.queues, self.brought)

    @property
    def has_brought_again(self) -> bool:
        """Has a broker that was killed brought messages again? Reads all units."""
        return next(self.brought.again(0, _MOST), None) is not None

    def never_brought(self) -> Iterator[Damage]:
        """The messages that are missing though they have units. Reads all units."""
        return self.brought.never()

    def _missing(self) -> list[Damage]:
        return self.holes + self._lost_end()

    @kept
    def holes(self) -> list[Damage]:
        """The holes between the files, but those whose messages are known elsewhere."""
        pairs = itertools.pairwise(self.layout.segments)
        holes = ((before, after, _hole(before, after)) for before, after in pairs)
        return [hole for before, after, hole in holes if hole is not None and not self._is_known(before, after)]

    def _lost_end(self) -> list[Damage]:
        """The messages after the last file that the queue has units for: a broker brings these after the messages."""
        last = next(reversed(self._last_units), None)
        if last is None or last[1] < (end := self.layout.segments[-1].start + self.layout.segments[-1].size):
            return []
        first = tiered_unit_at(self.layout, self.files, end)
        if first is None or (self.known[0] <= first and last[0] < self.known[1]) or self.grows():
            return []
        return [_cut(self.layout.segments[-1], last[1] + last[2], (first, last[0]))]

    def grows(self) -> bool:
        """Has a broker brought more messages since the files were found?

        It brings messages before their units, but for one case: a file of units that is full is written at once, and
        the last messages of that file are written a moment later (FlatAppendFile.append). So while the last file of
        units is new, wait for them.
        """
        while not (grown := self._has_grown()) and seconds_since_unit(self.layout, self.files) < _BROUGHT_WITHIN:
            time.sleep(_LOOK_AGAIN_AFTER)
        return grown

    def _has_grown(self) -> bool:
        files, file = self.files.fresh(), self.layout.segments[-1]
        starts = (flat_start(name) for name in names_there(os.path.dirname(file.path), files))
        if any(start is not None and start > file.start for start in starts):
            return True
        with files.file(file.path) as opened:
            return opened.size > file.size

    @kept
    def _last_units(self) -> list[tuple[int, int, int]]:
        return last_tiered_units(self.layout, self.files)

    def _is_known(self, before: SegmentFile, after: SegmentFile) -> bool:
        """Are the messages between two files known elsewhere?"""
        if self.known[0] >= self.known[1]:
            return False
        with self.reader(self._segment(before)) as reader:
            _, last = units_end(reader, before.start, is_last=True)
        with self.reader(self._segment(after)) as reader:
            first = reader.header(after.start)
        if last is None or first is None:
            return False
        return self.known[0] <= last.queue_offset + 1 and first.queue_offset <= self.known[1]

    def _segment(self, file: SegmentFile) -> Segment:
        # A unit may end with its file, and the kernel leaves space for a blank after each.
        end = file.start + file.size + (0 if self._has_coda(file) else FORMAT["BLANK_SIZE"])
        return Segment(file.path, file.start, end, file.size, file.pin, of_queue=True)

    def _has_coda(self, file: SegmentFile) -> bool:
        if file.size < CODA.size:
            return False
        with self.files.file(file.path, pin=file.pin) as opened:
            tail = opened.read(file.size - CODA.size, CODA.size)
        return len(tail) == CODA.size and CODA.unpack(tail)[:2] == (CODA.size, FORMAT["MAGIC_BLANK"])

    def _stop(self, segment: Segment) -> tuple[int, Header | None]:
        if segment is not self.segments[-1]:
            return segment.start + segment.size, None
        with self.reader(segment) as reader:
            stop, last = units_end(reader, self._near_end(reader, segment.start), is_last=True)
        return (segment.start + segment.size, None) if self._is_lost_at(segment, stop) else (stop, last)

    def whole_to(self, start: int) -> tuple[int, Header | None]:
        """Where the whole messages end that a broker has brought: not what begins there and is not whole yet, even if
        the queue has a unit for it. And the last message from `start` on, None where there is none.

        Args:
            start: a flat offset where a message begins, or where the log ended before.
        """
        end, is_last = start, True
        for segment in reversed(self.segments):
            if segment.start + segment.size < start:
                break
            with self.reader(segment) as reader:
                near = start if segment.start <= start else self._near_end(reader, segment.start)
                stop, last = units_end(reader, near, is_last=is_last)
                if is_last:
                    end = segment.start + segment.size if self._is_over_at(reader, stop) else stop
                if last is not None:
                    return end, last
            is_last = False
        return max(start, end), None

    def whole_at(self, position: int) -> Header | None:
        """The message at a flat offset, if its body is whole, too; None where there is none."""
        extent = self.log.extent_at(position)
        if extent is None:
            return None
        with self.reader(extent.segment, verify_crc=True) as reader:
            return whole_at(reader, position, extent.stop)

    def onward(self, start: int, stop: int) -> tuple[int, int | None]:
        """How far each message has a later queueOffset than the one before, or is the same batch, in a part of the log:
        up to a message that was brought again, something that is no message, or where looking on would take long. And
        where the last message before that begins, None where there is none.

        Args:
            start: the flat offset of a message. What else stands there is passed over.
        """
        at, newest, last, looked, due = start, -1, None, 0, _TILED_AFTER
        for segment in self.segments:
            at, until = max(at, segment.start), min(stop, segment.start + segment.size)
            if at >= until:
                continue
            with self.reader(segment, verify_crc=True) as reader:
                if at == start and whole_at(reader, at, until) is None:
                    found = reader.find(at + 1, until)
                    at = until if found is None else found
                while at < until and looked < _LOOKED_AT:
                    header = whole_at(reader, at, until)
                    if header is None and reader.is_closed_at(at):
                        break
                    if header is None or header.queue_offset < newest + (not is_batch(header.sys_flag)):
                        return at, last
                    newest, last, at, looked = header.queue_offset, at, at + header.size, looked + 1
                    if looked == due:
                        due *= 2
                        number, end = tiled_to(self.layout, self.files, newest + 1, at)
                        if at < end <= until and (tiled := self._ends_at(reader, number, at, end)) is not None:
                            newest, last, at = number, tiled, end
            if looked == _LOOKED_AT:
                return at, last
            at = until
        return at, last

    def _ends_at(self, reader: SegmentReader, number: int, start: int, end: int) -> int | None:
        """Where the message of a queue offset begins that ends at a flat offset, if the log says so too."""
        unit = self.stored_queues.queue(*self.queue)
        found = None if unit is None else unit.unit(number)
        header = None if found is None or found.position < start else reader.header(found.position)
        if header is None or (header.queue_offset, header.position + header.size) != (number, end):
            return None
        return header.position

    def _is_over_at(self, reader: SegmentReader, stop: int) -> bool:
        """Will what stands where the units of the last file end never become a message: a coda, or a damaged one?"""
        return reader.is_closed_at(stop) or self._has_whole_at(reader, stop)

    def _has_whole_at(self, reader: SegmentReader, at: int) -> bool:
        """Does the file go on for as many bytes as what begins there says to have?"""
        head = reader.read(at, min(HEAD_SIZE, reader.file_end - at))
        return len(head) == HEAD_SIZE and 0 < Head.of(head).size <= reader.file_end - at

    def _near_end(self, reader: SegmentReader, start: int) -> int:
        """Where a unit begins near the end of a segment that begins at `start`: there if nothing later is sure. The
        queue's last unit says where, if the log has the message just as it says."""
        if not self._last_units or self._last_units[-1][1] < start:
            return start
        offset, position, size = self._last_units[-1]
        header = reader.header(position)
        if header is None or (header.topic, header.queue_id) != self.queue:
            return start
        return position if (header.queue_offset, header.size) == (offset, size) else start

    def _is_lost_at(self, segment: Segment, stop: int) -> bool:
        """Is a message damaged where the units of the last segment end? Half a message, of a broker that was killed,
        reaches past the file's end and has no queue unit."""
        with self.reader(segment) as reader:
            if stop >= reader.file_end or reader.is_closed_at(stop):
                return False
            fits = self._has_whole_at(reader, stop)
        return fits or tiered_unit_at(self.layout, self.files, stop) is not None


class TieredRef(StoreRef):
    """A queue's log in a tiered store, as a task gets it.

    Args:
        brought: what the plan knows of messages that are there twice, or were never brought.
        beside: as of StoreRef.
    """

    def __init__(self, layout: Layout, files: Files, brought: Brought, beside: StoreRef | None) -> None:
        super().__init__(layout, files)
        self._brought = brought
        self.beside = beside

    def __reduce__(self) -> tuple[type[StoreRef], tuple[Any, ...]]:
        return TieredRef, (self.layout, self.files, self._brought, self.beside)

    def past_damage(self, reader: SegmentReader) -> PastDamage:
        """A reader of a segment with the damage in it, and each message once."""
        return EachOnce(reader, self.queues, self._brought)


class UpToRef(StoreRef):
    """A queue's log in a tiered store up to the end of a message, as a task gets it. Arguments as of TieredLogUpTo."""

    def __init__(self, layout: Layout, files: Files, brought: Brought, since: int) -> None:
        super().__init__(layout, files)
        self._brought = brought
        self._since = since

    def __reduce__(self) -> tuple[type[StoreRef], tuple[Any, ...]]:
        return UpToRef, (self.layout, self.files, self._brought, self._since)

    def past_damage(self, reader: SegmentReader) -> PastDamage:
        """As of TieredLogUpTo."""
        return FirstOfCopies(reader, self.queues, self._brought, self._since)


class TieredLogUpTo(TieredLog):
    """A queue's log in a tiered store up to the end of a message: what comes after it is not looked at.

    Args:
        stop: the flat offset of that end.
        since: the flat offset of the first message that is read.
    """

    def __init__(self, layout: Layout, files: Files, stop: int, since: int = 0) -> None:
        super().__init__(layout, files)
        self._up_to = stop
        self._since = since

    def __reduce__(self) -> tuple[type[StoreRef], tuple[Any, ...]]:
        return UpToRef, (replace(self.layout, segments=(), strays=()), self.files, self.brought, self._since)

    def past_damage(self, reader: SegmentReader) -> PastDamage:
        """A reader of a segment with the damage in it: of messages that are there twice, a stream has read the first,
        and reads the first copy of a batch."""
        return FirstOfCopies(reader, self.queues, self.brought, self._since)

    def _missing(self) -> list[Damage]:
        return [hole for hole in self.holes if hole.start < self._up_to]

    @kept
    def _found(self) -> tuple[list[Extent], Header | None]:
        stops = ((segment, min(segment.start + segment.size, self._up_to)) for segment in self.segments)
        return [Extent(segment, segment.start, stop) for segment, stop in stops if stop > segment.start], None


def _hole(before: SegmentFile, after: SegmentFile) -> Damage | None:
    """The hole between two files: what a broker that was killed had not brought there yet."""
    stop = before.start + before.size
    if after.start == stop:
        return None
    reason = (
        f"a hole in the log of this queue: expected a file that begins at {stop} after {before.path}, found one at "
        f"{after.start}; the broker may still have these messages in its own store (option tiered)"
    )
    return Damage(after.path, stop, after.start, 0, reason, of_queue=True)


def _cut(last: SegmentFile, stop: int, offsets: tuple[int, int]) -> Damage:
    """What is missing after the last file, up to `stop`: the messages of these queue offsets, the last one included."""
    end = last.start + last.size
    reason = (
        f"the log of this queue has lost its end: there are units for queueOffset {offsets[0]} to {offsets[1]}, whose "
        "messages would follow; the broker may still have them in its own store (option tiered)"
    )
    return Damage(last.path, end, stop, last.size, reason, of_queue=True)


def _outer(found: list[tuple[int, int]], builder: BatchBuilder) -> list[tuple[int, int]]:
    """The lowest and the highest queue offset of what was found, and of what a builder has, each with its position."""
    rows = builder.finish()
    found = [*found, *zip(*(column.to_pylist() for column in rows.columns), strict=True)]
    return [min(found), max(found)] if found else []


def _queue_offset(header: Header) -> int:
    return header.queue_offset
