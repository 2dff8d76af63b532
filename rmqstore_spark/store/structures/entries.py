"""The order of entries that wrap units, as in a log of DLedger: the index ascends by one, the term never descends.

A log that was truncated keeps its old bytes until new entries stand there. Whole entries may follow the last live one,
even exactly where it ends, but their term is older: new entries are only written over old ones in a newer term. So the
first entry that does not go on from the one before it is where the log ends. A node that starts does the same.
Source: io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore.recover().
"""

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native_io import Wrapping
from rmqstore_spark.store.format.units import Run

_I64 = struct.Struct(">q")


class Entry(NamedTuple):
    """The place of an entry in the order of its log: its index and term."""

    number: int
    term: int

    def is_before(self, later: "Entry") -> bool:
        """May a later entry of the same log be that one?"""
        return self.number < later.number and self.term <= later.term


def entry_in(header: bytes | memoryview, wrapping: Wrapping, position: int, size: int) -> Entry | None:
    """The place of an entry, by its header; None where there is no such header, or its kind has no order.

    Args:
        position: the physical offset where the header begins.
        size: of the unit behind it.
    """
    if wrapping.at_order is None or wrapping.entry_size(header, position) != wrapping.header + size:
        return None
    index, term = (_I64.unpack_from(header, at)[0] for at in wrapping.at_order)
    return Entry(index, term)


class Marks(NamedTuple):
    """What a node has written down of its log, some time ago.

    Attributes:
        committed: the number of the last entry that it knew to be committed: that most nodes had; -1: none.
        end: the number of its last entry then; -1: none.
    """

    committed: int
    end: int


class EntryOrder:
    """Follows the entries of a log, run by run.

    Attributes:
        last: the last entry that goes on from the one before it; None before the first.
    """

    def __init__(self) -> None:
        self.last: Entry | None = None
        self._end = 0  # the physical offset where that entry ends

    def take(self, run: Run, wrapping: Wrapping, before: bytes | memoryview) -> int:
        """The number of units, from the first of a run on, whose entries go on from those before. Entries without a
        unit between them count by their length.

        Args:
            before: the bytes before the first unit, as many as a header has.
        """
        if wrapping.at_order is None:
            return len(run.positions)
        begins, units = run.positions - wrapping.header, run.positions - run.base
        sizes = _numbers(run.window, units, ">i4")
        first = entry_in(before, wrapping, int(begins[0]), int(sizes[0]))
        if self.last is not None and not self._goes_on_with(first, int(begins[0]), wrapping.header):
            return 0
        ends = run.positions + sizes
        index, term = (_numbers(run.window, units - wrapping.header + at, ">i8") for at in wrapping.at_order)
        index[0], term[0] = (index[min(1, len(index) - 1)] - 1, 0) if first is None else first
        empty, rest = np.divmod(begins[1:] - ends[:-1], wrapping.header)
        goes_on = (rest == 0) & (empty >= 0) & (index[1:] - index[:-1] == 1 + empty) & (term[1:] >= term[:-1])
        wrong = np.flatnonzero(~goes_on)
        count = len(begins) if len(wrong) == 0 else int(wrong[0]) + 1
        if first is not None or count > 1:  # a unit whose own header is damaged says nothing
            self.last = Entry(int(index[count - 1]), int(term[count - 1]))
        self._end = int(ends[count - 1])
        return count

    def skip(self, at: int, to: int, wrapping: Wrapping) -> None:
        """Go on at a physical offset `to`, the beginning of the next file, from `at`, where the blank of one begins."""
        if self.last is not None:
            self.last = self.last._replace(number=self.last.number + max(at - self._end, 0) // wrapping.header)
        self._end = to

    def _goes_on_with(self, first: Entry | None, position: int, header: int) -> bool:
        """Does an entry at a physical offset go on from the last one?"""
        if first is None or self.last is None:
            return False
        empty = (position - self._end) // header
        return first.number == self.last.number + 1 + empty and first.term >= self.last.term


def _numbers(data: memoryview, at: npt.NDArray[np.int64], kind: str) -> npt.NDArray[np.int64]:
    """Big-endian numbers at these places of a buffer; places before the buffer give what is at its beginning."""
    size = np.dtype(kind).itemsize
    places = np.maximum(at, 0)[:, None] + np.arange(size)
    return np.frombuffer(data, np.uint8)[places].view(kind)[:, 0].astype(np.int64)
