"""Table `checkpoint`: what the broker noted down of all of its files."""

from collections.abc import Iterator

import pyarrow as pa

from rmqstore_spark.columns import BOOL, LONG, TIME, Column
from rmqstore_spark.options import ReadOptions
from rmqstore_spark.store.checkpoint import fields
from rmqstore_spark.store.message import microseconds
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.columns import batches
from rmqstore_spark.tables.table import Part, Table


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    known = fields(store.layout.checkpoint, store.files)
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
    row="a store: what its broker noted down of its files",
    columns=(
        Column("physicMsgTimestamp", TIME, "store time up to which the log was on disk; null where that is not known"),
        Column("logicsMsgTimestamp", TIME, "the same of the queues"),
        Column("indexMsgTimestamp", TIME, "the same of the index"),
        Column(
            "masterFlushedOffset", LONG, "physical offset up to which the master's log was on disk; brokers since 5.0.0"
        ),
        Column("confirmPhyOffset", LONG, "physical offset up to which replicas had confirmed; brokers since 5.1.1"),
        Column("abort", BOOL, "whether the broker runs, or did not stop cleanly"),
        Column("locked", BOOL, "whether somebody holds the store's lock"),
    ),
    options=frozenset(),
    rows=_rows,
)
