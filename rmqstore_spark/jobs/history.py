"""The history of a message, in order of time: every unit that a store has of the message, under whatever topic, the
groups that have consumed it, and the clients' traces of it.

The message's units are found by key or id, through the index where the index covers them. Only rollbacks, which name
no message, and popped messages are looked for in the queues of their topics.

A tiered store is the logs of its queues. What a broker does not bring there is not told of: system topics, and so
delays, transactions, popped messages and the brokers' own traces; and consumers' offsets.

A key may be that of very many messages, so units wait in a file, message by message, and events are sorted there. What
is looked for in other units is looked for some at a time, and these are read once for each time.
"""

import functools
import itertools
import logging
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.columns import INT, LONG, TEXT, TIME, arrow_schema
from rmqstore_spark.errors import counted, one_line
from rmqstore_spark.query.options import MESSAGES, ReadOptions
from rmqstore_spark.query.selection import EVERYTHING, Numbers, Selection, words_of
from rmqstore_spark.read.plan.again import again, begun_again
from rmqstore_spark.read.plan.joined import refuse_several_brokers
from rmqstore_spark.read.plan.stores import files_of, open_stores
from rmqstore_spark.read.scan import Scan
from rmqstore_spark.sorting import Batches, WaitingRows, in_order
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
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import order_entries
from rmqstore_spark.tables.columns import batches
from rmqstore_spark.tables.delayed import TIMER_PROPERTIES, deliver_times
from rmqstore_spark.tables.inflight import INFLIGHT
from rmqstore_spark.tables.picked import of_topics
from rmqstore_spark.tables.traces import traces_of

log = logging.getLogger(__name__)

_READ = [
    *("topic", "queueId", "queueOffset", "tags", "keys", "msgId", "offsetMsgId", "body", "properties", "sysFlag"),
    *("bornTimestamp", "bornHost", "storeTimestamp", "reconsumeTimes", "commitLogOffset"),
    *("realTopic", "consumerGroup", "preparedTransactionOffset"),
]
# The units as they wait: the body of a trace alone; birth: when and where a message without msgId was sent, which all
# its units have in common; isLate: it tells nothing of other units of its message.
_UNITS = pa.schema([*arrow_schema(_READ), ("bodySize", LONG), ("birth", TEXT), ("isLate", pa.bool_())])
_COMMITS = arrow_schema(["preparedTransactionOffset", "topic"])
_PLACE = ["commitLogOffset", "topic", "queueId", "queueOffset"]  # null in a tiered store is the first of these alone
_BY_MESSAGE = [(name, "ascending") for name in ("msgId", "birth", "isLate", *_PLACE)]
_AT_ONCE = 16_384  # units, rows or ids that are held, and looked for in others
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

STORE = pa.field("store", TEXT)  # whose messages they are, where several stores are asked
_SORTED = pa.schema([*SCHEMA, ("order", LONG)])
_ORDER = [("timestamp", "ascending"), ("order", "ascending")]
_IN_QUEUE = ["topic", "queueId", "queueOffset", "commitLogOffset", "msgId"]

_NOT_TOLD = (
    "a tiered store tells when messages were stored, retried and given up; not that they were delayed, prepared, "
    "rolled back, popped or consumed, which only the broker's own store tells"
)

Logs = Sequence[Snapshot]  # of one store: one, or of a tiered store that of each queue
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


def histories(options: ReadOptions, name: str) -> list[pa.Table]:
    """The events of the messages with a key or id in each of the stores that options name, with the column `store`.

    Raises:
        RmqStoreError: a store cannot be read; and as by events().
    """
    files = files_of(options)

    def of(logs: Logs) -> pa.Table:
        found = history(logs, options, name)
        return found.append_column(STORE, pa.repeat(pa.scalar(logs[0].root, TEXT), len(found)))

    return again(lambda: [of(logs) for logs in _stores(options, files)])


def _stores(options: ReadOptions, files: Files) -> list[Logs]:
    """The stores that options name, each as its logs."""
    logs = open_stores(options, files, with_queue_logs=True)
    refuse_several_brokers([each.layout for each in logs if not each.is_whole])
    return [list(of_store) for _, of_store in itertools.groupby(logs, operator.attrgetter("root"))]


def all_events(options: ReadOptions, name: str) -> tuple[pa.Schema, Batches]:
    """The events in all stores that options name, in order of time; with a column `store` where there are several.

    Raises:
        RmqStoreError: a store cannot be read; and as by events().
    """
    files = files_of(options)
    stores = again(lambda: _stores(options, files))
    if len(stores) == 1:
        opened = list(stores)  # opened again where files are deleted meanwhile
        return SCHEMA, begun_again(lambda: events((opened or _stores(options, files)).pop(), options, name))
    schema = SCHEMA.append(STORE)

    def of_each() -> Batches:
        for table in histories(options, name):
            yield from table.to_batches()

    return schema, in_order(schema, of_each(), [("timestamp", "ascending")])


def history(logs: Logs, options: ReadOptions, name: str) -> pa.Table:
    """The rows of events() as a table."""
    return pa.Table.from_batches(events(logs, options, name), SCHEMA)


def events(logs: Logs, options: ReadOptions, name: str) -> Batches:
    """The events of the messages with a key or id, in order of time; events without a time come last.

    Args:
        logs: the logs of the store.
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
    store = logs[0]
    if store.is_whole:
        say_what_is_unknown(store, MESSAGES)
    else:
        log.warning("%s: %s", one_line(store.root), _NOT_TOLD)
    units = WaitingRows(_UNITS, _once(in_order(_UNITS, _units(logs, options, name), _BY_MESSAGE)))
    traces = WaitingRows(_UNITS, _traces(units))
    found = itertools.chain(
        (_event(store, each.unit, each.was_parked) for each in _of_messages(units)),
        _of_other_units(store, options, units) if store.is_whole else (),
        _traced(units, traces, name),
    )
    for batch in in_order(_SORTED, map(_with_order, batches(SCHEMA, found)), _ORDER):
        yield batch.select(SCHEMA.names)
    yield from batches(SCHEMA, _consumed(store, units))


def _with_order(batch: pa.RecordBatch) -> pa.RecordBatch:
    order = pc.fill_null(batch.column("commitLogOffset"), 0)
    return pa.RecordBatch.from_arrays([*batch.columns, order], schema=_SORTED)


# ---- the units


def _units(logs: Logs, options: ReadOptions, name: str) -> Batches:
    """All units of the messages with a key or id, and the traces that name them, as _UNITS; some come several times."""
    words = {name}
    if _OFFSET_ID.fullmatch(name.upper()) and logs[0].has_physical_offsets:
        for batch in _read(logs, options, replace(EVERYTHING, offset_msg_id=frozenset({name.upper()}))):
            words |= {id for id in batch.column("msgId").to_pylist() if id}
            yield _as_unit_rows(batch)
    # A message with keys is also stored without them: where it is recalled.
    ids = set[str]()
    for word in sorted(words):
        for batch in _read(logs, options, replace(EVERYTHING, words=frozenset({word}))):
            yield _as_unit_rows(batch)
            own = batch.filter(pc.not_equal(batch.column("topic"), TRACE_TOPIC)).column("msgId")
            for at in range(0, len(own), _AT_ONCE):
                ids |= {id for id in own.slice(at, _AT_ONCE).to_pylist() if id and id not in words}
                if len(ids) >= _AT_ONCE:
                    yield from _of_ids(logs, options, ids)
                    ids.clear()
    yield from _of_ids(logs, options, ids)


def _of_ids(logs: Logs, options: ReadOptions, ids: set[str]) -> Batches:
    if ids:
        yield from map(_as_unit_rows, _read(logs, options, replace(EVERYTHING, msg_id=frozenset(ids))))


def _read(logs: Logs, options: ReadOptions, selection: Selection) -> Batches:
    if options.mode == "PERMISSIVE":
        options = replace(options, mode="DROPMALFORMED")
    return Scan(replace(options, selection=selection), _READ, tuple(logs)).batches()


def _as_unit_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    rows = dict(zip(_READ, batch.columns, strict=True))
    topic, body = rows["topic"], rows["body"]
    rows["bodySize"] = pc.fill_null(pc.binary_length(body), 0).cast(LONG)
    rows["body"] = pc.if_else(pc.equal(topic, TRACE_TOPIC), body, pa.scalar(None, body.type))
    rows["birth"] = pc.if_else(pc.is_null(rows["msgId"]), _births(rows), pa.scalar(None, TEXT))
    is_commit = _are_commits(rows["sysFlag"])
    is_kept = pc.is_in(topic, pa.array([SCHEDULE_TOPIC, TIMER_TOPIC]))
    rows["isLate"] = pc.invert(pc.or_(is_commit, is_kept))
    return pa.RecordBatch.from_arrays([*rows.values()], schema=_UNITS)


def _births(rows: dict[str, pa.Array]) -> pa.Array:
    sent = rows["bornTimestamp"].cast(LONG).cast(TEXT)
    return pc.binary_join_element_wise(sent, rows["bornHost"], " ")


def _are_commits(sys_flags: pa.Array) -> pa.Array:
    return pc.equal(pc.bit_wise_and(sys_flags, TRANSACTION_TYPE), TRANSACTION_COMMIT)


def _once(ordered: Batches) -> Batches:
    """Rows in the order _BY_MESSAGE, each unit once."""
    last: pa.Table | None = None
    for batch in ordered:
        if not len(batch):
            continue
        places = pa.Table.from_batches([batch.select(_PLACE)])
        before = pa.concat_tables([places.slice(0, 1) if last is None else last, places.slice(0, len(batch) - 1)])
        is_new = np.array(functools.reduce(pc.or_, (_differ(places[name], before[name]) for name in _PLACE)))
        is_new[0] |= last is None
        last = places.slice(len(batch) - 1)
        yield batch.filter(pa.array(is_new))


def _differ(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """Which values differ: a column is null in all rows, or in none."""
    return pc.fill_null(pc.not_equal(one, other), False)


def _without_traces(units: WaitingRows) -> Batches:
    for batch in units:
        yield batch.filter(pc.not_equal(batch.column("topic"), TRACE_TOPIC))


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Unit]:
    for whole in batches:
        for at in range(0, len(whole), _AT_ONCE // 8):
            batch = whole.slice(at, _AT_ONCE // 8)
            columns = [
                (column.cast(LONG) if pa.types.is_timestamp(column.type) else column).to_pylist()
                for column in batch.columns
            ]
            for row in zip(*columns, strict=True):
                yield dict(zip(batch.schema.names, row, strict=True))


class _OfMessage(NamedTuple):
    """A unit, and what other units of its message tell of it.

    Attributes:
        was_parked: whether a broker kept it until it was due, in a unit before this one.
        is_committed: whether a message with its msgId was committed.
    """

    unit: Unit
    was_parked: bool
    is_committed: bool


def _of_messages(units: WaitingRows) -> Iterator[_OfMessage]:
    """The units but for traces, message by message."""
    parked: dict[tuple[Any, ...], int] = {}
    is_committed = False
    last: tuple[str | None, str | None] = None, None
    for unit in _rows(_without_traces(units)):
        unit["properties"] = dict(unit["properties"])
        message = unit["msgId"], unit["birth"]
        if message != last:
            parked.clear()
            last, is_committed = message, False
        name = _same_message(unit)
        if unit["topic"] in (SCHEDULE_TOPIC, TIMER_TOPIC) and unit["commitLogOffset"] is not None:
            parked[name] = min(unit["commitLogOffset"], parked.get(name, unit["commitLogOffset"]))
        is_commit = unit["sysFlag"] & TRANSACTION_TYPE == TRANSACTION_COMMIT
        is_committed = is_committed or (is_commit and unit["msgId"] is not None)
        yield _OfMessage(unit, name in parked and parked[name] < unit["commitLogOffset"], is_committed)


# ---- the meaning of each unit


def _same_message(unit: Unit) -> tuple[Any, ...]:
    """The fields that a unit shares with the unit of its message that was kept for it before."""
    return unit["realTopic"], unit["reconsumeTimes"]


def _event(store: Snapshot, unit: Unit, was_parked: bool) -> Event:
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
    text = f"{unit['bodySize']} bytes{_list('tags', unit['tags'])}{_list('keys', unit['keys'])}"
    if unit["sysFlag"] & TRANSACTION_TYPE == TRANSACTION_COMMIT:
        return _of(unit, "committed", text, properties.get("PGROUP"))
    if was_parked:
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


def _of_other_units(store: Snapshot, options: ReadOptions, units: WaitingRows) -> Iterator[Event]:
    return itertools.chain(_rollbacks(store, options, units), _popped(store, options, units))


def _rollbacks(store: Snapshot, options: ReadOptions, units: WaitingRows) -> Iterator[Event]:
    """For each transaction without a committed message, the event that ended it."""
    commits = WaitingRows(_COMMITS, _commits_without_id(units))
    halves = (each.unit for each in _of_messages(units) if each.unit["topic"] in _HALF_TOPICS and not each.is_committed)
    while some := list(itertools.islice(halves, _AT_ONCE)):
        if ended := _not_named(some, commits):
            yield from _rollbacks_of(store, options, ended)


def _commits_without_id(units: WaitingRows) -> Batches:
    for batch in _without_traces(units):
        are_wanted = pc.and_(_are_commits(batch.column("sysFlag")), pc.is_null(batch.column("msgId")))
        yield batch.filter(are_wanted).select(_COMMITS.names)


def _not_named(halves: list[Unit], commits: WaitingRows) -> list[Unit]:
    """The half messages that no commit without a msgId names: by their place, as 0 also stands for none, and topic."""
    sought = {(unit["commitLogOffset"], unit["realTopic"]) for unit in halves if unit["msgId"] is None}
    named = {place for row in _rows(commits) if (place := tuple(row.values())) in sought} if sought else set()
    return [unit for unit in halves if unit["msgId"] or (unit["commitLogOffset"], unit["realTopic"]) not in named]


def _rollbacks_of(store: Snapshot, options: ReadOptions, halves: list[Unit]) -> Iterator[Event]:
    by_place = {(unit["queueId"], str(unit["queueOffset"])): unit for unit in halves if unit["topic"] == HALF_TOPIC}
    in_rocksdb = _InRocksDB(halves)
    start = min(unit["commitLogOffset"] for unit in halves)
    selection = replace(of_topics(OP_TOPIC, ROCKSDB_OP_TOPIC), commit_log_offset=Numbers(start))
    for op in _rows(_read([store], options, selection)):
        op["properties"] = dict(op["properties"])
        if op["topic"] == ROCKSDB_OP_TOPIC:
            ended = [in_rocksdb.named(op["properties"])]
        else:
            names = (op["body"] or b"").decode("ascii", "replace").split(",")
            ended = [by_place.get((op["queueId"], offset)) for offset in names]
        for half in ended:
            if half is not None:
                event = _of(op, "rolled back", f"for {half['realTopic']}", half["properties"].get("PGROUP"))
                yield event._replace(msg_id=half["msgId"])


class _InRocksDB:
    """Half messages of a broker that keeps transactions in RocksDB, by what an op message names: the transaction's id,
    which is the msgId; where one of the two has none, the physical offset, which in a copy is that of the old log."""

    def __init__(self, halves: list[Unit]) -> None:
        units = [unit for unit in halves if unit["topic"] == ROCKSDB_HALF_TOPIC]
        self._by_id = {(unit["realTopic"], unit["msgId"]): unit for unit in units if unit["msgId"] is not None}
        self._by_offset = {str(unit["commitLogOffset"]): unit for unit in units}

    def named(self, properties: dict[str, str]) -> Unit | None:
        """The half message that an op message with these properties names, if it is one of these."""
        name = properties.get("REAL_TOPIC"), properties.get("__transactionId__")
        at_offset = self._by_offset.get(properties.get("TRANS_OFFSET", ""))
        if None in name or (at_offset is not None and at_offset["msgId"] is None):
            return at_offset
        return self._by_id.get(name)


def _popped(store: Snapshot, options: ReadOptions, units: WaitingRows) -> Iterator[Event]:
    """The consumers that have popped the message and not acknowledged it."""
    if not any(len(batch) for batch in _without_traces(units)) or not _has_popped(store):
        return
    rows = _rows(INFLIGHT.rows(store, replace(options, selection=EVERYTHING), None))
    while some := list(itertools.islice(rows, _AT_ONCE)):
        wanted = {(row["topic"], row["queueId"], row["queueOffset"]) for row in some}
        found = {
            place: unit
            for unit in _rows(_in_topics(units, {topic for topic, *_ in wanted}))
            if (place := (unit["topic"], unit["queueId"], unit["queueOffset"])) in wanted
        }
        for row in some:
            unit = found.get((row["topic"], row["queueId"], row["queueOffset"]))
            if unit is not None:
                until = _time(row["visibleTimestamp"] // 1000).removeprefix(", due ")
                event = _of(unit, "popped", f"not acknowledged, invisible until {until}", row["group"])
                yield event._replace(timestamp=row["popTimestamp"], commit_log_offset=None)


def _in_topics(units: WaitingRows, topics: set[str]) -> Batches:
    """The places of units of some topics."""
    names = pa.array(sorted(topics), TEXT)
    for batch in _without_traces(units):
        yield batch.filter(pc.is_in(batch.column("topic"), names)).select([*_IN_QUEUE, "storeTimestamp"])


def _has_popped(store: Snapshot) -> bool:
    """May a store know of popped messages? Their records are in queues of their own, if there are queues at all; that
    none is in the log alone is not made sure of, as that would take a look at every queue."""
    topics = store.queues.topics
    are_queued = not topics or any(topic == TIMER_TOPIC or topic.startswith(REVIVE_PREFIX) for topic in topics)
    return are_queued or store.popped is not None or bool(order_entries(store.root, store.files))


def _traced(units: WaitingRows, traces: WaitingRows, name: str) -> Iterator[Event]:
    """The trace records that are about these messages: that name the key or id, or a message's id."""
    records = ((record, unit) for unit in _rows(traces) for record in _records(unit))
    while some := list(itertools.islice(records, _AT_ONCE)):
        named = [{record["msgId"], *words_of(record["keys"] or "")} - {None, ""} for record, _ in some]
        known = _ids_among(units, set[str]().union(*named)) | {name}
        for (record, unit), names in zip(some, named, strict=True):
            if names & known:
                yield Event(
                    record["timestamp"] if record["timestamp"] is not None else unit["storeTimestamp"],
                    "traced",
                    record["topic"],
                    None,
                    None,
                    record["group"],
                    record["msgId"],
                    _trace_text(record),
                    unit["commitLogOffset"],
                )


def _traces(units: WaitingRows) -> Batches:
    for batch in units:
        yield batch.filter(pc.equal(batch.column("topic"), TRACE_TOPIC))


def _records(trace: Unit) -> Iterator[dict[str, Any]]:
    """What a trace says, a record for each message and act; times in microseconds."""
    batch = pa.record_batch(
        [
            pa.array([trace["body"]], pa.binary()),
            pa.array([trace["bornHost"]], TEXT),
            pa.array([trace["storeTimestamp"]], TIME),
            pa.array([trace["commitLogOffset"]], LONG),
        ],
        ["body", "bornHost", "storeTimestamp", "commitLogOffset"],
    )
    yield from _rows(iter([traces_of(batch).drop_columns(["storeTimestamp"])]))


def _ids_among(units: WaitingRows, names: set[str]) -> set[str]:
    """Those of some names that are ids of the messages."""
    wanted = pa.array(sorted(names), TEXT)
    found = set[str]()
    for batch in _without_traces(units):
        ids = batch.column("msgId")
        found.update(ids.filter(pc.is_in(ids, wanted)).to_pylist())
    return found


def _trace_text(record: dict[str, Any]) -> str:
    success = {True: ", succeeded", False: ", failed", None: ""}[record["success"]]
    cost = "" if record["costMillis"] is None else f" in {record['costMillis']} ms"
    return f"{record['traceType']}{success}{cost}{_list('on', record['clientHost'])}"


def _consumed(store: Snapshot, units: WaitingRows) -> Iterator[Event]:
    """The groups that have consumed beyond the message in its queue, and the groups that have not."""
    groups = _groups_of(store, units)
    columns = [*_IN_QUEUE, "storeTimestamp"]
    schema = pa.schema([_UNITS.field(name) for name in columns])
    rows = (batch.select(columns) for batch in _without_traces(units))
    for unit in _rows(in_order(schema, rows, [("commitLogOffset", "ascending")])):
        topic = unit["topic"]
        if (is_moved(topic) and not topic.startswith((RETRY_PREFIX, DEAD_PREFIX))) or topic.startswith(REVIVE_PREFIX):
            continue
        for group, offsets in groups.get(topic, ()):
            at = offsets.get(unit["queueId"])
            if at is not None:
                event = "consumed" if at > unit["queueOffset"] else "waiting"
                yield _of(unit, event, f"the group goes on at {at}", group)._replace(timestamp=None)


def _groups_of(store: Snapshot, units: WaitingRows) -> dict[str, list[tuple[str, dict[int, int]]]]:
    """For each topic of the messages the groups that consume it, and how far each has come in its queues."""
    topics = {topic for batch in _without_traces(units) for topic in batch.column("topic").unique().to_pylist()}
    groups: dict[str, list[tuple[str, dict[int, int]]]] = {}
    for (group, topic), offsets in store.offsets_in(topics).items():
        if not group.startswith(_SYSTEM_GROUP):
            groups.setdefault(topic, []).append((group, offsets))
    return groups
