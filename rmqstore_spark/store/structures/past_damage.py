"""Reading on after damage: where the damaged message ends, else from the next unit that can be believed.

Bytes in the body of a damaged message may look like a unit. So these rules hold, the surest first:

* The rest of a damaged message says where the message ends, if the log goes on exactly there: with a unit, with the
  head of another damaged message, with the closing blank, or where reading ends. The end follows from the totalSize,
  from the sum of the parts, and from the ConsumeQueue.
* A unit is believed if its ConsumeQueue knows it, or if the log goes on from it, unit by unit, to a unit known to its
  ConsumeQueue, to the head of another damaged message, to the closing blank, or to where reading ends.
* Units followed by bytes in which nothing can be recognized are believed, unless their ConsumeQueue has another message
  there, or the bytes before or after the units are too few for a message: such units are inside a message.

All evidence is near the damage, or where reading ends, which is a live unit's start. So the answer is the same however
the log is cut into pieces.
"""

import struct
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, TypeVar

from native_io import FORMAT, Filter, Status, Walked
from rmqstore_spark.store.format.message import HEAD_SIZE, Head, Header, failed_check, size_of_parts
from rmqstore_spark.store.format.units import BatchBuilder, Run
from rmqstore_spark.store.structures.commitlog import SegmentReader, UnitSink
from rmqstore_spark.store.structures.queue_sizes import QueueSizes
from rmqstore_spark.store.structures.queues import ConsumeQueues
from rmqstore_spark.store.structures.segments import Damage, damage_in

_ENOUGH = 256  # units in a row prove each other
_BLOCK = 512 * 1024
_MOST = (1 << 63) - 1

_Found = TypeVar("_Found")


class _Row(NamedTuple):
    """Units one after the other that nothing proves.

    Attributes:
        units: the number of units.
        end: where the last unit ends.
        believed: the start of the first unit for which its ConsumeQueue has no other message; None: the queues have
            other messages for all units.
    """

    units: int
    end: int
    believed: int | None = None


class _Next(NamedTuple):
    """The next unit in a range of physical offsets.

    Attributes:
        unit: the unit; None where there is none.
        status: BAD_BODY_CRC where the unit's body is wrong.
    """

    start: int
    stop: int
    unit: Header | None = None
    status: Status = Status.LIMIT

    def answers(self, start: int, stop: int) -> bool:
        """Is the answer the same for [start, stop)?"""
        return self.start <= start and stop == self.stop and (self.unit is None or start <= self.unit.position)


class PastDamage:
    """Reads a piece of a segment with all damage in it.

    Args:
        reader: reads the segment.
        queues: the store's ConsumeQueues.
    """

    def __init__(self, reader: SegmentReader, queues: ConsumeQueues) -> None:
        self._reader = reader
        self._queues = queues
        self._sizes = QueueSizes(queues)
        # Kept so that several damaged places that lead to the same bytes search them, and ask about a unit, only once:
        self._found = _Next(0, 0)
        self._rows: dict[int, _Row] = {}  # by the start of the row, for one stop

    def decode(
        self, start: int, stop: int, builder: BatchBuilder, chosen: Filter | None = None
    ) -> Iterator[Damage | None]:
        """SegmentReader.decode(), yielding the damage between units. None comes after each step."""
        for found in self._all(start, stop, _MOST, lambda at: self._reader.decode(at, stop, builder, chosen)):
            yield found if isinstance(found, Damage) else None

    def decode_copies(self, start: int, stop: int, builder: BatchBuilder) -> Iterator[Damage | None]:
        """decode() with the copies of batches that it leaves out."""
        return PastDamage.decode(self, start, stop, builder)

    def feed(self, start: int, stop: int, sink: UnitSink) -> Iterator[Damage | None]:
        """SegmentReader.feed(), yielding the damage between units. None comes after each step."""
        for found in self._all(start, stop, _MOST, lambda at: self._reader.feed(at, stop, sink)):
            yield found if isinstance(found, Damage) else None

    def select(self, start: int, stop: int, chosen: Filter, last: int = _MOST) -> "Iterator[Run | Damage]":
        """SegmentReader.select(), yielding the damage between units as well."""
        yield from self._all(start, stop, last, lambda at: self._reader.select(at, stop, chosen, last))

    def _all(
        self, start: int, stop: int, last: int, read: Callable[[int], Generator[_Found, None, Walked]]
    ) -> "Iterator[_Found | Damage]":
        at, file_end, segment = start, self._reader.file_end, self._reader.segment
        self._rows.clear()
        while at < stop and at <= last:
            stopped = yield from read(at)
            at = stopped.at
            if stopped.status is Status.LIMIT:
                break
            if stopped.status is Status.BLANK and stop >= file_end:
                return
            after = self._after(at, stopped.status, stop)
            yield damage_in(segment, at, after, failed_check(stopped.status, stopped.expected, stopped.found))
            at = after
        if stop == file_end < segment.end and start < stop and at <= last and not segment.of_queue:
            missing = segment.end - stop
            yield damage_in(segment, stop, segment.end, f"the file ends without a blank: {missing} bytes are missing")

    def _after(self, at: int, status: Status, stop: int) -> int:
        """The place to read on after bytes that are no unit: the next unit that can be believed, or `stop`."""
        reader = self._reader
        if status is Status.BLANK:
            return self._found_from(at + FORMAT["BLANK_SIZE"], stop)
        total = Head.of(reader.read(at, HEAD_SIZE)).size
        if status in (Status.NOT_A_BATCH, Status.BAD_QUEUE_OFFSET, Status.BAD_SYSFLAG):
            return at + total  # a unit whose lengths are sound
        if status is Status.BAD_BLANK or (status is Status.BAD_MAGIC and total == reader.segment.end - at):
            return stop  # a blank; the bytes after it are not part of the log
        wrapping = reader.segment.wrapping
        if wrapping is not None and status in (Status.NO_ENTRY, Status.BAD_ENTRY):
            if status is Status.NO_ENTRY and Head.of(reader.read(at, HEAD_SIZE)).magic == reader.segment.end - at:
                return stop  # a blank of such a log: the size comes last
            least = at + wrapping.header  # the unit of a damaged entry may be whole
        else:
            least = at + FORMAT["SMALLEST_UNIT"]
        first = self._next(least, stop).unit
        if not self._claimed(at, stop) and (first is None or self._is_known(first)):
            after = stop if first is None else first.position  # the damaged message needs no search in queues
        else:
            end = self.end_of(at, stop)
            if end is not None:
                return end
            after = stop if first is None else self._found_from(first.position, stop)
        return stop if stop == reader.file_end and self._has_blank(at, after) else after

    def end_of(self, at: int, stop: int) -> int | None:
        """The end of a damaged message, by what is left of it or by its ConsumeQueue, if the log goes on exactly
        there."""
        claimed = self._claimed(at, stop)
        if len(claimed) == 1:
            return claimed.pop()
        known = {at + size for size in self._sizes.at(at) if self._goes_on_after(at, size, stop)}
        return min(known & claimed or known or claimed, default=None)

    def _claimed(self, at: int, stop: int) -> set[int]:
        """The possible ends of a damaged message, by what is left of it; several where its fields contradict each
        other."""
        read = self._reader.read
        sizes = (Head.of(read(at, HEAD_SIZE)).size, size_of_parts(read, at))
        return {at + size for size in sizes if size is not None and self._goes_on_after(at, size, stop)}

    def _goes_on_after(self, at: int, size: int, stop: int) -> bool:
        """Does the log go on after a partly readable message of this size?"""
        return size >= FORMAT["SMALLEST_UNIT"] and self._goes_on(at + size, stop)

    def _goes_on(self, at: int, stop: int) -> bool:
        """Does the log go on at a physical offset: with a unit, a damaged unit that can be recognized, a blank, or the
        end?"""
        if at >= stop:
            return at == stop
        if self._reader.status_at(at, stop) in (Status.FULL, Status.LIMIT, Status.BLANK, Status.BAD_BODY_CRC):
            return True
        return Head.of(self._reader.read(at, HEAD_SIZE)).physical_offset == at > 0

    def _next(self, start: int, stop: int) -> _Next:
        """The next unit from `start` on, which may have a wrong bodyCRC."""
        if not self._found.answers(start, stop):
            with self._reader.unchecked():
                at = self._reader.find(start, stop)
            status, unit = (Status.LIMIT, None) if at is None else self._reader.look(at)
            self._found = _Next(start, stop, unit, status)
        return self._found

    def _found_from(self, start: int, stop: int) -> int:
        """The start of the first unit from `start` on that can be believed; `stop` where there is none. A unit with a
        wrong bodyCRC is damaged as well, but counts if its ConsumeQueue knows it."""
        while (found := self._next(start, stop)).unit is not None:
            unit = found.unit
            if found.status is Status.BAD_BODY_CRC:
                if self._is_known(unit):
                    return unit.position
            else:
                row = self._row(unit, stop)
                if row is None:
                    return unit.position
                if row.believed is not None and self._has_space_after(row, stop):
                    return row.believed
            start = unit.position + 1
        return stop

    def _row(self, first: Header, stop: int) -> _Row | None:
        """The row of units from the first one on; None where the units are proved."""
        units: list[tuple[Header, bool | None]] = []
        unit: Header | None = first
        end = first.position
        while (row := self._rows.get(end)) is None:
            if unit is None or end + unit.size > stop:
                row = _Row(0, end)
                break
            is_known = self._is_known(unit)
            units.append((unit, is_known))
            end = unit.position + unit.size
            if is_known or len(units) == _ENOUGH:
                return None
            unit = self._reader.header(end) if end < stop else None
        if len(units) + row.units >= _ENOUGH or (units and row.units == 0 and self._goes_on(row.end, stop)):
            return None
        for unit, is_known in reversed(units):
            believed = row.believed if is_known is False else unit.position
            row = self._rows[unit.position] = _Row(row.units + 1, row.end, believed)
        return row

    def _is_known(self, unit: Header | None) -> bool | None:
        """Does a unit's ConsumeQueue know the unit? None if unknown."""
        return self._queues.vouch_for(unit) if unit is not None and unit.is_queued else None

    def _has_space_after(self, row: _Row, stop: int) -> bool:
        """Is there space for a message between a row's end and the next unit? Or may the segment have ended there?"""
        after = min(row.end + FORMAT["SMALLEST_UNIT"], stop)
        if after - row.end == FORMAT["SMALLEST_UNIT"] and self._reader.find(row.end + 1, after) is None:
            return True
        return row.units > 1 and self._may_close(row.end, stop)

    def _may_close(self, at: int, stop: int) -> bool:
        """Could the segment's closing blank have stood at a physical offset, with nothing of it left?"""
        return stop == self._reader.segment.end and stop - at >= FORMAT["BLANK_SIZE"]

    def _has_blank(self, start: int, stop: int) -> bool:
        """Does a blank that reaches exactly to the segment's end begin in [start, stop)?"""
        is_wrapped = self._reader.segment.wrapping is not None
        magic = b"\xff\xff\xff\xff" if is_wrapped else struct.pack(">i", FORMAT["MAGIC_BLANK"])
        at_magic, at_size = (0, 4) if is_wrapped else (4, 0)
        for base in range(start, stop, _BLOCK):
            data = self._reader.read(base, min(_BLOCK, stop - base) + FORMAT["BLANK_SIZE"] - 1)
            hit = data.find(magic, at_magic, len(data) - FORMAT["BLANK_SIZE"] + at_magic + len(magic))
            while hit >= 0:
                begin = hit - at_magic
                if struct.unpack_from(">i", data, begin + at_size)[0] == self._reader.segment.end - (base + begin):
                    return True
                hit = data.find(magic, hit + 1, len(data) - FORMAT["BLANK_SIZE"] + at_magic + len(magic))
        return False
