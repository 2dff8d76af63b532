"""Rows of record batches as Python values. Times are text, as datetime ends with the year 9999; maps are dicts."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from rmqstore_spark.times import time_texts

_ROWS_AT_ONCE = 4096


def rows_of(batch: pa.RecordBatch, is_for_people: bool) -> Iterator[dict[str, Any]]:
    """The rows of a batch, by the names of its columns.

    Args:
        is_for_people: whether times have a space in the middle and no zone; otherwise they are in ISO-8601.
    """

    def shown(time: str | None) -> str | None:
        if time is None:
            return None
        return time.replace("T", " ") if is_for_people else time + "Z"

    def values(column: pa.Array) -> Iterator[Any]:
        if pa.types.is_timestamp(column.type):
            return map(shown, time_texts(column))
        if pa.types.is_map(column.type):
            return (None if pairs is None else dict(pairs) for pairs in column.to_pylist())
        return iter(column.to_pylist())

    for row in zip(*map(values, batch.columns), strict=True):
        yield dict(zip(batch.schema.names, row, strict=True))


def few_at_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in smaller batches: as Python values rows take many times the memory."""
    for batch in batches:
        for at in range(0, batch.num_rows, _ROWS_AT_ONCE):
            yield batch.slice(at, _ROWS_AT_ONCE)
