"""Store times along queues: of the message at a queue offset, and the first offset from a time on."""

import bisect
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from native_io import UnitKind
from rmqstore_spark.kept import kept
from rmqstore_spark.store.bounds_search import QueueBounds
from rmqstore_spark.store.message_headers import many_headers
from rmqstore_spark.store.queue_bounds import UnitNumbers, places_of
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.many_headers import NO_TIME
from rmqstore_spark.store.structures.queue_cursor import QueueCursor

_QUEUES_AT_ONCE = 16 * 1024  # queues whose messages are looked up together
_LATEST = (1 << 63) - 1  # a store time (ms)
_UNITS_TO_TRY = 1024  # units from one on, until a message is whole
_Piece = tuple[int, int, int | None]  # a piece of the log, as LogTimes.pieces() gives it


def times_of(store: Snapshot, queues: list[Queue], asked: UnitNumbers) -> npt.NDArray[np.int64]:
    """The store times (us) of messages of simple queues; NO_TIME where the log has no message, or no known time.

    Each unit is read once for all that ask for it, and each message, in the order of the log, once for many queues.

    Args:
        asked: the queue offsets to look up.
    """
    found = np.full(len(asked.numbers), NO_TIME, np.int64)
    for first in range(0, len(queues), _QUEUES_AT_ONCE):
        some = queues[first : first + _QUEUES_AT_ONCE]
        numbers = slice(*asked.starts[[first, first + len(some)]].tolist())
        positions, sizes = places_of(store.files, some, asked.part(first, first + len(some)))
        unique, index, back = np.unique(positions, return_index=True, return_inverse=True)
        found[numbers] = many_headers(store, unique, sizes[index]).times[back]
    return found


class QueueTimes:
    """Store times of messages, in microseconds of the epoch."""

    def __init__(self, store: Snapshot) -> None:
        self._store = store
        self._late: dict[tuple[int, int, int], int] = {}  # answers of _first_late(), for queues that are alike
        self._borders: dict[int, int] = {}  # by a time (ms), the start of the segment that the last of them names

    def first_from_each(self, bounds: list[QueueBounds], time: int) -> list[int]:
        """first_from() of many queues."""
        if self._store.files.is_slow:
            self._expect(bounds, time)
            together = {}
        else:
            together = self._first_in_each(bounds, time)
        alone = [row for row in range(len(bounds)) if row not in together]
        found = self._store.files.schedule.mapped(lambda row: self.first_from(bounds[row], time), alone)
        together |= zip(alone, found, strict=True)
        return [together[row] for row in range(len(bounds))]

    def _first_in_each(self, bounds: list[QueueBounds], time: int) -> dict[int, int]:
        """first_from() of those queues, by their index, in whose middle the time lies and store times do not go back.
        Their searches go side by side: each step reads units and messages in the order of the disk."""
        rows = [row for row, each in enumerate(bounds) if self._is_within(each, time)]
        low, high = (np.array([bounds[row].numbers[end] for row in rows], np.int64) for end in (0, -1))
        low += 1  # the first message is too early
        open_ones = np.flatnonzero(low < high)
        while len(open_ones):
            middle = (low[open_ones] + high[open_ones]) // 2
            queues = [bounds[rows[index]].queue for index in open_ones.tolist()]
            times = times_of(self._store, queues, UnitNumbers(np.arange(len(queues) + 1), middle))
            is_early, is_late = (times != NO_TIME) & (times < time), times >= time
            low[open_ones[is_early]] = middle[is_early] + 1
            high[open_ones[is_late]] = middle[is_late]
            open_ones = open_ones[(is_early | is_late) & (low[open_ones] < high[open_ones])]
        return {
            row: number for row, number, end in zip(rows, low.tolist(), high.tolist(), strict=True) if number == end
        }

    def _is_within(self, each: QueueBounds, time: int) -> bool:
        first, last = each.first, each.last
        if first is None or last is None or not each.queue.is_by_offset:
            return False
        if not _is_before(first.store_timestamp, time) or _is_before(last.store_timestamp, time):
            return False
        falls = [fall for _, _, fall in self._store.times.pieces(first.position, last.position + 1)]
        return falls == [0] and last.store_timestamp is not None

    def _expect(self, bounds: Iterable[QueueBounds], time: int) -> None:
        """first_from() is asked next of many queues with this time, side by side: what is the same for most of them is
        looked up before, once, with all requests that may be made at a time."""
        asked = ((each.first.position, each.last.position + 1) for each in bounds if each.first and each.last)
        pieces = {piece for ends in set(asked) for piece in self._store.times.pieces(*ends)}
        starts = {(found[0], found[-1]): found for piece in pieces if (found := self._starts_in(piece))}
        longest = max(starts.values(), key=len, default=[])  # where its search ends, those of others mostly end
        self._first_late(longest, -(-time // 1000))
        self._store.files.schedule.mapped(lambda some: self._first_late(some, -(-time // 1000)), starts.values())

    def at(self, topic: str, queue_id: int, offset: int) -> int | None:
        """The store time (us) of the message at a queue offset; None where the log has no message there."""
        units = self._store.queues.units_with(topic, queue_id, offset)
        times = (self._of_unit(queue, unit.number) for queue, unit in units)
        return next((time for time in times if time is not None), None)

    def first_from(self, bounds: QueueBounds, time: int) -> int:
        """The first queue offset whose message has a store time of `time` (us) or later; else the end of the queue.

        Where a broker wrote, this is a binary search, as brokers do since 5.1.1, which relies on store times that do
        not go back along the queue. Where store times may go back (store/log_times.py), the search goes piece by piece.
        """
        queue, first, last = bounds.queue, bounds.first, bounds.last
        if first is None or last is None:
            return bounds.end
        least, most = bounds.numbers[0], bounds.numbers[-1]
        is_last_late = not _is_before(last.store_timestamp, time)
        for piece in self._store.times.pieces(first.position, last.position + 1):
            start, stop, fall = piece
            is_last = stop > last.position
            if fall == 0 and is_last and not is_last_late:
                continue
            begin = least if start == first.position else max(least, QueueCursor(queue, most).seek(start))
            end = most if is_last else min(most, QueueCursor(queue, most).seek(stop))
            number = self._first_in(queue, begin, end, piece, time)
            if number < end or (is_last and is_last_late):
                return self._offset_from(bounds, number)
        return bounds.end

    def _first_in(self, queue: Queue, least: int, most: int, piece: _Piece, time: int) -> int:
        """The number of the first unit in [least, most) whose message is late enough; else `most`.

        Args:
            piece: the piece of the log that the units are in, as LogTimes.pieces() gives it.
        """
        start, stop, fall = piece
        if fall != 0 and not self._store.times.may_hold(start, stop, -(-time // 1000), _LATEST):
            return most
        if fall is not None:  # no message before one that is so much older than `time` is late enough
            least = self._first_by_search(queue, least, most, piece, time - 1000 * fall)
        if fall == 0:
            return least
        times = ((number, self._of_unit(queue, number)) for number in range(least, most))
        return next((number for number, found in times if found is not None and found >= time), most)

    def _first_by_search(self, queue: Queue, least: int, most: int, piece: _Piece, time: int) -> int:
        least, most = self._narrowed(queue, least, most, piece, time)
        return self._store.files.schedule.partition_point(
            least, most, lambda number: _is_before(self._of_next(queue, number, most), time)
        )

    def _narrowed(self, queue: Queue, least: int, most: int, piece: _Piece, time: int) -> tuple[int, int]:
        """_first_in()'s bounds narrowed to one segment, by the store times that segments begin with."""
        starts = self._starts_in(piece)
        index = self._first_late(starts, -(-time // 1000))
        if index > 0:
            least = max(least, min(most, QueueCursor(queue, most).seek(starts[index - 1])))
        if (late := self._known(starts, index)) < len(starts):
            most = min(most, max(least, QueueCursor(queue, most).seek(starts[late])))
        return least, most

    def _starts_in(self, piece: _Piece) -> list[int]:
        """The starts of segments in a piece of the log."""
        return self._starts[bisect.bisect_left(self._starts, piece[0]) : bisect.bisect_left(self._starts, piece[1])]

    @kept
    def _starts(self) -> list[int]:
        return [extent.start for extent in self._store.log.extents]

    def _known(self, starts: list[int], index: int) -> int:
        """The first segment from an index on that begins with a message whose time is known."""
        times = self._store.log.timestamp
        return next((n for n in range(index, len(starts)) if times(starts[n]) is not None), len(starts))

    def _first_late(self, starts: list[int], time: int) -> int:
        """The index of the first of these segments that begins with a message of a time (ms) or later."""

        def is_late(index: int) -> bool:
            at = self._known(starts, index)
            found = None if at == len(starts) else self._store.log.timestamp(starts[at])
            return found is None or found >= time

        if not starts:
            return 0
        if (name := (starts[0], starts[-1], time)) not in self._late:
            found = bisect.bisect_left(starts, self._borders.get(time, starts[0]))
            if (found < len(starts) and not is_late(found)) or (found > 0 and is_late(found - 1)):
                found = self._store.files.schedule.partition_point(0, len(starts), lambda index: not is_late(index))
            if found < len(starts):
                self._borders[time] = starts[found]
            self._late[name] = found
        return self._late[name]

    def _of_next(self, queue: Queue, number: int, most: int) -> int | None:
        """The store time of the first whole message from a unit on, before number `most`, as a damaged message has no
        known time. Where a salvage has lost the message (queue_block.lost_unit), the store time of the next segment's
        first message."""
        for each in range(number, min(most, number + _UNITS_TO_TRY)):
            found = self._of_unit(queue, each)
            if found is not None:
                return found
            if (end := self._end_after_lost(queue, each)) is not None:
                next_one = self._store.log.timestamp(end)
                return None if next_one is None else 1000 * next_one
        return None

    def _offset_from(self, bounds: QueueBounds, number: int) -> int:
        """The queue offset of the first message from a unit on; the queue's end where there is none. Where a file of
        the queue is missing, the log may have the messages of its units, so that they are not passed over."""
        queue = bounds.queue
        if (after := self._end_after_lost(queue, number)) is not None:
            number = QueueCursor(queue, bounds.numbers[-1]).seek(after)
        if (unit := queue.any_unit(number)) is not None:
            return unit.queue_offset
        if queue.is_by_offset:
            return min(number, bounds.end)
        after_gap = (block for block in queue.blocks(number, bounds.numbers[-1], over_gaps=True) if len(block))
        return next((int(block.queue_offsets[0]) for block in after_gap), bounds.end)

    def _end_after_lost(self, queue: Queue, number: int) -> int | None:
        """The end of the segment in which a unit points to a lost message; None for any other unit."""
        unit = queue.any_unit(number)
        extent = None if unit is None or unit.kind is not UnitKind.LOST else self._store.log.extent_at(unit.position)
        return None if extent is None else extent.stop

    def _of_unit(self, queue: Queue, number: int) -> int | None:
        unit = queue.unit(number)
        header = None if unit is None else self._store.log.header(unit.position)
        return None if header is None else header.store_timestamp


def _is_before(found: int | None, time: int) -> bool:
    return found is not None and found < time
