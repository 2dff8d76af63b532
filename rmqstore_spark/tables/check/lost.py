"""Which messages damage in the log has taken: those whose queue units point there. Queues are all that knows it."""

import itertools
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from native_io import FORMAT
from rmqstore_spark.store.format.queue_block import QueueBlock
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.queue_cursor import QueueCursor
from rmqstore_spark.store.structures.queue_heads import QUEUES_AT_ONCE, short_queues
from rmqstore_spark.store.structures.segments import Damage
from rmqstore_spark.tables.check.problems import Finding
from rmqstore_spark.tables.check.waited import waited

UNKNOWN = "no queue has a unit for"  # in what is found, where it is unknown which messages are lost
_AT_ONCE = 16 * 1024  # holes in memory, of some 700 bytes each; for so many each queue is searched once

_Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Hole:
    """A damage of the log.

    Attributes:
        finding: what is said of it.
        header: the bytes that wrap each message there.
    """

    damage: Damage
    finding: Finding
    header: int = 0


class Holes:
    """Holes as a walk along the log meets them. No more of them are in memory than are told at once."""

    def __init__(self, store: Snapshot) -> None:
        self._store = store
        self._waiting: list[Hole] = []
        self._most = _AT_ONCE

    def add(self, hole: Hole) -> Iterator[Finding]:
        """Add the next hole, and tell those before where they are many."""
        self._waiting.append(hole)
        if len(self._waiting) >= self._most:
            told = yield from with_lost(self._store, self._waiting, goes_on=True)
            del self._waiting[:told]
            self._most = len(self._waiting) + _AT_ONCE

    def rest(self) -> Iterator[Finding]:
        """Tell those that are left: what follows is not damaged."""
        yield from with_lost(self._store, self._waiting)
        self._waiting, self._most = [], _AT_ONCE


@dataclass(frozen=True)
class _Run:
    """The units [first, stop) of a queue, which point into one hole."""

    queue: Queue
    all_units: QueueBlock
    first: int
    stop: int

    @property
    def units(self) -> QueueBlock:
        """These units."""
        return self.all_units.only(slice(self.first, self.stop))


def with_lost(store: Snapshot, holes: Sequence[Hole], goes_on: bool = False) -> Generator[Finding, None, int]:
    """The findings for holes, each followed by one for each queue's consecutive messages that were there.

    Args:
        holes: in the order of the log. One that begins where another ends may have the rest of a message.
        goes_on: whether more holes may follow. Then holes are left to be told with these from the first one on that has
            a message which may reach into them.

    Returns:
        the number of holes that were told.
    """
    if not holes:
        return 0
    by_hole, decided = _runs_in(store, holes)
    told = decided if goes_on else len(holes)
    for hole, runs in zip(holes[:told], by_hole, strict=False):
        some = [(run.queue, run.units) for run in runs]
        known = sum(int(units.sizes.sum()) + hole.header * len(units) for _, units in some)
        yield _with_lost_messages(hole, some, hole.damage.stop - hole.damage.start - known)
        if hole.finding.problem != "unwrittenEnd":
            for queue, units in some:
                yield from _of_queue(store, hole, queue, units)
    return told


def _with_lost_messages(hole: Hole, some: list[tuple[Queue, QueueBlock]], unknown: int) -> Finding:
    finding = hole.finding
    if not some:
        return replace(finding, found=f"{finding.found}; which messages are lost is unknown, {UNKNOWN} them")
    if finding.problem == "unwrittenEnd":  # one message
        queue, units = some[0]
        return replace(finding, topic=queue.topic, queue_id=queue.queue_id, queue_offset=int(units.queue_offsets[0]))
    if unknown >= FORMAT["SMALLEST_UNIT"]:  # in less, no message has space
        return replace(finding, found=f"{finding.found}; {UNKNOWN} {unknown} of these bytes")
    return finding


def _of_queue(store: Snapshot, hole: Hole, queue: Queue, units: QueueBlock) -> Iterator[Finding]:
    damage, is_in_file = hole.damage, hole.finding.file_position is not None
    ends = units.queue_offsets + units.messages
    edges = np.flatnonzero(units.queue_offsets[1:] != ends[:-1]) + 1
    for first, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(units)], strict=True):
        position, start, end = int(units.positions[first]), int(units.queue_offsets[first]), int(ends[stop - 1])
        known = waited(store, queue.topic, queue.queue_id, units.only(slice(first, stop)))
        yield Finding(
            "lostMessages",
            damage.path if is_in_file else None,
            damage.position + position - damage.start if is_in_file else None,
            position,
            queue.topic,
            queue.queue_id,
            start,
            "a message for each queueOffset",
            f"none from {start} to {end - 1}" + (f"; {known.text}" if known else ""),
            end - start,
        )


def _runs_in(store: Snapshot, holes: Sequence[Hole]) -> tuple[list[list[_Run]], int]:
    """For each hole, the units that point into it; and the number of holes before the first one with a unit whose
    message may reach into what follows the last hole."""
    by_hole: list[list[_Run]] = [[] for _ in holes]
    decided = len(holes)
    starts = np.array([hole.damage.start for hole in holes], np.int64)
    stops = np.array([hole.damage.stop for hole in holes], np.int64)
    # Where holes follow each other, the last one's end.
    ends = stops[np.append(np.flatnonzero(starts[1:] != stops[:-1]), len(stops) - 1)]
    ends = ends[np.searchsorted(ends, stops)]
    for queue, units in _near(store, store.queues.without_light(), int(starts[0]), int(stops[-1])):
        # Units that a truncation has left over point back.
        newest = np.maximum.accumulate(units.positions)
        which = np.searchsorted(starts, units.positions, "right") - 1
        begin_in = units.are_messages & (which >= 0) & (units.positions == newest) & (units.positions < stops[which])
        are_whole = units.positions + units.sizes <= ends[which]
        open_in = which[begin_in & ~are_whole & (ends[which] == stops[-1])]
        decided = min(decided, int(open_in.min(initial=decided)))
        found, of = units.only(begin_in & are_whole), which[begin_in & are_whole]
        edges = [0, *(np.flatnonzero(np.diff(of)) + 1).tolist(), len(of)] if len(of) else []
        for first, stop in itertools.pairwise(edges):
            by_hole[of[first]].append(_Run(queue, found, first, stop))
    return by_hole, decided


def _near(store: Snapshot, queues: list[Queue], start: int, stop: int) -> Iterator[tuple[Queue, QueueBlock]]:
    """Units of queues, with all that point into [start, stop)."""
    for begin in range(0, len(queues), QUEUES_AT_ONCE):
        some = queues[begin : begin + QUEUES_AT_ONCE]
        short, counts = short_queues(some, store.files)
        taken = 0
        for queue, count in zip(some, counts, strict=True):
            if count > 0:
                yield queue, short.only(slice(taken, taken + count))
                taken += count
            elif count < 0:
                first, after = QueueCursor(queue).around(start, stop)
                if found := list(queue.blocks(first, after)):
                    yield queue, QueueBlock.joined(found)
