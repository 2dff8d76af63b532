"""Writing without Spark: from Arrow data to a store."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import pyarrow as pa

from rmqstore_spark.errors import OptionError, quoted
from rmqstore_spark.query.option_texts import PATH, required, text_of
from rmqstore_spark.query.options import WRITE_CALL_OPTIONS, option_texts, parse_write_options
from rmqstore_spark.write.job import WriteJob

WriteMode = Literal["append", "overwrite"]


def write(path: str | os.PathLike[str], data: Any, mode: WriteMode, options: Mapping[str, object]) -> int:
    """rmqstore_spark.write_store()."""
    if required("mode", mode) not in ("append", "overwrite"):
        raise OptionError(f"mode: expected append or overwrite, found {quoted(mode)}")
    where = text_of("path", path, PATH)
    understood = parse_write_options({**option_texts(options, WRITE_CALL_OPTIONS), "path": where})
    schema, batches = _batches_of(data)
    job = WriteJob(understood, mode == "overwrite")
    with job.alone(schema):
        return job.commit([job.stage(_alike(batches, schema))])


def _batches_of(data: Any) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    """The schema of Arrow data, and its batches.

    Raises:
        OptionError: `data` is not Arrow data.
    """
    if isinstance(data, pa.Table):
        return data.schema, data.to_batches()
    if isinstance(data, pa.RecordBatch):
        return data.schema, [data]
    if hasattr(data, "__arrow_c_stream__"):  # a reader, or a table of Polars, DuckDB or pandas
        try:
            reader = pa.RecordBatchReader.from_stream(data)
        except (pa.ArrowException, TypeError) as why:  # of a single column, for example
            raise OptionError(f"data: expected an Arrow stream of named columns, found another: {why}") from None
        return reader.schema, reader
    try:
        batches = iter(data)
    except TypeError:
        batches = iter(())
    first = next(batches, None)
    if not isinstance(first, pa.RecordBatch):
        raise OptionError(
            "data: expected an Arrow table, record batches or a reader of them, or what can be read as an Arrow "
            f"stream; found {type(data).__name__}"
        )
    return first.schema, _after(first, batches)


def _after(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others


def _alike(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches, checked to have the columns of the first: a column that a later batch lacks would be null there."""
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch) or not batch.schema.equals(schema):
            raise OptionError("data: expected record batches that all have the columns of the first, found another")
        yield batch
