"""Table `groups`: the configuration of each consumer group (config/subscriptionGroup.json), and the topics that the
group has consumed (config/consumerOffset.json)."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from rmqstore_spark.columns import BOOL, INT, MAP, TEXT, TEXTS, Column
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.read.run.damage_reports import say_if_unread
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import group_entries
from rmqstore_spark.tables.columns import batches
from rmqstore_spark.tables.entries import attributes_of, flag_of, number_of
from rmqstore_spark.tables.table import Part, Table

_ROWS_AT_ONCE = 512  # each of which may have many topics


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    store.refuse_unread_offsets()
    entries = group_entries(store.root, store.files)
    if not entries:
        say_if_unread(store, "subscriptionGroup.json", GROUPS.name)
    if not store.consumer_offsets:
        say_if_unread(store, store.offsets_files.name, GROUPS.name)
    consumed = store.consumer_offsets.names
    places = dict(consumed.of_groups())
    names = sorted({*entries, *places})
    topics = ([topic for _, topic in consumed[places.get(name, slice(0))]] for name in names)
    rows = (_row(name, entries.get(name), some) for name, some in zip(names, topics, strict=True))
    return batches(GROUPS.schema, rows, _ROWS_AT_ONCE)


def _row(group: str, entry: dict[str, Any] | None, topics: list[str]) -> tuple[Any, ...]:
    # The defaults are those of org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig.
    configured = (
        (None,) * 5
        if entry is None
        else (
            flag_of(entry, "consumeEnable", True),
            flag_of(entry, "consumeBroadcastEnable", True),
            number_of(entry, "retryQueueNums", 1),
            number_of(entry, "retryMaxTimes", 16),
            attributes_of(entry),
        )
    )
    return group, *configured, entry is not None, topics


GROUPS = Table(
    name="groups",
    row="a consumer group known from the configuration or an offset",
    columns=(
        Column("group", TEXT, "name of the group"),
        Column("consumeEnable", BOOL, "whether the group may consume"),
        Column("broadcastEnable", BOOL, "whether the group may consume in broadcast mode"),
        Column("retryQueueNums", INT, "number of queues of the retry topic"),
        Column("retryMaxTimes", INT, "number of retries before a message goes to the DLQ"),
        Column("attributes", MAP, "all attributes in the configuration"),
        Column("configured", BOOL, "whether subscriptionGroup.json has the group"),
        Column("topics", TEXTS, "topics in which the group has offsets"),
    ),
    note="The columns from consumeEnable to attributes are null if the group is not configured.",
    options=frozenset(),
    rows=_rows,
)
