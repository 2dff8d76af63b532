"""The messages of the stores that are copied, in the order of the new log, as chunks of units."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore_spark.errors import NotAStoreError, RmqStoreError
from rmqstore_spark.jobs.copying.misplaced import Misplaced
from rmqstore_spark.jobs.copying.waiting import Waiting
from rmqstore_spark.read.stored import StoredUnits
from rmqstore_spark.store.layout import queue_path
from rmqstore_spark.store.message import TRANSACTION_COMMIT, TRANSACTION_TYPE, are_queued
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.system_topics import HALF_TOPIC, ROCKSDB_HALF_TOPIC, TIMER_TOPIC
from rmqstore_spark.write.kept_offsets import KeptOffsets
from rmqstore_spark.write.kept_units import put_fields
from rmqstore_spark.write.staging import CHUNK_SIZE, Chunk

COLUMNS = [
    *("commitLogOffset", "storeSize", "topic", "queueId", "queueOffset", "sysFlag", "storeTimestamp"),
    "preparedTransactionOffset",
]
BODY_COLUMNS = ["body"]  # with it, one that cannot be decompressed is damage
DAMAGE_COLUMNS = ["file", "corrupt"]
_ROWS_AT_ONCE = 16 * 1024
_HALF_TOPICS = (HALF_TOPIC, ROCKSDB_HALF_TOPIC)
_INNER_BATCH = 0x80  # sysFlag: a unit holds several messages

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Some messages of a store, as arrays of one length.

    Attributes:
        units: where they are read.
        waiting: which topics begin anew.
        topics: names; `codes` are indexes of it.
        queue_ids, queue_offsets: those that they get.
        flags: sysFlag.
        prepared: the physical offsets of committed messages' half messages in the new log.
        renamed: whether queue_ids, queue_offsets or prepared are not those that stand in the units.
    """

    units: StoredUnits
    waiting: Waiting
    topics: list[str]
    codes: Integers
    positions: Integers
    sizes: Integers
    queue_ids: Integers
    queue_offsets: Integers
    timestamps: Integers
    flags: Integers
    prepared: Integers
    renamed: bool

    @property
    def is_queued(self) -> npt.NDArray[np.bool_]:
        """Which of them are in a queue."""
        return are_queued(self.flags)

    def only(self, which: npt.NDArray[np.bool_] | slice) -> Rows:
        """Some of them."""
        names = ("codes", "positions", "sizes", "queue_ids", "queue_offsets", "timestamps", "flags", "prepared")
        return replace(self, **{name: getattr(self, name)[which] for name in names})


@dataclass
class Source:
    """A store that is copied.

    Attributes:
        store: the store; of several copies of one, which are copied as one, the newest.
        batches: its messages, with COLUMNS; where DAMAGE_COLUMNS come too, a row with `corrupt` is one for damage; of
            several copies with column `store`. BODY_COLUMNS are passed over.
        waiting: what becomes of messages that a broker keeps for itself.
        first_queue: the number that queue 0 of each topic gets; 0 where a topic is not in it.
        queues: how many queues each topic has; None where nothing comes after them.
        damages: (file, commitLogOffset, reason), as they are met.
    """

    store: Snapshot
    batches: Iterable[pa.RecordBatch]
    waiting: Waiting
    first_queue: dict[str, int]
    queues: dict[str, int] | None
    damages: list[tuple[str, int, str]] = field(default_factory=list)

    def rows(self, units: Mapping[str, StoredUnits]) -> Iterator[Rows]:
        """Its messages.

        Args:
            units: reads them; of several copies, each by its path.
        """
        for batch in self._right():
            if batch.num_rows and "store" in batch.schema.names:
                for root, part in _of_each_store(batch):
                    self._refuse_timers(root, part)
                    yield self._rows(part, units[root])
            elif batch.num_rows:
                yield self._rows(batch, units[self.store.root])

    def _right(self) -> Iterator[pa.RecordBatch]:
        """Its messages; in a salvage without those that are not where they say, or not what."""
        misplaced = Misplaced(self.store)
        before: pa.RecordBatch | None = None  # what comes after it tells, too
        for batch in _larger(self.batches):
            if "corrupt" not in batch.schema.names:
                yield self._without_nameless(batch)
                continue
            batch = self._without_batches(self._without_nameless(self._without_damages(batch)))
            if before is not None:
                yield self._without(before, misplaced.look(before, batch))
            before = batch
        if before is not None:
            yield self._without(before, misplaced.look(before))

    def _without_batches(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Without messages that say that they hold several ones, but whose topic has no queue of such."""
        topics = batch.column("topic").to_pylist()
        flagged = np.flatnonzero(_integers(batch, "sysFlag") & _INNER_BATCH).tolist()
        reason = "sysFlag 0x80, of messages in BatchCQ queues: its topic {!r} has no such queue"
        return self._without(
            batch,
            [
                (i, reason.format(topics[i]))
                for i in flagged
                if not self.store.queues.of_topic(topics[i], is_batch=True)
            ],
        )

    def _refuse_timers(self, root: str, batch: pa.RecordBatch) -> None:
        """Which timed messages wait is told by the newest copy alone, so all have to be in it.

        Raises:
            RmqStoreError: there are some in another one.
        """
        if root != self.store.root and TIMER_TOPIC in batch.column("topic").to_pylist():
            raise RmqStoreError(
                f"{root}: timed messages ({TIMER_TOPIC}) are missing or damaged in {self.store.root}, whose log ends "
                "last: nothing tells which of them were delivered; copy or salvage one of the stores"
            )

    def _without_damages(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        corrupt = batch.column("corrupt")
        if corrupt.null_count == len(corrupt):
            return batch
        for row in batch.filter(corrupt.is_valid()).to_pylist():
            self.damages.append((row["file"], row["commitLogOffset"], row["corrupt"]))
        return batch.filter(corrupt.is_null())

    def _without_nameless(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Without messages whose queue can have no files.

        Raises:
            RmqStoreError: there is one, and this is no salvage.
        """
        topics = batch.column("topic").dictionary_encode()
        has_path = np.array([queue_path(topic, 0) is not None for topic in topics.dictionary.to_pylist()], bool)
        is_right = has_path[topics.indices.to_numpy()] & (batch.column("queueId").to_numpy() >= 0)
        if is_right.all():
            return batch
        wrong = int(np.argmin(is_right))
        topic, queue_id, position = (
            batch.column(name)[wrong].as_py() for name in ("topic", "queueId", "commitLogOffset")
        )
        reason = f"topic {topic!r}, queue {queue_id}: expected a name that a queue's files can have"
        if "corrupt" not in batch.schema.names:
            raise RmqStoreError(f"{self.store.root}: commitLogOffset {position}: {reason}; leave its topic out")
        self.damages.append((batch.column("file")[wrong].as_py(), position, reason))
        return batch.filter(pa.array(is_right))

    def _without(self, batch: pa.RecordBatch, damaged: list[tuple[int, str]]) -> pa.RecordBatch:
        """Without some messages, by their numbers; each is told of with a reason."""
        if not damaged:
            return batch
        is_right = np.ones(batch.num_rows, bool)
        for number, reason in damaged:
            is_right[number] = False
            file, position = (batch.column(name)[number].as_py() for name in ("file", "commitLogOffset"))
            self.damages.append((file, position, reason))
        return batch.filter(pa.array(is_right))

    def _rows(self, batch: pa.RecordBatch, units: StoredUnits) -> Rows:
        topic = batch.column("topic").dictionary_encode()
        topics, codes = topic.dictionary.to_pylist(), topic.indices.to_numpy().astype(np.int64)
        flags = _integers(batch, "sysFlag")
        batched = np.flatnonzero(flags & _INNER_BATCH)
        if len(batched):
            at = int(batched[0])
            raise NotAStoreError(
                f"{self.store.root}: topic {topics[codes[at]]!r} is a BatchCQ topic (sysFlag 0x80), whose queues are "
                "not written; leave the topic out (--topic)"
            )
        rows = Rows(
            units,
            self.waiting,
            topics,
            codes,
            _integers(batch, "commitLogOffset"),
            _integers(batch, "storeSize"),
            _integers(batch, "queueId"),
            _integers(batch, "queueOffset"),
            batch.column("storeTimestamp").cast(pa.int64()).fill_null(0).to_numpy(),  # null: in no calendar
            flags,
            _integers(batch, "preparedTransactionOffset"),
            renamed=False,
        )
        return self._moved(self._with_waiting(rows))

    def _with_waiting(self, rows: Rows) -> Rows:
        """Without those that are to stay behind."""
        for code, topic in enumerate(rows.topics):
            if self.waiting.begins_anew(topic):
                rows = rows.only((rows.codes != code) | np.isin(rows.positions, self.waiting.positions))
        return rows

    def _moved(self, rows: Rows) -> Rows:
        """With the queue ids of the new store."""
        if self.queues is None:
            return rows
        counts = np.array([self.queues.get(topic, 0) for topic in rows.topics], np.int64)
        beyond = rows.queue_ids >= counts[rows.codes]
        if beyond.any():
            at = int(np.flatnonzero(beyond)[0])
            raise RmqStoreError(
                f"{self.store.root}: commitLogOffset {rows.positions[at]}: queue {rows.queue_ids[at]} of topic "
                f"{rows.topics[rows.codes[at]]!r}: expected one that topics.json or consumequeue/ knows, so that each "
                "queue of the new store has messages of one store only; call rmqstore_spark.rebuild(store) first"
            )
        firsts = np.array([self.first_queue.get(topic, 0) for topic in rows.topics], np.int64)
        if not firsts.any():
            return rows
        return replace(rows, queue_ids=rows.queue_ids + firsts[rows.codes], renamed=True)


def _larger(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches, without bodies: with these, batches have so few rows that what is done once for
    each of them would cost more than all that is done for rows."""
    parts: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            parts.append(batch.select([name for name in batch.schema.names if name not in BODY_COLUMNS]))
        if sum(part.num_rows for part in parts) >= _ROWS_AT_ONCE:
            yield _one(parts)
            parts = []
    if parts:
        yield _one(parts)


def _one(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def _of_each_store(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows one after the other, those of one store together."""
    at = 0
    for root, rows in itertools.groupby(batch.column("store").to_pylist()):
        count = len(list(rows))
        yield root, batch.slice(at, count)
        at += count


def _integers(batch: pa.RecordBatch, name: str) -> Integers:
    return batch.column(name).to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def _renumbered(rows: Rows) -> Rows:
    """With new queue offsets in topics that begin anew."""
    for code, topic in enumerate(rows.topics):
        if not rows.waiting.begins_anew(topic):
            continue
        here = np.flatnonzero(rows.codes == code).tolist()
        offsets = rows.queue_offsets.copy()
        for row in here:
            offsets[row] = rows.waiting.next_offset(topic, int(rows.queue_ids[row]))
        if here:
            rows = replace(rows, queue_offsets=offsets, renamed=True)
    return rows


def merged(streams: list[Iterator[Rows]]) -> Iterator[Rows]:
    """The messages of all streams by their store time; those of one stream stay in their order."""
    heads = [(number, rows) for number, stream in enumerate(streams) if (rows := next(stream, None)) is not None]
    while heads:
        if len(heads) == 1:
            number, rows = heads[0]
            yield rows
            yield from streams[number]
            return
        # A time that was set back counts as the one before it.
        at = min(range(len(heads)), key=lambda i: int(heads[i][1].timestamps[0]))
        number, rows = heads[at]
        others = min(int(rows.timestamps[0]) for i, (_, rows) in enumerate(heads) if i != at)
        end = max(1, int(np.searchsorted(np.maximum.accumulate(rows.timestamps), others, "right")))
        yield rows.only(slice(end))
        rest = rows.only(slice(end, None)) if end < len(rows.positions) else next(streams[number], None)
        if rest is None:
            heads.pop(at)
        else:
            heads[at] = number, rest


class Halves:
    """Where half messages are in the new log: committed messages name that."""

    def __init__(self) -> None:
        self._halves: dict[tuple[int, int], int] = {}  # by their store and where they were

    def take(self, rows: Rows, positions: Integers) -> Rows:
        """The next ones, with what has to be written into them.

        Args:
            positions: the physical offsets that they get.
        """
        for code, topic in enumerate(rows.topics):
            if topic in _HALF_TOPICS:
                here = np.flatnonzero(rows.codes == code)
                new = positions[here].tolist()
                for old, position in zip(rows.positions[here].tolist(), new, strict=True):
                    self._halves[id(rows.waiting), old] = position
        committed = np.flatnonzero((rows.flags & TRANSACTION_TYPE) == TRANSACTION_COMMIT).tolist()
        if not committed or not self._halves:
            return rows
        prepared = rows.prepared.copy()
        for row in committed:
            old = int(prepared[row])
            prepared[row] = self._halves.get((id(rows.waiting), old), old)
        return replace(rows, prepared=prepared, renamed=True)


class Chunks:
    """Chunks of units for the writer.

    Args:
        order: looks at queue offsets.
        halves: knows where half messages are.
        begins: physical offsets of messages with which a segment has to begin, -1 for none, by the id() of their
            stores' `waiting`.

    Attributes:
        count: messages that were given.
    """

    def __init__(self, order: KeptOffsets, halves: Halves, begins: Mapping[int, int]) -> None:
        self._order = order
        self._halves = halves
        self._begins = begins
        self._parts: list[Rows] = []
        self._nbytes = 0
        self._is_after_gap = False
        self.count = 0

    def of(self, rows: Iterable[Rows]) -> Iterator[Chunk]:
        """The chunks of some messages: each as large as it may be, or up to a place where a segment has to end."""
        for some in rows:
            for part, is_after_gap in self._cut(_renumbered(some)):
                if is_after_gap:
                    yield from self._finish()
                    self._is_after_gap = True
                for piece in _pieces(part, CHUNK_SIZE):
                    nbytes = int(piece.sizes.sum())
                    if self._nbytes + nbytes > CHUNK_SIZE:
                        yield from self._finish()
                    self._parts.append(piece)
                    self._nbytes += nbytes
                    self.count += len(piece.sizes)
        yield from self._finish()

    def _cut(self, rows: Rows) -> Iterator[tuple[Rows, bool]]:
        queued = np.flatnonzero(rows.is_queued)
        begins = self._order.look(
            rows.topics,
            rows.codes[queued],
            rows.queue_ids[queued],
            rows.queue_offsets[queued],
            self._begin(rows, rows.positions[queued]),
        )
        cuts = [0, *queued[begins].tolist(), len(rows.positions)]
        for number, (start, stop) in enumerate(itertools.pairwise(cuts)):
            if start < stop:
                yield rows.only(slice(start, stop)), number > 0

    def _begin(self, rows: Rows, positions: Integers) -> int | None:
        """Of messages at these physical offsets the index of the one that a segment has to begin with."""
        found = np.flatnonzero(positions == self._begins[id(rows.waiting)])
        return int(found[0]) if len(found) else None

    def _finish(self) -> Iterator[Chunk]:
        if self._parts:
            sizes = np.concatenate([part.sizes for part in self._parts])
            yield Chunk(sizes, _reads(self._parts, self._halves), self._is_after_gap)
            self._parts, self._nbytes, self._is_after_gap = [], 0, False


def _pieces(rows: Rows, most: int) -> Iterator[Rows]:
    """Some messages in pieces of at most so many bytes; a larger message is a piece of its own."""
    ends = np.cumsum(rows.sizes)
    start = before = 0
    while start < len(ends):
        stop = max(int(np.searchsorted(ends, before + most, "right")), start + 1)
        yield rows.only(slice(start, stop))
        start, before = stop, int(ends[stop - 1])


def _reads(parts: list[Rows], halves: Halves) -> Callable[[memoryview, Integers], None]:
    def read_into(memory: memoryview, positions: Integers) -> None:
        at = first = 0
        for old in parts:
            stop = at + int(old.sizes.sum())
            part = halves.take(old, positions[first : first + len(old.sizes)])
            part.units.read_into(memory[at:stop], part.positions, part.sizes)
            if part.renamed:
                put_fields(
                    memory[at:stop],
                    part.sizes,
                    part.flags,
                    queue_ids=part.queue_ids,
                    queue_offsets=part.queue_offsets,
                    prepared=part.prepared,
                )
            at, first = stop, first + len(part.sizes)

    return read_into
