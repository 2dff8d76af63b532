"""Messages that wait for their time and that a salvage lacks. Their topics begin anew in the new store, so its queues
have no gaps that tell of them: the queue units of the source do, and for timers the timer's log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rmqstore_spark.jobs.copying.source import Source
from rmqstore_spark.jobs.copying.waiting import all_of
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.store.format.queue_block import QueueBlock
from rmqstore_spark.store.format.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.tables.check.problems import Finding
from rmqstore_spark.tables.check.waited import waited
from rmqstore_spark.tables.messages import messages
from rmqstore_spark.tables.picked import of_topics

_ADVICE = (
    "a broker never delivers these messages, which waited for their time; send them again if their producer can. Those "
    "that the new store has are delivered when they are due"
)


def lost_waiting(source: Source, options: ReadOptions, damages: Sequence[Finding]) -> Iterator[Finding]:
    """A row for each gap of messages that waited, of topics that begin anew; none for those delivered already.

    Args:
        options: how to read; their selection is ignored.
        damages: what the salvage has left out of this source.
    """
    store = source.store
    if store.files.is_locked(store.layout.lock):  # the queues may know of later messages than the log had
        return
    for topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        for queue in store.queues.of_topic(topic) if source.waiting.begins_anew(topic) else ():
            units = _lost_units(source, options, queue, [each.position for each in damages])
            yield from _of_queue(source, queue, units)


def _lost_units(source: Source, options: ReadOptions, queue: Queue, damaged: Sequence[int | None]) -> QueueBlock:
    """The units of a queue whose messages are not whole in the log."""
    store = source.store
    begin = store.log.extents[0].start if store.log.extents else store.end
    units, _ = queue.units(0, 1 << 62)
    is_new = units.positions == np.maximum.accumulate(units.positions)  # others are left over from a cut log
    units = units.only(units.are_messages & is_new & (units.positions >= begin))
    if not damaged and not (units.positions >= store.end).any():
        return units.only(slice(0, 0))
    batches = messages(store, all_of(options), of_topics(queue.topic), ["commitLogOffset"])
    whole = [batch.column("commitLogOffset").to_numpy() for batch in batches]
    is_whole = np.isin(units.positions, np.concatenate([np.zeros(0, np.int64), *whole]))
    return units.only(~is_whole | np.isin(units.positions, [at for at in damaged if at is not None]))


def _of_queue(source: Source, queue: Queue, units: QueueBlock) -> Iterator[Finding]:
    known = waited(source.store, queue.topic, queue.queue_id, units) if len(units) else None
    if known is None:
        return
    units, known = units.only(~known.is_done), known.only(~known.is_done)
    edges = np.flatnonzero(np.diff(units.queue_offsets) != 1) + 1
    for start, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(units)], strict=True):
        if start == stop:
            continue
        first, last = (int(units.queue_offsets[at]) for at in (start, stop - 1))
        yield Finding(
            "lostMessages",
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=first,
            expected="a message for each queueOffset",
            found=f"none from {first} to {last}; {known.only(slice(start, stop)).text}",
            count=last - first + 1,
            advice=_ADVICE,
        )
