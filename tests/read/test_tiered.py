"""A tiered store is read like any other; and beside its broker's own store each message comes once."""

from __future__ import annotations

import itertools
import json
import pickle
import random
import shutil
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle import reference, tiered
from oracle.stores import StoreBuilder
from oracle.tiered import TierWriter, local_store
from support import flavours

import rmqstore_spark
from rmqstore_spark import DamagedStoreError, NotAStoreError, OptionError, Store
from rmqstore_spark.query.options import parse_options
from rmqstore_spark.read.plan.planner import plan
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.logs import find_logs
from rmqstore_spark.store.tiered_log import TieredLog

COLUMNS = [
    "topic",
    "queueId",
    "queueOffset",
    "tags",
    "keys",
    "body",
    "storeTimestamp",
    "commitLogOffset",
    "offsetMsgId",
]
Row = dict[str, Any]


def rows_of(path: Path, columns: list[str] = COLUMNS, **options: Any) -> list[Row]:
    rows: list[Row] = Store(path).messages(columns, **options).read_all().to_pylist()
    return rows


def known(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row["topic"], row["queueId"], row["queueOffset"], row["keys"], row["body"]) for row in rows]


def walked(tier: Path) -> list[tuple[Any, ...]]:
    return known(list(tiered.read_tier(tier)))


@pytest.fixture
def tier(tmp_path: Path, rng: random.Random) -> Path:
    local_store(tmp_path / "store", rng)
    tiered.bring(tmp_path / "tier", tmp_path / "store", rng, codas=rng.random() < 0.5)
    return tmp_path / "tier"


def sorted_rows(rows: list[Row]) -> list[tuple[Any, ...]]:
    return sorted(known(rows))


# ---- alone


def test_all_messages(tier: Path) -> None:
    rows = rows_of(tier)
    assert known(rows) == walked(tier)
    assert sorted(known(rows)) == sorted(known(rows_of(tier.parent / "store")))
    assert {(row["commitLogOffset"], row["offsetMsgId"]) for row in rows} == {(None, None)}
    for below in (tier / tiered.CLUSTER, tier / tiered.CLUSTER / "bk"):
        assert known(rows_of(below)) == walked(tier)
    assert known(rows_of(tier, maxPartitionBytes=1)) == walked(tier)


def test_selections_are_those_of_a_scan(tier: Path, rng: random.Random) -> None:
    everything = rows_of(tier)
    some = rng.choice(everything)
    time = some["storeTimestamp"]
    offset = some["queueOffset"]

    def check(expected: list[Row], **options: Any) -> None:
        assert rows_of(tier, **options) == expected, options

    check([r for r in everything if r["topic"] == "B"], subscribe="B")
    check([r for r in everything if r["topic"] != "%RETRY%g"], subscribePattern="[AB]")
    check([r for r in everything if (r["topic"], r["queueId"]) == ("A", 1)], assign={"A": [1]})
    check([r for r in everything if r["tags"] == "red"], tags="red")
    check([r for r in everything if r["keys"] == some["keys"]], key=some["keys"])
    check([r for r in everything if r["storeTimestamp"] >= time], startingTimestamp=time)
    check([r for r in everything if r["storeTimestamp"] < time], endingTimestamp=time)
    begun = {some["topic"]: {some["queueId"]: offset}}

    def is_of(row: Row) -> bool:
        return (row["topic"], row["queueId"]) == (some["topic"], some["queueId"])

    check([r for r in everything if not is_of(r) or r["queueOffset"] >= offset], startingOffsets=begun)
    check([r for r in everything if not is_of(r) or r["queueOffset"] < offset], endingOffsets=begun)


def test_other_files_are_not_read(tier: Path) -> None:
    """Those of queues that are not selected, and of queue offsets."""
    for path in tier.glob("*/*/B/*/COMMIT_LOG/*"):
        path.write_bytes(bytes(path.stat().st_size))
    assert [row["topic"] for row in rows_of(tier, subscribe="A")].count("A") > 0
    with pytest.raises(DamagedStoreError):
        rows_of(tier)
    shutil.rmtree(tier)
    (tier.parent / "tier").mkdir()
    units = tiered.queue_units(tier.parent / "store")["A", 0]
    writer = TierWriter(tier, "A", 0)
    paths = [writer.write_segment(units[at : at + 5]) for at in range(0, len(units), 5)]
    paths[1].write_bytes(paths[1].read_bytes()[:-9] + bytes(9))
    got = rows_of(tier, assign={"A": [0]}, startingOffsets={"A": {0: 10}})
    assert [row["queueOffset"] for row in got] == list(range(10, len(units)))


def test_ids_with_offsets_find_nothing(tier: Path) -> None:
    """A unit's physicalOffset in a tier is not the commitlog's, so what could be made of it is no id."""
    (first, *_) = rows_of(tier.parent / "store")
    made = first["offsetMsgId"][:16] + f"{0:016X}"
    assert rows_of(tier, msgId=made) == []
    assert rows_of(tier, offsetMsgId=made) == []
    assert [row["keys"] for row in rows_of(tier, msgId=f"{0:032X}")] == ["key-0"]
    assert Store(tier).get(f"{0:032X}").num_rows == 1


def test_topics_that_are_not_there(tier: Path) -> None:
    with pytest.raises(OptionError, match="unknown topic 'C'"):
        rows_of(tier, subscribe="C")


def test_tables(tier: Path) -> None:
    store = Store(tier)
    messages = rows_of(tier)
    queues = store.queues().to_pylist()
    assert {(q["topic"], q["queueId"]): (q["minOffset"], q["maxOffset"], q["messages"]) for q in queues} == {
        queue: (min(offsets), max(offsets) + 1, len(offsets))
        for queue in {(m["topic"], m["queueId"]) for m in messages}
        if (offsets := [m["queueOffset"] for m in messages if (m["topic"], m["queueId"]) == queue])
    }
    assert store.queues(subscribe="B").to_pylist() == [q for q in queues if q["topic"] == "B"]
    assert {row["file"] for row in store.segments().to_pylist()} == {
        str(path) for path in tier.glob("*/*/*/*/COMMIT_LOG/*")
    }
    assert store.check().to_pylist() == []
    topics = store.topics().to_pylist()
    assert [(t["topic"], t["kind"], t["queues"], t["messages"], t["lastStoreTimestamp"]) for t in topics] == [
        (topic, kind, len({m["queueId"] for m in some}), len(some), max(m["storeTimestamp"] for m in some))
        for topic, kind in (("%RETRY%g", "retry"), ("A", "user"), ("B", "user"))
        if (some := [m for m in messages if m["topic"] == topic])
    ]
    assert {(t["configured"], t["readQueueNums"], t["perm"]) for t in topics} == {(False, None, None)}
    assert store.topics(subscribe="B").to_pylist() == [t for t in topics if t["topic"] == "B"]
    for name in ("groups", "offsets", "checkpoint", "logicqueues", "index", "delayed", "inflight"):
        with pytest.raises(NotAStoreError, match="a tiered store has messages and the tables topics, queues"):
            store.table(name)
    assert "a tiered store" in repr(store)


def _units(directory: Path) -> Iterator[tuple[Any, ...]]:
    """The units of all queues in a tier, as their files have them."""
    for path in sorted(directory.glob("*/*/*/*/CONSUME_QUEUE/*"), key=lambda path: (*path.parts[:-1], path.name[8:])):
        start, queue = int(path.name[8:]), path.parent.parent
        for at, (position, size, code) in enumerate(struct.iter_unpack(">qiq", path.read_bytes())):
            name = queue.parent.name, int(queue.name), start // 20 + at
            yield *name, position, size, code, str(path), 20 * at, 1, code, None, None


def test_table_of_units(tier: Path, rng: random.Random) -> None:
    def table(**options: Any) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in Store(tier).consumequeue(**options).to_pylist()]

    units = list(_units(tier))
    assert table() == units
    assert [unit[:3] for unit in units] == [(r["topic"], r["queueId"], r["queueOffset"]) for r in rows_of(tier)]
    own = {tuple(row.values())[:3]: row for row in Store(tier.parent / "store").consumequeue().to_pylist()}
    assert {unit[:3]: unit[4:6] for unit in units} == {name: (r["size"], r["tagsCode"]) for name, r in own.items()}
    assert table(subscribe="B") == [unit for unit in units if unit[0] == "B"]
    topic, queue_id, offset, *_ = rng.choice(units)
    of_queue = [unit for unit in units if unit[:2] == (topic, queue_id)]
    where = {topic: {queue_id: offset}}
    assert table(assign={topic: [queue_id]}, startingOffsets=where) == [u for u in of_queue if u[2] >= offset]
    assert table(assign={topic: [queue_id]}, endingOffsets=where) == [u for u in of_queue if u[2] < offset]
    *_, path = tier.glob("*/*/*/*/CONSUME_QUEUE/*")
    path.write_bytes(path.read_bytes()[:-7])  # as of a broker that was killed
    assert table() == [tuple(unit) for unit in _units_up_to_half(tier)]


def _units_up_to_half(directory: Path) -> Iterator[tuple[Any, ...]]:
    for path in directory.glob("*/*/*/*/CONSUME_QUEUE/*"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 20 * 20])
    return _units(directory)


BY = {
    "topic": lambda row: row["topic"],
    "queueId": lambda row: row["queueId"],
    "tag": lambda row: row["tags"],
    "storeHost": lambda row: row["storeHost"],
    "hour": lambda row: row["storeTimestamp"].replace(minute=0, second=0, microsecond=0),
}


@pytest.mark.parametrize("by", ["topic", "topic,queueId", "hour,tag", "storeHost"])
def test_usage(tier: Path, rng: random.Random, by: str) -> None:
    """A batch counts as the messages in it, and its bytes once; also where another queue has one of the same offset."""
    inner = reference.encode_batch([reference.Inner(b"one", b""), reference.Inner(b"two", b"")])
    for topic, queue_id in (("Z", 0), ("Z", 1)):
        unit = reference.encode_unit(topic=topic, queue_id=queue_id, body=inner, sys_flag=0xC0)
        tiered.TierWriter(tier, topic, queue_id).write_segment([unit])
    columns = ["topic", "queueId", "tags", "storeHost", "storeTimestamp", "storeSize", "batchIndex"]

    def summed(**options: Any) -> dict[tuple[Any, ...], tuple[int, int]]:
        sums: dict[tuple[Any, ...], tuple[int, int]] = {}
        for row in rows_of(tier, columns, **options):
            key = tuple(BY[name](row) for name in by.split(","))
            count, nbytes = sums.get(key, (0, 0))
            sums[key] = count + 1, nbytes + (0 if row["batchIndex"] else row["storeSize"])
        return sums

    def table(**options: Any) -> dict[tuple[Any, ...], tuple[int, int]]:
        rows = Store(tier).usage(by=by, **options).to_pylist()
        assert {row["source"] for row in rows} == {"log"}
        return {tuple(row[name] for name in by.split(",")): (row["messages"], row["bytes"]) for row in rows}

    found = table()
    assert found == summed()
    walked = list(tiered.read_tier(tier))  # a batch is one row there
    assert sum(nbytes for _, nbytes in found.values()) == sum(row["storeSize"] for row in walked)
    assert sum(count for count, _ in found.values()) == len(walked) + 2
    assert table(subscribe="A,Z") == summed(subscribe="A,Z")
    if by == "topic":
        own = Store(tier.parent / "store").usage().to_pylist()
        assert {key: sums for key, sums in found.items() if key != ("Z",)} == {
            (row["topic"],): (row["messages"], row["bytes"]) for row in own
        }


def test_traces(tmp_path: Path, rng: random.Random) -> None:
    """Under a topic of the user's own: that of the brokers is a system topic."""
    builder = StoreBuilder(tmp_path / "store")
    for number in range(20):
        fields = "Pub", str(1_700_000_000_000 + number), "r", "g", "T", f"id{number}", "", f"key{number}", "h", "9", "3"
        builder.append("my_trace", "\1".join(fields).encode() + b"\2", queue_id=number % 2, keys=f"key{number}")
    builder.close()
    tiered.bring(tmp_path / "tier", tmp_path / "store", rng)

    def table(root: str, **options: Any) -> list[Row]:
        rows = Store(tmp_path / root).traces(**options).to_pylist()
        return sorted(({**row, "commitLogOffset": None} for row in rows), key=lambda row: row["timestamp"])

    own = table("store", subscribe="my_trace")
    assert [row["msgId"] for row in own] == [f"id{number}" for number in range(20)]
    assert table("tier", subscribe="my_trace") == own
    assert table("tier", subscribe="my_trace", key="key7") == [own[7]]
    assert table("tier") == []


@pytest.mark.slow
def test_history(tier: Path, rng: random.Random, caplog: pytest.LogCaptureFixture) -> None:
    """What the broker's own store tells, but for what no broker brings to a tier."""

    def events(root: str, name: str) -> list[list[Any]]:
        rows = Store(tier.parent / root).history(name).drop_columns("commitLogOffset").to_pylist()
        assert [row["timestamp"] for row in rows] == sorted(row["timestamp"] for row in rows)
        return sorted([*row.values()] for row in rows)

    some = rng.randrange(40)
    for name in (f"key-{some}", f"{some:032X}", "no-such"):
        caplog.clear()
        told = events("tier", name)
        assert told == events("store", name)
        assert bool(told) == (name != "no-such")
        assert "a tiered store tells when messages were stored, retried and given up" in caplog.text
    assert {row[1] for number in range(40) for row in events("tier", f"key-{number}")} == {"produced", "retried"}
    (first, *_) = rows_of(tier.parent / "store")
    made = first["offsetMsgId"][:16] + f"{0:016X}"  # no position in the commitlog
    assert Store(tier).history(made).num_rows == 0
    TierWriter(tier, "A", 0, broker="other").write_segment([])
    with pytest.raises(OptionError, match="several brokers"):
        Store(tier).history("key-1")


def test_history_of_odd_topics(tmp_path: Path, rng: random.Random) -> None:
    """No broker brings system topics; what lies there is told without what belongs to it."""
    builder = StoreBuilder(tmp_path / "store")
    for topic in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "T"):
        builder.append(topic, b"b", keys="k", msg_id="A" * 32)
    builder.close()
    tiered.bring(tmp_path / "tier", tmp_path / "store", rng)
    assert {row["event"] for row in Store(tmp_path / "tier").history("k").to_pylist()} == {
        "delayed",
        "prepared",
        "produced",
    }


def test_refusals(tier: Path, tmp_path: Path) -> None:
    store = Store(tier)
    with pytest.raises(NotAStoreError, match="a tiered store"):
        store.offsets_of("g")
    with pytest.raises(NotAStoreError, match="can only be read"):
        rmqstore_spark.rebuild(tier)
    with pytest.raises(OptionError, match="option 'tiered'"):
        rows_of([tier, tmp_path / "store"])  # type: ignore[arg-type]


# ---- what a kill leaves, and damage


@pytest.mark.parametrize("count", [1, 5])
def test_last_segment_may_end_anywhere(tmp_path: Path, rng: random.Random, count: int) -> None:
    """A broker brings the units of a queue after the messages."""
    local_store(tmp_path / "store", rng, 60)
    units = tiered.queue_units(tmp_path / "store")["A", 0][:count]
    path = TierWriter(tmp_path / "tier", "A", 0).write_segment(units, lag=count)
    sound = path.read_bytes()
    for size in sorted(rng.sample(range(len(sound)), 20)):
        path.write_bytes(sound[:size])
        assert known(rows_of(tmp_path / "tier")) == walked(tmp_path / "tier"), size


@pytest.mark.parametrize("count", [1, 5])
def test_a_lost_end_is_told(tmp_path: Path, rng: random.Random, count: int) -> None:
    """The log was cut, and its queue has the units of all messages."""
    local_store(tmp_path / "store", rng, 60)
    units = tiered.queue_units(tmp_path / "store")["A", 0][:count]
    path = TierWriter(tmp_path / "tier", "A", 0).write_segment(units)
    sound = path.read_bytes()
    ends = list(itertools.accumulate(len(unit) for unit in units))
    for size in sorted({*rng.sample(range(len(sound)), 20), *ends[:-1]}):
        path.write_bytes(sound[:size])
        if size and size not in ends:
            with pytest.raises(DamagedStoreError, match=r"COMMIT_LOG"):
                rows_of(tmp_path / "tier")
        assert known(rows_of(tmp_path / "tier", mode="DROPMALFORMED")) == walked(tmp_path / "tier"), size
        problems = {row["problem"] for row in Store(tmp_path / "tier").check().to_pylist()}
        assert problems & {"damagedQueueLog", "tieredQueueAhead"}, size


def test_earlier_segment_must_be_whole(tmp_path: Path, rng: random.Random) -> None:
    local_store(tmp_path / "store", rng, 120)
    units = tiered.queue_units(tmp_path / "store")["A", 0]
    assert len(units) >= 8
    writer = TierWriter(tmp_path / "tier", "A", 0)
    first = writer.write_segment(units[:4])
    writer.write_segment(units[4:8])
    data = first.read_bytes()
    first.write_bytes(data[:-3])
    with pytest.raises(DamagedStoreError, match=r"COMMIT_LOG"):
        rows_of(tmp_path / "tier")
    rows = rows_of(tmp_path / "tier", mode="DROPMALFORMED")
    assert [row["queueOffset"] for row in rows] == [0, 1, 2, 4, 5, 6, 7]
    assert {row["problem"] for row in Store(tmp_path / "tier").check().to_pylist()} >= {"damagedQueueLog"}
    corrupt = [row for row in rows_of(tmp_path / "tier", [*COLUMNS, "corrupt"], mode="PERMISSIVE") if row["corrupt"]]
    assert corrupt
    assert all(row["commitLogOffset"] is None for row in corrupt)


def test_flipped_bits(tmp_path: Path, rng: random.Random) -> None:
    local_store(tmp_path / "store", rng, 40)
    files = tiered.bring(tmp_path / "tier", tmp_path / "store", rng)
    columns = [name for name in COLUMNS if name != "storeTimestamp"]  # Python has no dates after the year 9999
    rows = rows_of(tmp_path / "tier", columns)
    path = rng.choice(rng.choice(sorted(files.values())))
    sound = path.read_bytes()
    for at in rng.sample(range(len(sound)), 25):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << rng.randrange(8)]) + sound[at + 1 :])
        left = rows_of(tmp_path / "tier", columns, mode="DROPMALFORMED")
        told = Store(tmp_path / "tier").check().to_pylist()
        try:
            rows_of(tmp_path / "tier", columns)
        except DamagedStoreError as why:  # as for a body that is said to be compressed, which check does not try
            told.append({"problem": str(why)})
        if not told:  # a field that no checksum covers and nothing else tells
            assert [row["queueOffset"] for row in left] == [row["queueOffset"] for row in rows], at
            assert [row["body"] for row in left] == [row["body"] for row in rows], at
        else:
            assert len([row for row in left if row not in rows]) <= 1


def test_queue_that_began_anew(tmp_path: Path, rng: random.Random) -> None:
    """COMMIT_LOG from 0 again, CONSUME_QUEUE from the first offset on."""
    local_store(tmp_path / "store", rng)
    units = tiered.queue_units(tmp_path / "store")["A", 1]
    writer = TierWriter(tmp_path / "tier", "A", 1)
    writer.write_segment(units[7:9])
    writer.write_segment(units[9:], lag=2)
    assert [row["queueOffset"] for row in rows_of(tmp_path / "tier")] == list(range(7, len(units)))
    assert Store(tmp_path / "tier").check().to_pylist() == []


def test_empty_queues(tier: Path) -> None:
    everything = walked(tier)
    TierWriter(tier, "Empty", 0)
    TierWriter(tier, "Empty", 1).write_segment([])
    assert known(rows_of(tier)) == everything
    assert [q["messages"] for q in Store(tier).queues(subscribe="Empty").to_pylist()] == [0, 0]


def test_hole(tmp_path: Path, rng: random.Random) -> None:
    builder = local_store(tmp_path / "store", rng)
    queues = tiered.queue_units(tmp_path / "store")
    queue_id = max(range(3), key=lambda number: len(queues["A", number]))
    units = queues["A", queue_id]
    writer = TierWriter(tmp_path / "tier", "A", queue_id)
    writer.write_segment(units[:4])
    hole = writer.write_segment(units[4:9])
    writer.write_segment(units[9:12])
    hole.unlink()
    with pytest.raises(DamagedStoreError, match="a hole in the log of this queue"):
        rows_of(tmp_path / "tier")
    assert [row["problem"] for row in Store(tmp_path / "tier").check().to_pylist()] == ["holeInQueueLog"]
    assert [r["queueOffset"] for r in rows_of(tmp_path / "tier", mode="DROPMALFORMED")] == [0, 1, 2, 3, 9, 10, 11]
    # the store has the messages
    everything = sorted_rows(rows_of(tmp_path / "store"))
    assert sorted_rows(rows_of(tmp_path / "store", tiered=tmp_path / "tier")) == everything
    builder.expire(1)
    left = {row["queueOffset"] for row in rows_of(tmp_path / "store", assign={"A": [queue_id]})}
    if min(left) > 4:
        with pytest.raises(DamagedStoreError, match="a hole in the log of this queue"):
            rows_of(tmp_path / "store", tiered=tmp_path / "tier")


@pytest.mark.parametrize(("known", "holes"), [((4, 9), 0), ((3, 10), 0), ((5, 9), 1), ((4, 8), 1), ((4, 4), 1)])
def test_a_hole_is_known_elsewhere_if_all_its_messages_are(tmp_path: Path, known: tuple[int, int], holes: int) -> None:
    local_store(tmp_path / "store", random.Random(1))
    units = tiered.queue_units(tmp_path / "store")["A", 0]
    writer = TierWriter(tmp_path / "tier", "A", 0)
    writer.write_segment(units[:4])
    hole = writer.write_segment(units[4:9])
    writer.write_segment(units[9:12])
    hole.unlink()
    (log,) = find_logs(str(tmp_path / "tier"), Files())
    assert len(TieredLog(log.layout, Files(), known).holes) == holes


@pytest.mark.parametrize(("damaged", "number"), [(0, 2**62), (2, 2**62), (5, 2**62), (5, 4), (5, 0), (3, 2), (0, 3)])
def test_a_damaged_queue_offset(tmp_path: Path, damaged: int, number: int) -> None:
    """It may be any number, for which no memory suffices where numbers are counted one by one; that of another message,
    which does not come again by that."""
    local_store(tmp_path / "store", random.Random(1))
    units = tiered.queue_units(tmp_path / "store")["A", 0][:6]
    path = TierWriter(tmp_path / "tier", "A", 0).write_segment(units)
    data = bytearray(path.read_bytes())
    struct.pack_into(">q", data, sum(map(len, units[:damaged])) + 20, number)
    path.write_bytes(data)
    found = [row["queueOffset"] for row in rows_of(tmp_path / "tier", mode="DROPMALFORMED")]
    assert sorted(found) == sorted([*{*range(6)} - {damaged}, number])
    assert Store(tmp_path / "tier").check().num_rows > 0


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["messages", "files"])
def test_lost_end(tmp_path: Path, rng: random.Random, lost: str) -> None:
    """Files that lack whole messages at the end of a log are seen by its queue alone."""
    builder = local_store(tmp_path / "store", rng)
    units = tiered.queue_units(tmp_path / "store")["A", 0]
    writer = TierWriter(tmp_path / "tier", "A", 0)
    writer.write_segment(units[:4])
    cut = [writer.write_segment(units[4:8]), *(writer.write_segment(units[at : at + 1]) for at in range(8, len(units)))]
    if lost == "messages":
        cut[0].write_bytes(cut[0].read_bytes()[: len(units[4])])
    else:
        cut[0].unlink()
    for path in cut[1:]:
        path.unlink()
    left = [*range(5 if lost == "messages" else 4)]
    told = rf"has lost its end: there are units for queueOffset {len(left)} to {len(units) - 1}, whose"
    with pytest.raises(DamagedStoreError, match=told):
        rows_of(tmp_path / "tier")
    with pytest.raises(DamagedStoreError, match=f"{told}.*: tiers are not salvaged$"):
        Store(tmp_path / "tier").copy(tmp_path / "copy")
    assert {row["problem"] for row in Store(tmp_path / "tier").check().to_pylist()} == {"tieredQueueAhead"}
    assert [r["queueOffset"] for r in rows_of(tmp_path / "tier", mode="DROPMALFORMED")] == left
    # the store has the messages
    everything = sorted_rows(rows_of(tmp_path / "store"))
    assert sorted_rows(rows_of(tmp_path / "store", tiered=tmp_path / "tier")) == everything
    builder.expire(len(list((tmp_path / "store" / "commitlog").iterdir())) - 1)
    with pytest.raises(DamagedStoreError, match=told):
        rows_of(tmp_path / "store", tiered=tmp_path / "tier")


def test_a_queue_that_a_broker_brings_meanwhile_has_lost_nothing(tmp_path: Path, rng: random.Random) -> None:
    """Its units may be read after messages that had not been there when the log's files were listed."""
    local_store(tmp_path / "store", rng)
    units = tiered.queue_units(tmp_path / "store")["A", 0]
    writer = TierWriter(tmp_path / "tier", "A", 0)
    writer.write_segment(units[:4])
    (log,) = find_logs(str(tmp_path / "tier"), Files())
    writer.write_segment(units[4:6])
    assert log.faults == []


def test_units_that_a_broker_writes_before_their_messages(tmp_path: Path, rng: random.Random) -> None:
    """It does so where a file of units is full: the messages follow a moment later."""
    local_store(tmp_path / "store", rng)
    units = tiered.queue_units(tmp_path / "store")["A", 0]
    writer = TierWriter(tmp_path / "tier", "A", 0)
    writer.write_segment(units[:4])
    late = writer.write_segment(units[4:])
    messages = late.read_bytes()
    late.write_bytes(b"")
    broker = threading.Timer(0.5, late.write_bytes, [messages])
    broker.start()
    try:
        assert [row["queueOffset"] for row in rows_of(tmp_path / "tier")] == [*range(4)]
    finally:
        broker.join()
    assert [row["queueOffset"] for row in rows_of(tmp_path / "tier")] == [*range(len(units))]


@pytest.mark.parametrize("half", [False, True], ids=["whole", "half"])
@pytest.mark.parametrize("files", ["one", "several"])
@pytest.mark.parametrize("has_units", [True, False], ids=["", "none-at-first"])
def test_messages_that_a_killed_broker_brings_again(
    tmp_path: Path, rng: random.Random, has_units: bool, files: str, half: bool
) -> None:
    """One that is killed between messages and their units goes on after the last unit."""
    local_store(tmp_path / "store", rng, 400)
    units = tiered.queue_units(tmp_path / "store")["A", 0]
    writer = TierWriter(tmp_path / "tier", "A", 0)
    at = 0
    for number in range(3):
        count, lag = rng.randint(5, 12), rng.randint(0 if half else 1, 4)
        lag = lag if has_units or number else count
        path = writer.write_segment(units[at : at + count], lag=lag)
        at += count
        if half:
            begun = units[at][: rng.randrange(1, len(units[at]))]
            path.write_bytes(path.read_bytes() + begun)
            writer.next += len(begun)
        at -= lag
    writer.write_segment(units[at:], lag=rng.randint(0, 3))
    if files == "one":
        for directory in (writer.log, writer.queue):
            first, *others = sorted(directory.iterdir(), key=lambda path: path.name[8:])
            first.write_bytes(b"".join(path.read_bytes() for path in (first, *others)))
            for path in others:
                path.unlink()
    store = Store(tmp_path / "tier")
    assert [row["queueOffset"] for row in rows_of(tmp_path / "tier")] == [*range(len(units))]
    assert store.usage(by="topic").to_pylist()[0]["messages"] == len(units)
    assert [row["problem"] for row in store.check().to_pylist()] == []
    assert [row["queueOffset"] for row in rows_of(tmp_path / "tier", maxPartitionBytes=1)] == [*range(len(units))]
    later = rows_of(tmp_path / "tier", startingOffsets=json.dumps({"A": {"0": 6}}))
    assert [row["queueOffset"] for row in later] == [*range(6, len(units))]


def test_units_that_lie_about_what_was_brought_again(tmp_path: Path, rng: random.Random) -> None:
    """Rows do not depend on them."""
    local_store(tmp_path / "store", rng, 250)
    units = tiered.queue_units(tmp_path / "store")["A", 0]
    writer = TierWriter(tmp_path / "tier", "A", 0)
    writer.write_segment(units[:12], lag=3)
    writer.write_segment(units[9:])
    for path in writer.queue.iterdir():
        sound = path.read_bytes()
        signs = (7, 8 * (len(sound) - 20) + 7)  # of the positions of the first and of the last unit
        for at in (*signs, *(rng.randrange(8 * len(sound)) for _ in range(15))):
            path.write_bytes(sound[: at // 8] + bytes([sound[at // 8] ^ 1 << at % 8]) + sound[at // 8 + 1 :])
            assert sorted(row["queueOffset"] for row in rows_of(tmp_path / "tier")) == [*range(len(units))], at
        path.write_bytes(sound)


def test_messages_brought_again_that_have_no_units_yet(tmp_path: Path, rng: random.Random) -> None:
    local_store(tmp_path / "store", rng)
    units = tiered.queue_units(tmp_path / "store")["A", 0]
    writer = TierWriter(tmp_path / "tier", "A", 0)
    writer.write_segment(units[:8], lag=3)
    writer.write_segment(units[5:7], lag=2)
    assert [row["queueOffset"] for row in rows_of(tmp_path / "tier")] == [*range(8)]
    assert [row["problem"] for row in Store(tmp_path / "tier").check().to_pylist()] == []
    assert ends_in(tmp_path / "tier") == (0, 8)


def ends_in(tier: Path) -> tuple[int, int]:
    (queue,) = Store(tier).queues().to_pylist()
    return queue["minOffset"], queue["maxOffset"]


def test_ends_of_a_queue_that_a_killed_broker_brought_again(tmp_path: Path, rng: random.Random) -> None:
    """The log neither begins with the lowest queue offset nor ends with the highest."""
    local_store(tmp_path / "store", rng, 200)
    units = tiered.queue_units(tmp_path / "store")["A", 0]
    writer = TierWriter(tmp_path / "tier", "A", 0)
    expired = writer.write_segment(units[:6], lag=3)
    writer.write_segment(units[6:9], lag=3)
    writer.write_segment(units[3:8], lag=rng.choice([0, 5]))
    expired.unlink()
    assert sorted(row["queueOffset"] for row in rows_of(tmp_path / "tier")) == [*range(3, 9)]
    assert ends_in(tmp_path / "tier") == (3, 9)


def test_older_store_than_the_tier_of_a_killed_broker(tmp_path: Path, rng: random.Random) -> None:
    """What only the tier has may stand before its last message."""
    for root, count in (("store", 6), ("all", 9)):
        builder = StoreBuilder(tmp_path / root)
        for number in range(count):
            builder.append("A", f"body-{number}".encode(), msg_id=f"{number:032X}")
        builder.close()
    units = tiered.queue_units(tmp_path / "all")["A", 0]
    writer = TierWriter(tmp_path / "tier", "A", 0)
    writer.write_segment(units, lag=5)
    writer.write_segment(units[4:6], lag=rng.randint(0, 2))
    rows = rows_of(tmp_path / "store", tiered=tmp_path / "tier")
    assert sorted(row["queueOffset"] for row in rows) == [*range(9)]
    copied = Store(tmp_path / "store").copy(tmp_path / "copy", tiered=tmp_path / "tier")
    assert copied.messages == 9


def test_each_part_of_a_log_is_judged_alike(tmp_path: Path, rng: random.Random) -> None:
    """Tasks have parts of a log, and come to one answer together."""
    local_store(tmp_path / "store", rng, 300)
    units = tiered.queue_units(tmp_path / "store")["A", 0]
    writer = TierWriter(tmp_path / "tier", "A", 0)
    at = 0
    for number in range(5):
        count, lag = rng.randint(5, 9), rng.randint(1, 4)
        path = writer.write_segment(units[at : at + count], lag=lag)
        at += count
        if number % 2:
            begun = units[at][:28] + struct.pack(">q", writer.next) + units[at][36 : -rng.randrange(1, 60)]
            path.write_bytes(path.read_bytes() + begun)
            writer.next += len(begun)
        at -= lag
    end = writer.next
    writer.write_segment(units[at : at + 4]).unlink()
    writer.next = end
    writer.write_segment(units[at + 4 :], lag=2)
    for damaged in (False, True):
        if damaged:
            queue = rng.choice(sorted(writer.queue.iterdir()))
            data = bytearray(queue.read_bytes())
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            queue.write_bytes(data)
        (log,) = find_logs(str(tmp_path / "tier"), Files())
        assert isinstance(log, TieredLog)
        starts = [*positions_in(writer)]
        whole: list[tuple[int, int]] = []
        for extent in log.log.extents:
            parts = [*log.brought.parts(extent.start, extent.stop)]
            whole += [each if isinstance(each, tuple) else (each.start, each.start) for each in parts]
            inside = [each for each in starts if extent.start <= each < extent.stop]
            for begin, stop in itertools.pairwise([*inside, extent.stop]):
                found = [*log.brought.parts(begin, stop)]
                shown = {each for each in found if isinstance(each, tuple)}
                kept = [(max(begin, a), min(stop, b)) for a, b in whole if max(begin, a) < min(stop, b)]
                assert sum(b - a for a, b in shown) == sum(b - a for a, b in kept), (begin, stop)
        told = [each for extent in log.log.extents for each in log.brought.parts(extent.start, extent.stop)]
        holes = [each.reason for each in told if not isinstance(each, tuple)]
        assert damaged or lag == 4 or (len(holes) == 1 and f"queueOffset {at + lag} to {at + 3}," in holes[0])


def positions_in(writer: TierWriter) -> Iterator[int]:
    """The positions of the messages in a queue's log, and of halves of them."""
    for path in sorted(writer.log.iterdir(), key=lambda path: path.name[8:]):
        data, start = path.read_bytes(), int(path.name[8:])
        places = (struct.unpack_from(">q", data, at + 28)[0] for at in range(len(data) - 36))
        yield from (start + at for at, place in enumerate(places) if place == start + at)


def test_a_message_that_reaches_over_where_one_begins(tmp_path: Path, rng: random.Random) -> None:
    """Half a message whose body is whole looks like a message, with what follows as its properties."""
    local_store(tmp_path / "store", rng, 200)
    units = tiered.queue_units(tmp_path / "store")["A", 0]
    writer = TierWriter(tmp_path / "tier", "A", 0)
    path = writer.write_segment(units[:8], lag=3)
    begun = units[8][:28] + struct.pack(">q", writer.next) + units[8][36:-5]
    path.write_bytes(path.read_bytes() + begun)
    writer.next += len(begun)
    writer.write_segment(units[5:])
    assert [row["queueOffset"] for row in rows_of(tmp_path / "tier")] == [*range(len(units))]


def test_messages_brought_once_and_then_never_again(tmp_path: Path, rng: random.Random) -> None:
    """Killed twice: after the messages 4 to 9, which have no units yet, and after the units of 6 to 11, whose messages
    were to come again. So those of 6 to 9 are the only ones, and only 10 and 11 are told: by their units."""
    local_store(tmp_path / "store", rng, 200)
    units = tiered.queue_units(tmp_path / "store")["A", 0]
    writer = TierWriter(tmp_path / "tier", "A", 0)
    writer.write_segment(units[:10], lag=6)
    writer.write_segment(units[4:6])
    end = writer.next
    writer.write_segment(units[6:12]).unlink()
    writer.next = end
    writer.write_segment(units[12:])
    with pytest.raises(DamagedStoreError, match="units for queueOffset 10 to 11, and found queueOffset 12 where"):
        rows_of(tmp_path / "tier")
    rows = rows_of(tmp_path / "tier", mode="DROPMALFORMED")
    assert sorted(row["queueOffset"] for row in rows) == [*range(10), *range(12, len(units))]


def test_a_hole_before_messages_brought_once(tmp_path: Path, rng: random.Random) -> None:
    """Message 4 never comes. Of 5 to 12, which have no units at first, 6 and 7 are not brought again either: they are
    the only ones, and hide no hole."""
    local_store(tmp_path / "store", rng, 200)
    units = tiered.queue_units(tmp_path / "store")["A", 0]
    writer = TierWriter(tmp_path / "tier", "A", 0)
    writer.write_segment(units[:4])
    for unit, brought in ((4, slice(5, 13)), (None, slice(5, 6)), (6, slice(8, None))):
        if unit is not None:
            end = writer.next
            writer.write_segment(units[unit : brought.start]).unlink()
            writer.next = end
        writer.write_segment(units[brought], lag=8 if unit == 4 else 0)
    with pytest.raises(DamagedStoreError, match="units for queueOffset 4 to 4, and found queueOffset 5 where"):
        rows_of(tmp_path / "tier")
    rows = rows_of(tmp_path / "tier", mode="DROPMALFORMED")
    assert sorted(row["queueOffset"] for row in rows) == [*range(4), *range(5, len(units))]


@pytest.mark.parametrize("never", [[], [4], [30, 31], [4, 39]])
def test_a_hole_in_much_of_the_log(
    never: list[int], tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a file of units is lost, more of the log has no unit than is judged message by message."""
    monkeypatch.setattr("rmqstore_spark.store.brought.BROUGHT_AT_ONCE", 500)
    local_store(tmp_path / "store", rng, 600)
    units = tiered.queue_units(tmp_path / "store")["A", 0]
    writer = TierWriter(tmp_path / "tier", "A", 0)
    writer.write_segment(units[:4])
    for part in (slice(4, 20), slice(20, 40)):
        brought = [unit for number, unit in enumerate(units) if number not in never][part]
        writer.write_segment(brought, lag=len(brought))
    rest = 40 + len(never)
    writer.write_segment(units[rest:])
    kept = [number for number in range(len(units)) if number not in never]
    options = {"maxPartitionBytes": str(rng.choice((1000, 1 << 30)))}
    if never:
        told = f"nothing of queueOffset {never[0]} to {never[-1]}, and found queueOffset {rest} where"
        with pytest.raises(DamagedStoreError, match=told):
            rows_of(tmp_path / "tier", ["queueOffset"], **options)
        options["mode"] = "DROPMALFORMED"
    rows = rows_of(tmp_path / "tier", ["queueOffset"], **options)
    assert [row["queueOffset"] for row in rows] == kept
    found = Store(tmp_path / "tier").check()["problem"].to_pylist()
    assert ("holeInQueueLog" in found) == bool(never)


def test_messages_brought_twice_and_then_never_again(tmp_path: Path, rng: random.Random) -> None:
    """Message 5 comes with two kills, and has its unit from a third one, which lost it: one of the two is a row."""
    local_store(tmp_path / "store", rng, 200)
    units = tiered.queue_units(tmp_path / "store")["A", 0]
    writer = TierWriter(tmp_path / "tier", "A", 0)
    writer.write_segment(units[:6], lag=3)
    writer.write_segment(units[3:6], lag=2)
    writer.write_segment(units[4:5])
    end = writer.next
    writer.write_segment(units[5:7]).unlink()
    writer.next = end
    writer.write_segment(units[7:])
    for nbytes in (1, 1 << 20):
        rows = rows_of(tmp_path / "tier", mode="DROPMALFORMED", maxPartitionBytes=nbytes)
        assert sorted(row["queueOffset"] for row in rows) == [*range(6), *range(7, len(units))]


def test_queue_offsets_of_a_killed_broker(tmp_path: Path, rng: random.Random) -> None:
    """A file may begin with a higher queue offset than it goes on with, and the last messages, which have no unit, may
    stand before messages that have one."""
    local_store(tmp_path / "store", rng, 300)
    units = tiered.queue_units(tmp_path / "store")["A", 0][:30]
    writer = TierWriter(tmp_path / "tier", "A", 0)
    writer.write_segment(units[:15], lag=5)
    path = writer.write_segment(units[15:17], lag=2)
    following = writer.write_segment(units[10:20])
    path.write_bytes(path.read_bytes() + following.read_bytes())
    following.unlink()
    writer.write_segment(units[20:], lag=10)
    writer.write_segment(units[20:22])
    for least, after in itertools.combinations(range(0, 31, 3), 2):
        starts, stops = (json.dumps({"A": {"0": number}}) for number in (least, after))
        rows = rows_of(tmp_path / "tier", startingOffsets=starts, endingOffsets=stops)
        assert sorted(row["queueOffset"] for row in rows) == [*range(least, after)]


def test_a_read_goes_by_its_plan(tmp_path: Path, rng: random.Random) -> None:
    """What a broker brings again between plan and read does not count: of messages that are behind the plan's end, the
    first ones are read."""
    local_store(tmp_path / "store", rng, 200)
    units = tiered.queue_units(tmp_path / "store")["A", 0]
    writer = TierWriter(tmp_path / "tier", "A", 0)
    writer.write_segment(units[:8], lag=3)
    reader = Store(tmp_path / "tier").messages(["queueOffset"])
    writer.write_segment(units[5:])
    assert [row["queueOffset"] for row in reader.read_all().to_pylist()] == [*range(8)]
    assert [row["queueOffset"] for row in rows_of(tmp_path / "tier")] == [*range(len(units))]


def test_a_plan_costs_the_same_however_long_the_queues(tmp_path: Path, rng: random.Random) -> None:
    costs = []
    for count in (500, 2000):
        store = local_store(tmp_path / f"{count}", rng, 1)
        for number in range(count):
            store.append("Long", rng.randbytes(200), keys=f"k{number}")
        store.close()
        tier = tmp_path / f"tier-{count}"
        TierWriter(tier, "Long", 0).write_segment(tiered.queue_units(tmp_path / f"{count}")["Long", 0])
        options = parse_options({"path": str(tier), "maxPartitionBytes": "30000"})
        few = parse_options({"path": str(tier), "minPartitions": "3"})
        costs.append([(found.files.requests, found.files.bytes) for found in (plan(options, puts_off=True), plan(few))])
        assert len(plan(few).tasks) == 3
    for (before, nbytes), (after, more) in zip(*costs, strict=True):
        assert after <= before + 6
        assert more <= nbytes + 16_000


@pytest.mark.parametrize("files", ["one", "several"])
def test_messages_that_a_killed_broker_never_brings(tmp_path: Path, rng: random.Random, files: str) -> None:
    """It had written the units of a full file, and not yet their messages: it goes on with those after them."""
    local_store(tmp_path / "store", rng, 400)
    units = tiered.queue_units(tmp_path / "store")["A", 0]
    writer = TierWriter(tmp_path / "tier", "A", 0)
    writer.write_segment(units[:10])
    end = writer.next
    writer.write_segment(units[10:15]).unlink()
    writer.next = end
    writer.write_segment(units[15:])
    if files == "one":
        first, *others = sorted(writer.queue.iterdir(), key=lambda path: path.name[8:])
        first.write_bytes(b"".join(path.read_bytes() for path in (first, *others)))
        for path in others:
            path.unlink()
    with pytest.raises(DamagedStoreError, match="units for queueOffset 10 to 14, and found queueOffset 15 where"):
        rows_of(tmp_path / "tier")
    left = [*range(10), *range(15, len(units))]
    assert [row["queueOffset"] for row in rows_of(tmp_path / "tier", mode="DROPMALFORMED")] == left
    (corrupt,) = [row for row in rows_of(tmp_path / "tier", ["corrupt"], mode="PERMISSIVE") if row["corrupt"]]
    assert "units for queueOffset 10 to 14" in corrupt["corrupt"]
    assert "wrongTieredQueue" in {row["problem"] for row in Store(tmp_path / "tier").check().to_pylist()}
    # the store has the messages
    everything = sorted_rows(rows_of(tmp_path / "store"))
    assert sorted_rows(rows_of(tmp_path / "store", tiered=tmp_path / "tier")) == everything


@pytest.mark.parametrize(
    ("option", "value"),
    [("subscribe", "Aa"), ("assign", {"A": [99]}), ("startingOffsets", '{"A": {"99": 3}}')],
)
def test_unknown_names_are_refused(tier: Path, option: str, value: Any) -> None:
    told = "unknown topic 'Aa'" if option == "subscribe" else "topic 'A' has no queue 99; it has 0, 1, 2"
    for store in (tier, tier.parent / "store"):
        with pytest.raises(OptionError, match=told):
            rows_of(store, **{option: value})


def test_names_that_no_broker_gives(tier: Path) -> None:
    everything = walked(tier)
    (path, *_) = sorted(tier.glob("*/*/A/0/COMMIT_LOG/*"))
    shutil.copy(path, path.with_name("ffffffff" + path.name[8:]))
    (path.parent / "notes.txt").write_text("x")
    assert known(rows_of(tier)) == everything


def test_files_that_overlap(tier: Path) -> None:
    (path, *_) = sorted(tier.glob("*/*/A/0/COMMIT_LOG/*"), key=lambda path: path.name[8:])
    shutil.copy(path, path.with_name(tiered.name_of(5)))
    with pytest.raises(DamagedStoreError, match="not of one log"):
        rows_of(tier)
    assert "damagedQueueLog" in {row["problem"] for row in Store(tier).check().to_pylist()}


def test_wrong_units_of_a_queue_are_told(tier: Path, rng: random.Random) -> None:
    path = rng.choice(sorted(tier.glob("*/*/*/*/CONSUME_QUEUE/*")))
    data = path.read_bytes()
    at = rng.randrange(len(data) // 20) * 20 + rng.choice([11, 19])
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    (row,) = Store(tier).check().to_pylist()
    assert (row["problem"], row["file"], row["filePosition"]) == ("wrongTieredQueue", str(path), at // 20 * 20)
    shutil.rmtree(path.parent)
    assert {row["problem"] for row in Store(tier).check().to_pylist()} == {"noTieredQueue"}


def test_the_end_of_a_long_log_costs_little(tmp_path: Path, rng: random.Random) -> None:
    """It is looked for from the last two units of CONSUME_QUEUE on; where these lie, from the file's beginning on."""
    store = local_store(tmp_path / "store", rng, 1)
    for number in range(2000):
        store.append("Long", rng.randbytes(500), keys=f"k{number}")
    store.close()
    path = TierWriter(tmp_path / "tier", "Long", 0).write_segment(tiered.queue_units(tmp_path / "store")["Long", 0])
    size = path.stat().st_size
    (queue,) = (tmp_path / "tier").glob("*/*/*/*/CONSUME_QUEUE/*")

    def looked() -> tuple[int, int]:
        files = Files()
        (log,) = find_logs(str(tmp_path / "tier"), files)
        return log.end, files.bytes

    end, nbytes = looked()
    assert end == size
    assert nbytes < 300_000 < size / 3
    sound = queue.read_bytes()
    for at in rng.sample(range(len(sound) - 40, len(sound)), 8):
        queue.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << rng.randrange(8)]) + sound[at + 1 :])
        assert looked()[0] == size, at
    queue.write_bytes(sound[:-4000])  # 200 messages have no unit yet
    assert looked()[0] == size
    path.write_bytes(path.read_bytes()[:-1000])
    assert len(rows_of(tmp_path / "tier", mode="DROPMALFORMED")) == 1998


# ---- beside the broker's own store


def test_what_the_store_knows_is_of_all_messages(tmp_path: Path, rng: random.Random) -> None:
    """Logic offsets of static topics, and the topics that names of pop retry topics are told apart by, are known in
    config/ and queues of the store alone; also where tasks are read."""
    root, tier = tmp_path / "store", tmp_path / "tier"
    builder = StoreBuilder(root, segment_size=8192)
    for number in range(100):
        topic, properties = rng.choice([("A", {}), ("B", {}), ("%RETRY%g_of_A_A", {"1ST_POP_TIME": "1"})])
        builder.append(topic, rng.randbytes(200), rng.randrange(3), keys=f"k{number}", properties=properties)
    builder.close()
    part = {"bname": "bk", "gen": 0, "queueId": 1, "logicOffset": 100, "startOffset": 0, "endOffset": -1}
    mapping = {"topicQueueMappingInfoMap": {"A": {"bname": "bk", "hostedQueues": {"7": [part]}}}}
    (root / "config" / "topicQueueMapping.json").write_text(json.dumps(mapping))
    names = ["topic", "queueId", "queueOffset", "logicQueueId", "logicOffset", "realTopic", "consumerGroup"]

    def ordered(rows: list[Row]) -> list[str]:
        return sorted(map(str, rows))

    expected = rows_of(root, names)
    assert {(r["topic"], r["queueId"]) for r in expected if r["logicOffset"] is not None} == {("A", 1)}
    assert {r["realTopic"] for r in expected if r["topic"] == "%RETRY%g_of_A_A"} == {"A"}
    tiered.bring(tier, root, rng)
    builder.expire(2)
    assert ordered(rows_of(root, names, tiered=tier)) == ordered(expected)
    tasks = pickle.loads(pickle.dumps(Store(root).tasks(columns=names, tiered=str(tier))))
    rows = [row for task in tasks for batch in task.read() for row in batch.to_pylist()]
    assert ordered(rows) == ordered(expected)


@pytest.mark.parametrize("queues", ["whole", "lost"])
def test_each_message_once(tmp_path: Path, rng: random.Random, queues: str) -> None:
    for trial in range(3):
        root, tier = tmp_path / f"{trial}" / "store", tmp_path / f"{trial}" / "tier"
        builder = local_store(root, rng)
        everything = rows_of(root)
        tiered.bring(tier, root, rng)
        builder.expire(rng.randint(1, 2))
        if queues == "lost":
            builder.drop_queues()
        assert len(rows_of(root)) < len(everything)
        rows = rows_of(root, tiered=tier)
        assert sorted_rows(rows) == sorted_rows(everything)
        some = rng.choice(everything)
        offset, queue = some["queueOffset"], (some["topic"], some["queueId"])
        wanted = [r for r in everything if (r["topic"], r["queueId"]) != queue or r["queueOffset"] >= offset]
        begun = {some["topic"]: {some["queueId"]: offset}}
        assert sorted_rows(rows_of(root, tiered=tier, startingOffsets=begun)) == sorted_rows(wanted)
        wanted = [row for row in everything if row["keys"] == some["keys"]]
        assert sorted_rows(rows_of(root, tiered=tier, key=some["keys"])) == sorted_rows(wanted)
        wanted = [row for row in everything if row["topic"] == "A"]
        assert sorted_rows(rows_of(root, tiered=tier, subscribe="A")) == sorted_rows(wanted)


def test_older_store_than_its_tier(tmp_path: Path, rng: random.Random) -> None:
    """An old copy of the broker's store: the tier goes on after it."""
    builder = local_store(tmp_path / "store", rng)
    everything = rows_of(tmp_path / "store")
    tiered.bring(tmp_path / "tier", tmp_path / "store", rng)
    builder.forget_last(40)
    builder.close()
    builder.expire(1)
    left = rows_of(tmp_path / "store")
    assert len(left) <= len(everything) - 40
    assert sorted_rows(rows_of(tmp_path / "store", tiered=tmp_path / "tier")) == sorted_rows(everything)


def test_join_refuses(tmp_path: Path, rng: random.Random) -> None:
    local_store(tmp_path / "store", rng, 40)
    tiered.bring(tmp_path / "tier", tmp_path / "store", rng)
    for options, text in (
        ({"tiered": tmp_path / "store"}, "no tiered store"),
        ({"tiered": tmp_path / "*"}, "option 'tiered': expected one directory, found 2 that the pattern matches"),
        ({"tiered": "\ud800"}, "option 'tiered'.*expected a path in UTF-8"),
        ({"tiered": tmp_path / "tier", "deduplicate": True}, "cannot be given together"),
        ({"tiered": tmp_path / "tier", "compacted": True}, "cannot be given together"),
        ({"tiered": tmp_path / "tier", "startingOffsets": "group:g"}, "cannot be given together"),
    ):
        with pytest.raises((OptionError, NotAStoreError), match=text):
            rows_of(tmp_path / "store", **options)
    with pytest.raises(OptionError, match="expected one store beside it"):
        rows_of(tmp_path / "tier", tiered=tmp_path / "tier")
    TierWriter(tmp_path / "tier", "A", 0, broker="other").write_segment([])
    with pytest.raises(OptionError, match="several brokers"):
        rows_of(tmp_path / "store", tiered=tmp_path / "tier")
    for table in ("topics", "queues", "segments", "check"):
        with pytest.raises(OptionError, match="several brokers"):
            Store(tmp_path / "tier").table(table)
        assert Store(tmp_path / "tier" / tiered.CLUSTER / "bk").table(table).num_columns


# ---- a real one


def test_real_tier(tmp_path: Path) -> None:
    root, seen = flavours.unpack("tiered", tmp_path)
    sent = sorted(
        (event["topic"], event["queueId"], event["queueOffset"], event["body"].encode())
        for event in seen
        if event["event"] == "sent"
    )
    tier = root.parent / "tiered"
    rows = rows_of(tier)
    assert sorted((row["topic"], row["queueId"], row["queueOffset"], row["body"]) for row in rows) == sent
    assert known(rows) == walked(tier)
    columns = [*COLUMNS, "msgId"]
    everything = rows_of(tier, columns)
    for row in everything:
        assert rows_of(tier, columns, msgId=row["msgId"]) == [row]
    for key in {word for row in everything for word in (row["keys"] or "").split()}:
        wanted = [row for row in everything if key in (row["keys"] or "").split()]
        assert rows_of(tier, columns, key=key) == wanted
    assert Store(tier).check().to_pylist() == []
    assert sorted_rows(rows_of(root, tiered=tier)) == sorted_rows(rows)
    (root / "commitlog" / f"{0:020d}").write_bytes(b"")  # all expired
    shutil.rmtree(root / "consumequeue")
    assert sorted_rows(rows_of(root, tiered=tier)) == sorted_rows(rows)
