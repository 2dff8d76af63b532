"""The kernel's Dispatcher and put_index derive from a log what brokers derived, and what the oracle does."""

from __future__ import annotations

import itertools
import os
import random
import re
import struct
import threading
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from oracle import golden, random_stores, reference
from support.kernels import encode_log, run_python, scan_units

from native_io import Dispatched, Dispatcher, Filter, Status, java_hash, java_hashes, put_index

I32, I64 = 1 << 31, 1 << 63
DATA = golden.DIRECTORY.parent
QueueUnits = dict[tuple[str, int], dict[int, reference.QueueUnit]]
Entry = tuple[int, int, int]  # key hash, physical offset, store time


# ---- Java's hash


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("TagA", 2598919),
        ("TopicA#k0", -1903240650),
        ("", 0),
        ("polygenelubricants", -I32),
        ("中文", 646394),
        ("\U0001f600", 1772899),
    ],
)
def test_hashes_that_java_computed(text: str, value: int) -> None:
    assert java_hash(text) == reference.java_hash(text) == value
    assert _tags_codes([text.encode()]) == [value]


def test_hash_of_any_text(rng: random.Random) -> None:
    alphabets = ("ab", "aé", "é中", "a\U0001f600", "\ud800\udc00a", "".join(map(chr, range(128))))
    for _ in range(3000):
        text = "".join(rng.choices(rng.choice(alphabets), k=rng.randrange(40)))
        assert java_hash(text) == reference.java_hash(text)


def _tags_codes(tags: Sequence[bytes]) -> list[int]:
    log, _ = encode_log([{"properties": b"TAGS\x01" + tag} for tag in tags])
    dispatched, _ = _dispatch(log)
    codes: list[int] = _units_of(dispatched)["tags_code"].tolist()
    return codes


def _units_of(dispatched: Dispatched) -> npt.NDArray[Any]:
    return dispatched.units.view([("position", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])


def test_hash_of_any_bytes(rng: random.Random) -> None:
    """As Java decodes them; above all where a character is cut short, at the end too."""
    edges = b"\x41\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xf8\xff"
    tags = [bytes(some) for n in (1, 2, 3) for some in itertools.product(edges, repeat=n)]
    tags += [bytes(rng.choices(edges, k=rng.randrange(4, 12))) for _ in range(20000)]
    tags += [bytes(rng.randrange(3, 256) for _ in range(rng.randrange(1, 30))) for _ in range(5000)]
    expected = [reference.java_hash(reference.java_text(tag)) for tag in tags]
    assert _tags_codes(tags) == expected
    texts = pa.array(tags, pa.binary()).view(pa.string())
    assert java_hashes(texts).tolist() == expected


_BATCH_UNIT = struct.Struct(">QIQQqhII")  # of a BatchCQ


@pytest.mark.parametrize(
    ("base", "count", "said"),
    [
        ("7", "2", (7, 2)),
        ("+7", "2", (7, 2)),
        (str(I64 - 1), "32767", (I64 - 1, 32767)),
        (None, "2", (5, 1)),  # one of them is missing: the unit is one message
        ("7", None, (5, 1)),
        (str(I64), "2", (0, 0)),  # no long, and no int: a broker does not put the unit there
        ("", "2", (5, 1)),  # a property without a value is none
        ("+", "2", (0, 0)),
        ("7x", "2", (0, 0)),
        ("7 ", "2", (0, 0)),
        ("7", "x", (0, 0)),
        ("7", "-1", (0, 0)),
        ("7", "-65535", (0, 0)),  # whose last 16 bits are 1
        ("7", "32768", (0, 0)),  # more than a unit has room for
    ],
)
def test_messages_of_a_unit_of_a_batch_queue(base: str | None, count: str | None, said: tuple[int, int]) -> None:
    named = {"INNER_BASE": base, "XXXXX_BASE": "9", "INNER_NUM": count, "XXXXX_NUM": "9"}
    properties = {name: value for name, value in named.items() if value is not None}
    log = reference.encode_unit(topic="Bq", queue_offset=5, store_timestamp=77, properties=properties)
    dispatcher = Dispatcher(batch_topics=["Other", "Bq"])
    walked = dispatcher.dispatch(
        log, base=0, position=0, stop=len(log), segment_end=I64 - 1, verify_crc=True, most=I64 - 1
    )
    assert walked.units == 1
    found = dispatcher.finish()
    position, size, tags_code, time, first, messages, *_ = _BATCH_UNIT.unpack(found.units.tobytes())
    assert (position, size, tags_code, time, (first, messages)) == (0, len(log), 0, 77, said)


@pytest.mark.parametrize(
    ("names", "offsets", "expected"),
    [
        ("%LMQ%a,%LMQ%b", "3,4", {"%LMQ%a": 3, "%LMQ%b": 4}),
        ("%LMQ%a,,", "3", {"%LMQ%a": 3}),
        ("%LMQ%a", "3,,,", {"%LMQ%a": 3}),
        (",,", "3", {}),
        ("%LMQ%a,%LMQ%b", "3", {}),  # both lists differ in length
        ("a,%LMQ%b/c,%LMQ%d", "1,2,3", {"%LMQ%d": 3}),
        ("%LMQ%a,%LMQ%b,%LMQ%c,%LMQ%d", "x,,-1,5", {"%LMQ%d": 5}),
        ("%LMQ%a,%LMQ%b", "12345678901234567890,1", {"%LMQ%b": 1}),
        ("%LMQ%a,%LMQ%b,%LMQ%c", f"{I64},{I64 - 1},1/", {"%LMQ%b": I64 - 1}),
        ("%LMQ%batches,%LMQ%b", "1,2", {"%LMQ%b": 2}),
        ("%LMQ%a", None, {}),
        (None, "1", {}),
    ],
)
@pytest.mark.parametrize("end", [b"", b"\2"])
def test_light_queues(names: str | None, offsets: str | None, expected: dict[str, int], end: bytes) -> None:
    """The dispatcher and the filter find the same ones."""
    named = {"INNER_MULTI_DISPATCX": "%LMQ%x", "INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets}
    pairs = [f"{name}\1{value}".encode() for name, value in {**named, "k": "v"}.items() if value is not None]
    for properties in (b"\2".join(pairs) + end, b"\2".join(reversed(pairs)) + end):
        log = reference.encode_unit(properties=properties, queue_offset=9)
        where: dict[str, Any] = {"base": 0, "position": 0, "stop": len(log), "segment_end": I64 - 1, "verify_crc": True}
        dispatcher = Dispatcher(light_queues=True, batch_topics=["%LMQ%batches"])
        dispatcher.dispatch(log, **where, most=I64 - 1)
        found = {dispatcher.queues[queue]: offset for queue, offset, _ in dispatcher.finish().runs()}
        assert found.pop(("TopicA", 0)) == 9
        assert found == {(name, 0): offset for name, offset in expected.items()}
        for name in ("%LMQ%a", "%LMQ%b", "%LMQ%c", "%LMQ%d", "%LMQ%x"):
            chosen = Filter(conditions=[{"lightQueue": {name: (0, I64 - 1)}}])
            count, *_ = chosen.scan(log, **where, positions=np.empty(1, np.int64))
            assert count == (name in expected), name


def test_hashes_of_an_array() -> None:
    texts = pa.array(["before", None, "", "TagA", None, "中文", "behind"])
    assert java_hashes(texts[1:6]).tolist() == [0, 0, 2598919, 0, 646394]
    for empty in (texts[:0], pa.array([], pa.string()), pa.nulls(0, pa.string())):
        assert java_hashes(empty).tolist() == []
    assert java_hashes(pa.nulls(3, pa.string())).tolist() == [0, 0, 0]
    for other in (pa.array([b"a"]), pa.array([1]), pa.array(["a"], pa.large_string())):
        with pytest.raises(TypeError, match="expected an array of Arrow format 'u', found '"):
            java_hashes(other)


# ---- as real brokers do it


def _dispatch(log: bytes, base: int = 0, most: int = I64 - 1) -> tuple[Dispatched, list[tuple[str, int]]]:
    """All units of a log that is nothing but units."""
    dispatcher = Dispatcher()
    _, position, status, *_ = dispatcher.dispatch(
        log, base=base, position=base, stop=base + len(log), segment_end=I64 - 1, verify_crc=True, most=most
    )
    assert (position, status) == (base + len(log), Status.LIMIT)
    return dispatcher.finish(), dispatcher.queues


def _queue_units(dispatched: Dispatched, queues: Sequence[tuple[str, int]]) -> QueueUnits:
    """By queue and queue offset."""
    found: QueueUnits = defaultdict(dict)
    for queue, offset, data in dispatched.runs():
        for i in range(len(data) // 20):
            assert offset + i not in found[queues[queue]]
            found[queues[queue]][offset + i] = reference.decode_queue_unit(bytes(data[20 * i : 20 * i + 20]))
    return found


def _entries(dispatched: Dispatched) -> list[Entry]:
    columns = (dispatched.key_hash, dispatched.key_position, dispatched.key_timestamp)
    return list(zip(*(column.tolist() for column in columns), strict=True))


class Store(NamedTuple):
    path: Path
    slots: int  # of an index file
    items: int
    index_tags: bool


REAL_STORES = {
    **dict.fromkeys(golden.VERSIONS, (100, 200)),
    **dict.fromkeys(("rocketmq-4.9.4", "rocketmq-5.3.0", "rocketmq-5.3.3", "rocketmq-5.3.4-propcrc"), (100, 30)),
    "rocketmq-5.3.4-features": (500, 1000),
}


@pytest.fixture(params=REAL_STORES)
def real_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    name = str(request.param)
    path = golden.unpack(name, tmp_path / name) if name in golden.VERSIONS else DATA / name
    return Store(path, *REAL_STORES[name], index_tags=name == "5.5.0")


def _dispatch_store(store: Store) -> tuple[Dispatched, Dispatcher]:
    """Segment by segment, as a rebuild does."""
    dispatcher = Dispatcher(index_tags=store.index_tags)
    files = reference.segment_files(store.path)
    for i, file in enumerate(files):
        start, log = int(file.name), file.read_bytes()
        end = start + len(log)
        *_, status, expected, found = dispatcher.dispatch(
            log, base=start, position=start, stop=end, segment_end=end, verify_crc=True, most=I64 - 1
        )
        assert status == (Status.BAD_MAGIC if i + 1 == len(files) else Status.BLANK), (expected, found)
    return dispatcher.finish(), dispatcher


def test_the_queues_of_real_stores(real_store: Store) -> None:
    dispatched, dispatcher = _dispatch_store(real_store)
    found = _queue_units(dispatched, dispatcher.queues)
    expected: QueueUnits = defaultdict(dict)
    for topic, queue_id, offset, unit in reference.read_queues(real_store.path):
        if not topic.startswith("%LMQ%"):  # of a message of another topic, and only in a broker that is told to do so
            expected[topic, queue_id][offset] = unit
    assert found == expected


def _index_files(entries: Dispatched, slots: int, items: int) -> list[bytes]:
    files: list[bytes] = []
    start, end = 0, (0, 0)
    while start < len(entries.key_hash):
        file = bytearray(40 + 4 * slots + 20 * items)
        start = _put(file, slots, items, entries, start, end)
        end = int.from_bytes(file[8:16], "big"), int.from_bytes(file[24:32], "big")
        files.append(bytes(file))
    return files


def _put(
    file: bytearray, slots: int, items: int, entries: Any, start: int = 0, previous_end: tuple[int, int] = (0, 0)
) -> int:
    return put_index(
        file,
        slots=slots,
        items=items,
        key_hash=entries.key_hash,
        key_position=entries.key_position,
        key_timestamp=entries.key_timestamp,
        start=start,
        previous_end=previous_end,
    )


def test_the_index_of_real_stores(real_store: Store) -> None:
    """Byte for byte what the broker wrote."""
    dispatched, _ = _dispatch_store(real_store)
    expected = [file.read_bytes() for file in sorted((real_store.path / "index").iterdir())]
    assert expected
    found = _index_files(dispatched, real_store.slots, real_store.items)
    assert len(found) == len(expected)
    for i, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert ours == theirs, i


# ---- as the oracle says


def _random_unit(
    rng: random.Random, topics: Sequence[str] = (*random_stores.TOPICS, reference.SCHEDULE_TOPIC)
) -> dict[str, Any]:
    """Arguments for reference.encode_unit."""
    properties = random_stores.random_properties(rng)
    if rng.random() < 0.3:
        delay = rng.choice(("0", "1", "3", "18", "19", "-1", "+2", "x", "", str(I32)))
        properties += b"" if properties.endswith(b"\x02") or not properties else b"\x02"
        properties += f"DELAY\x01{delay}\x02".encode()
    types = (0, 0, 0, reference.PREPARED, reference.COMMIT, reference.ROLLBACK, 0x2, 0x80)
    return {
        "topic": rng.choice((*random_stores.TOPICS, reference.SCHEDULE_TOPIC)),
        "queue_id": rng.choice((0, 1, 2, I32 - 1, -1)),
        "properties": properties,
        "body": rng.randbytes(rng.choice((0, 10, 300))),
        "sys_flag": rng.choice(types),
        "store_timestamp": rng.choice((0, 1_700_000_000_000 + rng.randrange(10**7), I64 - 1, -I64)),
        "version": rng.choice((None, None, 2)),
    }


def _tags_code(unit: reference.Unit) -> int:
    topic, properties = reference.java_text(unit.topic), reference.java_properties(unit.properties)
    if not re.fullmatch(r"[+-]?[0-9]+", delay := properties.get("DELAY", "0")) or not -I32 <= int(delay) < I32:
        del properties["DELAY"]  # no number to Java: a broker would not take the unit
    return reference.wrap(reference.tags_code(topic, properties, unit.store_timestamp))


class Expected:
    """What follows from units, by the oracle."""

    def __init__(self, index_tags: bool = False) -> None:
        self.index_tags = index_tags
        self.rows: list[tuple[tuple[str, int], int, int, int, int]] = []
        self.entries: list[Entry] = []
        self.last_position = self.last_timestamp = self.inner_batches = self.nbytes = 0
        self.timestamps: list[int] = []

    def add(self, unit: reference.Unit) -> None:
        queue = reference.java_text(unit.topic), unit.queue_id
        self.last_position = unit.physical_offset
        self.last_timestamp = unit.store_timestamp
        self.timestamps.append(unit.store_timestamp)
        self.inner_batches += bool(unit.sys_flag & 0x80)
        self.nbytes += unit.total_size
        if _is_queued(unit):
            self.rows.append((queue, unit.queue_offset, unit.physical_offset, unit.total_size, _tags_code(unit)))
        for key in reference.unit_index_keys(unit, self.index_tags):
            self.entries.append((reference.index_hash(*key), unit.physical_offset, unit.store_timestamp))

    def check(self, dispatched: Dispatched, queues: Sequence[tuple[str, int]]) -> None:
        assert _entries(dispatched) == self.entries
        assert dispatched.last_position == self.last_position
        assert dispatched.last_timestamp == self.last_timestamp
        assert dispatched.least_timestamp == min(self.timestamps, default=(1 << 63) - 1)
        assert dispatched.most_timestamp == max(self.timestamps, default=-(1 << 63))
        newest = itertools.accumulate(self.timestamps, max)
        assert dispatched.fall == max(map(int.__sub__, newest, self.timestamps), default=0)
        assert dispatched.inner_batches == self.inner_batches
        assert dispatched.nbytes == self.nbytes
        self._check_runs(dispatched, queues)

    def _check_runs(self, dispatched: Dispatched, queues: Sequence[tuple[str, int]]) -> None:
        expected: dict[tuple[str, int], list[tuple[int, bytes]]] = defaultdict(list)
        for queue, offset, *unit in self.rows:
            data = reference.encode_queue_unit(*unit)
            runs = expected[queue]
            if runs and runs[-1][0] + len(runs[-1][1]) // 20 == offset:
                runs[-1] = runs[-1][0], runs[-1][1] + data
            else:
                runs.append((offset, data))
        found: dict[tuple[str, int], list[tuple[int, bytes]]] = defaultdict(list)
        for number, offset, units in dispatched.runs():
            found[queues[number]].append((offset, bytes(units)))
        assert found == expected
        assert dispatched.run_count.sum() == len(self.rows) == len(dispatched.units) / 20


def _is_queued(unit: reference.Unit) -> bool:
    return unit.sys_flag & reference.TRANSACTION_BITS in (0, reference.COMMIT)


@pytest.mark.parametrize("index_tags", [False, True])
def test_dispatch_random_units(index_tags: bool, rng: random.Random) -> None:
    """The log as it stands, its queue offsets too, whatever they are; in steps of any length."""
    for _ in range(20):
        base = rng.choice((0, 1 << 40))
        fields = [_random_unit(rng) for _ in range(200)]
        for i, unit in enumerate(fields):
            unit["queue_offset"] = rng.choice((0, i, i, i, i, I64 - 1, -1, -I64))
        log, positions = encode_log(fields, base)
        dispatcher, expected = Dispatcher(index_tags=index_tags), Expected(index_tags)
        position, left = base, list(positions.tolist())
        while left:
            most = rng.randrange(1, 60)
            count, position, status, *_ = dispatcher.dispatch(
                log, base=base, position=position, stop=base + len(log), segment_end=I64 - 1, verify_crc=True, most=most
            )
            assert count == min(most, len(left))
            assert status is (Status.FULL if count == most else Status.LIMIT)
            for at in left[:count]:
                expected.add(reference.parse_unit(log[at - base :], at))
            left = left[count:]
            if rng.random() < 0.3:
                expected.check(dispatcher.finish(), dispatcher.queues)
                expected = Expected(index_tags)
        expected.check(dispatcher.finish(), dispatcher.queues)
        Expected().check(dispatcher.finish(), dispatcher.queues)


def test_place_random_units(rng: random.Random) -> None:
    """Segments fill up as the rule of the blank wants it, queues go on where they are told to."""
    for _ in range(20):
        segment_size = rng.choice((3000, 8192, 100_000))
        fields = [_random_unit(rng) for _ in range(200)]
        units = [reference.encode_unit(**unit) for unit in fields]
        units = [unit for unit in units if len(unit) + reference.BLANK_SIZE <= segment_size]
        staged = bytearray(b"".join(units))
        queues = [("TopicA", 0), ("Topic_B", 1), ("中文", 2), ("Other", 7)]
        next_offsets = defaultdict(int, {queue: rng.choice((0, 5, 1 << 40)) for queue in queues})
        dispatcher, expected = Dispatcher(), Expected()
        for queue, offset in next_offsets.items():
            dispatcher.set_next(*queue, offset)
        start = rng.choice((0, 7 * segment_size))
        position = start + rng.choice((0, 500, segment_size - 8, segment_size))
        segment_end, at, placed, now = start + segment_size, 0, 0, rng.choice((1, 1_800_000_000_000, I64 - 1))
        while True:
            before = bytes(staged[at:])
            count, reached, status, needed, left = dispatcher.place(
                memoryview(staged)[at:], position=position, segment_end=segment_end, store_timestamp=now
            )
            for unit in units[placed : placed + count]:
                changed = _placed(unit, position, next_offsets, now)
                assert staged[at : at + len(unit)] == changed
                expected.add(reference.parse_unit(changed, position))
                at, position = at + len(unit), position + len(unit)
            placed += count
            assert position == reached
            assert staged[at:] == before[len(before) - len(staged) + at :]
            if status is Status.LIMIT:
                break
            assert (status, needed) == (Status.FULL, len(units[placed]) + reference.BLANK_SIZE)
            assert needed > left == segment_end - position
            position, segment_end = segment_end, segment_end + segment_size
        assert placed == len(units)
        expected.check(dispatcher.finish(), dispatcher.queues)


def _placed(unit: bytes, position: int, next_offsets: dict[tuple[str, int], int], now: int) -> bytes:
    parsed = reference.parse_unit(unit, position)
    queue, offset = (reference.java_text(parsed.topic), parsed.queue_id), 0
    if _is_queued(parsed):
        offset = next_offsets[queue]
        next_offsets[queue] += 1
    unit = unit[:20] + offset.to_bytes(8, "big") + position.to_bytes(8, "big") + unit[36:]
    if parsed.store_timestamp:
        return unit
    at = 48 + (20 if parsed.sys_flag & reference.BORN_HOST_V6 else 8)
    return unit[:at] + now.to_bytes(8, "big") + unit[at + 8 :]


@pytest.mark.parametrize("sys_flag", [0, reference.BORN_HOST_V6, reference.STORE_HOST_V6, 0x30])
def test_place_gives_a_store_time_to_units_without_one(sys_flag: int) -> None:
    fields: list[dict[str, Any]] = [
        {"sys_flag": sys_flag, "store_timestamp": time, "properties": {"KEYS": "k"}} for time in (0, 7, 0, -1)
    ]
    units = [reference.encode_unit(**unit) for unit in fields]
    window, now = bytearray(b"".join(units)), 1_800_000_000_123
    end = sum(map(len, units[:3])) + reference.BLANK_SIZE  # the last one does not fit
    dispatcher = Dispatcher()
    assert dispatcher.place(window, position=0, segment_end=end, store_timestamp=now)[0] == 3
    expected, _ = encode_log(
        {**unit, "store_timestamp": unit["store_timestamp"] or now, "queue_offset": i}
        for i, unit in enumerate(fields[:3])
    )
    assert window == expected + units[3]
    dispatched = dispatcher.finish()
    assert dispatched.key_timestamp.tolist() == [now, 7, now]
    assert dispatched.last_timestamp == now
    assert window[len(expected) :] == units[3]


def test_a_store_is_dispatched_as_it_was_placed(tmp_path: Path, rng: random.Random) -> None:
    """The builder's store, which the oracle wrote, gives the queues that the builder wrote."""
    builder = random_stores.random_store(tmp_path, rng, 400, segment_size=65536)
    dispatched, dispatcher = _dispatch_store(Store(builder.root, 1, 1, index_tags=False))
    expected: QueueUnits = defaultdict(dict)
    for topic, queue_id, offset, unit in reference.read_queues(tmp_path):
        expected[topic, queue_id][offset] = unit
    assert _queue_units(dispatched, dispatcher.queues) == expected


@pytest.mark.parametrize("count", [1, 63, 64, 65, 5000])
def test_many_queues(count: int) -> None:
    """The table grows; a topic that begins or ends as another is another."""
    topics = [f"{'T' * (i % 9)}{i}" for i in range(count)]
    log, positions = encode_log({"topic": topic, "queue_id": i} for topic in topics for i in range(2))
    expected = Expected()
    dispatched, queues = _dispatch(log)
    assert queues == [(topic, i) for topic in topics for i in range(2)]
    for at in positions.tolist():
        expected.add(reference.parse_unit(log[at:], at))
    assert len(expected.rows) == 2 * count
    expected.check(dispatched, queues)


def test_set_next() -> None:
    dispatcher = Dispatcher()
    most = (I64 - 1) // 20 - 1

    def next_offset() -> int:
        window = bytearray(reference.encode_unit(topic="中文", queue_id=3))
        dispatcher.place(window, position=0, segment_end=1 << 20, store_timestamp=1)
        return reference.parse_unit(window, 0).queue_offset

    for offset in (0, 7, most):
        dispatcher.set_next("中文", 3, offset)
        assert dispatcher.queues == [("中文", 3)]
        assert next_offset() == offset
    for offset in (-1, most + 1, I64 - 1):
        with pytest.raises(ValueError, match="a queueOffset is 0 or more and below"):
            dispatcher.set_next("中文", 3, offset)
    for arguments in ((None, 0, 0), ("T", I32, 0), ("T", 0, I64), (b"T", 0, 0)):
        with pytest.raises((TypeError, OverflowError)):
            dispatcher.set_next(*arguments)
    assert next_offset() == most + 1


def test_keys() -> None:
    """Single spaces separate them. One's hash is Integer.MIN_VALUE, which has no absolute value."""
    log, _ = encode_log([{"properties": {"KEYS": "  a hiucm6i\tb  k0 "}}, {"properties": {"KEYS": "hiucm6i"}}])
    expected = [reference.java_hash(f"TopicA#{key}") for key in ("a", "hiucm6i\tb", "k0", "hiucm6i")]
    assert expected[2:] == [-1903240650, -I32]
    assert _dispatch(log)[0].key_hash.tolist() == [abs(value) for value in expected[:3]] + [0]


# ---- hostile bytes, and arguments


@pytest.mark.slow
def test_dispatch_stops_where_scan_does(rng: random.Random) -> None:
    """Bytes changed anywhere, windows of any size: the same units are taken, and the same is said."""
    statuses = set()
    for _ in range(3000):
        base = rng.choice((0, 0, 12345))
        log = bytearray(encode_log([_random_unit(rng) for _ in range(rng.randrange(1, 6))], base)[0])
        log += rng.choice((b"", reference.encode_blank(rng.choice((8, 20))) + bytes(12), bytes(100)))
        for _ in range(rng.choice((0, 0, 1, 1, 3))):
            at = rng.randrange(len(log))
            log[at : at + 1] = rng.choice((rng.randbytes(1), b"\x7f", b"\x80", b"\xff", b"\0"))
        window = bytes(log[: rng.choice((len(log), rng.randrange(len(log) + 1)))])
        stop = base + rng.choice((len(log), rng.randrange(len(log) + 1), 1 << 40))
        segment_end = base + rng.choice((len(log), len(log) + 8, 1 << 40))
        verify_crc = rng.random() < 0.8
        scanned = scan_units(window, base, stop=stop, segment_end=segment_end, verify_crc=verify_crc)
        dispatcher = Dispatcher()
        found = dispatcher.dispatch(
            window, base=base, position=base, stop=stop, segment_end=segment_end, verify_crc=verify_crc, most=1000
        )
        assert found == (len(scanned.positions), *scanned[1:])
        expected = Expected()
        for at in scanned.positions:
            expected.add(reference.parse_unit(window[at - base :], at))
        expected.check(dispatcher.finish(), dispatcher.queues)
        statuses.add(scanned.status)
    assert len(statuses) >= 9, statuses


@pytest.mark.slow
def test_place_takes_whole_units_alone(rng: random.Random) -> None:
    statuses = set()
    for _ in range(3000):
        units = [reference.encode_unit(**_random_unit(rng)) for _ in range(rng.randrange(1, 6))]
        staged = bytearray(b"".join(units))
        for _ in range(rng.choice((0, 1, 1, 3))):
            at = rng.randrange(len(staged))
            staged[at : at + 1] = rng.choice((rng.randbytes(1), b"\x7f", b"\x80", b"\xff", b"\0"))
        size = rng.choice((len(staged), rng.randrange(len(staged) + 1)))
        before, guard = bytes(staged), rng.randbytes(50)
        window = bytearray(before + guard)
        dispatcher, next_offsets = Dispatcher(), defaultdict[tuple[str, int], int](int)
        count, reached, status, *_ = dispatcher.place(
            memoryview(window)[:size], position=1000, segment_end=1 << 40, store_timestamp=5
        )
        assert window[reached - 1000 :] == before[reached - 1000 :] + guard
        at, expected = 0, Expected()
        for _ in range(count):
            unit = reference.parse_unit(window[at:], 1000 + at)
            length = reference.check_unit(window[at:], 1000 + at, 1 << 40)
            assert window[at : at + length] == _placed(before[at : at + length], 1000 + at, next_offsets, 5)
            expected.add(unit)
            at += length
        assert 1000 + at == reached <= 1000 + size
        expected.check(dispatcher.finish(), dispatcher.queues)
        statuses.add(status)
        if status is not Status.LIMIT:  # the oracle takes nothing there either
            rest = before[at:size]
            given = rest[:28] + (1000 + at).to_bytes(8, "big") + rest[36:] if len(rest) >= 36 else rest
            with pytest.raises(reference.Corrupt):
                reference.check_unit(given, 1000 + at, 1 << 40)
    assert len(statuses) >= 8, statuses


def test_a_staged_unit_may_be_placed_again() -> None:
    """What stands in physicalOffset and queueOffset before does not matter."""
    unit = reference.encode_unit(physical_offset=-77, queue_offset=-5)
    window = bytearray(unit)
    for position in (0, 4096):
        assert Dispatcher().place(window, position=position, segment_end=8192, store_timestamp=1)[0] == 1
        assert window == reference.encode_unit(physical_offset=position)


def test_what_fits_into_the_segment() -> None:
    unit = reference.encode_unit()
    for left in range(len(unit) + 20):
        window = bytearray(unit)
        fits = left >= len(unit) + reference.BLANK_SIZE
        count, at, status, *_ = Dispatcher().place(window, position=100, segment_end=100 + left, store_timestamp=1)
        assert (count, at, status) == ((1, 100 + len(unit), Status.LIMIT) if fits else (0, 100, Status.FULL))
        assert (window == unit) is not fits


def test_arguments_of_place() -> None:
    unit = reference.encode_unit()
    good: dict[str, Any] = {"position": 0, "segment_end": 1000, "store_timestamp": 1}
    for wrong in ({"position": -1}, {"position": 1001}, {"segment_end": -1}):
        with pytest.raises(ValueError, match="expected 0 <="):
            Dispatcher().place(bytearray(unit), **{**good, **wrong})
    with pytest.raises(ValueError, match="offsets reach from 0 to"):
        Dispatcher().place(bytearray(unit), **{**good, "position": I64 - 10, "segment_end": I64 - 1})
    with pytest.raises((ValueError, BufferError)):
        Dispatcher().place(unit, **good)  # read-only
    assert Dispatcher().place(bytearray(), **{**good, "segment_end": 0}) == (0, 0, Status.LIMIT, 0, 0)


def test_arguments_of_dispatch() -> None:
    unit = reference.encode_unit()
    good: dict[str, Any] = {
        "base": 0,
        "position": 0,
        "stop": len(unit),
        "segment_end": 1000,
        "verify_crc": True,
        "most": 10,
    }
    for wrong in ({"base": -1}, {"base": 5}, {"segment_end": -1}, {"base": I64 - 10, "position": I64 - 10}):
        with pytest.raises(ValueError, match=r"position|offsets"):
            Dispatcher().dispatch(unit, **{**good, **wrong})
    assert Dispatcher().dispatch(unit, **{**good, "position": 5000})[:3] == (0, 5000, Status.MORE)
    for most in (0, -1):
        assert Dispatcher().dispatch(unit, **{**good, "most": most})[:3] == (0, 0, Status.FULL)


def test_what_finish_gave_is_kept() -> None:
    log, _ = encode_log([{"properties": {"KEYS": "a b", "TAGS": "c"}}] * 10)
    dispatcher = Dispatcher()
    where: dict[str, Any] = {"base": 0, "position": 0, "stop": len(log), "segment_end": 1 << 40}
    where |= {"verify_crc": True, "most": 100}
    dispatcher.dispatch(log, **where)
    first = dispatcher.finish()
    arrays: tuple[Any, ...] = first[:-3]
    before = [np.copy(column) for column in arrays]
    dispatcher.dispatch(bytes(log), **where)
    second = dispatcher.finish()
    del dispatcher
    later: tuple[Any, ...] = second[:-3]
    for kept, column, again in zip(before, arrays, later, strict=True):
        assert np.array_equal(kept, column)
        assert np.array_equal(kept, again)


def test_one_thread_at_a_time() -> None:
    log, _ = encode_log([{"body": bytes(1000)}] * 2000)
    dispatcher = Dispatcher()
    counted: list[int] = []

    def work() -> None:
        for _ in range(10):
            try:
                count, *_ = dispatcher.dispatch(
                    log, base=0, position=0, stop=len(log), segment_end=1 << 40, verify_crc=True, most=10**6
                )
                counted.append(count)
            except RuntimeError as error:
                assert "in use by another thread" in str(error)  # noqa: PT017

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(counted) == {2000}
    assert dispatcher.finish().run_count.sum() == sum(counted)


# ---- index files


def _columns(entries: Iterable[Entry]) -> Any:
    hashes, positions, timestamps = zip(*entries, strict=True) if entries else ((), (), ())
    return Columns(np.array(hashes, np.int32), np.array(positions, np.int64), np.array(timestamps, np.int64))


class Columns(NamedTuple):
    key_hash: npt.NDArray[np.int32]
    key_position: npt.NDArray[np.int64]
    key_timestamp: npt.NDArray[np.int64]


def _random_entries(rng: random.Random, count: int) -> list[Entry]:
    now, entries = rng.choice((1_700_000_000_000, 0, -5, 1)), []
    for i in range(count):
        now += rng.choice((0, 0, 1, 999, 1000, 1001, 60_000, -1500))
        key_hash = rng.choice((0, 1, I32 - 1, rng.randrange(10), rng.randrange(I32)))
        entries.append((key_hash, 100 * i, rng.choice((now, now, now, now, 0, I64 - 1, -I64))))
    return entries


def test_random_index_files(rng: random.Random) -> None:
    """Few slots and many, entries put in steps, file after file."""
    for _ in range(300):
        slots, items = rng.choice((1, 2, 7, 1000)), rng.choice((1, 2, 3, 64, 65, 66, 200, 1000))
        entries = _random_entries(rng, rng.choice((0, 1, 63, 64, 65, 129, 500)))
        if items == 1:  # no room for any item
            file = bytearray(40 + 4 * slots + 20)
            assert _put(file, slots, items, _columns(entries)) == 0
            continue
        expected = [file.encode() for file in reference.build_index(entries, slots, items)]
        found, start, end = [], 0, (0, 0)
        while start < len(entries):
            file = bytearray(40 + 4 * slots + 20 * items)
            while True:
                stop = rng.choice((len(entries), min(len(entries), start + rng.randrange(1, 100))))
                reached = _put(file, slots, items, _columns(entries[:stop]), start, end)
                start, is_full = reached, reached < stop
                if is_full or start == len(entries):
                    break
            end = int.from_bytes(file[8:16], "big", signed=True), int.from_bytes(file[24:32], "big", signed=True)
            found.append(bytes(file))
        assert found == expected


def test_hostile_index_files(rng: random.Random) -> None:
    """Whatever stands in a file: it becomes what the oracle makes of it, byte for byte."""
    for _ in range(2000):
        slots, items = rng.choice((1, 3, 50)), rng.choice((2, 10, 70))
        file = reference.IndexFile.decode(rng.randbytes(40 + 4 * slots + 20 * items), slots, items)
        file.count = rng.choice((1, 1, 2, items - 1, items, items + 1, I32 - 1, rng.randrange(1, items)))
        file.begin_time = rng.choice((0, -1, file.begin_time, 1_700_000_000_000))
        near = (0, -1, 1, file.count - 1, min(file.count, I32 - 1), min(file.count + 1, I32 - 1), items, I32 - 1, -I32)
        file.slots = rng.choices(near, k=slots)
        file.slot_count = rng.choice((0, -5, 7))
        window = bytearray(file.encode())
        if file.count == 1:
            window[36:40] = rng.choice((0, 1, -1, -I32)).to_bytes(4, "big", signed=True)
        previous = reference.IndexFile(1, 1)
        previous.end_time, previous.end_offset = rng.choice((0, -1, 5)), rng.choice((0, 9, -9))
        if file.count == 1 and previous.end_time > 0:
            file.begin_time = file.end_time = previous.end_time
        if file.count == 1 and previous.end_offset > 0:
            file.begin_offset = file.end_offset = previous.end_offset
        entries = _random_entries(rng, rng.randrange(1, 100))
        put = sum(itertools.takewhile(bool, (file.put(*entry) for entry in entries)))
        end = previous.end_time, previous.end_offset
        assert _put(window, slots, items, _columns(entries), previous_end=end) == put
        if put or file.count > 1:
            assert window == file.encode()


def test_a_negative_key_hash() -> None:
    file = bytearray(40 + 4 * 10 + 20 * 300)
    entries = [(i, i, 1000) for i in range(100)] + [(-1, 0, 0)]
    with pytest.raises(ValueError, match="a key hash is 0 or more, found -1 at 100"):
        _put(file, 10, 300, _columns(entries))
    expected = bytearray(len(file))
    assert _put(expected, 10, 300, _columns(entries[:100])) == 100
    assert file == expected


def test_arguments_of_put_index() -> None:
    columns = _columns([(1, 2, 3)])
    with pytest.raises(ValueError, match="has 264 bytes, found 263"):
        _put(bytearray(263), 6, 10, columns)
    for slots, items in ((0, 10), (-1, 10), (10, 0), (10, -1)):
        with pytest.raises(ValueError, match="an index file has slots and items"):
            _put(bytearray(100), slots, items, columns)
    for start in (-1, 2):
        with pytest.raises(ValueError, match="a start among them"):
            _put(bytearray(264), 6, 10, columns, start)
    with pytest.raises(ValueError, match="as many hashes as positions"):
        _put(bytearray(264), 6, 10, columns._replace(key_position=np.zeros(2, np.int64)))
    with pytest.raises((ValueError, BufferError)):
        _put(bytes(264), 6, 10, columns)  # type: ignore[arg-type]
    untouched = bytearray(264)
    assert _put(untouched, 6, 10, _columns([])) == 0
    assert untouched == bytes(264)


@pytest.mark.skipif(bool(os.environ.get("RMQ_SANITIZED")), reason="AddressSanitizer cannot live with a limit on memory")
def test_no_memory() -> None:
    code = """
import mmap, resource
from oracle import reference
from native_io import Dispatcher
unit = reference.encode_unit(topic="", properties={"KEYS": " ".join("abcdefgh" * 1000)})
log = unit * 2000
dispatcher = Dispatcher()
now = int(open("/proc/self/statm").read().split()[0]) * mmap.PAGESIZE
resource.setrlimit(resource.RLIMIT_AS, (now + (64 << 20),) * 2)
window = bytearray(unit)
try:
    while True:
        dispatcher.place(window, position=0, segment_end=1 << 40, store_timestamp=1)
except MemoryError:
    try:
        dispatcher.finish()
    except RuntimeError:
        print("shut")
"""
    assert run_python(code) == ("shut\n", "")


# ---- bodies that are not compressed as sysFlag says


def _odd_bodies(units: list[tuple[int, bytes]]) -> list[bool]:
    """For each sysFlag and body, whether the dispatcher finds that the body is not what the flag says."""
    log, positions = encode_log({"sys_flag": sys_flag, "body": body} for sys_flag, body in units)
    dispatched, _ = _dispatch(log)
    odd = set(dispatched.odd_bodies.tolist())
    assert odd <= set(positions.tolist())
    return [position in odd for position in positions.tolist()]


def _is_zlib(head: bytes) -> bool:
    """zlib's own answer, which refuses a wrong head at once, but asks for a dictionary later: brokers give it none."""
    try:
        zlib.decompressobj().decompress(head)
    except zlib.error:
        return False
    return not head[1] & 32


def test_heads_of_zlib(rng: random.Random) -> None:
    heads = [rng.randbytes(2) for _ in range(400)] + [
        bytes([first, 31 * at - first * 256 % 31 & 255]) for first in range(256) for at in (1, 5)
    ]
    heads += [zlib.compress(b"x" * 99, level, wbits=bits)[:2] for level in range(10) for bits in range(9, 16)]
    for types in (0, 3):
        flags = 1 | types << 8
        expected = [not _is_zlib(head) for head in heads]
        assert 70 < sum(expected) < len(heads) - 70
        assert _odd_bodies([(flags, head) for head in heads]) == expected


def test_bodies_of_each_compression() -> None:
    """What a library compressed is right for its own types only; what is not compressed, or empty, for none or any."""
    made = {kind: pa.Codec(kind).compress(b"some body " * 9, asbytes=True) for kind in ("lz4", "zstd")}
    made["zlib"], made["none"] = zlib.compress(b"some body " * 9), b"some body"
    skipped = b"\x5a\x2a\x4d\x18" + bytes(4)
    of = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}
    units = [(1 | number << 8, made[kind]) for number in range(8) for kind in made]
    assert _odd_bodies(units) == [of.get(number) != kind for number in range(8) for kind in made]
    assert _odd_bodies([(number << 8, made[kind]) for number in range(8) for kind in made]) == [False] * 32
    assert _odd_bodies([(1 | number << 8, b"") for number in range(8)]) == [False] * 8
    assert _odd_bodies([(1 | number << 8, b"x") for number in range(8)]) == [True] * 8
    assert _odd_bodies([(1 | number << 8, skipped + made["zstd"]) for number in range(4)]) == [True, False, False, True]
