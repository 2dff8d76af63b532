"""IndexFile: a hash table from keys to physical offsets, in files that are filled one after the other.

    0  i64 beginTimestamp     8  i64 endTimestamp     store times (ms) of the first and last item's message
   16  i64 beginPhyOffset    24  i64 endPhyOffset     their physical offsets
   32  i32 hashSlotCount     36  i32 indexCount       slots in use; one more than there are items
   40  slots of i32: the number of the newest item of a chain, 0: none
       items of 20 bytes, numbered from 0; item 0 is never used
          0  i32 keyHash   4  i64 physical offset   12  i32 seconds since beginTimestamp   16  i32 next older item
A message has an item for its UNIQ_KEY and for each word of its KEYS (in 5.5.0 for its TAGS as well, which this package
does not use); after a crash the last message can have its items twice. Chains share slots and keys share hashes, so
every message found must be looked at. The seconds are exact from the second item on. The file does not say how many
slots and items it can hold (maxHashSlotNum, maxIndexNum).
Source: org.apache.rocketmq.store.index.IndexFile, IndexHeader, IndexService.
"""

import bisect
import itertools
import os
import re
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from native_io import follow_chains, java_hash
from rmqstore_spark.errors import DamagedStoreError, RmqStoreError, StorageError
from rmqstore_spark.store.format.sizes import DEFAULT_SIZES
from rmqstore_spark.store.io.files import Files, OpenFile, allocated, cannot_read

HEADER = struct.Struct(">qqqqii")
SLOT = struct.Struct(">i")
ITEM = struct.Struct(">iqii")
FILE_NAME = re.compile(r"[0-9]{17}")
DEFAULT_SLOTS = DEFAULT_SIZES.slots  # tried first, as no file says how many slots it has

_READ_AHEAD = 64 * 1024
_PAGE = 4096  # bytes: what a disk has of a file after a loss of power is so many at a time, each as old as it may be
_NEAR = 4096  # bytes between two items of a chain that are cheaper to read than to ask for twice
_MOST_PROBES = 8192
_ITEMS_AT_ONCE = 64 * 1024
_MOST_TRIED = 64  # numbers of slots that bytes in a file suggest
_SEARCHED = 4 * 1024 * 1024  # bytes at a time
_FEW = 16  # up to so many hashes are looked up one by one, more of them all at once
_STEPS = 5  # steps of a look-up, about: a slot, and the chain in a full file
_READ_WHOLE = 64 * 1024 * 1024  # bytes: larger files are not held in memory

Positions = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.int32]


class Header(NamedTuple):
    """An index file's first 40 bytes."""

    begin_timestamp: int
    end_timestamp: int
    begin_position: int
    end_position: int
    hash_slot_count: int
    index_count: int


class Item(NamedTuple):
    """An item: keyHash, physical offset, seconds since beginTimestamp, number of the next older item of its chain."""

    key_hash: int
    position: int
    seconds: int
    previous: int


_ITEM_FIELDS = np.dtype([("key_hash", ">i4"), ("position", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_UNUSED = Item(0, 0, 0, 0)


class _BrokenError(Exception):
    """A chain contradicts itself."""


def key_hash(topic: str, key: str) -> int:
    """The keyHash of a message's UNIQ_KEY or of a word of its KEYS (IndexFile.indexKeyHashMethod)."""
    positive = abs(java_hash(f"{topic}#{key}"))
    return 0 if positive >> 31 else positive  # Java's abs leaves Integer.MIN_VALUE negative


@dataclass(frozen=True)
class IndexFile:
    """One index file with items in it, whose header, slots and items do not contradict each other at its ends.

    Attributes:
        path: the file.
        header: as it was when the file was opened; what a broker adds later is not seen.
        slots, items: how many slots and items the file can hold.
        newest: the file's last item.
        is_sure: whether `newest` was seen to lead its chain, as it does with the right number of slots. If not, a
            look-up checks.
    """

    path: str
    header: Header
    slots: int
    items: int
    newest: Item
    is_sure: bool = True

    @classmethod
    def open(cls, path: str, files: Files, slots: Iterable[int] = (), may_read_all: bool = False) -> "IndexFile | None":
        """Look at an index file; arguments and errors are those of IndexReader and its check()."""
        with IndexReader(path, files) as reader:
            return None if reader.is_empty else reader.check(slots, may_read_all)


class IndexReader:
    """One index file, open. A context manager.

    Large because look-ups, and what shows that a file has lost items, share the header and the slots as they were when
    the file was opened.

    Attributes:
        path: the file.
        header: as it was when the file was opened; what a broker adds later is not seen.
        size: bytes of the file when it was opened.

    Args:
        files: how to reach files, and where requests and bytes are counted.
        header: the file's header, if read before.
        may_have_old_pages: whether the broker may have ended with a loss of power (Snapshot.may_have_old_pages).

    Raises:
        RmqStoreError: the file cannot be read, or has no header.
    """

    def __init__(self, path: str, files: Files, header: Header | None = None, may_have_old_pages: bool = False) -> None:
        self.path = path
        self._files = files
        self._may_have_old_pages = may_have_old_pages
        self._file = files.file(path)
        try:
            self.size = self._file.size
            data = b"" if header else self._file.read(0, HEADER.size)
            if header is None and len(data) < HEADER.size:
                raise DamagedStoreError(
                    f"{path}: expected the {HEADER.size} bytes of an index header, found {len(data)}"
                )
            self.header = header or Header(*HEADER.unpack(data))
        except RmqStoreError:
            self._file.close()
            raise

    def __enter__(self) -> "IndexReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    @property
    def is_empty(self) -> bool:
        """Is there no item in the file yet?"""
        return self.header.index_count <= 1

    def check(self, slots: Iterable[int] = (), may_read_all: bool = False) -> IndexFile:
        """The file, if it has items and agrees with its header.

        Args:
            slots: numbers of slots to try before the likely ones, and before the items themselves are searched for
                their beginning.
            may_read_all: whether all of the file may be read where items are left over after those that count. A key
                look-up does better without such a file.

        Raises:
            RmqStoreError: the file cannot be read, or contradicts itself.
        """
        header = self.header
        for tried in dict.fromkeys([*slots, *likely_slots(self.size)]):
            if (found := self._with_slots(tried)) is not None:
                return found
        if (found := self._with_slots(_find_slots(self._file, self.size, header))) is not None:
            return found
        suggested = _slots_of_ends(self._file, self.size, header) if may_read_all else ()
        for tried in itertools.islice(suggested, _MOST_TRIED):
            if (found := self._with_slots(tried)) is not None:
                return found
        raise DamagedStoreError(
            f"{self.path}: expected the first and the last of {header.index_count - 1} items to be of the messages "
            f"at {header.begin_position} and {header.end_position} as the header says, found no place for them"
        )

    def _with_slots(self, slots: int) -> IndexFile | None:
        """The file, if it agrees with its header when it has so many slots."""
        if self._files.is_slow:  # both ends of the items, with one round of requests
            ends = item_at(slots, 0), item_at(slots, self.header.index_count - 1)
            self._files.prefetch((self.path, at) for at in ends)
        newest = _last_item(self._file, self.header, slots)
        if newest is None or not _begins(self._file, self.header, slots):
            return None
        found = IndexFile(self.path, self.header, slots, _most_items(self.size, slots), newest)
        return found if _leads(self._file, found) else None

    def check_next(self, slots: int) -> IndexFile | None:
        """check() in one request, for a file that begins where another one ends, according to the log.

        The header's first item then needs no check against the file's first item: no message can be missed between the
        two files.

        Args:
            slots: the number of slots found in another file of the same size.

        Returns:
            The file, with `is_sure` false; None where the file is not as expected, so that check() has to decide.
        """
        newest = _last_item(self._file, self.header, slots)
        items = _most_items(self.size, slots)
        return None if newest is None else IndexFile(self.path, self.header, slots, items, newest, is_sure=False)

    def item(self, index: IndexFile, number: int) -> Item | None:
        """An item by its number; None where none can be read."""
        data = self._file.read(item_at(index.slots, number), ITEM.size)
        return Item(*ITEM.unpack(data)) if len(data) == ITEM.size else None

    def item_array(self, slots: int, first: int, count: int) -> Any:
        """The items with the numbers [first, first + count) as they stand in the file, fewer where the file ends: an
        array with the fields of Item.

        Raises:
            StorageError: the file was cut since it was opened.
        """
        return self._array(item_at(slots, first), count, _ITEM_FIELDS)

    def expect(self, start: int, stop: int) -> None:
        """Arrays of the file's bytes [start, stop) are read next, in their order."""
        self._file.expect(start, stop)

    def slot_array(self, first: int, count: int) -> Any:
        """The slots with the numbers [first, first + count), fewer where the file ends: an array of item numbers."""
        return self._array(HEADER.size + first * SLOT.size, count, np.dtype(">i4"))

    def _array(self, at: int, count: int, kind: "np.dtype[Any]") -> Any:
        nbytes = max(0, min(count * kind.itemsize, self.size - at))  # a damaged header may count billions of items
        found = np.frombuffer(self._file.load(at, nbytes, _memory), np.uint8)
        size = len(found)
        if size < nbytes:
            raise StorageError(
                f"{self.path}: expected {self.size:,} bytes, as when it was opened, found {at + size:,}: the file was "
                "cut meanwhile; try again"
            )
        return found[: size // kind.itemsize * kind.itemsize].view(kind)

    @property
    def data_end(self) -> int:
        """The position in the file after the last data; only a hole follows."""
        return self._file.data_end()

    def lookup(self, index: IndexFile, hashes: Hashes) -> Positions | None:
        """The physical offsets of the messages that have a key with one of these hashes.

        A few hashes are looked up one by one. Many hashes need a good part of the slots and items, so the file is read
        as a whole, unless it is large.

        Args:
            hashes: by_slot().

        Returns:
            Physical offsets, each once, ascending; None when the file cannot be read, a chain in it is broken, or its
            slots are not where they were expected. None means that nothing in the file can be believed.
        """
        try:
            if len(hashes) <= max(_FEW, self._files.prices.concurrency) or not self._may_read_all_at_once(
                index, hashes
            ):
                items = list(self._one_by_one(index, np.unique(hashes % index.slots).tolist()))
                wanted = set(hashes.tolist())
                found = np.array([item.position for item in items if item.key_hash in wanted], np.int64)
            else:
                items = []
                found = self._all_at_once(index, hashes)
            # An item in the chain of its slot proves the number of slots as well as the newest item would.
            if not (index.is_sure or items or len(found) or _leads(self._file, index)):
                return None
            if self._may_have_old_pages:
                found = np.concatenate([found, *self._behind_slots(index, hashes)])
        except (RmqStoreError, _BrokenError, struct.error):  # struct.error: the file has become shorter
            return None
        return np.unique(found)

    def _behind_slots(self, index: IndexFile, hashes: Hashes) -> Iterator[Positions]:
        """The physical offsets of these hashes' items that slots may not know, in a file that is not full.

        A broker has files flushed once they are full. Before, a loss of power leaves of each page what it was at some
        time: slots may be older than header and items. What was put in after the newest item that a page of slots knows
        is looked at by itself: some thousand items where hashes are spread evenly, far more where they are not.

        Raises:
            _BrokenError: items are lost.
        """
        count = self.header.index_count
        if count >= index.items or not len(hashes):
            return
        number = self._newest_known(index, hashes)
        while (number := number + 1) < count:
            items = self.item_array(index.slots, number, min(count - number, _ITEMS_AT_ONCE))
            positions = items["position"].astype(np.int64)
            is_there = (positions >= self.header.begin_position) & (positions <= self.header.end_position)
            if not len(items) or not (is_there & (items != np.zeros((), _ITEM_FIELDS))).all():
                raise _BrokenError
            yield positions[np.isin(items["key_hash"], hashes)]
            number += len(items) - 1

    def _newest_known(self, index: IndexFile, hashes: Hashes) -> int:
        """The number of the newest item that each page with slots of these hashes knows, or knows a newer one."""
        pages = np.unique((HEADER.size + np.unique(hashes % index.slots).astype(np.int64) * SLOT.size) // _PAGE)
        parts = np.split(pages, np.flatnonzero(np.diff(pages) * _PAGE > self._files.prices.gap) + 1)
        spans = [(max(int(part[0]) * _PAGE, HEADER.size), (int(part[-1]) + 1) * _PAGE) for part in parts]
        self._files.prefetch((self.path, start) for start, _ in spans)
        known = self.header.index_count - 1
        for start, stop in spans:
            first = (start - HEADER.size) // SLOT.size
            slots = self.slot_array(first, min((stop - start) // SLOT.size, index.slots - first))
            begins = np.maximum(np.arange(start // _PAGE, stop // _PAGE) * _PAGE - start, 0) // SLOT.size
            newest = np.maximum.reduceat(np.where(slots <= known, slots, 0), begins)
            known = min(known, int(newest.min()))
        return known

    def _one_by_one(self, index: IndexFile, slots: list[int]) -> Iterator[Item]:
        """All items of some slots' chains. Several chains are followed in step: where a request takes long, the next
        items of all chains are requested at once."""
        at_once = max(_FEW, self._files.prices.concurrency)
        for first in range(0, len(slots), at_once):
            some = slots[first : first + at_once]
            self._files.prefetch((self.path, HEADER.size + slot * SLOT.size) for slot in some)
            chains = [_Chain(self._file, index, slot) for slot in some]
            while chains := [chain for chain in chains if chain.number]:
                self._files.prefetch((self.path, item_at(index.slots, chain.number)) for chain in chains)
                yield from filter(None, [chain.next() for chain in chains])

    def _may_read_all_at_once(self, index: IndexFile, hashes: Hashes) -> bool:
        """Can the kernel read at random in the file, or can its used part be held in memory?"""
        return self._file.descriptor is not None or self._is_read_whole(index, hashes)

    def _is_read_whole(self, index: IndexFile, hashes: Hashes) -> bool:
        size = item_at(index.slots, self.header.index_count)
        return size <= min(_READ_WHOLE, _STEPS * len(hashes) * self._files.prices.gap)

    def _all_at_once(self, index: IndexFile, hashes: Hashes) -> Positions:
        """Look all hashes up in the kernel, as _Chain does, with all its checks (native_io/chains.h)."""
        size = item_at(index.slots, self.header.index_count) if self._is_read_whole(index, hashes) else 0
        start, fd = np.empty(size, np.uint8).data, self._file.descriptor
        try:
            found, nbytes, requests = follow_chains(
                -1 if fd is None else fd,
                start[: self._file.read_into(start, 0)],
                hashes,
                slots=index.slots,
                items=min(index.items, 1 << 31),
                count=self.header.index_count,
                begin_offset=self.header.begin_position,
                end_offset=self.header.end_position,
            )
        except OSError as why:
            raise cannot_read(self.path, why) from None
        self._files.count(requests, nbytes)
        if found is None:
            raise _BrokenError
        return found


def by_slot(hashes: Hashes, slots: int) -> Hashes:
    """The hashes in the order of their slots."""
    return hashes[np.argsort(hashes % slots)]


def look_up_price(size: int, hashes: int, files: Files) -> int:
    """The price in bytes of looking some hashes up in a file of so many bytes (store/io/files.Prices)."""
    prices = files.prices
    return min(2 * prices.request * hashes, size + prices.request)


def item_at(slots: int, number: int) -> int:
    """The position of an item in a file (bytes)."""
    return HEADER.size + slots * SLOT.size + number * ITEM.size


def file_size(slots: int, items: int) -> int:
    """The size in bytes of a file."""
    return item_at(slots, items)


def likely_slots(size: int) -> list[int]:
    """The numbers of slots that a file of so many bytes is likely to have: the one that gives as many items per slot as
    by default, and the default number itself."""
    items_of_slot = DEFAULT_SIZES.items // DEFAULT_SIZES.slots
    slots, rest = divmod(size - HEADER.size, SLOT.size + items_of_slot * ITEM.size)
    return [slots, DEFAULT_SLOTS] if slots > 0 and not rest else [DEFAULT_SLOTS]


def _most_items(size: int, slots: int) -> int:
    """How many items fit into a file of so many bytes."""
    return (size - item_at(slots, 0)) // ITEM.size


class _Items:
    """The items of a file, for a walk along a chain, which leads to smaller and smaller numbers.

    So the read-ahead goes towards smaller numbers, and starts only where the chain's items turn out to lie close
    together.
    """

    def __init__(self, file: OpenFile, slots: int) -> None:
        self._file = file
        self._slots = slots
        self._first = 1 << 31
        self._count = 1
        self._data = b""

    def __getitem__(self, number: int) -> Item:
        if number < self._first:
            near = (self._first - number) * ITEM.size <= _NEAR
            self._count = min(2 * self._count, _READ_AHEAD // ITEM.size) if near else 1
            self._first = max(number - self._count + 1, 1)
            size = (number - self._first + 1) * ITEM.size
            self._data = self._file.read(item_at(self._slots, self._first), size)
        return Item(*ITEM.unpack_from(self._data, (number - self._first) * ITEM.size))


class _Chain:
    """The items of a slot's chain that the header counts, newest first.

    Attributes:
        number: the number of the next item; 0 at the end.

    Args:
        newest: the file's last item, if already read.
    """

    def __init__(self, file: OpenFile, index: IndexFile, slot: int, newest: Item | None = None) -> None:
        self._index = index
        self._slot = slot
        self._newest = newest
        self._items = _Items(file, index.slots)
        self._before, self._latest = index.items, (1 << 63) - 1
        (self.number,) = SLOT.unpack(file.read(HEADER.size + slot * SLOT.size, SLOT.size))

    def next(self) -> Item | None:
        """The next item; None where a broker has just added it.

        Raises:
            _BrokenError: the chain contradicts itself.
            struct.error: the file has become shorter.
        """
        header, number = self._index.header, self.number
        if not 0 < number < self._before:
            raise _BrokenError
        is_newest = self._newest is not None and number == header.index_count - 1
        item = self._newest if self._newest is not None and is_newest else self._items[number]
        is_known = number < header.index_count
        earliest = header.begin_position if is_known else header.end_position
        if is_known:
            self._latest = min(self._latest, header.end_position)
        is_there = earliest <= item.position <= self._latest and item.key_hash >= 0
        if not is_there or item.key_hash % self._index.slots != self._slot:
            raise _BrokenError
        if item == _UNUSED:  # a wiped item, which in slot 0 of the first file would look like the end of a chain
            raise _BrokenError
        self.number, self._before, self._latest = item.previous, number, item.position
        return item if is_known else None


def _memory(size: int) -> memoryview:
    return np.empty(size, np.uint8).data


def _last_item(file: OpenFile, header: Header, slots: int) -> Item | None:
    """The last item, if it is of the message that the header names; else None."""
    if not 0 < slots < 1 << 31 or header.begin_position < 0 or item_at(slots, header.index_count) > file.size:
        return None
    try:
        newest = Item(*ITEM.unpack(file.read(item_at(slots, header.index_count - 1), ITEM.size)))
    except (ValueError, struct.error):  # the file has become shorter
        return None
    return newest if newest.position == header.end_position else None


def _begins(file: OpenFile, header: Header, slots: int) -> bool:
    """Do the first two items agree with the header?"""
    data = file.read(item_at(slots, 0), 2 * ITEM.size)
    if len(data) < 2 * ITEM.size:
        return False
    unused, oldest = (Item(*fields) for fields in ITEM.iter_unpack(data))
    return unused == _UNUSED and (oldest.position, oldest.previous) == (header.begin_position, 0)


def _leads(file: OpenFile, index: IndexFile) -> bool:
    """Is the newest item the head of its chain? Noise and a wrong number of slots fail this check."""
    try:
        chain = _Chain(file, index, index.newest.key_hash % index.slots, index.newest)
        while chain.number >= index.header.index_count:  # a broker has just added it
            chain.next()
        return chain.number == index.header.index_count - 1 and chain.next() == index.newest
    except (_BrokenError, ValueError, struct.error):  # ValueError, struct.error: the file has become shorter
        return False


def _find_slots(file: OpenFile, size: int, header: Header) -> int:
    """The number of slots that puts the last item in its actual place; an arbitrary number when none can be found.

    The items in use lie side by side, and only zeros follow. So a step as long as all the items in use cannot miss
    them: such steps from the file's end towards its beginning find one item, and a binary search finds the last one.
    """
    used = header.index_count - 1
    first = HEADER.size + (size - HEADER.size) % ITEM.size  # where an item would be if there were no slots

    def in_use(number: int) -> bool:
        item = Item(*ITEM.unpack(file.read(first + number * ITEM.size, ITEM.size)))
        return item != _UNUSED and item.position <= header.end_position  # later items were just added by a broker

    try:
        # Holes at the end are passed without reading: a file that has just been begun is nearly all hole.
        stop = -(-(file.data_end() - first) // ITEM.size)
        for probe in range(stop - 1, max(-1, stop - 1 - _MOST_PROBES * used), -used):
            if in_use(probe):
                after = range(probe + 1, min(probe + used, stop))
                last = probe + bisect.bisect_left(after, True, key=lambda number: not in_use(number))
                return (first + (last - used) * ITEM.size - HEADER.size) // SLOT.size
    except struct.error:  # the file has become shorter
        pass
    return 0


def _slots_of_ends(file: OpenFile, size: int, header: Header) -> Iterator[int]:
    """Numbers of slots that put the header's last item at bytes equal to its physical offset. All of the file is read:
    in a file with left-over items after the last one, no single part shows the number.
    """
    used = header.index_count * ITEM.size
    wanted = np.frombuffer(header.end_position.to_bytes(8, "big", signed=True), ">u4")
    for base in range(HEADER.size, size, _SEARCHED):
        data = file.read(base, _SEARCHED + 3 * SLOT.size)
        words = np.frombuffer(data, ">u4", len(data) // SLOT.size)
        for index in np.flatnonzero((words[1:-1] == wanted[0]) & (words[2:] == wanted[1])).tolist():
            end = base + index * SLOT.size + ITEM.size  # the end of an item with its position there
            slots, rest = divmod(end - used - HEADER.size, SLOT.size)
            if slots > 0 and not rest and not (size - item_at(slots, 0)) % ITEM.size:
                yield slots


def index_paths(directory: str | None, files: Files) -> dict[str, int]:
    """The entries that can be index files in a store, oldest first, each with the bytes that it takes on the disk.

    Args:
        directory: `index/`, or None where a store has none.
        files: how to reach files.

    Raises:
        RmqStoreError: the directory cannot be listed.
    """
    if directory is None:
        return {}
    try:
        names = sorted(name for name in files.names(directory) if name.isascii() and name.isdigit())
    except OSError as why:
        raise cannot_read(directory, why) from None
    found = {}
    for name in names:
        path = os.path.join(directory, name)
        try:
            status = files.status(path)
        except OSError:
            found[path] = 0  # opening the file gives the error
            continue
        if stat.S_ISREG(status.st_mode):
            found[path] = min(status.st_size, allocated(status))
    return found


def file_names(directory: str, files: Files) -> list[str]:
    """The names of the index files in a directory, oldest first.

    Raises:
        RmqStoreError: the directory cannot be listed.
    """
    try:
        return sorted(filter(FILE_NAME.fullmatch, files.names(directory)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as why:
        raise cannot_read(directory, why) from None


def read_header(path: str, files: Files) -> Header:
    """The header of a file.

    Raises:
        DamagedStoreError: the file is too short to have one.
    """
    with files.file(path) as file:
        data = file.read(0, HEADER.size)
    if len(data) < HEADER.size:
        raise DamagedStoreError(f"{path}: expected an index file, found {len(data)} bytes; delete it")
    return Header(*HEADER.unpack(data))
