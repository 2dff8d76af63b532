"""The order of entries that wrap units, as in a log of DLedger: the index ascends by one, the term never descends.

A log that was truncated keeps its old bytes until new entries stand there. Whole entries may follow the last live one,
even exactly where it ends, but their term is older: new entries are only written over old ones in a newer term. So the
first entry that does not go on from the one before it is where the log ends. A node that starts does the same.
Source: io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore.recover().
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

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
    return order_in(header, wrapping) if wrapping.entry_size(header, position) == wrapping.header + size else None


def order_in(header: bytes | memoryview, wrapping: Wrapping) -> Entry | None:
    """The place that an entry's header says it has, whatever else it says; None where its kind has no order."""
    if wrapping.at_order is None or len(header) < wrapping.header:
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


class NotedEntry(NamedTuple):
    """What a node has noted of an entry beside the log.

    Attributes:
        entry: its place in the order.
        position, end: the physical offsets where it begins and ends.
    """

    entry: Entry
    position: int
    end: int


class EntryOrder:
    """Follows the entries of a log, run by run.

    Attributes:
        last: the last entry that goes on from the one before it; None before the first.
        end: the physical offset where that entry ends.
    """

    def __init__(self, last: Entry | None = None, end: int = 0) -> None:
        self.last = last
        self.end = end

    def take(self, run: Run, wrapping: Wrapping, before: Callable[[int, int], bytes | memoryview]) -> int:
        """The number of units, from the first of a run on, whose entries go on from those before. Entries without a
        unit between them count by their length.

        Args:
            before: the bytes at a physical offset, so many: asked for a header that the run does not show.
        """
        if wrapping.at_order is None:
            return len(run.positions)
        begin, end = int(run.positions[0]) - wrapping.header, None
        first = self.last
        if first is not None and begin >= run.base:  # the walk has compared the entry's size with the unit's
            end = self.end
        else:
            at = begin + wrapping.header - run.base
            size = int.from_bytes(run.window[at : at + 4], "big")
            first = entry_in(before(begin, wrapping.header), wrapping, begin, size)
            if self.last is not None and not self._goes_on_with(first, begin, wrapping.header):
                return 0
        count, last, self.end = wrapping.in_order(
            run.window, base=run.base, positions=run.positions, first=first, end=end
        )
        if last is not None:  # a unit whose own header is damaged says nothing
            self.last = Entry(*last)
        return count

    def skip(self, at: int, to: int, wrapping: Wrapping) -> None:
        """Go on at a physical offset `to`, the beginning of the next file, from `at`, where the blank of one begins."""
        if self.last is not None:
            self.last = self.last._replace(number=self.number_at(at, wrapping.header) - 1)
        self.end = to

    def number_at(self, position: int, header: int) -> int:
        """The number of the entry that goes on from the last one at a physical offset, behind entries without a unit,
        of so many bytes, if any."""
        assert self.last is not None
        return self.last.number + 1 + max(position - self.end, 0) // header

    def _goes_on_with(self, first: Entry | None, position: int, header: int) -> bool:
        """Does an entry at a physical offset go on from the last one?"""
        if first is None or self.last is None:
            return False
        return first.number == self.number_at(position, header) and first.term >= self.last.term
