"""Writing without Spark: from Arrow data to a store."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import pyarrow as pa

from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.errors import OptionError
from rmqstore_spark.option_texts import option_texts
from rmqstore_spark.options import WriteOptions, check_columns, parse_write_options
from rmqstore_spark.store.layout import place_to_write
from rmqstore_spark.write.brought import brought_by
from rmqstore_spark.write.commit import Settings, check, commit, forget, prepare
from rmqstore_spark.write.rows import stage

WriteMode = Literal["append", "overwrite"]


def write(path: str | os.PathLike[str], data: Any, mode: WriteMode, options: Mapping[str, object]) -> int:
    """rmqstore_spark.write_store()."""
    if mode not in ("append", "overwrite"):
        raise OptionError(f"mode: expected append or overwrite, found {mode!r}")
    understood = parse_write_options({**option_texts(options), "path": os.fspath(path)})
    schema, batches = _batches_of(data)
    wanted = _schema(schema, understood)
    root, job = place_to_write(understood.path), uuid.uuid4().hex
    overwrite = mode == "overwrite"
    brought = brought_by(understood)
    settings = Settings(understood.sizes, understood.message_index_enable, overwrite, understood.transaction, brought)
    check(root, settings)
    prepare(root, job)
    try:
        staged = stage(_cast(batches, wanted), understood, root, job, "00000", 0, brought)
        return commit(root, [staged], settings)
    finally:
        forget(root, job)


def _batches_of(data: Any) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    """The schema of Arrow data, and its batches.

    Raises:
        OptionError: it is something else.
    """
    if isinstance(data, pa.Table):
        return data.schema, data.to_batches()
    if isinstance(data, pa.RecordBatch):
        return data.schema, [data]
    if hasattr(data, "__arrow_c_stream__"):  # a reader, or what Polars, DuckDB and pandas have
        reader = pa.RecordBatchReader.from_stream(data)
        return reader.schema, reader
    batches = iter(data) if isinstance(data, Iterable) else iter(())
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


def _schema(found: pa.Schema, options: WriteOptions) -> pa.Schema:
    """The types that columns are written with.

    Raises:
        OptionError: a column cannot be written, or is missing.
    """
    check_columns(found.names)
    for field in found:
        column = COLUMNS[field.name]
        if not column.derived and not _fits(field.type, column.arrow, field.name):
            raise OptionError(f"column {field.name!r}: expected type {column.arrow}, found {field.type}; cast it")
    if "body" not in found.names:
        raise OptionError("column 'body': expected one of type binary or string, found none")
    if "topic" not in found.names and options.topic is None:
        raise OptionError("column 'topic': expected one of type string, or option 'topic', found neither")
    names = [
        name for name in found.names if not COLUMNS[name].derived or (options.config_from and name == "queueOffset")
    ]
    return pa.schema([(name, COLUMNS[name].arrow) for name in names])


def _fits(found: pa.DataType, wanted: pa.DataType, name: str) -> bool:
    """Can values of a type be of another one without a loss that nobody sees?"""
    types = pa.types
    if types.is_dictionary(found):
        found = found.value_type
    if types.is_null(found):
        return name not in ("body", "topic")
    is_text = types.is_string(found) or types.is_large_string(found) or types.is_string_view(found)
    if types.is_binary(wanted):
        return bool(is_text or types.is_binary(found) or types.is_large_binary(found) or types.is_binary_view(found))
    if types.is_string(wanted):
        return bool(is_text)
    if types.is_integer(wanted):
        return bool(types.is_integer(found))
    if types.is_timestamp(wanted):
        return bool(types.is_timestamp(found))
    return bool(types.is_map(found))


def _cast(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        arrays = []
        for field in schema:
            try:
                arrays.append(batch.column(field.name).cast(field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError) as why:
                raise OptionError(f"column {field.name!r}: expected type {field.type}: {why}") from None
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
