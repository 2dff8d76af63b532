"""How much of a log a micro-batch reads: about so many bytes of it, and at most so many messages."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from native_io import Filter
from rmqstore_spark.query.selection import Selection
from rmqstore_spark.read.follow.edge import Reached, place_after
from rmqstore_spark.read.pieces.kernel_filter import kernel_filter
from rmqstore_spark.read.pieces.task import Range
from rmqstore_spark.read.plan.beside_index import may_lack_keys
from rmqstore_spark.read.plan.split import Splitter
from rmqstore_spark.store.format.by_queue import Integers
from rmqstore_spark.store.format.units import UNLIMITED, BatchBuilder, Budget
from rmqstore_spark.store.snapshot import as_snapshot
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.segments import Damage

_MOST_WALKED = 8 * 1024 * 1024  # bytes: for a unit's start farther off, the queues are asked
_MOST_COUNTED = 256 * 1024 * 1024  # bytes of log in which messages are counted for one batch
_ROWS_AT_ONCE = 16 * 1024


def cut_bytes(ranges: list[Range], most: int) -> Reached | None:
    """The end of a message about `most` bytes after the start of a part of a log; None where the part is no larger.

    Args:
        ranges: the part, in order.
        most: bytes; at least one message is read in any case.
    """
    left = most
    for whole in ranges:
        size = whole.stop - whole.start
        if left < size and (found := _cut_near(whole, max(1, left))) is not None:
            return None if whole is ranges[-1] and found.position >= whole.stop else found
        left -= size
    return None


def cut_messages(ranges: list[Range], selection: Selection, most: int) -> Reached | None:
    """The end of the last of `most` selected messages in a part of a log; None where the part has no more than that.
    Where selected messages are far between, there may be fewer before the end.

    Args:
        ranges: the part, in order.
        most: messages, at least 1.
    """
    chosen = kernel_filter(selection)
    explodes = bool(ranges) and may_lack_keys(as_snapshot(ranges[0].store), selection)
    before: Reached | None = None
    left, counted = most, 0
    for whole in ranges:
        size = whole.stop - whole.start
        if counted and counted + size > _MOST_COUNTED:
            return _cut_near(whole, 1)
        counted += size
        with whole.store.reader(whole.segment) as reader:
            for positions, counts in _counted(reader, whole, chosen) if explodes else _found(reader, whole, chosen):
                ends = np.cumsum(counts)
                if ends[-1] >= left:
                    # A batch is read as a whole, the first one even where it has more messages than that.
                    last = int(np.searchsorted(ends, left, "right")) - 1
                    if last < 0 and before is not None:
                        return before
                    end = place_after(reader, int(positions[max(last, 0)]))
                    return None if whole is ranges[-1] and end.position >= whole.stop else end
                left -= int(ends[-1])
                before = place_after(reader, int(positions[-1])) if explodes else None
    return None


def _found(reader: SegmentReader, whole: Range, chosen: Filter) -> Iterator[tuple[Integers, Integers]]:
    """The selected units of a range, run by run: where each begins, and 1 message for each."""
    for found in whole.store.past_damage(reader).select(whole.start, whole.stop, chosen):
        if not isinstance(found, Damage):
            yield found.positions, np.ones(len(found.positions), np.int64)


def _counted(reader: SegmentReader, whole: Range, chosen: Filter) -> Iterator[tuple[Integers, Integers]]:
    """_found() with the number of selected messages in each unit, which may be a batch. The log is decoded as for a
    read, so that each unit is looked at once."""
    builder = BatchBuilder(["commitLogOffset"], Budget(_ROWS_AT_ONCE, UNLIMITED.nbytes), explodes=True)
    positions, counts = np.empty((2, 0), np.int64)  # of the last unit, of which more messages may come
    for _ in whole.store.past_damage(reader).decode(whole.start, whole.stop, builder, chosen):
        rows = builder.finish().column(0).to_numpy()
        starts = np.flatnonzero(np.diff(rows, prepend=rows[:1] - 1))
        found, several = rows[starts], np.diff(starts, append=len(rows))
        if len(positions) and len(found) and positions[-1] == found[0]:
            several[0] += counts[-1]
            positions, counts = positions[:-1], counts[:-1]
        positions, counts = np.concatenate([positions, found]), np.concatenate([counts, several])
        if len(positions) > 1:
            yield positions[:-1], counts[:-1]
            positions, counts = positions[-1:], counts[-1:]
    if len(positions):
        yield positions, counts


def _cut_near(whole: Range, size: int) -> Reached | None:
    """The end of a message about `size` bytes after a range's start; None where no such end can be found."""
    if size > _MOST_WALKED:
        parts = Splitter(size, may_walk=False).split(replace(whole, stop=min(whole.stop, whole.start + 3 * size)))
        if len(parts) > 1:
            with whole.store.reader(whole.segment) as reader:
                return place_after(reader, parts[1].start)
    with whole.store.reader(whole.segment) as reader:
        last, _ = reader.walk(whole.start, min(whole.stop, whole.start + size))
        if last is None and reader.header(whole.start) is None:
            return None
        return place_after(reader, whole.start if last is None else last)
