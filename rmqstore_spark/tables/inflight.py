"""Table `inflight`: popped messages that are not acknowledged and still invisible at the time of the log's last
message. Messages that are visible again are popped once more, or in a retry topic.

Each pop leaves a checkpoint of its messages, and each acknowledgement a record, as JSON in messages for the timer; a
request for more time leaves both. Messages popped in order have their state in config/consumerOrderInfo.json. A broker
with popConsumerKVServiceEnable has a record in RocksDB for each message instead (store/structures/rocksdb_popped.py);
such a message counts as popped by itself.
Source: org.apache.rocketmq.broker.processor.PopMessageProcessor, PopReviveService, store.pop.PopCheckPoint, AckMsg,
BatchAckMsg; broker.offset.ConsumerOrderInfoManager.
"""

import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.columns import INT, LONG, TEXT, TIME, Column
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import Numbers, Selection, Texts
from rmqstore_spark.read.run.damage_reports import say_if_unread
from rmqstore_spark.sorting import in_order
from rmqstore_spark.store.format.system_topics import RETRY_PREFIX, REVIVE_PREFIX, TIMER_TOPIC
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import order_entries
from rmqstore_spark.store.structures.layout import queue_id_of
from rmqstore_spark.tables.columns import batches
from rmqstore_spark.tables.grouped import groups
from rmqstore_spark.tables.picked import HOW_TO_READ, picked
from rmqstore_spark.tables.table import Part, Table

_MOST_BODY = 1 << 20  # bytes; a checkpoint has some hundred bytes
_MOST_MESSAGES = 1 << 16  # in a checkpoint; a broker gives 32 at most, as bits of an int say which are acknowledged
_ROWS_AT_ONCE = 16 * 1024
_MOST_OFFSET = 1 << 62
_MOST_TIME = 10**15  # milliseconds; later times fit no column


class _Message(NamedTuple):
    """A popped message: the fields that identify its pop and the message."""

    group: str
    topic: str
    queue_id: int
    start: int  # the first queueOffset of its pop
    pop_time: int
    queue_offset: int


# What a log or a database tells of a popped message: where several tell of the same one, the last of them counts.
_SAID = pa.schema(
    [
        *(pa.field(name, TEXT) for name in ("group", "topic")),
        pa.field("queueId", INT),
        *(pa.field(name, LONG) for name in ("start", "popTime", "queueOffset")),
        pa.field("kind", INT),
        pa.field("until", LONG),  # the time (ms) at which it is visible again
    ]
)
_POPPED, _ACKNOWLEDGED, _IN_ROCKSDB = range(3)


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    ordered = batches(
        INFLIGHT.schema,
        ((*row[:4], 1000 * row[4], 1000 * row[5], row[6]) for row in _in_order(store) if _is_wanted(options, row)),
    )
    keys = [(name, "ascending") for name in INFLIGHT.schema.names]
    return in_order(INFLIGHT.schema, itertools.chain(_popped(store, options), ordered), keys)


def _is_wanted(options: ReadOptions, row: tuple[Any, ...]) -> bool:
    return options.selection.queue(row[1], row[2]) is not None


def _now(store: Snapshot) -> int:
    """The time (ms) of the last write to the store."""
    last = None if store.last_message is None else store.last_message.store_timestamp
    return 0 if last is None else last // 1000


# ---- checkpoints and acknowledgements


def _popped(store: Snapshot, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The rows for messages in flight that are not popped in order."""
    records = batches(_SAID, _records_of(store, options))
    for rows, begins in groups(_SAID, records, _SAID.names[:6], ["kind"]):
        last = rows.take(pa.array(np.append(begins[1:], len(rows)) - 1))
        last = last.filter(pc.not_equal(last.column("kind"), _ACKNOWLEDGED))
        for batch in last.to_batches(_ROWS_AT_ONCE):
            found = [row for row in zip(*batch.to_pydict().values(), strict=True) if _is_wanted(options, row)]
            again = _reconsumed(store, options, found)
            flying = (
                (group, topic, queue_id, offset, 1000 * popped, 1000 * until, again.get((topic, queue_id, offset), 0))
                for group, topic, queue_id, _, popped, offset, _, until in found
            )
            yield from batches(INFLIGHT.schema, flying)


def _records_of(store: Snapshot, options: ReadOptions) -> Iterator[tuple[Any, ...]]:
    """Rows of _SAID: messages that were popped, and are invisible unless acknowledged; and acknowledgements."""
    now, first = _now(store), _MOST_TIME
    for record in _records(store, options, {"ck"}):
        pop_time, invisible = _number(record, "pt", _MOST_TIME), _number(record, "it", _MOST_TIME)
        if pop_time is not None and invisible is not None and pop_time + invisible > now:
            first = min(first, pop_time)
            yield from ((*message, _POPPED, pop_time + invisible) for message in _given(record, pop_time))
    if first < _MOST_TIME:
        for record in _records(store, options, {"ack", "bAck"}):
            if (_number(record, "pt", _MOST_TIME) or 0) >= first:
                yield from ((*message, _ACKNOWLEDGED, 0) for message in _acknowledged(record))
    yield from ((*message, _IN_ROCKSDB, until) for message, until in _in_rocksdb(store) if until > now)


def _in_rocksdb(store: Snapshot) -> Iterator[tuple[_Message, int]]:
    """The messages that have a record in RocksDB, each with the time (ms) at which it is visible again."""
    for record in () if store.popped is None else store.popped.records:
        pop_time, invisible = _number(record, "popTime", _MOST_TIME), _number(record, "invisibleTime", _MOST_TIME)
        offset = _number(record, "offset")
        if pop_time is not None and invisible is not None and offset is not None:
            named = {"c": record.get("groupId"), "t": record.get("topicId"), "q": record.get("queueId")}
            message = _message(named, offset, pop_time, offset)
            if message is not None:
                yield message, pop_time + invisible


def _records(store: Snapshot, options: ReadOptions, tags: set[str]) -> Iterator[dict[str, Any]]:
    """The JSON of checkpoints or acknowledgements. Records that are due are there twice."""
    topics = {TIMER_TOPIC} | {topic for topic in store.known_topics if topic.startswith(REVIVE_PREFIX)}
    selection = Selection(topic=Texts(among=frozenset(topics)), tags=frozenset(tags))
    for batch in picked(store, options, selection, ["body"], ["REAL_TOPIC"]):
        for body, topic in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if body is None or len(body) > _MOST_BODY or not (topic or "").startswith(REVIVE_PREFIX):
                continue
            try:
                record = json.loads(body)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                yield record


def _given(record: dict[str, Any], pop_time: int) -> Iterator[_Message]:
    """The messages of a checkpoint, without those that were acknowledged before it was stored."""
    start, count, done = _number(record, "so"), _number(record, "n", _MOST_MESSAGES), _number(record, "bm")
    steps = record.get("d")
    if steps is None and count is not None:
        steps = list(range(count))  # before 5.0.1 the messages of a pop were without gaps
    if start is None or not isinstance(steps, list):
        return
    for bit, step in enumerate(steps):
        if type(step) is int and 0 <= step < _MOST_OFFSET and not (done or 0) >> bit & 1:
            message = _message(record, start, pop_time, start + step)
            if message is not None:
                yield message


def _acknowledged(record: dict[str, Any]) -> Iterator[_Message]:
    start, pop_time = _number(record, "so"), _number(record, "pt", _MOST_TIME)
    several = record.get("aol")
    for offset in several if isinstance(several, list) else [record.get("ao")]:
        if start is not None and pop_time is not None and type(offset) is int and 0 <= offset < 2 * _MOST_OFFSET:
            message = _message(record, start, pop_time, offset)
            if message is not None:
                yield message


def _message(record: dict[str, Any], start: int, pop_time: int, offset: int) -> _Message | None:
    group, topic, queue_id = record.get("c"), record.get("t"), _number(record, "q", 1 << 31)
    if not isinstance(group, str) or not isinstance(topic, str) or queue_id is None:
        return None
    return _Message(sys.intern(group), sys.intern(topic), queue_id, start, pop_time, offset)  # names are few


def _number(record: dict[str, Any], name: str, limit: int = _MOST_OFFSET) -> int | None:
    """A whole number from 0 to below a limit; None if the record has no such number."""
    found = record.get(name)
    return found if type(found) is int and 0 <= found < limit else None


def _reconsumed(store: Snapshot, options: ReadOptions, rows: list[tuple[Any, ...]]) -> dict[tuple[str, int, int], int]:
    """The number of earlier deliveries of messages that were popped from retry topics; others had none.

    Args:
        rows: of _SAID.
    """
    counts: dict[tuple[str, int, int], int] = {}
    queues: dict[tuple[str, int], list[int]] = {}
    for _, topic, queue_id, _, _, offset, _, _ in rows:
        if topic.startswith(RETRY_PREFIX):
            queues.setdefault((topic, queue_id), []).append(offset)
    for (topic, queue_id), offsets in queues.items():
        selection = Selection(assigned={topic: frozenset({queue_id})}, queue_offset=Numbers.of(*offsets))
        for batch in picked(store, options, selection, ["queueOffset", "reconsumeTimes"], []):
            for offset, count in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                counts[topic, queue_id, offset] = count
    return counts


# ---- in order


def _in_order(store: Snapshot) -> Iterator[tuple[Any, ...]]:
    """The rows for messages that were popped in order, with times in ms."""
    now = _now(store)
    entries = order_entries(store.root, store.files)
    if not entries:
        say_if_unread(store, "consumerOrderInfo.json", INFLIGHT.name)
    for name, queues in entries.items():
        topic, at, group = name.partition("@")
        for text, info in queues.items():
            queue_id = queue_id_of(text)
            if at and queue_id is not None and isinstance(info, dict):
                yield from ((group, topic, queue_id, *row) for row in _of_queue(info) if row[2] > now)


def _of_queue(info: dict[str, Any]) -> Iterator[tuple[int, int, int, int]]:
    """For each message of a queue that is not acknowledged: queueOffset, pop time (ms), the time (ms) until which the
    message is invisible, and the number of earlier deliveries."""
    pop_time, invisible = _number(info, "popTime", _MOST_TIME), _number(info, "i", _MOST_TIME)
    steps, done = info.get("o"), _number(info, "cm") or 0
    if pop_time is None or invisible is None or not isinstance(steps, list) or not steps:
        return
    if not all(type(step) is int and 0 <= step < _MOST_OFFSET for step in steps):
        return
    # All steps but the first are distances from the first.
    for bit, offset in enumerate([steps[0], *(steps[0] + step for step in steps[1:])]):
        if not done >> bit & 1:
            until = _number(_object(info, "ot"), str(offset), _MOST_TIME)
            again = _number(_object(info, "oc"), str(offset), 1 << 31)
            yield offset, pop_time, pop_time + invisible if until is None else until, again or 0


def _object(info: dict[str, Any], name: str) -> dict[str, Any]:
    found = info.get(name)
    return found if isinstance(found, dict) else {}


INFLIGHT = Table(
    name="inflight",
    row="a popped message that has not been acknowledged",
    columns=(
        Column("group", TEXT, "group that popped the message"),
        Column("topic", TEXT, "topic that the message was popped from"),
        Column("queueId", INT, "queue that the message was popped from"),
        Column("queueOffset", LONG, "queue offset of the message there"),
        Column("popTimestamp", TIME, "time of the pop"),
        Column("visibleTimestamp", TIME, "time at which the message can be popped again"),
        Column("retries", INT, "number of earlier deliveries to a consumer"),
    ),
    options=HOW_TO_READ | {"subscribe", "subscribePattern", "assign"},
    rows=_rows,
)
