"""The package below Spark, as tests use it: a store in, rows out that compare equal to the reference's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from rmqstore_spark.columns import DEFAULT_COLUMNS, arrow_schema
from rmqstore_spark.query.options import ReadOptions, parse_options
from rmqstore_spark.read.pieces.task import Task
from rmqstore_spark.read.plan import access_path
from rmqstore_spark.read.plan.planner import Plan, plan
from rmqstore_spark.read.run.batches import ReadSettings, read_task
from rmqstore_spark.store.io.files import Files, Prices
from support.remote import remote_files

MODES = ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")
ALL_COLUMNS = [*DEFAULT_COLUMNS, "file", "store", "corrupt"]

Row = dict[str, Any]


def options_of(*roots: str | Path, **options: Any) -> ReadOptions:
    paths = [str(root) for root in roots]
    given = {
        name: str(value).lower() if value is True or value is False else str(value) for name, value in options.items()
    }
    if len(paths) == 1:
        return parse_options({"path": paths[0], **given})
    import json

    return parse_options({"paths": json.dumps(paths), **given})


# Accelerators are taken wherever they can be; searching in time begins with few messages.
FREE = Prices(request=0, gap=4096, search=0, linear_below=2)


def new_files(prices: Any = None) -> Files:
    """How tests reach files: those of the disk, or of a disk as if it were a bucket (fixture `storage`)."""
    return Files(prices) if STORAGE == "disk" else remote_files(prices)


STORAGE = "disk"


def forced_plan(options: ReadOptions, files: Files, columns: Sequence[str] | None = None) -> Plan:
    """plan(), where with FREE prices ConsumeQueues cost nothing, and tags are taken to select next to nothing."""
    if files.prices.request:
        return plan(options, files, columns)
    with mock.patch.multiple(access_path, UNIT_SIZE=0, TAG_SELECTIVITY=1 << 40):
        return plan(options, files, columns)


def make_plan(*roots: str | Path, prices: Any = None, **options: Any) -> Plan:
    return forced_plan(options_of(*roots, **options), new_files(prices))


def read(
    *roots: str | Path,
    columns: Sequence[str] | None = None,
    prices: Any = None,
    files: Any = None,
    **options: Any,
) -> list[Row]:
    """Plans and reads. `columns`: the default ones; and `corrupt` where the mode fills it."""
    return list(read_by_tasks(*roots, columns=columns, prices=prices, files=files, **options))


def read_by_tasks(
    *roots: str | Path,
    columns: Sequence[str] | None = None,
    prices: Any = None,
    files: Any = None,
    **options: Any,
) -> Iterator[Row]:
    """The same; what memory holds is one task's."""
    understood = options_of(*roots, **options)
    if columns is None:
        columns = [*DEFAULT_COLUMNS, "corrupt"] if understood.mode == "PERMISSIVE" else DEFAULT_COLUMNS
    for task in forced_plan(understood, files or new_files(prices), columns).tasks:
        yield from read_one(task, understood, columns)


def read_one(task: Task, options: ReadOptions, columns: Sequence[str] = DEFAULT_COLUMNS) -> list[Row]:
    """The rows of one task."""
    settings = ReadSettings.of(options, arrow_schema(list(columns)))
    rows: list[Row] = []
    for batch in read_task(task, settings):
        assert batch.schema.equals(settings.schema)
        batch.validate(full=True)
        rows += rows_of(batch)
    return rows


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """Timestamps as microseconds (Python's datetime does not know every year), maps as dicts."""
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if pa.types.is_timestamp(field.type):
            column = column.cast(pa.int64())
        values = column.to_pylist()
        if pa.types.is_map(field.type):
            values = [None if value is None else dict(value) for value in values]
        columns.append(values)
    return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def sound_and_corrupt(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """What mode PERMISSIVE gives: the messages, without the column `corrupt`, and the rows for damage."""
    corrupt = [row for row in rows if row["corrupt"] is not None]
    sound = [
        {name: value for name, value in row.items() if name != "corrupt"} for row in rows if row["corrupt"] is None
    ]
    return sound, corrupt
