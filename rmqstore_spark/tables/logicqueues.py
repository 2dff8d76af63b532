"""Table `logicqueues`: the queues of static topics, as their consumers count them."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from rmqstore_spark.columns import BOOL, INT, LONG, TEXT, Column
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import Selection
from rmqstore_spark.store.queue_bounds import queue_bounds
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.static_topics import LogicPart
from rmqstore_spark.tables.columns import batches
from rmqstore_spark.tables.table import Part, Table

_MOST = (1 << 63) - 1


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    return batches(LOGIC_QUEUES.schema, _parts(store, options.selection))


def _parts(store: Snapshot, selection: Selection) -> Iterator[tuple[Any, ...]]:
    for part in store.static_parts:
        if selection.wants_topic(part.topic):
            yield (
                *(part.topic, part.logic_queue_id, part.generation, part.broker, part.is_here, part.queue_id),
                *(
                    part.logic_offset if part.logic_offset >= 0 else None,
                    part.start,
                    part.end if part.end >= 0 else None,
                ),
                *_there(store, part),
            )


def _there(store: Snapshot, part: LogicPart) -> tuple[int | None, int | None]:
    """The logic offsets of the first message that is left of a part, and after the last one."""
    queue = store.queues.dispatched_to(part.topic, part.queue_id) if part.is_here else None
    if queue is None or part.logic_offset < 0:
        return None, None
    (bounds,) = queue_bounds(store, [queue])
    end = bounds.end if part.end < 0 else min(bounds.end, part.end)
    least = max(bounds.least, part.start)
    shift = part.logic_offset - part.start
    most = max(least, end) + shift
    return (least + shift, most) if most <= _MOST else (None, None)


LOGIC_QUEUES = Table(
    name="logicqueues",
    row="a part of a queue of a static topic",
    columns=(
        Column("topic", TEXT, "the static topic"),
        Column("logicQueueId", INT, "number of the logic queue, as clients see it (globalId)"),
        Column("generation", INT, "number of the part in its logic queue (gen)"),
        Column("brokerName", TEXT, "broker that has the part"),
        Column("isHere", BOOL, "whether it is this store's broker"),
        Column("queueId", INT, "number of the queue in that broker"),
        Column("logicOffset", LONG, "logic offset of the part's first message; null if it is not decided yet"),
        Column("startOffset", LONG, "queue offset of the part's first message"),
        Column("endOffset", LONG, "queue offset after the part's last message; null if the part goes on"),
        Column("minLogicOffset", LONG, "logic offset of the first message of the part that is left here"),
        Column("maxLogicOffset", LONG, "logic offset after the last message of the part that is here"),
    ),
    note="As config/topicQueueMapping.json has them. Messages have by-name columns `logicQueueId` and `logicOffset`.",
    options=frozenset({"subscribe", "subscribePattern"}),
    rows=_rows,
)
