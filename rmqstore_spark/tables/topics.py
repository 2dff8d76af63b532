"""Table `topics`: the configuration of each topic (config/topics.json), and the contents of its queues."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from rmqstore_spark.columns import BOOL, INT, LONG, MAP, TEXT, TIME, Column, as_schema
from rmqstore_spark.garbage import collector_paused
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.read.run.damage_reports import say_if_unread
from rmqstore_spark.store.format.system_topics import (
    DEAD_PREFIX,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    SCHEDULE_TOPIC,
    TRACE_TOPIC,
)
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import DEFAULT_QUEUES, is_count
from rmqstore_spark.store.structures.many_headers import NO_TIME
from rmqstore_spark.tables.columns import batches
from rmqstore_spark.tables.entries import attributes_of, flag_of
from rmqstore_spark.tables.queues import QueueFacts, queue_facts, say_what_is_lost
from rmqstore_spark.tables.table import Part, Table
from rmqstore_spark.tables.usage import usage_of

# org.apache.rocketmq.common.topic.TopicValidator, of all versions.
_SYSTEM = {
    "TBW102",
    SCHEDULE_TOPIC,
    "BenchmarkTest",
    HALF_TOPIC,
    TRACE_TOPIC,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    GIVEN_UP_TOPIC,
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
}
_SYSTEM_PREFIX = "rmq_sys_"
_REPLIES = "_REPLY_TOPIC"  # after the cluster's name (MixAll.getReplyTopic)
_INHERIT = 1  # org.apache.rocketmq.common.constant.PermName: topics that a broker makes of its own name and cluster
_PERMISSIONS = ((4, "R"), (2, "W"), (_INHERIT, "X"))
_NO_QUEUES = 0, 0, None
_ALL = 6  # the default if an entry does not say (TopicConfig)


def kind_of(topic: str, entry: dict[str, Any] | None) -> str:
    """`user`, `retry`, `dlq` or `system`.

    Args:
        entry: the topic's entry in config/topics.json.
    """
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DEAD_PREFIX):
        return "dlq"
    permission = (entry or {}).get("perm")
    is_brokers = isinstance(permission, int) and bool(permission & _INHERIT)
    is_system = topic in _SYSTEM or topic.startswith(_SYSTEM_PREFIX) or topic.endswith(_REPLIES)
    return "system" if is_system or is_brokers else "user"


def _parts(store: Snapshot, options: ReadOptions) -> list[Part]:
    return [None] if store.leads_topic else []


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    if _BYTES.name in (options.columns or ()):  # which may take as long as a scan
        yield from _batches(store, options)
        return
    with collector_paused():  # there may be very many topics
        found = list(_batches(store, options))
    yield from found


def _batches(store: Snapshot, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    entries = store.topic_entries
    if not entries:
        say_if_unread(store, "topics.json", TOPICS.name)
    facts = queue_facts(store, options.selection, of_logs=store.queues_of_topic())
    say_what_is_lost(store, facts)
    queues = _in_queues(facts)
    names = {name for name in {*entries, *store.consumed_topics} if options.selection.wants_topic(name)} | {*queues}
    rows = (_row(name, entries.get(name), queues.get(name, _NO_QUEUES)) for name in sorted(names))
    if _BYTES.name not in (options.columns or ()):
        return batches(TOPICS.schema, rows)
    nbytes = _nbytes(store, options)
    known = {name: 0 for name in names if store.is_whole and not queues.get(name, _NO_QUEUES)[1]} | nbytes
    return batches(_WITH_BYTES, ((*row, known.get(name)) for name, row in zip(sorted(names), rows, strict=True)))


def _nbytes(store: Snapshot, options: ReadOptions) -> dict[str, int]:
    """The bytes of whole messages, by the topics that have any; not known in a tiered store."""
    found = usage_of(store, replace(options, mode="DROPMALFORMED"), ["topic"]) if store.is_whole else None
    return {} if found is None else dict(zip(*(found[0][name].to_pylist() for name in ("topic", "bytes")), strict=True))


def _in_queues(facts: QueueFacts) -> dict[str, tuple[int, int, int | None]]:
    """Of each topic the number of queues, the number of messages in them, and the store time of the last one."""
    topics, bounds = facts.topics
    if not topics:
        return {}
    starts = bounds[:-1]
    last = np.maximum.reduceat(facts.times[1], starts).tolist()
    columns = np.diff(bounds).tolist(), np.add.reduceat(facts.counts, starts).tolist(), last
    rows = zip(topics, *columns, strict=True)
    return {topic: (queues, count, None if time == NO_TIME else time) for topic, queues, count, time in rows}


def _row(topic: str, entry: dict[str, Any] | None, in_queues: tuple[int, int, int | None]) -> tuple[Any, ...]:
    return (
        topic,
        kind_of(topic, entry),
        *(_configured(entry) if entry is not None else (None,) * 8),
        entry is not None,
        *in_queues,
    )


def _configured(entry: dict[str, Any]) -> tuple[Any, ...]:
    """The columns from readQueueNums to attributes, with a broker's defaults for what the entry does not say."""
    counts = (entry.get(name, DEFAULT_QUEUES) for name in ("readQueueNums", "writeQueueNums"))
    permission = entry.get("perm", _ALL)
    attributes = attributes_of(entry)
    return (
        *(count if is_count(count) else None for count in counts),
        "".join(letter if permission & bit else "-" for bit, letter in _PERMISSIONS) if is_count(permission) else None,
        flag_of(entry, "order", False),
        attributes.get("message.type", "NORMAL"),
        attributes.get("cleanup.policy", "DELETE"),
        attributes.get("queue.type", "SimpleCQ"),
        attributes,
    )


_BYTES = Column("bytes", LONG, "bytes that its messages take in the log; null for light queues and in tiered stores")

TOPICS = Table(
    name="topics",
    row="a topic known from the configuration, a queue or a consumer's offset",
    columns=(
        Column("topic", TEXT, "name of the topic"),
        Column("kind", TEXT, "user, retry, dlq or system"),
        Column("readQueueNums", INT, "number of queues for consumers"),
        Column("writeQueueNums", INT, "number of queues for producers"),
        Column("perm", TEXT, "permissions: R read, W write, X inherit"),
        Column("order", BOOL, "whether it is configured as an ordered topic"),
        Column("messageType", TEXT, "NORMAL, FIFO, DELAY, TRANSACTION, ..."),
        Column("cleanupPolicy", TEXT, "DELETE or COMPACTION"),
        Column("queueType", TEXT, "SimpleCQ or BatchCQ"),
        Column("attributes", MAP, "all attributes in the configuration"),
        Column("configured", BOOL, "whether topics.json has the topic"),
        Column("queues", INT, "number of queues on the disk"),
        Column("messages", LONG, "number of messages in these queues"),
        Column("lastStoreTimestamp", TIME, "store time of the last message"),
    ),
    note="The columns from readQueueNums to attributes are null if the topic is not configured. By name only, as it "
    "takes a look at each message's queue unit and the others only at the ends of queues: column `bytes`, the bytes "
    "that the topic's messages take in the log (null for light queues, whose messages are of other topics, and in "
    "tiered stores). Bytes by queue, tag or hour are in table `usage`.",
    options=frozenset({"subscribe", "subscribePattern"}),
    rows=_rows,
    parts=_parts,
    of_queue_logs=True,
    by_name=(_BYTES,),
)
_WITH_BYTES = as_schema((*TOPICS.columns, _BYTES))
