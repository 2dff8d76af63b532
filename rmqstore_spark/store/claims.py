"""What queues claim of bytes of the log that are no message: the units that point exactly there.

A search along each queue answers for one physical offset. Where a long part of the log's end is damaged there are many
such offsets, so once the searches have cost as much as reading all queues would, that is done: of the queues whose
physical offsets ascend without an exception, the units that point into the next part of the segment are put in order,
and answer for all that follow there. In the others each offset is searched for.
"""

import bisect
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native_io import FORMAT
from rmqstore_spark.kept import kept
from rmqstore_spark.store.format.message import Head
from rmqstore_spark.store.format.queue_block import QueueBlock
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.queue_cursor import QueueCursor
from rmqstore_spark.store.structures.queues import ConsumeQueues
from rmqstore_spark.store.structures.segments import Segment, index_of

_SEARCH = 256 * 1024  # bytes of queues that are read in about the time of a search in one
_FEW = 8  # searches in each queue
_PART = 32 * 1024 * 1024  # bytes of the log for which units, of 32 bytes and more, are in memory
_MOST_KNOWN = 1024  # answers that are kept: the last ones are asked for again

_Longs = npt.NDArray[np.int64]


class Claim(NamedTuple):
    """What a queue says of a message."""

    size: int
    queue_id: int
    queue_offset: int


class ClaimSearch:
    """Finds what the queues of a store claim.

    Args:
        queues: the queues. All of them are searched.
        segments: the store's segments, by start.
        files: how to reach the log.
    """

    def __init__(self, queues: ConsumeQueues, segments: Sequence[Segment], files: Files) -> None:
        self._queues = queues
        self._segments = segments
        self._files = files
        self._known: dict[int, list[Claim]] = {}  # by physical offset, once all queues were searched
        self._spent = 0  # bytes that could have been read instead of searching
        self._table = _Table(range(0), np.zeros((4, 0), np.int64), {})

    def at(self, position: int, head: Head) -> Iterator[Claim]:
        """The claims on a message at a physical offset, in the order of the queues.

        Args:
            head: what is left of the message.
        """
        if position in self._known:
            yield from self._known[position]
            return
        if position not in self._table.positions and self._is_worth_reading():
            self._table, self._spent = self._read(position), 0
        claims = []
        found = self._looked_up if position in self._table.positions else self._sought
        for claim in found(position, head):
            claims.append(claim)
            yield claim
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[position] = claims

    def _is_worth_reading(self) -> bool:
        """Have searches cost as much as reading all queues would? Where a queue ends is asked only after some."""
        return self._spent > _FEW * _SEARCH * len(self._every) and self._spent > self._to_read

    @kept
    def _every(self) -> list[Queue]:
        """The queues, in the order of their claims."""
        return self._queues.every

    @kept
    def _to_read(self) -> int:
        """About the bytes of all queues."""
        return sum((queue.end - queue.first) * queue.unit_size for queue in self._every)

    def _sought(self, position: int, head: Head) -> Iterator[Claim]:
        for queue in self._every:
            self._spent += _SEARCH
            if (claim := self._of_queue(queue, position, head)) is not None:
                yield claim

    def _of_queue(self, queue: Queue, position: int, head: Head) -> Claim | None:
        """What a queue claims; None where it has no message there."""
        found = QueueCursor(queue).seek(position)
        likely = [head.queue_offset] if queue.queue_id == head.queue_id and queue.is_by_offset else []
        for number in itertools.chain(likely, [found], self._past_left_over(queue, position, found)):
            unit = queue.unit(number)
            if unit is not None and unit.position == position and unit.size >= FORMAT["SMALLEST_UNIT"]:
                return Claim(unit.size, queue.queue_id, unit.queue_offset)
        return None

    def _past_left_over(self, queue: Queue, position: int, number: int) -> Iterator[int]:
        """QueueCursor.seek() among the queue's units whose messages the log has, for where units left over from a
        truncated log mislead the cursor.

        Args:
            number: what the cursor has found.
        """
        if number > queue.first and not self._has(queue, number - 1, position):
            units = range(number)
            yield bisect.bisect_left(units, True, lo=queue.first, key=lambda n: not self._has(queue, n, position))

    def _has(self, queue: Queue, number: int, position: int) -> bool:
        """Does a queue's unit stand for a message before a physical offset that the log has, or has had?"""
        unit = queue.unit(number)
        if unit is None or unit.position < self._segments[0].start:
            return True  # None: before the queue's first message
        if unit.position >= position:
            return False
        index = index_of(self._segments, unit.position)
        if index is None:
            return True
        with SegmentReader(self._segments[index], self._files) as reader:
            return reader.has_message(queue, unit.queue_offset, unit)

    # ---- many

    def _read(self, position: int) -> "_Table":
        """The table of what the queues say of a part of a segment from a physical offset on."""
        index = index_of(self._segments, position)
        positions = range(position, position if index is None else min(self._segments[index].end, position + _PART))
        parts, others = [np.zeros((4, 0), np.int64)], dict[int, Queue]()
        for number, queue in enumerate(self._every):
            found = _pointing_into(queue, positions)
            if found is None:
                others[number] = queue
            else:
                parts.append(np.stack([found.positions, found.sizes, found.queue_offsets, np.full(len(found), number)]))
        units = np.concatenate(parts, axis=1)
        return _Table(positions, units[:, np.lexsort((units[3], units[0]))], others)

    def _looked_up(self, position: int, head: Head) -> Iterator[Claim]:
        first, stop = np.searchsorted(self._table.units[0], (position, position + 1))
        found = {
            number: Claim(size, self._every[number].queue_id, offset)
            for _, size, offset, number in self._table.units[:, first:stop].T.tolist()
            if size >= FORMAT["SMALLEST_UNIT"]
        }
        for number in sorted({*found, *self._table.others}):
            claim = found.get(number) or self._of_queue(self._every[number], position, head)
            if claim is not None:
                yield claim


class _Table(NamedTuple):
    """What queues say of a part of the log.

    Attributes:
        positions: the physical offsets of the part.
        units: rows: positions, sizes and queue offsets of units, and their queue's number; ascending positions.
        others: by number, the queues that have to be searched.
    """

    positions: range
    units: _Longs
    others: dict[int, Queue]


def _pointing_into(queue: Queue, positions: range) -> QueueBlock | None:
    """The units that point into a part of the log; None where physical offsets do not ascend all along the queue, or
    something else than messages is among them, so that a search in it could find something else."""
    found, newest, is_over, number = [QueueBlock.of(b"")], -1, False, queue.first
    for block in queue.blocks(queue.first):
        number = int(block.numbers[-1]) + 1
        used = block.only(block.are_used)
        if len(used) and (is_over or not block.are_used[: len(used)].all()):
            return None
        is_over |= len(used) < len(block)
        units = used.only(used.are_messages)
        if (newest >= 0 and len(units) < len(used)) or not used.are_messages[len(used) - len(units) :].all():
            return None
        if len(units) and (units.positions[0] <= newest or not (np.diff(units.positions) > 0).all()):
            return None
        newest = int(units.positions[-1]) if len(units) else newest
        found.append(units.only((units.positions >= positions.start) & (units.positions < positions.stop)))
    return QueueBlock.joined(found) if number >= queue.end else None
