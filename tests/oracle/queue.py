"""ConsumeQueues: their units, and what a log makes of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from oracle.java import java_hash, java_properties
from oracle.unit import PREPARED, ROLLBACK, TRANSACTION_BITS, Unit


class QueueUnit(NamedTuple):
    physical_offset: int
    size: int  # of the whole unit
    tags_code: int


# | 8 physicalOffset | 4 size of the unit | 8 tagsCode |   queue offset = (file name + place in the file) / 20
_QUEUE_UNIT = struct.Struct(">qiq")
QUEUE_UNIT_SIZE = 20
PRE_BLANK = QueueUnit(0, 0x7FFFFFFF, 0)  # stands for the queue offsets before the first of a queue


def decode_queue_unit(data: bytes) -> QueueUnit:
    return QueueUnit(*_QUEUE_UNIT.unpack(data))


def encode_queue_unit(physical_offset: int, size: int, tags_code: int) -> bytes:
    return _QUEUE_UNIT.pack(physical_offset, size, tags_code)


def read_queues(root: str | Path) -> Iterator[tuple[str, int, int, QueueUnit]]:
    """Topic, queue id, queue offset and unit of all there is on disk, stale ones too; pre-blank units are left out."""
    for file in sorted((Path(root) / "consumequeue").glob("*/*/*")):
        data = file.read_bytes()
        for at in range(0, len(data), QUEUE_UNIT_SIZE):
            unit = decode_queue_unit(data[at : at + QUEUE_UNIT_SIZE])
            if unit.physical_offset < 0 or unit.size <= 0:  # not written yet
                break
            if unit != PRE_BLANK:
                queue_offset = (int(file.name) + at) // QUEUE_UNIT_SIZE
                yield file.parent.parent.name, int(file.parent.name), queue_offset, unit


SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_SECOND, _MINUTE, _HOUR = 1_000, 60_000, 3_600_000
DELAY_LEVELS = (
    *(1 * _SECOND, 5 * _SECOND, 10 * _SECOND, 30 * _SECOND),
    *(minutes * _MINUTE for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(1 * _HOUR, 2 * _HOUR),
)


def tags_code(topic: str, properties: Mapping[str, str], store_timestamp: int) -> int:
    """Hash of the tag; in the topic that parks delayed messages, the time of delivery."""
    level = int(properties.get("DELAY", 0)) if topic == SCHEDULE_TOPIC else 0
    if level > 0:
        return store_timestamp + DELAY_LEVELS[min(level, len(DELAY_LEVELS)) - 1]
    return java_hash(properties.get("TAGS", ""))


def expected_queues(units: Sequence[tuple[int, Unit]], file_size: int) -> dict[str, bytes]:
    """The ConsumeQueue files of a log whose queueOffsets have no gaps."""
    made: dict[str, bytearray] = {}
    for at, unit in units:
        if unit.sys_flag & TRANSACTION_BITS in (PREPARED, ROLLBACK):
            assert unit.queue_offset == 0
            continue
        start, inside = divmod(unit.queue_offset * QUEUE_UNIT_SIZE, file_size)
        name = f"{unit.topic.decode()}/{unit.queue_id}/{start * file_size:020d}"
        code = tags_code(unit.topic.decode(), java_properties(unit.properties), unit.store_timestamp)
        if name not in made:
            made[name] = bytearray(file_size)
            if not any(other.startswith(f"{unit.topic.decode()}/{unit.queue_id}/") for other in set(made) - {name}):
                made[name][:inside] = encode_queue_unit(*PRE_BLANK) * (inside // 20)
        assert made[name][inside] == 0
        made[name][inside : inside + 20] = encode_queue_unit(at, unit.total_size, code)
    return {name: bytes(data) for name, data in made.items()}


LOST_SIZE = 9  # of what a salvage puts into a queue for a message that it has not found
_BATCH_UNIT = struct.Struct(">qiqqqhii")  # and a BatchCQ's: storeTimestamp, first queue offset, messages, -1, 0
BATCH_UNIT_SIZE = 46
_LONGS = 1 << 63


class ReadUnit(NamedTuple):
    """A unit of a queue file, and what it stands for: "nothing", "pre-blank", "lost" or "message"."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    queue_offset: int
    messages: int
    kind: str


def read_queue_unit(data: bytes, number: int) -> ReadUnit:
    """The unit of this number, by the rules of ConsumeQueue.recover and BatchConsumeQueue.recover. To these, lost
    messages of a batch queue take the offsets that their unit says."""
    physical_offset, size, code = _QUEUE_UNIT.unpack(data[:QUEUE_UNIT_SIZE])
    kind, time, base, count = "message", 0, number, 1
    if physical_offset < 0 or size <= 0 or physical_offset + size >= _LONGS:
        kind = "nothing"
    elif len(data) == BATCH_UNIT_SIZE:
        _, _, _, time, base, count, _, _ = _BATCH_UNIT.unpack(data)
        if base < 0 or count <= 0 or base + count >= _LONGS:
            kind = "nothing"
    if kind == "message" and (physical_offset, size) == PRE_BLANK[:2]:
        kind = "pre-blank"
    elif kind == "message" and size == LOST_SIZE:
        kind = "lost"
    if kind not in ("message", "lost"):
        time, base, count = 0, number, 1
    return ReadUnit(physical_offset, size, code, time, base, count, kind)


def encode_batch_unit(physical_offset: int, size: int, tags_code: int, time: int, base: int, count: int) -> bytes:
    return _BATCH_UNIT.pack(physical_offset, size, tags_code, time, base, count, -1, 0)
