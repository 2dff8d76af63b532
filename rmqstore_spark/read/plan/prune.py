"""The parts of a log that can hold selected messages: by physical offset, queue offset and store time."""

import bisect
import itertools
from collections.abc import Iterator
from dataclasses import replace

from rmqstore_spark.query.selection import ALL, Numbers, Selection
from rmqstore_spark.read.pieces.task import Range
from rmqstore_spark.read.plan.split import SplitPoints
from rmqstore_spark.store.format.stretches import joined
from rmqstore_spark.store.io.schedule import REQUESTS_AT_ONCE
from rmqstore_spark.store.offset_parts import parts_of_offsets
from rmqstore_spark.store.snapshot import AskedOffsets, Snapshot

_MOST_OFFSETS = 1000  # for more physical offsets, one stretch with all of them is taken; and queues by name
_OFFSET_MSG_ID = (32, 56)  # hex digits, with an IPv4 and an IPv6 host (MessageDecoder.decodeMessageId)


def physical_offset_of(offset_msg_id: str) -> int | None:
    """The physical offset that an offsetMsgId names, or None when the text is no such id."""
    if len(offset_msg_id) not in _OFFSET_MSG_ID:
        return None
    try:
        position = int.from_bytes(bytes.fromhex(offset_msg_id)[-8:], "big", signed=True)
    except ValueError:
        return None
    return position if position >= 0 else None


def ranges_of(store: Snapshot) -> list[Range]:
    """All ranges of a store's log."""
    return [Range(extent.segment, extent.start, extent.stop, store) for extent in store.log.extents]


def pruned(store: Snapshot, selection: Selection, points: SplitPoints) -> list[Range]:
    """The parts of a store's log that can hold selected messages."""
    ranges = ranges_of(store)
    if (spans := _spans(selection)) is not None:
        ranges = list(around(store, spans, points))
    if (parts := _by_queue_offset(store, selection)) is not None:
        met = ((r, max(r.start, start), min(r.stop, stop)) for start, stop in parts for r in _met(ranges, start, stop))
        ranges = [replace(r, start=start, stop=stop) for r, start, stop in met]
    may_hold = store.may_hold([r.start for r in ranges], offsets_asked(selection))
    ranges = [r for r, is_asked in zip(ranges, may_hold, strict=True) if is_asked]
    return in_time(store, ranges, selection.store_timestamp)


def offsets_asked(selection: Selection) -> AskedOffsets:
    """Which queue offsets are selected, for a log that knows between which ones its parts are."""

    def asked(topic: str, queue_id: int) -> tuple[int, int] | None:
        offsets = selection.queue(topic, queue_id)
        return None if offsets is None else (offsets.least, offsets.most)

    return asked


def in_time(store: Snapshot, ranges: list[Range], times: Numbers) -> list[Range]:
    """The ranges that can hold messages of these store times (ms)."""
    if times == ALL:
        return ranges
    of_log = store.times
    may_hold = store.files.schedule.mapped(lambda r: of_log.may_hold(r.start, r.stop, times.least, times.most), ranges)
    return [r for r, may in zip(ranges, may_hold, strict=True) if may]


def first_in_time(store: Snapshot, ranges: list[Range], times: Numbers) -> Range | None:
    """The first of in_time(); None where there is none. Later ranges are not looked at."""
    parts = (ranges[first : first + REQUESTS_AT_ONCE] for first in range(0, len(ranges), REQUESTS_AT_ONCE))
    return next((found[0] for part in parts if (found := in_time(store, part, times))), None)


def around(store: Snapshot, spans: list[tuple[int, int]], points: SplitPoints) -> Iterator[Range]:
    """The parts of the log that hold all units beginning in these spans of physical offsets, both ends included.

    The parts begin and end where units do, so they may be larger than the spans.
    """
    ranges = ranges_of(store)
    last: Range | None = None
    for start, stop in joined(sorted((least, most + 1) for least, most in spans)):
        for whole in _met(ranges, start, stop):
            first, after = max(start, whole.start), min(stop, whole.stop)
            is_all = (first, after) == (whole.start, whole.stop)
            part = whole if is_all else points.around(whole, first, after - 1)
            if last is not None and last.segment == part.segment and part.start < last.stop:
                last = replace(last, stop=max(last.stop, part.stop))
                continue
            if last is not None:
                yield last
            last = part
    if last is not None:
        yield last


def _met(ranges: list[Range], start: int, stop: int) -> Iterator[Range]:
    """The ranges, given in order and without overlap, that have a part of [start, stop)."""
    first = bisect.bisect_right(ranges, start, key=lambda r: r.stop)
    return itertools.takewhile(lambda r: r.start < stop, itertools.islice(ranges, first, None))


def _spans(selection: Selection) -> list[tuple[int, int]] | None:
    """The spans of physical offsets in which selected messages begin, both ends included; None: anywhere."""
    offsets = selection.commit_log_offset
    if selection.offset_msg_id is not None:
        named = map(physical_offset_of, selection.offset_msg_id)
        offsets = offsets & Numbers.of(*(offset for offset in named if offset is not None))
    if offsets == ALL:
        return None
    if offsets.among is not None and len(offsets.among) <= _MOST_OFFSETS:
        return [(offset, offset) for offset in sorted(offsets.among)]
    return [] if offsets.is_empty else [(offsets.least, offsets.most)]


def _by_queue_offset(store: Snapshot, selection: Selection) -> list[tuple[int, int]] | None:
    """The parts of the log that can hold the selected queue offsets, as physical offsets [start, stop) where units
    begin, in order; None: all of it."""
    named = _named_queues(selection)
    if named is None:
        return None
    parts: list[tuple[int, int]] = []
    for topic, queue_id in named:
        offsets = selection.queue(topic, queue_id)
        if offsets is None:
            continue
        found = parts_of_offsets(store, store.queues.all_of_queue(topic, queue_id), offsets)
        if found is None:
            return None
        parts += found
    return list(joined(sorted(parts)))


def _named_queues(selection: Selection) -> list[tuple[str, int]] | None:
    """The queues that a selection names one by one, or None when it names none."""
    if selection.assigned is not None:
        return [(topic, queue_id) for topic, ids in selection.assigned.items() for queue_id in ids]
    topics, ids = selection.topic.among, selection.queue_id.among
    if topics is None or ids is None or len(topics) * len(ids) > _MOST_OFFSETS:
        return None
    return [(topic, queue_id) for topic in topics for queue_id in ids]
