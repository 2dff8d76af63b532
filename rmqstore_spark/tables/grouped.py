"""What a log tells of the same message in several places, brought together: rows are sorted by what they share, so that
those of a message stand side by side, and no more of them are in memory than some (rmqstore_spark/sorting.py)."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.sorting import Batches, in_order
from rmqstore_spark.tables.picked import column

Bools = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]


def groups(
    schema: pa.Schema, batches: Batches, by: Sequence[str], then: Sequence[str]
) -> Iterator[tuple[pa.Table, Indices]]:
    """Rows in groups, in the order of the columns `by`: those of a group have the same values there. A row with a null
    there is a group of its own.

    Args:
        then: the columns that say in which order the rows of a group are.

    Yields:
        Whole groups, many at a time: their rows, and the number of each group's first row.
    """
    left = schema.empty_table()
    for batch in in_order(schema, batches, [(name, "ascending") for name in (*by, *then)]):
        rows = pa.concat_tables([left, pa.Table.from_batches([batch])])
        begins = _begins(rows, by)
        if len(begins) > 1:
            yield rows.slice(0, int(begins[-1])), begins[:-1]
        left = rows.slice(int(begins[-1])) if len(begins) else rows
    if len(left):
        yield left, _begins(left, by)


def _begins(rows: pa.Table, by: Sequence[str]) -> Indices:
    """The numbers of the rows with which a group begins."""
    is_first = np.zeros(len(rows), bool)
    is_first[:1] = True
    for name in by:
        values = column(rows, name)
        is_first[1:] |= ~true(pc.equal(values[1:], values[: max(0, len(values) - 1)]))
    return np.flatnonzero(is_first)


def any_of(flags: Bools, begins: Indices) -> Bools:
    """For each group of rows, is a flag of one of them set?"""
    return np.logical_or.reduceat(flags, begins)


def true(column: pa.Array) -> Bools:
    """A column of flags; false for null."""
    return pc.fill_null(column, False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
