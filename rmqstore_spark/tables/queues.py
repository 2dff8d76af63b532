"""Table `queues`: what each queue holds, as RocketMQ's topicStatus tells it of a broker that runs.

Offsets are those that the log confirms (store/queue_bounds.py). Where there are no ConsumeQueues, or only in RocksDB,
which is not read, the log itself tells, message by message.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from rmqstore_spark.errors import one_line
from rmqstore_spark.options import ReadOptions
from rmqstore_spark.read.queue_claims import selected_queues
from rmqstore_spark.selection import EVERYTHING, Selection
from rmqstore_spark.store.consumequeue import Queue
from rmqstore_spark.store.kinds import kind_with
from rmqstore_spark.store.message import is_queued
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.store.queue_bounds import QueueBounds, queue_bounds
from rmqstore_spark.tables.columns import INT, LONG, TEXT, TIME, batches
from rmqstore_spark.tables.table import Part, Table

log = logging.getLogger(__name__)

_FROM_LOG = ["topic", "queueId", "queueOffset", "sysFlag", "commitLogOffset", "storeTimestamp"]


@dataclass
class QueueFacts:
    """A row: what is known of a queue. Times are microseconds of the epoch."""

    topic: str
    queue_id: int
    kind: str
    least: int
    end: int
    first_position: int | None = None
    last_position: int | None = None
    first_time: int | None = None
    last_time: int | None = None
    files: int = 0
    nbytes: int = 0


def queue_facts(store: OpenStore, selection: Selection = EVERYTHING) -> Iterator[QueueFacts]:
    """The queues of a store whose topic and queueId are selected, by topic and queueId.

    Raises:
        NotAStoreError: the messages are in a log of DLedger.
    """
    store.layout.refuse_dledger()
    if store.queues.is_empty and store.log.extents:
        yield from _from_log(store, selection)
        return
    found = sorted(selected_queues(store, selection), key=lambda queue: (queue.topic, queue.queue_id))
    yield from map(_facts, queue_bounds(store, found))


def _facts(bounds: QueueBounds) -> QueueFacts:
    queue, first, last = bounds.queue, bounds.first, bounds.last
    return QueueFacts(
        topic=queue.topic,
        queue_id=queue.queue_id,
        kind=_kind(queue),
        least=bounds.least,
        end=bounds.end,
        first_position=None if first is None else first.position,
        last_position=None if last is None else last.position,
        first_time=None if first is None else first.store_timestamp,
        last_time=None if last is None else last.store_timestamp,
        files=len(queue.in_files),
        nbytes=sum(file.allocated for file in queue.in_files),
    )


def _kind(queue: Queue) -> str:
    if queue.is_batch:
        return "batch"
    return "lmq" if queue.is_lmq else "simple"


def _from_log(store: OpenStore, selection: Selection) -> Iterator[QueueFacts]:
    """By all messages of the log."""
    from rmqstore_spark.tables.messages import messages

    log.warning("%s: no ConsumeQueues of files, so the whole log is read to know its queues", one_line(store.root))
    kind = "simple" if kind_with(store.root, store.files, "queues") is None else "rocksdb"
    found: dict[tuple[str, int], QueueFacts] = {}
    wanted = Selection(topic=selection.topic, assigned=selection.assigned)
    options = ReadOptions([store.root], None, None, "DROPMALFORMED", False, False, None, None, store.files.manners)
    for batch in messages(store, options, wanted, _FROM_LOG):
        columns = [*batch.columns[:5], batch.column(5).cast(pa.int64())]
        for topic, queue_id, offset, flags, position, time in zip(*(c.to_pylist() for c in columns), strict=True):
            if not is_queued(flags):
                continue
            facts = found.get((topic, queue_id))
            if facts is None:
                facts = found[topic, queue_id] = QueueFacts(topic, queue_id, kind, offset, offset + 1, position)
                facts.first_time = time
            facts.end, facts.last_position, facts.last_time = max(facts.end, offset + 1), position, time
    yield from (found[name] for name in sorted(found))


def _rows(store: OpenStore, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    rows = (
        (
            *(q.topic, q.queue_id, q.kind, q.least, q.end, q.end - q.least, q.first_position, q.last_position),
            *(q.first_time, q.last_time, q.files, q.nbytes),
        )
        for q in queue_facts(store, options.selection)
    )
    return batches(QUEUES.schema, rows)


QUEUES = Table(
    name="queues",
    row="a queue",
    schema=pa.schema(
        [
            ("topic", TEXT),
            ("queueId", INT),
            ("queueType", TEXT),
            ("minOffset", LONG),
            ("maxOffset", LONG),
            ("messages", LONG),
            ("firstCommitLogOffset", LONG),
            ("lastCommitLogOffset", LONG),
            ("firstStoreTimestamp", TIME),
            ("lastStoreTimestamp", TIME),
            ("files", INT),
            ("sizeOnDisk", LONG),
        ]
    ),
    options=frozenset({"subscribe", "subscribePattern", "assign"}),
    rows=_rows,
)
