"""Table `queues`: the contents of each queue, as RocketMQ's topicStatus shows them for a running broker.

Offsets are those that the log confirms (store/queue_bounds.py). For queues that are lost or lack messages, the log
itself is read, message by message (unqueued.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from rmqstore_spark.columns import INT, LONG, TEXT, TIME, Column
from rmqstore_spark.garbage import collector_paused
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import EVERYTHING, Selection
from rmqstore_spark.read.pieces.queue_claims import selected_queues
from rmqstore_spark.store.queue_bounds import QueueBounds, queue_bounds
from rmqstore_spark.store.snapshot import LogQueue, Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.kinds import kind_with
from rmqstore_spark.tables.columns import batches
from rmqstore_spark.tables.table import Part, Table
from rmqstore_spark.tables.unqueued import Unqueued, unqueued


@dataclass(slots=True)
class QueueFacts:
    """A row: the facts about a queue. Times are microseconds since 1970.

    Large because the row has as many columns.

    Attributes:
        times: store times, by queue offset, of messages that no queue file has and a group consumed last.
        queue: the simple or light queue that has the files; None where there is none.
    """

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
    times: dict[int, int] = field(default_factory=dict)
    queue: Queue | None = None

    def add(self, message: Unqueued) -> None:
        """Add a message that the queue's files do not have; messages come in the order of the log."""
        if self.first_position is None:
            self.least = self.end = message.offset
            self.first_position, self.first_time = message.position, message.time
        self.end = max(self.end, message.offset + 1)
        self.last_position, self.last_time = message.position, message.time


def queue_facts(store: Snapshot, selection: Selection = EVERYTHING) -> Iterator[QueueFacts]:
    """The queues of a store whose topic and queueId are selected, by topic and queueId."""
    with collector_paused():
        bounds = list(queue_bounds(store, selected_queues(store, selection)))
        found = [*map(_facts, bounds), *map(_of_queue_log, store.queues_of_log())]
    by_name = {(facts.topic, facts.queue_id): facts for facts in found}
    kind = "simple" if kind_with(store.root, store.files, "queues") is None else "rocksdb"
    consumed: set[tuple[str, int, int]] | None = None
    for message in unqueued(store, selection, bounds):
        name = message.topic, message.queue_id
        facts = by_name.get(name)
        if facts is None:
            facts = by_name[name] = QueueFacts(*name, kind, message.offset, message.offset + 1)
            found.append(facts)
        facts.add(message)
        if consumed is None:
            consumed = _consumed(store)
        if (*name, message.offset) in consumed:
            facts.times[message.offset] = message.time
    yield from sorted(found, key=lambda facts: (facts.topic, facts.queue_id))


def _of_queue_log(queue: LogQueue) -> QueueFacts:
    """The queue that a log is of, by the log's first and last message. It has no offsets in a commitlog."""
    topic, queue_id, first, last = queue
    if first is None or last is None:
        return QueueFacts(topic, queue_id, "simple", 0, 0)
    facts = QueueFacts(topic, queue_id, "simple", first.queue_offset, last.queue_offset + 1)
    facts.first_time, facts.last_time = first.store_timestamp, last.store_timestamp
    return facts


def _consumed(store: Snapshot) -> set[tuple[str, int, int]]:
    """Topic, queueId and queue offset of the messages that a group has consumed last."""
    return {
        (topic, queue_id, offset - 1)
        for (_, topic), queues in store.consumer_offsets.items()
        for queue_id, offset in queues.items()
    }


def _facts(bounds: QueueBounds) -> QueueFacts:
    queue, first, last = bounds.queue, bounds.first, bounds.last
    return QueueFacts(
        topic=queue.topic,
        queue_id=queue.queue_id,
        kind=queue.kind,
        least=bounds.least,
        end=bounds.end,
        first_position=None if first is None else first.position,
        last_position=None if last is None else last.position,
        first_time=None if first is None else first.store_timestamp,
        last_time=None if last is None else last.store_timestamp,
        files=len(queue.on_disk),
        nbytes=sum(file.allocated for file in queue.on_disk),
        queue=None if queue.is_batch else queue,
    )


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
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
    columns=(
        Column("topic", TEXT, "topic of the queue"),
        Column("queueId", INT, "number of the queue in its topic"),
        Column("queueType", TEXT, "simple, batch, lmq or rocksdb"),
        Column("minOffset", LONG, "queue offset of the first message that is left"),
        Column("maxOffset", LONG, "queue offset after the last message"),
        Column("messages", LONG, "number of messages that are left"),
        Column("firstCommitLogOffset", LONG, "physical offset of the first message that is left"),
        Column("lastCommitLogOffset", LONG, "physical offset of the last message"),
        Column("firstStoreTimestamp", TIME, "store time of the first message that is left"),
        Column("lastStoreTimestamp", TIME, "store time of the last message"),
        Column("files", INT, "number of ConsumeQueue files"),
        Column("sizeOnDisk", LONG, "bytes that these files take on the disk"),
    ),
    options=frozenset({"subscribe", "subscribePattern", "assign"}),
    rows=_rows,
    of_queue_logs=True,
)
