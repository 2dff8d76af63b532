"""The messages of a source that are copied: from record batches of a read to rows. A salvage leaves out messages that
are damaged or misplaced."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from rmqstore_spark.errors import NotAStoreError, RmqStoreError
from rmqstore_spark.jobs.copying.misplaced import Misplaced
from rmqstore_spark.jobs.copying.report import Losses
from rmqstore_spark.jobs.copying.rows import Rows, Units
from rmqstore_spark.jobs.copying.source import Source
from rmqstore_spark.store.format.by_queue import Integers
from rmqstore_spark.store.format.message import INNER_BATCH
from rmqstore_spark.store.format.system_topics import TIMER_TOPIC
from rmqstore_spark.store.structures.layout import queue_path

COLUMNS = [
    *("commitLogOffset", "storeSize", "topic", "queueId", "queueOffset", "sysFlag", "storeTimestamp"),
    "preparedTransactionOffset",
]
BODY_COLUMNS = ["body"]  # if read, a body that cannot be decompressed is damage
DAMAGE_COLUMNS = ["file", "corrupt"]
_ROWS_AT_ONCE = 16 * 1024


def selected(
    source: Source, batches: Iterable[pa.RecordBatch], units: Mapping[str, Units], losses: Losses | None
) -> Iterator[Rows]:
    """The messages of a source that are copied, as they are in the copy except for their physical offsets.

    Args:
        batches: the selected messages with COLUMNS, for several replicas also the column `store`; in a salvage also
            DAMAGE_COLUMNS, where a row with `corrupt` stands for damage. BODY_COLUMNS are ignored.
        units: by the store's path, a reader of the messages' bytes; one for each replica.
        losses: collects the messages that a salvage leaves out. None for a copy, which refuses damage.

    Raises:
        RmqStoreError: a message cannot be copied.
    """
    large = _larger(batches)
    whole = _all_named(source, large) if losses is None else _whole(source, large, losses)
    for batch in (_without_excluded(source, batch) for batch in whole):
        if batch.num_rows and "store" in batch.schema.names:
            for root, part in _of_each_store(batch):
                _refuse_timers(source, root, part)
                yield _rows(source, part, units[root])
        elif batch.num_rows:
            yield _rows(source, batch, units[source.store.root])


def _without_excluded(source: Source, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch without the messages that options leave out."""
    if not batch.num_rows or not source.left_out:
        return batch
    return batch.filter(pa.array(~source.are_left_out(_integers(batch, "commitLogOffset"))))


# ---- damage


def _all_named(source: Source, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches.

    Raises:
        RmqStoreError: a message's queue cannot have files.
    """
    for batch in batches:
        for number, reason in _nameless(batch):
            position = batch.column("commitLogOffset")[number].as_py()
            raise RmqStoreError(f"{source.store.root}: commitLogOffset {position}: {reason}; leave its topic out")
        yield batch


def _whole(source: Source, batches: Iterable[pa.RecordBatch], losses: Losses) -> Iterator[pa.RecordBatch]:
    """The same batches without messages that are damaged or misplaced."""
    misplaced = Misplaced(source.store)
    before: pa.RecordBatch | None = None  # waits for the next batch, which helps to judge it
    for batch in batches:
        batch = _without(source, batch, list(_damaged(batch)), losses)
        batch = _without(source, batch, list(_nameless(batch)), losses)
        batch = _without(source, batch, list(_batched(source, batch)), losses)
        _refuse_to_salvage(source, batch)
        if before is not None:
            yield _without(source, before, misplaced.look(before, batch), losses)
        before = batch
    if before is not None:
        yield _without(source, before, misplaced.look(before), losses)


def _without(source: Source, batch: pa.RecordBatch, wrong: list[tuple[int, str]], losses: Losses) -> pa.RecordBatch:
    """A batch without some messages.

    Args:
        wrong: the numbers of these messages in the batch, each with the reason.
    """
    if not wrong:
        return batch
    is_right = np.ones(batch.num_rows, bool)
    for number, reason in wrong:
        is_right[number] = False
        file, position = (batch.column(name)[number].as_py() for name in ("file", "commitLogOffset"))
        losses.damaged(source, file, position, reason)
    return batch.filter(pa.array(is_right))


def _damaged(batch: pa.RecordBatch) -> Iterator[tuple[int, str]]:
    """The rows of a batch that stand for damage."""
    corrupt = batch.column("corrupt")
    if corrupt.null_count < len(corrupt):
        for number in np.flatnonzero(corrupt.is_valid().to_numpy(zero_copy_only=False)).tolist():
            yield number, corrupt[number].as_py()


def _nameless(batch: pa.RecordBatch) -> Iterator[tuple[int, str]]:
    """Messages whose queue cannot have files."""
    topics = batch.column("topic").dictionary_encode()
    has_path = np.array([queue_path(topic, 0) is not None for topic in topics.dictionary.to_pylist()], bool)
    is_right = has_path[topics.indices.to_numpy()] & (batch.column("queueId").to_numpy() >= 0)
    for number in np.flatnonzero(~is_right).tolist():
        topic, queue_id = (batch.column(name)[number].as_py() for name in ("topic", "queueId"))
        yield number, f"topic {topic!r}, queue {queue_id}: expected a name that a queue's files can have"


def _batched(source: Source, batch: pa.RecordBatch) -> Iterator[tuple[int, str]]:
    """Messages that claim to be a batch of several, but whose topic has no BatchCQ: a question of messages, which only
    queues of that form vouch for."""
    topics = batch.column("topic")
    for number in np.flatnonzero(_integers(batch, "sysFlag") & INNER_BATCH).tolist():
        topic = topics[number].as_py()
        if not source.store.queues.batch_of_topic(topic):
            yield number, f"sysFlag 0x80, of messages in BatchCQ queues: its topic {topic!r} has no such queue"


# ---- rows


def _refuse_odd_batches(source: Source, topics: list[str], codes: Integers) -> None:
    """Refuse batches of topics whose queues are simple.

    Args:
        codes: the topics of the batches, as indexes of `topics`.

    Raises:
        NotAStoreError: there is one.
    """
    for topic in (topics[code] for code in codes.tolist()):
        if topic not in source.batch_topics:
            raise NotAStoreError(
                f"{source.store.root}: topic {topic!r} has batches (sysFlag 0x80), but is no BatchCQ topic: expected "
                "queue.type BatchCQ in config/topics.json; bring back the broker's topics.json, or leave the topic out "
                "(--topic)"
            )


def _refuse_to_salvage(source: Source, batch: pa.RecordBatch) -> None:
    """Refuse BatchCQ topics in a salvage: which of their messages are misplaced or lost cannot be told.

    Raises:
        NotAStoreError: there is one.
    """
    for topic in batch.column("topic").dictionary_encode().dictionary.to_pylist():
        if topic in source.batch_topics:
            raise NotAStoreError(
                f"{source.store.root}: topic {topic!r} is a BatchCQ topic, which a salvage does not take; leave the "
                "topic out (--topic), or use copy if the store has no damage"
            )


def _refuse_timers(source: Source, root: str, batch: pa.RecordBatch) -> None:
    """Refuse timed messages outside the newest replica, which alone says which timed messages wait.

    Raises:
        RmqStoreError: another replica has some.
    """
    if root != source.store.root and TIMER_TOPIC in batch.column("topic").to_pylist():
        raise RmqStoreError(
            f"{root}: timed messages ({TIMER_TOPIC}) are missing or damaged in {source.store.root}, whose log ends "
            "last: nothing tells which of them were delivered; copy or salvage one of the stores"
        )


def _rows(source: Source, batch: pa.RecordBatch, units: Units) -> Rows:
    topic = batch.column("topic").dictionary_encode()
    topics, codes = topic.dictionary.to_pylist(), topic.indices.to_numpy().astype(np.int64)
    flags = _integers(batch, "sysFlag")
    _refuse_odd_batches(source, topics, codes[np.flatnonzero(flags & INNER_BATCH)])
    rows = Rows(
        source,
        units,
        topics,
        codes,
        _integers(batch, "commitLogOffset"),
        _integers(batch, "storeSize"),
        _integers(batch, "queueId"),
        _integers(batch, "queueOffset"),
        batch.column("storeTimestamp").cast(pa.int64()).fill_null(0).to_numpy(),  # null: beyond every calendar
        flags,
        _integers(batch, "preparedTransactionOffset"),
    )
    return _in_new_queues(_that_wait(rows))


def _that_wait(rows: Rows) -> Rows:
    """The rows without waiting messages that are not copied."""
    waiting = rows.source.waiting
    for code, topic in enumerate(rows.topics):
        if waiting.begins_anew(topic):
            rows = rows.only((rows.codes != code) | waiting.positions.are_in(rows.positions))
    return rows


def _in_new_queues(rows: Rows) -> Rows:
    """The rows with the queue ids of the new store."""
    source = rows.source
    if source.queues is None:
        return rows
    counts = np.array([source.queues.get(topic, 0) for topic in rows.topics], np.int64)
    beyond = rows.queue_ids >= counts[rows.codes]
    if beyond.any():
        at = int(np.flatnonzero(beyond)[0])
        raise RmqStoreError(
            f"{source.store.root}: commitLogOffset {rows.positions[at]}: queue {rows.queue_ids[at]} of topic "
            f"{rows.topics[rows.codes[at]]!r}: expected one that topics.json or consumequeue/ knows, so that each "
            "queue of the new store has messages of one store only; call rmqstore_spark.rebuild(store) first"
        )
    firsts = np.array([source.first_queue.get(topic, 0) for topic in rows.topics], np.int64)
    if not firsts.any():
        return rows
    return replace(rows, queue_ids=rows.queue_ids + firsts[rows.codes], renamed=True)


# ---- batches


def _larger(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches, without bodies. With bodies, batches have so few rows that the work for each
    batch would cost more than the work for its rows."""
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
    """The rows in their order, in runs of one store each."""
    at = 0
    for root, rows in itertools.groupby(batch.column("store").to_pylist()):
        count = len(list(rows))
        yield root, batch.slice(at, count)
        at += count


def _integers(batch: pa.RecordBatch, name: str) -> Integers:
    return batch.column(name).to_numpy().astype(np.int64)  # type: ignore[no-any-return]
