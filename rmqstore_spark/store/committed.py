"""What of a log of entries may still be taken back: what a node has beyond the entries that it noted as committed.

A node that starts takes all entries that go on from each other for its log, whatever it had written down, so they are
read by default. Other nodes decide whether they stay.
Source: io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore.recover(), persistCheckPoint().
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.entries import Marks
from rmqstore_spark.store.structures.segments import Segment

Opener = Callable[[Segment], SegmentReader]


class Uncommitted(NamedTuple):
    """The entries at the end of a log that a node does not say to be committed.

    Attributes:
        marks: what the node had written down.
        last: the number of the log's last entry.
    """

    marks: Marks
    last: int

    @property
    def behind_committed(self) -> int:
        """The number of entries behind committedIndex."""
        return max(self.last - self.marks.committed, 0)

    @property
    def behind_end(self) -> int:
        """The number of entries behind endIndex."""
        return max(self.last - self.marks.end, 0)

    def __str__(self) -> str:
        return (
            f"entries up to index {self.last}: {self.behind_committed} behind committedIndex {self.marks.committed}, "
            f"{self.behind_end} behind endIndex {self.marks.end}"
        )


def has_order(segment: Segment) -> bool:
    """Has a segment entries that are ordered by index and term?"""
    return segment.wrapping is not None and segment.wrapping.at_order is not None


def end_of_entry(segments: Sequence[Segment], number: int, end: int, opened: Opener) -> int:
    """The physical offset where the last message ends whose entry has at most this number; the end of the ordinary log
    before the entries where there is none.

    Args:
        segments: the log's, by start.
        end: where the log ends.
    """
    ordered = [segment for segment in segments if has_order(segment) and segment.start < end]
    for segment in reversed(ordered):
        with opened(segment) as reader:
            first = reader.header(segment.start)
            entry = None if first is None or first.position >= end else reader.entry(first)
            if entry is not None and entry.number <= number:
                return _end_in(reader, number, end)
    return ordered[0].start if ordered else end


def _end_in(reader: SegmentReader, number: int, end: int) -> int:
    """end_of_entry() in a segment whose first entry has at most this number."""
    found = at = reader.segment.start
    while at < end and (run := reader.run_at(at, min(end, reader.segment.end))) is not None:
        headers = run.headers()
        last = reader.entry(headers[-1])
        if last is None or last.number > number:
            for header in headers:
                entry = reader.entry(header)
                if entry is not None and entry.number > number:
                    return found
                found = header.position + header.size
        found = at = headers[-1].position + headers[-1].size
    return found
