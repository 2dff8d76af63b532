"""Table `delayed`: messages to be delivered later, by delay level or timer, and whether they were delivered.

The broker's state in config/ is some seconds old after a crash. So a message that is due by the log's last message,
and not delivered according to that state, is looked for under its own topic. A broker that keeps timers in RocksDB has
timed messages in the same topic, and they are handled alike.
Source: org.apache.rocketmq.broker.schedule.ScheduleMessageService, store.timer.TimerMessageStore.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.columns import INT, LONG, TEXT, TIME, Column
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.read.run.told import say_if_unread
from rmqstore_spark.store.format.system_topics import REVIVE_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import delay_offsets
from rmqstore_spark.store.structures.consumequeue_ext import LAST_ADDRESS, read_ext
from rmqstore_spark.store.structures.timer import timer_time
from rmqstore_spark.tables.picked import (
    OF_ROWS,
    column,
    in_bulk,
    integers,
    numbers,
    of_topics,
    picked,
    picked_schema,
    picked_table,
    rows_wanted,
    text_keys,
    with_ids,
)
from rmqstore_spark.tables.table import Part, Table

_READ = [
    *("queueId", "queueOffset", "commitLogOffset", "storeTimestamp", "reconsumeTimes"),
    *("realTopic", "realQueueId", "msgId", "keys"),
]
TIMER_PROPERTIES = ("TIMER_OUT_MS", "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_ROLL_TIMES")
_MOST_TIME = 10**15  # milliseconds; later times fit no column
_ROWS_AT_ONCE = 16 * 1024

Bools = npt.NDArray[np.bool_]


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    kinds = [_levels(store, options), _timers(store, options)]  # both in the order of the log
    order = np.argsort(np.concatenate([column(each, "commitLogOffset").to_numpy() for each in kinds]), kind="stable")
    for at in range(0, len(order), _ROWS_AT_ONCE):
        here, begin = order[at : at + _ROWS_AT_ONCE], 0
        some = []
        for each in kinds:
            some.append(each.take(pa.array(here[(here >= begin) & (here < begin + len(each))] - begin)))
            begin += len(each)
        rows = pa.concat_tables(some).sort_by("commitLogOffset")
        wanted = rows_wanted(options, column(rows, "realTopic"), column(rows, "storeTimestamp"))
        yield from rows.filter(wanted).to_batches()


# ---- levels


def _levels(store: Snapshot, options: ReadOptions) -> pa.Table:
    parked = picked_table(store, options, of_topics(SCHEDULE_TOPIC), _READ, ["REAL_TOPIC"])
    levels = integers(column(parked, "queueId"), 0) + 1
    due = _due_times(store, parked)
    next_offsets = delay_offsets(store.root, store.files)
    if not next_offsets:
        say_if_unread(store, "delayOffset.json", DELAYED.name)
    offsets = column(parked, "queueOffset").to_numpy()
    pending = offsets >= np.array([next_offsets.get(level, 0) for level in levels.tolist()], np.int64)
    delivered = ~pending
    delivered |= _found_delivered(store, options, parked, pending & _is_due(store, due))
    states = pc.if_else(pa.array(delivered), "delivered", "pending")
    return _table("level", states, due, pa.array(levels.astype(np.int32)), parked)


def _due_times(store: Snapshot, parked: pa.Table) -> pa.Array:
    """The times at which messages of delay levels are due: the tagsCode of their ConsumeQueue units. Null where no
    queue tells: the delay of a level is a broker's setting that is in no store."""
    due = np.zeros(len(parked), np.int64)
    known = np.zeros(len(parked), bool)
    queue_ids = integers(column(parked, "queueId"), 0)
    offsets, positions = column(parked, "queueOffset").to_numpy(), column(parked, "commitLogOffset").to_numpy()
    for queue in store.queues.of_topic(SCHEDULE_TOPIC):
        rows = np.flatnonzero(queue_ids == queue.queue_id)
        if len(rows) == 0:
            continue
        units, _ = queue.units(int(offsets[rows].min()), 1 << 62)
        at = np.searchsorted(units.queue_offsets, offsets[rows])
        rows, at = rows[at < len(units.queue_offsets)], at[at < len(units.queue_offsets)]
        same = (units.queue_offsets[at] == offsets[rows]) & (units.positions[at] == positions[rows])
        times = _without_addresses(store, queue.queue_id, units.tags_codes[at[same]])
        fits = (times >= 0) & (times < _MOST_TIME)
        due[rows[same][fits]] = times[fits]
        known[rows[same][fits]] = True
    return pa.array(due, LONG, mask=~known)


def _without_addresses(store: Snapshot, queue_id: int, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The tagsCodes of units of a level's queue, those too that stand in consumequeue_ext/, as a broker reads them
    (ScheduleMessageService)."""
    addresses = codes[codes <= LAST_ADDRESS].tolist()
    found = read_ext(store.root, SCHEDULE_TOPIC, queue_id, addresses, store.files) if addresses else {}
    known = {address: unit.tags_code for address, unit in found.items()}
    return np.array([known.get(code, code) for code in codes.tolist()], np.int64) if known else codes


# ---- timers


def _timers(store: Snapshot, options: ReadOptions) -> pa.Table:
    units = picked_table(
        store, options, of_topics(TIMER_TOPIC), _READ, ["REAL_TOPIC", "TIMER_DEL_UNIQKEY", *TIMER_PROPERTIES]
    )
    is_pop = pc.starts_with(pc.fill_null(column(units, "REAL_TOPIC"), ""), REVIVE_PREFIX)
    is_cancel = pc.and_(pc.invert(is_pop), pc.is_valid(column(units, "TIMER_DEL_UNIQKEY")))
    cancels = units.select(["REAL_TOPIC", "TIMER_DEL_UNIQKEY", "TIMER_OUT_MS"]).filter(is_cancel)
    timed = _first_of_each(units.filter(pc.invert(pc.or_(is_pop, is_cancel))))
    del units  # of which `timed` has copies
    out = numbers(column(timed, "TIMER_OUT_MS"))
    due = deliver_times(timed)
    cancelled = _are_cancelled(timed, cancels)
    is_past = integers(out, 1 << 60) <= timer_time(store.root, store.files)
    # A message may have been delivered before it was cancelled.
    ambiguous = ~is_past & _is_due(store, out) | is_past & cancelled
    delivered = is_past & ~cancelled | _found_delivered(store, options, timed, ambiguous)
    undelivered = pc.if_else(pa.array(cancelled), "cancelled", "pending")
    states = pc.if_else(pa.array(delivered), "delivered", undelivered)
    return _table("timer", states, due, pa.nulls(len(timed), INT), timed)


def _key(units: pa.Table, name: str = "msgId") -> pa.Array:
    """The key that the units of one timed message share; null for a unit without msgId."""
    return text_keys(column(units, "REAL_TOPIC"), column(units, name), column(units, "TIMER_OUT_MS"))


def _first_of_each(units: pa.Table) -> pa.Table:
    """The first unit of each timed message: a message that waits longer than the wheel turns is appended repeatedly."""
    offsets = column(units, "commitLogOffset").cast(pa.string())
    keys = pc.coalesce(_key(units), offsets).dictionary_encode()
    codes = keys.indices.to_numpy().astype(np.int64)
    first = np.zeros(len(keys.dictionary), np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    return units if len(first) == len(units) else units.take(pa.array(first))


def deliver_times(timed: pa.Table) -> pa.Array:
    """The times (ms) at which timed messages are due: as their senders said, else those of the wheel, in whole steps.

    Args:
        timed: the messages' storeTimestamp and their properties TIMER_PROPERTIES.
    """
    sent = pc.divide(column(timed, "storeTimestamp").cast(LONG), 1000)
    delay = pc.coalesce(
        numbers(column(timed, "TIMER_DELAY_MS")), pc.multiply(numbers(column(timed, "TIMER_DELAY_SEC")), 1000)
    )
    is_rolled = pc.is_valid(column(timed, "TIMER_ROLL_TIMES"))  # then it was sent before it was stored here
    after = pc.if_else(is_rolled, pa.scalar(None, LONG), pc.add(sent, delay))
    out = numbers(column(timed, "TIMER_OUT_MS"))
    due = pc.coalesce(numbers(column(timed, "TIMER_DELIVER_MS")), after, out)
    return pc.if_else(pc.less(pc.abs(due), _MOST_TIME), due, pa.scalar(None, LONG))


def _are_cancelled(timed: pa.Table, cancels: pa.Table) -> Bools:
    """True for timed messages that a recall names: by msgId, since 5.4.0 also by topic, a plus and msgId."""
    named = _key(cancels, "TIMER_DEL_UNIQKEY").drop_null()
    ids = pc.binary_join_element_wise(column(timed, "REAL_TOPIC"), column(timed, "msgId"), "+")
    with_topic = text_keys(column(timed, "REAL_TOPIC"), ids, column(timed, "TIMER_OUT_MS"))
    return _true(pc.or_(pc.is_in(_key(timed), named), pc.is_in(with_topic, named)))


# ---- both


def _is_due(store: Snapshot, due: pa.Array) -> Bools:
    """True for times (ms) that are not after the last message of the log."""
    last = None if store.last_message is None else store.last_message.store_timestamp
    return integers(due, 1 << 60) <= (0 if last is None else last // 1000)


def _found_delivered(store: Snapshot, options: ReadOptions, parked: pa.Table, asked: Bools) -> Bools:
    """True for the messages asked about that are stored again after they were parked, under the topic that they were
    parked for and with the same number of retries."""
    found = np.zeros(len(parked), bool)
    rows = np.flatnonzero(asked & _true(pc.is_valid(column(parked, "msgId"))))
    if len(rows) == 0:
        return found
    some = parked.select(["REAL_TOPIC", "msgId", "reconsumeTimes", "commitLogOffset"]).take(pa.array(rows))
    topics = [topic for topic in column(some, "REAL_TOPIC").unique().to_pylist() if topic]
    offsets = column(some, "commitLogOffset").to_numpy()
    keys = _deliveries(some, "REAL_TOPIC").dictionary_encode()
    later = np.full(len(keys.dictionary), -1, np.int64)
    columns = ["topic", "msgId", "reconsumeTimes", "commitLogOffset"]
    selection = with_ids(topics, column(some, "msgId"), int(offsets.min()))
    for batch in in_bulk(picked(store, options, selection, columns, []), picked_schema(columns, [])):
        at = integers(pc.index_in(_deliveries(batch, "topic"), keys.dictionary), -1)
        np.maximum.at(later, at[at >= 0], column(batch, "commitLogOffset").to_numpy()[at >= 0])
    codes = integers(keys.indices, -1)  # none where the topic is not known
    found[rows] = (codes >= 0) & (np.append(later, -1)[codes] > offsets)
    return found


def _deliveries(units: pa.Table, topic: str) -> pa.Array:
    """The key that a waiting message and its delivery share; null where a part of it is unknown."""
    times = column(units, "reconsumeTimes").cast(pa.string())
    return text_keys(column(units, topic), column(units, "msgId"), times)


def _table(kind: str, states: pa.Array, due: pa.Array, levels: pa.Array, parked: pa.Table) -> pa.Table:
    columns = [
        pa.repeat(kind, len(parked)),
        states,
        pc.multiply(due, 1000).cast(TIME),
        levels,
        *(column(parked, name) for name in DELAYED.schema.names[4:]),
    ]
    return pa.Table.from_arrays(columns, schema=DELAYED.schema)


def _true(column: pa.Array) -> Bools:
    return pc.fill_null(column, False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


DELAYED = Table(
    name="delayed",
    row="a message that was sent to be delivered later",
    columns=(
        Column("kind", TEXT, "level or timer"),
        Column("state", TEXT, "pending, delivered or cancelled, as of the log's last message"),
        Column("deliverTimestamp", TIME, "time at which the message is due"),
        Column("delayLevel", INT, "delay level, from 1 on; null for a timer"),
        Column("realTopic", TEXT, "topic to which the message is delivered"),
        Column("realQueueId", INT, "queue to which the message is delivered"),
        Column("msgId", TEXT, "message id of the client"),
        Column("keys", TEXT, "keys, separated by spaces"),
        Column("storeTimestamp", TIME, "store time of the waiting message"),
        Column("commitLogOffset", LONG, "physical offset of the waiting message"),
    ),
    options=OF_ROWS,
    rows=_rows,
)
