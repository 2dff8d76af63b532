"""Arrow types that several tables have, and record batches made of their rows."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

TEXT, INT, LONG, BOOL = pa.string(), pa.int32(), pa.int64(), pa.bool_()
TIME = pa.timestamp("us", "UTC")
MAP = pa.map_(pa.string(), pa.string())
TEXTS = pa.list_(pa.string())

_ROWS_AT_ONCE = 8192


def batches(schema: pa.Schema, rows: Iterable[tuple[Any, ...]]) -> Iterator[pa.RecordBatch]:
    """Rows as record batches; times are whole microseconds of the epoch, or None."""
    some: list[tuple[Any, ...]] = []
    for row in rows:
        some.append(row)
        if len(some) == _ROWS_AT_ONCE:
            yield _batch(schema, some)
            some = []
    if some:
        yield _batch(schema, some)


def _batch(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for field, values in zip(schema, columns, strict=True)], schema=schema
    )
