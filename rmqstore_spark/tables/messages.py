"""Messages of one store, for tables made of messages; read by the same planner and tasks as a read of messages."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
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


def last_of_logs(asked: Sequence[tuple[Snapshot, ReadOptions]], columns: list[str], count: int) -> pa.Table:
    """The last messages that the options select in the logs of one store, up to `count`: of several logs, as of a
    tiered store, those that were stored last.

    Raises:
        DamagedStoreError: as of last_messages().
    """
    names = columns if len(asked) == 1 else [*dict.fromkeys([*columns, "storeTimestamp"])]
    found = [last_messages(log, options, names, count) for log, options in asked]
    if len(found) < 2:
        return found[0] if found else arrow_schema(columns).empty_table()
    rows = pa.concat_tables(found)
    order = np.argsort(rows.column("storeTimestamp").cast(pa.int64()).to_numpy(), kind="stable")
    return rows.take(order[max(0, len(order) - count) :]).select(columns)


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
