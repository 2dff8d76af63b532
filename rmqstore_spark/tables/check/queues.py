"""Queues by themselves: their files, holes between their units, and units after those of messages."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from rmqstore_spark.selection import ALL
from rmqstore_spark.store.consumequeue import Queue, QueueUnit
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.tables.check.log_view import LogView
from rmqstore_spark.tables.check.problems import Finding
from rmqstore_spark.tables.check.queue_units import Candidate, extra_units, place_of, unconfirmed
from rmqstore_spark.tables.consumequeue import QueuePart, used_units

_OPEN = 1 << 62


@dataclass(frozen=True)
class QueuesPart:
    """Some queues.

    Attributes:
        queues: what of them.
        sizes: bytes that a file should have, of simple queues and of those of BatchCQ topics.
    """

    queues: tuple[QueuePart, ...]
    sizes: tuple[int, int]


def check_queues(store: OpenStore, view: LogView, part: QueuesPart) -> Iterator[Finding]:
    """What is wrong with some queues that no message of the log tells."""
    extra: list[Candidate] = []
    holes: list[tuple[Queue, int, int]] = []
    for piece in part.queues:
        queue = store.queues.queue(piece.topic, piece.queue_id, piece.is_batch)
        if queue is None:
            continue
        if piece.first == 0:
            yield from _files(queue, part.sizes[piece.is_batch])
        offsets, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        last: int | None = None
        for found in used_units(queue, piece.first, piece.stop, ALL, store.files):
            base = found.units["base"].astype(np.int64) if queue.is_batch else found.numbers
            offsets.append(base)
            ends.append(base + (found.units["count"].astype(np.int64) if queue.is_batch else 1))
            last = int(found.numbers[-1])
            if queue.is_lmq:
                extra += _of_light(view, queue, found.numbers, found.units)
        before = piece.first if piece.first > 0 and not queue.is_batch else None
        holes += [(queue, first, stop) for first, stop in _holes(np.concatenate(offsets), np.concatenate(ends), before)]
        if piece.stop == _OPEN and last is not None and not queue.is_lmq:
            extra += unconfirmed(view, queue, last + 1)
    yield from extra_units(view, extra, view.end)
    yield from _gaps(view, holes)


def _of_light(view: LogView, queue: Queue, numbers: npt.NDArray[np.int64], units: Any) -> Iterator[Candidate]:
    """The units of a light queue that point to no message."""
    for number, unit in zip(numbers.tolist(), units.tolist(), strict=True):
        found = QueueUnit(*unit[:3])
        if found.position >= view.start and not view.is_of(queue, number, found):
            yield Candidate(queue, number, number, found, number + 1)


def _holes(
    offsets: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], before: int | None
) -> Iterator[tuple[int, int]]:
    """The queue offsets [first, stop) between units that no unit is for."""
    if before is not None and len(offsets):
        ends = np.concatenate([[before], ends])
        offsets = np.concatenate([[before], offsets])
    for at in np.flatnonzero(offsets[1:] > ends[:-1]).tolist():
        yield int(ends[at]), int(offsets[at + 1])


def _gaps(view: LogView, holes: list[tuple[Queue, int, int]]) -> Iterator[Finding]:
    """The holes for which there are no messages either; the others are found with these."""
    wanted: dict[tuple[str, int], set[int]] = {}
    for queue, first, stop in holes:
        wanted.setdefault((queue.topic, queue.queue_id), set()).update((first, stop - 1))
    present = view.present(wanted, view.start, view.end)
    for queue, first, stop in holes:
        if {first, stop - 1} & present.get((queue.topic, queue.queue_id), set()):
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


def _files(queue: Queue, size: int) -> Iterator[Finding]:
    """Files of another size, and those that are missing between others."""
    of_queue = partial(Finding, topic=queue.topic, queue_id=queue.queue_id)
    end = None
    for file in queue.in_files:
        start = file.first * queue.unit_size
        if file.size != size:
            yield of_queue("wrongQueueFileSize", file.path, expected=f"{size} bytes", found=f"{file.size} bytes")
        if end is not None and start != end:
            yield of_queue(
                "queueFileGap",
                file.path,
                queue_offset=end // queue.unit_size,
                expected=f"a file {end:020d} before it",
                found="none",
                count=max(1, (start - end) // size),
            )
        end = start + size
