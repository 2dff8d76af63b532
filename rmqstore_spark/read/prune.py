"""The parts of a log that can hold selected messages: by physical offset, queue offset and store time."""

from collections.abc import Iterator
from dataclasses import replace

from rmqstore_spark.read.clock import may_hold
from rmqstore_spark.read.split import Splitter
from rmqstore_spark.read.task import Range
from rmqstore_spark.selection import ALL, Numbers, Selection
from rmqstore_spark.store.consumequeue import Queue, QueueUnit
from rmqstore_spark.store.opened import OpenStore

_MOST_OFFSETS = 1000  # more of them are looked for in one stretch
_OFFSET_MSG_ID = (32, 56)  # hex digits, with an IPv4 and an IPv6 host (MessageDecoder.decodeMessageId)


def physical_offset_of(offset_msg_id: str) -> int | None:
    """The physical offset that an offsetMsgId names, or None when it is no such id."""
    if len(offset_msg_id) not in _OFFSET_MSG_ID:
        return None
    try:
        position = int.from_bytes(bytes.fromhex(offset_msg_id)[-8:], "big", signed=True)
    except ValueError:
        return None
    return position if position >= 0 else None


def ranges_of(store: OpenStore) -> list[Range]:
    """All of a store's log."""
    return [Range(extent.segment, extent.start, extent.stop, store) for extent in store.log.extents]


def pruned(store: OpenStore, selection: Selection, splitter: Splitter) -> list[Range]:
    """The parts of a store's log that can hold selected messages."""
    ranges = ranges_of(store)
    if (spans := _spans(selection)) is not None:
        ranges = list(around(store, spans, splitter))
    if (parts := _by_queue_offset(store, selection)) is not None:
        met = ((r, max(r.start, start), min(r.stop, stop)) for r in ranges for start, stop in parts)
        ranges = [replace(r, start=start, stop=stop) for r, start, stop in met if start < stop]
    return in_time(store, ranges, selection.store_timestamp)


def in_time(store: OpenStore, ranges: list[Range], times: Numbers) -> list[Range]:
    """Those of the ranges that can hold messages of these store times (ms)."""
    if times == ALL:
        return ranges
    at = store.log.timestamp
    return [r for r in ranges if may_hold(at(r.start), at(r.stop), times.least, times.most)]


def around(store: OpenStore, spans: list[tuple[int, int]], splitter: Splitter) -> Iterator[Range]:
    """The parts of the log that hold all units that begin in these spans of physical offsets, both ends included.

    They begin and end where units do, so they may be larger.
    """
    for whole in ranges_of(store):
        last: Range | None = None
        for least, most in sorted(spans):
            if most < whole.start or least >= whole.stop:
                continue
            part = splitter.around(whole, max(least, whole.start), min(most, whole.stop - 1))
            if last is not None and part.start < last.stop:
                last = replace(last, stop=max(last.stop, part.stop))
                continue
            if last is not None:
                yield last
            last = part
        if last is not None:
            yield last


def _spans(selection: Selection) -> list[tuple[int, int]] | None:
    """Between which physical offsets selected messages begin, both included; None: anywhere."""
    offsets = selection.commit_log_offset
    if selection.offset_msg_id is not None:
        named = map(physical_offset_of, selection.offset_msg_id)
        offsets = offsets & Numbers.of(*(offset for offset in named if offset is not None))
    if offsets == ALL:
        return None
    if offsets.among is not None and len(offsets.among) <= _MOST_OFFSETS:
        return [(offset, offset) for offset in sorted(offsets.among)]
    return [] if offsets.is_empty else [(offsets.least, offsets.most)]


def _by_queue_offset(store: OpenStore, selection: Selection) -> list[tuple[int, int]] | None:
    """The parts of the log that can hold the selected queue offsets, as physical offsets [start, stop) where units
    begin; None: all of it. Along a queue physical offsets ascend with queue offsets."""
    named = _named_queues(selection)
    if named is None or any(queue.topic in dict(named) for queue in store.queues.batch):
        return None
    parts: list[tuple[int, int]] = []
    for topic, queue_id in named:
        offsets = selection.queue(topic, queue_id)
        if offsets is None:
            continue
        queue = store.queues.queue(topic, queue_id)
        part = None if queue is None else _part(store, queue, offsets)
        if part is None:
            return None
        parts.append(part)
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(parts):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], stop)
        else:
            merged.append((start, stop))
    return merged


def _named_queues(selection: Selection) -> list[tuple[str, int]] | None:
    """The queues that a selection names one by one, or None when it does not."""
    if selection.assigned is not None:
        return [(topic, queue_id) for topic, ids in selection.assigned.items() for queue_id in ids]
    topics, ids = selection.topic.among, selection.queue_id.among
    if topics is None or ids is None or len(topics) * len(ids) > _MOST_OFFSETS:
        return None
    return [(topic, queue_id) for topic in topics for queue_id in ids]


def _part(store: OpenStore, queue: Queue, offsets: Numbers) -> tuple[int, int] | None:
    """Where the log can hold these offsets of a queue; None where queue and log do not agree on that."""
    start, stop = 0, (1 << 63) - 1
    first = min(offsets.least, queue.end - 1)  # what is not in the queue yet comes after its last message
    if first > queue.first:
        unit = _confirmed(store, queue, first)
        if unit is None:
            return None
        start = unit.position
    if offsets.most < queue.end:
        unit = _confirmed(store, queue, offsets.most)
        if unit is None:
            return None
        stop = unit.position + unit.size
    return start, stop


def _confirmed(store: OpenStore, queue: Queue, queue_offset: int) -> QueueUnit | None:
    """The unit of a queue offset, when the log agrees."""
    unit = queue.unit(queue_offset)
    extent = None if unit is None else store.log.extent_at(unit.position)
    if unit is None or extent is None:
        return None
    with store.reader(extent.segment) as reader:
        return unit if reader.holds(queue, queue_offset, unit) and store.log.is_live(unit.position) else None
