"""IndexFile: from keys to messages (org.apache.rocketmq.store.index.IndexFile, IndexHeader, IndexService).

    0  i64 beginTimestamp    8  i64 endTimestamp    store time of the first and last entry
   16  i64 beginPhyOffset   24  i64 endPhyOffset
   32  i32 hashSlotCount    36  i32 indexCount      slots in use; entries and one
   40  i32 slot[slots]                              number of a chain's newest entry, 0: none
       entry[items]: i32 keyHash, i64 physicalOffset, i32 seconds since beginTimestamp, i32 entry before in its chain
Entry 0 is never used, and a file is full when indexCount is `items`. Its name is the local time of its creation.
"""

import contextlib
import mmap
import os
import re
import struct
import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native_io import java_hash, put_index
from rmqstore_spark.errors import DamagedStoreError, OptionError, RmqStoreError
from rmqstore_spark.store.files import Counters, ReadFile
from rmqstore_spark.store.write import disk

_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")
_SLOT = struct.Struct(">i")
_ENTRY_TYPE = np.dtype([("key_hash", ">i4"), ("position", ">i8"), ("seconds", ">i4"), ("before", ">i4")])
_NAME = re.compile(r"[0-9]{17}")
_LOOK_SIZE = 1024 * 1024


class Header(NamedTuple):
    """What a file says of itself."""

    begin_timestamp: int
    end_timestamp: int
    begin_position: int
    end_position: int
    hash_slot_count: int
    index_count: int


def file_size(slots: int, items: int) -> int:
    """Bytes of a file."""
    return _HEADER.size + _SLOT.size * slots + _ENTRY.size * items


def names(directory: str) -> list[str]:
    """The index files in a directory, oldest first."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(name for name in os.listdir(directory) if _NAME.fullmatch(name))
    return []


def read_header(path: str) -> Header:
    """The header of a file.

    Raises:
        DamagedStoreError: the file is too short to have one.
    """
    with ReadFile(path, Counters()) as file:
        data = file.read(0, _HEADER.size)
    if len(data) < _HEADER.size:
        raise DamagedStoreError(f"{path}: expected an index file, found {len(data)} bytes; delete it")
    return Header(*_HEADER.unpack(data))


def geometry(directory: str, slots: int | None, items: int | None) -> tuple[int | None, int | None]:
    """How many slots and items a store's index files have; (None, None) where there is no file.

    A file does not say, but only with the right numbers its slots and entries make sense.

    Args:
        slots: what the user says, or None.
        items: the same.

    Raises:
        DamagedStoreError: the files are of different sizes, or of none that fits.
        OptionError: they are without entries, and the user does not say.
    """
    sizes = {name: os.stat(os.path.join(directory, name)).st_size for name in names(directory)}
    usual = next(iter(sizes.values()), 0)
    for name, size in sizes.items():
        if size != usual:
            raise DamagedStoreError(
                f"{os.path.join(directory, name)}: expected an index file of {usual} bytes like its neighbours, "
                f"found {size}; call rmqstore_spark.rebuild(store)"
            )
    for name in sizes:
        path = os.path.join(directory, name)
        header = read_header(path)
        if header.index_count > 1:
            found = _slots_of(path, usual, header, slots)
            if found is None:
                raise DamagedStoreError(f"{path}: its entries make no sense; call rmqstore_spark.rebuild(store)")
            return found, _items(usual, found)
    if sizes and (slots is None or items is None or file_size(slots, items) != usual):
        raise OptionError(
            f"{directory}: index files of {usual} bytes without an entry: "
            "give options 'maxHashSlotNum' and 'maxIndexNum' as in broker.conf, or delete them"
        )
    return (slots, items) if sizes else (None, None)


def _items(size: int, slots: int) -> int:
    """How many entries a file of this size has beside its slots; 0 where that comes out wrong."""
    items, rest = divmod(size - _HEADER.size - _SLOT.size * slots, _ENTRY.size)
    return items if rest == 0 and slots > 0 and items > 1 else 0


def _slots_of(path: str, size: int, header: Header, told: int | None) -> int | None:
    usual_ratio = (size - _HEADER.size) // (_SLOT.size + 4 * _ENTRY.size)  # RocketMQ's own numbers are 1 to 4
    with ReadFile(path, Counters()) as file:
        for slots in filter(None, (told, usual_ratio)):
            if _make_sense(file, size, header, slots):
                return slots
        # The place of the first entry depends on the number of slots, and the header knows what stands in it.
        wanted = struct.pack(">q", header.begin_position)
        for start, stop in file.extents(_HEADER.size, size):
            for base in range(start, stop, _LOOK_SIZE):
                data = file.read(base, min(_LOOK_SIZE, size - base) + len(wanted) - 1)
                hit = data.find(wanted)
                while hit >= 0:
                    slots, rest = divmod(base + hit - 4 - _ENTRY.size - _HEADER.size, _SLOT.size)
                    if rest == 0 and _make_sense(file, size, header, slots):
                        return slots
                    hit = data.find(wanted, hit + 1)
    return None


def _make_sense(file: ReadFile, size: int, header: Header, slots: int) -> bool:
    """Do the slots of a file lead to entries that belong there, if there are so many?"""
    if header.index_count > _items(size, slots):
        return False
    at_entries = _HEADER.size + _SLOT.size * slots
    key_hash, position, _, before = _ENTRY.unpack(file.read(at_entries + _ENTRY.size, _ENTRY.size))
    if key_hash < 0 or before != 0 or position != header.begin_position:
        return False
    if file.read(_HEADER.size + _SLOT.size * (key_hash % slots), _SLOT.size) == bytes(_SLOT.size):
        return False
    entries = np.frombuffer(file.read(at_entries, header.index_count * _ENTRY.size), _ENTRY_TYPE)
    newest = np.frombuffer(file.read(_HEADER.size, _SLOT.size * slots), ">i4")
    used = np.flatnonzero(newest)
    newest = newest[used]
    if len(entries) < header.index_count or entries["position"][-1] != header.end_position:
        return False
    return bool(np.all((newest > 0) & (newest < len(entries)))) and bool(
        np.all(entries["key_hash"][newest] % slots == used)
    )


def last_entries(directory: str, slots: int, most: int) -> set[tuple[int, int]]:
    """Key hash and physical offset of the newest entries there are, in the newest file that has any."""
    for name in reversed(names(directory)):
        path = os.path.join(directory, name)
        count = read_header(path).index_count
        if count > 1:
            first = max(1, count - most)
            with ReadFile(path, Counters()) as file:
                at = _HEADER.size + _SLOT.size * slots + _ENTRY.size * first
                data = file.read(at, (count - first) * _ENTRY.size)
            return {
                (key_hash, position)
                for key_hash, position, _, _ in _ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size])
            }
    return set()


def key_hash(key: str) -> int:
    """The hash that an entry has for `topic#key`: Math.abs of Java's, but 0 for Integer.MIN_VALUE."""
    value = abs(java_hash(key))
    return 0 if value > 0x7FFFFFFF else value


class IndexWriter:
    """Puts entries into index files, going on with the last one that is there.

    Args:
        directory: where the store's index files are.
        new: where the changed and the new ones are made.
    """

    def __init__(self, directory: str, new: str, slots: int, items: int) -> None:
        if items < 2:
            raise RmqStoreError(f"an index file needs room for an entry: expected at least 2 items, found {items}")
        self._new = new
        self._slots = slots
        self._items = items
        self._file: disk.NewFile | None = None
        self._map: mmap.mmap | None = None
        self._last_name = ""
        self._going_on: str | None = None
        self._previous_end = (0, 0)
        self.end_timestamp = 0
        existing = names(directory)
        if existing:
            path = os.path.join(directory, existing[-1])
            self._take_end(read_header(path))
            self._last_name = existing[-1]
            self._going_on = path

    def put(
        self,
        key_hash: npt.NDArray[np.int32],
        key_position: npt.NDArray[np.int64],
        key_timestamp: npt.NDArray[np.int64],
    ) -> None:
        """Put entries, which come after all those before; see native_io.Dispatched."""
        start = 0
        while start < len(key_hash):
            if self._map is None:
                self._open()
            assert self._map is not None
            start = put_index(
                self._map,
                slots=self._slots,
                items=self._items,
                key_hash=key_hash,
                key_position=key_position,
                key_timestamp=key_timestamp,
                start=start,
                previous_end=self._previous_end,
            )
            if start < len(key_hash):
                self._close()

    def finish(self) -> None:
        """Bring the last file to disk."""
        if self._map is not None:
            self._close()

    def _open(self) -> None:
        disk.make_directory(self._new)
        size = file_size(self._slots, self._items)
        if self._going_on is not None:
            self._file = disk.NewFile(os.path.join(self._new, self._last_name), size)
            self._file.copy_from(self._going_on, size)
            self._going_on = None
        else:
            self._last_name = _next_name(self._last_name)
            self._file = disk.NewFile(os.path.join(self._new, self._last_name), size)
        self._map = self._file.map()

    def _close(self) -> None:
        assert self._map is not None
        assert self._file is not None
        self._take_end(Header(*_HEADER.unpack(self._map[: _HEADER.size])))
        self._map.flush()
        self._map.close()
        self._file.sync()
        self._file.__exit__()
        self._map = None

    def _take_end(self, header: Header) -> None:
        self._previous_end = (header.end_timestamp, header.end_position)
        self.end_timestamp = header.end_timestamp


def _next_name(last: str) -> str:
    """The local time as yyyyMMddHHmmssSSS, as IndexService does it; behind the last one, whatever the clock says."""
    now = time.time_ns() // 1_000_000
    name = time.strftime("%Y%m%d%H%M%S", time.localtime(now // 1000)) + f"{now % 1000:03d}"
    return name if name > last else f"{int(last) + 1:017d}"
