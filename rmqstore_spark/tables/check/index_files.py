"""Index files by themselves: whether header, slots and items agree."""

from collections.abc import Generator, Iterator

import numpy as np
import numpy.typing as npt

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.files import Files
from rmqstore_spark.store.indexfile import (
    DEFAULT_SLOTS,
    HEADER,
    ITEM,
    SLOT,
    Header,
    IndexReader,
    file_size,
    index_paths,
    item_at,
    items_in,
)
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.store.sizes import DEFAULT_SIZES
from rmqstore_spark.tables.check.index_items import IndexSpan, number_at
from rmqstore_spark.tables.check.problems import Finding
from rmqstore_spark.tables.check.queue_units import stretches

_AT_ONCE = 512 * 1024  # items or slots

_Longs = npt.NDArray[np.int64]


def spans_of(store: OpenStore, findings: list[Finding]) -> list[IndexSpan]:
    """The index files that have items, the oldest first; what cannot be used is told.

    No file says how many slots it has: those of one that is sound are taken for the others.
    """
    known: dict[int, int] = {file_size(DEFAULT_SIZES.slots, DEFAULT_SIZES.items): DEFAULT_SLOTS}
    readable: list[tuple[str, int]] = []
    for path in index_paths(store.layout.index, store.files):
        try:
            with IndexReader(path, store.files) as reader:
                readable.append((path, reader.size))
                if not reader.is_empty:
                    known[reader.size] = reader.check(known.values()).slots
        except RmqStoreError as why:
            if not readable or readable[-1][0] != path:
                findings.append(Finding("brokenIndexFile", path, expected="an index file", found=str(why)))
    usual = max((size for _, size in readable), key=[size for _, size in readable].count, default=0)
    spans: list[IndexSpan] = []
    for path, size in readable:
        if size != usual:
            findings.append(Finding("wrongIndexFileSize", path, expected=f"{usual} bytes", found=f"{size} bytes"))
            continue
        with IndexReader(path, store.files) as reader:
            span = None if size not in known else _span(reader, known[size])
            if span is None and not (reader.is_empty and _is_empty(reader)):
                found = "header and items contradict each other"
                findings.append(Finding("brokenIndexFile", path, expected="items of the log's messages", found=found))
            elif span is not None:
                spans.append(span)
    return spans


def _is_empty(reader: IndexReader) -> bool:
    return reader.data_end <= HEADER.size or not any(reader.slot_bytes(0, _AT_ONCE))


def _span(reader: IndexReader, slots: int) -> IndexSpan | None:
    """What is in a file with so many slots; None where there are no items."""
    stop = _after_last(reader, slots)
    items = [items_in(reader.item_bytes(slots, number, 1)) for number in (1, stop - 1)]
    is_noise = any(reader.item_bytes(slots, 0, 1))  # item 0 is never used
    if stop <= 1 or is_noise or not all(len(each) for each in items):
        return None
    return IndexSpan(reader.path, slots, stop, *(int(each["position"][0]) for each in items))


def _after_last(reader: IndexReader, slots: int) -> int:
    """The number after that of the last item that stands there: items in use lie side by side."""
    count = max(1, reader.header.index_count)
    around = reader.item_bytes(slots, count - 1, 2)
    before, after = around[: ITEM.size], around[ITEM.size :]
    if (count == 1 or before.strip(b"\0")) and not after.strip(b"\0") and len(before) == ITEM.size:
        return count
    stop = (min(reader.size, reader.data_end + ITEM.size) - item_at(slots, 0)) // ITEM.size
    while stop > 1:
        first = max(1, stop - _AT_ONCE)
        data = reader.item_bytes(slots, first, stop - first).rstrip(b"\0")
        if data:
            return first - (-len(data) // ITEM.size)
        stop = first
    return 1


def beyond(store: OpenStore, spans: list[IndexSpan]) -> Iterator[Finding]:
    """Items of messages after the log's end."""
    for span in spans:
        if span.last >= store.end:
            with IndexReader(span.path, store.files) as reader:
                first = number_at(reader, span, store.end)
            yield Finding(
                "extraIndexItem",
                span.path,
                item_at(span.slots, first),
                span.last,
                expected=f"messages before the log's end at {store.end}",
                found=f"items from {first} on",
                count=span.stop - first,
            )


def check_index_file(files: Files, span: IndexSpan) -> Iterator[Finding]:
    """What is wrong with an index file, whatever the log says."""
    with IndexReader(span.path, files) as reader:
        used = yield from _chains(reader, span)
        yield from _header(reader.header, span, used)


def _header(header: Header, span: IndexSpan, used: int) -> Iterator[Finding]:
    if header.index_count != span.stop:
        yield Finding(
            "wrongIndexCount", span.path, 36, expected=f"indexCount {span.stop}", found=f"{header.index_count}"
        )
    if header.hash_slot_count not in (used, span.stop - 1):  # before 4.7.1 the number of items
        yield Finding(
            "wrongIndexCount", span.path, 32, expected=f"hashSlotCount {used}", found=f"{header.hash_slot_count}"
        )
    for name, at, expected, found in (
        ("beginPhyOffset", 16, span.first, header.begin_position),
        ("endPhyOffset", 24, span.last, header.end_position),
    ):
        if expected != found:
            yield Finding("wrongIndexHeader", span.path, at, expected, expected=f"{name} {expected}", found=f"{found}")


def _chains(reader: IndexReader, span: IndexSpan) -> Generator[Finding, None, int]:
    """Each slot must name the newest of its items, and each of these the next older one. Answers how many slots are in
    use."""
    newest = np.zeros(span.slots, np.int32)
    for first in range(1, span.stop, _AT_ONCE):
        items = items_in(reader.item_bytes(span.slots, first, min(_AT_ONCE, span.stop - first)))
        slots = items["key_hash"].astype(np.int64)
        is_hash = slots >= 0
        slots = np.where(is_hash, slots, 0) % span.slots
        expected = _previous(slots, newest, first)
        is_wrong = (items["previous"] != expected) | ~is_hash
        for at, stop in stretches(is_wrong):
            yield Finding(
                "brokenIndexChain",
                span.path,
                item_at(span.slots, first + at),
                int(items["position"][at]),
                expected=f"item {first + at} leads to item {expected[at]}",
                found=f"item {items['previous'][at]}, keyHash {items['key_hash'][at]}",
                count=stop - at,
            )
    for first in range(0, span.slots, _AT_ONCE):
        found = np.frombuffer(reader.slot_bytes(first, min(_AT_ONCE, span.slots - first)), ">i4")
        right = newest[first : first + len(found)]
        for at, stop in stretches(found != right):
            yield Finding(
                "brokenIndexChain",
                span.path,
                HEADER.size + (first + at) * SLOT.size,
                expected=f"slot {first + at} leads to item {right[at]}",
                found=f"item {found[at]}",
                count=stop - at,
            )
    return int(np.count_nonzero(newest))


def _previous(slots: _Longs, newest: npt.NDArray[np.int32], first: int) -> _Longs:
    """What each of some items in a row should lead to; `newest` is brought up to date with them.

    Args:
        slots: of each item.
        first: the number of the first one.
    """
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    numbers = order + first
    is_first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    before = np.where(is_first, newest[ordered], np.concatenate([[0], numbers[:-1]]))
    newest[ordered[np.concatenate([is_first[1:], [True]])]] = numbers[np.concatenate([is_first[1:], [True]])]
    previous = np.empty(len(slots), np.int64)
    previous[order] = before
    return previous
