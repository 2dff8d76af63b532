"""What the ConsumeQueues know of a piece of the log: where its messages are, queue by queue, and which bytes no queue
knows.

This is what makes them safe to rely on. A queue can be missing, cut, behind or full of old units, and does not say so.
But a broker puts every message into a queue, so the units of *all* queues in a piece must cover it without gaps or
overlaps. Where they do, no message is missing in any queue; the gaps are looked at in the log itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from rmqstore_spark.store.consumequeue import Queue, QueueUnits


@dataclass(frozen=True)
class Coverage:
    """What the queues know of [start, stop).

    Attributes:
        units: the units in it of each queue that was asked for, by its number.
        gaps: the parts that no queue knows, as (start, stop), growing.
    """

    units: dict[int, QueueUnits]
    gaps: list[tuple[int, int]]


class QueueCursors:
    """Walks along all queues of a store, piece by piece.

    Attributes:
        queues: the queues; a queue's place here is its number.
    """

    def __init__(self, queues: Iterable[Queue]) -> None:
        self.queues = list(queues)
        self._reached: tuple[int, list[int]] | None = None  # a physical offset, and each queue's first unit from there

    def cover(self, start: int, stop: int, wanted: set[int]) -> Coverage | None:
        """What the queues know of the physical offsets [start, stop), or None when they contradict each other.

        Args:
            start: a unit's start.
            stop: a unit's start, the log's end, or a segment's end: a gap reaches to it then.
            wanted: which queues' units to keep.
        """
        firsts = self._numbers_at(start)
        behind: list[int] = []
        kept: dict[int, QueueUnits] = {}
        known, furthest = 0, start
        for place, queue in enumerate(self.queues):
            units, number = queue.units(firsts[place], stop)
            behind.append(number)
            if not _is_sound(units, start, stop):
                return None
            if place in wanted:
                kept[place] = units
            if len(units.positions) and not queue.is_lmq:
                known += int(units.sizes.sum(dtype=np.int64))
                furthest = max(furthest, int(units.positions[-1]) + int(units.sizes[-1]))
        self._reached = stop, behind
        if known == furthest - start:
            return Coverage(kept, [(furthest, stop)] if furthest < stop else [])
        gaps = _gaps(
            [queue.units(first, stop)[0] for queue, first in zip(self.queues, firsts, strict=True)], start, stop
        )
        return None if gaps is None else Coverage(kept, gaps)

    def _numbers_at(self, position: int) -> list[int]:
        if self._reached is None or self._reached[0] != position:
            self._reached = position, [queue.search(position) for queue in self.queues]
        return self._reached[1]


def _is_sound(units: QueueUnits, start: int, stop: int) -> bool:
    """Do the units lie in [start, stop), one behind the other?"""
    if not len(units.positions):
        return True
    ends = units.positions + units.sizes
    in_order = bool((units.positions[1:] >= ends[:-1]).all())
    return in_order and bool(units.positions[0] >= start) and bool(ends[-1] <= stop)


def _gaps(parts: list[QueueUnits], start: int, stop: int) -> list[tuple[int, int]] | None:
    """What is between the units; None when two different ones overlap."""
    spans = [np.stack([units.positions, units.positions + units.sizes]) for units in parts]
    begins, ends = np.concatenate([np.empty((2, 0), np.int64), *spans], axis=1)
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], ends[order]
    # A message in several queues (multi-dispatch) is known several times.
    again = (begins[1:] == begins[:-1]) & (ends[1:] == ends[:-1])
    first = np.insert(~again, 0, values=True)[: len(begins)]
    begins, ends = np.append(begins[first], stop), np.insert(ends[first], 0, start)
    if (begins < ends).any():
        return None
    return [(int(ends[i]), int(begins[i])) for i in np.flatnonzero(begins > ends)]
