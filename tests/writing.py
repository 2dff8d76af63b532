"""The writer below Spark, as tests use it: rows in, a store out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.options import parse_write_options
from rmqstore_spark.store.write.commit import Settings, commit, forget
from rmqstore_spark.store.write.journal import staging
from rmqstore_spark.store.write.staging import Staged
from rmqstore_spark.store.write.target import Sizes
from rmqstore_spark.writer import stage

Row = dict[str, Any]
SMALL = Sizes(segment=8192, queue_file=200, slots=20, items=50)

_jobs = itertools.count()


def batch_of(rows: Sequence[Row], **types: pa.DataType) -> pa.RecordBatch:
    """Rows with the same columns each; times are microseconds."""
    arrays = []
    names = list(rows[0]) if rows else []
    for name in names:
        values = [list(row[name].items()) if isinstance(row[name], dict) else row[name] for row in rows]
        arrays.append(pa.array(values, types.get(name, COLUMNS[name].arrow)))
    return pa.record_batch(arrays, names)


def stage_rows(root: Path, parts: Sequence[Sequence[Row]], **options: Any) -> tuple[str, list[Staged]]:
    """What the tasks of a job do, one for each part. The job's name, and what they tell."""
    job = f"job-{next(_jobs)}"
    understood = parse_write_options({"path": str(root), **{name: str(value) for name, value in options.items()}})
    staged = [
        stage([batch_of(part)] if part else [], understood, staging(str(root), job), str(number), number)
        for number, part in enumerate(parts)
    ]
    return job, staged


def write(
    root: Path,
    *parts: Sequence[Row],
    sizes: Sizes = SMALL,
    index: bool = True,
    overwrite: bool = False,
    **options: Any,
) -> None:
    """Write rows, each part by a task of its own."""
    job, staged = stage_rows(root, parts, **options)
    commit(str(root), staged, Settings(sizes, index, overwrite))
    forget(str(root), job)
