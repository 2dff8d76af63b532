"""Table `checkpoint`: how far the broker's files are known to be on disk."""

from collections.abc import Iterator

import pyarrow as pa

from rmqstore_spark.columns import BOOL, LONG, TIME, Column
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.store.format.message import microseconds
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.columns import batches
from rmqstore_spark.tables.table import Part, Table


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    known = store.checkpoint
    times = (known.get(name, 0) for name in ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp"))
    row = (
        *(microseconds(time) if time > 0 else None for time in times),
        known.get("masterFlushedOffset"),
        known.get("confirmPhyOffset"),
        store.layout.abort,
        store.files.is_locked(store.layout.lock),
    )
    return batches(CHECKPOINT.schema, [row])


CHECKPOINT = Table(
    name="checkpoint",
    row="a store, with what its broker recorded about its files",
    columns=(
        Column("physicMsgTimestamp", TIME, "store time up to which the log was on disk; null if unknown"),
        Column("logicsMsgTimestamp", TIME, "store time up to which the queues were on disk; null if unknown"),
        Column("indexMsgTimestamp", TIME, "store time up to which the index was on disk; null if unknown"),
        Column(
            "masterFlushedOffset", LONG, "physical offset up to which the master's log was on disk; brokers since 5.0.0"
        ),
        Column("confirmPhyOffset", LONG, "physical offset up to which replicas had confirmed; brokers since 5.1.1"),
        Column("abort", BOOL, "whether the broker is running, or did not stop cleanly"),
        Column("locked", BOOL, "whether the store's lock is held"),
    ),
    options=frozenset(),
    rows=_rows,
)
