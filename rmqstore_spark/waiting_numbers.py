"""Numbers that are looked up later, and of which there may be as many as a store has messages: beyond some, they wait
in temporary files (temporary.py).
"""

import itertools
import mmap
import os
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore_spark import temporary
from rmqstore_spark.sorting import Batches, begins, in_order
from rmqstore_spark.temporary import no_room_named, spooled

_PAIRS = 4096  # of a block
_BLOCKS = 64  # that are in memory, 4 MiB in all

_Longs = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


class WaitingNumbers:
    """Sets of numbers, each with a name. Many are in a file that is mapped: the system drops its pages when it needs
    memory, and they are given back after each search.

    Args:
        schema: of the rows: in the last column are the numbers, and the others name the set of each. None has a null.
        batches: the rows, in any order.

    Raises:
        StorageError: there is no room for temporary files.
    """

    def __init__(self, schema: pa.Schema, batches: Batches) -> None:
        self._ends: dict[tuple[Any, ...], tuple[int, int]] = {}
        self._map: mmap.mmap | None = None
        file, count = spooled(self), 0
        for name, some in _runs(schema, batches):
            with no_room_named():
                file.write(some.tobytes())
            self._ends[name] = self._ends.get(name, (count, count))[0], count + len(some)
            count += len(some)
        with no_room_named():
            if count * 8 > temporary.IN_MEMORY:
                file.flush()
                self._map = mmap.mmap(file.fileno(), count * 8, access=mmap.ACCESS_READ)
            else:
                file.seek(0)
            self._numbers: _Longs = np.frombuffer(self._map or file.read(), np.int64)

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, *name: Any) -> _Longs:
        """A set, ascending, each number once; empty where there is none of this name."""
        start, stop = self._ends.get(name, (0, 0))
        return self._numbers[start:stop]

    def are_in(self, values: _Longs, *name: Any) -> _Flags:
        """True for those of some numbers that a set has."""
        ordered = self.of(*name)
        if not len(ordered):
            return np.zeros(len(values), bool)
        at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
        found: _Flags = ordered[at] == values
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)
        return found


def _runs(schema: pa.Schema, batches: Batches) -> Iterator[tuple[tuple[Any, ...], _Longs]]:
    """Rows in order as runs of numbers, each with the name of its set; no number comes twice in a set."""
    *names, number = schema.names
    last: pa.Table | None = None
    for batch in in_order(schema, batches, [(name, "ascending") for name in schema.names]):
        rows = pa.Table.from_batches([batch] if last is None else [*last.to_batches(), batch])
        is_new = begins(rows, schema.names)
        is_new[: 0 if last is None else 1] = False  # given before
        last = rows.slice(max(0, len(rows) - 1))
        rows = rows.filter(pa.array(is_new)).combine_chunks()
        edges = [*np.flatnonzero(begins(rows, names)).tolist(), len(rows)] if names else [0, len(rows)]
        for start, stop in itertools.pairwise(dict.fromkeys([0, *edges])):
            name = tuple(rows[each][start].as_py() for each in names)
            yield name, rows[number].to_numpy()[start:stop]


class WaitingPairs:
    """Pairs of numbers, in the order of the first ones, in which they come. The second ones are found by the first."""

    def __init__(self) -> None:
        self._file = spooled(self)
        self._firsts = array("q")  # of each block in the file
        self._last = np.empty((0, 2), np.int64)  # pairs that are not in the file
        self._read: dict[int, npt.NDArray[np.int64]] = {}  # blocks that were read last

    def add(self, firsts: npt.NDArray[np.int64], seconds: npt.NDArray[np.int64]) -> None:
        """Add pairs whose first numbers are greater than all others."""
        self._last = np.concatenate([self._last, np.stack([firsts, seconds], axis=1)])
        while len(self._last) >= _PAIRS:
            block, self._last = self._last[:_PAIRS], self._last[_PAIRS:].copy()
            with no_room_named():
                self._file.seek(0, os.SEEK_END)
                self._file.write(block.tobytes())
            self._firsts.append(int(block[0, 0]))

    def seconds(self, firsts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The second numbers of pairs with these first ones; where there is no such pair, the number itself."""
        found = firsts.copy()
        numbers = np.searchsorted(np.frombuffer(self._firsts, np.int64), firsts, "right") - 1
        if len(self._last):
            numbers[firsts >= self._last[0, 0]] = len(self._firsts)
        for number in np.unique(numbers[numbers >= 0]).tolist():
            block, here = self._block(number), np.flatnonzero(numbers == number)
            at = np.minimum(np.searchsorted(block[:, 0], firsts[here]), len(block) - 1)
            found[here] = np.where(block[at, 0] == firsts[here], block[at, 1], firsts[here])
        return found

    def _block(self, number: int) -> npt.NDArray[np.int64]:
        if number == len(self._firsts):
            return self._last
        if number not in self._read:
            self._file.seek(number * _PAIRS * 16)
            if len(self._read) == _BLOCKS:
                self._read.pop(next(iter(self._read)))
            self._read[number] = np.frombuffer(self._file.read(_PAIRS * 16), np.int64).reshape(-1, 2)
        return self._read[number]
