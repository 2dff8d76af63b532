"""Queues that are in RocksDB: tables, checks, copies and selections are those of queues in files."""

from __future__ import annotations

import json
import logging
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import reference, rocksdb
from oracle.stores import StoreBuilder
from support import flavours, reading

from rmqstore_spark import Store
from rmqstore_spark.read.pieces.task import Queued
from rmqstore_spark.store import queue_bounds, queue_coverage
from rmqstore_spark.store.format.queue_block import QueueBlock
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.queue_coverage import coverage
from rmqstore_spark.store.rocksdb import table as tables_of_rocksdb
from rmqstore_spark.store.rocksdb.fields import Fields
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures import rocksdb_queues, rocksdb_units
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.queues import ConsumeQueues
from rmqstore_spark.store.structures.rocksdb_queues import QueuesInRocksDB, RocksDBQueue

SIZE = (100).to_bytes(4, "big")
FLAVOURS = ("combined", "rocksdb-all", "rocksdb-all-v2", "rocksdb-metadata", "rocksdb-trans")
_PLACES = {"file", "filePosition", "files", "sizeOnDisk", "queueType"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Some topics with three queues each."""
    builder = StoreBuilder(tmp_path / "store")
    for number in range(300):
        topic = ("TopicA", "TopicB", "T", "Topic_C")[number % 4]
        builder.append(topic, b"x" * (number % 7), queue_id=number % 3, tags=("Aa", "BB", "c")[number % 3])
    builder.close()
    return builder.root


def rows_of(table: str, root: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = Store(root).table(table).to_pylist()
    return rows


def in_rocksdb(root: Path, target: Path, rng: random.Random, **how: Any) -> Path:
    shutil.copytree(root, target)
    rocksdb.put_queues(target, rng, **how)
    return target


def without_places(rows: list[dict[str, Any]], root: Path) -> list[dict[str, Any]]:
    kept = [{name: value for name, value in row.items() if name not in _PLACES} for row in rows]
    return sorted(kept, key=lambda row: json.dumps(row, default=str, sort_keys=True))


@pytest.mark.parametrize("place", ["consumequeue", "consumequeue_rocksdb"])
def test_tables_are_those_of_files(place: str, store: Path, tmp_path: Path, rng: random.Random) -> None:
    root = in_rocksdb(store, tmp_path / "other", rng, place=place)
    for table in ("queues", "consumequeue"):
        assert without_places(rows_of(table, root), root) == without_places(rows_of(table, store), store)
    assert {row["queueType"] for row in rows_of("queues", root)} == {"rocksdb"}
    assert {(row["file"], row["filePosition"]) for row in rows_of("consumequeue", root)} == {(str(root / place), None)}
    assert [row for row in rows_of("check", root) if row["severity"] != "info"] == []


def test_check_compares_units_with_the_log(store: Path, tmp_path: Path, rng: random.Random) -> None:
    """A unit that is missing, one that is wrong, and one that stands for no message."""

    def twist(records: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        found = dict(records)
        del found[rocksdb.queue_key(b"TopicA", 0, 3)]
        wrong = rocksdb.queue_key(b"TopicB", 1, 2)
        found[wrong] = found[wrong][:8] + (77).to_bytes(4, "big") + found[wrong][12:]
        last = max(key for key in found if key.startswith(rocksdb.queue_key(b"T", 2, 0)[:-8]))
        found[last[:-1] + bytes([last[-1] + 1])] = found[last]
        return [*found.items()]

    root = in_rocksdb(store, tmp_path / "other", rng, twist=twist)
    problems = [row for row in rows_of("check", root) if row["severity"] != "info"]
    assert sorted((row["problem"], row["topic"], row["queueOffset"]) for row in problems) == [
        ("extraQueueUnit", "T", 25),
        ("missingQueueUnit", "TopicA", 3),
        ("wrongQueueUnit", "TopicB", 2),
    ]


def test_the_better_one_of_two(store: Path, tmp_path: Path, rng: random.Random) -> None:
    """Where queues are stored twice, and one end is missing in RocksDB or in files, there is all the same every row."""
    root = in_rocksdb(store, tmp_path / "other", rng, keeps_files=True, lacks="end")
    assert {row["queueType"] for row in rows_of("queues", root)} == {"simple"}
    shutil.rmtree(root / "consumequeue" / "TopicA")
    shutil.rmtree(root / "consumequeue" / "T")
    rocksdb.write(root / "consumequeue", [{"default": rocksdb.queue_records(store)}], {})
    assert {row["topic"]: row["queueType"] for row in rows_of("queues", root)} == {
        "TopicA": "rocksdb",
        "TopicB": "simple",
        "T": "rocksdb",
        "Topic_C": "simple",
    }
    assert without_places(rows_of("consumequeue", root), root) == without_places(rows_of("consumequeue", store), store)


def lacking(records: list[tuple[bytes, bytes]], numbers: set[int]) -> list[tuple[bytes, bytes]]:
    return [(key, value) for key, value in records if int.from_bytes(key[-8:], "big") not in numbers]


def chosen(root: Path) -> set[str]:
    return {row["queueType"] for row in rows_of("queues", root)}


@pytest.mark.parametrize("which", ["holes", "further", "empty"])
def test_the_one_that_knows_more(which: str, store: Path, tmp_path: Path, rng: random.Random) -> None:
    """A broker of 5.3.3 leaves holes in RocksDB for good; files may lack their end, or everything. Whichever is taken,
    the queues tile the log but for what it lacks."""
    root, numbers = tmp_path / "other", {*range(5, 15)}
    twist = None if which == "empty" else lambda records: lacking(records, numbers)
    in_rocksdb(store, root, rng, keeps_files=True, twist=twist)
    for file in (root / "consumequeue").glob("*/*/0*"):
        data = bytearray(file.read_bytes())
        if which == "further":
            data[-40:] = bytes(40)  # and yet they have more than RocksDB
        elif which == "empty":
            data = bytearray(len(data))
        with file.open("r+b") as opened:
            opened.truncate(0)
            opened.truncate(len(data))
            opened.write(data.rstrip(b"\0"))
    assert chosen(root) == ({"rocksdb"} if which == "empty" else {"simple"})
    snapshot = Snapshot.find(str(root), Files())
    found = coverage(snapshot, snapshot.log.extents, lambda queue: True)
    assert all(each.gaps is not None for each in found)
    unknown = sum(stop - start for each in found for start, stop in each.gaps or ())
    assert (unknown > 0) == (which == "further")
    options = reading.options_of(root, subscribe="TopicA")
    plan = reading.forced_plan(options, reading.new_files(reading.FREE))
    rows = [row for task in plan.tasks for row in reading.read_one(task, options, ["topic", "queueId", "queueOffset"])]
    assert sorted((row["queueId"], row["queueOffset"]) for row in rows) == [(q, n) for q in range(3) for n in range(25)]


def test_queues_that_go_further_with_holes(store: Path, tmp_path: Path, rng: random.Random) -> None:
    """RocksDB goes further, and has fewer units."""
    root = in_rocksdb(store, tmp_path / "other", rng, keeps_files=True, twist=lambda some: lacking(some, {*range(20)}))
    for file in (root / "consumequeue").glob("*/*/0*"):
        data = file.read_bytes()[: 20 * 22]
        file.write_bytes(data)
    assert chosen(root) == {"simple"}
    (root / "consumequeue" / "CURRENT").unlink()
    alone = rows_of("queues", root)
    assert {(row["minOffset"], row["maxOffset"]) for row in alone} == {(0, 25)}


def test_a_page_that_the_disk_has_lost(tmp_path: Path) -> None:
    """Files have all of RocksDB's range, but not all of its units."""
    units = [n.to_bytes(8, "big") + SIZE + bytes(8) for n in range(1000)]
    records = [(rocksdb.queue_key(b"T", 0, n), unit + bytes(8)) for n, unit in enumerate(units)]
    file = tmp_path / "T" / "0" / f"{0:020d}"
    file.parent.mkdir(parents=True)
    rocksdb.write(tmp_path, [{"default": records[:-1]}], {})
    for lost, kind in ((0, "simple"), (8192, "rocksdb")):
        with file.open("wb") as opened:
            opened.seek(lost)
            opened.write(b"".join(units)[lost:])
        (found,) = ConsumeQueues(str(tmp_path), Files(), database=str(tmp_path))
        assert found.kind == kind


def test_a_long_queue_is_sought_in(tmp_path: Path, rng: random.Random) -> None:
    """A queue of more pages than are kept, with a hole."""
    numbers = [number for number in range(100, 60_000) if not 25_000 <= number < 25_200]
    units = [(rocksdb.queue_key(b"Long", 3, n), n.to_bytes(8, "big") + SIZE + bytes(16)) for n in numbers]
    short = [(rocksdb.queue_key(b"Long", 4, n), n.to_bytes(8, "big") + SIZE + bytes(16)) for n in range(5)]
    rocksdb.write(tmp_path, [{"default": units + short}], {}, in_block=600)
    queues = QueuesInRocksDB(str(tmp_path), Files()).of_topic("Long")
    assert [(queue.queue_id, queue.first, queue.end) for queue in queues] == [(3, 100, 60_000), (4, 0, 5)]
    files = Files()
    queue = QueuesInRocksDB(str(tmp_path), files).queue("Long", 3)
    assert queue is not None
    for number in (100, 59_999, 24_999, 25_200, rng.randrange(26_000, 60_000)):
        unit = queue.any_unit(number)
        assert unit is not None
        assert unit.position == number
    assert queue.unit(25_100) is None
    found = [block.only(block.are_used).numbers for block in queue.blocks(100, over_gaps=True)]
    assert np.concatenate(found).tolist() == numbers


def test_huge_numbers_cost_nothing(tmp_path: Path) -> None:
    far = [(rocksdb.queue_key(b"T", 0, number), bytes(7) + b"\1" + bytes(20)) for number in (0, 1, 2, 1 << 40, 1 << 55)]
    many = [(rocksdb.queue_key(b"U", 0, number * 1000), bytes(7) + b"\1" + bytes(20)) for number in range(5000)]
    rocksdb.write(tmp_path, [{"default": far + many}], {})
    (near, sparse) = QueuesInRocksDB(str(tmp_path), Files())
    assert (near.first, near.end) == (0, 3)
    assert sparse.end - sparse.first <= 4 * 5000


# ---- real ones


@pytest.mark.parametrize("name", FLAVOURS)
def test_each_message_of_the_log_is_in_its_queue(name: str, tmp_path: Path) -> None:
    root = flavours.unpack_store(name, tmp_path)
    units = {(row["topic"], row["queueId"], row["queueOffset"]) for row in rows_of("consumequeue", root)}
    in_log = [row for row in reference.read_store(root) if row["sysFlag"] & 0xC not in (0x4, 0xC)]
    assert {(row["topic"], row["queueId"], row["queueOffset"]) for row in in_log} <= units
    assert in_log
    assert [row for row in rows_of("check", root) if row["severity"] != "info"] == []


def test_both_forms_of_a_broker_have_the_same_units(tmp_path: Path) -> None:
    root = flavours.unpack_store("combined", tmp_path)
    queues = Snapshot.find(str(root), Files()).queues
    assert {queue.topic for queue in queues if not queue.is_in_files} == {"%LMQ%a", "%LMQ%b"}
    other = QueuesInRocksDB(str(root / "consumequeue"), Files())
    for queue in queues:
        same = other.queue(queue.topic, queue.queue_id)
        assert same is not None
        assert [*used(queue)] == [*used(same)]
        assert len(used(queue)) > 0


def used(queue: Queue) -> QueueBlock:
    units = queue.block(0, 100)
    return units.only(units.are_used)


@pytest.mark.parametrize("name", FLAVOURS)
def test_selections_need_no_scan(name: str, tmp_path: Path) -> None:
    root = flavours.unpack_store(name, tmp_path)
    rows = reading.forced_plan(reading.options_of(root), reading.new_files()).tasks
    everything = [
        row for task in rows for row in reading.read_one(task, reading.options_of(root), ["topic", "queueId"])
    ]
    for topic in {row["topic"] for row in everything if not row["topic"].startswith("RMQ_SYS_TRANS")}:
        options = reading.options_of(root, subscribe=topic)
        plan = reading.forced_plan(options, reading.new_files(reading.FREE))
        pieces = {type(piece) for task in plan.tasks for piece in task.ranges}
        found = [row for task in plan.tasks for row in reading.read_one(task, options, ["topic", "queueId"])]
        wanted = [row for row in everything if row["topic"] == topic]
        assert sorted(map(str, found)) == sorted(map(str, wanted))
        assert pieces == {Queued} or 2 * len(wanted) > len(everything)


@pytest.mark.parametrize("name", FLAVOURS)
def test_nothing_is_changed(name: str, tmp_path: Path) -> None:
    root = flavours.unpack_store(name, tmp_path)
    before = _seen(root)
    store = Store(root)
    for table in ("queues", "topics", "offsets", "consumequeue", "check", "delayed", "transactions", "inflight"):
        store.table(table)
    store.messages(subscribe=next(iter(Snapshot.find(str(root), Files()).queues.topics))).read_all()
    assert _seen(root) == before


def _seen(root: Path) -> dict[str, tuple[int, int, int]]:
    found = ((path, path.stat()) for path in root.rglob("*"))
    return {str(path): (status.st_ino, status.st_mtime_ns, status.st_size) for path, status in found}


@pytest.mark.parametrize("name", FLAVOURS)
def test_copies(name: str, tmp_path: Path) -> None:
    root, target = flavours.unpack_store(name, tmp_path), tmp_path / "copy"
    Store(root).copy(target)
    assert not list(target.rglob("CURRENT"))
    anew = {"rmq_sys_wheel_timer"}  # the broker's own wheel does not fit a copy

    def units(store: Path) -> set[tuple[str, int, int]]:
        rows = (row for row in rows_of("consumequeue", store) if row["topic"] not in anew)
        return {(row["topic"], row["queueId"], row["queueOffset"]) for row in rows if row["topic"][:5] != "%LMQ%"}

    assert units(target) == units(root)
    assert Store(target).offsets().select(["group", "topic", "queueId", "consumerOffset"]).to_pylist() == [
        row
        for row in Store(root).offsets().select(["group", "topic", "queueId", "consumerOffset"]).to_pylist()
        if row["topic"] not in anew
    ]
    assert [row for row in rows_of("check", target) if row["severity"] == "error"] == []


@pytest.mark.parametrize("name", ["rocksdb-all", "rocksdb-all-v2"])
def test_popped(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is not acknowledged, and visible later than the last message of the log."""
    root, told = flavours.unpack(name, tmp_path)
    gone = {(each["queueId"], each["queueOffset"]) for each in told if each["event"] == "ack"}
    popped = {(each["queueId"], each["queueOffset"]) for each in told if each["event"] == "pop"}
    assert {(row["queueId"], row["queueOffset"]) for row in rows_of("inflight", root)} == popped - gone
    with caplog.at_level(logging.WARNING):
        Store(root).copy(tmp_path / "copy")
    assert any("2 popped messages: only RocksDB has them" in text for text in caplog.messages)


# ---- while a broker runs


def test_tables_that_go_away(store: Path, tmp_path: Path, rng: random.Random) -> None:
    """A broker replaces the tables of the database between two reads."""
    root = in_rocksdb(store, tmp_path / "other", rng)
    queues = QueuesInRocksDB(str(root / "consumequeue"), Files())
    assert len(queues.of_topic("TopicA")) == 3
    records = rocksdb.queue_records(store)
    shutil.rmtree(root / "consumequeue")
    rocksdb.write(root / "consumequeue", [{"default": records}], {}, first=100)
    assert {queue.queue_id: (queue.first, queue.end) for queue in queues.of_topic("TopicB")} == dict.fromkeys(
        range(3), (0, 25)
    )


def test_a_database_that_cannot_be_read(
    store: Path, tmp_path: Path, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    root = in_rocksdb(store, tmp_path / "other", rng)
    (manifest,) = (root / "consumequeue").glob("MANIFEST-*")
    manifest.write_bytes(b"\xff" * 100)
    rows = Store(root).messages(subscribe="TopicA").read_all()
    assert rows.num_rows == 75
    assert [text for text in caplog.messages if "queues have no units where it cannot be read" in text]
    assert [row["file"] for row in rows_of("check", root) if row["problem"] == "notLookedAt"] == [
        str(root / "consumequeue")
    ]
    assert {row["queueType"] for row in rows_of("queues", root)} == {"rocksdb"}


@pytest.mark.parametrize("how", ["damaged", "behind"])
def test_ids_are_looked_up_without_the_queues(how: str, tmp_path: Path) -> None:
    """Items of an index are by topic; some topics are only named by queues, which a killed broker has not written."""
    root = flavours.unpack_store("rocksdb-all", tmp_path)
    if how == "damaged":
        for table in (root / "consumequeue").glob("*.sst"):
            table.write_bytes(b"\xff" + table.read_bytes()[1:])
    else:
        shutil.rmtree(root / "consumequeue")
        rocksdb.write(root / "consumequeue", [{"offset": [(b"k", b"v")]}], {})
    rows = [row for row in reference.read_store(root) if row["msgId"]]
    assert {row["topic"] for row in rows} >= {"rmq_sys_wheel_timer", "%RETRY%PopG_Rk", "RMQ_SYS_TRANS_HALF_TOPIC"}
    for name in {row["msgId"] for row in rows}:
        options = reading.options_of(root, msgId=name)
        plan = reading.forced_plan(options, reading.new_files(reading.FREE))
        found = [row for task in plan.tasks for row in reading.read_one(task, options, ["commitLogOffset"])]
        wanted = [row["commitLogOffset"] for row in rows if name in (row["msgId"], row["offsetMsgId"])]
        assert sorted(row["commitLogOffset"] for row in found) == wanted


@pytest.mark.parametrize("name", ["rocksdb-all", "rocksdb-all-v2"])
def test_a_copy_without_the_queues_has_what_waits(name: str, tmp_path: Path) -> None:
    """Nothing but queues names the topic in which timers wait."""
    root = flavours.unpack_store(name, tmp_path)
    Store(root).copy(tmp_path / "sound")
    next((root / "consumequeue").glob("MANIFEST-*")).write_bytes(b"\xff" * 100)
    Store(root).copy(tmp_path / "copy")
    waiting = [
        [row["msgId"] for row in reference.read_store(tmp_path / copied) if row["topic"] == "rmq_sys_wheel_timer"]
        for copied in ("sound", "copy")
    ]
    assert waiting[0] == waiting[1] != []


# ---- many queues in one walk


@pytest.mark.parametrize("expired", [False, True])
def test_bounds_of_many_queues_are_those_of_each(
    expired: bool, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues whose records have no holes are not looked at one by one, also where their first messages have expired;
    tables are the same as if they were. Groups' offsets also name queues that do not exist."""
    builder = StoreBuilder(tmp_path / "store", 4096)
    for _ in range(400):
        builder.append(
            rng.choice(("T", "TopicA", "TopicB", "Topic_CC")), b"x" * rng.randrange(9), queue_id=rng.randrange(5)
        )
    builder.close()
    offsets = {
        f"{topic}@{group}": {str(queue): rng.randrange(30) for queue in range(7)}
        for topic in ("T", "TopicA", "Topic_CC", "Nothing")
        for group in ("G", "H")
    }
    (builder.root / "config").mkdir(exist_ok=True)
    (builder.root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    root = in_rocksdb(builder.root, tmp_path / "other", rng, twist=lambda some: rng.sample(some, len(some) - 1))
    if expired:
        for file in sorted((root / "commitlog").iterdir())[:3]:
            file.unlink()
    alone: list[tuple[str, int]] = []
    by_itself = queue_bounds._outer

    def noted(queue: Queue, **of: int) -> Any:
        alone.append((queue.topic, queue.queue_id))
        return by_itself(queue, **of)

    monkeypatch.setattr(queue_bounds, "_outer", noted)
    found = {table: rows_of(table, root) for table in ("queues", "offsets")}
    assert len(found["queues"]) == 20
    assert len({*alone} & {(row["topic"], row["queueId"]) for row in found["queues"]}) <= 1  # one lacks a record
    alone.clear()
    monkeypatch.setattr(queue_bounds, "_record_ends", lambda *of: None)
    monkeypatch.setattr(ConsumeQueues, "assumed", lambda queues, names: None)
    assert {table: rows_of(table, root) for table in ("queues", "offsets")} == found
    assert len({*alone}) == 20


def test_are_there_more_topics(
    store: Path, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large database the names that are looked at are one more than are asked about."""
    root = in_rocksdb(store, tmp_path / "other", rng)
    monkeypatch.setattr(rocksdb_queues, "_FEW_BLOCKS", 0)
    queues = Snapshot.find(str(root), Files()).queues
    assert [queues.has_more_topics(most) for most in range(6)] == [True] * 4 + [False] * 2


def test_an_index_that_ends_before_the_last_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Only a walk through the table would come upon the table's last key. The table is damaged, which is told once; its
    units do not count, so that the log is read, and a table of units is not another store for that."""
    builder = StoreBuilder(tmp_path / "one", 4096)
    for _ in range(20):
        builder.append("T", b"")
    builder.close()
    shutil.rmtree(builder.root / "consumequeue")
    records = [
        (rocksdb.queue_key(b"T", 0, number), bytes(7) + bytes([number]) + SIZE + bytes(16)) for number in range(20)
    ]
    rocksdb.write(builder.root / "consumequeue", [{"default": records}], {})
    assert len(rows_of("consumequeue", builder.root)) == 20
    (file,) = (builder.root / "consumequeue").glob("*.sst")
    data = bytearray(file.read_bytes())
    at = data.rfind(records[-1][0]) + len(records[-1][0]) - 1
    data[at] -= 1
    fields = Fields(bytes(data[-53:]), 1)
    _, _, start, size = (fields.varint() for _ in range(4))
    assert start < at < start + size
    data[start + size + 1 : start + size + 5] = rocksdb.masked_crc(bytes(data[start : start + size + 1]))
    file.write_bytes(data)
    assert rows_of("consumequeue", builder.root) == []
    assert "expected blocks with keys from" in caplog.text
    assert [row["maxOffset"] for row in rows_of("queues", builder.root)] == [20]


# ---- few units, and many records


@pytest.mark.parametrize("begins", [0, 1])
def test_units_at_once_are_those_of_the_walk(
    begins: int, store: Path, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof takes a short queue's units from its page, and what is said of the log is the same."""
    root = str(in_rocksdb(store, tmp_path / "other", rng))

    def proved() -> list[Any]:
        found = Snapshot.find(root, Files())
        return coverage(found, found.log.extents[begins:], lambda queue: queue.queue_id == 0)

    by_page, taken = proved(), []
    at_once = RocksDBQueue.at_once
    monkeypatch.setattr(RocksDBQueue, "at_once", lambda queue: taken.append(at_once(queue)))
    assert proved() == by_page
    assert sum(found is not None for found in taken) > 1
    for queue in QueuesInRocksDB(root + "/consumequeue", Files()):
        if (found := at_once(queue)) is not None:
            number, data = found
            assert (number, bytes(data)) == (queue.first, b"".join(bytes(chunk) for _, chunk in queue.chunks(number)))


def test_pages_end_with_whole_queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """A queue is on two pages only where it is longer than a page."""
    monkeypatch.setattr(rocksdb_units, "_PAGE_RECORDS", 500)
    monkeypatch.setattr(tables_of_rocksdb, "_CHUNK_SIZE", 4096)
    sizes = {(topic, queue): rng.randrange(1, 200) for topic in (b"A", b"BB", b"C") for queue in range(8)}
    sizes[b"BB", 3] = 3000
    records = [
        (rocksdb.queue_key(*name, n), bytes(7) + bytes([n % 256]) + SIZE + bytes(16))
        for name, size in sizes.items()
        for n in range(size)
    ]
    other = [(b"\0\0\0\1no queue" + bytes([n]), b"") for n in range(40)]
    rocksdb.write(tmp_path, [{"default": sorted([*records, *other])}], {}, in_block=32)
    pages, at = rocksdb_units.UnitPages(str(tmp_path), Files()), b""
    found: dict[bytes, list[list[int]]] = {}
    while True:
        page = pages.page(at, None)
        for number, prefix in enumerate(page.prefixes):
            found.setdefault(prefix, []).append(page.records(number).numbers.tolist())
            assert page.has_all(prefix) == (prefix != rocksdb.queue_key(b"BB", 3, 0)[:-8])
        if page.stop is None:
            break
        at = page.stop
    expected = {rocksdb.queue_key(*name, 0)[:-8]: [*range(size)] for name, size in sizes.items()}
    assert {prefix: [n for part in parts for n in part] for prefix, parts in found.items()} == expected
    assert {prefix for prefix, parts in found.items() if len(parts) > 1} == {rocksdb.queue_key(b"BB", 3, 0)[:-8]}


def test_units_near_a_place(tmp_path: Path, rng: random.Random) -> None:
    """One unit or two, read without the rest of their queue, are those that the whole queue has; so they are where
    numbers of a queue go on from those of the one before, with holes, and behind records of another form."""
    numbers = {0: [*range(40), *range(43, 3000)], 1: [*range(3000, 3100)], 2: [3100], 3: []}
    records = [
        (rocksdb.queue_key(b"T", queue, n), (queue * 10_000 + n).to_bytes(8, "big") + SIZE + bytes(16))
        for queue, some in numbers.items()
        for n in some
    ]
    odd = [(rocksdb.queue_key(b"T", 2, n), bytes(28)) for n in (-1, -(1 << 63), (1 << 63) - 1)]
    cut = rng.randrange(len(records))
    rocksdb.write(tmp_path, [{"default": records[:cut] + odd}, {"default": records[cut:]}], {}, in_block=50)
    whole = QueuesInRocksDB(str(tmp_path), Files())
    assert [(queue.queue_id, queue.first, queue.end) for queue in whole] == [
        (0, 0, 3000),
        (1, 3000, 3100),
        (2, 3100, 3101),
    ]
    for queue_id, some in numbers.items():
        for number in (*some[:1], *some[-1:], 39, 40, 42, 43, 3000, 3100, -1, 1 << 62, rng.randrange(3200)):
            for known in (False, True):
                queue = QueuesInRocksDB(str(tmp_path), Files()).queue("T", queue_id)
                assert queue is not None
                if known:
                    _ = queue.in_files
                unit = queue.any_unit(number)
                found = None if unit is None or not unit.is_message else unit.position
                assert found == (queue_id * 10_000 + number if number in some else None), (queue_id, number, known)
                block = queue.block(number, 2)
                run = [n for n in (number, number + 1) if n in some] if number in some else []
                assert block.only(block.are_messages).numbers.tolist() == run, (queue_id, number, known)


def test_a_unit_costs_as_much_in_a_longer_queue(tmp_path: Path) -> None:
    def nbytes(units: int) -> int:
        records = [(rocksdb.queue_key(b"T", 0, n), n.to_bytes(8, "big") + SIZE + bytes(16)) for n in range(units)]
        rocksdb.write(tmp_path / str(units), [{"default": records}], {}, in_block=400)
        files = Files()
        queue = QueuesInRocksDB(str(tmp_path / str(units)), files).queue("T", 0)
        assert queue is not None
        assert queue.any_unit(units - 10) is not None
        return files.bytes

    assert nbytes(12_000) < 1.2 * nbytes(4000)


@pytest.mark.parametrize(("size", "path"), [(3000, "scan"), (60_000, "consumequeue")])
def test_the_price_of_the_proof_decides(
    size: int, path: str, tmp_path: Path, rng: random.Random, capsys: pytest.CaptureFixture[str]
) -> None:
    """The proof that queues cover the log is made where it is cheaper than reading the log, with queues in RocksDB as
    with those in files; the plan says what it would cost."""
    builder = StoreBuilder(tmp_path / "store", 1 << 23)
    for number in range(80):
        builder.append(f"T{number % 40}", bytes(size))
    builder.close()
    told = []
    for _ in range(2):
        store = Store(builder.root)
        store.explain(subscribe="T7")
        told.append([line for line in capsys.readouterr().out.splitlines() if line.startswith(("  access", "  not"))])
        assert store.messages(columns="queueOffset", subscribe="T7").read_all()["queueOffset"].to_pylist() == [0, 1]
        rocksdb.put_queues(builder.root, rng)
    assert told[0] == told[1]
    assert told[0][0].startswith(f"  access: {path}: ")
    assert len(told[0]) == 1 or "it would cost as much as reading" in told[0][1]


def test_one_thread_walks_along_records(store: Path, tmp_path: Path, rng: random.Random) -> None:
    """Threads would drive each other's pages out, and fetch them again."""
    queues = [*QueuesInRocksDB(str(in_rocksdb(store, tmp_path / "other", rng) / "consumequeue"), Files())]
    in_files = [*Snapshot.find(str(store), Files()).queues]
    for threads in (1, 5, 64):
        shares = queue_coverage._shares(in_files + queues, threads)
        assert shares[-1] == queues
        assert sorted(map(id, (queue for share in shares for queue in share))) == sorted(map(id, in_files + queues))
        assert all(shares[:-1])
        assert len(shares) <= threads + 1
