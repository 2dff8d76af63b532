"""Which messages damage in the log has taken: those whose queue units point there. Queues are all that knows it."""

from collections.abc import Iterator, Sequence
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

_Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Hole:
    """A damage of the log.

    Attributes:
        finding: what is said of it.
        header: the bytes that wrap each message there.
    """

    damage: Damage
    finding: Finding
    header: int = 0


@dataclass(frozen=True)
class _Units:
    """The units of a queue that point into holes, by their queue offsets: those of one hole are a run of them."""

    queue: Queue
    units: QueueBlock
    holes: _Longs


def with_lost(store: Snapshot, holes: Sequence[Hole]) -> Iterator[Finding]:
    """The findings for holes, each followed by one for each queue's consecutive messages that were there.

    Args:
        holes: in the order of the log. One that begins where another ends may have the rest of a message.
    """
    if not holes:
        return
    by_hole: list[list[tuple[Queue, QueueBlock]]] = [[] for _ in holes]
    for found in _units_in(store, holes):
        for at in np.unique(found.holes).tolist():
            by_hole[at].append((found.queue, found.units.only(found.holes == at)))
    for hole, some in zip(holes, by_hole, strict=True):
        known = sum(int(units.sizes.sum()) + hole.header * len(units) for _, units in some)
        yield _with_lost_messages(hole, some, hole.damage.stop - hole.damage.start - known)
        if hole.finding.problem != "unwrittenEnd":
            for queue, units in some:
                yield from _of_queue(store, hole, queue, units)


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


def _units_in(store: Snapshot, holes: Sequence[Hole]) -> Iterator[_Units]:
    starts = np.array([hole.damage.start for hole in holes], np.int64)
    stops = np.array([hole.damage.stop for hole in holes], np.int64)
    # Where holes follow each other, the last one's end.
    ends = stops.copy()
    for at in range(len(ends) - 2, -1, -1):
        ends[at] = ends[at + 1] if stops[at] == starts[at + 1] else ends[at]
    for queue, units in _near(store, store.queues.without_light(), int(starts[0]), int(stops[-1])):
        # Units that a truncation has left over point back.
        newest = np.maximum.accumulate(units.positions)
        which = np.searchsorted(starts, units.positions, "right") - 1
        is_in = units.are_messages & (which >= 0) & (units.positions == newest)
        is_in &= (units.positions < stops[which]) & (units.positions + units.sizes <= ends[which])
        if is_in.any():
            yield _Units(queue, units.only(is_in), which[is_in])


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
