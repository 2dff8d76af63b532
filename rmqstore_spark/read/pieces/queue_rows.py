"""Covering reads: rows made from ConsumeQueue units alone, 20 bytes a message, without the log.

Nothing proves the units, so covering reads are only for `trust=queues`. A full scan reads every byte of a message and
fails on a wrong one; a covering read cannot see a flipped byte in the log. Nor do units show messages that no queue has
(half messages of old brokers, messages of deleted topics), a directory under another queue's name, a unit that points
elsewhere, or units that a truncation has left over at a queue's end.
"""

import os
from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa

from native_io import QueueWalk
from rmqstore_spark.query.selection import ALL, EVERYTHING, Numbers, Selection
from rmqstore_spark.read.pieces.queue_claims import are_in, asked_queues
from rmqstore_spark.read.pieces.task import Covered
from rmqstore_spark.store.snapshot import StoreRef
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.queue_cursor import QueueCursor

# The columns that units have, with the bytes of a value; for texts, the bytes besides the text itself.
_COVERED = {"topic": 4, "queueId": 4, "queueOffset": 8, "commitLogOffset": 8, "storeSize": 4, "store": 4}
_BATCH_BYTES = 1024 * 1024
_LEAST_WIDTH = 16  # bytes of a row; with less, a batch of few columns would have very many rows
_READ_BYTES = 256 * 1024  # of a queue at a time: so many bytes stay in the processor's cache


def can_answer(columns: Collection[str], selection: Selection) -> bool:
    """Do units have all of these columns, and all fields that a selection tests?"""
    tested = ("topic", "assigned", "queue_id", "queue_offset", "offsets", "commit_log_offset", "explodes")
    names = [name for name in vars(EVERYTHING) if name not in tested]
    return set(columns) <= set(_COVERED) and all(
        getattr(selection, name) == getattr(EVERYTHING, name) for name in names
    )


class QueueRows:
    """Makes rows from ConsumeQueue units.

    Args:
        columns: the columns of the rows, in order.
        selection: the selected messages.
    """

    def __init__(self, columns: list[str], selection: Selection) -> None:
        self._columns = columns
        self._selection = selection
        self._queues: dict[StoreRef, list[Queue]] = {}

    def read(self, piece: Covered) -> Iterator[tuple[int, list[pa.Array]]]:
        """The number of rows and their columns, for some rows at a time, queue by queue."""
        if piece.store not in self._queues:
            self._queues[piece.store] = asked_queues(piece.store, self._selection)
        number, count = piece.share
        queues = self._queues[piece.store][number::count]
        rows = _Rows(self._columns, piece.store.root, queues)
        buffer = memoryview(bytearray(_READ_BYTES))
        start = None if piece.start <= piece.first else piece.start
        stop = None if piece.stop >= piece.last else piece.stop
        positions = self._selection.commit_log_offset & Numbers(piece.start, piece.stop - 1)
        wants_all = self._selection.wants_all_queues
        for queue in queues:
            offsets = ALL if wants_all else self._selection.queue(queue.topic, queue.queue_id)
            assert offsets is not None
            is_begun = False
            for at, units in queue.chunks(*QueueCursor(queue).around(start, stop), buffer=buffer):
                if not is_begun:
                    rows.begin(queue, at, positions, offsets)
                    is_begun = True
                done = rows.add(units)
                while rows.is_full:
                    yield rows.finish()
                    done += rows.add(units[done:])
                if done < len(units):  # the units after these are not used, or not in the piece
                    break
        if len(rows):
            yield rows.finish()


class _Rows:
    """The rows of a batch, up to the size that Spark moves best; then those of the next batch.

    Large because each column that rows can have grows in a field of its own.

    Args:
        columns: the columns of the batch.
        root: the value of column `store`.
        queues: the queues that units may come from.
    """

    def __init__(self, columns: list[str], root: str, queues: list[Queue]) -> None:
        self._columns = columns
        texts = {"topic": max((len(_topic(queue)) for queue in queues), default=0), "store": len(os.fsencode(root))}
        width = sum(_COVERED[name] + texts.get(name, 0) for name in columns)
        self._most = _BATCH_BYTES // max(width, _LEAST_WIDTH)
        self._root = pa.scalar(root)
        self._store, self._topic, self._queue_id = (_Repeated(self._most) for _ in range(3))
        self._walk = QueueWalk()
        self._renew()

    def _renew(self) -> None:
        self._positions, self._queue_offsets = np.empty(self._most, np.int64), np.empty(self._most, np.int64)
        self._sizes = np.empty(self._most, np.int32)
        self._walk.fill(self._positions, self._sizes, self._queue_offsets)
        self._runs: list[tuple[Queue, int]] = []  # the queues, each with its number of rows

    def __len__(self) -> int:
        return self._walk.rows

    @property
    def is_full(self) -> bool:
        """Is the batch full?"""
        return self._walk.rows == self._most

    def begin(self, queue: Queue, number: int, positions: Numbers, offsets: Numbers) -> None:
        """Begin a queue whose units come next, from unit `number` on.

        Args:
            positions: the selected commitLogOffsets, within bounds.
            offsets: the selected queueOffsets.
        """
        self._walk.begin(number, unit_size=queue.unit_size, start=positions.least, stop=positions.most + 1)
        self._queue, self._among, self._offsets = queue, positions.among, offsets

    def add(self, units: bytes | memoryview) -> int:
        """Add the next units of the queue; returns how many bytes of them are done. If bytes are left, the batch is
        full, or the queue is over."""
        done = 0
        while True:
            first = len(self)
            done += self._walk.take(units[done:]) * self._queue.unit_size
            was_full = self.is_full
            if self._offsets != ALL or self._among is not None:
                self._select(first)
            if len(self) > first:
                self._runs.append((self._queue, len(self) - first))
            if self.is_full or not was_full:
                return done

    def _select(self, first: int) -> None:
        """Leave out those rows from row `first` on that are not selected."""
        added = slice(first, len(self))
        keep = are_in(self._queue_offsets[added], self._offsets)
        if self._among is not None:
            keep &= are_in(self._positions[added], Numbers(among=self._among))
        kept = slice(first, first + int(np.count_nonzero(keep)))
        for values in (self._positions, self._sizes, self._queue_offsets):
            values[kept] = values[added][keep]
        self._walk.drop(added.stop - kept.stop)

    def finish(self) -> tuple[int, list[pa.Array]]:
        """The number of rows, and their columns. The next batch is empty."""
        count = len(self)
        arrays = [self._column(name, count) for name in self._columns]
        self._renew()
        return count, arrays

    def _column(self, name: str, count: int) -> pa.Array:
        match name:
            case "topic":
                return self._topics(count)
            case "queueId":
                return self._queue_ids(count)
            case "queueOffset":
                return pa.array(self._queue_offsets[:count])
            case "commitLogOffset":
                return pa.array(self._positions[:count])
            case "storeSize":
                return pa.array(self._sizes[:count])
            case _:
                return self._store.rows(self._root, count)

    def _queue_ids(self, count: int) -> pa.Array:
        ids = [queue.queue_id for queue, _ in self._runs]
        if len(set(ids)) == 1:
            return self._queue_id.rows(pa.scalar(ids[0], pa.int32()), count)
        return pa.array(np.repeat(np.array(ids, np.int32), [rows for _, rows in self._runs]))

    def _topics(self, count: int) -> pa.Array:
        if len({queue.topic for queue, _ in self._runs}) == 1:
            return self._topic.rows(pa.scalar(_topic(self._runs[0][0]).decode()), count)
        topics = [_topic(queue) for queue, _ in self._runs]
        rows = [rows for _, rows in self._runs]
        ends = np.zeros(count + 1, np.int32)
        np.cumsum(np.repeat(np.array([len(topic) for topic in topics], np.int32), rows), out=ends[1:])
        data = b"".join(topic * n for topic, n in zip(topics, rows, strict=True))
        return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(data))


class _Repeated:
    """One value in each row. The array is kept, as many successive batches have the same value.

    Args:
        most: the most rows of a batch.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: tuple[pa.Scalar, pa.Array] | None = None

    def rows(self, value: pa.Scalar, count: int) -> pa.Array:
        """An array of `count` rows."""
        if self._known is None or not self._known[0].equals(value):
            self._known = value, pa.repeat(value, self._most)
        return self._known[1].slice(0, count)


def _topic(queue: Queue) -> bytes:
    """The topic in UTF-8, with U+FFFD in the place of invalid bytes."""
    return os.fsencode(queue.topic).decode("utf-8", "replace").encode()
