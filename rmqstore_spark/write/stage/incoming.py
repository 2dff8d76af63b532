"""The columns of rows that are to be written: the accepted types, which are the same for Arrow data and DataFrames, and
their conversion to the types of messages."""

import bisect
from collections.abc import Mapping

import pyarrow as pa

from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.errors import OptionError
from rmqstore_spark.query.options import WriteOptions, check_columns


class BadValueError(Exception):
    """The fault of a column in one row of a batch."""

    def __init__(self, row: int, column: str, reason: str) -> None:
        super().__init__(row, column, reason)
        self.row = row
        self.column = column
        self.reason = reason


def check_incoming(found: pa.Schema, options: WriteOptions, names: Mapping[str, str] | None = None) -> None:
    """Refuse columns that cannot be written.

    Args:
        names: the columns' types in Spark's words, for error texts of Spark writes.

    Raises:
        OptionError: naming a column that is unknown, of another type, or missing.
    """
    check_columns(found.names)
    for field in found:
        if _is_read(field.name, options.config_from is not None) and not _fits(field.type, field.name):
            expected = COLUMNS[field.name].spark if names else COLUMNS[field.name].arrow
            told = names[field.name] if names else field.type
            raise OptionError(f"column {field.name!r}: expected type {expected}, found {told!s:.200}; cast it")
    if "body" not in found.names:
        raise OptionError("column 'body': expected one of type binary or string, found none")
    if "topic" not in found.names and options.topic is None:
        raise OptionError("column 'topic': expected one of type string, or option 'topic', found neither")


def incoming(batch: pa.RecordBatch, with_offsets: bool) -> pa.RecordBatch:
    """The columns of a batch that are written, each in the type that messages have. Other columns are ignored.

    Args:
        with_offsets: whether queueOffset is among them, as configFrom needs it.

    Raises:
        BadValueError: a value does not fit its column's type, such as 2^31 in queueId.
    """
    fields = [pa.field(name, COLUMNS[name].arrow) for name in batch.schema.names if _is_read(name, with_offsets)]
    arrays = [_cast(batch.column(field.name), field) for field in fields]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _is_read(name: str, with_offsets: bool) -> bool:
    return not COLUMNS[name].derived or (with_offsets and name == "queueOffset")


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    if pa.types.is_dictionary(column.type) and _cannot_be_cast(column.type.value_type):
        return column.dictionary.cast(field.type).take(column.indices)
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid:
        row = bisect.bisect_left(range(len(column)), True, key=lambda row: not _can_cast(column[: row + 1], field.type))
        raise BadValueError(
            row, field.name, f"expected a value of type {field.type}, found {_shown(column[row]):.200}"
        ) from None


def _shown(value: pa.Scalar) -> str:
    if isinstance(value, pa.DictionaryScalar):
        value = value.value
    try:
        return str(value)
    except (OverflowError, ValueError):  # a time beyond Python's
        return f"{value.value} of type {value.type}"


def _cannot_be_cast(found: pa.DataType) -> bool:
    """Whether Arrow cannot cast a dictionary with values of this type; each of them can be written."""
    return bool(pa.types.is_string_view(found) or pa.types.is_binary_view(found) or pa.types.is_map(found))


def _can_cast(column: pa.Array, type: pa.DataType) -> bool:
    try:
        column.cast(type)
    except pa.ArrowInvalid:
        return False
    return True


def _fits(found: pa.DataType, name: str) -> bool:
    """Can values of a type be converted to a column's type without a silent loss? Whole numbers of any width can, as
    each value is checked; a time without a zone is in UTC, as in options."""
    types, wanted = pa.types, COLUMNS[name].arrow
    if types.is_dictionary(found):
        found = found.value_type
    if types.is_null(found):
        return name not in ("body", "topic")
    if types.is_binary(wanted):
        is_binary = types.is_binary(found) or types.is_large_binary(found) or types.is_binary_view(found)
        return bool(is_binary or _is_text(found))
    if types.is_string(wanted):
        return _is_text(found)
    if types.is_integer(wanted):
        return bool(types.is_integer(found))
    if types.is_timestamp(wanted):
        return bool(types.is_timestamp(found))
    return bool(types.is_map(found) and _is_text(found.key_type) and _is_text(found.item_type))


def _is_text(found: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(found) or types.is_large_string(found) or types.is_string_view(found))
