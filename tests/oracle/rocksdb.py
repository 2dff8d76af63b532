"""A RocksDB with few records, written byte by byte: one column family or several, of tables and a write-ahead log."""

from __future__ import annotations

import itertools
import random
import shutil
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from oracle.queue import PRE_BLANK, QUEUE_UNIT_SIZE, encode_queue_unit

Record = tuple[bytes, bytes | None]  # key, and value; None: deleted
_BLOCK = 32 * 1024  # of a log
_MAGIC = 0x88E241B785F4CFF7


def _crc_table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


_CRC = _crc_table()


def masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def sized(text: bytes) -> bytes:
    return varint(len(text)) + text


def _logged(records: Iterable[bytes]) -> bytes:
    out = bytearray()
    for record in records:
        rest, kind = record, 0
        while rest or not kind:
            room = _BLOCK - len(out) % _BLOCK
            if room < 7:
                out += bytes(room)
                continue
            part, rest = rest[: room - 7], rest[room - 7 :]
            is_first, is_last = kind == 0, not rest
            kind = 1 if is_first and is_last else 2 if is_first else 4 if is_last else 3
            head = masked_crc(bytes([kind]) + part) + struct.pack("<HB", len(part), kind)
            out += head + part
    return bytes(out)


def _internal(key: bytes, sequence: int, is_value: bool) -> bytes:
    return key + (sequence << 8 | is_value).to_bytes(8, "little")


def _block(entries: Sequence[tuple[bytes, bytes]], interval: int = 16) -> bytes:
    out, restarts, before = bytearray(), [], b""
    for number, (key, value) in enumerate(entries):
        shared = 0
        if number % interval == 0:
            restarts.append(len(out))
        else:
            while shared < min(len(before), len(key)) and before[shared] == key[shared]:
                shared += 1
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    restarts = restarts or [0]
    return bytes(out) + struct.pack(f"<{len(restarts)}II", *restarts, len(restarts))


class _Table:
    """The bytes of a table. `entries`: internal keys with values, in order."""

    def __init__(
        self,
        entries: Sequence[tuple[bytes, bytes]],
        in_block: int,
        packs: bool,
        version: int = 5,
        compression: bytes = b"",
    ) -> None:
        self.data = bytearray()
        index = []
        for first in range(0, len(entries), in_block):
            some = entries[first : first + in_block]
            index.append((some[-1][0], self._add(_block(some), packs)))
        properties = [
            (b"rocksdb.block.based.table.index.type", bytes(4)),
            (b"rocksdb.compression", compression),
            (b"rocksdb.num.entries", varint(len(entries))),
        ]
        places = [(b"rocksdb.properties", self._add(_block(sorted(properties), 1)))]
        if version < 6:
            handles = (self._add(_block(places, 1)) + self._add(_block(index, 1))).ljust(40, b"\0")
            self.data += b"\1" + handles + struct.pack("<IQ", version, _MAGIC)
            return
        # The index is found by its name; a file whose checksums do not depend on their places has context 0.
        places.append((b"rocksdb.index", self._add(_block(index, 1))))
        meta = _block(sorted(places), 1)
        self._add(meta)
        head, rest = b"\1\x3e\0\x7a\0", struct.pack("<II24sIQ", 0, len(meta), b"", version, _MAGIC)
        self.data += head + masked_crc(head + bytes(4) + rest) + rest

    def _add(self, block: bytes, packs: bool = False) -> bytes:
        kind, at = b"\0", len(self.data)
        if packs:
            packer = zlib.compressobj(wbits=-14)
            block, kind = varint(len(block)) + packer.compress(block) + packer.flush(), b"\2"
        self.data += block + kind + masked_crc(block + kind)
        return varint(at) + varint(len(block))


def write(
    directory: Path,
    parts: Sequence[Mapping[str, Sequence[Record]]],
    logged: Mapping[str, Sequence[Record]],
    in_block: int = 8,
    packs: bool = False,
    first: int = 10,
    version: int = 5,
    compression: bytes = b"",
    mix: Callable[[list[tuple[bytes, bytes]]], object] = lambda entries: None,
) -> None:
    """A database.

    Args:
        parts: the records of each column family, oldest part first; each part is a table. Those of the first are in a
            lower level than the others.
        logged: the newest records, only in the write-ahead log.
        in_block: records in a block.
        packs: whether blocks are compressed.
        first: the number of the first file.
        version: of the format of tables.
        compression: what tables say that compressed their blocks.
        mix: changes the order of a table's entries; bounds in MANIFEST stay what they are.
    """
    directory.mkdir(parents=True, exist_ok=True)
    families = ["default", *sorted({name for part in (*parts, logged) for name in part} - {"default"})]
    edits = [b"\x01" + sized(b"leveldb.BytewiseComparator")]
    for number, name in enumerate(families[1:], 1):
        edits.append(b"\xc8\x01" + varint(number) + b"\xc9\x01" + sized(name.encode()) + b"\xcb\x01" + varint(number))
    sequence, file = 1, first
    for level, part in zip((6, *[0] * len(parts)), parts, strict=False):
        for number, name in enumerate(families):
            records = sorted(part.get(name, ()))
            entries = [
                (_internal(key, sequence + at, value is not None), value or b"")
                for at, (key, value) in enumerate(records)
            ]
            if not entries:
                continue
            bounds = sized(entries[0][0]) + sized(entries[-1][0])
            mix(entries)
            table = _Table(entries, in_block, packs, version, compression).data
            (directory / f"{file:06}.sst").write_bytes(table)
            edits.append(
                b"\xc8\x01" + varint(number) + b"\x67" + varint(level) + varint(file) + varint(len(table))
                + bounds + varint(sequence) + varint(sequence + len(entries) - 1)
                + b"\x01"
            )  # fmt: skip
            sequence, file = sequence + len(entries), file + 1
    edits.append(b"\x02" + varint(file) + b"\x03" + varint(file + 2) + b"\x04" + varint(sequence))
    batches = []
    for number, name in enumerate(families):
        records = sorted(logged.get(name, ()))
        for begin in range(0, len(records), 7):
            some = records[begin : begin + 7]
            batches.append(struct.pack("<QI", sequence, len(some)) + b"".join(_logged_record(number, *r) for r in some))
            sequence += len(some)
    (directory / f"{file:06}.log").write_bytes(_logged(batches))
    (directory / f"MANIFEST-{file + 1:06}").write_bytes(_logged(edits))
    (directory / "CURRENT").write_text(f"MANIFEST-{file + 1:06}\n")
    (directory / "LOCK").touch()
    (directory / "IDENTITY").write_text("made for a test")


def _logged_record(family: int, key: bytes, value: bytes | None) -> bytes:
    if value is None:
        return (b"\x04" + varint(family) if family else b"\x00") + sized(key)
    return (b"\x05" + varint(family) if family else b"\x01") + sized(key) + sized(value)


# ---- ConsumeQueues


def queue_key(topic: bytes, queue_id: int, queue_offset: int) -> bytes:
    return struct.pack(">i", len(topic)) + b"\1" + topic + b"\1" + struct.pack(">ibq", queue_id, 1, queue_offset)


def bound_key(topic: bytes, queue_id: int, which: bytes = b"max") -> bytes:
    return struct.pack(">i", len(topic)) + b"\1" + topic + b"\1" + which + b"\1" + struct.pack(">i", queue_id)


def queue_records(root: Path) -> list[tuple[bytes, bytes]]:
    """The records of all units in a store's queue files, as a broker has them in column family `default`."""
    found = []
    for file in sorted((root / "consumequeue").glob("*/*/*")):
        if not (file.is_file() and len(file.name) == 20 and file.parent.name.isdigit()):
            continue
        data = file.read_bytes()
        for at in range(0, len(data) - QUEUE_UNIT_SIZE + 1, QUEUE_UNIT_SIZE):
            unit = data[at : at + QUEUE_UNIT_SIZE]
            if any(unit) and unit != encode_queue_unit(*PRE_BLANK):
                number = int(file.name) // QUEUE_UNIT_SIZE + at // QUEUE_UNIT_SIZE
                key = queue_key(file.parent.parent.name.encode(), int(file.parent.name), number)
                found.append((key, unit + bytes(8)))
    return list(dict(found).items())


def put_queues(
    root: Path,
    rng: random.Random,
    keeps_files: bool = False,
    place: str = "consumequeue",
    lacks: str = "",
    twist: Callable[[list[tuple[bytes, bytes]]], list[tuple[bytes, bytes]]] | None = None,
) -> None:
    """Put a store's queues into a RocksDB, as a broker with storeType=defaultRocksDB has them.

    Args:
        keeps_files: whether the files stay, as with rocksdbCQDoubleWriteEnable.
        place: the directory.
        lacks: `end`: the last records, as after a kill; `middle`: a row of records.
        twist: makes other records of them.
    """
    records = queue_records(root) if twist is None else twist(queue_records(root))
    records.sort(key=lambda record: record[1][:8])  # as dispatched
    if lacks and records:
        first = rng.randrange(len(records))
        after = len(records) if lacks == "end" else rng.randrange(first, len(records))
        records = records[:first] + records[after:]
    if not keeps_files:
        shutil.rmtree(root / "consumequeue", ignore_errors=True)
    (root / "consumequeue").mkdir(exist_ok=True)
    cuts = sorted(rng.randrange(len(records) + 1) for _ in range(rng.choice((0, 1, 3))))
    bounds = [0, *cuts, len(records)]
    split = [records[first:after] for first, after in itertools.pairwise(bounds)]
    parts: list[dict[str, list[Record]]] = [{"default": [*part]} for part in split]
    if rng.random() < 0.3 and parts and records:  # a record that was deleted, and one that was written again
        gone = queue_key(b"TopicA", 7, rng.randrange(9))
        parts[0]["default"].append((gone, bytes(28)))
        parts.append({"default": [(gone, None)]})
        parts[-1]["default"].append(rng.choice(records))
    ends: dict[bytes, bytes] = {}
    for key, value in records:
        if len(key) < 19 + int.from_bytes(key[:4], "big") or len(value) < 8:
            continue
        topic, queue_id = key[5 : 5 + int.from_bytes(key[:4], "big")], int.from_bytes(key[-13:-9], "big", signed=True)
        ends[bound_key(topic, queue_id)] = value[:8] + key[-8:]
    logged = parts.pop() if len(parts) > 1 and rng.random() < 0.5 else {}
    parts.append({"offset": [*ends.items()]})
    write(root / place, parts, logged, rng.choice((1, 3, 8, 1000)), rng.random() < 0.5)


def damage(directory: Path, rng: random.Random) -> None:
    """Flip, cut or lose bytes of a database's files, or whole files."""
    files = sorted(path for path in directory.iterdir() if path.is_file() and path.stat().st_size)
    for _ in range(rng.choice((1, 1, 2))):
        path = rng.choice(files)
        data = bytearray(path.read_bytes()) if path.exists() else bytearray()
        if not data:
            continue
        at = rng.randrange(len(data))
        kind = rng.choice(("flip", "flip", "zeros", "cut", "lose"))
        if kind == "flip":
            data[at] ^= 1 << rng.randrange(8)
        elif kind == "zeros":
            data[at : at + 64] = bytes(len(data[at : at + 64]))
        elif kind == "cut":
            del data[at:]
        if kind == "lose":
            path.unlink()
        else:
            path.write_bytes(data)
