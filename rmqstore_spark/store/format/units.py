"""Units in memory: where they are, what an accelerator says of them, and record batches of them.

The kernel looks at them and decodes them; nothing here reads a file.
"""

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from native_io import Decoder, array_address
from rmqstore_spark.columns import arrow_schema
from rmqstore_spark.store.format.message import Header, header_in

Positions = npt.NDArray[np.int64]  # physical offsets, or distances from the start of a buffer


class Budget(NamedTuple):
    """How much goes into one record batch.

    Attributes:
        rows: no more.
        nbytes: of Arrow data; not much more.
    """

    rows: int
    nbytes: int


UNLIMITED = Budget(1 << 30, 1 << 30)
_GROWTH = 4  # of a batch's rows from one that is full to the next


class BatchBuilder:
    """Decodes runs of units into record batches of these columns.

    Args:
        names: columns that a unit gives (native_io.COLUMNS), in the order of the batch.
        budget: of a batch.
        first_rows: of the first batch; each that is full is followed by one of four times as many, up to the budget.

    Attributes:
        decoder: where units go.
        schema: of the batches.
    """

    def __init__(self, names: list[str], budget: Budget = UNLIMITED, first_rows: int = 0) -> None:
        self.decoder = Decoder(names)
        self.append = self.decoder.append
        self.schema = arrow_schema(names)
        self._budget = budget
        self._most_rows = min(first_rows or budget.rows, budget.rows)

    @property
    def budget(self) -> Budget:
        """How much may be added before finish() is called."""
        return Budget(self._most_rows - self.decoder.rows, self._budget.nbytes)

    @property
    def is_full(self) -> bool:
        """Is there enough for a batch?"""
        return self.decoder.rows >= self._most_rows or self.decoder.nbytes >= self._budget.nbytes

    def finish(self) -> pa.RecordBatch:
        """Everything appended so far. Text that is not UTF-8 has U+FFFD in the place of the wrong bytes."""
        if self.is_full:
            self._most_rows = min(_GROWTH * self._most_rows, self._budget.rows)
        may_be_invalid = self.decoder.non_ascii
        array = self.decoder.finish()
        # With a schema that is there already: through pa.record_batch() it would be made anew each time, for 17 us.
        batch = pa.RecordBatch._import_from_c(array_address(array), self.schema)
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


@dataclass(frozen=True)
class Run:
    """Whole units in a window. Valid until the next one is asked for.

    Attributes:
        window: their bytes.
        base: the physical offset that the window begins with.
        positions: their physical offsets.
        window_offsets: where in the window they are, when that is not their distance from `base`.
    """

    window: memoryview
    base: int
    positions: Positions
    window_offsets: Positions | None = None

    def only(self, which: "npt.NDArray[np.bool_] | slice") -> "Run":
        """Some of the units."""
        offsets = None if self.window_offsets is None else self.window_offsets[which]
        return Run(self.window, self.base, self.positions[which], offsets)

    def without(self, positions: Positions) -> "Run":
        """The units but for those at these physical offsets."""
        return self.only(~np.isin(self.positions, positions))

    def add_to(self, builder: BatchBuilder) -> None:
        """Decode the units."""
        builder.append(self.window, self.positions, base=self.base, window_offsets=self.window_offsets)

    def headers(self) -> list[Header]:
        """The headers of the units."""
        offsets = self.positions - self.base if self.window_offsets is None else self.window_offsets
        return [
            header_in(self.window, at, position)
            for at, position in zip(offsets.tolist(), self.positions.tolist(), strict=True)
        ]


@dataclass(frozen=True)
class Claims:
    """Where an accelerator says that units of one segment are.

    Attributes:
        positions: physical offsets, ascending.
        sizes, queue_offsets: what it says of each; None where it says nothing.
    """

    positions: Positions
    sizes: npt.NDArray[np.int32] | None = None
    queue_offsets: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.positions)

    def part(self, start: int, stop: int) -> "Claims":
        """The claims [start, stop)."""
        sizes = None if self.sizes is None else self.sizes[start:stop]
        return Claims(
            self.positions[start:stop], sizes, None if self.queue_offsets is None else self.queue_offsets[start:stop]
        )
