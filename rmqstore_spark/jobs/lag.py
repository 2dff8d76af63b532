"""How far consumer groups are behind: table `offsets` in sums, the worst first."""

import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.errors import OptionError
from rmqstore_spark.read.plan.groups import no_offset_of

# What one row is, and the columns that name it.
BY = {"group": ["group"], "topic": ["group", "topic"], "queue": ["group", "topic", "queueId"]}
# The columns of table `offsets` that this needs.
NEEDED = ["group", "topic", "queueId", "lag", "lagMillis", "lastConsumedTimestamp", "expired"]
_SUMS = ["queues", "behind", "lag", "lagMillis", "lastConsumedTimestamp", "expired"]
COLUMNS = [*BY["queue"], *_SUMS]


def lag(offsets: pa.Table, by: str = "group", group: str | None = None) -> pa.Table:
    """The lag of consumer groups: the most messages first, then the longest time.

    Args:
        offsets: table `offsets`, with the columns NEEDED. A queue that does not exist has no lag.
        by: a row for each of these: "group", "topic" (of a group) or "queue" (of a group).
        group: only this one; None: all.

    Returns:
        The columns that name the row; `queues` (number of queues), `behind` (those with a lag), `lag` (messages),
        `lagMillis` (of the queue that is furthest behind), `lastConsumedTimestamp` (the latest), `expired` (whether the
        next message of any queue has been deleted).

    Raises:
        OptionError: no group of this name has an offset, or `by` is none of these words.
    """
    if by not in BY:
        raise OptionError(f"by: expected {', '.join(BY)}, found {by!r}")
    if group is not None:
        known = set(offsets["group"].to_pylist())
        if group not in known:
            raise OptionError(no_offset_of(group, sorted(known)))
        offsets = offsets.filter(pc.equal(offsets["group"], group))
    left = pc.max_element_wise(offsets["lag"], 0, skip_nulls=False)
    offsets = offsets.set_column(offsets.schema.get_field_index("lag"), "lag", left)
    offsets = offsets.append_column("behind", pc.greater(left, 0).cast(pa.int64()))
    some = offsets.group_by(BY[by]).aggregate(
        [
            ("queueId", "count"),
            ("behind", "sum"),
            ("lag", "sum"),
            ("lagMillis", "max"),
            ("lastConsumedTimestamp", "max"),
            ("expired", "any"),
        ]
    )
    names = [*BY[by], *_SUMS]
    columns = [f"{each}_{how}" for each, how in (("queueId", "count"), ("behind", "sum"), ("lag", "sum"))]
    columns += ["lagMillis_max", "lastConsumedTimestamp_max", "expired_any"]
    found = some.select([*BY[by], *columns]).rename_columns(names)
    order = [("lag", "descending"), ("lagMillis", "descending"), *((name, "ascending") for name in BY[by])]
    return found.sort_by(order)
