"""Table `segments`: the files of the log."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from rmqstore_spark.columns import LONG, TEXT, TIME, Column
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import ALL, Numbers
from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.io.files import allocated, status_of
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.segments import Extent, Segment
from rmqstore_spark.tables.columns import batches
from rmqstore_spark.tables.table import Part, Table

_STEP_BACK = 64 * 1024
_SEGMENTS_AT_ONCE = 4096  # far more than requests at a time: at the end of each such step most threads wait


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    asked, wanted = set(options.columns or SEGMENTS.schema.names), options.selection.store_timestamp
    has_times = wanted != ALL or not asked.isdisjoint(_TIMES)
    return batches(SEGMENTS.schema, _segments(store, wanted, has_times))


def _segments(store: Snapshot, wanted: Numbers, has_times: bool) -> Iterator[tuple[Any, ...]]:
    """The rows of segments that may hold messages of wanted store times (ms).

    Args:
        has_times: whether store times are looked up: only for them the log is read.
    """
    extents = {extent.segment.start: extent for extent in store.log.extents}

    def times(segment: Segment) -> tuple[int | None, int | None]:
        extent = extents.get(segment.start) if has_times else None
        return (None, None) if extent is None else _outer_times(store, extent)

    for at in range(0, len(store.segments), _SEGMENTS_AT_ONCE):
        some = store.segments[at : at + _SEGMENTS_AT_ONCE]
        for segment, (first, last) in zip(some, store.files.schedule.mapped(times, some), strict=True):
            extent = extents.get(segment.start)
            if wanted == ALL or (extent is not None and _may_hold(store, extent, wanted, first, last)):
                yield (*_positions(store, segment, extent), first, last)


def _may_hold(store: Snapshot, extent: Extent, wanted: Numbers, first: int | None, last: int | None) -> bool:
    """Can an extent have a message of a wanted store time (ms)?

    Args:
        first, last: store times (microseconds) of its first and last message.
    """
    if first is not None and last is not None and first // 1000 <= wanted.most and wanted.least <= last // 1000:
        return True
    return store.written.has_any and store.times.may_hold(extent.start, extent.stop, wanted.least, wanted.most)


def _positions(store: Snapshot, segment: Segment, extent: Extent | None) -> tuple[Any, ...]:
    on_disk = allocated(status_of(segment.path, store.files))
    if extent is None:
        return segment.path, segment.start, segment.start, segment.size, on_disk, "spare"
    is_last = extent.start == store.log.extents[-1].start
    return segment.path, extent.start, extent.stop, segment.size, on_disk, "last" if is_last else "used"


def _outer_times(store: Snapshot, extent: Extent) -> tuple[int | None, int | None]:
    """Store times (microseconds) of the first and the last message."""
    with store.reader(extent.segment) as reader:
        first = reader.header(extent.start)
        last = _last_in(store, extent, reader)
    return None if first is None else first.store_timestamp, None if last is None else last.store_timestamp


def _last_in(store: Snapshot, extent: Extent, reader: SegmentReader) -> Header | None:
    """The last message, found by a walk from where live messages surely reach, or else from a unit shortly before."""
    if store.last_message is not None and extent.start <= store.last_message.position < extent.stop:
        return store.last_message
    end = store.log.live_end(extent)
    last, _ = reader.walk(end, extent.stop)
    start, step = end, _STEP_BACK
    while last is None and start > extent.start:
        start, step = max(extent.start, end - step), 8 * step
        found = reader.find(start, end)
        if found is not None:
            last = reader.walk(found, end)[0]
    return None if last is None else reader.header(last)


_TIMES = {
    column.name: column
    for column in (
        Column("firstStoreTimestamp", TIME, "store time of the first message"),
        Column("lastStoreTimestamp", TIME, "store time of the last message"),
    )
}
SEGMENTS = Table(
    name="segments",
    row="a commitlog file",
    columns=(
        Column("file", TEXT, "path of the file"),
        Column("startOffset", LONG, "physical offset at which its messages begin"),
        Column("endOffset", LONG, "physical offset at which its messages end"),
        Column("fileSize", LONG, "size of the file in bytes"),
        Column("allocated", LONG, "bytes that the file takes on the disk"),
        Column("state", TEXT, "used; last: the log ends here; spare: still empty"),
        *_TIMES.values(),
    ),
    options=frozenset({"startingTimestamp", "endingTimestamp"}),
    rows=_rows,
    of_queue_logs=True,
)
