"""Tables as tests read them: part by part, each sent to its task as Spark would send it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.table import Table
from support.reading import new_files, options_of


def table_of(table: Table, root: str | Path, **options: Any) -> pa.Table:
    """All of a table of one store."""
    understood = options_of(root, **options)
    store = Snapshot.find(str(root), new_files(), understood.store_path_commit_log)
    batches = list(_batches(table, store, understood))
    found = pa.Table.from_batches(batches, table.schema)
    found.validate(full=True)
    return found


def _batches(table: Table, store: Snapshot, options: Any) -> Iterator[pa.RecordBatch]:
    for part in table.parts(store, options):
        sent_store, sent_part = pickle.loads(pickle.dumps((store, part)))
        yield from table.rows(sent_store, options, sent_part)


def rows_of(table: Table, root: str | Path, **options: Any) -> list[dict[str, Any]]:
    """The same as rows."""
    rows: list[dict[str, Any]] = table_of(table, root, **options).to_pylist()
    return rows
