"""Index files by themselves: do header, slots and items agree?"""

import contextlib
import time
from collections.abc import Generator, Iterator

import numpy as np
import numpy.typing as npt

from rmqstore_spark.errors import DamagedStoreError, RmqStoreError, StorageError
from rmqstore_spark.store.format.sizes import DEFAULT_SIZES, usual_size
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.indexfile import (
    DEFAULT_SLOTS,
    HEADER,
    ITEM,
    SLOT,
    Header,
    IndexReader,
    file_size,
    index_paths,
    item_at,
)
from rmqstore_spark.tables.check.index_items import IndexSpan, number_at
from rmqstore_spark.tables.check.moment import Moment
from rmqstore_spark.tables.check.problems import Finding
from rmqstore_spark.tables.check.queue_units import stretches

_AT_ONCE = 512 * 1024  # items or slots
_FILES_AT_ONCE = 100  # of which the pages that are looked at are kept meanwhile
_ATTEMPTS = 5  # to read a header that a broker is changing

_Ints = npt.NDArray[np.int32]


def spans_of(store: Snapshot, moment: Moment, findings: list[Finding]) -> list[IndexSpan]:
    """The index files that have items, in the order of their items. Files that cannot be used are added to `findings`.

    No file says how many slots it has: the number of a sound file is assumed for the others.
    """
    known: dict[int, int] = {file_size(DEFAULT_SIZES.slots, DEFAULT_SIZES.items): DEFAULT_SLOTS}
    readable: list[tuple[str, int]] = []
    directory = store.layout.index
    paths = list(index_paths(directory if directory and store.files.is_directory(directory) else None, store.files))
    _fetch(paths, store.files)
    for path in paths:
        try:
            with IndexReader(path, store.files) as reader:
                readable.append((path, reader.size))
            _learn_slots(path, store.files, moment, known)
        except StorageError:
            raise
        except RmqStoreError as why:
            if moment.is_gone(why, path, store.files):
                readable = [each for each in readable if each[0] != path]
            elif path == paths[-1] and moment.is_unsettled and not store.files.status(path).st_size:
                continue  # was just made
            elif store.files.exists(path) and (not readable or readable[-1][0] != path):
                findings.append(Finding("brokenIndexFile", path, expected="an index file", found=str(why)))
    usual = usual_size([(0, size)] for _, size in readable)
    spans: list[IndexSpan] = []
    begins: dict[str, int] = {}  # physical offsets
    for path, size in readable:
        if size != usual:
            findings.append(Finding("wrongIndexFileSize", path, expected=f"{usual} bytes", found=f"{size} bytes"))
            continue
        may_grow = moment.is_unsettled and path in paths[-2:]
        with IndexReader(path, store.files) as reader:
            span = None if size not in known else _span(reader, known[size], may_grow, path == paths[-1])
            counted = reader.header.index_count
            if span is not None:
                spans.append(span)
                begins[path] = _begin(reader, span)
            if may_grow and path == paths[-1]:
                if counted > (span.stop if span is not None else 1) or (span is None and not _is_empty(reader)):
                    findings.append(_unsettled(path, counted, span))
            elif span is None and not (reader.is_empty and (may_grow or _is_empty(reader))):
                found = "header and items contradict each other"
                findings.append(Finding("brokenIndexFile", path, expected="items of the log's messages", found=found))
    in_order = sorted(spans, key=lambda span: begins[span.path])
    findings += _misplaced(spans, in_order)
    return in_order


def _fetch(paths: list[str], files: Files) -> None:
    """Ask for what is looked at in index files, side by side, where a request takes long."""

    def look(path: str) -> None:
        with contextlib.suppress(RmqStoreError), IndexReader(path, files) as reader:
            if not reader.is_empty:
                reader.check(known)

    known = [DEFAULT_SLOTS]
    if files.is_slow:
        files.schedule.mapped(look, paths[:_FILES_AT_ONCE])


def _misplaced(spans: list[IndexSpan], in_order: list[IndexSpan]) -> Iterator[Finding]:
    """Files whose names are in another order than their items. A broker looks for a key in the last file first, and
    stops at a file that begins before the time that it is asked for (IndexService.queryOffset)."""
    for here, right in zip(spans, in_order, strict=True):
        if here is not right:
            expected, found = (f"the items from commitLogOffset {span.first} on" for span in (right, here))
            yield Finding("misplacedIndexFile", here.path, position=here.first, expected=expected, found=found)


def _begin(reader: IndexReader, span: IndexSpan) -> int:
    """The physical offset at which a file begins: the median of three values, as one item may be wrong."""
    items = reader.item_array(span.slots, 1, min(2, span.stop - 1))["position"].tolist()
    return int(sorted([reader.header.begin_position, *items, span.last][:3])[1])


def _unsettled(path: str, counted: int, span: IndexSpan | None) -> Finding:
    """The finding for a last file whose pages are of several moments: no fault where a broker was writing."""
    found = "header and items of different moments" if span is None else f"{span.stop - 1} that can be held to be whole"
    return Finding("unsettledIndexFile", path, expected=f"{max(0, counted - 1)} items", found=found)


def _learn_slots(path: str, files: Files, moment: Moment, known: dict[int, int]) -> None:
    """Learn how many slots files of this file's size have. A header that a broker is changing may contradict itself."""
    for attempt in range(_ATTEMPTS if moment.is_unsettled else 1):
        time.sleep(0.001 * attempt)
        with IndexReader(path, files) as reader, contextlib.suppress(DamagedStoreError):
            if not reader.is_empty:
                known[reader.size] = reader.check(known.values(), may_read_all=True).slots
            return


def _is_empty(reader: IndexReader) -> bool:
    return reader.data_end <= HEADER.size or not reader.slot_array(0, _AT_ONCE).any()


def _span(reader: IndexReader, slots: int, may_grow: bool, is_last: bool) -> IndexSpan | None:
    """The items of a file with this many slots; None if there are no items.

    Args:
        may_grow: whether a broker may have been adding items. A broker counts an item in the header when the item is
            complete; but in a copy each page of the last file may be of another moment.
        is_last: whether the file is the last one.
    """
    counted = reader.header.index_count
    if may_grow and is_last:
        stop, is_growing = _whole(reader, slots, counted), True
    else:
        stop = _after_last(reader, slots)
        is_growing = may_grow and 1 < counted < stop
        stop = counted if is_growing else stop
    items = [reader.item_array(slots, number, 1) for number in (1, stop - 1)]
    is_noise = reader.item_array(slots, 0, 1).view(np.uint8).any()  # item 0 is never used
    if stop <= 1 or is_noise or not all(len(each) for each in items):
        return None
    first, last = (int(each["position"][0]) for each in items)
    return IndexSpan(reader.path, slots, stop, first, last, is_growing)


def _whole(reader: IndexReader, slots: int, counted: int) -> int:
    """The number of the first counted item that may not be whole, or `counted`; 1 where none is.

    A page that is older than the header ends in zeros, and so may the part of an item in that page. An item whose
    beginning is missing has no keyHash; an item whose end is missing does not lead to another item.
    """
    stop = max(1, min(counted, (reader.size - item_at(slots, 0)) // ITEM.size))
    for first in range(1, stop, _AT_ONCE):
        items = reader.item_array(slots, first, min(_AT_ONCE, stop - first))
        missing = np.flatnonzero(items["key_hash"] == 0)
        if len(missing) or len(items) < min(_AT_ONCE, stop - first):
            stop = first + (int(missing[0]) if len(missing) else len(items))
            break
    after = reader.item_array(slots, stop, 1)
    if (
        stop > 1
        and len(after)
        and not after["key_hash"][0]
        and not reader.item_array(slots, stop - 1, 1)["previous"][0]
    ):
        stop -= 1
    return stop


def _after_last(reader: IndexReader, slots: int) -> int:
    """The number after the last item in use: items in use lie side by side."""
    count = max(1, min(reader.header.index_count, (reader.size - item_at(slots, 0)) // ITEM.size))
    around = _in_use(reader, slots, count - 1, 2)
    if (count == 1 or around[0]) and not around[1:].any():
        return count
    stop = (min(reader.size, reader.data_end + ITEM.size) - item_at(slots, 0)) // ITEM.size
    while stop > 1:
        first = max(1, stop - _AT_ONCE)
        used = np.flatnonzero(_in_use(reader, slots, first, stop - first))
        if len(used):
            return first + int(used[-1]) + 1
        stop = first
    return 1


def _in_use(reader: IndexReader, slots: int, first: int, count: int) -> npt.NDArray[np.bool_]:
    """True for the items that are not all zeros."""
    items = reader.item_array(slots, first, count)
    used: npt.NDArray[np.bool_] = items.view(np.uint8).reshape(len(items), ITEM.size).any(axis=1)
    return used


def beyond(store: Snapshot, spans: list[IndexSpan], moment: Moment) -> Iterator[Finding]:
    """Items of messages after the log's end, unless a broker may have added them since."""
    if moment.is_unsettled:
        return
    for span in spans:
        if span.last >= store.end:
            with span.opened(store.files) as reader:
                first = number_at(store.files, reader, span, store.end)
            yield Finding(
                "extraIndexItem",
                span.path,
                item_at(span.slots, first),
                span.last,
                expected=f"messages before the log's end at {store.end}",
                found=f"items from {first} on",
                count=span.stop - first,
            )


def check_index_file(files: Files, span: IndexSpan, moment: Moment) -> Iterator[Finding]:
    """Problems of an index file that show without the log."""
    try:
        with span.opened(files) as reader:
            used = yield from _chains(reader, span)
            if not span.is_growing:
                yield from _header(reader.header, span, used)
    except RmqStoreError as why:
        if not moment.is_gone(why, span.path, files):
            raise


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
    """Check that each slot names its newest item, and each item the next older one. Returns the number of slots in
    use."""
    newest = np.zeros(span.slots, np.int32)
    reader.expect(item_at(span.slots, 1), item_at(span.slots, span.stop))
    for first in range(1, span.stop, _AT_ONCE):
        items = reader.item_array(span.slots, first, min(_AT_ONCE, span.stop - first))
        hashes = items["key_hash"].astype(np.int32)
        expected = _previous(np.maximum(hashes, 0) % np.int32(span.slots), newest, first)
        for at, stop in stretches((items["previous"] != expected) | (hashes < 0)):
            yield Finding(
                "brokenIndexChain",
                span.path,
                item_at(span.slots, first + at),
                int(items["position"][at]),
                expected=f"item {first + at} leads to item {expected[at]}",
                found=f"item {items['previous'][at]}, keyHash {items['key_hash'][at]}",
                count=stop - at,
            )
    reader.expect(HEADER.size, HEADER.size + span.slots * SLOT.size)
    for first in range(0, span.slots, _AT_ONCE):
        found = reader.slot_array(first, min(_AT_ONCE, span.slots - first))
        right = newest[first : first + len(found)]
        is_wrong = found != right
        if span.is_growing:
            is_wrong &= ~_of_another_moment(found.astype(np.int32), right, first, reader, span)
        for at, stop in stretches(is_wrong):
            yield Finding(
                "brokenIndexChain",
                span.path,
                HEADER.size + (first + at) * SLOT.size,
                expected=f"slot {first + at} leads to item {right[at]}",
                found=f"item {found[at]}",
                count=stop - at,
            )
    return int(np.count_nonzero(newest))


def _of_another_moment(
    found: _Ints, right: _Ints, first: int, reader: IndexReader, span: IndexSpan
) -> npt.NDArray[np.bool_]:
    """True for slots that lead to their newest item of an earlier or later moment: pages are of different moments.

    Args:
        found, right: the items to which the slots from number `first` on lead, and should lead.
    """
    so: npt.NDArray[np.bool_] = (found == 0) | (
        (found >= span.stop) & (found < (reader.size - item_at(span.slots, 0)) // ITEM.size)
    )
    for at in np.flatnonzero(~so & (found != right) & (found > 0)).tolist():
        (key_hash,) = reader.item_array(span.slots, int(found[at]), 1)["key_hash"].tolist() or (-1,)
        so[at] = key_hash >= 0 and key_hash % span.slots == first + at
    return so


def _previous(slots: _Ints, newest: _Ints, first: int) -> _Ints:
    """The items to which some consecutive items should lead; `newest` is updated with these items.

    Args:
        slots: the slot of each item.
        newest: the newest item of each slot before them.
        first: the number of the first item.
    """
    previous = newest[slots]
    numbers = np.arange(first, first + len(slots), dtype=np.int32)
    newest[slots] = numbers  # of several items in one slot the last one counts
    shared = np.flatnonzero(_in_shared_slots(slots, newest, numbers))
    if len(shared):
        order = shared[np.argsort(slots[shared], kind="stable")]
        is_again = slots[order[1:]] == slots[order[:-1]]
        previous[order[1:][is_again]] = numbers[order[:-1][is_again]]
    return previous


def _in_shared_slots(slots: _Ints, newest: _Ints, numbers: _Ints) -> npt.NDArray[np.bool_]:
    """The indexes of items that share a slot with another of these items: few, as slots are many."""
    is_older = newest[slots] != numbers
    has_older = np.zeros(len(newest), np.bool_)
    has_older[slots[is_older]] = True
    return has_older[slots]
