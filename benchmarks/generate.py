"""Writes a synthetic RocketMQ store: V1 units with IPv4 hosts and 6-7 properties, queues, index files, a checkpoint.

    python benchmarks/generate.py DIR --bytes 1GiB --body 1024 --segment 1GiB [--topics 4 --queues 8 --seed 1 --check]
        [--dledger] [--batch 10 --batch-topics 1]

A unit costs about a microsecond: whole units are made once (a pool of templates), laid end to end with one join per
chunk, and what differs from unit to unit (queue, offsets, times, ids) is then stored into the chunk with numpy. The
store is as a broker leaves it after a clean stop. DIR.spec.json, beside it, says what DIR holds, so an equal request is
not written again. With --dledger the same messages are in the store of a DLedger node, behind the headers of entries.
With --batch units of the first topics are batches (BatchCQ) of so many messages; each topic has about as many bytes.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import re
import shutil
import struct
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# A V1 unit with IPv4 hosts up to its body: totalSize, magic, bodyCRC, queueId, flag, queueOffset, physicalOffset,
# sysFlag, bornTimestamp, bornHost (address, port), storeTimestamp, storeHost (address, port), reconsumeTimes,
# preparedTransactionOffset, bodyLength. Then: body, i8 + topic, i16 + properties.
HEADER = struct.Struct(">iIiiiqqiq4siq4siiqi")
MAGIC_V1 = 0xDAA320A7
MAGIC_BLANK = 0xCBD43194
BODY_CRC_AT, QUEUE_ID_AT, QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT, BORN_TIME_AT, STORE_TIME_AT = 8, 12, 20, 28, 40, 56
BLANK = struct.Struct(">iI")
ENTRY = struct.Struct(">iiqqqiiii")  # magic, size, index, term, position, channel, chainCrc, bodyCrc, bodyLength
ENTRY_INDEX_AT, ENTRY_POSITION_AT = 8, 24
NODE = "dledger-n0"
NODE_INDEX_UNIT = np.dtype([("magic", ">i4"), ("phy", ">i8"), ("size", ">i4"), ("index", ">i8"), ("term", ">i8")])
NODE_INDEX_FILE_UNITS = 5_242_880  # 160 MiB
CQ_UNIT = np.dtype([("phy", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
CQ_FILE_UNITS = 300_000
BATCH_CQ_UNIT = np.dtype(
    [
        *(("phy", ">i8"), ("size", ">i4"), ("tags_code", ">i8")),
        *(("time", ">i8"), ("base", ">i8"), ("messages", ">i2"), ("rest", ">i4", 2)),
    ]
)
INNER = struct.Struct(">iiiii")  # a message in a batch up to its body: totalSize, 0, 0, flag, bodyLength
BATCH = 0xC0  # sysFlag: NEED_UNWRAP and INNER_BATCH
CHECKPOINT_SIZE = 4096

INDEX_HEADER = struct.Struct(">qqqqii")
INDEX_ITEM = np.dtype([("hash", ">i4"), ("phy", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
SLOTS, ITEMS = 5_000_000, 20_000_000  # maxHashSlotNum, maxIndexNum

FORMAT = 3  # raise it when the same arguments give other bytes, so that kept stores are written anew
POOL = 4096  # templates: enough that neighbours differ in every length, few enough to be made in a blink
CHUNK = 32_768  # units laid out at a time
START_TIME = 1_760_000_000_000
MONTH_START = 1_759_276_800_000  # UNIQ_KEY counts milliseconds since the sender's month began
UNITS_PER_MS = 5
WORDS = ("order", "paid", "shipped", "returned", "customer", "basket", "warehouse", "courier", "refund", "price")
TAGS = ("TagA", "TagB", "create", "update", "delete", "pay")
KEY_DIGITS = 10
COMPRESSED, COMPRESSION_SHIFT = 1, 8  # bits of sysFlag
COMPRESSIONS = {"lz4": 1, "zstd": 2, "zlib": 3}  # org.apache.rocketmq.common.compression.CompressionType

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Spec:
    """What was asked for."""

    total_bytes: int
    body_size: int
    segment_size: int
    topics: int
    queues: int
    seed: int
    dledger: bool
    batch: int = 0  # messages in a unit of a topic with batches
    batch_topics: int = 0
    compression: str = ""  # of bodies: a name of COMPRESSIONS
    format: int = FORMAT

    @property
    def header(self) -> int:
        """The bytes before each unit."""
        return ENTRY.size if self.dledger else 0

    @property
    def log(self) -> str:
        """The directory of the log, below the store."""
        return f"{NODE}/data" if self.dledger else "commitlog"


@dataclass(frozen=True)
class Store:
    """What was written: `end` is the physical offset behind the last unit."""

    root: Path
    spec: Spec
    units: int
    messages: int
    end: int
    segments: int


@dataclass(frozen=True)
class Written:
    """The rest of a Store, as it is kept beside it."""

    units: int
    messages: int
    end: int
    segments: int


@dataclass(frozen=True)
class Template:
    """One complete unit, and where the fields lie in it that differ between its copies."""

    unit: bytes
    topic: int
    tags_code: int
    keys_at: int  # of the KEYS digits; -1 without KEYS
    uniq_at: int  # of the time and counter digits of UNIQ_KEY
    hashes: tuple[int, int, int]  # String.hashCode of the index keys: UNIQ_KEY and KEYS up to those digits, second word
    inner_keys_at: tuple[int, ...] = ()  # the same of each message in a batch
    inner_uniq_at: tuple[int, ...] = ()
    base_at: int = -1  # of the digits of INNER_BASE
    body_at: tuple[int, int] = (0, 0)  # of a batch's body: where it begins and ends

    @property
    def messages(self) -> int:
        """How many messages it holds."""
        return len(self.inner_keys_at) or 1


def generate(
    root: str | os.PathLike[str],
    total_bytes: int,
    body_size: int,
    segment_size: int = 1 << 30,
    topics: int = 4,
    queues: int = 8,
    seed: int = 1,
    dledger: bool = False,
    batch: int = 0,
    batch_topics: int = 0,
    compression: str = "",
) -> Store:
    """Write a store whose log ends at most at `total_bytes`, or return the one already there if it is the same."""
    spec = Spec(total_bytes, body_size, segment_size, topics, queues, seed, dledger, batch, batch_topics, compression)
    made = kept(Path(root), asdict(spec), lambda partial: asdict(_write(partial, spec)))
    return Store(Path(root), spec, **made)


def kept(root: Path, spec: dict[str, Any], write: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """What `write` told of a store when it wrote one into the directory that it was given; it writes only where
    `root` is not there, or was made for another `spec`. Both are noted beside it, as JSON."""
    note = root.with_name(root.name + ".spec.json")
    if root.exists():
        if not note.exists():
            raise SystemExit(f"{root} exists and {note} does not: not written by this generator, so it is left alone")
        found: dict[str, Any] = json.loads(note.read_text())
        if found.pop("spec") == spec:
            return found
    partial = root.with_name(root.name + ".partial")
    if partial.exists():
        shutil.rmtree(partial)
    if root.exists():  # renamed first: a half-deleted store must never stand under a name with a spec
        root.rename(partial)
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    made = write(partial)
    note.write_text(json.dumps({"spec": spec, **made}) + "\n")
    partial.rename(root)
    return made


def _write(root: Path, spec: Spec) -> Written:
    rng = np.random.default_rng(spec.seed)
    templates = [_template(rng, spec) for _ in range(POOL)]
    blobs = [_entry(t.unit) if spec.dledger else t.unit for t in templates]
    sizes = np.array([len(b) for b in blobs], np.int64)
    unit_sizes = sizes - spec.header
    topic_of = np.array([t.topic for t in templates], np.int64)
    tags_code_of = np.array([t.tags_code for t in templates], np.int64)
    keys_at = np.array([t.keys_at for t in templates], np.int64)
    has_user = np.array([t.hashes[2] != 0 for t in templates])
    hash_of = np.array([t.hashes for t in templates], np.int64)
    keys: list[npt.NDArray[np.int64]] = []  # of (hash, physical offset, store time), in a broker's order
    uniq_at = np.array([t.uniq_at for t in templates], np.int64)
    messages_of = np.array([t.messages for t in templates], np.int64)
    if sizes.max() + BLANK.size > spec.segment_size:
        raise SystemExit(f"segments of {spec.segment_size} bytes cannot hold units of {sizes.max()} bytes")

    next_offset = np.zeros(spec.topics * spec.queues, np.int64)  # per (topic, queue)
    next_unit = np.zeros_like(next_offset)
    position, segment_end, number, segments, store_time = 0, spec.segment_size, 0, 1, 0
    message = 0  # the number of the next one
    (root / spec.log).mkdir(parents=True)
    segment = create(root / spec.log / f"{0:020d}", spec.segment_size)
    picks = np.empty(0, np.int64)
    while True:
        if len(picks) == 0:
            picks = rng.integers(0, POOL, CHUNK)
        ends = position + np.cumsum(sizes[picks])
        # The broker's rule: a unit goes into the file only if 8 bytes for a blank are left behind it.
        limit = min(segment_end - BLANK.size, spec.total_bytes)
        fit = int(np.searchsorted(ends, limit, side="right"))
        if fit:
            chosen, picks = picks[:fit], picks[fit:]
            begins = ends[:fit] - sizes[chosen]
            at = begins + spec.header
            messages = messages_of[chosen]
            index = message + np.cumsum(messages) - messages
            times = START_TIME + index // UNITS_PER_MS
            queue = rng.integers(0, spec.queues, fit)
            lane = topic_of[chosen] * spec.queues + queue
            by_lane = np.argsort(lane, kind="stable")
            per_lane = np.bincount(lane, minlength=len(next_offset))
            first = np.cumsum(per_lane) - per_lane
            before = np.cumsum(messages[by_lane]) - messages[by_lane]  # of the units in the order of lanes
            in_lane = np.bincount(lane, messages, len(next_offset)).astype(np.int64)
            queue_offset = np.empty(fit, np.int64)
            queue_offset[by_lane] = before - (np.cumsum(in_lane) - in_lane - next_offset)[lane[by_lane]]

            data = np.frombuffer(bytearray().join([blobs[i] for i in chosen.tolist()]), np.uint8)
            unit = at - position  # where it begins in `data`
            _store(data, unit + QUEUE_ID_AT, queue.astype(">i4"))
            _store(data, unit + QUEUE_OFFSET_AT, queue_offset.astype(">i8"))
            _store(data, unit + PHYSICAL_OFFSET_AT, at.astype(">i8"))
            _store(data, unit + BORN_TIME_AT, (times - rng.integers(0, 16, fit)).astype(">i8"))
            _store(data, unit + STORE_TIME_AT, times.astype(">i8"))
            _store(data, unit + uniq_at[chosen], digits((times - MONTH_START << 16) | (index & 0xFFFF), 16, 12))
            keyed = keys_at[chosen] >= 0
            _store(data, (unit + keys_at[chosen])[keyed], digits(index[keyed], 10, KEY_DIGITS))
            if spec.dledger:
                _store(data, begins - position + ENTRY_INDEX_AT, np.arange(number, number + fit).astype(">i8"))
                _store(data, begins - position + ENTRY_POSITION_AT, begins.astype(">i8"))
                _append_node_index(root / NODE / "index", number, begins, sizes[chosen])
            if spec.batch:
                _fill_batches(data, unit, [templates[i] for i in chosen.tolist()], index, times, queue_offset)
            os.pwrite(segment, data.data, position - (segment_end - spec.segment_size))
            hashes = np.stack(
                [
                    continued(hash_of[chosen, 0], digits((times - MONTH_START << 16) | (index & 0xFFFF), 16, 12)),
                    continued(hash_of[chosen, 1], digits(index, 10, KEY_DIGITS)),
                    hash_of[chosen, 2],
                ]
            )
            has_key = np.stack([np.ones(fit, bool), keyed, has_user[chosen]])
            rows = np.stack([hashes, np.tile(at, (3, 1)), np.tile(times, (3, 1))], axis=2)
            keys.append(rows.transpose(1, 0, 2)[has_key.T])

            entries = np.zeros(fit, BATCH_CQ_UNIT)
            entries["phy"], entries["size"], entries["tags_code"] = at, unit_sizes[chosen], tags_code_of[chosen]
            entries["time"], entries["base"], entries["messages"] = times, queue_offset, messages
            entries["rest"] = -1, 0
            entries = entries[by_lane]
            for number_of_lane in np.flatnonzero(per_lane).tolist():
                start = int(first[number_of_lane])
                mine = entries[start : start + int(per_lane[number_of_lane])]
                topic, queue_id = divmod(number_of_lane, spec.queues)
                is_batch = topic < spec.batch_topics
                above = root / ("batchconsumequeue" if is_batch else "consumequeue")
                directory = above / _topic(topic).decode() / str(queue_id)
                mine = mine if is_batch else mine[list(CQ_UNIT.names or ())].astype(CQ_UNIT)
                _append_queue(directory, int(next_unit[number_of_lane]), mine)
            next_offset += in_lane
            next_unit += per_lane
            number += fit
            message += int(messages.sum())
            position = int(ends[fit - 1])
            store_time = int(times[-1])
        if len(picks) == 0:
            continue
        if segment_end + int(sizes[picks[0]]) > spec.total_bytes:  # the log ends here: no blank, no further file
            break
        left = segment_end - position
        blank = struct.pack(">ii", -1, left) if spec.dledger else BLANK.pack(left, MAGIC_BLANK)
        os.pwrite(segment, blank, position % spec.segment_size)
        os.close(segment)
        segment = create(root / spec.log / f"{segment_end:020d}", spec.segment_size)
        position, segment_end, segments = segment_end, segment_end + spec.segment_size, segments + 1
    os.close(segment)
    _write_index(root / "index", np.concatenate(keys))
    write_checkpoint(root, store_time)
    if spec.dledger:
        (root / NODE / "checkpoint").write_text(f"committedIndex={number - 1}\nendIndex={number - 1}\n")
        (root / NODE / "currterm").write_text("voteLeader=n0\ncurrTerm=0\n")
    if spec.batch:
        write_topics(root, [_topic(topic).decode() for topic in range(spec.topics)], spec.queues, spec.batch_topics)
    return Written(number, message, position, segments)


def _fill_batches(
    data: npt.NDArray[np.uint8],
    starts: IntArray,
    templates: list[Template],
    index: IntArray,
    times: IntArray,
    queue_offset: IntArray,
) -> None:
    """Fill in what differs from batch to batch: keys and ids of the messages in them, INNER_BASE, and bodyCRC.

    Args:
        starts: where the units begin in the data.
        index: the number of each unit's first message.
    """
    batches = [at for at, template in enumerate(templates) if template.base_at >= 0]
    if not batches:
        return
    count = templates[batches[0]].messages
    begin = starts[batches][:, np.newaxis]
    numbers = (index[batches][:, np.newaxis] + np.arange(count)).ravel()
    keys_at = (begin + np.array([templates[at].inner_keys_at for at in batches])).ravel()
    uniq_at = (begin + np.array([templates[at].inner_uniq_at for at in batches])).ravel()
    _store(data, keys_at, digits(numbers, 10, KEY_DIGITS))
    when = np.repeat(times[batches] - MONTH_START, count)
    _store(data, uniq_at, digits((when << 16) | (numbers & 0xFFFF), 16, 12))
    base_at = begin.ravel() + np.array([templates[at].base_at for at in batches])
    _store(data, base_at, digits(queue_offset[batches], 10, KEY_DIGITS))
    view = data.data
    for at, start in zip(batches, starts[batches].tolist(), strict=True):
        first, end = templates[at].body_at
        crc = zlib.crc32(view[start + first : start + end]) & 0x7FFFFFFF
        struct.pack_into(">i", view, start + BODY_CRC_AT, crc)


def _entry(unit: bytes) -> bytes:
    """An entry of DLedger with this unit."""
    return ENTRY.pack(1, ENTRY.size + len(unit), 0, 0, 0, 0, 0, 0, len(unit)) + unit


def _append_node_index(directory: Path, first: int, begins: IntArray, sizes: IntArray) -> None:
    """DLedger's own index: where each entry is, from the one with number `first` on."""
    units = np.zeros(len(begins), NODE_INDEX_UNIT)
    units["magic"], units["phy"], units["size"] = 1, begins, sizes
    units["index"] = np.arange(first, first + len(begins))
    _append_units(directory, first, units, NODE_INDEX_FILE_UNITS)


def _write_index(directory: Path, keys: npt.NDArray[np.int64]) -> None:
    """IndexFiles as a broker fills them: rows of `keys` are (hash, physical offset, store time)."""
    directory.mkdir()
    for number, first in enumerate(range(0, len(keys), ITEMS - 1)):
        before = int(keys[first - 1, 2]) if first else None
        write_index_file(directory, number, keys[first : first + ITEMS - 1], before, SLOTS, ITEMS)


def write_index_file(
    directory: Path, number: int, keys: npt.NDArray[np.int64], time_before: int | None, slots: int, items: int
) -> None:
    """One of them, which has room for `items - 1` rows.

    Args:
        number: of the file.
        time_before: the store time (ms) of the last row in the file before, None in the first file.
    """
    hashes, positions, times = keys.T
    hashes = np.abs((hashes + (1 << 31)) % (1 << 32) - (1 << 31))  # the remainder as a signed 32-bit number
    hashes[hashes == 1 << 31] = 0
    slot = hashes % slots
    rows = np.zeros(len(hashes) + 1, INDEX_ITEM)  # item 0 is never used
    rows["hash"][1:], rows["phy"][1:] = hashes, positions
    # The first item of a later file is counted from the end of the file before, until this one has a begin.
    begin = np.full(len(times), times[0])
    begin[0] = times[0] if time_before is None else time_before
    rows["seconds"][1:] = (times - begin) // 1000
    by_slot = np.argsort(slot, kind="stable")
    same = slot[by_slot][1:] == slot[by_slot][:-1]
    rows["previous"][1 + by_slot[1:][same]] = 1 + by_slot[:-1][same]
    heads = np.zeros(slots, ">i4")
    heads[slot] = np.arange(1, len(hashes) + 1)  # of several, the last one stays
    header = INDEX_HEADER.pack(
        times[0], times[-1], positions[0], positions[-1], int(np.count_nonzero(heads)), len(hashes) + 1
    )
    fd = create(directory / f"{20251009000000000 + number:017d}", INDEX_HEADER.size + 4 * slots + rows.itemsize * items)
    os.pwrite(fd, header, 0)
    os.pwrite(fd, heads.tobytes(), INDEX_HEADER.size)
    os.pwrite(fd, rows.tobytes(), INDEX_HEADER.size + heads.nbytes)
    os.close(fd)


def write_topics(root: Path, topics: Iterable[str], queues: int, batch_topics: int = 0) -> None:
    """config/topics.json: the topics that a broker on this store serves, with so many queues each; the first ones have
    queues of batches."""
    shape = {"perm": 6, "readQueueNums": queues, "writeQueueNums": queues, "topicFilterType": "SINGLE_TAG"}
    table = {
        "topicConfigTable": {
            topic: {"topicName": topic, **shape}
            | ({"attributes": {"queue.type": "BatchCQ"}} if number < batch_topics else {})
            for number, topic in enumerate(topics)
        }
    }
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(json.dumps(table))


def write_checkpoint(root: Path, store_time: int) -> None:
    """`checkpoint` after a clean stop: the store time (ms) of the last message."""
    (root / "checkpoint").write_bytes(struct.pack(">qqq", store_time, store_time, 0).ljust(CHECKPOINT_SIZE, b"\0"))


def continued(hashes: IntArray, text: npt.NDArray[Any]) -> IntArray:
    """String.hashCode of texts of which the first part has these hashes (modulo 2**32)."""
    for char in text.view(np.uint8).reshape(len(text), -1).T:
        hashes = (31 * hashes + char) & 0xFFFFFFFF
    return hashes


def create(path: Path, size: int) -> int:
    """As a broker does: full length at once, so what is never written is a hole of zeros."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    os.truncate(fd, size)
    return fd


def _append_queue(directory: Path, first: int, entries: npt.NDArray[Any]) -> None:
    _append_units(directory, first, entries, CQ_FILE_UNITS)


def _append_units(directory: Path, first: int, units: npt.NDArray[Any], in_file: int) -> None:
    """Units of one size, from number `first` on, into files with so many each, named after their first byte."""
    while len(units):
        file_number, unit = divmod(first, in_file)
        path = directory / f"{file_number * in_file * units.itemsize:020d}"
        if unit == 0:
            directory.mkdir(parents=True, exist_ok=True)
            fd = create(path, in_file * units.itemsize)
        else:
            fd = os.open(path, os.O_RDWR)
        part = units[: in_file - unit]
        os.pwrite(fd, part.tobytes(), unit * units.itemsize)
        os.close(fd)
        first, units = first + len(part), units[len(part) :]


def _store(data: npt.NDArray[np.uint8], at: IntArray, values: npt.NDArray[Any]) -> None:
    """Store each value at its own byte position, unaligned: through a view whose items begin at every byte."""
    np.ndarray((len(data) - values.itemsize + 1,), values.dtype, data, strides=(1,))[at] = values


def digits(numbers: IntArray, base: int, count: int) -> npt.NDArray[Any]:
    text = np.empty((len(numbers), count), np.uint8)
    alphabet = np.frombuffer(b"0123456789ABCDEF", np.uint8)
    for place in range(count - 1, -1, -1):
        numbers, digit = np.divmod(numbers, base)
        text[:, place] = alphabet[digit]
    return text.view(f"V{count}").ravel()


def _topic(number: int) -> bytes:
    return b"BenchTopic%02d" % number


def _template(rng: np.random.Generator, spec: Spec) -> Template:
    if not spec.batch_topics:
        return _single(rng, spec, int(rng.integers(spec.topics)))
    # A batch is as many times as large as a message, so it is as many times as rare.
    weights = np.where(np.arange(spec.topics) < spec.batch_topics, 1, spec.batch)
    topic = int(rng.choice(spec.topics, p=weights / weights.sum()))
    return _batch(rng, spec, topic) if topic < spec.batch_topics else _single(rng, spec, topic)


def _single(rng: np.random.Generator, spec: Spec, topic: int) -> Template:
    """A unit with one message."""
    body = _message_body(rng, spec)
    tags = TAGS[int(rng.integers(len(TAGS)))] if rng.random() < 0.95 else ""
    client = int(rng.integers(1, 17))
    pairs = [("TRACE_ON", "true"), ("MSG_REGION", "DefaultRegion")]
    if rng.random() < 0.95 or not tags:  # so a unit has 6 or 7 properties
        pairs.append(("KEYS", "0" * KEY_DIGITS + (f" user{rng.integers(10_000)}" if rng.random() < 0.1 else "")))
    uniq = _id_of(client)
    pairs += [("UNIQ_KEY", uniq), ("CLUSTER", "DefaultCluster"), ("WAIT", "true")]
    if tags:
        pairs.append(("TAGS", tags))
    stored, sys_flag = _compressed(body, spec.compression)
    unit, before, properties = _unit(rng, topic, stored, pairs, client, sys_flag)
    keys_at = properties.find(b"KEYS\x01")
    words = dict(pairs).get("KEYS", "").split(" ")
    in_topic = _topic(topic).decode() + "#"
    return Template(
        unit,
        topic,
        java_hash(tags),
        before + keys_at + len(b"KEYS\x01") if keys_at >= 0 else -1,
        before + properties.index(b"UNIQ_KEY\x01") + len(b"UNIQ_KEY\x01") + 20,
        (java_hash(in_topic + uniq[:20]), java_hash(in_topic), java_hash(in_topic + words[1]) if words[1:] else 0),
    )


def _compressed(body: bytes, name: str) -> tuple[bytes, int]:
    """A body as a client stores it, and the sysFlag that says so."""
    if not name:
        return body, 0
    data = zlib.compress(body, 5) if name == "zlib" else pa.Codec(name).compress(body, asbytes=True)
    return data, COMPRESSED | COMPRESSIONS[name] << COMPRESSION_SHIFT


def _batch(rng: np.random.Generator, spec: Spec, topic: int) -> Template:
    """A unit with several messages, as a broker keeps what producers send together."""
    body, keys_at, uniq_at, client = b"", [], [], int(rng.integers(1, 17))
    for _ in range(spec.batch):
        inner = _message_body(rng, spec)
        tags = TAGS[int(rng.integers(len(TAGS)))]
        pairs = [("KEYS", "0" * KEY_DIGITS), ("UNIQ_KEY", _id_of(client)), ("WAIT", "true"), ("TAGS", tags)]
        properties = _joined(pairs)
        size = INNER.size + len(inner) + 2 + len(properties)
        at = HEADER.size + len(body) + size - len(properties)
        keys_at.append(at + len(b"KEYS\x01"))
        uniq_at.append(at + properties.index(b"UNIQ_KEY\x01") + len(b"UNIQ_KEY\x01") + 20)
        body += INNER.pack(size, 0, 0, 0, len(inner)) + inner + struct.pack(">h", len(properties)) + properties
    uniq = _id_of(client + 16)
    pairs = [("TRACE_ON", "true"), ("MSG_REGION", "DefaultRegion"), ("INNER_NUM", str(spec.batch))]
    pairs += [("UNIQ_KEY", uniq), ("CLUSTER", "DefaultCluster"), ("WAIT", "true"), ("INNER_BASE", "0" * KEY_DIGITS)]
    unit, before, outer = _unit(rng, topic, body, pairs, client, BATCH)
    return Template(
        unit,
        topic,
        0,
        -1,
        before + outer.index(b"UNIQ_KEY\x01") + len(b"UNIQ_KEY\x01") + 20,
        (java_hash(_topic(topic).decode() + "#" + uniq[:20]), 0, 0),
        tuple(keys_at),
        tuple(uniq_at),
        before + outer.index(b"INNER_BASE\x01") + len(b"INNER_BASE\x01"),
        (HEADER.size, HEADER.size + len(body)),
    )


def _id_of(client: int) -> str:
    """A UNIQ_KEY up to its last 12 digits, which are zeros."""
    return f"C00002{client:02X}{1000 + client:04X}{0x18B4AAC2 + client:08X}" + "0" * 12


def _joined(pairs: list[tuple[str, str]]) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()


def _unit(
    rng: np.random.Generator, topic: int, body: bytes, pairs: list[tuple[str, str]], client: int, sys_flag: int = 0
) -> tuple[bytes, int, bytes]:
    """A unit, where its properties begin in it, and the properties."""
    properties = _joined(pairs)
    tail = struct.pack(">b", len(_topic(topic))) + _topic(topic) + struct.pack(">h", len(properties))
    before = HEADER.size + len(body) + len(tail)
    header = HEADER.pack(
        before + len(properties), MAGIC_V1, zlib.crc32(body) & 0x7FFFFFFF,
        0, int(rng.integers(3)), 0, 0, sys_flag,
        0, bytes((192, 0, 2, client)), 40_000 + 1117 * client,
        0, bytes((192, 0, 2, 100)), 10911,
        0, 0, len(body),
    )  # fmt: skip
    return header + body + tail + properties, before, properties


def _message_body(rng: np.random.Generator, spec: Spec) -> bytes:
    return _body(rng, int(rng.integers(round(spec.body_size * 0.9), round(spec.body_size * 1.1) + 1)))


def _body(rng: np.random.Generator, size: int) -> bytes:
    text = f'{{"orderId":{rng.integers(10**8, 10**9)},"amount":{rng.integers(1, 10**5) / 100:.2f},"note":"'
    words = rng.integers(len(WORDS), size=size // 5 + 1)
    text += " ".join(WORDS[i] for i in words)
    return (text[: size - 2] + '"}').encode() if size >= 2 else b"x" * size


def java_hash(text: str) -> int:
    """String.hashCode; every tag here is ASCII, so characters are UTF-16 units."""
    h = 0
    for char in text:
        h = (31 * h + ord(char)) & 0xFFFFFFFF
    return h - (1 << 32) if h >= 1 << 31 else h


def check(root: Path, every: int = 997) -> str:
    """Walk the whole chain of units, decode every n-th completely, and hold it against its ConsumeQueue entry."""
    names = sorted(path.name for path in (root / "commitlog").iterdir())
    units, looked_at, last_time, position = 0, 0, 0, 0
    left = 0  # bytes left behind the last unit of the file before
    counts: dict[tuple[bytes, int], int] = {}
    for name in names:
        path = root / "commitlog" / name
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            base = int(name)
            _expect(len(name) == 20 and base == position, f"{name}: the file before ends at {position}")
            at = 0
            while at + 8 <= len(data):
                size, magic = BLANK.unpack_from(data, at)
                if magic != MAGIC_V1:
                    break
                _expect(at > 0 or left == 0 or left < size + 8, f"{name}: the first unit fits into the file before")
                fields = HEADER.unpack_from(data, at)
                topic_at = at + HEADER.size + fields[-1]
                topic = data[topic_at + 1 : topic_at + 1 + data[topic_at]]
                queue = (topic, fields[3])
                where = f"{name}+{at}"
                _expect(fields[6] == base + at, f"{where}: physicalOffset {fields[6]}")
                _expect(fields[5] == counts.get(queue, 0), f"{where}: queueOffset {fields[5]} in {queue}")
                _expect(fields[11] >= last_time, f"{where}: storeTimestamp runs back")
                counts[queue] = fields[5] + 1
                if units % every == 0:
                    _check_unit(root, data, at, where)
                    looked_at += 1
                last_time = fields[11]
                units += 1
                at += size
            left = len(data) - at
            if name != names[-1]:
                _expect((size, magic) == (left, MAGIC_BLANK), f"{name}+{at}: no blank")
            else:
                _expect(not any(data[at : at + (1 << 20)]), f"{name}+{at}: bytes after the end")
            position = base + len(data)
    for (topic, queue_id), count in counts.items():
        files = sorted((root / "consumequeue" / topic.decode() / str(queue_id)).iterdir())
        entries = np.concatenate([np.fromfile(f, CQ_UNIT) for f in files])
        _expect([int(f.name) for f in files] == [i * 6_000_000 for i in range(len(files))], f"{files}")
        _expect(len(entries) - count in range(CQ_FILE_UNITS), f"{topic!r}/{queue_id}: {len(files)} files")
        rest = entries[count:].tobytes().strip(b"\0")
        _expect(bool((entries["size"][:count] > 0).all()) and not rest, f"{topic!r}/{queue_id}: end")
    times = struct.unpack_from(">qqq", (root / "checkpoint").read_bytes())
    _expect(times == (last_time, last_time, 0), f"checkpoint: {times}, last store time {last_time}")
    return f"{units:,} units in {len(names)} segments, {len(counts)} queues; {looked_at:,} units decoded; all well"


def _check_unit(root: Path, data: mmap.mmap, at: int, where: str) -> None:
    fields = HEADER.unpack_from(data, at)
    cursor = at + HEADER.size + fields[-1]
    _expect(zlib.crc32(data[at + HEADER.size : cursor]) & 0x7FFFFFFF == fields[2], f"{where}: bodyCRC")
    topic = data[cursor + 1 : cursor + 1 + data[cursor]]
    cursor += 1 + len(topic)
    (length,) = struct.unpack_from(">h", data, cursor)
    text = data[cursor + 2 : cursor + 2 + length].decode()
    _expect(cursor + 2 + length == at + fields[0], f"{where}: totalSize {fields[0]}")
    properties = dict(pair.split("\x01") for pair in text.split("\x02")[:-1])
    _expect(len(properties) in (6, 7) and re.fullmatch("[0-9A-F]{32}", properties["UNIQ_KEY"]) is not None, where)
    start, unit = divmod(fields[5], CQ_FILE_UNITS)
    path = root / "consumequeue" / topic.decode() / str(fields[3]) / f"{start * 6_000_000:020d}"
    with path.open("rb") as file:
        entry = struct.unpack(">qiq", os.pread(file.fileno(), 20, unit * 20))
    _expect(entry == (fields[6], fields[0], java_hash(properties.get("TAGS", ""))), f"{where}: ConsumeQueue {entry}")


def _expect(truth: bool, message: str) -> None:
    if not truth:
        raise SystemExit(f"check failed: {message}")


def size_of(text: str) -> int:
    """`1073741824`, `1GiB`, `64m`."""
    match = re.fullmatch(r"(\d+)\s*([kmg]?)(i?b)?", text.strip().lower())
    if not match:
        raise argparse.ArgumentTypeError(f"not a size: {text}")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a synthetic RocketMQ store.")
    parser.add_argument("dir", type=Path)
    parser.add_argument("--bytes", type=size_of, default=size_of("1GiB"), help="of commitlog (default 1GiB)")
    parser.add_argument("--body", type=int, default=1024, help="nominal body size; +-10 %% (default 1024)")
    parser.add_argument("--segment", type=size_of, default=size_of("1GiB"), help="commitlog file size (default 1GiB)")
    parser.add_argument("--topics", type=int, default=4)
    parser.add_argument("--queues", type=int, default=8, help="of each topic")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dledger", action="store_true", help="the store of a DLedger node")
    parser.add_argument("--batch", type=int, default=0, help="messages in each unit of a topic with batches")
    parser.add_argument("--batch-topics", type=int, default=0, help="how many of the topics have batches")
    parser.add_argument("--check", action="store_true", help="walk the store and decode a sample of it")
    args = parser.parse_args()
    if args.check and (args.dledger or args.batch):
        parser.error("--check knows ordinary stores only; rmqstore check looks at both")
    begin = time.perf_counter()
    shape = args.bytes, args.body, args.segment, args.topics, args.queues, args.seed
    store = generate(args.dir, *shape, args.dledger, args.batch, args.batch_topics)
    print(
        f"{store.root}: {store.units:,} units, {store.end / max(store.units, 1):.0f} bytes each, {store.segments} "
        f"segments, log end {store.end:,} ({time.perf_counter() - begin:.1f} s)"
    )
    if args.check:
        print(check(store.root))


if __name__ == "__main__":
    main()
