"""Writes stores with many queues, segments or index files, and hardly a byte in them: what a large broker's store is
to whoever plans a read.

In each segment, or in one of several, a queue has one small message. Half of a segment's messages are at its start and
half at its end, in any order. Between them are large ones whose bodies are holes, which read as zeros: segments are
full as a real log's are, but for the last one, and may be cut in many places. In the last one a little stands in each
64 KiB of such a body, as no real body is megabytes of zeros, which look like the log's end. One topic has seven
messages in all.
Index files are as full as a broker leaves them: four items for each slot.
"""

from __future__ import annotations

import itertools
import os
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from generate import (
    BLANK,
    BODY_CRC_AT,
    BORN_TIME_AT,
    CQ_FILE_UNITS,
    CQ_UNIT,
    HEADER,
    INDEX_HEADER,
    INDEX_ITEM,
    MAGIC_BLANK,
    MAGIC_V1,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    START_TIME,
    STORE_TIME_AT,
    IntArray,
    continued,
    create,
    digits,
    java_hash,
    kept,
    write_checkpoint,
    write_index_file,
    write_topics,
)

FORMAT = 2  # raise it when the same arguments give other bytes, so that kept stores are written anew
QUEUES_OF_TOPIC = 5
QUEUES_OF_GROUP = 500
SMALL_TOPIC = "SmallTopic"  # with one queue
SMALL_COUNT = 7
LARGE_TOPIC = "LargeTopic"  # of what fills the segments; it has one queue
LARGE_OF_SEGMENT = 32
LARGE_OF_LAST = 2  # in the log's last segment, which is not full
ITEMS_OF_SLOT = 4
MARK, MARKS_APART = b"x", 64 * 1024  # what stands in large bodies of the last segment, and how far apart in its file
STORE_HOST = bytes((192, 0, 2, 100)) + (10911).to_bytes(4, "big")
UNIQ_PREFIX = "C0000201000118B4AAC2"  # of each UNIQ_KEY, before 12 digits
UNIQ_DIGITS, KEY_DIGITS = 12, 10
TAG = "TagA"
BODY = b'{"orderId":1,"note":"%s"}' % (b"basket " * 8)


def _template() -> bytes:
    """A message of the small topic; all but the large ones are as long."""
    pairs = {"KEYS": "0" * KEY_DIGITS, "UNIQ_KEY": UNIQ_PREFIX + "0" * UNIQ_DIGITS, "WAIT": "true", "TAGS": TAG}
    properties = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()
    topic = SMALL_TOPIC.encode()
    tail = struct.pack(">b", len(topic)) + topic + struct.pack(">h", len(properties)) + properties
    header = HEADER.pack(
        HEADER.size + len(BODY) + len(tail), MAGIC_V1, zlib.crc32(BODY) & 0x7FFFFFFF,
        0, 0, 0, 0, 0,
        0, bytes((192, 0, 2, 1)), 40_000,
        0, STORE_HOST[:4], int.from_bytes(STORE_HOST[4:], "big"),
        0, 0, len(BODY),
    )  # fmt: skip
    return header + BODY + tail


TEMPLATE = _template()
TAIL_AT = HEADER.size + len(BODY)


@dataclass(frozen=True)
class Shape:
    """What is asked for.

    Attributes:
        queues: of large topics, a multiple of QUEUES_OF_TOPIC.
        segments: at least 3.
        every: one of so many queues has a message in each segment, the others in one of so many segments.
        index_items: of each index file; more than its messages have keys are filled up with keys that nobody looks
            for. 0: those of its messages.
        groups: consumer groups; each has consumed QUEUES_OF_GROUP queues, or all.
    """

    queues: int
    segments: int
    every: int = 1
    index_files: int = 1
    index_items: int = 0
    segment_size: int = 1 << 30
    groups: int = 0
    format: int = FORMAT

    @property
    def topics(self) -> list[str]:
        """Their names, all of one length. Number `lane // QUEUES_OF_TOPIC` has queue `lane % QUEUES_OF_TOPIC`."""
        many = [f"Topic{number:05d}" for number in range(self.queues // QUEUES_OF_TOPIC)]
        return [*many, SMALL_TOPIC, LARGE_TOPIC]

    @property
    def small_lane(self) -> int:
        """The small topic's queue."""
        return self.queues

    @property
    def large_lane(self) -> int:
        """The large messages' queue."""
        return self.queues + QUEUES_OF_TOPIC


@dataclass(frozen=True)
class Message:
    """One in the middle of the log, and how it is found."""

    topic: str
    queueId: int
    queueOffset: int
    commitLogOffset: int
    key: str
    msgId: str
    offsetMsgId: str


@dataclass(frozen=True)
class WideStore:
    """What was written."""

    root: Path
    shape: Shape
    message: Message

    def chain(self, name: str) -> int:
        """How many items the slots hold in which a key or id of the message is looked up: a request for each."""
        hashed = abs(java_hash(f"{self.message.topic}#{name}"))
        count = 0
        for path in (self.root / "index").iterdir():
            slots = _slots(path.stat().st_size)
            rows = np.memmap(path, INDEX_ITEM, "r", INDEX_HEADER.size + 4 * slots)
            with path.open("rb") as file:
                used = INDEX_HEADER.unpack(file.read(INDEX_HEADER.size))[-1]
            count += int(np.count_nonzero(rows["hash"][1:used] % slots == hashed % slots))
        return count


def _slots(size: int) -> int:
    """Of an index file of that size, as write_index_file makes it here: ITEMS_OF_SLOT items to a slot, and one."""
    return max(1, (size - INDEX_HEADER.size - INDEX_ITEM.itemsize) // (4 + ITEMS_OF_SLOT * INDEX_ITEM.itemsize))


@dataclass(frozen=True)
class _Part:
    """The messages of a segment in log order. `number` counts them from the log's first one."""

    lane: IntArray  # of the queue (Shape.topics)
    queue_offset: IntArray
    number: IntArray
    position: IntArray  # physical offset
    size: IntArray

    @property
    def time(self) -> IntArray:
        """Store time in milliseconds."""
        return START_TIME + self.number


def wide_store(root: Path, shape: Shape) -> WideStore:
    """The store of this shape, written if it is not there."""

    def write(partial: Path) -> dict[str, Any]:
        return _write(partial, shape)

    return WideStore(root, shape, Message(**kept(root, asdict(shape), write)["message"]))


def _parts(shape: Shape) -> Iterator[_Part]:
    rng = np.random.default_rng(1)
    small = Counter(i * shape.segments // SMALL_COUNT for i in range(SMALL_COUNT))
    next_offset = np.zeros(shape.large_lane + 1, np.int64)
    number = 0
    for segment in range(shape.segments):
        busy = shape.queues // shape.every
        idle = np.arange(busy + segment % shape.every, shape.queues, shape.every)
        lanes = rng.permutation([*range(busy), *idle, *[shape.small_lane] * small[segment]])
        is_last = segment == shape.segments - 1
        large = LARGE_OF_LAST if is_last else LARGE_OF_SEGMENT
        used = shape.segment_size * large // LARGE_OF_SEGMENT - (0 if is_last else BLANK.size)
        bounds = np.linspace(0, used - len(lanes) * len(TEMPLATE), large + 1).astype(np.int64)
        if np.diff(bounds).min() <= len(TEMPLATE):
            raise SystemExit(f"segments of {shape.segment_size} bytes cannot hold messages of {shape.queues} queues")
        middle = len(lanes) // 2
        lane = np.insert(lanes, middle, np.full(large, shape.large_lane))
        size = np.insert(np.full(len(lanes), len(TEMPLATE)), middle, np.diff(bounds))
        position = segment * shape.segment_size + np.cumsum(size) - size
        yield _Part(lane, _next_offsets(lane, next_offset), number + np.arange(len(lane)), position, size)
        number += len(lane)


def _next_offsets(lane: IntArray, next_offset: IntArray) -> IntArray:
    """The queue offset of each message; `next_offset` goes on."""
    by_lane = np.argsort(lane, kind="stable")
    count = np.bincount(lane, minlength=len(next_offset))
    first = np.cumsum(count) - count
    found = np.empty(len(lane), np.int64)
    found[by_lane] = np.arange(len(lane)) - first[lane[by_lane]] + next_offset[lane[by_lane]]
    next_offset += count
    return found


def _write(root: Path, shape: Shape) -> dict[str, Any]:
    parts = list(_parts(shape))
    (root / "commitlog").mkdir()
    for part in parts:
        _write_segment(root / "commitlog", shape, part, is_last=part is parts[-1])
    _write_queues(root / "consumequeue", shape, parts)
    _write_index(root / "index", shape, parts)
    write_topics(root, shape.topics, QUEUES_OF_TOPIC)
    _write_offsets(root, shape)
    write_checkpoint(root, int(parts[-1].time[-1]))
    return {"message": asdict(_message(shape, parts[len(parts) // 2]))}


def _write_segment(directory: Path, shape: Shape, part: _Part, is_last: bool) -> None:
    start = int(part.position[0])
    fd = create(directory / f"{start:020d}", shape.segment_size)
    units = _units(shape, part)
    large = np.flatnonzero(part.lane == shape.large_lane).tolist()
    for first, stop in zip([0, *(i + 1 for i in large)], [*large, len(units)], strict=True):
        if first < len(units):
            os.pwrite(fd, units[first:stop].tobytes(), int(part.position[first]) - start)
    for i in large:
        at, end = int(part.position[i]) - start, int(part.position[i] + part.size[i]) - start
        os.pwrite(fd, units[i, : HEADER.size].tobytes(), at)
        os.pwrite(fd, units[i, TAIL_AT:].tobytes(), end - len(TEMPLATE) + TAIL_AT)
        if is_last:
            _mark_body(fd, at, end - at - len(TEMPLATE) + len(BODY))
    if not is_last:
        os.pwrite(fd, BLANK.pack(BLANK.size, MAGIC_BLANK), shape.segment_size - BLANK.size)
    os.close(fd)


def _mark_body(fd: int, message: int, length: int) -> None:
    """Write a little into a body of zeros, and its checksum.

    Args:
        message, length: the message's place in the file, and the bytes of its body.
    """
    at, body = message + HEADER.size, bytearray(length)
    for mark in range(-at % MARKS_APART, length, MARKS_APART):
        body[mark : mark + 1] = MARK
        os.pwrite(fd, MARK, at + mark)
    os.pwrite(fd, struct.pack(">I", zlib.crc32(body) & 0x7FFFFFFF), message + BODY_CRC_AT)


def _units(shape: Shape, part: _Part) -> npt.NDArray[np.uint8]:
    """A row for each message; a large one's has the body of a small one."""
    units = np.tile(np.frombuffer(TEMPLATE, np.uint8), (len(part.lane), 1))

    def put(at: int, values: npt.NDArray[Any], rows: Any = slice(None)) -> None:
        values = np.ascontiguousarray(values)
        units[rows, at : at + values.itemsize] = values.view(np.uint8).reshape(len(values), -1)

    put(QUEUE_ID_AT, (part.lane % QUEUES_OF_TOPIC).astype(">i4"))
    put(QUEUE_OFFSET_AT, part.queue_offset.astype(">i8"))
    put(PHYSICAL_OFFSET_AT, part.position.astype(">i8"))
    put(BORN_TIME_AT, part.time.astype(">i8"))
    put(STORE_TIME_AT, part.time.astype(">i8"))
    put(TEMPLATE.index(SMALL_TOPIC.encode()), np.array(shape.topics, "S")[part.lane // QUEUES_OF_TOPIC])
    put(TEMPLATE.index(b"KEYS\x01") + len(b"KEYS\x01"), digits(part.number, 10, KEY_DIGITS))
    put(TEMPLATE.index(UNIQ_PREFIX.encode()) + len(UNIQ_PREFIX), digits(part.number, 16, UNIQ_DIGITS))
    large = part.lane == shape.large_lane
    lengths = part.size[large] - len(TEMPLATE) + len(BODY)
    put(0, part.size.astype(">i4"))
    put(BODY_CRC_AT, np.array([_crc_of_zeros(length) for length in lengths.tolist()], ">i4"), large)
    put(HEADER.size - 4, lengths.astype(">i4"), large)
    return units


@cache
def _crc_of_zeros(length: int) -> int:
    return zlib.crc32(bytes(length)) & 0x7FFFFFFF


def _write_queues(directory: Path, shape: Shape, parts: list[_Part]) -> None:
    lane, size, position = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("lane", "size", "position")
    )
    by_lane = np.argsort(lane, kind="stable")
    units = np.empty(len(lane), CQ_UNIT)
    units["phy"], units["size"], units["tags_code"] = position[by_lane], size[by_lane], java_hash(TAG)
    stops = np.cumsum(np.bincount(lane)).tolist()
    topics = shape.topics
    for number, (start, stop) in enumerate(itertools.pairwise([0, *stops])):
        if start == stop:
            continue
        assert stop - start <= CQ_FILE_UNITS
        queue = directory / topics[number // QUEUES_OF_TOPIC] / str(number % QUEUES_OF_TOPIC)
        queue.mkdir(parents=True)
        fd = create(queue / f"{0:020d}", CQ_FILE_UNITS * CQ_UNIT.itemsize)
        os.pwrite(fd, units[start:stop].tobytes(), 0)
        os.close(fd)


def _write_index(directory: Path, shape: Shape, parts: list[_Part]) -> None:
    rng = np.random.default_rng(2)
    of_topic = np.array([java_hash(f"{topic}#") for topic in shape.topics])
    of_uniq = np.array([java_hash(f"{topic}#{UNIQ_PREFIX}") for topic in shape.topics])
    lane, number, position, time = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("lane", "number", "position", "time")
    )
    topic = lane // QUEUES_OF_TOPIC
    uniq_hash = continued(of_uniq[topic], digits(number, 16, UNIQ_DIGITS))
    key_hash = continued(of_topic[topic], digits(number, 10, KEY_DIGITS))
    bounds = _index_bounds(shape, lane)
    most = shape.index_items or 2 * max(stop - start for start, stop in itertools.pairwise(bounds))
    directory.mkdir()
    before = None
    for i, (start, stop) in enumerate(itertools.pairwise(bounds)):
        items = shape.index_items or 2 * (stop - start)
        message = start + np.arange(items) * (stop - start) // items  # of each item; each message has two at least
        first = np.flatnonzero(np.diff(message, prepend=-1))
        hashes = rng.integers(0, 1 << 31, items)
        hashes[first], hashes[first + 1] = uniq_hash[start:stop], key_hash[start:stop]
        keys = np.stack([hashes, position[message], time[message]], axis=1)
        write_index_file(directory, i, keys, before, max(1, most // ITEMS_OF_SLOT), most + 1)
        before = int(time[stop - 1])


def _write_offsets(root: Path, shape: Shape) -> None:
    """What each group has consumed: up to some message of each of its queues, or none."""
    rng = np.random.default_rng(3)
    topics = shape.topics[: shape.queues // QUEUES_OF_TOPIC]
    entries = []
    for group in range(shape.groups):
        for number in range(min(QUEUES_OF_GROUP // QUEUES_OF_TOPIC, len(topics))):
            topic = topics[(group * QUEUES_OF_GROUP // QUEUES_OF_TOPIC + number) % len(topics)]
            consumed = rng.integers(0, shape.segments // shape.every + 1, QUEUES_OF_TOPIC).tolist()
            queues = ",".join(f"{queue}:{offset}" for queue, offset in enumerate(consumed))
            entries.append(f'"{topic}@Group{group:05d}":{{{queues}}}')
    if entries:
        (root / "config" / "consumerOffset.json").write_text(f'{{"offsetTable":{{{",".join(entries)}}}}}')


def _index_bounds(shape: Shape, lane: IntArray) -> list[int]:
    """The first message of each index file, and the number of messages.

    Neither the last message of a file nor the first of the next is a large one: a look-up has to read them.
    """
    bounds: list[int] = np.linspace(0, len(lane), shape.index_files + 1).astype(int).tolist()
    for i in range(1, shape.index_files):
        while shape.large_lane in lane[bounds[i] - 1 : bounds[i] + 1]:
            bounds[i] += 1
    return bounds


def _message(shape: Shape, part: _Part) -> Message:
    lanes = part.lane.tolist()
    at = next(i for i in range(shape.queues // shape.every // 4, len(lanes)) if lanes[i] < shape.small_lane)
    lane, number, position = int(part.lane[at]), int(part.number[at]), int(part.position[at])
    return Message(
        topic=shape.topics[lane // QUEUES_OF_TOPIC],
        queueId=lane % QUEUES_OF_TOPIC,
        queueOffset=int(part.queue_offset[at]),
        commitLogOffset=position,
        key=f"{number:0{KEY_DIGITS}d}",
        msgId=f"{UNIQ_PREFIX}{number:0{UNIQ_DIGITS}X}",
        offsetMsgId=f"{STORE_HOST.hex()}{position:016x}".upper(),
    )
