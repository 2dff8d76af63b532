"""Reading on after damage: from the next unit that can be proved.

What looks like a unit may stand in a message's body. So the ConsumeQueues are asked, where there are some.
"""

import struct
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

from native_io import FORMAT, Filter, Status
from rmqstore_spark.store.commitlog import Room, Scans, SegmentReader, Stop
from rmqstore_spark.store.consumequeue import ConsumeQueues
from rmqstore_spark.store.message import failed_check
from rmqstore_spark.store.segments import Damage, damage_in
from rmqstore_spark.store.units import Run

_UNKNOWN_UNITS = 256  # so many units in a row that no ConsumeQueue knows: the queues lag, or are gone
_BLOCK = 512 * 1024
_MOST = (1 << 63) - 1

_Found = TypeVar("_Found")


class PastDamage:
    """Reads a piece of a segment with all damage in it.

    Args:
        reader: of the segment.
        queues: the store's ConsumeQueues.
    """

    def __init__(self, reader: SegmentReader, queues: ConsumeQueues) -> None:
        self._reader = reader
        self._queues = queues

    def decode(
        self, start: int, stop: int, decoder: Scans, room: Callable[[], Room], chosen: Filter | None = None
    ) -> Iterator[Damage | None]:
        """SegmentReader.decode() with what is damaged between two units. None comes after each step."""
        for found in self._all(start, stop, _MOST, lambda at: self._reader.decode(at, stop, decoder, room, chosen)):
            yield found if isinstance(found, Damage) else None

    def select(self, start: int, stop: int, chosen: Filter, last: int = _MOST) -> "Iterator[Run | Damage]":
        """SegmentReader.select() with what is damaged between two units."""
        yield from self._all(start, stop, last, lambda at: self._reader.select(at, stop, chosen, last))

    def _all(
        self, start: int, stop: int, last: int, read: Callable[[int], Generator[_Found, None, Stop]]
    ) -> "Iterator[_Found | Damage]":
        at, file_end, segment = start, self._reader.window.file_end, self._reader.segment
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
        if stop == file_end < segment.end and start < stop and at <= last:
            missing = segment.end - stop
            yield damage_in(segment, stop, segment.end, f"the file ends without a blank: {missing} bytes are missing")

    def _after(self, at: int, status: Status, stop: int) -> int:
        """Where to read on after what is no unit: at the next one that can be proved, or at `stop`."""
        end = self._reader.segment.end
        if status is Status.BAD_BLANK or (status is Status.BAD_MAGIC and self._total(at) == end - at):
            return stop  # a blank it was; what comes after one is not part of the log
        # With only the CRC wrong all lengths fit.
        known = [self._total(at)] if status is Status.BAD_BODY_CRC else self._queues.sizes_at(at)
        for size in known:
            if size >= FORMAT["SMALLEST_UNIT"] and self._continues(at + size, stop):
                return at + size
        proved = self._next_proved(at + 1, stop)
        return stop if proved is None or self._has_blank(at, proved) else proved

    def _next_proved(self, start: int, stop: int) -> int | None:
        """The first unit that a ConsumeQueue knows; where they seem to lag, the first that none contradicts."""
        patience = _UNKNOWN_UNITS if self._queues.in_use else 1
        not_denied = None
        at = self._reader.find(start, stop)
        while at is not None:
            header = self._reader.header(at)
            known = False if header is None else self._queues.vouch_for(header)
            if known:
                return at
            if known is None:
                not_denied = at if not_denied is None else not_denied
                patience -= 1
                if patience == 0:
                    break
            at = self._reader.find(at + 1, stop)
        return not_denied

    def _total(self, at: int) -> int:
        return int.from_bytes(self._reader.window.read(at, 4), "big", signed=True)

    def _continues(self, at: int, stop: int) -> bool:
        """Does the log go on there: with a unit, whole or with a wrong CRC, a blank, or the end?"""
        unit_or_blank = (Status.FULL, Status.LIMIT, Status.BLANK, Status.BAD_BODY_CRC)
        return at == stop or (at < stop and self._reader.status_at(at, stop) in unit_or_blank)

    def _has_blank(self, start: int, stop: int) -> bool:
        """Does a blank that reaches exactly to the segment's end begin in [start, stop)?"""
        magic = struct.pack(">i", FORMAT["MAGIC_BLANK"])
        for base in range(start, stop, _BLOCK):
            data = self._reader.window.read(base, min(_BLOCK, stop - base) + FORMAT["BLANK_SIZE"] - 1)
            hit = data.find(magic, 4)
            while hit >= 0:
                if struct.unpack_from(">i", data, hit - 4)[0] == self._reader.segment.end - (base + hit - 4):
                    return True
                hit = data.find(magic, hit + 1)
        return False
