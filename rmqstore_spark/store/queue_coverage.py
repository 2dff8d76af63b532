"""What the ConsumeQueues know of a piece of the log: where its messages are, queue by queue, and which bytes no queue
knows.

This is what makes them safe to rely on. A queue can be missing, cut, lag or be full of old units, and does not say so.
But a broker puts every message into a queue, so the units of *all* queues in a piece must cover it without gaps or
overlaps. Where they do, no message is missing in any queue; the gaps are looked at in the log itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqstore_spark.store.consumequeue import Queue, QueueUnits


@dataclass(frozen=True)
class Coverage:
    """What the queues know of [start, stop).

    Attributes:
        units: the units in it of each queue that was asked for, by its number.
        firsts: the first unit in it of each queue that has one, by its number; not of light message queues.
        gaps: the parts that no queue knows, as (start, stop), ascending.
    """

    units: dict[int, QueueUnits]
    firsts: dict[int, QueueUnits]
    gaps: list[tuple[int, int]]


class QueueCursors:
    """Walks along all queues of a store, piece by piece.

    Attributes:
        queues: the queues; a queue's index here is its number.
    """

    def __init__(self, queues: Iterable[Queue]) -> None:
        self.queues = list(queues)
        self._reached: tuple[int, list[int]] | None = None  # a physical offset, and each queue's first unit from there

    def cover(self, start: int, stop: int, asked: set[int]) -> Coverage | None:
        """What the queues know of the physical offsets [start, stop), or None when they contradict each other.

        Args:
            start: a unit's start.
            stop: a unit's start, the log's end, or a segment's end: a gap reaches to it then.
            asked: which queues' units to keep.
        """
        begins = self._numbers_at(start)
        following: list[int] = []
        kept: dict[int, QueueUnits] = {}
        firsts: dict[int, QueueUnits] = {}
        open_ends, furthest = 0, start
        for number, queue in enumerate(self.queues):
            units, next_unit = queue.units(begins[number], stop)
            following.append(next_unit)
            if not _is_sound(units, start, stop):
                return None
            if number in asked:
                kept[number] = units
            if len(units.positions) and not queue.is_lmq:
                firsts[number] = units.only(slice(1))
                ends = units.positions + units.sizes
                open_ends += _fingerprint(ends) - _fingerprint(units.positions)
                furthest = max(furthest, int(ends[-1]))
        self._reached = stop, following
        # Without gaps and overlaps each unit begins where another ends, all but the first and the last.
        bounds = _fingerprint(np.array([furthest])) - _fingerprint(np.array([start]))
        if (open_ends - bounds) % (1 << 64) == 0:
            return Coverage(kept, firsts, [(furthest, stop)] if furthest < stop else [])
        gaps = _gaps([self.queues[number].units(begins[number], stop)[0] for number in firsts], start, stop)
        return None if gaps is None else Coverage(kept, firsts, gaps)

    def _numbers_at(self, position: int) -> list[int]:
        if self._reached is None or self._reached[0] != position:
            self._reached = position, [queue.search(position) for queue in self.queues]
        return self._reached[1]


def _fingerprint(offsets: npt.NDArray[np.int64]) -> int:
    """A number that other offsets would hardly have, in whatever order they come. Of two sets it is the sum of theirs,
    modulo 2**64."""
    mixed = offsets.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> np.uint64(29)
    return int(mixed.sum(dtype=np.uint64))


def _is_sound(units: QueueUnits, start: int, stop: int) -> bool:
    """Do the units lie in [start, stop), one after the other?"""
    if not len(units.positions):
        return True
    if bool((units.positions >= stop).any()):  # and then no end is beyond what an int64 holds
        return False
    ends = units.positions + units.sizes
    in_order = bool((units.positions[1:] >= ends[:-1]).all())
    return in_order and bool(units.positions[0] >= start) and bool(ends[-1] <= stop)


def _gaps(parts: list[QueueUnits], start: int, stop: int) -> list[tuple[int, int]] | None:
    """What is between the units; None when two overlap."""
    spans = [np.stack([units.positions, units.positions + units.sizes]) for units in parts]
    begins, ends = np.concatenate([np.empty((2, 0), np.int64), *spans], axis=1)
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], ends[order]
    begins, ends = np.append(begins, stop), np.insert(ends, 0, start)
    if (begins < ends).any():
        return None
    return [(int(ends[i]), int(begins[i])) for i in np.flatnonzero(begins > ends)]
