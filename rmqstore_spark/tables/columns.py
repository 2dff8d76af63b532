"""Record batches from the rows of tables.

pyarrow.array() loads pandas, which takes longer than reading a small table; so arrays are made from buffers here.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore_spark.columns import TEXT, TIME

_ROWS_AT_ONCE = 8192
_MOST_MILLISECONDS = ((1 << 63) - 1) // 1000


def batches(
    schema: pa.Schema, rows: Iterable[tuple[Any, ...]], at_once: int = _ROWS_AT_ONCE
) -> Iterator[pa.RecordBatch]:
    """Rows as record batches of so many; times are whole microseconds since 1970, or None."""
    some: list[tuple[Any, ...]] = []
    for row in rows:
        some.append(row)
        if len(some) == at_once:
            yield _batch(schema, some)
            some = []
    if some:
        yield _batch(schema, some)


def _batch(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [array(values, field.type) for field, values in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def array(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    """An array of one of the types of columns.py; None is null. Text that is not Unicode gets U+FFFD."""
    nulls = values.count(None)
    bitmap = _bits(np.array([value is not None for value in values], np.bool_)) if nulls else None
    children: list[pa.Array] = []
    if pa.types.is_string(type):
        data = _text_data([value or "" for value in values] if nulls else values)
    elif pa.types.is_list(type):
        data = [_ends([value or () for value in values])]
        children = [array([item for value in values for item in value or ()], type.value_type)]
    elif pa.types.is_map(type):
        data = [_ends([value or () for value in values])]
        children = [_entries([entry for value in values for entry in (value or {}).items()], type)]
    elif pa.types.is_boolean(type):
        data = [_bits(np.array([bool(value) for value in values], np.bool_))]
    else:
        numbers = np.array([value or 0 for value in values] if nulls else values, f"i{type.bit_width // 8}")
        data = [pa.py_buffer(numbers.tobytes())]
    return pa.Array.from_buffers(type, len(values), [bitmap, *data], nulls, 0, children)


def numbers(values: npt.NDArray[Any], type: pa.DataType, is_valid: "npt.NDArray[np.bool_] | None" = None) -> pa.Array:
    """An array of numbers, times (us) or flags; null where they are not valid."""
    nulls = 0 if is_valid is None else len(values) - int(is_valid.sum())
    bitmap = None if is_valid is None or not nulls else _bits(is_valid)
    is_flags = pa.types.is_boolean(type)
    data = _bits(values) if is_flags else pa.py_buffer(values.astype(f"i{type.bit_width // 8}").tobytes())
    return pa.Array.from_buffers(type, len(values), [bitmap, data], nulls)


def _entries(pairs: list[tuple[str, str]], type: pa.DataType) -> pa.Array:
    names, contents = ([pair[at] for pair in pairs] for at in (0, 1))
    struct = pa.struct([type.key_field, type.item_field])
    return pa.Array.from_buffers(struct, len(pairs), [None], 0, 0, [array(names, TEXT), array(contents, TEXT)])


def _text_data(texts: Sequence[str]) -> list[pa.Buffer]:
    joined = "".join(texts)
    if joined.isascii():  # almost always: each character is a byte
        return [_ends(texts), pa.py_buffer(joined.encode())]
    stored = [_utf8(text) for text in texts]
    return [_ends(stored), pa.py_buffer(b"".join(stored))]


def _ends(values: Sequence[Any]) -> pa.Buffer:
    """The end of each value in all values together."""
    return pa.py_buffer(np.cumsum([0, *map(len, values)], dtype=np.int32).tobytes())


def _bits(values: "npt.NDArray[np.bool_]") -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little").tobytes())


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a character, from JSON, or from a file's name that is not UTF-8
        return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()


def timestamps(milliseconds: npt.NDArray[np.int64], is_known: Any = True) -> pa.Array:
    """Times (ms) as a column has them; null where they do not fit or are not known."""
    is_null = np.logical_not(is_known) | (milliseconds > _MOST_MILLISECONDS) | (milliseconds < -_MOST_MILLISECONDS)
    return pa.array(np.where(is_null, 0, milliseconds) * 1000, mask=is_null).cast(TIME)
