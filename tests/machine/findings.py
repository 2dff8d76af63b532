"""What table `check` finds, in a form that can be compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support import reading

from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables import registry

Row = dict[str, Any]


def check(root: Path, **options: Any) -> list[Row]:
    understood = reading.options_of(root, table="check", **options)
    store = Snapshot.find(str(root), reading.new_files())
    rows: list[Row] = registry.read_table(understood, [store]).to_pylist()
    return rows


def findings(root: Path) -> list[tuple[Any, ...]]:
    """Errors and warnings; not `abort`, which only says that the broker was killed, nor what consumers' offsets are."""
    return [
        (row["problem"], row["topic"], row["queueId"], row["queueOffset"], row["commitLogOffset"], row["count"])
        for row in check(root)
        if row["severity"] != "info" and row["problem"] != "abort" and row["area"] != "offsets"
    ]
