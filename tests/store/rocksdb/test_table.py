"""Tables whose checksums are right and that are wrong all the same: the one error for each, which names the place; and
what a broker's RocksDB does not write is refused by name."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from oracle import rocksdb
from oracle.rocksdb import sized, varint

from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.rocksdb.database import Database

Entries = Sequence[tuple[bytes, bytes]]
Made = Callable[[Entries], Entries | bytes]
CONTENT = {b"k%02d" % number: b"value" for number in range(20)}
PROPERTIES, META, INDEX = b"rocksdb.block.based", b"rocksdb.", b"k"
HANDLE = varint(0) + varint(9)


def _read(directory: Path) -> dict[bytes, bytes]:
    return dict(pair for some in Database.open(str(directory), Files()).scan() for pair in some.pairs())


def _with(key: bytes, value: bytes) -> Made:
    return lambda entries: sorted([*(each for each in entries if each[0] != key), (key, value)])


@pytest.mark.parametrize(
    ("begins", "made", "found"),
    [
        (PROPERTIES, _with(b"rocksdb.external_sst_file.version", b"\2"), "a table that was brought in from outside"),
        (PROPERTIES, _with(b"rocksdb.block.based.table.index.type", b"\x09\0\0\0"), "found an index of kind 9"),
        (PROPERTIES, lambda entries: b"\xff" * 12, "expected a block with .*, found none"),
        (META, _with(b"rocksdb.properties", b""), "expected the place of rocksdb.properties, found none"),
        (
            META,
            _with(b"rocksdb.properties", varint(1 << 40) + b"\1"),
            "a block within the table, found 1 bytes at 1099511627776",
        ),
        (META, _with(b"rocksdb.compression_dict", HANDLE), "found blocks that are compressed with a dictionary"),
        (
            META,
            lambda entries: [*entries, (b"rocksdb.range_del", entries[0][1])],
            "a range that is deleted, found an entry of type 100",
        ),
        (
            INDEX,
            lambda entries: [(key, varint(0) + varint(1 << 20)) for key, _ in entries],
            "blocks within the table, found one beyond it",
        ),
        (INDEX, lambda entries: entries[::-1], "expected an index with keys in order, found others"),
        (
            INDEX,
            lambda entries: [(key, b"\x80") for key, _ in entries],
            "expected an index with the handle of a block, found none",
        ),
        (
            INDEX,
            lambda entries: [(key[:5], value) for key, value in entries],
            "expected an index with a key with a sequence number",
        ),
    ],
)
def test_blocks(begins: bytes, made: Made, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = rocksdb._block

    def block(entries: Entries, *interval: int) -> bytes:
        is_this = interval and entries[0][0].startswith(begins) and (begins != META or len(entries) == 1)
        other = made(entries) if is_this else entries
        return other if isinstance(other, bytes) else plain(other, *interval)

    monkeypatch.setattr(rocksdb, "_block", block)
    rocksdb.write(tmp_path, [{"default": [*CONTENT.items()]}], {})
    with pytest.raises(DamagedStoreError, match=rf"000010\.sst: .*{found}"):
        _read(tmp_path)


@pytest.mark.parametrize(
    ("kind", "packed", "found"),
    [
        (9, varint(1), "found compression 9 of the block at position"),
        (2, varint(60) + b"no zlib", "expected a compressed block, found Error"),
        (1, varint(1 << 30), "expected a compressed block, found expected at most 67108864 bytes"),
        (4, varint(60) + b"\x10a", "expected a compressed block, found expected 60 bytes, but another number"),
        (2, varint(60) + bytes.fromhex("4b04 00"), "expected a compressed block, found expected 60 bytes, but 1"),
        (2, b"\x80", "expected a compressed block, found expected"),
    ],
)
def test_compressed_blocks(
    kind: int, packed: bytes, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add(table: Any, block: bytes, packs: bool = False) -> bytes:
        at, trailer = len(table.data), bytes([kind]) if at_first(table) else b"\0"
        block = packed if at_first(table) else block
        table.data += block + trailer + rocksdb.masked_crc(block + trailer)
        return varint(at) + varint(len(block))

    def at_first(table: Any) -> bool:
        return not table.data

    monkeypatch.setattr(rocksdb._Table, "_add", add)
    rocksdb.write(tmp_path, [{"default": [*CONTENT.items()]}], {}, in_block=100)
    with pytest.raises(DamagedStoreError, match=rf"000010\.sst: .*{found}"):
        _read(tmp_path)


@pytest.mark.parametrize(
    ("version", "change", "found"),
    [
        (5, lambda data: data + b"x", "expected [0-9]+ bytes, as MANIFEST has it, found [0-9]+"),
        (5, lambda data: data[:-12] + struct.pack("<I", 9) + data[-8:], "found a table of format version 9"),
        (5, lambda data: data[:-53] + b"\x02" + data[-52:], "found checksums of kind xxHash"),
        (5, lambda data: data[:-52] + b"\xff" * 40 + data[-12:], "expected where blocks are, found no numbers"),
        (6, lambda data: data[:-45] + b"\x01" + data[-44:], "expected a footer with its CRC-32C, found another one"),
    ],
)
def test_footers(version: int, change: Callable[[bytes], bytes], found: str, tmp_path: Path) -> None:
    rocksdb.write(tmp_path, [{"default": [*CONTENT.items()]}], {}, version=version)
    (path,) = tmp_path.glob("*.sst")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DamagedStoreError, match=rf"000010\.sst: .*{found}"):
        _read(tmp_path)


def _batch(*records: bytes, count: int | None = None) -> bytes:
    return struct.pack("<QI", 1, len(records) if count is None else count) + b"".join(records)


def _piece(kind: int, record: bytes) -> bytes:
    return rocksdb.masked_crc(bytes([kind]) + record) + struct.pack("<HB", len(record), kind) + record


PUT = b"\x01" + sized(b"k") + sized(b"v")


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (
            _piece(1, _batch(PUT)) + _piece(9, b"\7"),
            r"found a record of another kind at position 24 \(compression of logs\?\)",
        ),
        (_piece(1, _batch(b"\x09")), "found a transaction at position 12"),
        (_piece(1, _batch(b"\x7e")), "position 12: expected a put or a deletion in batch 0, found none"),
        (
            _piece(1, _batch(PUT)) + _piece(1, _batch(PUT, count=2)),
            "expected as many records as are counted in batch 1, found none",
        ),
        (_piece(1, b"short"), "position 0: expected sequence number and count in batch 0, found none"),
    ],
)
def test_write_ahead_logs(log: bytes, found: str, tmp_path: Path) -> None:
    rocksdb.write(tmp_path, [], {"default": [(b"k", b"v")]})
    (path,) = tmp_path.glob("*.log")
    path.write_bytes(log)
    with pytest.raises(DamagedStoreError, match=rf"{re.escape(path.name)}: .*{found}"):
        _read(tmp_path)
