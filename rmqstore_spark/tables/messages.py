"""Messages of one store, for tables made of messages; read by the same planner and tasks as a read of messages."""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from rmqstore_spark.columns import arrow_schema
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import Numbers, Selection
from rmqstore_spark.read.scan import Scan
from rmqstore_spark.store.snapshot import Snapshot

_LOOK_BACK = 1024 * 1024  # bytes at the end of the log that are read first


def messages(
    store: Snapshot, options: ReadOptions, selection: Selection, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """The selected messages of a store, in log order.

    Args:
        options: how to read; their selection is ignored.
        selection: the messages to read.

    Raises:
        DamagedStoreError: mode FAILFAST, and something is damaged.
    """
    return Scan(replace(options, selection=selection), columns, (store,)).batches()


def last_messages(store: Snapshot, options: ReadOptions, columns: list[str], count: int) -> pa.Table:
    """The last messages that the options select, up to `count`, in log order.

    Raises:
        DamagedStoreError: mode FAILFAST, and the part of the log that is searched is damaged.
    """
    extents = store.log.extents
    start = stop = store.end
    size = _LOOK_BACK
    found = pa.Table.from_batches([], arrow_schema(columns))
    while found.num_rows < count and extents and start > extents[0].start:
        stop, start = start, max(extents[0].start, start - size)
        here = options.selection.commit_log_offset & Numbers(start, stop - 1)
        selection = replace(options.selection, commit_log_offset=here)
        some = _last(messages(store, options, selection, columns), count - found.num_rows)
        found = pa.concat_tables([pa.Table.from_batches(some, found.schema), found])
        size *= 4
    return found.slice(max(0, found.num_rows - count))


def _last(batches: Iterator[pa.RecordBatch], count: int) -> deque[pa.RecordBatch]:
    """The last batches, with `count` rows or a few more: all before them are let go as they come."""
    kept, rows = deque[pa.RecordBatch](), 0
    for batch in batches:
        kept.append(batch)
        rows += batch.num_rows
        while rows - kept[0].num_rows >= count:
            rows -= kept.popleft().num_rows
    return kept
