"""Queues by themselves: their files, holes between their units, and units after those of messages."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from native_io import UnitKind
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.query.selection import ALL
from rmqstore_spark.store.format.queue_block import QueueBlock
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.tables.check.log_view import LogView
from rmqstore_spark.tables.check.problems import Finding
from rmqstore_spark.tables.check.queue_units import Candidate, extra_units, place_of, unconfirmed
from rmqstore_spark.tables.consumequeue import QueuePart, fetch_ahead, used_units

_OPEN = 1 << 62


@dataclass(frozen=True)
class QueuesPart:
    """Some queues to check.

    Attributes:
        queues: the parts of these queues.
        sizes: the expected bytes of a file of queues of each form.
    """

    queues: tuple[QueuePart, ...]
    sizes: dict[str, int]


def check_queues(store: Snapshot, view: LogView, part: QueuesPart) -> Iterator[Finding]:
    """Problems of some queues that no message of the log shows."""
    seen = _Seen()
    found = [(piece, store.queues.named(piece.queue)) for piece in part.queues]
    some = [(piece, queue) for piece, queue in found if queue is not None]
    fetch_ahead(store.files, some)
    for piece, queue in some:
        try:
            if store.queues.is_passed_over(queue):
                yield Finding(
                    "strayFile",
                    queue.directory,
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    expected="a simple queue alone, as in consumequeue/",
                    found=f"files in {queue.directory_name}/ without a unit",
                )
            elif piece.first == 0:
                yield from _files(queue, part.sizes[queue.form], view.moment.is_unsettled)
            _look_along(store, view, queue, piece, seen)
        except RmqStoreError as why:
            if not any(view.moment.is_gone(why, file.path, store.files) for file in queue.on_disk):
                raise
    extra = [each for each in seen.extra if _stands(each)] if view.moment.is_unsettled else seen.extra
    yield from extra_units(view, extra, view.end)
    yield from _gaps(view, seen.holes)
    if seen.ahead:
        yield Finding(
            "aheadOfEnd",
            position=view.end,
            expected=f"units of messages before the log's end at {view.end}",
            found="later ones",
            count=seen.ahead,
        )


def ahead_of_log(view: LogView, queues: Iterable[Queue]) -> Iterator[Finding]:
    """Findings for simple queues whose last units know of messages after the log's end."""
    late = (queue for queue in queues if (last := queue.last()) is not None and last.position >= view.end)
    some = [each for queue in late for each in unconfirmed(view, queue, queue.end) if each.unit.position >= view.end]
    return extra_units(view, some, view.end)


@dataclass
class _Seen:
    """Units and holes that are found along queues.

    Attributes:
        extra: units that the log does not confirm.
        holes: queue offsets [first, stop) that have no unit.
        ahead: units at queues' ends of messages after the log's end, in a store that is not settled.
    """

    extra: list[Candidate] = field(default_factory=list)
    holes: list[tuple[Queue, int, int]] = field(default_factory=list)
    ahead: int = 0


def _look_along(store: Snapshot, view: LogView, queue: Queue, piece: QueuePart, seen: _Seen) -> None:
    units: list[QueueBlock] = []
    for found in used_units(queue, piece.first, piece.stop, ALL):
        units.append(found.units)
        if not queue.units_vouch:
            seen.extra += _each_unconfirmed(view, queue, found.units)
    used = QueueBlock.joined(units)
    before = queue.offset_at(piece.first) if piece.first > 0 else None
    seen.holes += [(queue, first, stop) for first, stop in _holes(used, before, view)]
    if piece.stop == _OPEN:
        count = len(used)
        if view.moment.is_unsettled:  # a broker may have added the rest meanwhile
            judged = np.flatnonzero(used.positions < view.end)
            count = int(judged[-1]) + 1 if len(judged) else 0
            seen.ahead += 0 if queue.is_additional else len(used) - count  # each message is counted once
        if count and queue.units_vouch:
            seen.extra += unconfirmed(view, queue, int(used.numbers[count - 1]) + 1)


def _stands(candidate: Candidate) -> bool:
    """Is a unit still there unchanged? A broker writes over units that a truncation has left over."""
    unit = candidate.queue.any_unit(candidate.unit.number)
    return unit is not None and unit.fields == candidate.unit.fields


def _each_unconfirmed(view: LogView, queue: Queue, units: QueueBlock) -> Iterator[Candidate]:
    """The units, each looked up by itself, that point to no message."""
    for unit in units:
        if view.moment.is_unsettled and unit.position >= view.end:
            continue
        if unit.position >= view.start and not view.is_of(queue, unit.queue_offset, unit):
            yield Candidate(queue, unit, unit.number + 1)


def _holes(used: QueueBlock, before: int | None, view: LogView) -> Iterator[tuple[int, int]]:
    """The queue offsets [first, stop) between units that have no unit. In a store that is not settled, messages after
    the log's end of that moment may have got their units in any order: a copier has overtaken the broker."""
    offsets, ends, positions = used.queue_offsets, used.queue_offsets + used.messages, used.positions
    if before is not None and len(offsets):
        ends = np.concatenate([[before], ends])
        offsets = np.concatenate([[before], offsets])
        positions = np.concatenate([[0], positions])
    are_holes = offsets[1:] > ends[:-1]
    if view.moment.is_unsettled:
        are_holes &= positions[1:] < view.end
    for at in np.flatnonzero(are_holes).tolist():
        yield int(ends[at]), int(offsets[at + 1])


def _gaps(view: LogView, holes: list[tuple[Queue, int, int]]) -> Iterator[Finding]:
    """Findings for the holes without messages; the other holes are found with their messages."""
    wanted: dict[tuple[str, int], set[int]] = {}
    for queue, first, stop in holes:
        wanted.setdefault((queue.topic, queue.queue_id), set()).update((first, stop - 1))
    present = view.present(wanted, view.start, view.end)
    for queue, first, stop in holes:
        if {first, stop - 1} & present.get((queue.topic, queue.queue_id), set()) or _are_passed(queue, first, stop):
            continue
        yield Finding(
            "queueGap",
            *place_of(queue, first),
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=first,
            expected="a unit for each queueOffset",
            found=f"none from {first} to {stop - 1}",
            count=stop - first,
        )


def _are_passed(queue: Queue, first: int, stop: int) -> bool:
    """Has a salvage filled these offsets with units that lead consumers over lost messages (queue_block.lost_unit)?"""
    for units in queue.blocks(first, stop):
        if (units.kinds != UnitKind.LOST).any():
            return False
        first += len(units)
    return first == stop


def _files(queue: Queue, size: int, is_unsettled: bool) -> Iterator[Finding]:
    """Files of a wrong size, and files that are missing between others. A file that a broker has just made, or was
    making when it was killed, may still be empty."""
    of_queue = partial(Finding, topic=queue.topic, queue_id=queue.queue_id)
    end = None
    for file in queue.on_disk:
        start = file.first * queue.unit_size
        is_new = is_unsettled and file.size == 0 and file is queue.on_disk[-1]
        if (file.size != size or not size) and not is_new:
            expected = f"{size} bytes" if size else "units"
            yield of_queue("wrongQueueFileSize", file.path, expected=expected, found=f"{file.size} bytes")
        if end is not None and start != end:
            yield of_queue(
                "queueFileGap",
                file.path,
                queue_offset=end // queue.unit_size,
                expected=f"a file {end:020d} before it",
                found="none",
                count=max(1, (start - end) // max(1, size)),
            )
        end = start + size
