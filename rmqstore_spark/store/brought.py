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
import struct
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from native_io import FORMAT, Decoder, Filter, Status, Walked
from rmqstore_spark.kept import kept
from rmqstore_spark.store.format.message import HEAD_SIZE, LONGEST_HEAD, Head, Header, body_end, is_batch
from rmqstore_spark.store.format.units import BatchBuilder, Budget, Run
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.commitlog import SegmentReader, UnitSink, numbers_of
from rmqstore_spark.store.structures.past_damage import PastDamage
from rmqstore_spark.store.structures.queue_cursor import QueueCursor
from rmqstore_spark.store.structures.queues import ConsumeQueues
from rmqstore_spark.store.structures.segments import Damage, Extent, Segment, damage_in
from rmqstore_spark.store.structures.tiered import CODA, Numbers, TieredQueue, unit_files, units_from

BROUGHT_AT_ONCE = 64 * 1024 * 1024  # bytes, many times what a broker has under way when it is killed
_PLACE, _PLACE_SIZE = FORMAT["AT_PHYSICAL_OFFSET"], 8  # of the physicalOffset in a message
_MAGICS = tuple(struct.pack(">I", FORMAT[name] & 0xFFFFFFFF) for name in ("MAGIC_V1", "MAGIC_V2"))
_MAGIC, _MAGIC_AT = _MAGICS[0][:3], 4  # what both begin with
_BEFORE_OWN_MAGIC = _MAGIC_AT + len(_MAGICS[0]) - 1  # bytes of a message in which there is no whole magic
_MOST_IN_BATCH = (1 << 15) - 1  # messages
_ALL = (1 << 63) - 1
_BUDGET = Budget(64 * 1024, 16 * 1024 * 1024)

_Found = TypeVar("_Found")

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
    """

    start: int
    stop: int
    before: _Sound | None
    after: _Sound | None

    @property
    def place(self) -> int:
        """Where it is told that messages are missing."""
        return self.start if self.after is None else self.after.start

    def has(self, number: int) -> bool:
        """Is this the place of a message, by its queue offset?"""
        is_late = self.before is None or number > self.before.number
        return is_late and (self.after is None or number < self.after.number)


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
        self._missing_in: dict[_Between, list[range] | None] = {}  # of _missing()

    def __reduce__(self) -> tuple[type["Brought"], tuple[Found, Files]]:
        return Brought, (self._found, self._files)

    def parts(self, start: int, stop: int) -> Iterator[Part | Damage]:
        """The parts of [start, stop) whose messages are not in the log once more, and what is missing between, in
        order."""
        at = start
        with self._opened():
            for between in self._all_between(start, stop):
                if between.after is None:
                    at = yield from self._up_to_hole(at, stop, between)
                for begin, end in self._again_in(between, start, stop):
                    if at < begin:
                        yield at, begin
                    at = max(at, end)
                if between.after is not None:
                    at = yield from self._up_to_hole(at, stop, between)
        if at < stop:
            yield at, stop

    def _up_to_hole(self, at: int, stop: int, between: _Between) -> Generator[Part | Damage, None, int]:
        """The part from `at` on before the place where missing messages are told, and these; answers where the next
        part begins. It is cut there as a message surely begins there, whatever is before."""
        if not at <= between.place < stop:
            return at
        if at < between.place:
            yield at, between.place
        yield from self._hole(between)
        return between.place

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

    def batch_before(self, position: int) -> tuple[int, int]:
        """The queue offset and the sysFlag of the batch that has a sound copy before a flat offset, and none but copies
        of it between; zeros where there is none."""
        with self._opened():
            first = self._header(position)
            if first is None:
                before = self._last_message(self._cursor.seek(position), _MOST_IN_BATCH, position)
            elif _is_batch(first):
                before = self._copy_before(first)
            else:
                before = self._damaged_copy_after(first)
            return (before.queue_offset, before.sys_flag) if before is not None and _is_batch(before) else (0, 0)

    def copy_before(self, position: int) -> tuple[int, int]:
        """As batch_before(), of the copy right before that of a flat offset, whatever units say: of a batch that a
        broker has brought again they lead to the later one."""
        with self._opened():
            batch = self._header(position)
            if batch is None or not _is_batch(batch):
                return 0, 0
            for end in (position, position - CODA.size):
                before = self._header(end - batch.size)
                if before is not None and _is_batch(before) and before.queue_offset == batch.queue_offset:
                    return before.queue_offset, before.sys_flag
        return 0, 0

    def _last_message(self, number: int, count: int, stop: int) -> Header | None:
        """The last message that one of so many units before a number leads to."""
        return self._sound_message(range(max(self._queue.first, number - count), number), stop)

    def _damaged_copy_after(self, single: Header) -> Header | None:
        """The message before what is no batch by its sysFlag, if it has the same queue offset."""
        if self._is_at_own_unit(single):
            return None
        before = self._last_message(self._cursor.seek(single.position), 1, single.position)
        return before if before is not None and before.queue_offset == single.queue_offset else None

    def _is_at_own_unit(self, header: Header) -> bool:
        own = self._queue.any_unit(header.queue_offset)
        return own is not None and own.position == header.position

    def _copy_before(self, batch: Header) -> Header | None:
        """A sound copy of a batch before this one."""
        before = self._sound_message(self._numbers_of(batch), batch.position)
        if before is not None and before.queue_offset == batch.queue_offset:
            return before
        if self._is_at_own_unit(batch):
            return None
        # The unit of the one before may be wrong.
        sound = self._sound_before(batch.position)
        if sound is not None and sound.number >= batch.queue_offset:
            return None
        start = max(batch.position - BROUGHT_AT_ONCE, 0 if sound is None else sound.end)
        others = (each for each in self._headers(start, batch.position) if each is not None and self._is_own(each))
        return next((each for each in others if each.queue_offset == batch.queue_offset), None)

    def _sound_message(self, numbers: range, stop: int) -> Header | None:
        """The last message, with a sound body, that a unit of these numbers leads to before a flat offset."""
        units = [
            (first + at, int(starts[at]))
            for first, starts, _ in self._units_from(numbers.start, numbers.stop)
            for at in np.flatnonzero(starts < stop).tolist()
        ]
        for number, position in reversed(units):
            header = self._header(position, is_sound=True)
            if header is not None and number in self._numbers_of(header):
                return header
        return None

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

    def _header(self, position: int, is_sound: bool = False) -> Header | None:
        """This queue's message at a flat offset, whatever its body if it need not be sound."""
        index = bisect.bisect_right(self._starts, position) - 1
        if index < 0 or position >= self._found.extents[index].stop:
            return None
        extent = self._found.extents[index]
        reader = self._reader(extent.segment)
        with contextlib.nullcontext() if is_sound else reader.unchecked():
            header = whole_at(reader, position, extent.stop)
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
        if header is None or number not in self._numbers_of(header):
            return None
        return _Sound(number, position, position + header.size)

    def _numbers_of(self, header: Header) -> range:
        """The queue offsets of a message, or of all in a batch: a unit of each leads to a copy of it."""
        index = bisect.bisect_right(self._starts, header.position) - 1
        reader = self._reader(self._found.extents[index].segment)
        with reader.unchecked():
            return numbers_of(reader, header)

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

    def _next_sound(self, number: int, position: int) -> _Sound | None:
        """The first sound unit from a number on whose message does not begin before a flat offset."""
        stop = self._found.extents[-1].stop
        for first, starts, _ in self._units_from(number):
            for at in np.flatnonzero((starts >= position) & (starts < stop)).tolist():
                found = self._sound(first + at, int(starts[at]))
                if found is not None:
                    return found
        return None

    def _units_from(self, number: int, stop: int = _ALL) -> Iterator[tuple[int, Numbers, Numbers]]:
        return units_from(self._unit_files, self._files, number, min(stop, self._found.units_end))

    # ---- where units do not follow each other

    def _all_between(self, start: int, stop: int) -> Iterator[_Between]:
        """What is between sound units, and has a part in [start, stop) or ends at `start`."""
        extents = self._found.extents
        if not extents:
            return
        begin, end = extents[0].start, extents[-1].stop
        sound = self._sound_before(start)
        if sound is None:
            sound = self._next_sound(0, begin)
            until = min(end, begin + BROUGHT_AT_ONCE) if sound is None else sound.start
            yield _Between(begin, until, None, sound)
        while sound is not None and sound.start < stop:
            row = self._row_from(sound, stop)
            before = self._last_sound(row.last, sound)
            if row.is_longer and before.number == row.last:
                return
            after = self._next_sound(row.last + 1, before.end)
            if row.is_longer and (after is None or self._row_from(before, after.start) == (after.number - 1, True)):
                sound = after  # units go on as they should: it is the log that is damaged
                continue
            if after is not None:
                until = after.start
            elif before.number == self._found.units_end - 1:
                until = min(end, before.end + BROUGHT_AT_ONCE)
            else:
                until = end
            yield _Between(before.end, until, before, after)
            sound = after

    def _row_from(self, sound: _Sound, stop: int) -> _Row:
        """The units from a sound one on whose messages follow each other, as they say, and begin before `stop`."""
        last, after, end = sound.number, sound.number, sound.start
        for first, starts, ends in self._units_from(sound.number):
            follow = starts == np.concatenate([[end], ends[:-1]])
            follow[0] &= first == after  # else a file of units is missing
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
        """The parts of [start, stop) between two sound units that are in the log once more, and halves of messages."""
        for at, after, _, is_again in self._judged(between, start, stop):
            if is_again and max(at, start) < min(after, stop):
                yield max(at, start), min(after, stop)

    def _judged(self, between: _Between, start: int, stop: int) -> Iterator[tuple[int, int, Header | None, bool]]:
        """What is between two sound units, as of _messages(), up to `stop`, each with the answer whether it is there
        once more, or half a message that a broker was writing when it was killed."""
        missing = self._missing(between)
        claims = self._claims(missing or [])
        kept_ones: set[int] = set()
        for reader, begin, end in self._pieces(*self._judged_for(between, start)):
            for at, after, header in _messages(reader, begin, end):
                if at >= stop:
                    return
                if header is None:
                    is_last = between.after is None and after == between.stop
                    if is_last:
                        # No part of the log, unless a reader would take it for one, or two halves for a damaged one.
                        is_half = _looks_whole(reader, at) or _goes_on_in_head(reader, at, after, end)
                    else:
                        # A unit may lead to the first one of two halves.
                        is_whole = missing is not None and _looks_whole(reader, at)
                        is_half = is_whole or self._is_half(at, after, missing, claims)
                    yield at, after, None, is_half
                    continue
                is_again = self._is_own(header) and self._is_again(header, between, missing, kept_ones)
                kept_ones.add(header.queue_offset)
                yield at, after, header, is_again

    def _judged_for(self, between: _Between, start: int) -> Part:
        """What must be looked at between two sound units to judge what is from `start` on."""
        for reader, begin, end in self._pieces(max(between.start, start - BROUGHT_AT_ONCE), between.stop):
            if begin == between.start:
                break
            if (found := reader.find(begin, end)) is not None:
                return found, between.stop
        return between.start, between.stop

    def _missing(self, between: _Between) -> list[range] | None:
        """The queue offsets between two sound units of which no whole message is there; None where that is not
        known."""
        if between not in self._missing_in:
            self._missing_in[between] = self._find_missing(between)
        return self._missing_in[between]

    def _find_missing(self, between: _Between) -> list[range] | None:
        before, after = between.before, between.after
        if before is not None and after is not None and before.number + 1 == after.number:
            return []
        is_all = before is None and after is None
        if between.stop - between.start > BROUGHT_AT_ONCE or (is_all and self._found.units_end):
            return None
        there = {number for number in self._numbers_in(between.start, between.stop) if between.has(number)}
        first = before.number + 1 if before is not None else self._first_here(between)
        if first is None and (there or between.start or is_all):
            return None
        first = after.number if first is None and after is not None else first or 0
        stop = max(there, default=-1) + 1 if after is None else after.number
        missing = _all_but(there, first, stop)
        return _all_but(there | self._brought_before(between), first, stop) if missing else missing

    def _brought_before(self, between: _Between) -> set[int]:
        """The queue offsets of the messages that are between other sound units, as a broker had brought them before it
        was killed the last time."""
        start = max(0, between.start - BROUGHT_AT_ONCE)
        others = (each for each in self._all_between(start, between.start) if each.stop <= between.start)
        return {number for each in others for number in self._numbers_in(each.start, each.stop)}

    def _first_here(self, between: _Between) -> int | None:
        """The first queue offset whose message, as its unit says, does not end before the log begins; None where there
        are no units before the first sound one. Without any units that of the first message, if the log begins with
        one."""
        if between.after is None:
            header = self._header(between.start)
            return None if header is None else header.queue_offset
        number: int | None = None
        for first, _, ends in self._units_from(0, between.after.number):
            expired = np.flatnonzero(ends <= between.start)
            if len(expired) or number is None:
                number = first + (int(expired[-1]) + 1 if len(expired) else 0)
        return number

    def _claims(self, numbers: list[range]) -> list[Part]:
        """The parts of the log where the units of these queue offsets lead to."""
        claims: list[Part] = []
        most = self._found.units_end
        stops = np.array([min(each.stop, most) for each in numbers])
        begins = np.array([min(each.start, most) for each in numbers])
        for first, starts, ends in self._units_from(numbers[0].start, numbers[-1].stop) if numbers else ():
            of_units = np.arange(first, first + len(starts))
            which = np.searchsorted(begins, of_units, side="right") - 1
            are_asked = (which >= 0) & (of_units < stops[which])
            claims += zip(starts[are_asked].tolist(), ends[are_asked].tolist(), strict=True)
        return claims

    def _is_half(self, at: int, after: int, missing: list[range] | None, claims: list[Part]) -> bool:
        """Is what is no message half of one, and not a damaged one? If nothing is missing nothing was lost there. Of
        what is missing the units may lead elsewhere: then it was never brought."""
        if missing is None:
            return False
        is_claimed = any(start == at and stop <= after for start, stop in claims)
        return not is_claimed and len(claims) == sum(each.stop - each.start for each in missing)

    def _is_again(
        self, header: Header, between: _Between, missing: list[range] | None, kept_ones: Collection[int]
    ) -> bool:
        """Is a message that was found between two sound units in the log once more: where its unit says, or among the
        messages whose units are wrong, in its place?"""
        number, after = header.queue_offset, between.after
        if number in kept_ones:
            return True
        if between.has(number):
            return False
        found = self._sound_unit(number)
        if found is not None:  # or the message is a missing one whose queue offset is damaged
            is_none_missing = after is not None and missing is not None and not missing  # at the end some may be
            return is_none_missing or self._is_same(header, found.start, found.end - found.start)
        return after is not None and number > after.number and self._is_later(number, after)

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
        others = (each for each in self._all_between(least.end, before.end + 1) if each.start >= least.end)
        return any(number in self._numbers_in(each.start, each.stop) for each in others)

    def _numbers_in(self, start: int, stop: int) -> set[int]:
        """The queue offsets of the whole messages in a part of the log."""
        if (start, stop) not in self._numbers:
            found = (header for header in self._headers(start, stop) if header is not None)
            own = (self._numbers_of(header) for header in found if self._is_own(header))
            self._numbers[start, stop] = {number for numbers in own for number in numbers}
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
        """What is missing between two sound units, if nothing there may be it."""
        missing = self._missing(between)
        if missing is None:
            missing = self._missing_in_many(between)
            if missing and not self._is_known(missing):
                yield self._told(between, missing, None)
            return
        if not missing or self._is_known(missing):
            return
        there: int | None = None
        last = -1
        for _, _, header, is_again in self._judged(between, between.start, between.stop):
            number = -1 if header is None else header.queue_offset
            if not is_again and not between.has(number) and not self._is_only_here(number, last, between):
                return  # units or messages are wrong, and that is told
            if number > missing[0].start and there is None:
                there = number
            last = number
        yield self._told(between, missing, there)

    def _is_known(self, missing: list[range]) -> bool:
        """Are all these queue offsets known elsewhere?"""
        known = self._found.known
        return known[0] <= missing[0].start and missing[-1].stop <= known[1]

    def _told(self, between: _Between, missing: list[range], there: int | None) -> Damage:
        """The damage that says what is missing.

        Args:
            there: the first later queue offset, where no sound unit comes after.
        """
        first, last = missing[0].start, missing[-1].stop - 1
        units = "there are units for" if self._claims(missing) else "there is nothing of"
        after = there if between.after is None else between.after.number
        reason = (
            f"a hole in the log of this queue: {units} queueOffset {first} to {last}, and found queueOffset {after} "
            "where the first of them would be: a broker was killed before it brought them; it may still have them in "
            "its own store (option tiered)"
        )
        segment = self._found.extents[bisect.bisect_right(self._starts, between.place) - 1].segment
        return damage_in(segment, between.place, between.place, reason)

    def _missing_in_many(self, between: _Between) -> list[range]:
        """What is missing between two sound units that have very much of the log between them: their own queue offsets
        are known, and all that is there is read for its queue offsets. Nothing where that is not all sound: then it is
        told as damage."""
        first = between.before.number + 1 if between.before is not None else self._first_here(between)
        if first is None or between.after is None or first >= between.after.number:
            return []
        there: list[Part] = []
        for reader, begin, end in self._pieces(between.start, between.stop):
            builder = BatchBuilder(["topic", "queueId", "queueOffset"], _BUDGET)
            steps = reader.decode(begin, end, builder)
            while True:
                try:
                    next(steps)
                except StopIteration as ended:
                    if not self._add_rows(there, builder) or not _is_at_end(reader, ended.value):
                        return []
                    break
                if builder.is_full and not self._add_rows(there, builder):
                    return []
        others = [(number, number + 1) for number in self._brought_before(between)]
        return _holes_in(there + others, first, between.after.number)

    def _add_rows(self, there: list[Part], builder: BatchBuilder) -> bool:
        """Adds the queue offsets of what a builder has; answers whether all is of this queue."""
        rows = builder.finish()
        topics, queue_ids, numbers = rows.columns
        queue = self._found.queue
        there += _rows_of(np.unique(numbers.to_numpy()))
        return set(topics.unique().to_pylist()) <= {queue[0]} and set(queue_ids.unique().to_pylist()) <= {queue[1]}

    def _is_only_here(self, number: int, last: int, between: _Between) -> bool:
        """Was a message that is before lower queue offsets never brought again? Then no unit leads to it."""
        if between.after is None or number <= between.after.number:
            return False
        return number == last + 1 or (number < self._found.units_end and self._sound_unit(number) is None)


def _is_batch(header: Header | None) -> bool:
    return header is not None and is_batch(header.sys_flag)


def _is_at_end(reader: SegmentReader, walked: Walked) -> bool:
    return walked.status is Status.LIMIT or (walked.status is Status.BLANK and reader.is_closed_at(walked.at))


def _rows_of(numbers: Numbers) -> list[Part]:
    """Ascending numbers as rows of numbers that follow each other."""
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    starts, lasts = numbers[[0, *breaks]], numbers[[*(breaks - 1), -1]]
    return list(zip(starts.tolist(), (lasts + 1).tolist(), strict=True))


def _holes_in(rows: list[Part], start: int, stop: int) -> list[range]:
    """What rows of numbers, in any order, lack of [start, stop)."""
    found, at = [], start
    for begin, end in sorted(rows):
        if at < min(begin, stop):
            found.append(range(at, min(begin, stop)))
        at = max(at, end)
    return [*found, range(at, stop)] if at < stop else found


def _all_but(numbers: Iterable[int], start: int, stop: int) -> list[range]:
    """The others in [start, stop), which may be very many: a damaged number may be any."""
    return _holes_in([(number, number + 1) for number in numbers], start, stop)


def _messages(reader: SegmentReader, at: int, end: int) -> Iterator[tuple[int, int, Header | None]]:
    """The whole messages in a part of a segment, and what is between: each where it begins and ends, and the message;
    None for what is none."""
    while at < end and not reader.is_closed_at(at):
        header = whole_at(reader, at, end)
        if header is None:
            found = reader.find(at + 1, end)
            after = end if found is None else found
        else:
            after = at + header.size
        yield at, after, header
        at = after


def whole_at(reader: SegmentReader, at: int, end: int) -> Header | None:
    """The message at a flat offset; None where there is none, or only half of one, with what begins in it for the
    rest."""
    header = reader.header(at)
    if header is None or at + header.size > end:
        return None
    after = at + header.size
    is_followed = after == end or reader.header(after) is not None
    if _goes_on_in_head(reader, at, after, end) or (not is_followed and _has_head(reader, at + 1, after, end)):
        return None
    return None if _contradicts_itself(reader, header) else header


def _looks_whole(reader: SegmentReader, at: int) -> bool:
    """Would a reader take what begins at a flat offset for a message?"""
    header = reader.header(at)
    return header is not None and not _contradicts_itself(reader, header)


def _contradicts_itself(reader: SegmentReader, header: Header) -> bool:
    """Is it a batch whose properties say another queue offset than its head?"""
    if not is_batch(header.sys_flag):
        return False
    chosen = Filter()
    chosen.leave_out_copies((0, 0))
    return next(reader.select(header.position, header.position + header.size, chosen), None) is None


def _goes_on_in_head(reader: SegmentReader, start: int, stop: int, end: int) -> bool:
    """Does the text after the body of what looks like a message go on in another one's head? Two halves may by chance
    be as long as the first one's message, or longer; then only the first bytes of the head may be in the text, and the
    head may lack its end, where its place is. The magic is no text."""
    head = bytes(reader.seen(start, LONGEST_HEAD)).ljust(LONGEST_HEAD, b"\0")
    text = start + body_end(memoryview(head))
    found = bytes(reader.seen(text, min(stop + _BEFORE_OWN_MAGIC, end) - text))
    return any(magic in found for magic in _MAGICS)


def _has_head(reader: SegmentReader, start: int, stop: int, end: int) -> bool:
    """Does a message begin in [start, stop), as far as its first bytes tell?"""
    data = reader.read(start, min(stop + HEAD_SIZE, end) - start)
    at = data.find(_MAGIC, _MAGIC_AT)
    while at >= 0:
        begin = start + at - _MAGIC_AT
        if begin < stop and Head.of(data, at - _MAGIC_AT).physical_offset == begin:
            return True
        at = data.find(_MAGIC, at + 1)
    return False


class EachOnce(PastDamage):
    """Reads a piece of a queue's log with all damage in it, and without what is in the log once more."""

    def __init__(self, reader: SegmentReader, queues: ConsumeQueues, brought: Brought) -> None:
        super().__init__(reader, queues)
        self._brought = brought

    def decode(
        self, start: int, stop: int, builder: BatchBuilder, chosen: Filter | None = None
    ) -> Iterator[Damage | None]:
        """As of PastDamage."""
        read, kernel = super().decode, builder.decoder if chosen is None else chosen
        return self._each_part(start, stop, kernel, lambda at, to: read(at, to, builder, chosen))

    def decode_copies(self, start: int, stop: int, builder: BatchBuilder) -> Iterator[Damage | None]:
        """As of PastDamage."""
        for part in self._brought.parts(start, stop):
            yield from (part,) if isinstance(part, Damage) else super().decode_copies(*part, builder)

    def feed(self, start: int, stop: int, sink: UnitSink) -> Iterator[Damage | None]:
        """As of PastDamage."""
        for part in self._parts(start, stop):
            yield from (part,) if isinstance(part, Damage) else super().feed(*part, sink)

    def select(self, start: int, stop: int, chosen: Filter, last: int = _ALL) -> Iterator[Run | Damage]:
        """As of PastDamage."""
        read = super().select
        return self._each_part(start, stop, chosen, lambda at, to: read(at, to, chosen, last))

    def _each_part(
        self, start: int, stop: int, kernel: Decoder | Filter, read: Callable[[int, int], Iterator[_Found]]
    ) -> Iterator[_Found | Damage]:
        """What is read of each part, while the kernel leaves out copies of batches, and the damage between parts."""
        try:
            for part in self._parts(start, stop):
                if isinstance(part, Damage):
                    yield part
                    continue
                kernel.leave_out_copies(self._batch_before(part[0]))
                yield from read(*part)
        finally:
            kernel.leave_out_copies(None)

    def _parts(self, start: int, stop: int) -> Iterator[Part | Damage]:
        return self._brought.parts(start, stop)

    def _batch_before(self, start: int) -> tuple[int, int]:
        return self._brought.batch_before(start)


class FirstOfCopies(EachOnce):
    """Reads a piece of a stretch in which queue offsets ascend, with all damage in it: of the copies of a batch that
    follow each other there, the first one.

    Args:
        since: the flat offset where the stretch begins.
    """

    def __init__(self, reader: SegmentReader, queues: ConsumeQueues, brought: Brought, since: int) -> None:
        super().__init__(reader, queues, brought)
        self._since = since

    def _parts(self, start: int, stop: int) -> Iterator[Part | Damage]:
        yield start, stop

    def _batch_before(self, start: int) -> tuple[int, int]:
        return (0, 0) if start <= self._since else self._brought.copy_before(start)
