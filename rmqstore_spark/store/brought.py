"""What brokers that were killed have left in a queue's log of a tiered store: messages twice, halves of messages, and
messages that were never brought.

A broker goes on after the last unit of the queue. One that was killed between messages and their units brings these
messages again, behind what is there, and its units lead past the first ones. One that had written the units of a file
that was full, and not yet their messages, goes on with the messages after them.

Each part of the log is judged by itself, with only the units that lead into it: so a plan reads none, and each task
those of its own part. All tasks come to the same answer, as it depends on nothing but *sound* units: those whose
message the log has where they say. Between two sound units that follow each other everything is there once more. Where
units between two sound ones are wrong, the queue offsets in the log decide.
"""

import bisect
import contextlib
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from native_io import Filter
from rmqstore_spark.kept import kept
from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.format.units import BatchBuilder, Run
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.commitlog import SegmentReader, UnitSink
from rmqstore_spark.store.structures.past_damage import PastDamage
from rmqstore_spark.store.structures.queue_cursor import QueueCursor
from rmqstore_spark.store.structures.queues import ConsumeQueues
from rmqstore_spark.store.structures.segments import Damage, Extent, Segment, damage_in
from rmqstore_spark.store.structures.tiered import Numbers, TieredQueue, unit_files, units_from

BROUGHT_AT_ONCE = 64 * 1024 * 1024  # bytes, many times what a broker has under way when it is killed
_PLACE, _PLACE_SIZE = 28, 8  # of the physicalOffset in a message
_ALL = (1 << 63) - 1

Part = tuple[int, int]  # the flat offsets [start, stop)


class _Sound(NamedTuple):
    """A unit whose message the log has where the unit says.

    Attributes:
        number: the queue offset.
        start, end: the flat offsets where the message begins and ends.
    """

    number: int
    start: int
    end: int


class _Between(NamedTuple):
    """A part of the log between two sound units that do not show what is in it; it may be empty.

    Attributes:
        before, after: the sound units; None where there is none.
        is_direct: whether no other unit should lead into it.
    """

    start: int
    stop: int
    before: _Sound | None
    after: _Sound | None
    is_direct: bool = False


class _Row(NamedTuple):
    """Units whose messages follow each other.

    Attributes:
        last: the queue offset of the last one.
        is_longer: whether the next unit goes on so, but is not asked for.
    """

    last: int
    is_longer: bool


class Found(NamedTuple):
    """What a plan has found of a queue's log. A task goes by it, whatever a broker has brought meanwhile.

    Attributes:
        queue: topic and queueId.
        extents: the log.
        units: the directory of the queue's units.
        units_end: the number after the last unit.
        known: the first queue offset that is known elsewhere, and the one after the last.
    """

    queue: tuple[str, int]
    extents: tuple[Extent, ...]
    units: str
    units_end: int
    known: tuple[int, int]


class Brought:
    """Tells what is in a queue's log twice, or was never brought there. For one thread at a time.

    Large because sound units, rows of them and what is between them are asked of the same open segments, and each step
    of a judgement goes back to the ones before.
    """

    def __init__(self, found: Found, files: Files) -> None:
        self._found = found
        self._files = files
        self._starts = [extent.start for extent in found.extents]
        self._readers: dict[int, SegmentReader] = {}  # open ones, by the start of the segment
        self._users = 0
        self._numbers: dict[Part, set[int]] = {}  # of _numbers_in()

    def __reduce__(self) -> tuple[type["Brought"], tuple[Found, Files]]:
        return Brought, (self._found, self._files)

    def parts(self, start: int, stop: int) -> Iterator[Part | Damage]:
        """The parts of [start, stop) whose messages are not in the log once more, and what is missing between, in
        order."""
        at = start
        with self._opened():
            for between in self._all_between(start, stop):
                for begin, end in self._again_in(between, start, stop):
                    if at < begin:
                        yield at, begin
                    at = max(at, end)
                after = between.after
                if after is not None and at <= after.start < stop:
                    if at < after.start:  # cut here, as a message surely begins here, whatever is before
                        yield at, after.start
                    at = after.start
                    yield from self._hole(between)
        if at < stop:
            yield at, stop

    def again(self, start: int, stop: int) -> Iterator[Part]:
        """The parts of [start, stop) whose messages are in the log once more, and halves of messages before such a
        part."""
        with self._opened():
            for between in self._all_between(start, stop):
                yield from self._again_in(between, start, stop)

    def never(self) -> Iterator[Damage]:
        """The messages that are not there because a broker was killed that had written their units; each where the
        next message is."""
        with self._opened():
            for between in self._all_between(0, _ALL):
                yield from self._hole(between)

    # ---- files

    @contextlib.contextmanager
    def _opened(self) -> Iterator[None]:
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                for reader in self._readers.values():
                    reader.close()
                self._readers.clear()

    def _reader(self, segment: Segment) -> SegmentReader:
        # Half a message and what follows it may look like a whole one, but for its bodyCRC.
        if segment.start not in self._readers:
            self._readers[segment.start] = SegmentReader(segment, self._files, verify_crc=True)
        return self._readers[segment.start]

    def _header(self, position: int) -> Header | None:
        """This queue's message at a flat offset, whatever its body."""
        index = bisect.bisect_right(self._starts, position) - 1
        if index < 0 or position >= self._found.extents[index].stop:
            return None
        reader = self._reader(self._found.extents[index].segment)
        with reader.unchecked():
            header = reader.header(position)
        return header if header is not None and self._is_own(header) else None

    @kept
    def _unit_files(self) -> list[tuple[str, int]]:
        return unit_files(self._found.units, self._files)

    @kept
    def _queue(self) -> TieredQueue:
        return TieredQueue(self._found.units, *self._found.queue, self._files)

    @kept
    def _cursor(self) -> QueueCursor:
        return QueueCursor(self._queue, self._found.units_end)

    # ---- sound units

    def _sound(self, number: int, position: int) -> _Sound | None:
        header = self._header(position)
        if header is None or header.queue_offset != number:
            return None
        return _Sound(number, position, position + header.size)

    def _sound_unit(self, number: int) -> _Sound | None:
        """The unit with this number, if it is sound."""
        unit = self._queue.any_unit(number)
        return None if unit is None else self._sound(number, unit.position)

    def _sound_before(self, position: int) -> _Sound | None:
        """A sound unit whose message begins before a flat offset: mostly the last one."""
        number, step = min(self._cursor.seek(position), self._found.units_end) - 1, 1
        while number >= self._queue.first:
            found = self._sound_unit(number)
            if found is not None and found.start < position:
                return found
            number, step = number - step, 2 * step
        return None

    def _last_sound(self, number: int, least: _Sound) -> _Sound:
        """The last sound unit up to a number, where one is known."""
        while number > least.number:
            found = self._sound_unit(number)
            if found is not None:
                return found
            number -= 1
        return least

    def _next_sound(self, number: int, position: int) -> tuple[_Sound | None, bool]:
        """The first sound unit from a number on whose message does not begin before a flat offset; and whether the
        unit before is of a message that ends before that, or is not there."""
        stop, before = self._found.extents[-1].stop, (0, 0)
        for first, starts, ends in self._units_from(number):
            for at in np.flatnonzero((starts >= position) & (starts < stop)).tolist():
                found = self._sound(first + at, int(starts[at]))
                if found is not None:
                    begin, end = (int(starts[at - 1]), int(ends[at - 1])) if at else before
                    return found, 0 <= begin <= end <= position
            before = int(starts[-1]), int(ends[-1])
        return None, False

    def _units_from(self, number: int) -> Iterator[tuple[int, Numbers, Numbers]]:
        return units_from(self._unit_files, self._files, number, self._found.units_end)

    # ---- where units do not follow each other

    def _all_between(self, start: int, stop: int) -> Iterator[_Between]:
        """What is between sound units, and has a part in [start, stop) or ends at `start`."""
        extents = self._found.extents
        if not extents or not self._found.units_end or not self._unit_files:
            return
        begin, end = extents[0].start, extents[-1].stop
        sound = self._sound_before(start)
        if sound is None:
            sound, is_direct = self._next_sound(self._queue.first, begin)
            yield _Between(begin, end if sound is None else sound.start, None, sound, is_direct)
        while sound is not None and sound.start < stop:
            row = self._row_from(sound, stop)
            before = self._last_sound(row.last, sound)
            if row.is_longer and before.number == row.last:
                return
            after, _ = self._next_sound(row.last + 1, before.end)
            if row.is_longer and (after is None or self._row_from(before, after.start) == (after.number - 1, True)):
                sound = after  # units go on as they should: it is the log that is damaged
                continue
            if after is not None:
                yield _Between(before.end, after.start, before, after, after.number == before.number + 1)
            elif before.number == self._found.units_end - 1:
                yield _Between(before.end, min(end, before.end + BROUGHT_AT_ONCE), before, None)
            else:
                yield _Between(before.end, end, before, None)
            sound = after

    def _row_from(self, sound: _Sound, stop: int) -> _Row:
        """The units from a sound one on whose messages follow each other, as they say, and begin before `stop`."""
        last, after, end = sound.number, sound.number, sound.start
        for first, starts, ends in self._units_from(sound.number):
            follow = starts == np.concatenate([[end], ends[:-1]])
            follow[0] |= first != after  # a file of units is missing
            are_here = follow & (starts < stop)
            if not are_here.all():
                at = int(np.argmin(are_here))
                return _Row(first + at - 1 if at else last, bool(follow[at]))
            last, after, end = first + len(starts) - 1, first + len(starts), int(ends[-1])
        return _Row(last, is_longer=False)

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[SegmentReader, int, int]]:
        """The parts of the log in [start, stop), each with a reader of its segment."""
        for extent in self._found.extents[max(0, bisect.bisect_right(self._starts, start) - 1) :]:
            if extent.start >= stop:
                return
            if max(start, extent.start) < min(stop, extent.stop):
                yield self._reader(extent.segment), max(start, extent.start), min(stop, extent.stop)

    # ---- what is there once more

    def _again_in(self, between: _Between, start: int, stop: int) -> Iterator[Part]:
        """The parts of [start, stop) between two sound units that are in the log once more."""
        for at, after, _, is_again in self._judged(between):
            if at >= stop:
                return
            if is_again and max(at, start) < min(after, stop):
                yield max(at, start), min(after, stop)

    def _judged(self, between: _Between) -> Iterator[tuple[int, int, Header | None, bool]]:
        """What is between two sound units, as of _messages(), each with the answer whether it is there once more."""
        kept_ones: set[int] = set()
        for reader, begin, end in self._pieces(between.start, between.stop):
            are_left = between.is_direct  # halves, which a broker was writing when it was killed
            for at, after, header in _messages(reader, begin, end):
                if header is None:
                    yield at, after, None, are_left
                    continue
                is_again = self._is_own(header) and self._is_again(header, between, kept_ones)
                are_left &= is_again
                kept_ones.add(header.queue_offset)
                yield at, after, header, is_again

    def _is_again(self, header: Header, between: _Between, kept_ones: Collection[int]) -> bool:
        """Is a message that was found between two sound units in the log once more: where its unit says, or among the
        messages whose units are wrong, in its place?"""
        number, before, after = header.queue_offset, between.before, between.after
        if number in kept_ones:
            return True
        found = self._sound_unit(number)
        if before is not None and number <= before.number:  # or it is damaged, and was another number
            return found is not None and self._is_same(header, found.start, found.end - found.start)
        if after is None or number < after.number:
            return False
        if found is None:
            return self._is_later(number, after)
        return between.is_direct or self._is_same(header, found.start, found.end - found.start)

    def _is_same(self, header: Header, start: int, size: int) -> bool:
        return self._bytes(header.position, header.size) == self._bytes(start, size)

    def _bytes(self, start: int, size: int) -> bytes:
        """A message, without its own place."""
        extent = self._found.extents[bisect.bisect_right(self._starts, start) - 1]
        data = self._reader(extent.segment).read(start, size)
        return data[:_PLACE] + data[_PLACE + _PLACE_SIZE :]

    def _is_later(self, number: int, least: _Sound) -> bool:
        """Is a message whose unit is wrong, or not there, in the log after a sound unit: in its place, or before it
        among others that are there once more?"""
        before = self._last_sound(min(number, self._found.units_end) - 1, least)
        after, _ = self._next_sound(number + 1, before.end)
        stop = before.end + BROUGHT_AT_ONCE if after is None else after.start
        if number in self._numbers_in(before.end, stop):
            return True
        others = (each for each in self._all_between(least.end, before.end) if each.start >= least.end)
        return any(number in self._numbers_in(each.start, each.stop) for each in others)

    def _numbers_in(self, start: int, stop: int) -> Collection[int]:
        """The queue offsets of the whole messages in a part of the log."""
        if (start, stop) not in self._numbers:
            found = (header for header in self._headers(start, stop) if header is not None)
            self._numbers[start, stop] = {header.queue_offset for header in found if self._is_own(header)}
        return self._numbers[start, stop]

    def _headers(self, start: int, stop: int) -> Iterator[Header | None]:
        """The messages that begin in [start, stop); None for what is none."""
        for reader, begin, end in self._pieces(start, stop):
            for _, _, header in _messages(reader, begin, end):
                yield header

    def _is_own(self, header: Header) -> bool:
        return (header.topic, header.queue_id) == self._found.queue

    # ---- what was never brought

    def _hole(self, between: _Between) -> Iterator[Damage]:
        """What is missing before the second of two sound units."""
        before, after, known = between.before, between.after, self._found.known
        if before is None or after is None or between.is_direct:
            return
        missing = set(range(before.number + 1, after.number))
        for _, _, header, is_again in self._judged(between):
            if header is None or not (is_again or header.queue_offset in missing):
                return  # units or messages are wrong, and that is told
            if not is_again:
                missing.remove(header.queue_offset)
        if not missing or (known[0] <= min(missing) and max(missing) < known[1]):
            return
        first, last = min(missing), max(missing)
        reason = (
            f"a hole in the log of this queue: there are units for queueOffset {first} to {last}, and "
            f"found queueOffset {after.number} where the first of them would be: a broker was killed before it brought "
            "them; it may still have them in its own store (option tiered)"
        )
        segment = self._found.extents[bisect.bisect_right(self._starts, after.start) - 1].segment
        yield damage_in(segment, after.start, after.start, reason)


def _messages(reader: SegmentReader, at: int, end: int) -> Iterator[tuple[int, int, Header | None]]:
    """The whole messages in a part of a segment, and what is between: each where it begins and ends, and the message;
    None for what is none."""
    while at < end and not reader.is_closed_at(at):
        header = reader.header(at)
        if header is None or at + header.size > end:
            found = reader.find(at + 1, end)
            after = end if found is None else found
            yield at, after, None
        else:
            after = at + header.size
            yield at, after, header
        at = after


class EachOnce(PastDamage):
    """Reads a piece of a queue's log with all damage in it, and without what is in the log once more."""

    def __init__(self, reader: SegmentReader, queues: ConsumeQueues, brought: Brought) -> None:
        super().__init__(reader, queues)
        self._brought = brought

    def decode(
        self, start: int, stop: int, builder: BatchBuilder, chosen: Filter | None = None
    ) -> Iterator[Damage | None]:
        """As of PastDamage."""
        for part in self._brought.parts(start, stop):
            yield from (part,) if isinstance(part, Damage) else super().decode(*part, builder, chosen)

    def feed(self, start: int, stop: int, sink: UnitSink) -> Iterator[Damage | None]:
        """As of PastDamage."""
        for part in self._brought.parts(start, stop):
            yield from (part,) if isinstance(part, Damage) else super().feed(*part, sink)

    def select(self, start: int, stop: int, chosen: Filter, last: int = _ALL) -> Iterator[Run | Damage]:
        """As of PastDamage."""
        for part in self._brought.parts(start, stop):
            yield from (part,) if isinstance(part, Damage) else super().select(*part, chosen, last)
