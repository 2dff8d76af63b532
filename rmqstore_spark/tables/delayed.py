"""Table `delayed`: messages to be delivered later, by delay level or timer, and whether they were delivered.

The broker's state in config/ is some seconds old after a crash. So a message that is due by the log's last message,
and not delivered according to that state, is looked for under its own topic. A broker that keeps timers in RocksDB has
timed messages in the same topic, and they are handled alike.
Source: org.apache.rocketmq.broker.schedule.ScheduleMessageService, store.timer.TimerMessageStore.
"""

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from native_io import java_hashes
from rmqstore_spark.columns import INT, LONG, TEXT, TIME, Column
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.read.run.damage_reports import say_if_unread
from rmqstore_spark.sorting import WaitingRows, in_order
from rmqstore_spark.store.format.system_topics import REVIVE_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import delay_offsets
from rmqstore_spark.store.structures.consumequeue_ext import LAST_ADDRESS, read_ext
from rmqstore_spark.store.structures.timer import timer_time
from rmqstore_spark.tables.grouped import Bools, Indices, any_of, groups, true
from rmqstore_spark.tables.picked import (
    OF_ROWS,
    Sought,
    column,
    in_bulk,
    integers,
    numbers,
    of_topics,
    picked,
    picked_schema,
    rows_wanted,
)
from rmqstore_spark.tables.table import Part, Table
from rmqstore_spark.waiting_numbers import WaitingNumbers

_READ = [
    *("queueId", "queueOffset", "commitLogOffset", "storeTimestamp", "reconsumeTimes"),
    *("realTopic", "realQueueId", "msgId", "keys"),
]
TIMER_PROPERTIES = ("TIMER_OUT_MS", "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_ROLL_TIMES")
_MOST_TIME = 10**15  # milliseconds; later times fit no column
_CODE_END = (1 << 32) - 1  # what a tagsCode may lack: units and pages begin at multiples of 4 bytes
_ROWS_AT_ONCE = 8 * 1024
_DELIVERIES = ["topic", "msgId", "reconsumeTimes", "commitLogOffset"]
_TIMER_READ = ["REAL_TOPIC", "TIMER_DEL_UNIQKEY", *TIMER_PROPERTIES]
_PARKED_READ = ["topic", *_READ]
_PARKED = picked_schema(_PARKED_READ, _TIMER_READ)
_TIMED = pa.schema([*_PARKED, pa.field("id", TEXT), pa.field("isCancel", pa.bool_())])
_OFFSETS = picked_schema(["commitLogOffset"], [])
_HASHES = 8 * 1024 * 1024  # that are told apart
_KINDS = pa.schema([*picked_schema(_DELIVERIES, []), pa.field("isDelivery", pa.bool_())])


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    asked = _Asked()
    # Read together: where no queue tells where a topic's messages are, the whole log is read for it.
    both = of_topics(SCHEDULE_TOPIC, TIMER_TOPIC)
    parked = WaitingRows(_PARKED, picked(store, options, both, _PARKED_READ, _TIMER_READ))
    found = itertools.chain(_levels(store, parked), _timers(store, parked))
    in_log_order = in_order(_FOUND, found, [("commitLogOffset", "ascending")])
    waiting = WaitingRows(_FOUND, asked.among(in_log_order))
    delivered = asked.delivered(store, options, waiting)
    for batch in waiting:
        states = pc.if_else(
            pa.array(delivered.are_in(batch.column("commitLogOffset").to_numpy())), "delivered", batch.column("state")
        )
        columns = [states if name == "state" else batch.column(name) for name in DELAYED.schema.names]
        wanted = rows_wanted(options, batch.column("realTopic"), batch.column("storeTimestamp"))
        yield pa.RecordBatch.from_arrays(columns, schema=DELAYED.schema).filter(wanted)


def _of_topic(topic: str, parked: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Those of these messages that are stored under a topic."""
    return (batch.filter(pc.equal(batch.column("topic"), topic)) for batch in parked)


# ---- levels


def _levels(store: Snapshot, both: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    next_offsets = delay_offsets(store.root, store.files)
    if not next_offsets:
        say_if_unread(store, "delayOffset.json", DELAYED.name)
    for parked in in_bulk(_of_topic(SCHEDULE_TOPIC, both), _PARKED, _ROWS_AT_ONCE):
        levels = integers(column(parked, "queueId"), 0) + 1
        due = _due_times(store, parked)
        begins = np.array([next_offsets.get(level, 0) for level in levels.tolist()], np.int64)
        pending = column(parked, "queueOffset").to_numpy() >= begins
        states = pc.if_else(pa.array(pending), "pending", "delivered")
        asked = pending & (_is_due(store, due) | true(pc.is_null(due)))
        yield from _found("level", states, due, pa.array(levels.astype(np.int32)), parked, asked)


def _due_times(store: Snapshot, parked: pa.Table) -> pa.Array:
    """The times at which messages of delay levels are due: the tagsCode of their ConsumeQueue units. Null where no
    queue tells: the delay of a level is a broker's setting that is in no store. Of a unit whose broker was killed while
    it wrote it, or that lost a page, the tagsCode may lack its end."""
    due = np.zeros(len(parked), np.int64)
    known = np.zeros(len(parked), bool)
    queue_ids = integers(column(parked, "queueId"), 0)
    offsets, positions = column(parked, "queueOffset").to_numpy(), column(parked, "commitLogOffset").to_numpy()
    for queue in store.queues.of_topic(SCHEDULE_TOPIC):
        rows = np.flatnonzero(queue_ids == queue.queue_id)
        if len(rows) == 0:
            continue
        stop = min(queue.stop, int(offsets[rows].max()) + 1)
        for units in queue.blocks(int(offsets[rows].min()), stop):
            units = units.only(units.are_messages)
            at = np.searchsorted(units.queue_offsets, offsets[rows])
            here, at = rows[at < len(units)], at[at < len(units)]
            same = (units.queue_offsets[at] == offsets[here]) & (units.positions[at] == positions[here])
            times = _without_addresses(store, queue.queue_id, units.tags_codes[at[same]])
            fits = (times & _CODE_END != 0) & (times > 0) & (times < _MOST_TIME)
            due[here[same][fits]] = times[fits]
            known[here[same][fits]] = True
    return pa.array(due, LONG, mask=~known)


def _without_addresses(store: Snapshot, queue_id: int, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The tagsCodes of units of a level's queue, those too that stand in consumequeue_ext/, as a broker reads them
    (ScheduleMessageService)."""
    addresses = codes[codes <= LAST_ADDRESS].tolist()
    found = read_ext(store.root, SCHEDULE_TOPIC, queue_id, addresses, store.files) if addresses else {}
    known = {address: unit.tags_code for address, unit in found.items()}
    return np.array([known.get(code, code) for code in codes.tolist()], np.int64) if known else codes


# ---- timers


def _timers(store: Snapshot, both: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    now = timer_time(store.root, store.files)
    # A message that waits longer than the wheel turns is appended repeatedly: the first unit of each is taken.
    by = ["REAL_TOPIC", "id", "TIMER_OUT_MS"]
    for units, begins in groups(_TIMED, _timer_units(both), by, ["isCancel", "commitLogOffset"]):
        is_cancel = true(column(units, "isCancel"))
        is_timed = ~is_cancel[begins]  # else there is none but cancels
        cancelled = any_of(is_cancel, begins)[is_timed]
        timed = units.take(pa.array(begins[is_timed]))
        out = numbers(column(timed, "TIMER_OUT_MS"))
        is_past = integers(out, 1 << 60) <= now
        # A message may have been delivered before it was cancelled.
        ambiguous = ~is_past & _is_due(store, out) | is_past & cancelled
        undelivered = pc.if_else(pa.array(cancelled), "cancelled", "pending")
        states = pc.if_else(pa.array(is_past & ~cancelled), "delivered", undelivered)
        yield from _found("timer", states, deliver_times(timed), pa.nulls(len(timed), INT), timed, ambiguous)


def _timer_units(both: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Units of timed messages, and for each recall one for each id that it may name: msgId, or, since 5.4.0, the msgId
    behind topic and plus."""
    for units in _of_topic(TIMER_TOPIC, both):
        is_pop = pc.starts_with(pc.fill_null(units.column("REAL_TOPIC"), ""), REVIVE_PREFIX)
        units = units.filter(pc.invert(is_pop))
        is_cancel = pc.is_valid(units.column("TIMER_DEL_UNIQKEY"))
        timed, cancels = units.filter(pc.invert(is_cancel)), units.filter(is_cancel)
        yield _with_id(timed, timed.column("msgId"), is_cancel=False)
        named, topics = (cancels.column(name).to_pylist() for name in ("TIMER_DEL_UNIQKEY", "REAL_TOPIC"))
        yield _with_id(cancels, pa.array(named, TEXT), is_cancel=True)
        behind = (name.removeprefix(f"{topic}+") for name, topic in zip(named, topics, strict=True))
        ids = [other if other != name else None for name, other in zip(named, behind, strict=True)]
        yield _with_id(cancels, pa.array(ids, TEXT), is_cancel=True)


def _with_id(units: pa.RecordBatch, ids: pa.Array, *, is_cancel: bool) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*units.columns, ids, pa.array(np.full(len(units), is_cancel))], schema=_TIMED)


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


# ---- both


def _is_due(store: Snapshot, due: pa.Array) -> Bools:
    """True for times (ms) that are not after the last message of the log."""
    last = None if store.last_message is None else store.last_message.store_timestamp
    return integers(due, 1 << 60) <= (0 if last is None else last // 1000)


class _Asked:
    """Which of the messages asked about are stored again after they were parked, under the topic that they were parked
    for and with the same number of retries."""

    def __init__(self) -> None:
        self._sought = Sought()
        # By the last bits of msgIds' hashes: is such a one asked about? Others are let go at once.
        self._may_be: Bools = np.zeros(_HASHES, bool)

    def among(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same rows, of _FOUND. Those that are asked about are remembered."""
        for batch in batches:
            asked = _of_asked(batch)
            self._sought.add(*(asked.column(name) for name in ("topic", "msgId", "commitLogOffset")))
            self._may_be[_hashes(asked)] = True
            yield batch

    def delivered(self, store: Snapshot, options: ReadOptions, waiting: Iterable[pa.RecordBatch]) -> WaitingNumbers:
        """The physical offsets of those that are delivered.

        Args:
            waiting: the rows that were looked at.
        """
        return WaitingNumbers(_OFFSETS, self._found(store, options, waiting))

    def _found(
        self, store: Snapshot, options: ReadOptions, waiting: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        if not self._sought.rows:
            return
        kinds = itertools.chain(map(_of_asked, waiting), self._deliveries(store, options))
        for rows, begins in groups(_KINDS, kinds, _DELIVERIES[:3], []):
            offsets, is_delivery = column(rows, "commitLogOffset").to_numpy(), true(column(rows, "isDelivery"))
            last = np.maximum.reduceat(np.where(is_delivery, offsets, -1), begins)
            later = np.repeat(last, np.diff(np.append(begins, len(rows))))
            yield pa.record_batch([offsets[~is_delivery & (later > offsets)]], schema=_OFFSETS)

    def _deliveries(self, store: Snapshot, options: ReadOptions) -> Iterator[pa.RecordBatch]:
        """The messages that may be a delivery."""
        for batch in picked(store, options, self._sought.selection, _DELIVERIES, []):
            batch = batch.filter(pa.array(self._may_be[_hashes(batch)]))
            yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(np.ones(len(batch), bool))], schema=_KINDS)


def _hashes(batch: pa.RecordBatch) -> Indices:
    return java_hashes(batch.column("msgId")).astype(np.int64) % _HASHES


def _of_asked(found: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of _FOUND that are asked about, as those of _KINDS."""
    asked = found.filter(pc.and_(found.column("isAsked"), pc.is_valid(found.column("msgId"))))
    columns = [asked.column(name) for name in ("REAL_TOPIC", *_DELIVERIES[1:])]
    return pa.RecordBatch.from_arrays([*columns, pa.array(np.zeros(len(asked), bool))], schema=_KINDS)


def _found(
    kind: str, states: pa.Array, due: pa.Array, levels: pa.Array, parked: pa.Table, asked: Bools
) -> Iterator[pa.RecordBatch]:
    """Rows of _FOUND.

    Args:
        asked: for each message, does its state depend on whether it is stored again?
    """
    columns = [
        pa.array([kind] * len(parked), TEXT),
        states,
        pc.multiply(due, 1000).cast(TIME),
        levels,
        *(column(parked, name) for name in _FOUND.names[4:-1]),
        pa.array(asked),
    ]
    yield from pa.Table.from_arrays(columns, schema=_FOUND).to_batches()


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

_FOUND = pa.schema(
    [*DELAYED.schema, pa.field("REAL_TOPIC", TEXT), pa.field("reconsumeTimes", INT), pa.field("isAsked", pa.bool_())]
)
