"""From units to record batches, through the compiled kernel."""

import itertools
from typing import Any

import pyarrow as pa

from native_io import Decoder
from rmqstore_spark.columns import arrow_schema


class _ArrowStruct:
    """A kernel's array with its schema, as Arrow's PyCapsule interface wants the two together."""

    def __init__(self, schema: pa.Schema, array: Any) -> None:
        self._schema = schema
        self._array = array

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        return self._schema.__arrow_c_schema__(), self._array


class BatchBuilder:
    """Decodes runs of units into record batches of these columns.

    Args:
        names: columns that a unit gives (native_io.COLUMNS), in the order of the batch.
    """

    def __init__(self, names: list[str]) -> None:
        self.decoder = Decoder(names)
        self.append = self.decoder.append
        self.schema = arrow_schema(names)

    def finish(self) -> pa.RecordBatch:
        """Everything appended so far. Text that is not UTF-8 has U+FFFD in the place of the wrong bytes."""
        may_be_invalid = self.decoder.non_ascii
        batch = pa.record_batch(_ArrowStruct(self.schema, self.decoder.finish()))
        return _replace_invalid_text(batch) if may_be_invalid else batch


def _replace_invalid_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        return pa.RecordBatch.from_arrays([_replace_in(column) for column in batch.columns], schema=batch.schema)
    return batch


def _replace_in(array: pa.Array) -> pa.Array:
    if pa.types.is_string(array.type):
        decoded = [None if raw is None else raw.decode("utf-8", "replace") for raw in _bytes(array)]
        return pa.array(decoded, pa.string())
    if pa.types.is_map(array.type):
        names = [raw.decode("utf-8", "replace") for raw in _bytes(array.keys)]
        contents = [raw.decode("utf-8", "replace") for raw in _bytes(array.items)]
        bounds = array.offsets.to_pylist()
        # Two names may have become the same one only now; as everywhere, the later one counts.
        rows = [dict(zip(names[a:b], contents[a:b], strict=True)) for a, b in itertools.pairwise(bounds)]
        return pa.array([list(row.items()) for row in rows], array.type)
    return array


def _bytes(strings: pa.Array) -> list[Any]:
    return strings.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]
