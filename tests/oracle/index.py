"""Index files, as org.apache.rocketmq.store.index writes them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from oracle.java import java_hash, java_properties, java_text, wrap
from oracle.unit import ROLLBACK, TRANSACTION_BITS, Buffer, Unit


class IndexHeader(NamedTuple):
    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int  # slots in use
    index_count: int  # items, and one more


class IndexItem(NamedTuple):
    key_hash: int
    physical_offset: int
    seconds: int  # since the header's begin_timestamp, nearly
    previous: int  # item of the same slot, or 0


# | 40 header | 4 for each slot: number of its newest item, or 0 | 20 for each item, from item 0, which is never used |
_INDEX_HEADER = struct.Struct(">qqqqii")
_INDEX_ITEM = struct.Struct(">iqii")
INDEX_HEADER_SIZE, INDEX_SLOT_SIZE, INDEX_ITEM_SIZE = 40, 4, 20


def index_keys(properties: Mapping[str, str], tags: bool = False) -> list[str]:
    """What a broker indexes of a message, in its order: UNIQ_KEY, then the words of KEYS. Only spaces part words.

    `tags`: and then TAGS, as broker 5.5.0 does and 5.3.0 does not.
    """
    unique = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
    tag = [f"T#{properties['TAGS']}"] if tags and "TAGS" in properties else []
    return [*unique, *(word for word in properties.get("KEYS", "").split(" ") if word), *tag]


def index_hash(topic: str, key: str) -> int:
    value = java_hash(f"{topic}#{key}")
    return 0 if value == -(1 << 31) else abs(value)


def index_item_at(slots: int, number: int) -> int:
    """The place of an item in a file with so many slots."""
    return INDEX_HEADER_SIZE + slots * INDEX_SLOT_SIZE + number * INDEX_ITEM_SIZE


def decode_index_header(data: Buffer | bytearray) -> IndexHeader:
    return IndexHeader(*_INDEX_HEADER.unpack(data[:INDEX_HEADER_SIZE]))


def encode_index_header(header: IndexHeader) -> bytes:
    return _INDEX_HEADER.pack(*header)


def encode_index_item(item: IndexItem) -> bytes:
    return _INDEX_ITEM.pack(*item)


def read_index(data: bytes, slots: int) -> list[IndexItem]:
    """The items in use of an index file's bytes, in the order they were put in: the chains are not looked at."""
    header = decode_index_header(data)
    used = data[index_item_at(slots, 1) : index_item_at(slots, header.index_count)]
    return [IndexItem(*fields) for fields in _INDEX_ITEM.iter_unpack(used)]


def unit_index_keys(unit: Unit, index_tags: bool = False) -> list[tuple[str, str]]:
    """(topic, key) of all that a broker indexes a unit under, in order: nothing for ROLLBACK."""
    if unit.sys_flag & TRANSACTION_BITS == ROLLBACK:
        return []
    topic = java_text(unit.topic)
    return [(topic, key) for key in index_keys(java_properties(unit.properties), index_tags)]


class IndexFile:
    """One index file, written as org.apache.rocketmq.store.index.IndexFile does. `before`: the one that is full."""

    begin_time: int
    end_time: int
    begin_offset: int
    end_offset: int

    def __init__(self, slots: int, items: int, before: IndexFile | None = None) -> None:
        self.slots = [0] * slots
        self.items: dict[int, IndexItem] = {}
        self.capacity = items
        self.begin_time = self.end_time = max(0, before.end_time) if before else 0
        self.begin_offset = self.end_offset = max(0, before.end_offset) if before else 0
        self.slot_count = 0
        self.count = 1

    @classmethod
    def decode(cls, data: bytes, slots: int, items: int) -> IndexFile:
        """Whatever stands there."""
        file = cls(slots, items)
        header = _INDEX_HEADER.unpack(data[:40])
        file.begin_time, file.end_time, file.begin_offset, file.end_offset, file.slot_count, count = header
        file.count = max(1, count)
        file.slots = list(struct.unpack(f">{slots}i", data[40 : 40 + 4 * slots]))
        at = 40 + 4 * slots
        file.items = {i: IndexItem(*_INDEX_ITEM.unpack(data[at + 20 * i : at + 20 * i + 20])) for i in range(items)}
        return file

    def put(self, key_hash: int, physical_offset: int, timestamp: int) -> bool:
        if self.count >= self.capacity:
            return False
        slot = key_hash % len(self.slots)
        before = self.slots[slot]
        if before < 0 or before > self.count:
            before = 0
        seconds = 0
        if self.begin_time > 0:
            difference = wrap(timestamp - self.begin_time)
            seconds = min(max(0, difference) // 1000, 0x7FFFFFFF)
        self.items[self.count] = IndexItem(key_hash, physical_offset, seconds, before)
        self.slots[slot] = self.count
        if self.count == 1:
            self.begin_time, self.begin_offset = timestamp, physical_offset
        if before == 0:
            self.slot_count += 1
        self.count += 1
        self.end_time, self.end_offset = timestamp, physical_offset
        return True

    def encode(self) -> bytes:
        parts = [self._header()]
        parts += [slot.to_bytes(4, "big", signed=True) for slot in self.slots]
        parts += [_INDEX_ITEM.pack(*self.items.get(i, (0, 0, 0, 0))) for i in range(self.capacity)]
        return b"".join(parts)

    def save(self, path: Path) -> None:
        """As `encode`, with holes where there is nothing: for files of any size."""
        with path.open("wb") as file:
            file.truncate(index_item_at(len(self.slots), self.capacity))
            file.write(self._header())
            for slot, number in enumerate(self.slots):
                if number:
                    file.seek(INDEX_HEADER_SIZE + slot * INDEX_SLOT_SIZE)
                    file.write(number.to_bytes(INDEX_SLOT_SIZE, "big", signed=True))
            for number, item in self.items.items():
                file.seek(index_item_at(len(self.slots), number))
                file.write(encode_index_item(item))

    def _header(self) -> bytes:
        times, offsets = (self.begin_time, self.end_time), (self.begin_offset, self.end_offset)
        return encode_index_header(IndexHeader(*times, *offsets, self.slot_count, self.count))


class Index:
    """The index files of a store, in memory.

    Args:
        slots, items: what each file has room for; item 0 takes room and is never used.
    """

    def __init__(self, slots: int, items: int) -> None:
        self.slots = slots
        self.items = items
        self.files: list[tuple[int, IndexFile]] = []  # each with its number
        self._started = 0
        self._full = 0  # the files before this number are full and on disk

    def unflushed(self) -> list[tuple[int, IndexFile]]:
        """The files that are to be written to disk, which is then the caller's to do."""
        files = [file for file in self.files if file[0] >= self._full]
        self._full = max(self._started - 1, 0)
        return files

    def put(self, topic: str, keys: Sequence[str], physical_offset: int, timestamp: int) -> None:
        """As IndexService.buildIndex: what is older than the last item is not put in, what is as old is, once more."""
        if self.files and physical_offset < self.files[-1][1].end_offset:
            return
        for key in keys:
            self.put_hash(index_hash(topic, key), physical_offset, timestamp)

    def put_hash(self, key_hash: int, physical_offset: int, timestamp: int) -> None:
        """Where the last file is full, the next one begins with the times and offsets that this one ends with."""
        last = self.files[-1][1] if self.files else None
        if last is None or not last.put(key_hash, physical_offset, timestamp):
            self.files.append((self._started, IndexFile(self.slots, self.items, last)))
            self._started += 1
            self.files[-1][1].put(key_hash, physical_offset, timestamp)

    def expire(self, start: int) -> list[int]:
        """Forgets the files that end before this position, but not the last; their numbers."""
        gone = [number for number, file in self.files[:-1] if file.end_offset < start]
        self.files = [file for file in self.files if file[0] not in gone]
        return gone


def build_index(entries: Iterable[tuple[int, int, int]], slots: int, items: int) -> list[IndexFile]:
    """The files that (key hash, physical offset, store time in ms) fill one after the other."""
    index = Index(slots, items)
    for entry in entries:
        index.put_hash(*entry)
    return [file for _, file in index.files]
