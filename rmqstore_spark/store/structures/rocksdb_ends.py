"""The outer records of many queues in RocksDB, and further ones that are asked for: in one walk in the order of
keys."""

import bisect
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native_io import UnitKind
from rmqstore_spark.store.format.queue_block import UNIT_SIZE, QueueBlock
from rmqstore_spark.store.format.stretches import numbers_in
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.rocksdb_queues import RocksDBQueue
from rmqstore_spark.store.structures.rocksdb_units import Page

_POSITION_SIZE = 8  # bytes that a unit begins with

_Longs = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]

_NO_UNITS: _Bytes = np.zeros((0, UNIT_SIZE), np.uint8)


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
    ends = _Ends(starts, asked, width, begin)
    named = sorted((queue.prefix, row, queue) for row, queue in enumerate(queues) if isinstance(queue, RocksDBQueue))
    at = 0
    while at < len(named):
        page = named[at][2].first_page
        stop = len(named) if page.stop is None else bisect.bisect_left(named, (page.stop,), lo=at + 1)
        ends.add(page, named[at:stop])
        at = stop
    return ends.found()


class _Ends:
    """Ends as they are found, page by page. Arguments are those of record_ends().

    Large because what is found on each page waits in a list for each array of the answer.
    """

    def __init__(self, starts: _Longs, asked: _Longs, width: int, begin: int) -> None:
        self._starts = starts
        self._asked = asked
        self._width = width
        self._begin = begin
        self._rows = [np.zeros((4, 0), np.int64)]  # of queues: index, numbers of both ends, records
        self._first: list[_Bytes] = [_NO_UNITS]
        self._last: list[_Bytes] = [_NO_UNITS]
        self._numbers = [np.zeros(0, np.int64)]  # indices of asked numbers
        self._units: list[_Bytes] = [_NO_UNITS]

    def add(self, page: Page, named: list[tuple[bytes, int, RocksDBQueue]]) -> None:
        """Add those of some queues that have all their records on a page, without holes.

        Args:
            named: each with the bytes that its keys begin with, and its index.
        """
        index = {prefix: at for at, prefix in enumerate(page.prefixes)}
        if page.prefixes and not page.has_all(page.prefixes[-1]):
            del index[page.prefixes[-1]]
        some = [(row, at, queue) for prefix, row, queue in named if (at := index.get(prefix)) is not None]
        which = np.array([at for _, at, _ in some], np.int64)
        starts, stops = page.starts[which], page.ends[which]
        least, most = page.numbers[starts], page.numbers[stops - 1]
        are_whole = most - least == stops - starts - 1
        bounds = zip(are_whole.tolist(), some, least.tolist(), (most + 1).tolist(), strict=True)
        kept = np.array([whole and queue.has_bounds(*ends) for whole, (_, _, queue), *ends in bounds], np.bool_)
        rows = np.array([row for row, _, _ in some], np.int64)
        rows, starts, stops, least, most = (of[kept] for of in (rows, starts, stops, least, most))
        first = self._first_inside(page, starts, stops)
        units = page.units[np.maximum(first, 0)]
        units[first < 0] = 0
        self._first.append(units)
        self._last.append(page.units[stops - 1])
        self._rows.append(np.stack([rows, least + np.where(first < 0, 0, first - starts), most, stops - starts]))
        self._look_up(page, rows, starts, stops)

    def _first_inside(self, page: Page, starts: _Longs, stops: _Longs) -> _Longs:
        """Of each queue the record on a page that is the first, among `width`, to point into the log; -1 where there is
        none."""
        first = starts.copy()
        for at in np.flatnonzero(_positions(page.units[starts]) < self._begin).tolist():
            start, stop = int(starts[at]), int(stops[at])
            inside = np.flatnonzero(_positions(page.units[start : min(stop, start + self._width)]) >= self._begin)
            first[at] = start + int(inside[0]) if len(inside) else -1
        return first

    def _look_up(self, page: Page, rows: _Longs, starts: _Longs, stops: _Longs) -> None:
        """Add the records of these queues that are asked for."""
        begins, counts = self._starts[rows], self._starts[rows + 1] - self._starts[rows]
        of = np.repeat(np.arange(len(rows)), counts)
        numbers = numbers_in(begins, counts)
        places = starts[of] + self._asked[numbers] - page.numbers[starts[of]]
        are_there = (places >= starts[of]) & (places < stops[of])
        units = np.zeros((len(numbers), UNIT_SIZE), np.uint8)
        units[are_there] = page.units[places[are_there]]
        self._numbers.append(numbers)
        self._units.append(units)

    def found(self) -> RecordEnds:
        """All of them but those whose outer records stand for no message."""
        rows, of_first, of_last, counts = np.concatenate(self._rows, axis=1)
        heads = np.concatenate(self._first)
        first, last = QueueBlock.of(heads.tobytes()), QueueBlock.of(np.concatenate(self._last).tobytes())
        for block, numbers in ((first, of_first), (last, of_last)):
            block.numbers = block.queue_offsets = numbers
        are_none = ~heads.any(axis=1)
        are_sure = last.are_messages & (first.are_messages | are_none)
        units = QueueBlock.of(np.concatenate(self._units).tobytes())
        places = np.where(units.are_messages, (units.positions, units.sizes), -1)
        assert (first.kinds[are_none] == UnitKind.NOTHING).all()
        return RecordEnds(
            rows[are_sure],
            first.only(are_sure),
            last.only(are_sure),
            counts[are_sure],
            np.concatenate(self._numbers),
            places,
        )


def _positions(units: _Bytes) -> _Longs:
    """The physical offsets that units begin with."""
    return np.ascontiguousarray(units[:, :_POSITION_SIZE]).view(">i8")[:, 0].astype(np.int64)
