"""Messages in the log that no queue file has: of queues that are lost or lag behind.

The proof that queues tile the log shows the parts of the log that no queue knows (store/queue_coverage.py). The proof
reads 20 bytes for each message, and then these parts are read. Messages of a deleted topic are in no queue either, and
belong to nobody. So a topic counts only if the configuration, a directory or a group's offset names it; without a
configuration every topic counts.
"""

import itertools
import logging
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rmqstore_spark.amounts import size_text
from rmqstore_spark.columns import arrow_schema
from rmqstore_spark.errors import one_line
from rmqstore_spark.query.selection import Selection
from rmqstore_spark.read.pieces.pinned import pinned
from rmqstore_spark.read.pieces.task import Range, Scanned, Task
from rmqstore_spark.read.plan.prune import ranges_of
from rmqstore_spark.read.run.batches import ReadSettings, read_task
from rmqstore_spark.store.format.message import is_queued
from rmqstore_spark.store.format.stretches import joined
from rmqstore_spark.store.queue_bounds import ManyBounds
from rmqstore_spark.store.queue_coverage import coverage
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue

logger = logging.getLogger(__name__)

_COLUMNS = ["topic", "queueId", "queueOffset", "sysFlag", "commitLogOffset", "storeTimestamp"]
# Limits of a search without a sign that something is missing: more would take longer than about a second.
_MOST_UNITS = 10_000_000
_MOST_STRETCHES = 5000  # of a queue in a segment
_MOST_BYTES = 256 * 1024 * 1024  # of the log
_NEAR = 16 * 1024  # bytes of the log that take less time than to begin anew behind them
_RANGES_AT_ONCE = 1024


class Unqueued(NamedTuple):
    """A message that no queue file has; the store time is in microseconds."""

    topic: str
    queue_id: int
    offset: int
    position: int
    time: int


def unqueued(store: Snapshot, selection: Selection, known: ManyBounds) -> Iterator[Unqueued]:
    """The messages of selected topics and queues that queue files do not have, in the order of the log.

    Args:
        known: the existing selected queues, with the bounds that their files have.
    """
    ranges = _unknown(store, selection, known)
    if not (some := tuple(itertools.islice(ranges, _RANGES_AT_ONCE))):
        return
    rows = known.rows
    wanted = Selection(topic=selection.topic, assigned=selection.assigned)
    settings = ReadSettings(
        arrow_schema(_COLUMNS), "DROPMALFORMED", verify_crc=False, decompress=False, selection=wanted
    )
    topics = {*store.known_topics, *store.consumed_topics} if store.topics else None
    following = iter(lambda: tuple(itertools.islice(ranges, _RANGES_AT_ONCE)), ())
    tasks = (pinned([Task(each)], wanted)[0] for each in itertools.chain([some], following))
    for batch in (batch for task in tasks for batch in read_task(task, settings)):
        columns = [*batch.columns[:5], batch.column(5).cast(pa.int64())]
        for topic, queue_id, offset, flags, position, time in zip(*(c.to_pylist() for c in columns), strict=True):
            if is_queued(flags) and (topics is None or topic in topics):
                message = Unqueued(topic, queue_id, offset, position, time)
                row = rows.get((topic, queue_id))
                if row is None or known.is_lacking(row, offset, position):
                    yield message


def _unknown(store: Snapshot, selection: Selection, known: ManyBounds) -> Iterator[Range]:
    """The parts of the log that no queue knows, limited to those that are worth a read."""
    if store.is_of_known_queues:
        return
    ranges = ranges_of(store)
    if not known.have_messages.any() and not any(
        queue.last() is not None for queue in itertools.chain(known.queues, store.queues.every)
    ):
        if ranges:
            logger.warning("%s: no ConsumeQueues of files, so the whole log is read to know its queues", store.root)
        yield from (Scanned(r.segment, r.start, r.stop, store) for r in ranges)
        return
    is_sign = _is_something_missing(store, selection, known)
    if not is_sign and _are_many(store, len(ranges)):
        return
    found = coverage(store, store.log.extents, lambda queue: True)
    # Where queues contradict each other, no queue counts.
    gaps = [[(r.start, r.stop)] if each.gaps is None else each.gaps for each, r in zip(found, ranges, strict=True)]
    size = sum(stop - start for some in gaps for start, stop in some)
    if size > _MOST_BYTES:
        what = "they are read to know the queues" if is_sign else "of deleted topics, or of queues that lack messages"
        logger.warning("%s: %s of the log are in no ConsumeQueue: %s", one_line(store.root), size_text(size), what)
        if not is_sign:
            return
    for some, r in zip(gaps, ranges, strict=True):
        # A damaged log has very many. Messages between them are in their queues, as is found when they are read.
        for start, stop in joined(some, _NEAR):
            yield Scanned(r.segment, start, stop, store)


def _are_many(store: Snapshot, segments: int) -> bool:
    """Are there more queues, or units, than are looked at without a sign? Where there are more topics, no queue is
    listed."""
    most = _MOST_STRETCHES // max(1, segments)
    if store.queues.has_more_topics(most):
        return True
    queues = store.queues.every
    return len(queues) > most or sum(store.files.schedule.mapped(_count, queues)) > _MOST_UNITS


def _count(queue: Queue) -> int:
    return queue.end - queue.first


def _is_something_missing(store: Snapshot, selection: Selection, known: ManyBounds) -> bool:
    """Is there a queue's directory without units, or a group whose offset is beyond its queue's end?"""
    without = np.flatnonzero(~known.have_messages).tolist()
    rows = known.rows if without else {}
    if any(rows[known.names[row]] == row and known.queues[row].last() is None for row in without):
        return True
    offsets = store.offsets_in(selection.named_topics)
    ends = np.append(known.end, 0)  # the last one is of any other queue
    index = offsets.index_in(known.names)
    for piece in offsets.pieces():
        beyond = np.flatnonzero(offsets.offsets[piece] > ends[index(piece)])
        topics = (offsets.names[at][1] for at in offsets.names_of(piece)[beyond].tolist())
        queues = zip(topics, offsets.queue_ids[piece][beyond].tolist(), strict=True)
        if any(selection.wants_all_queues or selection.queue(*queue) is not None for queue in queues):
            return True
    return False
