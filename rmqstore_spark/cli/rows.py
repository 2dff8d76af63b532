"""Rows of record batches as Python has them, but for times: those are text, as datetime knows none after year 9999."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from rmqstore_spark.times import time_texts


def rows_of(batch: pa.RecordBatch, is_for_people: bool) -> Iterator[dict[str, Any]]:
    """The rows of a batch, by the names of its columns.

    Args:
        is_for_people: whether times are to have a space in the middle, and no zone; else they are ISO-8601's.
    """

    def shown(time: str | None) -> str | None:
        if time is None:
            return None
        return time.replace("T", " ") if is_for_people else time + "Z"

    columns = [
        map(shown, time_texts(column)) if pa.types.is_timestamp(column.type) else column.to_pylist()
        for column in batch.columns
    ]
    for values in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, values, strict=True))
