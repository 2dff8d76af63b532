"""One block-based table (.sst): its footer, its index, the ranges it deletes, and the blocks of a range of keys.

Source: RocksDB's table/format.cc (Footer), table/block_based/block_based_table_reader.cc, table/meta_blocks.cc.
"""

import bisect
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from native_io import BLOCK_TRAILER, SEQUENCE_SIZE, NotSoundError, Run, read_index, read_pairs, table_checksum
from rmqstore_spark.store.io.files import Files, OpenFile
from rmqstore_spark.store.rocksdb.blocks import CHECKSUMS, NO_CHECKSUM, BlockFile
from rmqstore_spark.store.rocksdb.entry_types import RANGE_DELETION
from rmqstore_spark.store.rocksdb.faults import damaged, not_read
from rmqstore_spark.store.rocksdb.fields import Fields
from rmqstore_spark.store.rocksdb.manifest import TableFile
from rmqstore_spark.store.rocksdb.tombstones import RangeDeletion

_FOOTER_SIZE = 53
_MAGIC = 0x88E241B785F4CFF7
_VERSIONS = range(2, 8)
_WITH_CONTEXT = 6  # the first format version with a context in each checksum
_WITH_MANAGER = 7  # the first one whose compressions can be other ones than RocksDB's
_EXTENDED_MAGIC = bytes.fromhex("3e007a00")
_OTHER_CHECKSUMS = {2: "xxHash", 3: "xxHash64"}
_TAIL_SIZE = 64 * 1024  # bytes of a table that are read at first: footer, properties, often the index
_CHUNK_SIZE = 1024 * 1024  # bytes of neighbouring blocks that are read at a time
_BINARY_SEARCH, _HASH_SEARCH, _TWO_LEVELS = range(3)  # kinds of index
_INGESTED = b"rocksdb.external_sst_file.version"
_INDEX_TYPE = b"rocksdb.block.based.table.index.type"
_USER_KEYS = b"rocksdb.index.key.is.user.key"
_DELTAS = b"rocksdb.index.value.is.delta.encoded"
_COMPRESSION = b"rocksdb.compression"
_MANAGERS = (b"", b"BuiltinV2")  # no compression, or RocksDB's own ones
_DICTIONARY = b"rocksdb.compression_dict"


@dataclass(frozen=True)
class _Index:
    """The places of blocks, and for each block a key that is not below any of the block's keys.

    Attributes:
        keys: of all blocks, one after the other.
        key_starts: where each key begins, and where the last one ends.
        starts, ends: the start and end of each block in the file, without its trailer.
    """

    keys: bytes
    key_starts: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    suffix: int  # bytes of each key that are not the user's

    def first_with(self, key: bytes) -> int:
        """The first block that may have this key or a later one."""
        return bisect.bisect_left(range(len(self.starts)), key, key=self.key)

    def key(self, number: int) -> bytes:
        """A key that is not below any in a block, and below all in the next one."""
        return self.keys[int(self.key_starts[number]) : int(self.key_starts[number + 1]) - self.suffix]


@dataclass(frozen=True)
class Table:
    """A table, ready to be read from.

    Attributes:
        blocks: reads the table's blocks.
        index: the places of the blocks.
        smallest, largest: the bounds of the table's keys, as MANIFEST has them.
        deletions: the ranges that the table deletes, within these bounds.
    """

    blocks: BlockFile
    index: _Index
    smallest: bytes
    largest: bytes
    deletions: tuple[RangeDeletion, ...]

    def runs(self, files: Files, start: bytes, stop: bytes | None) -> Iterator[Run]:
        """The entries of keys in [start, stop), in order, in runs of different lengths.

        Raises:
            RmqStoreError: it cannot be read, or is damaged.
        """
        number = self.index.first_with(start)
        end = len(self.index.starts) if stop is None else self.index.first_with(stop) + 1
        if number >= end:
            return
        with files.file(self.blocks.path) as file:
            while number < min(end, len(self.index.starts)):
                after = self._chunk_end(number, end)
                offset = int(self.index.starts[number])
                raw = _read(file, offset, int(self.index.ends[after - 1]) + BLOCK_TRAILER - offset)
                bounds = slice(number, after)
                starts, ends = self.index.starts[bounds] - offset, self.index.ends[bounds] - offset
                at = number
                for run, count in self.blocks.runs(raw, starts, ends, offset):
                    self._check_bounds(run, at, at + count)
                    at += count
                    run.begin_at(start)
                    if stop is not None and run.stop_at(stop):
                        end = number
                    yield run
                number = after

    def _check_bounds(self, run: Run, number: int, after: int) -> None:
        """Blocks have the keys that lead to them: else some would not be found, without a word.

        Args:
            run: all entries of the blocks [number, after).
        """
        if not len(run):
            return
        first, last = run.first_key()[:-SEQUENCE_SIZE], run.last_key()[:-SEQUENCE_SIZE]
        least, most = self.smallest if number == 0 else self.index.key(number - 1), self.index.key(after - 1)
        if not least <= first or not last <= min(most, self.largest):
            expected = f"blocks with keys from {least!r:.80} to {min(most, self.largest)!r:.80}"
            raise damaged(self.blocks.path, int(self.index.starts[number]), expected, f"{first!r:.80} to {last!r:.80}")

    def blocks_in(self, start: bytes, stop: bytes | None) -> int:
        """The number of blocks that may have keys in [start, stop)."""
        count = len(self.index.starts)
        end = count if stop is None else min(count, self.index.first_with(stop) + 1)
        return max(0, end - self.index.first_with(start))

    def last_bounds(self, start: bytes, stop: bytes, count: int) -> Iterator[bytes]:
        """Keys between blocks, within [start, stop): the last ones, up to `count`."""
        end = self.index.first_with(stop)
        bounds = (self.index.key(number) for number in range(max(0, end - count), end))
        return (bound for bound in bounds if start <= bound < stop)

    def _chunk_end(self, number: int, end: int) -> int:
        """The number after the last block of a single read: the blocks of a read are adjacent."""
        starts, ends = self.index.starts, self.index.ends
        after = number + 1
        while (
            after < min(end, len(starts))
            and starts[after] == ends[after - 1] + BLOCK_TRAILER
            and ends[after] - starts[number] <= _CHUNK_SIZE
        ):
            after += 1
        return after


def open_table(directory: str, table: TableFile, files: Files) -> Table:
    """Open a table of a database.

    Args:
        directory: the database's directory.
        table: the table's entry in MANIFEST.
        files: how to reach files, and where requests and bytes are counted.

    Raises:
        RmqStoreError: it cannot be read, or is damaged.
    """
    path = os.path.join(directory, table.name)
    with files.file(path) as file:
        if file.size != table.size:
            raise damaged(path, 0, f"{table.size} bytes, as MANIFEST has it", f"{file.size}")
        return _Opening(path, file).table(table)


def _read(file: OpenFile, offset: int, size: int) -> bytes:
    found = file.read(offset, size)
    if len(found) != size:
        raise damaged(file.path, offset, f"{size} bytes", f"{len(found)}")
    return found


class _Opening:
    """A table while its footer, and the blocks that the footer leads to, are read."""

    def __init__(self, path: str, file: OpenFile) -> None:
        self.path = path
        self.file = file
        self.tail_start = max(0, file.size - _TAIL_SIZE)
        self.tail = _read(file, self.tail_start, file.size - self.tail_start)
        footer = self.tail[-_FOOTER_SIZE:]
        magic, version = int.from_bytes(footer[-8:], "little"), int.from_bytes(footer[-12:-8], "little")
        if len(footer) < _FOOTER_SIZE or magic != _MAGIC:
            raise damaged(path, max(0, file.size - 8), f"{_MAGIC:#x}, the end of a block-based table", f"{magic:#x}")
        if version not in _VERSIONS:
            raise not_read(path, f"a table of format version {version}")
        self.checksum = footer[0]
        if self.checksum != NO_CHECKSUM and self.checksum not in CHECKSUMS:
            raise not_read(path, f"checksums of kind {_OTHER_CHECKSUMS.get(self.checksum, self.checksum)}")
        self.footer = footer
        self.version = version

    def table(self, table: TableFile) -> Table:
        meta, index = self._handles()
        blocks = BlockFile(self.path, self.file.size, self.checksum, self._context())
        places = dict(self._pairs(blocks, meta, False))
        if self.version >= _WITH_CONTEXT:
            index = self._place(places, b"rocksdb.index")
        properties = dict(self._pairs(blocks, self._place(places, b"rocksdb.properties"), False))
        if _INGESTED in properties:
            raise not_read(self.path, "a table that was brought in from outside")
        if _DICTIONARY in places:
            raise not_read(self.path, "blocks that are compressed with a dictionary")
        manager = properties.get(_COMPRESSION, b"").partition(b";")[0]
        if self.version >= _WITH_MANAGER and manager not in _MANAGERS:
            raise not_read(self.path, f"blocks that are compressed by {manager.decode(errors='replace'):.80}")
        deletions = []
        if b"rocksdb.range_del" in places:
            place = self._place(places, b"rocksdb.range_del")
            deletions = [*self._deletions(self._pairs(blocks, place, True), table, place[0])]
        return Table(blocks, self._index(blocks, index, properties), table.smallest, table.largest, tuple(deletions))

    def _context(self) -> int:
        """The file's context for checksums; the footer's own one is checked with it."""
        if self.version < _WITH_CONTEXT:
            return 0
        at = self.file.size - _FOOTER_SIZE
        if self.footer[1:5] != _EXTENDED_MAGIC or any(self.footer[33:41]):
            raise not_read(self.path, "a footer with what is not known here")
        context = int.from_bytes(self.footer[9:13], "little")
        if self.checksum != NO_CHECKSUM:
            cleared = self.footer[:5] + bytes(4) + self.footer[9:]
            expected = table_checksum(cleared, kind=self.checksum, offset=at, context=context)
            if expected != int.from_bytes(self.footer[5:9], "little"):
                raise damaged(self.path, at, f"a footer with its {CHECKSUMS[self.checksum]}", "another one")
        return context

    def _handles(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The places of the metaindex block and of the index, which since format version 6 the footer does not have:
        (0, 0)."""
        if self.version >= _WITH_CONTEXT:
            size = int.from_bytes(self.footer[13:17], "little")
            return (self.file.size - _FOOTER_SIZE - BLOCK_TRAILER - size, size), (0, 0)
        fields = Fields(self.footer, 1)
        try:
            return (fields.varint(), fields.varint()), (fields.varint(), fields.varint())
        except NotSoundError:
            raise damaged(self.path, self.file.size - _FOOTER_SIZE, "where blocks are", "no numbers") from None

    def _place(self, places: dict[bytes, bytes], name: bytes) -> tuple[int, int]:
        fields = Fields(places.get(name, b""))
        try:
            return fields.varint(), fields.varint()
        except NotSoundError:
            raise damaged(self.path, self.file.size - _FOOTER_SIZE, f"the place of {name.decode()}", "none") from None

    def _block(self, blocks: BlockFile, place: tuple[int, int]) -> bytes:
        offset, size = place
        if offset < 0 or offset + size + BLOCK_TRAILER > self.file.size - _FOOTER_SIZE:
            raise damaged(
                self.path, self.file.size - _FOOTER_SIZE, "a block within the table", f"{size} bytes at {offset}"
            )
        size += BLOCK_TRAILER
        at = offset - self.tail_start
        raw = self.tail[at : at + size] if at >= 0 else _read(self.file, offset, size)
        return blocks.one(raw, offset)

    def _pairs(self, blocks: BlockFile, place: tuple[int, int], internal: bool) -> list[tuple[bytes, bytes]]:
        """Keys and values of a small block."""
        data = self._block(blocks, place)
        try:
            keys, key_starts, value_starts, value_ends = read_pairs(data, internal=internal)
        except NotSoundError as why:
            raise damaged(self.path, place[0], f"a block with {why.expected}", "none") from None
        all_keys, starts = keys.tobytes(), key_starts.tolist()
        return [
            (all_keys[starts[number] : starts[number + 1]], data[start:end])
            for number, (start, end) in enumerate(zip(value_starts.tolist(), value_ends.tolist(), strict=True))
        ]

    def _index(self, blocks: BlockFile, place: tuple[int, int], properties: dict[bytes, bytes]) -> _Index:
        kind = int.from_bytes(properties.get(_INDEX_TYPE, bytes(4)), "little")
        if kind not in (_BINARY_SEARCH, _HASH_SEARCH, _TWO_LEVELS):
            raise not_read(self.path, f"an index of kind {kind}")
        index = self._one_index(blocks, place, properties)
        if kind == _TWO_LEVELS:
            places = [
                (start, end - start) for start, end in zip(index.starts.tolist(), index.ends.tolist(), strict=True)
            ]
            index = _joined([self._one_index(blocks, place, properties) for place in places], index.suffix)
        if any(key > after for key, after in itertools.pairwise(map(index.key, range(len(index.starts))))):
            raise damaged(self.path, place[0], "an index with keys in order", "others")
        last = self.file.size - _FOOTER_SIZE - BLOCK_TRAILER
        if (index.starts < 0).any() or (index.ends < index.starts).any() or (index.ends > last).any():
            raise damaged(self.path, place[0], "an index of blocks within the table", "one beyond it")
        return index

    def _one_index(self, blocks: BlockFile, place: tuple[int, int], properties: dict[bytes, bytes]) -> _Index:
        data = self._block(blocks, place)
        internal = not int.from_bytes(properties.get(_USER_KEYS, b""), "little")
        delta = bool(int.from_bytes(properties.get(_DELTAS, b""), "little"))
        try:
            keys, key_starts, starts, ends = read_index(data, internal=internal, delta=delta)
        except NotSoundError as why:
            raise damaged(self.path, place[0], f"an index with {why.expected}", "none") from None
        return _Index(keys.tobytes(), key_starts, starts, ends, SEQUENCE_SIZE if internal else 0)

    def _deletions(self, pairs: list[tuple[bytes, bytes]], table: TableFile, position: int) -> Iterator[RangeDeletion]:
        """The deleted ranges, cut to the table's own range of keys: other tables delete the keys beyond."""
        last = table.largest if table.is_open else table.largest + b"\0"
        for key, stop in pairs:
            trailer = int.from_bytes(key[-SEQUENCE_SIZE:], "little")
            if trailer & 0xFF != RANGE_DELETION:
                raise damaged(self.path, position, "a range that is deleted", f"an entry of type {trailer & 0xFF}")
            yield RangeDeletion(max(key[:-SEQUENCE_SIZE], table.smallest), min(stop, last), trailer >> 8)


def _joined(parts: list[_Index], suffix: int) -> _Index:
    if not parts:
        none = np.zeros(0, np.int64)
        return _Index(b"", np.zeros(1, np.int64), none, none, suffix)
    before = np.cumsum([0, *(len(part.keys) for part in parts)])
    key_starts = [part.key_starts[:-1] + start for part, start in zip(parts, before.tolist(), strict=False)]
    return _Index(
        b"".join(part.keys for part in parts),
        np.concatenate([*key_starts, before[-1:]]),
        np.concatenate([part.starts for part in parts]),
        np.concatenate([part.ends for part in parts]),
        suffix,
    )
