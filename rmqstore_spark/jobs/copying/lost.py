"""Messages that a salvage lacks before the first and after the last message of a queue, and after the end of a log
whose last part is gone. ConsumeQueues, consumers' offsets, index files and the checkpoint know of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rmqstore_spark.jobs.copying.config import Config
from rmqstore_spark.jobs.copying.source import Source
from rmqstore_spark.store.bounds_search import QueueBounds
from rmqstore_spark.store.format.system_topics import SCHEDULE_TOPIC
from rmqstore_spark.store.queue_bounds import queue_bounds
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import offsets_by_number
from rmqstore_spark.store.structures.queue_cursor import QueueCursor
from rmqstore_spark.tables.check.ends import checkpoint_ahead
from rmqstore_spark.tables.check.index_files import beyond, spans_of
from rmqstore_spark.tables.check.log_view import LogView, commitlogs_of
from rmqstore_spark.tables.check.moment import Moment
from rmqstore_spark.tables.check.problems import Finding
from rmqstore_spark.tables.check.queues import ahead_of_log
from rmqstore_spark.tables.check.waited import waited
from rmqstore_spark.write.build.kept_offsets import KeptOffsets, Lost
from rmqstore_spark.write.build.tails import Queue


def bounds_of(source: Source) -> Iterator[tuple[Queue, QueueBounds]]:
    """The bounds of a source's simple queues that go on in the copy, with the queues' names in the copy."""
    queues = source.store.queues
    some = (
        queue
        for topic in queues.topics
        if not source.waiting.begins_anew(topic) and topic not in source.batch_topics
        for queue in queues.of_topic(topic)
    )
    for bounds in queue_bounds(source.store, some):
        yield source.new_name(bounds.queue.topic, bounds.queue.queue_id), bounds


def batch_ends_of(source: Source) -> Iterator[tuple[Queue, int]]:
    """The queue offset at which each BatchCQ of a source goes on in the copy, by the queue's name in the copy."""
    # A question of the copy: it makes queues of two forms, by the topic's queue.type, and each goes on by itself.
    some = (queue for queue in source.store.queues.batch if queue.topic in source.batch_topics)
    for bounds in queue_bounds(source.store, some):
        yield source.new_name(bounds.queue.topic, bounds.queue.queue_id), bounds.end


def lost_outside(
    source: Source, config: Config, bounds: Mapping[Queue, QueueBounds], order: KeptOffsets, ends: Mapping[Queue, int]
) -> Iterator[Lost]:
    """The messages that a source's queues lack before their first and after their last message, as far as ConsumeQueues
    and the offsets of consumer groups know. While a broker runs, both may know later messages than its log had.

    Args:
        bounds: the bounds of the source's queues.
        ends: the next queue offset of each queue of the new store.
    """
    store = source.store
    begin = store.log.extents[0].start if store.log.extents else store.end
    after = dict(order.ends)
    for name, each in bounds.items():
        after[name] = max(each.end, after.get(name, 0))
        if name not in order.ends:
            continue
        queue, first_left, last_left = each.queue, order.starts[name], order.ends[name]
        first = QueueCursor(queue, each.end).seek(begin)
        if queue.unit(first) is not None and first < first_left:
            yield Lost(name, first, first_left - first)
        if each.end > last_left:
            yield Lost(name, last_left, each.end - last_left, is_reused=ends[name] == last_left)
    if _is_changing(store):
        return
    known: dict[Queue, Lost] = {}
    for name, end, who in [*_ahead(source), *_consumed(source, config)]:
        start = after.get(name, end)
        if end - start > (known[name].count if name in known else 0):
            known[name] = Lost(name, start, end - start, is_reused=True, known=who)
    yield from known.values()


def with_times(source: Source, gap: Lost) -> Lost:
    """A gap; in a queue of a delay level with what is known of its messages."""
    topic, queue_id = gap.queue
    queue = source.store.queues.queue(topic, queue_id) if topic == SCHEDULE_TOPIC else None
    if queue is None or gap.known:
        return gap
    units, _ = queue.units(gap.queue_offset, 1 << 62)
    units = units.only(units.queue_offsets < gap.queue_offset + gap.count)
    known = waited(source.store, topic, queue_id, units) if len(units) else None
    return gap if known is None else replace(gap, known=known.text)


def after_log(source: Source) -> Iterator[Finding]:
    """Messages after the end of a source's log, as far as index files and the checkpoint know."""
    store = source.store
    if _is_changing(store):
        return
    view = _view(store)
    spans = spans_of(store, view.moment, [])
    yield from beyond(store, spans, view.moment)
    last = store.last_message
    if last is not None and last.store_timestamp is not None:
        yield from checkpoint_ahead(store, view, last.store_timestamp // 1000)


def _is_changing(store: Snapshot) -> bool:
    return store.files.is_locked(store.layout.lock)


def _view(store: Snapshot) -> LogView:
    return LogView(store.root, commitlogs_of(store), store.files, Moment(store.end, False, False, store.end))


def _ahead(source: Source) -> Iterator[tuple[Queue, int, str]]:
    """For each queue that knows of messages after the log's end, the queue offset after the last of them."""
    store = source.store
    some = (queue for queue in store.queues.own if not source.waiting.begins_anew(queue.topic))
    for found in ahead_of_log(_view(store), some):
        assert found.topic is not None
        assert found.queue_id is not None
        assert found.queue_offset is not None
        assert found.count is not None
        yield source.new_name(found.topic, found.queue_id), found.queue_offset + found.count, ""


def _consumed(source: Source, config: Config) -> Iterator[tuple[Queue, int, str]]:
    """The queue offset up to which each queue was consumed: by groups, and for delay levels by the broker itself."""
    for (group, topic), offsets in config.offsets.items():
        if not source.waiting.begins_anew(topic):
            for queue_id, offset in offsets.items():
                yield source.new_name(topic, queue_id), offset, f"group {group!r} has consumed up to {offset}"
    if not source.waiting.begins_anew(SCHEDULE_TOPIC):
        for level, offset in offsets_by_number(config.member("delayOffset.json")).items():
            yield (SCHEDULE_TOPIC, level - 1), offset, f"delayOffset.json has {offset}"
