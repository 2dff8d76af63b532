"""How far consumer groups are behind: table `offsets` in sums, the worst first."""

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.columns import BOOL, LONG
from rmqstore_spark.errors import OptionError
from rmqstore_spark.read.plan.groups import no_offset_of
from rmqstore_spark.sorting import Batches, Keys, begins, in_order, merged
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
_MOST = (1 << 63) - 1  # that a column can hold
_EXACT = pa.decimal128(38, 0)
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
        latest), `expired` (whether the next message of any queue has been deleted). A sum that no int64 holds is the
        largest one that it holds.

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
    # A store has its offsets in the order of their names, in which they stay where they are alike.
    by_name: Keys = [(name, "ascending") for name in names]
    some = merged(schema, _ascending(each if by == "queue" else _sums(each, names), names), by_name)
    return schema, _begun(in_order(schema, _sums(some, names), _WORST_FIRST))


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
    numbered = _summable(rows).append_column("number", numbers(np.cumsum(is_first), LONG))
    found = numbered.group_by("number", use_threads=False).aggregate(list(_SUMS.items())).sort_by("number")
    first = rows.filter(numbers(is_first, BOOL))
    sums = [_summed(found[f"{name}_{how}"]).cast(rows.schema.field(name).type) for name, how in _SUMS.items()]
    return _batch(pa.table([*(first[name] for name in names), *sums], schema=rows.schema))


def _summable(rows: pa.Table) -> pa.Table:
    """The same rows, with lags whose sums an int64 may not hold, as those of damaged queues, as decimal numbers."""
    most = pc.max(rows["lag"]).as_py() or 0
    if most * len(rows) <= _MOST:
        return rows
    return rows.set_column(rows.schema.get_field_index("lag"), "lag", rows["lag"].cast(_EXACT))


def _summed(sums: pa.ChunkedArray) -> pa.ChunkedArray:
    """Sums, none of which is larger than a column can hold."""
    return pc.min_element_wise(sums, pa.scalar(_MOST, _EXACT), skip_nulls=False) if sums.type == _EXACT else sums


def _batch(rows: pa.Table) -> pa.RecordBatch:
    return next(iter(rows.combine_chunks().to_batches()), pa.RecordBatch.from_pylist([], rows.schema))


def _begun(batches: Batches) -> Batches:
    """Rows in order, when all have been read of which they are."""
    return itertools.chain([*itertools.islice(batches, 1)], batches)


def _ascending(batches: Batches, names: list[str]) -> Iterator[Batches]:
    """The rows in runs, in each of which names ascend and come once."""
    for _, run in itertools.groupby(_numbered(batches, names), key=lambda each: each[0]):
        yield (rows for _, rows in run)


def _numbered(batches: Batches, names: list[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows, each with the number of its run."""
    last: list[pa.RecordBatch] = []
    number = 0
    for batch in filter(len, batches):
        some = batch.select(names)
        begin = np.flatnonzero(~_ascend(_batch(pa.Table.from_batches([*last, some])))) + 1 - len(last)
        last = [some.slice(len(some) - 1)]
        bounds = [0, *begin.tolist(), len(batch)]
        for at, (start, stop) in enumerate(itertools.pairwise(bounds)):
            number += at > 0
            yield number, batch.slice(start, stop - start)


def _ascend(rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Is each row but the first one greater than the one before it?"""
    are_equal = np.ones(len(rows) - 1, np.bool_)  # in the columns until now
    are_greater = np.zeros(len(are_equal), np.bool_)
    for column in rows.columns:
        before, after = (column.filter(numbers(flags, BOOL)) for flags in _pairs(are_equal))
        are_greater[are_equal] = pc.greater(after, before).to_numpy(zero_copy_only=False)
        are_equal[are_equal] = pc.equal(before, after).to_numpy(zero_copy_only=False)
    return are_greater


def _pairs(are_some: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """The first and the second rows of some pairs of neighbours."""
    return np.append(are_some, False), np.append(False, are_some)
