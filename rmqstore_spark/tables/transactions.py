"""Table `transactions`: the fate of each half message.

A half message waits in a topic of the broker, and is appended again each time its producer is asked. The transaction
ends with a message in its own topic with sysFlag COMMIT, which names the half message's physical offset, or, without a
commit, with an op message that names the half message's queue offset (4.9 writes one op message for each; newer brokers
write them late, and several in one). A broker that keeps transactions in RocksDB (transRocksDBEnable) writes no half
message twice, and op messages with the half message's transaction id and its physical offset (in a copy that of the old
log); only RocksDB has the number of times that a producer was asked.
Source: org.apache.rocketmq.broker.transaction.queue.TransactionalMessageServiceImpl (check, deletePrepareMessage),
transaction.rocksdb.TransactionalMessageRocksDBService.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.columns import INT, LONG, TEXT, TIME, Column
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import Selection
from rmqstore_spark.read.run.damage_reports import say_if_unread
from rmqstore_spark.sorting import WaitingRows, in_order
from rmqstore_spark.store.format.message import TRANSACTION_COMMIT, TRANSACTION_TYPE
from rmqstore_spark.store.format.system_topics import (
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
)
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.grouped import Bools, Indices, any_of, groups, true
from rmqstore_spark.tables.picked import (
    OF_ROWS,
    Sought,
    column,
    integers,
    numbers,
    of_topics,
    picked,
    picked_schema,
    rows_wanted,
)
from rmqstore_spark.tables.table import Part, Table
from rmqstore_spark.waiting_numbers import WaitingNumbers

_CHECK_GROUP = "CID_RMQ_SYS_TRANS"  # its offset is the broker's progress in asking producers (MixAll)
_STATES = np.array(["open", "committed", "rolledBack", "givenUp"])

_READ = ["topic", "queueId", "queueOffset", "commitLogOffset", "storeTimestamp", "realTopic", "msgId", "keys"]
_PROPERTIES = ["PGROUP", "__transactionId__", "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"]
_HALVES = picked_schema(_READ, _PROPERTIES)
# What is known of a half message; isOther: it is not one, but tells of one with its realTopic and msgId.
_FLAGS = ("isCommitted", "isEnded", "isGivenUp", "isOther")
_KNOWN = pa.schema([*_HALVES, *(pa.field(name, pa.bool_()) for name in _FLAGS)])
_OP = ["topic", "queueId", "body", "commitLogOffset"]
_OP_PROPERTIES = ["TRANS_OFFSET", "REAL_TOPIC", "__transactionId__"]
_NAMED = pa.schema([("queueId", pa.int64()), ("offset", pa.int64())])
_IN_ROCKSDB = 1 << 32  # no queueId
_IN_ROCKSDB_WITH_ID = _IN_ROCKSDB + 1
_COMMIT = ["preparedTransactionOffset", "msgId", "topic"]


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    commits = Sought()
    halves = WaitingRows(_HALVES, _halves(store, options, commits))
    if not commits.rows:
        return
    known = itertools.chain(
        _known(store, options, halves, commits), _given_up(store, options), _ended_by_id(store, options)
    )
    if not store.consumer_offsets:
        say_if_unread(store, store.offsets_files.name, TRANSACTIONS.name)
    found = (
        batch
        for rows, begins in groups(_KNOWN, known, ["realTopic", "msgId"], ["isOther", "commitLogOffset"])
        for batch in _transactions(store, options, rows, begins).to_batches()
    )
    yield from in_order(TRANSACTIONS.schema, found, [("commitLogOffset", "ascending")])


def _halves(store: Snapshot, options: ReadOptions, commits: Sought) -> Iterator[pa.RecordBatch]:
    """All half messages. What commits them is to be looked for."""
    for batch in picked(store, options, of_topics(HALF_TOPIC, ROCKSDB_HALF_TOPIC), _READ, _PROPERTIES):
        commits.add(*(batch.column(name) for name in ("realTopic", "msgId", "commitLogOffset")))
        yield batch


def _known(
    store: Snapshot, options: ReadOptions, halves: Iterable[pa.RecordBatch], sought: Sought
) -> Iterator[pa.RecordBatch]:
    """The half messages, and whether they are committed or ended."""
    commits = _Commits(store, options, sought.selection)
    ended = _Ended(store, options)
    for batch in halves:
        if len(batch):
            yield _with_flags(batch, isCommitted=commits.name(batch), isEnded=ended.name(batch))


def _given_up(store: Snapshot, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The copies of half messages in the topic of those given up."""
    for batch in picked(store, options, of_topics(GIVEN_UP_TOPIC), _READ, _PROPERTIES):
        yes = np.ones(len(batch), bool)
        yield _with_flags(batch, isGivenUp=yes, isOther=yes)


def _ended_by_id(store: Snapshot, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The op messages that name a transaction by its id, which is the msgId of its half messages."""
    selection = of_topics(ROCKSDB_OP_TOPIC)
    for ops in picked(store, options, selection, _READ, [*_PROPERTIES, "REAL_TOPIC"]):
        ops = ops.filter(_have_ids(ops))
        ops = ops.set_column(_READ.index("realTopic"), "realTopic", ops.column("REAL_TOPIC"))
        ops = ops.set_column(_READ.index("msgId"), "msgId", ops.column("__transactionId__"))
        yes = np.ones(len(ops), bool)
        yield _with_flags(ops.select(_HALVES.names), isEnded=yes, isOther=yes)


def _with_flags(batch: pa.RecordBatch, **flags: Bools) -> pa.RecordBatch:
    """Rows with the flags that are given; the others are not set."""
    no = np.zeros(len(batch), bool)
    every = (pa.array(flags.get(name, no)) for name in _FLAGS)
    return pa.RecordBatch.from_arrays([*batch.columns, *every], schema=_KNOWN)


def _transactions(store: Snapshot, options: ReadOptions, rows: pa.Table, begins: Indices) -> pa.Table:
    """The rows of the table for transactions: of each, its half messages in the order of the log, then what else tells
    of them."""
    committed, ended, given_up = (any_of(true(column(rows, name)), begins) for name in _FLAGS[:3])
    halves = np.add.reduceat(~true(column(rows, "isOther")), begins, dtype=np.int64)
    first, last = (rows.take(pa.array(at[halves > 0])) for at in (begins, begins + halves - 1))
    states = [flags[halves > 0] for flags in (committed, ended, given_up)]
    states[2] = states[2] | _are_passed(store, last)
    table = _table(_STATES[np.select(states, [1, 2, 3], 0)], first, last)
    return table.filter(rows_wanted(options, column(table, "realTopic"), column(table, "storeTimestamp")))


def _table(states: Any, first: pa.Table, last: pa.Table) -> pa.Table:
    """Rows of the table.

    Args:
        first, last: the first and the last half message of each transaction.
    """
    is_rocksdb = pc.equal(column(last, "topic"), ROCKSDB_HALF_TOPIC)
    check_times = pc.fill_null(numbers(column(last, "TRANSACTION_CHECK_TIMES")), 0)
    columns = [
        pa.array(states, TEXT),
        column(first, "PGROUP"),
        pc.coalesce(column(first, "__transactionId__"), column(first, "msgId")),  # 4.x stores the id only once
        column(first, "realTopic"),
        column(first, "msgId"),
        column(first, "keys"),
        pc.if_else(is_rocksdb, pa.scalar(None, LONG), pc.min_element_wise(check_times, (1 << 31) - 1)).cast(INT),
        column(first, "storeTimestamp"),
        column(first, "commitLogOffset"),
    ]
    return pa.Table.from_arrays(columns, schema=TRANSACTIONS.schema)


class _Commits:
    """The messages that commit half messages, in the order of the physical offsets that they name."""

    def __init__(self, store: Snapshot, options: ReadOptions, selection: Selection) -> None:
        commits = self._read(store, options, selection)
        self._following = in_order(picked_schema(_COMMIT, []), commits, [(_COMMIT[0], "ascending")])
        self._next = next(self._following, None)

    @staticmethod
    def _read(store: Snapshot, options: ReadOptions, selection: Selection) -> Iterator[pa.RecordBatch]:
        for batch in picked(store, options, selection, ["sysFlag", *_COMMIT], []):
            is_commit = pc.equal(pc.bit_wise_and(batch.column("sysFlag"), TRANSACTION_TYPE), TRANSACTION_COMMIT)
            yield batch.filter(is_commit).select(_COMMIT)

    def name(self, halves: pa.RecordBatch) -> Bools:
        """True for half messages that one of them names, and whose msgId it has, or whose topic where neither has one.
        More than the name is compared because 0, a valid physical offset, may also stand for none.

        Args:
            halves: in the order of the log, after those of the last call.
        """
        offsets = halves.column("commitLogOffset").to_numpy()
        committed = np.zeros(len(offsets), bool)
        for commits in self._up_to(int(offsets[-1])):
            named = commits.column("preparedTransactionOffset").to_numpy()
            at = np.minimum(np.searchsorted(offsets, named), len(offsets) - 1)
            id_of_half, topic_of_half = (halves.column(name).take(pa.array(at)) for name in ("msgId", "realTopic"))
            id_of_commit = commits.column("msgId")
            are_without = true(pc.and_(pc.is_null(id_of_half), pc.is_null(id_of_commit)))
            are_of_topic = true(pc.equal(topic_of_half, commits.column("topic")))
            may_be_same = true(pc.equal(id_of_half, id_of_commit)) | are_without & are_of_topic
            committed[at[(offsets[at] == named) & may_be_same]] = True
        return committed

    def _up_to(self, offset: int) -> Iterator[pa.RecordBatch]:
        """Those that name an offset up to this one, without those that were given before."""
        while self._next is not None:
            count = int(np.searchsorted(self._next.column("preparedTransactionOffset").to_numpy(), offset, "right"))
            yield self._next.slice(0, count)
            if count < len(self._next):
                self._next = self._next.slice(count)
                return
            self._next = next(self._following, None)


class _Ended:
    """The half messages that op messages name: by their queue offsets in a queue, or, where they are in RocksDB and
    have no msgId, or the op message no transaction id, by their physical offsets."""

    def __init__(self, store: Snapshot, options: ReadOptions) -> None:
        self._named = WaitingNumbers(_NAMED, self._read(store, options))

    @staticmethod
    def _read(store: Snapshot, options: ReadOptions) -> Iterator[pa.RecordBatch]:
        for batch in picked(store, options, of_topics(OP_TOPIC, ROCKSDB_OP_TOPIC), _OP, _OP_PROPERTIES):
            is_rocksdb = pc.equal(batch.column("topic"), ROCKSDB_OP_TOPIC)
            positions = numbers(batch.column("TRANS_OFFSET"))
            name = pc.if_else(_have_ids(batch), _IN_ROCKSDB_WITH_ID, _IN_ROCKSDB)
            are_named = pc.and_(is_rocksdb, pc.is_valid(positions))
            yield _named(integers(name.filter(are_named), 0), integers(positions.filter(are_named), 0))
            batch = batch.filter(pc.invert(is_rocksdb))
            lists = pc.split_pattern(_ascii(batch.column("body")), ",")
            number = numbers(lists.flatten())
            queues = integers(batch.column("queueId"), 0)[pc.list_parent_indices(lists).to_numpy()]
            yield _named(queues[true(pc.is_valid(number))], integers(number.drop_null(), 0))

    def name(self, halves: pa.RecordBatch) -> Bools:
        """True for half messages that are named, also where they stood before their producer was asked."""
        is_plain = true(pc.equal(halves.column("topic"), HALF_TOPIC))
        places = halves.column("commitLogOffset").to_numpy()
        has_no_id = true(pc.is_null(halves.column("msgId")))
        found = ~is_plain & self._named.are_in(places, _IN_ROCKSDB)
        found |= ~is_plain & has_no_id & self._named.are_in(places, _IN_ROCKSDB_WITH_ID)
        queue_ids = integers(halves.column("queueId"), 0)
        offsets = integers(halves.column("queueOffset"), 0)
        before = integers(numbers(halves.column("TRAN_PREPARED_QUEUE_OFFSET")), -1)
        for queue_id in np.unique(queue_ids).tolist():
            here = is_plain & (queue_ids == queue_id)
            found |= here & (self._named.are_in(offsets, queue_id) | self._named.are_in(before, queue_id))
        return found


def _have_ids(ops: pa.RecordBatch) -> pa.Array:
    """True for op messages that name a transaction by its id."""
    return pc.and_(pc.is_valid(ops.column("REAL_TOPIC")), pc.is_valid(ops.column("__transactionId__")))


def _named(queue_ids: Indices, offsets: Indices) -> pa.RecordBatch:
    return pa.record_batch([queue_ids, offsets], schema=_NAMED)


def _are_passed(store: Snapshot, last: pa.Table) -> Bools:
    """True for transactions that the broker no longer asks about: their last half message is before the next one that
    the broker looks at."""
    next_offsets = store.consumer_offsets.get((_CHECK_GROUP, HALF_TOPIC), {})
    queue_ids, offsets = integers(column(last, "queueId"), 0), integers(column(last, "queueOffset"), 0)
    passed = np.zeros(len(offsets), bool)
    for queue_id, offset in next_offsets.items():
        passed |= (queue_ids == queue_id) & (offsets < offset)
    return passed & true(pc.equal(column(last, "topic"), HALF_TOPIC))


def _ascii(bodies: pa.Array) -> pa.Array:
    """Bodies as text; empty for a body that cannot be that of an op message."""
    texts = [body.decode("ascii") if body is not None and body.isascii() else "" for body in bodies.to_pylist()]
    return pa.array(texts, pa.string())


TRANSACTIONS = Table(
    name="transactions",
    row="a transaction that has a half message",
    columns=(
        Column("state", TEXT, "open, committed, rolledBack or givenUp (the broker no longer asks the producer)"),
        Column("producerGroup", TEXT, "group that the broker asks"),
        Column("transactionId", TEXT, "transaction id of the client"),
        Column("realTopic", TEXT, "topic to which a commit writes the message"),
        Column("msgId", TEXT, "message id of the client"),
        Column("keys", TEXT, "keys, separated by spaces"),
        Column("checkTimes", INT, "how often the broker asked the producer; null if only RocksDB knows"),
        Column("storeTimestamp", TIME, "store time of the first half message"),
        Column("commitLogOffset", LONG, "physical offset of the first half message"),
    ),
    options=OF_ROWS,
    rows=_rows,
)
