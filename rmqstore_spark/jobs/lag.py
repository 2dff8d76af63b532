"""How far consumer groups are behind: table `offsets` in sums, the worst first."""

import itertools

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.columns import BOOL, LONG
from rmqstore_spark.errors import OptionError
from rmqstore_spark.read.plan.groups import no_offset_of
from rmqstore_spark.sorting import Batches, Keys, begins, in_order
from rmqstore_spark.tables.columns import numbers

# What one row is, and the columns that name it.
BY = {"group": ["group"], "topic": ["group", "topic"], "queue": ["group", "topic", "queueId"]}
# The columns of table `offsets` that this needs.
NEEDED = ["group", "topic", "queueId", "lag", "lagMillis", "lastConsumedTimestamp", "expired"]
# What is told of each row, and how that of several rows becomes that of one.
_SUMS = {
    "queues": "sum",
    "behind": "sum",
    "lag": "sum",
    "lagMillis": "max",
    "lastConsumedTimestamp": "max",
    "expired": "any",
}
COLUMNS = [*BY["queue"], *_SUMS]
_WORST_FIRST: Keys = [("lag", "descending"), ("lagMillis", "descending")]


def lag(offsets: Batches, schema: pa.Schema, by: str = "group", group: str | None = None) -> tuple[pa.Schema, Batches]:
    """The lag of consumer groups: the most messages first, then the longest time. All offsets have been read when this
    returns; many sums wait in temporary files.

    Args:
        offsets: table `offsets`, with the columns NEEDED. A queue that does not exist has no lag.
        schema: that of `offsets`.
        by: a row for each of these: "group", "topic" (of a group) or "queue" (of a group).
        group: only this one; None: all.

    Returns:
        The schema, and the rows: the columns that name the row; `queues` (number of queues), `behind` (those with a
        lag), `lag` (messages), `lagMillis` (of the queue that is furthest behind), `lastConsumedTimestamp` (the
        latest), `expired` (whether the next message of any queue has been deleted).

    Raises:
        OptionError: no group of this name has an offset, or `by` is none of these words.
    """
    if by not in BY:
        raise OptionError(f"by: expected {', '.join(BY)}, found {by!r}")
    names = BY[by]
    if group is not None:
        offsets = _of_group(offsets, group)
    each = (_each(pa.Table.from_batches([batch]), by) for batch in offsets)
    schema = _each(schema.empty_table(), by).schema
    named = _Named(names)
    # A store has its offsets in the order of their names, in which they stay where they are alike.
    found = _begun(in_order(schema, named.noted(each if by == "queue" else _sums(each, names)), _WORST_FIRST))
    if not named.are_once:  # several stores have the same group
        by_name: Keys = [(name, "ascending") for name in names]
        found = _begun(in_order(schema, _sums(in_order(schema, found, by_name), names), _WORST_FIRST))
    return schema, found


def _of_group(offsets: Batches, group: str) -> Batches:
    """The rows of one group.

    Raises:
        OptionError: there are none.
    """
    others: set[str] | None = set()
    for batch in offsets:
        some = batch.filter(pc.equal(batch["group"], group))
        if len(some):
            others = None
            yield some
        elif others is not None:
            others.update(batch["group"].unique().to_pylist())
    if others is not None:
        raise OptionError(no_offset_of(group, sorted(others)))


def _each(rows: pa.Table, by: str) -> pa.RecordBatch:
    """What is told of each queue."""
    left = pc.max_element_wise(rows["lag"], 0, skip_nulls=False)
    one = pa.repeat(pa.scalar(1, pa.int64()), len(rows))
    told = [one, pc.greater(left, 0).cast(pa.int64()), left, *(rows[name] for name in [*_SUMS][3:])]
    return _batch(pa.table([*(rows[name] for name in BY[by]), *told], names=[*BY[by], *_SUMS]))


def _sums(batches: Batches, names: list[str]) -> Batches:
    """One row for those that have the same name and come one after the other."""
    last: list[pa.RecordBatch] = []
    for batch in batches:
        rows = _joined(pa.Table.from_batches([*last, batch]), names)
        yield rows.slice(0, len(rows) - 1)
        last = [rows.slice(len(rows) - 1)]
    yield from last


def _joined(rows: pa.Table, names: list[str]) -> pa.RecordBatch:
    is_first = begins(rows, names)
    if is_first.all():
        return _batch(rows)
    # Groups come in no order.
    numbered = rows.append_column("number", numbers(np.cumsum(is_first), LONG))
    found = numbered.group_by("number", use_threads=False).aggregate(list(_SUMS.items())).sort_by("number")
    first = rows.filter(numbers(is_first, BOOL))
    sums = [found[f"{name}_{how}"].cast(rows.schema.field(name).type) for name, how in _SUMS.items()]
    return _batch(pa.table([*(first[name] for name in names), *sums], schema=rows.schema))


def _batch(rows: pa.Table) -> pa.RecordBatch:
    return next(iter(rows.combine_chunks().to_batches()), pa.RecordBatch.from_pylist([], rows.schema))


def _begun(batches: Batches) -> Batches:
    """Rows in order, when all have been read of which they are."""
    return itertools.chain([*itertools.islice(batches, 1)], batches)


class _Named:
    """Notes whether rows come in the order of their names, each of which comes once.

    Args:
        names: the columns that name a row.
    """

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self.are_once = True

    def noted(self, batches: Batches) -> Batches:
        """The same rows."""
        last: list[pa.RecordBatch] = []
        for batch in batches:
            some = batch.select(self._names)
            if len(some) and self.are_once:
                self.are_once = _ascend(_batch(pa.Table.from_batches([*last, some])))
                last = [some.slice(len(some) - 1)]
            yield batch


def _ascend(rows: pa.RecordBatch) -> bool:
    """Is each row greater than the one before it?"""
    are_equal = np.ones(len(rows) - 1, np.bool_)  # in the columns until now
    for column in rows.columns:
        before, after = (column.filter(numbers(flags, BOOL)) for flags in _pairs(are_equal))
        if pc.any(pc.greater(before, after)).as_py():
            return False
        are_equal[are_equal] = pc.equal(before, after).to_numpy(zero_copy_only=False)
    return not are_equal.any()


def _pairs(are_some: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """The first and the second rows of some pairs of neighbours."""
    return np.append(are_some, False), np.append(False, are_some)
