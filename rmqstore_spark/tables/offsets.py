"""Table `offsets`: each consumer group's progress in each queue, as RocketMQ's consumerProgress shows it for a running
broker. A group's offset is that of the next message that it will get (config/consumerOffset.json)."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from rmqstore_spark.columns import BOOL, INT, LONG, TEXT, TIME, Column
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import EVERYTHING, Selection
from rmqstore_spark.store.elsewhere import say_if_unread
from rmqstore_spark.store.queue_times import QueueTimes
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.columns import batches
from rmqstore_spark.tables.queues import QueueFacts, queue_facts
from rmqstore_spark.tables.table import Part, Table


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    if not store.consumer_offsets:
        say_if_unread(store, "consumerOffset.json", OFFSETS.name)
    wanted = _consumed(store, options.selection)
    if not wanted:  # nothing to look up; finding the queues might take a read of the whole log
        return batches(OFFSETS.schema, ())
    assigned: dict[str, set[int]] = {}
    for _, topic, queue_id, _ in wanted:
        assigned.setdefault(topic, set()).add(queue_id)
    queues = queue_facts(store, Selection(assigned={topic: frozenset(ids) for topic, ids in assigned.items()}))
    return batches(OFFSETS.schema, _progress(store, wanted, queues))


def progress(store: Snapshot, queues: Iterable[QueueFacts]) -> pa.Table:
    """The whole table of a store whose queues are all known."""
    rows = _progress(store, _consumed(store, EVERYTHING), queues)
    return pa.Table.from_batches(batches(OFFSETS.schema, rows), OFFSETS.schema)


def _consumed(store: Snapshot, selection: Selection) -> list[tuple[str, str, int, int]]:
    """(group, topic, queueId, offset) of all progress in selected queues."""
    return sorted(
        (group, topic, queue_id, offset)
        for (group, topic), queues in store.consumer_offsets.items()
        for queue_id, offset in queues.items()
        if selection.queue(topic, queue_id) is not None
    )


def _progress(
    store: Snapshot, wanted: list[tuple[str, str, int, int]], known: Iterable[QueueFacts]
) -> Iterator[tuple[Any, ...]]:
    queues = {(facts.topic, facts.queue_id): facts for facts in known}
    times = QueueTimes(store)
    for group, topic, queue_id, offset in wanted:
        facts = queues.get((topic, queue_id))
        if facts is None and queue_id < store.topics.get(topic, 0):
            facts = QueueFacts(topic, queue_id, "simple", 0, 0)  # the queue has no message yet
        yield group, topic, queue_id, offset, *_behind(facts, offset, times)


def _behind(facts: QueueFacts | None, offset: int, times: QueueTimes) -> tuple[Any, ...]:
    """The columns from minOffset on."""
    if facts is None:
        return (None,) * 6
    lag = facts.end - max(offset, facts.least)
    consumed = None
    if facts.least < offset <= facts.end:
        consumed = facts.last_time if offset == facts.end else facts.times.get(offset - 1)
        consumed = times.at(facts.topic, facts.queue_id, offset - 1) if consumed is None else consumed
    millis = None
    since = facts.first_time if consumed is None else consumed
    if lag <= 0:
        millis = 0
    elif facts.last_time is not None and since is not None:
        millis = max(0, facts.last_time - since) // 1000
    return facts.least, facts.end, lag, consumed, millis, offset < facts.least


OFFSETS = Table(
    name="offsets",
    row="the position of a consumer group in a queue",
    columns=(
        Column("group", TEXT, "the consumer group"),
        Column("topic", TEXT, "topic of the queue"),
        Column("queueId", INT, "number of the queue"),
        Column("consumerOffset", LONG, "queue offset of the next message for the group"),
        Column("minOffset", LONG, "queue offset of the first message that is left"),
        Column("maxOffset", LONG, "queue offset after the last message"),
        Column(
            "lag",
            LONG,
            "number of messages left that the group has not consumed, whatever their tags; below 0 if the queue ends "
            "before the group's offset",
        ),
        Column("lastConsumedTimestamp", TIME, "store time of the last message that the group consumed"),
        Column(
            "lagMillis",
            LONG,
            "milliseconds of store time from the last consumed message, or else the first one left, to the last "
            "message",
        ),
        Column("expired", BOOL, "whether the group's next message has been deleted"),
    ),
    note="The columns from minOffset on are null if the queue does not exist.",
    options=frozenset({"subscribe", "subscribePattern", "assign"}),
    rows=_rows,
)
