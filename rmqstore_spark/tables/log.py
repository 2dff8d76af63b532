"""Tables `segments` and `checkpoint`: the files of the log, and what the broker noted down of all of its files."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from rmqstore_spark.options import ReadOptions
from rmqstore_spark.selection import ALL, Numbers
from rmqstore_spark.store.checkpoint import read_checkpoint
from rmqstore_spark.store.commitlog import SegmentReader
from rmqstore_spark.store.message import Header, microseconds
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.store.segments import Extent, Segment
from rmqstore_spark.tables.columns import BOOL, LONG, TEXT, TIME, batches
from rmqstore_spark.tables.table import Part, Table

_BLOCK = 512  # bytes of one of st_blocks
_STEP_BACK = 64 * 1024


def _segment_rows(store: OpenStore, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    return batches(SEGMENTS.schema, _segments(store, options.selection.store_timestamp))


def _segments(store: OpenStore, wanted: Numbers) -> Iterator[tuple[Any, ...]]:
    extents = {extent.segment.start: extent for extent in store.log.extents}
    for segment in store.segments:
        extent = extents.get(segment.start)
        first, last = (None, None) if extent is None else _outer_times(store, extent)
        if wanted == ALL or (first is not None and last is not None and _overlaps(wanted, first, last)):
            yield (*_positions(store, segment, extent), first, last)


def _overlaps(wanted: Numbers, first: int, last: int) -> bool:
    """Can there be a message of a wanted store time (ms) between two (microseconds)?"""
    return first // 1000 <= wanted.most and wanted.least <= last // 1000


def _positions(store: OpenStore, segment: Segment, extent: Extent | None) -> tuple[Any, ...]:
    allocated = store.files.status(segment.path).st_blocks * _BLOCK
    if extent is None:
        return segment.path, segment.start, segment.start, segment.size, allocated, "spare"
    is_last = extent.start == store.log.extents[-1].start
    return segment.path, extent.start, extent.stop, segment.size, allocated, "last" if is_last else "used"


def _outer_times(store: OpenStore, extent: Extent) -> tuple[int | None, int | None]:
    """Store times (microseconds) of the first and the last message."""
    with store.reader(extent.segment) as reader:
        first = reader.header(extent.start)
        last = _last_in(store, extent, reader)
    return None if first is None else first.store_timestamp, None if last is None else last.store_timestamp


def _last_in(store: OpenStore, extent: Extent, reader: SegmentReader) -> Header | None:
    """The last message: walked to from where live messages surely reach to, or else from a unit shortly before that."""
    if store.last_message is not None and extent.start <= store.last_message.position < extent.stop:
        return store.last_message
    end = store.log.live_end(extent)
    last, _, _ = reader.walk(end, extent.stop)
    back = _STEP_BACK
    while last is None and end - back // 8 > extent.start:
        begin = reader.find(max(extent.start, end - back), end)
        if begin is not None:
            last = reader.walk(begin, end)[0]
        back *= 8
    return None if last is None else reader.header(last)


SEGMENTS = Table(
    name="segments",
    row="a commitlog file",
    schema=pa.schema(
        [
            ("file", TEXT),
            ("startOffset", LONG),
            ("endOffset", LONG),
            ("fileSize", LONG),
            ("allocated", LONG),
            ("state", TEXT),
            ("firstStoreTimestamp", TIME),
            ("lastStoreTimestamp", TIME),
        ]
    ),
    options=frozenset({"startingTimestamp", "endingTimestamp"}),
    rows=_segment_rows,
)


def _checkpoint_rows(store: OpenStore, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    known = read_checkpoint(store.layout.checkpoint, store.files)
    times = (known.physic, known.logics, known.index) if known is not None else (0, 0, 0)
    row = (
        *(microseconds(time) if time > 0 else None for time in times),
        known.master_flushed if known is not None else None,
        known.confirmed if known is not None else None,
        store.layout.abort,
        store.files.is_locked(store.layout.lock),
    )
    return batches(CHECKPOINT.schema, [row])


CHECKPOINT = Table(
    name="checkpoint",
    row="a store",
    schema=pa.schema(
        [
            ("physicMsgTimestamp", TIME),
            ("logicsMsgTimestamp", TIME),
            ("indexMsgTimestamp", TIME),
            ("masterFlushedOffset", LONG),
            ("confirmPhyOffset", LONG),
            ("abort", BOOL),
            ("locked", BOOL),
        ]
    ),
    options=frozenset(),
    rows=_checkpoint_rows,
)
