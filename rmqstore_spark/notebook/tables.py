"""An Arrow table as a person reads it in a notebook: a few rows, sizes and times as text, bodies as far as they are
text."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from rmqstore_spark.amounts import duration_text, size_text
from rmqstore_spark.errors import counted
from rmqstore_spark.notebook.markup import cell, table, text
from rmqstore_spark.notebook.timeline import is_history, timeline
from rmqstore_spark.times import time_texts

ROWS = 20
_LONGEST = 200  # characters of a cell
_ITEMS = 10  # of a map or a list
# Columns of ours that are amounts; of all tables.
_SIZES = {"bytes", "storeSize", "sizeOnDisk", "fileSize", "allocated", "bodyLength"}
_MILLISECONDS = {"lagMillis", "costMillis"}


def table_html(rows: pa.Table) -> str:
    """The first rows of a table, and how many there are; of a history, what happened when, drawn."""
    some = rows.slice(0, ROWS)
    columns = [_cells(name, some.column(name)) for name in some.column_names]
    more = "" if rows.num_rows <= ROWS else f"the first {ROWS} of "
    size = f"<div>{more}{counted(rows.num_rows, 'row')}, {counted(rows.num_columns, 'column')}</div>"
    drawn = timeline(rows.slice(0, 5 * ROWS)) if is_history(rows) else ""
    return f"<div>{drawn}{table(some.column_names, zip(*columns, strict=True))}{size}</div>"


def _cells(name: str, column: pa.ChunkedArray) -> Iterator[str]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return (cell(text((time or "").replace("T", " ")), is_number=True) for time in time_texts(column))
    shown = _way(name, kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return (cell("" if value is None else text(shown(value)), is_number) for value in column.to_pylist())


def _way(name: str, kind: pa.DataType) -> Callable[[Any], str]:
    """How the values of a column are shown."""
    if pa.types.is_integer(kind):
        if name in _SIZES:
            return size_text
        return duration_text if name in _MILLISECONDS else str
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _body
    if pa.types.is_map(kind):
        return lambda pairs: _listed([f"{key}={value}" for key, value in pairs])
    if pa.types.is_list(kind):
        return lambda items: _listed([str(item) for item in items])
    return lambda value: _cut(str(value))


def _listed(items: list[str]) -> str:
    more = [f"and {len(items) - _ITEMS} more"] if len(items) > _ITEMS else []
    return _cut(", ".join(items[:_ITEMS] + more))


def _body(data: bytes) -> str:
    """Bytes as text, or else in hexadecimal digits."""
    try:
        return _cut(data.decode())
    except UnicodeDecodeError:
        shown = data[: _LONGEST // 4]
        return f"{shown.hex(' ')}{' …' if len(shown) < len(data) else ''} ({size_text(len(data))})"


def _cut(value: str) -> str:
    return value if len(value) <= _LONGEST else value[:_LONGEST] + "…"
