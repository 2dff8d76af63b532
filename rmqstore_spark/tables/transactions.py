"""Table `transactions`: the fate of each half message.

A half message waits in a topic of the broker, and is appended again each time its producer is asked. The transaction
ends with a message in its own topic with sysFlag COMMIT, which names the half message's physical offset, or, without a
commit, with an op message that names the half message's queue offset (4.9 writes one op message for each; newer brokers
write them late, and several in one). A broker that keeps transactions in RocksDB (transRocksDBEnable) writes no half
message twice, and op messages with the physical offset; only RocksDB has the number of times that a producer was asked.
Source: org.apache.rocketmq.broker.transaction.queue.TransactionalMessageServiceImpl (check, deletePrepareMessage),
transaction.rocksdb.TransactionalMessageRocksDBService.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.columns import INT, LONG, TEXT, TIME, Column
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.read.run.told import say_if_unread
from rmqstore_spark.store.format.message import TRANSACTION_COMMIT, TRANSACTION_TYPE
from rmqstore_spark.store.format.system_topics import (
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
)
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.picked import (
    OF_ROWS,
    column,
    integers,
    numbers,
    of_topics,
    picked,
    picked_table,
    rows_wanted,
    text_keys,
    with_ids,
)
from rmqstore_spark.tables.table import Part, Table

_CHECK_GROUP = "CID_RMQ_SYS_TRANS"  # its offset is the broker's progress in asking producers (MixAll)
_ROWS_AT_ONCE = 16 * 1024
_IDS = ["realTopic", "msgId"]
_STATES = np.array(["open", "committed", "rolledBack", "givenUp"])

Bools = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    halves = picked_table(
        store,
        options,
        of_topics(HALF_TOPIC, ROCKSDB_HALF_TOPIC),
        ["topic", "queueId", "queueOffset", "commitLogOffset", "storeTimestamp", "realTopic", "msgId", "keys"],
        ["PGROUP", "__transactionId__", "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"],
    )
    if len(halves) == 0:
        return
    groups = _Groups.of(halves)
    states = _states(store, options, halves, groups)
    for at in range(0, len(groups.first), _ROWS_AT_ONCE):
        here = slice(at, at + _ROWS_AT_ONCE)
        first, last = (halves.take(pa.array(rows[here])) for rows in (groups.first, groups.last))
        table = _table(_STATES[states[here]], first, last)
        wanted = rows_wanted(options, column(table, "realTopic"), column(table, "storeTimestamp"))
        yield from table.filter(wanted).to_batches()


def _table(states: npt.NDArray[np.str_], first: pa.Table, last: pa.Table) -> pa.Table:
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


@dataclass(frozen=True)
class _Groups:
    """The half messages grouped by transaction.

    Attributes:
        of_half: the number of each half message's transaction; transactions are numbered in the order of the log.
        first, last: the row of the first and the last half message of each transaction.
    """

    of_half: Indices
    first: Indices
    last: Indices

    @classmethod
    def of(cls, halves: pa.Table) -> "_Groups":
        offsets = column(halves, "commitLogOffset").cast(pa.string())
        keys = pc.coalesce(text_keys(column(halves, "realTopic"), column(halves, "msgId")), offsets)
        of_half = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
        rows = np.arange(len(of_half))
        count = int(of_half.max()) + 1
        first, last = np.zeros(count, np.int64), np.zeros(count, np.int64)
        first[of_half[::-1]] = rows[::-1]
        last[of_half] = rows
        return cls(of_half, first, last)

    def any(self, halves: Bools) -> Bools:
        """True for transactions with a half message for which `halves` is true."""
        found = np.zeros(len(self.first), bool)
        found[self.of_half[halves]] = True
        return found


def _states(store: Snapshot, options: ReadOptions, halves: pa.Table, groups: _Groups) -> npt.NDArray[np.int8]:
    """The state of each transaction, as an index of _STATES."""
    committed = groups.any(_are_committed(store, options, halves))
    ended = groups.any(_have_op(store, options, halves))
    given_up = _are_given_up(store, options, halves, groups)
    codes: npt.NDArray[np.int8] = np.select([committed, ended, given_up], np.arange(1, 4, dtype=np.int8), np.int8(0))
    return codes


def _are_committed(store: Snapshot, options: ReadOptions, halves: pa.Table) -> Bools:
    """True for half messages that a message of their topic names and whose msgId it has. The msgId is compared because
    0, a valid physical offset, may also stand for none."""
    topics = [topic for topic in column(halves, "realTopic").unique().to_pylist() if topic]
    offsets = column(halves, "commitLogOffset").to_numpy()
    found = [np.zeros(0, np.int64)]
    selection = with_ids(topics, column(halves, "msgId"), int(offsets[0]))
    columns = ["sysFlag", "preparedTransactionOffset", "msgId"]
    for batch in picked(store, options, selection, columns, []):
        is_commit = pc.equal(pc.bit_wise_and(batch.column("sysFlag"), TRANSACTION_TYPE), TRANSACTION_COMMIT)
        batch = batch.filter(is_commit)
        named = batch.column("preparedTransactionOffset").to_numpy()
        at = np.minimum(np.searchsorted(offsets, named), len(offsets) - 1)
        same = pc.equal(column(halves, "msgId").take(pa.array(at)), batch.column("msgId"))
        may_be_same = _true(same) | (named != 0) & _true(pc.is_null(same))
        found.append(at[(offsets[at] == named) & may_be_same])
    committed = np.zeros(len(offsets), bool)
    committed[np.concatenate(found)] = True
    return committed


def _have_op(store: Snapshot, options: ReadOptions, halves: pa.Table) -> Bools:
    """True for half messages that op messages name."""
    queues, offsets, positions = [], [], [np.zeros(0, np.int64)]
    columns = ["topic", "queueId", "body", "commitLogOffset"]
    for batch in picked(store, options, of_topics(OP_TOPIC, ROCKSDB_OP_TOPIC), columns, ["TRANS_OFFSET"]):
        is_rocksdb = pc.equal(batch.column("topic"), ROCKSDB_OP_TOPIC)
        position = pc.if_else(is_rocksdb, numbers(batch.column("TRANS_OFFSET")), pa.scalar(None, LONG))
        positions.append(integers(position.drop_null(), 0))
        lists = pc.split_pattern(_ascii(batch.column("body")), ",")
        queue = batch.column("queueId").take(pc.list_parent_indices(lists))
        number = numbers(lists.flatten())
        is_number = pc.and_(pc.is_valid(number), pc.invert(is_rocksdb).take(pc.list_parent_indices(lists)))
        queues.append(integers(queue.filter(is_number), 0))
        offsets.append(integers(number.filter(is_number), 0))
    named = pa.table({"queue": _joined(queues), "offset": _joined(offsets)})
    is_plain = _true(pc.equal(column(halves, "topic"), HALF_TOPIC))
    by_position = np.isin(column(halves, "commitLogOffset").to_numpy(), np.concatenate(positions)) & ~is_plain
    queue_ids = integers(column(halves, "queueId"), 0)
    before = integers(numbers(column(halves, "TRAN_PREPARED_QUEUE_OFFSET")), -1)  # before the producer was asked
    found = _pairs_in(queue_ids, integers(column(halves, "queueOffset"), 0), named) | _pairs_in(
        queue_ids, before, named
    )
    return by_position | found & is_plain


def _pairs_in(queue_ids: Indices, offsets: Indices, named: pa.Table) -> Bools:
    """True for (queue, offset) pairs that are among the named ones."""
    found = np.zeros(len(offsets), bool)
    queues, numbers_named = named.column("queue").to_numpy(), named.column("offset").to_numpy()
    for queue_id in np.unique(queue_ids).tolist():
        of_queue = queue_ids == queue_id
        found[of_queue] = np.isin(offsets[of_queue], numbers_named[queues == queue_id])
    return found


def _are_given_up(store: Snapshot, options: ReadOptions, halves: pa.Table, groups: _Groups) -> Bools:
    """True for transactions that the broker no longer asks about: their last half message is before the next one that
    the broker looks at, or a copy is in the topic of those given up."""
    rows = pa.array(groups.last)
    last = halves.select(["topic", "queueId", "queueOffset"]).take(rows)
    if not store.consumer_offsets:
        say_if_unread(store, "consumerOffset.json", TRANSACTIONS.name)
    next_offsets = store.consumer_offsets.get((_CHECK_GROUP, HALF_TOPIC), {})
    queue_ids, offsets = integers(column(last, "queueId"), 0), integers(column(last, "queueOffset"), 0)
    passed = np.zeros(len(offsets), bool)
    for queue_id, offset in next_offsets.items():
        passed |= (queue_ids == queue_id) & (offsets < offset)
    passed &= _true(pc.equal(column(last, "topic"), HALF_TOPIC))
    copies = picked_table(store, options, of_topics(GIVEN_UP_TOPIC), _IDS, [])
    if not len(copies):
        return passed
    keys = text_keys(*(column(halves, name).take(rows) for name in _IDS))
    return passed | _true(pc.is_in(keys, text_keys(*(column(copies, name) for name in _IDS)).drop_null()))


def _ascii(bodies: pa.Array) -> pa.Array:
    """Bodies as text; empty for a body that cannot be that of an op message."""
    texts = [body.decode("ascii") if body is not None and body.isascii() else "" for body in bodies.to_pylist()]
    return pa.array(texts, pa.string())


def _joined(arrays: list[Indices]) -> Indices:
    return np.concatenate([np.zeros(0, np.int64), *arrays])


def _true(column: pa.Array) -> Bools:
    return pc.fill_null(column, False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


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
