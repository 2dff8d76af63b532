"""The outer records of many queues in RocksDB, and further ones that are asked for: in one walk in the order of
keys."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native_io import UnitKind
from rmqstore_spark.store.format.queue_block import UNIT_SIZE, QueueBlock
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.rocksdb_queues import RocksDBQueue
from rmqstore_spark.store.structures.rocksdb_units import Records

_POSITION_SIZE = 8  # bytes that a unit begins with
_NOTHING = bytes(UNIT_SIZE)

_Longs = npt.NDArray[np.int64]


class RecordEnds(NamedTuple):
    """The outer records of queues.

    Attributes:
        rows: the indices of the queues that were found; the others have to be looked at one by one.
        first: of each of these the first record, among `width`, that points into the log; one that is not in use where
            there is none.
        last: of each of these the last record.
        counts: how many records each of these has.
        numbers: the indices of those asked numbers that are of these queues.
        places: rows: positions and sizes of their messages; -1 where there is no message.
    """

    rows: _Longs
    first: QueueBlock
    last: QueueBlock
    counts: _Longs
    numbers: _Longs
    places: _Longs


def record_ends(queues: Sequence[Queue], starts: _Longs, asked: _Longs, width: int, begin: int) -> RecordEnds:
    """The outer records of queues that have all their records, without holes, on a page of the database.

    Args:
        queues: those that are in files are passed over.
        starts, asked: of each queue, where its asked numbers begin among all; and these.
        width: how many records are looked at for the first that points into the log.
        begin: the physical offset where the log begins.
    """
    bounds, ends = starts.tolist(), _Ends(width, begin)
    in_rocksdb = [(queue.prefix, row) for row, queue in enumerate(queues) if isinstance(queue, RocksDBQueue)]
    for _, row in sorted(in_rocksdb):
        queue = queues[row]
        assert isinstance(queue, RocksDBQueue)
        records = queue.on_a_page()
        if records is not None:
            ends.add(row, records, bounds[row], asked[bounds[row] : bounds[row + 1]])
    return ends.found()


class _Ends:
    """Ends as they are found."""

    def __init__(self, width: int, begin: int) -> None:
        self._width = width
        self._begin = begin
        self._rows: list[tuple[int, int, int, int]] = []  # of a queue: its index, the numbers of both ends, records
        self._first: list[bytes] = []
        self._last: list[bytes] = []
        self._asked: list[tuple[int, int]] = []  # where asked numbers begin among all, and how many
        self._units: list[npt.NDArray[np.uint8]] = []

    def add(self, row: int, records: Records, start: int, asked: _Longs) -> None:
        """Add a queue whose records have no holes.

        Args:
            start: where its asked numbers begin among all.
            asked: these numbers, ascending.
        """
        number, count, units = int(records.numbers[0]), len(records.numbers), records.units
        first: int | None = 0
        unit = units[0].tobytes()
        if int.from_bytes(unit[:_POSITION_SIZE], "big", signed=True) < self._begin:
            heads = np.ascontiguousarray(units[: self._width, :_POSITION_SIZE]).view(">i8")[:, 0]
            inside = np.flatnonzero(heads >= self._begin)
            first = int(inside[0]) if len(inside) else None
            unit = _NOTHING if first is None else units[first].tobytes()
        self._rows.append((row, number + (first or 0), number + count - 1, count))
        self._first.append(unit)
        self._last.append(units[-1].tobytes())
        if len(asked):
            at = asked - number
            if at[0] >= 0 and at[-1] < count:
                found = units[at]
            else:
                are_there = (at >= 0) & (at < count)
                found = np.zeros((len(at), UNIT_SIZE), np.uint8)
                found[are_there] = units[at[are_there]]
            self._asked.append((start, len(at)))
            self._units.append(found)

    def found(self) -> RecordEnds:
        """All of them but those whose outer records stand for no message."""
        rows, of_first, of_last, counts = np.array(self._rows, np.int64).reshape(-1, 4).T
        first, last = QueueBlock.of(b"".join(self._first)), QueueBlock.of(b"".join(self._last))
        for block, numbers in ((first, of_first), (last, of_last)):
            block.numbers = block.queue_offsets = numbers
        are_none = np.array([unit == _NOTHING for unit in self._first], np.bool_)
        are_sure = last.are_messages & (first.are_messages | are_none)
        starts, sizes = np.array(self._asked, np.int64).reshape(-1, 2).T
        numbers = np.arange(sizes.sum()) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
        units = QueueBlock.of(np.concatenate([np.zeros((0, UNIT_SIZE), np.uint8), *self._units]).tobytes())
        places = np.where(units.are_messages, (units.positions, units.sizes), -1)
        assert (first.kinds[are_none] == UnitKind.NOTHING).all()
        return RecordEnds(
            rows[are_sure],
            first.only(are_sure),
            last.only(are_sure),
            counts[are_sure],
            numbers,
            places,
        )
