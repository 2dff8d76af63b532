"""Writes one log twice over: with its queues in files, and in a RocksDB as a broker with storeType=defaultRocksDB has
them, with topics and five groups' offsets in RocksDB too.

Messages have no body and one size; each queue has one in each round through all queues. The blocks of the database's
tables are compressed with LZ4, and each key stands there whole (restart points at every entry), so that numpy can lay
out thousands of blocks at once.
Source: RocksDB's table/format.h, db/version_edit.h, db/log_format.h.
"""

from __future__ import annotations

import itertools
import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from generate import (
    BLANK,
    CQ_FILE_UNITS,
    CQ_UNIT,
    HEADER,
    MAGIC_BLANK,
    MAGIC_V1,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    START_TIME,
    STORE_TIME_AT,
    create,
    kept,
    write_checkpoint,
    write_topics,
)

from native_io import masked_crc32c

FORMAT = 1  # raise it when the same arguments give other bytes, so that kept stores are written anew
QUEUES_OF_TOPIC = 5
GROUPS = 5
SEGMENT = 1 << 30
TABLE_ENTRIES = 400_000  # a table of some 20 MB
BLOCK_ENTRIES = 480  # a block of some 32 KiB
LOG_BLOCK = 32 * 1024
TABLE_MAGIC = 0x88E241B785F4CFF7
ROWS_AT_ONCE = 1 << 20
_TOPIC = "Topic%05d"
_HEAD = HEADER.pack(0, MAGIC_V1, 0, 0, 0, 0, 0, 0, START_TIME, bytes(4), 1, 0, bytes(4), 1, 0, 0, 0)
_UNIT = _HEAD + bytes([len(_TOPIC % 0)]) + (_TOPIC % 0).encode() + bytes(2)
UNIT_SIZE = len(_UNIT)


@dataclass(frozen=True)
class ManyQueues:
    """What is asked for, of a store whose queues have all as many messages."""

    queues: int
    rounds: int
    in_rocksdb: bool
    format: int = FORMAT

    @property
    def units(self) -> int:
        return self.queues * self.rounds


def many_queues(root: Path, shape: ManyQueues, log_of: Path | None = None) -> Path:
    """The store of this shape, written if it is not there.

    Args:
        log_of: another store of as many queues and rounds, whose segments are linked to.
    """

    def write(partial: Path) -> dict[str, Any]:
        _write_log(partial / "commitlog", shape, log_of)
        write_checkpoint(partial, START_TIME + (shape.units - 1) // 1000)
        if shape.in_rocksdb:
            _write_database(partial / "consumequeue", _tables_of_queues(shape), {"offset": _bounds(shape)})
            _write_configuration(partial / "config", shape)
        else:
            _write_files(partial / "consumequeue", shape)
            _write_json(partial, shape)
        return {}

    kept(root, asdict(shape), write)
    return root


def _positions(shape: ManyQueues, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The physical offsets of messages."""
    in_segment = (SEGMENT - BLANK.size) // UNIT_SIZE
    return numbers // in_segment * SEGMENT + numbers % in_segment * UNIT_SIZE


def _write_log(directory: Path, shape: ManyQueues, log_of: Path | None) -> None:
    directory.mkdir()
    in_segment = (SEGMENT - BLANK.size) // UNIT_SIZE
    for start in range(0, shape.units, in_segment):
        path = directory / f"{start // in_segment * SEGMENT:020d}"
        if log_of is not None:
            os.link(log_of / "commitlog" / path.name, path)
            continue
        fd = create(directory / path.name, SEGMENT)
        stop = min(shape.units, start + in_segment)
        for first in range(start, stop, ROWS_AT_ONCE):
            numbers = np.arange(first, min(stop, first + ROWS_AT_ONCE))
            os.pwrite(fd, _units(shape, numbers).tobytes(), (first - start) * UNIT_SIZE)
        if stop < shape.units:
            left = SEGMENT - in_segment * UNIT_SIZE
            os.pwrite(fd, BLANK.pack(left, MAGIC_BLANK), SEGMENT - left)
        os.close(fd)


def _units(shape: ManyQueues, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    units = np.tile(np.frombuffer(_UNIT, np.uint8), (len(numbers), 1))

    def put(at: int, values: npt.NDArray[Any]) -> None:
        units[:, at : at + values.itemsize] = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)

    lane = numbers % shape.queues
    put(0, np.full(len(numbers), UNIT_SIZE, ">i4"))
    put(QUEUE_ID_AT, (lane % QUEUES_OF_TOPIC).astype(">i4"))
    put(QUEUE_OFFSET_AT, (numbers // shape.queues).astype(">i8"))
    put(PHYSICAL_OFFSET_AT, _positions(shape, numbers).astype(">i8"))
    put(STORE_TIME_AT, (START_TIME + numbers // 1000).astype(">i8"))
    put(_UNIT.index(b"Topic"), _names(lane // QUEUES_OF_TOPIC))
    return units


def _names(topics: npt.NDArray[np.int64]) -> npt.NDArray[np.bytes_]:
    every = np.array([_TOPIC % number for number in range(int(topics.max(initial=0)) + 1)], "S")
    found: npt.NDArray[np.bytes_] = every[topics]
    return found


def _queue_units(shape: ManyQueues, lane: int) -> npt.NDArray[Any]:
    units = np.zeros(shape.rounds, CQ_UNIT)
    units["phy"] = _positions(shape, np.arange(shape.rounds) * shape.queues + lane)
    units["size"] = UNIT_SIZE
    return units


def _write_files(directory: Path, shape: ManyQueues) -> None:
    for lane in range(shape.queues):
        queue = directory / (_TOPIC % (lane // QUEUES_OF_TOPIC)) / str(lane % QUEUES_OF_TOPIC)
        queue.mkdir(parents=True)
        fd = create(queue / f"{0:020d}", CQ_FILE_UNITS * CQ_UNIT.itemsize)
        os.pwrite(fd, _queue_units(shape, lane).tobytes(), 0)
        os.close(fd)


def _offsets(shape: ManyQueues, topic: int, group: int) -> dict[str, int]:
    """Where a group stands in the queues of a topic: at the end, or some messages before."""
    return {str(queue): shape.rounds - (topic + queue) * group % shape.rounds for queue in range(QUEUES_OF_TOPIC)}


def _topics(shape: ManyQueues) -> range:
    return range(shape.queues // QUEUES_OF_TOPIC)


def _write_json(root: Path, shape: ManyQueues) -> None:
    write_topics(root, [_TOPIC % topic for topic in _topics(shape)], QUEUES_OF_TOPIC)
    offsets = {
        f"{_TOPIC % topic}@Group{group}": _offsets(shape, topic, group)
        for topic in _topics(shape)
        for group in range(GROUPS)
    }
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))


# ---- a RocksDB


def _write_configuration(directory: Path, shape: ManyQueues) -> None:
    entry = {"order": False, "perm": 6, "readQueueNums": QUEUES_OF_TOPIC, "writeQueueNums": QUEUES_OF_TOPIC}
    topics = [
        ((_TOPIC % topic).encode(), json.dumps({**entry, "topicName": _TOPIC % topic}).encode())
        for topic in _topics(shape)
    ]
    offsets = [
        (f"{_TOPIC % topic}@Group{group}".encode(), json.dumps({"offsetTable": _offsets(shape, topic, group)}).encode())
        for topic in _topics(shape)
        for group in range(GROUPS)
    ]
    for name, pairs in (("topics", topics), ("consumerOffsets", offsets)):
        _write_database(directory / name, [_Rows.of(pairs)])


@dataclass(frozen=True)
class _Rows:
    """Entries of a table, each of as many bytes as all."""

    first: bytes  # the first and the last internal key
    last: bytes
    blocks: list[tuple[bytes, bytes]]  # the last key of each, and its bytes

    @classmethod
    def of(cls, pairs: Sequence[tuple[bytes, bytes]]) -> _Rows:
        entries = [(key + _SEQUENCE, value) for key, value in pairs]
        some = [entries[at : at + BLOCK_ENTRIES] for at in range(0, len(entries), BLOCK_ENTRIES)]
        return cls(entries[0][0], entries[-1][0], [(block[-1][0], _block(block)) for block in some])


_SEQUENCE = (1 << 8 | 1).to_bytes(8, "little")


def _tables_of_queues(shape: ManyQueues) -> Iterator[_Rows]:
    """The records of all queues, table by table."""
    lanes = max(1, TABLE_ENTRIES // shape.rounds)
    for first in range(0, shape.queues, lanes):
        lane = np.repeat(np.arange(first, min(shape.queues, first + lanes)), shape.rounds)
        number = np.tile(np.arange(shape.rounds), len(lane) // shape.rounds)
        topic = _names(lane // QUEUES_OF_TOPIC)
        size = topic.itemsize
        layout = np.dtype(
            [
                *(("sizes", "V3"), ("topicSize", ">i4"), ("a", "u1"), ("topic", f"S{size}"), ("b", "u1")),
                *(("queue", ">i4"), ("c", "u1"), ("offset", ">i8"), ("sequence", "V8")),
                *(("phy", ">i8"), ("size", ">i4"), ("tags", ">i8"), ("time", ">i8")),
            ]
        )
        rows = np.zeros(len(lane), layout)
        key_size = 4 + 1 + size + 1 + 4 + 1 + 8 + 8
        rows["sizes"], rows["sequence"] = bytes([0, key_size, 28]), _SEQUENCE
        rows["a"] = rows["b"] = rows["c"] = 1
        rows["topicSize"], rows["topic"], rows["queue"], rows["offset"] = size, topic, lane % QUEUES_OF_TOPIC, number
        rows["phy"], rows["size"] = _positions(shape, number * shape.queues + lane), UNIT_SIZE
        rows["time"] = START_TIME + (number * shape.queues + lane) // 1000
        blocks = []
        for at in range(0, len(rows), BLOCK_ENTRIES):
            data = rows[at : at + BLOCK_ENTRIES].tobytes()
            count = len(data) // layout.itemsize
            restarts = np.arange(0, len(data), layout.itemsize, dtype="<u4").tobytes() + struct.pack("<I", count)
            last = len(data) - layout.itemsize + 3
            blocks.append((data[last : last + key_size], data + restarts))
        yield _Rows(blocks[0][1][3 : 3 + key_size], blocks[-1][0], blocks)


def _bounds(shape: ManyQueues) -> _Rows:
    """The last record of each queue, as column family `offset` has it."""
    pairs = []
    for lane in range(shape.queues):
        topic = (_TOPIC % (lane // QUEUES_OF_TOPIC)).encode()
        queue_id, number = lane % QUEUES_OF_TOPIC, shape.rounds - 1
        position = number * shape.queues + lane
        key = struct.pack(">i", len(topic)) + b"\1" + topic + b"\1max\1" + struct.pack(">i", queue_id)
        pairs.append((key, struct.pack(">qq", int(_positions(shape, np.array([position]))[0]), number)))
    return _Rows.of(pairs)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _sized(text: bytes) -> bytes:
    return _varint(len(text)) + text


def _block(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
    parts = [b"\0" + _varint(len(key)) + _varint(len(value)) + key + value for key, value in entries]
    starts = [0, *itertools.accumulate(map(len, parts))][:-1]
    return b"".join(parts) + struct.pack(f"<{len(starts)}II", *starts, len(starts))


def _write_database(
    directory: Path, tables: Iterable[_Rows], families: Mapping[str, _Rows] = MappingProxyType({})
) -> None:
    """A database: the tables of column family `default`, and one of each other family."""
    directory.mkdir(parents=True)
    edits = [b"\x01" + _sized(b"leveldb.BytewiseComparator")]
    for family, name in enumerate(families, 1):
        edits.append(b"\xc8\1" + _varint(family) + b"\xc9\1" + _sized(name.encode()))
    number = 10
    others = enumerate(families.values(), 1)
    for family, table in itertools.chain(((0, table) for table in tables), others):
        size = _write_table(directory / f"{number:06}.sst", table.blocks)
        file = _varint(6) + _varint(number) + _varint(size) + _sized(table.first) + _sized(table.last)
        edits.append(b"\xc8\1" + _varint(family) + b"\x67" + file + b"\1\1\1")
        number += 1
    edits.append(b"\x02" + _varint(number) + b"\x03" + _varint(number + 2) + b"\x04\x01")
    manifest = bytearray()
    for edit in edits:
        for kind, part in _pieces(edit, len(manifest)):
            if kind == 0:
                manifest += part
            else:
                manifest += struct.pack("<IHB", masked_crc32c(bytes([kind]) + part), len(part), kind) + part
    (directory / f"MANIFEST-{number + 1:06}").write_bytes(manifest)
    (directory / "CURRENT").write_text(f"MANIFEST-{number + 1:06}\n")


def _pieces(record: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """A record of a log as pieces that end with a block; piece 0: zeros."""
    is_first = True
    while record or is_first:
        room = LOG_BLOCK - at % LOG_BLOCK
        if room < 7:
            yield 0, bytes(room)
            at += room
            continue
        part, record = record[: room - 7], record[room - 7 :]
        yield (2 if is_first else 3) if record else (1 if is_first else 4), part
        is_first, at = False, at + 7 + len(part)


def _write_table(path: Path, blocks: Sequence[tuple[bytes, bytes]]) -> int:
    codec, at = pa.Codec("lz4_raw"), 0
    with path.open("wb") as file:

        def add(block: bytes, packs: bool = False) -> bytes:
            nonlocal at
            kind = b"\4" if packs else b"\0"
            block = _varint(len(block)) + codec.compress(block, asbytes=True) if packs else block
            file.write(block + kind + struct.pack("<I", masked_crc32c(block + kind)))
            handle = _varint(at) + _varint(len(block))
            at += len(block) + 5
            return handle

        index = [(key, add(block, packs=True)) for key, block in blocks]
        properties = add(_block([(b"rocksdb.block.based.table.index.type", bytes(4))]))
        handles = add(_block([(b"rocksdb.properties", properties)])) + add(_block(index))
        file.write(b"\1" + handles.ljust(40, b"\0") + struct.pack("<IQ", 5, TABLE_MAGIC))
        return file.tell()
