"""The history of a message, in order of time: every unit that a store has of the message, under whatever topic, the
groups that have consumed it, and the clients' traces of it.

The message's units are found by key or id, through the index where the index covers them. Only rollbacks, which name
no message, and popped messages are looked for in the queues of their topics.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from rmqstore_spark.columns import INT, LONG, TEXT, TIME
from rmqstore_spark.errors import counted
from rmqstore_spark.query.options import MESSAGES, ReadOptions
from rmqstore_spark.query.selection import EVERYTHING, Numbers, Selection, words_of
from rmqstore_spark.read.plan.again import again
from rmqstore_spark.read.plan.stores import files_of, open_stores
from rmqstore_spark.store.elsewhere import say_what_is_unknown
from rmqstore_spark.store.format.message import TRANSACTION_COMMIT, TRANSACTION_TYPE
from rmqstore_spark.store.format.system_topics import (
    DEAD_PREFIX,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    REVIVE_PREFIX,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
    is_moved,
)
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import order_entries
from rmqstore_spark.tables.columns import batches
from rmqstore_spark.tables.delayed import TIMER_PROPERTIES, deliver_times
from rmqstore_spark.tables.inflight import INFLIGHT
from rmqstore_spark.tables.messages import messages
from rmqstore_spark.tables.picked import of_topics
from rmqstore_spark.tables.traces import traces_of

_READ = [
    *("topic", "queueId", "queueOffset", "tags", "keys", "msgId", "offsetMsgId", "body", "properties", "sysFlag"),
    *("bornTimestamp", "bornHost", "storeTimestamp", "reconsumeTimes", "commitLogOffset"),
    *("realTopic", "consumerGroup"),
]
_OFFSET_ID = re.compile("[0-9A-F]{32}|[0-9A-F]{56}")
_SYSTEM_GROUP = "CID_RMQ_SYS_"
_HALF_TOPICS = (HALF_TOPIC, ROCKSDB_HALF_TOPIC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

SCHEMA = pa.schema(
    [
        ("timestamp", TIME),
        ("event", TEXT),
        ("topic", TEXT),
        ("queueId", INT),
        ("queueOffset", LONG),
        ("group", TEXT),
        ("msgId", TEXT),
        ("details", TEXT),
        ("commitLogOffset", LONG),
    ]
)

Unit = dict[str, Any]  # a message's columns; times in microseconds, properties as a dict


class Event(NamedTuple):
    """A row: something that happened. Its time (microseconds) is None if the store does not tell the time.

    Large because the row has as many columns.
    """

    timestamp: int | None
    event: str
    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    group: str | None
    msg_id: str | None
    details: str
    commit_log_offset: int | None


def histories(options: ReadOptions, name: str) -> list[tuple[str, pa.Table]]:
    """The events of the messages with a key or id in each of the stores that options name, by the store's directory.

    Raises:
        RmqStoreError: a store cannot be read; and as by history().
    """
    files = files_of(options)
    return again(lambda: [(store.root, history(store, options, name)) for store in open_stores(options, files)])


def history(store: Snapshot, options: ReadOptions, name: str) -> pa.Table:
    """The events of the messages with a key or id, in order of time; events without a time come last.

    Args:
        options: how to read; their selection is ignored.
        name: a word of `keys`, a `msgId`, or an `offsetMsgId` of any stored unit of a message.

    Returns:
        One row for each event: `produced`, `prepared` (a half message), `checked` (its producer was asked),
        `committed`, `rolled back`, `given up`, `delayed`, `recalled`, `delivered` (after a delay), `retry delayed`,
        `retried`, `dead`, `popped` (and not acknowledged), `traced`, `consumed` (a group's offset is beyond it) and
        `waiting` (it is not).

    Raises:
        DamagedStoreError: mode FAILFAST, and something is damaged.
    """
    say_what_is_unknown(store, MESSAGES)
    units = _units(store, options, name)
    told = [unit for unit in units.values() if unit["topic"] != TRACE_TOPIC]
    parked = _parked(told)
    events = [_event(store, unit, parked) for unit in told]
    events += _rollbacks(store, options, told)
    events += _popped(store, options, told)
    events += _traced([unit for unit in units.values() if unit["topic"] == TRACE_TOPIC], {name}, told)
    events.sort(key=lambda event: (event.timestamp is None, event.timestamp, event.commit_log_offset or 0))
    events += _consumed(store, told)
    return pa.Table.from_batches(batches(SCHEMA, events), SCHEMA)


# ---- the units


def _units(store: Snapshot, options: ReadOptions, name: str) -> dict[int, Unit]:
    """All units of the messages with a key or id, and the traces that name them, by physical offset."""
    found: dict[int, Unit] = {}
    words = {name}
    if _OFFSET_ID.fullmatch(name.upper()):
        units = list(_read(store, options, replace(EVERYTHING, offset_msg_id=frozenset({name.upper()}))))
        found.update((unit["commitLogOffset"], unit) for unit in units)
        words |= {unit["msgId"] for unit in units if unit["msgId"]}
    for word in sorted(words):
        for unit in _read(store, options, replace(EVERYTHING, words=frozenset({word}))):
            found[unit["commitLogOffset"]] = unit
    # A message with keys is also stored without them: where it is recalled.
    ids = frozenset(unit["msgId"] for unit in found.values() if unit["msgId"] and unit["topic"] != TRACE_TOPIC)
    if ids - words:
        for unit in _read(store, options, replace(EVERYTHING, msg_id=ids - words)):
            found[unit["commitLogOffset"]] = unit
    return found


def _read(store: Snapshot, options: ReadOptions, selection: Selection) -> Iterator[Unit]:
    if options.mode == "PERMISSIVE":
        options = replace(options, mode="DROPMALFORMED")
    for batch in messages(store, options, selection, _READ):
        columns = [
            (column.cast(LONG) if pa.types.is_timestamp(column.type) else column).to_pylist()
            for column in batch.columns
        ]
        for row in zip(*columns, strict=True):
            unit = dict(zip(_READ, row, strict=True))
            yield unit | {"properties": dict(unit["properties"])}


# ---- the meaning of each unit


def _parked(units: list[Unit]) -> dict[tuple[Any, ...], int]:
    """The physical offset of the first unit in which a broker kept a message until it was due, by _same_message()."""
    first: dict[tuple[Any, ...], int] = {}
    for unit in units:
        if unit["topic"] in (SCHEDULE_TOPIC, TIMER_TOPIC):
            name = _same_message(unit)
            first[name] = min(unit["commitLogOffset"], first.get(name, unit["commitLogOffset"]))
    return first


def _same_message(unit: Unit) -> tuple[Any, ...]:
    """The fields that a unit shares with the unit that was kept for it before."""
    return unit["msgId"], unit["realTopic"], unit["reconsumeTimes"]


def _event(store: Snapshot, unit: Unit, parked: dict[tuple[Any, ...], int]) -> Event:
    topic, properties = unit["topic"], unit["properties"]
    group = unit["consumerGroup"]
    failed = f"; failed {counted(unit['reconsumeTimes'], 'time')}"
    if topic in _HALF_TOPICS:
        checks = properties.get("TRANSACTION_CHECK_TIMES")
        asked = f"; its producer was asked {checks} time{'s' * (checks != '1')}" if checks else ""
        text = f"for {unit['realTopic']}{asked}"
        return _of(unit, "checked" if checks else "prepared", text, properties.get("PGROUP"))
    if topic == GIVEN_UP_TOPIC:
        return _of(unit, "given up", f"for {unit['realTopic']}", properties.get("PGROUP"))
    if topic == TIMER_TOPIC and "TIMER_DEL_UNIQKEY" in properties:
        return _of(unit, "recalled", f"for {unit['realTopic']}", properties.get("PGROUP"))
    if topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        text = f"for {unit['realTopic']}{_until(store, unit)}"
        return _of(unit, "retry delayed", text + failed, group) if group else _of(unit, "delayed", text)
    if topic.startswith(RETRY_PREFIX):
        return _of(unit, "retried", f"of {unit['realTopic']}{failed}", group)
    if topic.startswith(DEAD_PREFIX):
        return _of(unit, "dead", f"of {unit['realTopic']}{failed}", group)
    text = f"{len(unit['body'] or b'')} bytes{_list('tags', unit['tags'])}{_list('keys', unit['keys'])}"
    if unit["sysFlag"] & TRANSACTION_TYPE == TRANSACTION_COMMIT:
        return _of(unit, "committed", text, properties.get("PGROUP"))
    if parked.get(_same_message(unit), unit["commitLogOffset"]) < unit["commitLogOffset"]:
        return _of(unit, "delivered", text)
    return _of(unit, "produced", f"{text}, from {unit['bornHost']}", properties.get("PGROUP"))


def _of(unit: Unit, event: str, details: str, group: str | None = None) -> Event:
    return Event(
        unit["storeTimestamp"],
        event,
        unit["topic"],
        unit["queueId"],
        unit["queueOffset"],
        group,
        unit["msgId"],
        details,
        unit["commitLogOffset"],
    )


def _until(store: Snapshot, unit: Unit) -> str:
    """The time at which a delayed message is due, as text; empty if unknown."""
    if unit["topic"] == TIMER_TOPIC:
        texts = {name: pa.array([unit["properties"].get(name)], TEXT) for name in TIMER_PROPERTIES}
        timed = pa.table({"storeTimestamp": pa.array([unit["storeTimestamp"]], TIME), **texts})
        (due,) = deliver_times(timed).to_pylist()
        return "" if due is None else _time(due)
    queue = store.queues.queue(SCHEDULE_TOPIC, unit["queueId"])
    item = None if queue is None else queue.unit(unit["queueOffset"])
    level = f", level {unit['queueId'] + 1}"
    return level + (_time(item.tags_code) if item and item.position == unit["commitLogOffset"] else "")


def _time(milliseconds: int) -> str:
    try:
        due = _EPOCH + timedelta(milliseconds=milliseconds)
        return f", due {due.replace(tzinfo=None).isoformat(' ', 'milliseconds')} UTC"
    except OverflowError:
        return ""


def _list(name: str, text: str | None) -> str:
    return f", {name} {text}" if text else ""


# ---- events that only other units tell of


def _rollbacks(store: Snapshot, options: ReadOptions, units: list[Unit]) -> Iterator[Event]:
    """For each transaction without a committed message, the event that ended it."""
    committed = {unit["msgId"] for unit in units if unit["sysFlag"] & TRANSACTION_TYPE == TRANSACTION_COMMIT}
    halves = [unit for unit in units if unit["topic"] in _HALF_TOPICS and unit["msgId"] not in committed]
    if not halves:
        return
    by_place = {(unit["queueId"], str(unit["queueOffset"])): unit for unit in halves if unit["topic"] == HALF_TOPIC}
    by_offset = {str(unit["commitLogOffset"]): unit for unit in halves if unit["topic"] == ROCKSDB_HALF_TOPIC}
    start = min(unit["commitLogOffset"] for unit in halves)
    selection = replace(of_topics(OP_TOPIC, ROCKSDB_OP_TOPIC), commit_log_offset=Numbers(start))
    for op in _read(store, options, selection):
        if op["topic"] == ROCKSDB_OP_TOPIC:
            ended = [by_offset.get(op["properties"].get("TRANS_OFFSET", ""))]
        else:
            names = (op["body"] or b"").decode("ascii", "replace").split(",")
            ended = [by_place.get((op["queueId"], offset)) for offset in names]
        for half in ended:
            if half is not None:
                told = _of(op, "rolled back", f"for {half['realTopic']}", half["properties"].get("PGROUP"))
                yield told._replace(msg_id=half["msgId"])


def _popped(store: Snapshot, options: ReadOptions, units: list[Unit]) -> Iterator[Event]:
    """The consumers that have popped the message and not acknowledged it."""
    places = {(unit["topic"], unit["queueId"], unit["queueOffset"]): unit for unit in units}
    if not places or not _has_popped(store):
        return
    options = replace(options, selection=EVERYTHING)
    for batch in INFLIGHT.rows(store, options, None):
        columns = {
            name: (column.cast(LONG) if pa.types.is_timestamp(column.type) else column).to_pylist()
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
        for row in (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)):
            unit = places.get((row["topic"], row["queueId"], row["queueOffset"]))
            if unit is not None:
                until = _time(row["visibleTimestamp"] // 1000).removeprefix(", due ")
                told = _of(unit, "popped", f"not acknowledged, invisible until {until}", row["group"])
                yield told._replace(timestamp=row["popTimestamp"], commit_log_offset=None)


def _has_popped(store: Snapshot) -> bool:
    """May a store know of popped messages? Their records are in queues of their own, if there are queues at all; that
    none is in the log alone is not made sure of, as that would take a look at every queue."""
    topics = store.queues.topics
    are_queued = not topics or any(topic == TIMER_TOPIC or topic.startswith(REVIVE_PREFIX) for topic in topics)
    return are_queued or store.popped is not None or bool(order_entries(store.root, store.files))


def _traced(units: list[Unit], names: set[str], told: list[Unit]) -> Iterator[Event]:
    """The trace records that are about these messages."""
    names = names | {unit["msgId"] for unit in told if unit["msgId"]}
    for unit in units:
        batch = pa.record_batch(
            [
                pa.array([unit["body"]], pa.binary()),
                pa.array([unit["bornHost"]], TEXT),
                pa.array([unit["storeTimestamp"]], TIME),
                pa.array([unit["commitLogOffset"]], LONG),
            ],
            ["body", "bornHost", "storeTimestamp", "commitLogOffset"],
        )
        records = traces_of(batch)
        times = records.column("timestamp").cast(LONG).to_pylist()
        for record, time in zip(records.drop_columns(["timestamp", "storeTimestamp"]).to_pylist(), times, strict=True):
            if names & {record["msgId"], *words_of(record["keys"] or "")}:
                yield Event(
                    time if time is not None else unit["storeTimestamp"],
                    "traced",
                    record["topic"],
                    None,
                    None,
                    record["group"],
                    record["msgId"],
                    _trace_text(record),
                    unit["commitLogOffset"],
                )


def _trace_text(record: dict[str, Any]) -> str:
    success = {True: ", succeeded", False: ", failed", None: ""}[record["success"]]
    cost = "" if record["costMillis"] is None else f" in {record['costMillis']} ms"
    return f"{record['traceType']}{success}{cost}{_list('on', record['clientHost'])}"


def _consumed(store: Snapshot, units: list[Unit]) -> Iterator[Event]:
    """The groups that have consumed beyond the message in its queue, and the groups that have not."""
    groups: dict[str, list[tuple[str, dict[int, int]]]] = {unit["topic"]: [] for unit in units}
    for group, topic in store.consumer_offsets:
        if topic in groups and not group.startswith(_SYSTEM_GROUP):
            groups[topic].append((group, store.consumer_offsets[group, topic]))
    for unit in sorted(units, key=lambda unit: unit["commitLogOffset"]):
        topic = unit["topic"]
        if (is_moved(topic) and not topic.startswith((RETRY_PREFIX, DEAD_PREFIX))) or topic.startswith(REVIVE_PREFIX):
            continue
        for group, offsets in groups[topic]:
            at = offsets.get(unit["queueId"])
            if at is not None:
                event = "consumed" if at > unit["queueOffset"] else "waiting"
                yield _of(unit, event, f"the group goes on at {at}", group)._replace(timestamp=None)
