"""The search for the bounds of one queue, whatever its outer units point to.

Mostly the log has the message of a queue's last unit, and the queue ends after it. Otherwise the end is searched
backwards from there: first for a unit whose message is live, in doubling steps, then for the border between that unit
and the left-over ones (store/unit_evidence.py). Damaged messages at the end keep their places, as those in the middle
do: a group may have consumed them.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from native_io import UnitKind
from rmqstore_spark.store.evidence import Evidence
from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.format.queue_block import QueueBlock, QueueUnit
from rmqstore_spark.store.structures.consumequeue import FEW_UNITS, Queue
from rmqstore_spark.store.structures.queue_cursor import QueueCursor
from rmqstore_spark.store.unit_evidence import UnitEvidence

_UNITS_TO_TRY = 1024  # units from the first one on, until the log confirms one


@dataclass(frozen=True)
class QueueBounds:
    """The bounds of a queue's messages.

    Attributes:
        least: queue offset of the first message that exists; `end` where there is none.
        end: the queue offset after the last message, which may be damaged.
        first, last: the first and the last whole message; None where there is none. The messages of a light queue are
            of another topic.
        numbers: the unit numbers from the first message's to the last message's.
    """

    queue: Queue
    least: int
    end: int
    first: Header | None = None
    last: Header | None = None
    numbers: range = range(0)


class Outer(NamedTuple):
    """The outer units of a queue.

    Attributes:
        first: the first unit that points into the log, among those that one small read shows; None where there is none.
        last: the last unit in use, whatever it stands for; None where no unit is in use.
        is_all: whether the small read shows all of the queue.
    """

    first: QueueUnit | None
    last: QueueUnit | None
    is_all: bool = True


def searched(queue: Queue, outer: Outer, evidence: UnitEvidence) -> QueueBounds:
    """The bounds of a queue, given its outer units; the end is searched where the last one's message is not live."""
    if outer.last is None:
        return QueueBounds(queue, queue.first, queue.first)
    last, end = outer.last, outer.last.end
    header = evidence.message(queue, last)
    has_expired = outer.is_all and outer.first is None and last.position < evidence.begin
    if header is not None:
        end = evidence.settled(queue, last).end
    elif not has_expired:
        found, end = _Tail(queue, evidence).find(last.number + 1)
        if found is not None:
            last, header = found, evidence.message(queue, found)
    if header is None:  # no message is whole
        return QueueBounds(queue, end, end)
    for unit in _from_first(queue, outer.first, last, evidence.begin):
        first = evidence.message(queue, unit)
        if first is not None:
            return QueueBounds(queue, unit.queue_offset, end, first, header, range(unit.number, last.number + 1))
    return QueueBounds(queue, last.queue_offset, end, header, header, range(last.number, last.number + 1))


def _from_first(queue: Queue, first: QueueUnit | None, last: QueueUnit, begin: int) -> Iterator[QueueUnit]:
    """Units in order, from the first one that points into the log."""
    if first is not None and first.number <= last.number:
        yield first
        start = first.number + 1
    else:
        start = QueueCursor(queue, last.number).seek(begin)
    blocks = queue.blocks(start, last.number, over_gaps=True)
    units = (unit for block in blocks for unit in block.only(block.are_messages & (block.positions >= begin)))
    yield from itertools.islice(units, _UNITS_TO_TRY)


class _Units:
    """The units of a queue, read a block at a time."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._blocks: dict[int, QueueBlock] = {}

    def at(self, number: int) -> QueueUnit | None:
        """The unit with a number; None where there is none."""
        block, index = divmod(number - self._queue.first, FEW_UNITS)
        if block not in self._blocks:
            self._blocks[block] = self._queue.block(self._queue.first + block * FEW_UNITS, FEW_UNITS)
        units = self._blocks[block]
        # Where the block ends early, a file before this unit is missing.
        return units[index] if index < len(units) else self._queue.any_unit(number)


class _Tail:
    """The end of a queue's live part, where the queue's last unit is not of a live message.

    A unit is decided if its message is live, or if something else stands in the message's place. Units of damaged
    messages are undecided: those beside the border count as the queue's, as long as their physical offsets ascend.
    """

    def __init__(self, queue: Queue, evidence: UnitEvidence) -> None:
        self._queue = queue
        self._evidence = evidence
        self._units = _Units(queue)

    def find(self, stop: int) -> tuple[QueueUnit | None, int]:
        """The last unit whose message is live, None where there is none; and the queue offset after the last unit that
        counts.

        Args:
            stop: the number after the last unit in use.
        """
        last = low = self._some_live(stop)
        number = self._queue.first - 1 if last is None else last.number
        refuted = top = stop
        while top - number > 1:
            middle = (number + top) // 2
            decided = next(((n, e) for n in range(middle, top) if (e := self._judge(n, low)) is not None), None)
            if decided is None:
                top = middle
            elif decided[1]:
                number = decided[0]
                low = self._units.at(number)
                last = low if self._is_live(number) else last
            else:
                refuted, top = decided[0], middle
        return last, self._after(low, number + 1, refuted)

    def _some_live(self, stop: int) -> QueueUnit | None:
        """The last live unit that doubling steps back from a number come upon."""
        number, step = stop - 1, 1
        while not self._is_live(number):
            if number == self._queue.first:
                return None
            number, step = max(self._queue.first, number - step), 2 * step
        return self._units.at(number)

    def _is_live(self, number: int) -> bool:
        unit = self._units.at(number)
        return unit is not None and self._evidence.message(self._queue, unit) is not None

    def _judge(self, number: int, low: QueueUnit | None) -> bool | None:
        """Does a unit belong to the queue (True), or is the unit left over (False)? None where neither is sure.

        Args:
            low: an earlier unit that belongs to the queue.
        """
        unit = self._units.at(number)
        after = low if low is not None and low.is_message else None
        if after is not None and unit is not None and unit.is_message and unit.position <= after.position:
            return False
        found = self._evidence.of(self._queue, unit, None if after is None else after.position)
        if found is Evidence.EXPIRED and after is not None and after.position >= self._evidence.begin:
            return False
        return {Evidence.LIVE: True, Evidence.EXPIRED: True, Evidence.LEFT_OVER: False}.get(found)

    def _end_of(self, unit: QueueUnit) -> int:
        """The queue offset after a unit that belongs to the queue."""
        is_live = self._evidence.message(self._queue, unit) is not None
        return (self._evidence.settled(self._queue, unit) if is_live else unit).end

    def _after(self, low: QueueUnit | None, start: int, refuted: int) -> int:
        """The queue offset after the last of the undecided units from a number on that still ascend: two messages do
        not begin at one place, but units of lost messages may."""
        end = self._end_of(low) if low is not None else self._queue.first
        before = low
        for number in range(start, refuted):
            unit = self._units.at(number)
            if unit is None or unit.kind is UnitKind.NOTHING:
                continue
            if before is not None and unit.position < before.position + (before.is_message and unit.is_message):
                break
            end, before = unit.end, unit
        return end
