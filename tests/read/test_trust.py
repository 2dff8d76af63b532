"""ConsumeQueues are believed as far as the log bears them out, at the price of one walk along each; with `trust=queues`
all that they say."""

from __future__ import annotations

import os
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from oracle import aged_stores, reference, stores
from support import reading

from rmqstore_spark import DamagedStoreError, OptionError
from rmqstore_spark.columns import arrow_schema
from rmqstore_spark.query.selection import ALL, Numbers, Selection
from rmqstore_spark.read.explain import explanation
from rmqstore_spark.read.pieces import queue_rows
from rmqstore_spark.read.pieces.task import Covered, Task
from rmqstore_spark.read.plan.planner import plan
from rmqstore_spark.read.run.batches import ReadSettings, read_task
from rmqstore_spark.store.io.files import Files, Prices
from rmqstore_spark.store.snapshot import Snapshot

COVERED = ["topic", "queueId", "queueOffset", "commitLogOffset", "storeSize", "store"]
UNIT = struct.Struct(">qiq")


def make_store(root: Path, topics: int = 20, messages: int = 3000, body: int = 1000) -> stores.StoreBuilder:
    """Each topic has two queues; several segments."""
    store = stores.StoreBuilder(root, segment_size=1 << 19, queue_file_size=20_000, index=False)
    for number in range(messages):
        store.append(
            topic=f"T{number % topics}", queue_id=number // topics % 2, body=bytes(body), tags=f"g{number % 3}"
        )
    store.close()
    return store


def read(
    root: Path, columns: list[str] | None = None, files: Files | None = None, **options: Any
) -> list[dict[str, Any]]:
    """The rows in log order; the queues are asked wherever they can be."""
    cheap = files or Files(Prices(request=0, search=0))
    rows = reading.read(root, columns=columns, files=cheap, **options)
    return sorted(rows, key=lambda row: row.get("commitLogOffset", 0))


def projected(rows: list[reading.Row], root: Path) -> list[reading.Row]:
    """What covering reads can answer."""
    return [{**{name: row.get(name) for name in COVERED}, "store": str(root)} for row in rows]


def queue_file(root: Path, topic: str, queue_id: int = 0) -> Path:
    return min((root / "consumequeue" / topic / str(queue_id)).iterdir())


# ---- by default: everything is borne out


def test_what_a_small_topic_costs(tmp_path: Path) -> None:
    """Each queue's units once, however many segments; and the topic's own messages."""
    requests = []
    for topics in (5, 40):
        root = tmp_path / str(topics).zfill(2)
        store = make_store(root, topics)
        store.append(topic="Small", queue_id=0, body=b"x")
        store.close()
        segments = len(Snapshot.find(str(root), Files()).log.extents)
        assert segments > 5
        files = Files(Prices(request=0, search=0))
        assert [row["topic"] for row in read(root, subscribe="Small", files=files)] == ["Small"]
        # Besides: where the log ends, where segments are live to, how large the queues are.
        assert files.bytes <= 1.2 * 20 * 3001 + 8 * 1024 * 2 * topics + 40_000 * segments
        requests.append(files.requests)
    assert requests[1] - requests[0] < 6 * 2 * 35


def test_a_deleted_topic_costs_its_own_bytes(tmp_path: Path) -> None:
    make_store(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue" / "T3")
    understood = reading.options_of(tmp_path, subscribe="T5")
    planned = plan(understood, Files(Prices(request=0, search=0)))
    pieces = [piece for task in planned.tasks for piece in task.ranges]
    in_gaps = sum(stop - start for piece in pieces for start, stop in piece.gaps)  # type: ignore[attr-defined]
    size = sum(piece.stop - piece.start for piece in pieces)
    assert size / 25 < in_gaps < size / 18
    rows = [row for row in read(tmp_path) if row["topic"] == "T5"]
    assert read(tmp_path, subscribe="T5") == rows
    assert read(tmp_path, subscribe="T3,T5") == [row for row in read(tmp_path) if row["topic"] in ("T3", "T5")]


def test_pieces_without_a_selected_message_are_not_read(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.append(topic="Small", queue_id=0, body=b"x")
    store.close()
    planned = reading.make_plan(tmp_path, subscribe="Small", prices=reading.FREE)
    pieces = [piece for task in planned.tasks for piece in task.ranges]
    assert len({piece.segment.path for piece in pieces}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tiny queues", "queues in the tail"])
def test_many_queues(kind: str, tmp_path: Path, rng: random.Random) -> None:
    """Thousands with a message or two, over several segments; or all but one in the last messages of each segment."""
    store = stores.StoreBuilder(tmp_path, segment_size=1 << 16, queue_file_size=400, index=False)
    for number in range(2500):
        in_tail = number % 120 > 100
        topic = f"T{rng.randrange(1200)}" if kind == "tiny queues" or in_tail else "Busy"
        store.append(topic=topic, queue_id=rng.randrange(2), body=bytes(rng.randrange(300)))
    store.close()
    rows = read(tmp_path)
    assert len(rows) == 2500
    busy = ["Busy"] if kind == "queues in the tail" else []  # nearly all of some segments, which are then scanned
    for topics in (busy, sorted({row["topic"] for row in rows} - {"Busy"})[::50], [rows[-1]["topic"]]):
        if topics:
            expected = [row for row in rows if row["topic"] in topics]
            given = ",".join(topics)
            planned = reading.make_plan(tmp_path, subscribe=given, prices=reading.FREE)
            kinds = {type(piece).__name__ for task in planned.tasks for piece in task.ranges}
            assert kinds == {"Queued"} or topics == busy
            assert read(tmp_path, subscribe=given) == expected != []
            assert read(tmp_path, subscribe=given, trust="queues") == expected


def test_units_that_change_after_planning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The task finds fewer than the planner has proved: it reads the log."""
    make_store(tmp_path)
    understood = reading.options_of(tmp_path, subscribe="T5")
    planned = plan(understood, Files(Prices(request=0, search=0)))
    expected = read(tmp_path, subscribe="T5")
    shutil.rmtree(tmp_path / "consumequeue" / "T5" / "1")
    rows = [row for task in planned.tasks for row in reading.read_one(task, understood)]
    assert sorted(rows, key=lambda row: row["commitLogOffset"]) == expected
    assert "units have changed since the read was planned" in caplog.text


# ---- trust=queues


@pytest.mark.slow
def test_the_same_rows_where_queues_are_whole(tmp_path: Path, rng: random.Random) -> None:
    checked = 0
    for number in range(25):
        root = tmp_path / str(number)
        _, is_cut = aged_stores.aged_store(root, rng)
        if is_cut:
            continue
        queued = {(unit.physical_offset) for *_, unit in reference.read_queues(root)}
        everything = [row for row in read(root) if row["topic"] != aged_stores.BATCHES]
        for topic in (aged_stores.PLAIN, aged_stores.OTHER, aged_stores.RETRY):
            expected = [r for r in everything if r["topic"] == topic and r["commitLogOffset"] in queued]
            if not expected:
                continue
            checked += 1
            assert read(root, subscribe=topic, trust="queues") == expected
            covered = read(root, columns=COVERED, subscribe=topic, trust="queues")
            assert covered == projected(expected, root)
    assert checked > 10


def test_covering_reads_leave_the_log_alone(tmp_path: Path) -> None:
    make_store(tmp_path, topics=2)
    rows = read(tmp_path)
    size = Snapshot.find(str(tmp_path), Files()).log.size
    tasks = plan(reading.options_of(tmp_path, trust="queues"), Files(), COVERED).tasks
    files = [piece.store.files for task in tasks for piece in task.ranges]
    before = sum(each.bytes for each in set(files))
    got = read(tmp_path, columns=["queueOffset", "topic", "storeSize"], trust="queues")
    assert sorted(row["queueOffset"] for row in got) == sorted(row["queueOffset"] for row in rows)
    settings = ReadSettings(arrow_schema(COVERED))
    assert sum(batch.num_rows for task in tasks for batch in read_task(task, settings)) == len(rows)
    assert sum(each.bytes for each in set(files)) - before < 0.03 * size
    covering = {"columns": "topic,queueOffset", "trust": "queues"}
    for options in (covering, {**covering, "subscribe": "T1"}):
        assert "only the ConsumeQueues, and nothing of the" in explanation(str(tmp_path), options)
    for other in ({"trust": "log"}, {"tags": "g1"}, {"columns": "topic,body"}, {"startingTimestamp": 5}):
        assert "only the ConsumeQueues, and nothing of the" not in explanation(str(tmp_path), {**covering, **other})


@pytest.mark.parametrize("topics", [1, 20])
def test_covering_reads_are_cut(topics: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By extents of the log where queues are few, else by queues: each row is in one part."""
    monkeypatch.setattr(queue_rows, "_BATCH_BYTES", 10_000)
    make_store(tmp_path, topics)
    expected = projected(read(tmp_path), tmp_path)
    for partitions in (1, 2, 7, 100):
        options: dict[str, Any] = {"minPartitions": partitions, "trust": "queues"}
        pieces = [
            piece
            for task in plan(reading.options_of(tmp_path, **options), Files(), COVERED).tasks
            for piece in task.ranges
            if isinstance(piece, Covered)
        ]
        assert partitions <= len(pieces) <= 2 * partitions
        by_queues = {piece.share[1] for piece in pieces}
        by_extents = {piece.start for piece in pieces}
        assert (len(by_extents) > 1) == (partitions > 2 * topics)
        assert (by_queues != {1}) == (partitions > 1)
        assert read(tmp_path, COVERED, **options) == expected


def between(one: int, other: int) -> Numbers:
    return Numbers(min(one, other), max(one, other))


def test_what_is_selected_by_number(tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters that only Spark pushes. Batches are small, so that they fill up while rows are left out."""
    monkeypatch.setattr(queue_rows, "_BATCH_BYTES", 10_000)
    make_store(tmp_path, topics=3)
    rows = projected(read(tmp_path), tmp_path)
    piece = plan(reading.options_of(tmp_path, trust="queues"), Files(), COVERED).tasks[0].ranges[0]
    positions = [row["commitLogOffset"] for row in rows]
    for _ in range(20):
        some = [Numbers.of(*rng.sample(positions, 40)), between(*rng.sample(positions, 2)), ALL]
        offsets = [Numbers.of(*rng.sample(range(500), 50)), between(*rng.sample(range(500), 2)), ALL]
        selection = Selection(commit_log_offset=rng.choice(some), queue_offset=rng.choice(offsets))
        settings = ReadSettings(arrow_schema(COVERED), selection=selection)
        got = [row for batch in read_task(Task((piece,)), settings) for row in batch.to_pylist()]
        assert sorted(got, key=lambda row: row["commitLogOffset"]) == [
            row
            for row in rows
            if row["commitLogOffset"] in selection.commit_log_offset and row["queueOffset"] in selection.queue_offset
        ]


def test_a_topic_that_is_no_text(tmp_path: Path) -> None:
    make_store(tmp_path, topics=1, messages=100)
    topic = os.fsencode(tmp_path / "consumequeue" / "T0")
    os.rename(topic, topic + b"\xff")
    assert {row["topic"] for row in read(tmp_path, ["topic", "queueId"], trust="queues")} == {"T0\ufffd"}


@pytest.mark.parametrize(
    "options",
    [
        {"assign": '{"T3": [1], "T5": [0, 1]}'},
        {"subscribePattern": "T1.*"},
        {"startingOffsets": '{"T3": {"0": 5}}', "endingOffsets": '{"T3": {"0": 9}, "T4": {"1": 3}}'},
    ],
)
def test_what_covering_reads_select(options: dict[str, Any], tmp_path: Path) -> None:
    make_store(tmp_path)
    covered = read(tmp_path, columns=COVERED, trust="queues", **options)
    assert covered == [
        {**{name: row.get(name) for name in COVERED}, "store": str(tmp_path)} for row in read(tmp_path, **options)
    ]
    assert covered


def swapped(root: Path) -> None:
    one, other = root / "consumequeue" / "T3", root / "consumequeue" / "T4"
    one.rename(root / "kept")
    other.rename(one)
    (root / "kept").rename(other)


def halved(root: Path) -> None:
    """One message's bytes as two units."""
    path = queue_file(root, "T3")
    data = path.read_bytes()
    position, size, tags = UNIT.unpack_from(data, 40)
    path.write_bytes(
        data[:40] + UNIT.pack(position, 100, tags) + UNIT.pack(position + 100, size - 100, tags) + data[60:-20]
    )


def shifted(root: Path) -> None:
    """Each unit one place on, as a broker leaves it that lost count."""
    path = queue_file(root, "T3")
    data = path.read_bytes()
    path.write_bytes(data[:20] + data[:-20])


def lost(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "T3" / "1")


@pytest.mark.parametrize("lie", [swapped, halved, shifted, lost])
def test_lies_of_queues_are_seen_by_default_alone(lie: Any, tmp_path: Path) -> None:
    make_store(tmp_path)
    expected = [row for row in read(tmp_path) if row["topic"] == "T3"]
    lie(tmp_path)
    assert read(tmp_path, subscribe="T3") == expected
    assert len(read(tmp_path, columns=["topic", "queueOffset"], subscribe="T3")) == len(expected)
    names = ["queueOffset", "commitLogOffset"]
    covered = read(tmp_path, columns=names, subscribe="T3", trust="queues")
    assert covered != [{name: row[name] for name in names} for row in expected]


def test_damage_in_the_log_is_seen_by_default_alone(tmp_path: Path) -> None:
    make_store(tmp_path)
    path = min((tmp_path / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[500] ^= 1  # in a body
    path.write_bytes(data)
    with pytest.raises(DamagedStoreError, match="bodyCRC differs"):
        read(tmp_path, columns=["topic"])
    assert len(read(tmp_path, columns=["topic"], trust="queues")) == 3000


def test_without_any_queue_the_log_is_read(tmp_path: Path) -> None:
    make_store(tmp_path, messages=50)
    shutil.rmtree(tmp_path / "consumequeue")
    assert len(read(tmp_path, columns=["topic"], trust="queues")) == 50
    assert len(read(tmp_path, columns=["topic"], trust="queues", subscribe="T3")) == 3


def test_trust_what(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="trust"):
        reading.options_of(tmp_path, trust="me")
