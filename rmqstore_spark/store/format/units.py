"""Units in memory: their places, an accelerator's claims on them, and record batches of them.

The kernel looks at them and decodes them; nothing here reads a file.
"""

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from native_io import Decoder, Filter, array_address
from rmqstore_spark.columns import arrow_schema
from rmqstore_spark.store.format.bodies import zstd_functions
from rmqstore_spark.store.format.message import Header, header_in

Positions = npt.NDArray[np.int64]  # physical offsets, or distances from the start of a buffer


class Budget(NamedTuple):
    """The limits of one record batch.

    Attributes:
        rows: the most rows.
        nbytes: bytes of Arrow data, which may be exceeded a little.
    """

    rows: int
    nbytes: int


UNLIMITED = Budget(1 << 30, 1 << 30)
_GROWTH = 4  # factor on a batch's rows, from a full one to the next


class BatchBuilder:
    """Decodes runs of units into record batches of these columns.

    Args:
        names: columns that a unit gives (native_io.COLUMNS), in the order of the batch.
        budget: the limits of a batch.
        first_rows: the most rows of the first batch; after a full batch the next one may have four times as many, up to
            the budget.
        explodes: whether each message of a batch gets a row, else the unit does.
        expands: whether compressed bodies are decompressed; decoder.unexpanded has the rows for which it was not done.

    Attributes:
        decoder: takes the units.
        schema: the schema of the batches.
    """

    def __init__(
        self,
        names: list[str],
        budget: Budget = UNLIMITED,
        first_rows: int = 0,
        *,
        explodes: bool = False,
        expands: bool = False,
    ) -> None:
        enough, zstd = (budget.nbytes, zstd_functions()) if expands else (0, (0, 0, 0))
        self.decoder = Decoder(names, explodes=explodes, expand=enough, zstd=zstd)
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
        """A batch of everything appended so far. Text that is not UTF-8 has U+FFFD in the place of the wrong bytes."""
        if self.is_full:
            self._most_rows = min(_GROWTH * self._most_rows, self._budget.rows)
        may_be_invalid = self.decoder.non_ascii
        array = self.decoder.finish()
        # With the existing schema: pa.record_batch() would make a new one each time, for 17 us.
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
        # Two names may have become equal only now; as everywhere, the later one counts.
        rows = [dict(zip(names[a:b], contents[a:b], strict=True)) for a, b in itertools.pairwise(bounds)]
        return pa.array([list(row.items()) for row in rows], array.type)
    return array


def _bytes(strings: pa.Array) -> list[Any]:
    return strings.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Run:
    """Whole units in a window. A run is valid until the next one is asked for.

    Attributes:
        window: the bytes of the units.
        base: the physical offset that the window begins with.
        positions: their physical offsets.
        window_offsets: positions of the units in the window, where these are not the distances from `base`.
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
        """The units except those at these physical offsets."""
        return self.only(~np.isin(self.positions, positions))

    def add_to(self, builder: BatchBuilder, chosen: Filter | None = None) -> int:
        """Decode units, up to the rows of the builder's budget.

        Args:
            chosen: the filter that chose the units; it also chooses among the messages of a batch.

        Returns:
            the number of units that are done; where a batch goes on in the next call, it is not.
        """
        return builder.append(
            self.window,
            self.positions,
            base=self.base,
            window_offsets=self.window_offsets,
            chosen=chosen,
            most=builder.budget.rows,
        )

    def headers(self) -> list[Header]:
        """The headers of the units."""
        offsets = self.positions - self.base if self.window_offsets is None else self.window_offsets
        return [
            header_in(self.window, at, position)
            for at, position in zip(offsets.tolist(), self.positions.tolist(), strict=True)
        ]


@dataclass(frozen=True)
class Claims:
    """An accelerator's claims on the places of units in one segment.

    Attributes:
        positions: physical offsets, ascending.
        sizes, queue_offsets: the claimed size (bytes) and queue offset of each unit; None where the accelerator gives
            none, and 0 or -1 where it gives none of that unit.
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

    def up_to_other_kind(self) -> "Claims":
        """The first claims: those with a size, or those without, up to the first one of the other kind."""
        if self.sizes is None or self.sizes.all():
            return self
        others = np.flatnonzero((self.sizes == 0) != (self.sizes[0] == 0))
        some = self.part(0, int(others[0])) if len(others) else self
        return some if self.sizes[0] else Claims(some.positions)

    def with_positions(self, others: Positions) -> "Claims":
        """These claims, and others of which only the physical offsets are known."""
        if not len(others):
            return self
        positions = np.union1d(self.positions, others)
        if self.sizes is None or self.queue_offsets is None:
            return Claims(positions)
        sizes, queue_offsets = np.zeros(len(positions), np.int32), np.full(len(positions), -1, np.int64)
        mine = np.searchsorted(positions, self.positions)
        sizes[mine], queue_offsets[mine] = self.sizes, self.queue_offsets
        return Claims(positions, sizes, queue_offsets)
