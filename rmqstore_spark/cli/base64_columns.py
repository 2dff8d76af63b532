"""Columns of bytes in base64, under names of their own: `bodyBase64` is `body`. JSON and CSV add them unasked, too."""

import base64
from collections.abc import Iterator, Mapping

import pyarrow as pa

from rmqstore_spark.query.options import OPTIONS, check_columns, understand

BASE64 = "Base64"  # added to the name of a column of bytes

Batches = Iterator[pa.RecordBatch]


class Base64Columns:
    """The columns that the options ask for, and the columns that are read for them.

    Args:
        given: options as text.

    Attributes:
        given: the options to read with: they name the columns of bytes instead of the base64 columns.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = dict(given)
        self._names: list[str] = []
        if "columns" in given:
            names = understand({"columns": given["columns"]}, OPTIONS)[0]["columns"]
            if any(name.endswith(BASE64) for name in names):
                self._names = names
                self.given["columns"] = ",".join(dict.fromkeys(name.removesuffix(BASE64) for name in names))

    def of(self, schema: pa.Schema, batches: Batches) -> tuple[pa.Schema, Batches]:
        """The columns asked for, made from those that were read.

        Raises:
            OptionError: a base64 column's source does not have bytes, or a column is asked for twice.
        """
        if not self._names:
            return schema, batches
        types = {field.name: field.type for field in schema}
        types |= {f"{field.name}{BASE64}": pa.string() for field in schema if pa.types.is_binary(field.type)}
        check_columns(self._names, types)
        asked = pa.schema([pa.field(name, types[name]) for name in self._names])
        return asked, (_batch(batch, asked) for batch in batches)


def _batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    known = set(batch.schema.names)
    columns = [
        batch.column(name) if name in known else _encoded(batch.column(name.removesuffix(BASE64)))
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _encoded(column: pa.Array) -> pa.Array:
    texts = (None if value is None else base64.b64encode(value).decode() for value in column.to_pylist())
    return pa.array(texts, pa.string())
