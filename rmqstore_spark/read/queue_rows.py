"""Covering reads: rows made from ConsumeQueue units alone, 20 bytes a message, without the log.

Nothing vouches for them, so they are for who says `trust=queues`. A full scan reads every byte of a message and fails
on one that is wrong; whatever is known of the queues, a flipped byte in the log cannot be seen from them. Nor do they
tell of messages that no queue has (half messages of old brokers, those of deleted topics), of a directory under another
queue's name, of a unit that points elsewhere, or of what a truncation has left over at a queue's end.
"""

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore_spark.read.queue_claims import asked_queues
from rmqstore_spark.read.task import Covered
from rmqstore_spark.selection import ALL, EVERYTHING, Numbers, Selection
from rmqstore_spark.store.consumequeue import PRE_BLANK, Queue, parsed
from rmqstore_spark.store.opened import OpenStore

_COVERED = {"topic", "queueId", "queueOffset", "commitLogOffset", "storeSize", "store"}
BATCH_ROWS = 32 * 1024


class _Units(NamedTuple):
    """Units, as arrays of one length; `queue`: which one they are of, by its number."""

    position: npt.NDArray[np.int64]
    size: npt.NDArray[np.int32]
    queue_offset: npt.NDArray[np.int64]
    queue: npt.NDArray[np.int32]

    def with_those(self, others: "_Units") -> "_Units":
        """These, and others after them."""
        if not len(others.position):
            return self
        return _Units(*(np.concatenate(pair) for pair in zip(self, others, strict=True)))  # type: ignore[arg-type]

    def only(self, which: npt.NDArray[np.bool_]) -> "_Units":
        """Some of them."""
        return _Units(self.position[which], self.size[which], self.queue_offset[which], self.queue[which])


def can_answer(columns: Collection[str], selection: Selection) -> bool:
    """Do units have all of these columns, and all that a selection tests?"""
    tested = ("topic", "assigned", "queue_id", "queue_offset", "offsets", "commit_log_offset")
    names = [name for name in vars(EVERYTHING) if name not in tested]
    return set(columns) <= _COVERED and all(getattr(selection, name) == getattr(EVERYTHING, name) for name in names)


class QueueRows:
    """Makes rows of what ConsumeQueues say.

    Args:
        columns: of the rows, in their order.
        selection: which ones.
    """

    def __init__(self, columns: list[str], selection: Selection) -> None:
        self._columns = columns
        self._selection = selection
        self._queues: dict[OpenStore, list[Queue]] = {}
        self._reached: tuple[OpenStore, int, list[int]] | None = None  # a physical offset, and each queue's unit there

    def read(self, piece: Covered) -> Iterator[tuple[int, list[pa.Array]]]:
        """How many rows, and their columns: some at a time, queue by queue."""
        if piece.store not in self._queues:
            self._queues[piece.store] = asked_queues(piece.store, self._selection)
        queues = self._queues[piece.store]
        begins, ends = self._numbers(piece, queues, piece.start), self._numbers(piece, queues, piece.stop)
        self._reached = piece.store, piece.stop, ends
        parts = []
        for is_batch in (False, True):
            which = [number for number, queue in enumerate(queues) if queue.is_batch == is_batch]
            data = [b"".join(queues[i].chunks(begins[i], ends[i])) for i in which]
            parts.append(_units(data, np.array(which, np.int32), np.array(begins, np.int64)[which], is_batch))
        units = parts[0].with_those(parts[1])
        keep = self._mask(units, queues, Numbers(piece.start, piece.stop - 1))
        if not keep.all():
            units = units.only(keep)
        yield from self._rows(units, queues, piece)

    def _numbers(self, piece: Covered, queues: list[Queue], position: int) -> list[int]:
        """The number of each queue's first unit from a physical offset on."""
        if self._reached is not None and self._reached[:2] == (piece.store, position):
            return self._reached[2]
        if position <= piece.first:
            return [queue.first for queue in queues]
        if position >= piece.last:
            return [1 << 62] * len(queues)
        return [queue.search(position) for queue in queues]

    def _mask(self, units: _Units, queues: list[Queue], here: Numbers) -> npt.NDArray[np.bool_]:
        """Which of the units are selected."""
        keep = _are_in(units.position, self._selection.commit_log_offset & here)
        if self._selection.queue_offset != ALL or self._selection.offsets:
            for number, queue in enumerate(queues):
                offsets = self._selection.queue(queue.topic, queue.queue_id)
                assert offsets is not None
                keep &= (units.queue != number) | _are_in(units.queue_offset, offsets)
        return keep

    def _rows(self, units: _Units, queues: list[Queue], piece: Covered) -> Iterator[tuple[int, list[pa.Array]]]:
        of_queue = {
            "topic": pa.array([queue.topic for queue in queues], pa.string()),
            "queueId": pa.array([queue.queue_id for queue in queues], pa.int32()),
        }
        of_unit: dict[str, npt.NDArray[Any]] = {
            "queueOffset": units.queue_offset,
            "commitLogOffset": units.position,
            "storeSize": units.size,
        }
        store = pa.scalar(piece.store.root)
        for first in range(0, len(units.position), BATCH_ROWS):
            rows = slice(first, first + BATCH_ROWS)
            which = pa.array(units.queue[rows])
            columns = []
            for name in self._columns:
                if name in of_unit:
                    columns.append(pa.array(of_unit[name][rows]))
                elif name in of_queue:
                    columns.append(of_queue[name].take(which))
                else:
                    columns.append(pa.repeat(store, len(which)))
            yield len(which), columns


def _units(data: list[bytes], queues: npt.NDArray[np.int32], firsts: npt.NDArray[np.int64], is_batch: bool) -> _Units:
    """The used units of some queues, as far as they ascend.

    Args:
        data: of each queue, from its unit of the number in `firsts` on.
        queues: what each is called in the answer.
    """
    found = parsed(b"".join(data), is_batch)
    counts = np.array([len(part) for part in data], np.int64) // found.itemsize
    starts = np.cumsum(counts) - counts
    which = np.repeat(np.arange(len(data), dtype=np.int32), counts)
    position, size = found["position"].astype(np.int64), found["size"].astype(np.int32)
    base = found["base"].astype(np.int64) if is_batch else np.arange(len(found)) + np.repeat(firsts - starts, counts)
    units = _Units(position, size, base, queues[which])
    is_wrong = (size <= 0) | (position < 0)
    is_wrong[1:] |= (which[1:] == which[:-1]) & (position[1:] - position[:-1] < size[:-1])
    if not is_wrong.any():
        return units
    is_blank = (position == PRE_BLANK.position) & (size == PRE_BLANK.size)
    is_wrong[1:] &= ~is_blank[:-1] | (size[1:] <= 0)  # what comes after them begins anew
    wrong = np.cumsum(is_wrong)
    before = np.concatenate([[0], wrong])[starts]  # up to where each queue begins
    return units.only((wrong == before[which]) & ~is_blank)


def _are_in(values: npt.NDArray[np.int64], numbers: Numbers) -> npt.NDArray[np.bool_]:
    within: npt.NDArray[np.bool_] = (values >= numbers.least) & (values <= numbers.most)
    return within if numbers.among is None else within & np.isin(values, list(numbers.among))
