"""A selection in a store of 256 MiB reads no more than what it is promised to read.

The counters are ours, so for each read Linux's own count of what this process has read is held against them.
"""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from oracle import reference
from support import reading

from rmqstore_spark.columns import DEFAULT_COLUMNS, arrow_schema
from rmqstore_spark.query.selection import Numbers, Selection, Texts
from rmqstore_spark.read.pieces.task import Range
from rmqstore_spark.read.plan.planner import plan
from rmqstore_spark.read.run.batches import ReadSettings, read_task
from rmqstore_spark.store.format import clock

KIB, MIB = 1 << 10, 1 << 20
TOTAL = 256 * MIB
GENERATOR = Path(__file__).parents[2] / "benchmarks" / "generate.py"
SYSTEM_COUNTS = Path("/proc/self/io")  # Linux has it
TOPICS, QUEUES = 8, 4
COALESCING = 4 * KIB  # what lies between two wanted units is read with them rather than skipped, up to so much
# A row of these is told from all others, and its values need no conversion to be compared.
COLUMNS = ["topic", "queueId", "queueOffset", "tags", "keys", "msgId", "offsetMsgId", "body", "commitLogOffset"]

Row = dict[str, Any]
UNIT = np.dtype(
    [("position", "i8"), ("size", "i8"), ("code", "i8"), ("topic", "i4"), ("queue", "i4"), ("offset", "i8")]
)


@pytest.fixture(scope="module")
def generate() -> Iterator[ModuleType]:
    """benchmarks/generate.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("generate", GENERATOR)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "generate", module)  # where dataclasses looks for it
        spec.loader.exec_module(module)
        patch.setattr(module, "UNITS_PER_MS", 1)  # so that a store is some minutes long
        yield module


@dataclass
class Generated:
    """A store with bodies of some 1 KiB, and where its messages are.

    Attributes:
        units: all of them in log order, as the files of the ConsumeQueues say; a unit's number is its place.
        start_time: store time (ms) of the first ones; each `per_ms` units have the next millisecond.
    """

    root: Path
    segment_size: int
    start_time: int
    per_ms: int
    units: npt.NDArray[np.void] = field(init=False)

    def __post_init__(self) -> None:
        parts = []
        for file in (self.root / "consumequeue").glob("*/*/*"):
            stored = np.fromfile(file, [("position", ">i8"), ("size", ">i4"), ("code", ">i8")])
            stored = stored[stored["size"] > 0]
            part = np.empty(len(stored), UNIT)
            for name in ("position", "size", "code"):
                part[name] = stored[name]
            part["topic"], part["queue"] = int(file.parent.parent.name[-2:]), int(file.parent.name)
            part["offset"] = int(file.name) // reference.QUEUE_UNIT_SIZE + np.arange(len(part))
            parts.append(part)
        self.units = np.sort(np.concatenate(parts), order="position")

    def row(self, number: int) -> Row:
        """A message as the reference decodes it."""
        position, size = self.units["position"][number], self.units["size"][number]
        at = position % self.segment_size
        with (self.root / "commitlog" / f"{position - at:020d}").open("rb") as file:
            file.seek(at)
            row = reference.decode_unit(file.read(size), int(position))
        return {name: row[name] for name in COLUMNS}

    def time(self, number: int) -> int:
        """Store time in ms."""
        return self.start_time + number // self.per_ms

    def firsts(self) -> npt.NDArray[np.int64]:
        """The number of each segment's first message."""
        return np.unique(self.units["position"] // self.segment_size, return_index=True)[1]

    @property
    def queue_bytes(self) -> int:
        """Bytes of the ConsumeQueues that are in use."""
        return len(self.units) * reference.QUEUE_UNIT_SIZE

    def bytes_around(self, which: npt.NDArray[np.bool_]) -> int:
        """Bytes of some units, with what is between two of them where that is read as well."""
        units = self.units[which]
        gaps = units["position"][1:] - (units["position"] + units["size"])[:-1]
        return int(units["size"].sum() + gaps[gaps <= COALESCING].sum())


@dataclass
class Measured:
    """What a selection has found and what it took."""

    table: pa.Table
    bytes: int
    pieces: list[Range]

    @property
    def rows(self) -> list[Row]:
        return list(self.table.select(COLUMNS).to_pylist())


def measured(store: Generated, pushed: Selection | None = None, **options: object) -> Measured:
    """Plan and read a selection, from options or pushed."""
    understood = reading.options_of(store.root, **options)
    if pushed is not None:
        understood = replace(understood, selection=pushed)
    schema = arrow_schema(list(DEFAULT_COLUMNS))
    settings = ReadSettings.of(understood, schema)
    before = bytes_of_process()
    planned = plan(understood)
    batches = [batch for task in planned.tasks for batch in read_task(task, settings)]
    counted = planned.files.bytes
    if SYSTEM_COUNTS.exists():
        of_process = bytes_of_process() - before
        assert counted <= of_process <= counted + 64 * KIB  # /proc itself, and what Python may read
    pieces = [piece for task in planned.tasks for piece in task.ranges]
    return Measured(pa.Table.from_batches(batches, schema), counted, pieces)


def bytes_of_process() -> int:
    """What this process has read so far with read() and its like, from disk or not."""
    if not SYSTEM_COUNTS.exists():
        return 0
    return int(dict(line.split(": ") for line in SYSTEM_COUNTS.read_text().splitlines())["rchar"])


@pytest.fixture(scope="module")
def store_of(generate: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Generated]]:
    """Generates stores, which are not kept: pytest would keep those of three runs."""
    directory = tmp_path_factory.mktemp("generated")

    def make(total: int, segment: int = TOTAL // 16) -> Generated:
        root = directory / f"{total}-{segment}"
        generate.generate(root, total, KIB, segment, TOPICS, QUEUES)
        store = Generated(root, segment, generate.START_TIME, generate.UNITS_PER_MS)
        reading.read(root, msgId=store.row(0)["msgId"])  # all modules that a read needs are now read themselves
        return store

    yield make
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def large(store_of: Callable[..., Generated]) -> Generated:
    store = store_of(TOTAL)
    assert len(list((store.root / "commitlog").iterdir())) == 16
    assert store.units["position"][-1] > 0.99 * TOTAL
    return store


# ---- one message


def with_keys(store: Generated, rng: random.Random) -> Row:
    """Some message that has KEYS; their first word is in no other message."""
    return next(row for row in iter(lambda: store.row(rng.randrange(len(store.units))), None) if row["keys"])


def by_queue_offset(row: Row) -> dict[str, str]:
    topic, queue_id, offset = row["topic"], row["queueId"], row["queueOffset"]
    return {
        "assign": json.dumps({topic: [queue_id]}),
        "startingOffsets": json.dumps({topic: {queue_id: offset}}),
        "endingOffsets": json.dumps({topic: {queue_id: offset + 1}}),
    }


LOOKUPS: dict[str, Callable[[Row], dict[str, Any]]] = {
    "UNIQ_KEY": lambda row: {"msgId": row["msgId"]},
    "offsetMsgId": lambda row: {"offsetMsgId": row["offsetMsgId"]},
    "offsetMsgId as msgId": lambda row: {"msgId": row["offsetMsgId"]},
    "key": lambda row: {"key": row["keys"].split(" ")[0]},
    "key in topic": lambda row: {"key": row["keys"].split(" ")[0], "subscribe": row["topic"]},
    "queueOffset": by_queue_offset,
    "commitLogOffset pushed": lambda row: {"pushed": Selection(commit_log_offset=Numbers.of(row["commitLogOffset"]))},
    "msgId pushed": lambda row: {"pushed": Selection(msg_id=frozenset([row["msgId"]]))},
    "offsetMsgId pushed": lambda row: {"pushed": Selection(offset_msg_id=frozenset([row["offsetMsgId"]]))},
    "queueOffset pushed": lambda row: {
        "pushed": Selection(
            topic=Texts(frozenset([row["topic"]])),
            queue_id=Numbers.of(row["queueId"]),
            queue_offset=Numbers.of(row["queueOffset"]),
        )
    },
}


def costs(store: Generated, name: str, rng: random.Random, times: int = 5) -> list[int]:
    """The bytes of a few look-ups, the cheapest first, which must find their message."""
    found = []
    for row in [with_keys(store, rng) for _ in range(times)]:
        measure = measured(store, **LOOKUPS[name](row))
        assert measure.rows == [row]
        found.append(measure.bytes)
    return sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOKUPS)
def test_a_lookup_touches_less_than_a_mebibyte(name: str, large: Generated, rng: random.Random) -> None:
    assert costs(large, name, rng)[-1] < MIB


@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize("name", ["UNIQ_KEY", "offsetMsgId", "queueOffset", "commitLogOffset pushed"])
def test_lookups_at_the_ends_of_the_log(name: str, number: int, large: Generated) -> None:
    """The index may not yet know all keys of the last message, so it is looked at itself."""
    row = large.row(number)
    found = measured(large, **LOOKUPS[name](row))
    assert found.rows == [row]
    assert found.bytes < MIB


@pytest.mark.parametrize(
    "options", [{"msgId": "no id"}, {"key": "no key"}, {"key": "no key", "subscribe": "BenchTopic03"}]
)
def test_that_there_is_no_such_message_costs_no_more(options: dict[str, Any], large: Generated) -> None:
    found = measured(large, **options)
    assert found.rows == []
    assert found.bytes < MIB


@pytest.mark.slow
@pytest.mark.long
def test_lookups_do_not_cost_more_in_a_larger_store(
    large: Generated, store_of: Callable[..., Generated], rng: random.Random
) -> None:
    """Neither with a segment of 4 times the size, nor with 16 segments; but where there is more than one, some bytes
    show what of the message's segment is live."""
    small = store_of(TOTAL // 16)
    one_segment = store_of(TOTAL // 4, TOTAL // 4)
    for name in LOOKUPS:
        least, larger, many = (costs(store, name, rng, 3) for store in (small, one_segment, large))
        assert larger[0] <= 2 * least[-1], (name, least, larger)
        assert many[-1] <= 2 * least[-1] + 128 * KIB, (name, least, many)


# ---- a topic, a tag


def tagged(store: Generated, topic: int, tag: str) -> npt.NDArray[np.bool_]:
    """Which messages have a tag."""
    units = store.units
    return np.asarray((units["topic"] == topic) & (units["code"] == reference.java_hash(tag)))


def positions_in(store: Generated, which: npt.NDArray[np.bool_]) -> list[int]:
    return list(store.units["position"][which].tolist())


def positions_of(found: Measured) -> list[int]:
    return list(found.table["commitLogOffset"].to_pylist())


def test_a_tag_reads_the_queues_and_its_messages(large: Generated) -> None:
    """Of the ConsumeQueues each unit is read once or twice: they are read ahead, in steps."""
    chosen = tagged(large, 2, "TagA")
    found = measured(large, subscribe="BenchTopic02", tags="TagA")
    assert positions_of(found) == positions_in(large, chosen)
    assert set(found.table["tags"].to_pylist()) == {"TagA"}
    assert chosen.sum() > 2_500
    assert found.bytes <= 2 * large.queue_bytes + large.bytes_around(chosen) + MIB


def test_a_tag_that_no_message_has_reads_the_queues_alone(large: Generated) -> None:
    found = measured(large, subscribe="BenchTopic02", tags="TagZ")
    assert len(found.table) == 0
    assert found.bytes <= 2 * large.queue_bytes + MIB


# ---- time


@pytest.fixture
def exact_clock(monkeypatch: pytest.MonkeyPatch) -> int:
    """Clocks that go back by no more than these milliseconds. With the minute that is allowed for otherwise all that a
    generated store of this size holds, some minutes, would be near any time."""
    slack = 50
    monkeypatch.setattr(clock, "CLOCK_SLACK", slack)
    return slack


def segments_of(store: Generated, least: int, most: int) -> list[str]:
    """The segments with messages of the store times [least, most]."""
    firsts = store.firsts()
    lasts = [*(firsts[1:] - 1), len(store.units) - 1]
    return [
        str(store.root / "commitlog" / f"{i * store.segment_size:020d}")
        for i, (first, last) in enumerate(zip(firsts, lasts, strict=True))
        if store.time(int(first)) <= most and store.time(int(last)) >= least
    ]


def between(store: Generated, start: int, end: int) -> npt.NDArray[np.bool_]:
    """Messages of the store times [start, end)."""
    times = store.start_time + np.arange(len(store.units)) // store.per_ms
    return np.asarray((start <= times) & (times < end))


def read_times(store: Generated, start: int, end: int, **options: Any) -> Measured:
    return measured(store, startingTimestamp=start, endingTimestamp=end, **options)


def test_a_time_range_reads_the_segments_it_overlaps(large: Generated, exact_clock: int) -> None:
    firsts = large.firsts()
    inside = large.time(int(firsts[5])) + 5_000
    turn = large.time(int(firsts[9]))
    for start, end, count in ((inside, inside + 500, 1), (turn - 200, turn + 200, 2)):
        found = read_times(large, start, end)
        assert positions_of(found) == positions_in(large, between(large, start, end))
        overlapped = segments_of(large, start - exact_clock, end + exact_clock)
        assert len(overlapped) == count
        assert sorted({piece.segment.path for piece in found.pieces}) == overlapped
        assert found.bytes <= count * large.segment_size + MIB


def test_neighbours_within_a_minute_are_read_too(large: Generated) -> None:
    """A clock may have been set back that much."""
    start, end = large.start_time, large.start_time + 500
    found = read_times(large, start, end)
    assert positions_of(found) == positions_in(large, between(large, start, end))
    near = segments_of(large, start - 60_000, end + 60_000)
    assert 1 < len(near) < len(large.firsts())
    assert sorted({piece.segment.path for piece in found.pieces}) == near
    assert found.bytes <= len(near) * large.segment_size + MIB


def test_a_time_range_of_a_tag_reads_its_messages(large: Generated, exact_clock: int) -> None:
    """The ConsumeQueues of the segment, and what a binary search in them finds."""
    start = large.time(int(large.firsts()[5])) + 5_000
    end = start + 1000
    found = read_times(large, start, end, subscribe="BenchTopic02", tags="TagA")
    chosen = tagged(large, 2, "TagA")
    assert positions_of(found) == positions_in(large, chosen & between(large, start, end))
    (path,) = segments_of(large, start, end)
    assert {piece.segment.path for piece in found.pieces} == {path}
    near = chosen & between(large, start - exact_clock, end + exact_clock)
    assert found.bytes <= 2 * large.queue_bytes // len(large.firsts()) + large.bytes_around(near) + MIB
