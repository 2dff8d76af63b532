"""Tiers of brokers that were killed again and again: each selection gives what is there, each message once; what never
came is told, and nothing else is."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from oracle import tiered
from oracle.killed_tiers import KilledQueue
from support.following import Query

from rmqstore_spark import Store
from rmqstore_spark.errors import DamagedStoreError

KINDS = ["okk", "okkh", "okkhn", "okkhnf", "kkkh", "okkt", "ooku"]
TIERS = int(os.environ.get("RMQ_KILLED_TIERS", "1"))
COLUMNS = ["topic", "queueId", "queueOffset", "tags", "keys", "body", "msgId", "storeTimestamp", "commitLogOffset"]
# Each of these holds in more tiers, too: RMQ_KILLED_TIERS=100.
NOTES = {"unfinishedQueueLog"}  # half a message at the end
OF_WHAT_IS_LOST = {"wrongTieredQueue", "unorderedQueueLog", "tieredQueueAhead", "holeInQueueLog"}

Row = dict[str, Any]


def text(rows: list[Row]) -> list[str]:
    return sorted(repr([row[name] for name in COLUMNS]) for row in rows)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("local") / "store"
    tiered.local_store(root, random.Random(1), 220)
    return root


def killed_queues(tier: Path, local: Path, rng: random.Random, kinds: str) -> list[KilledQueue]:
    units = tiered.queue_units(local)
    queues = [KilledQueue(tier, *name, units[name], rng) for name in (("A", 0), ("A", 1), ("B", 2))]
    for queue in queues:
        while not queue.is_over:
            queue.step(rng.choice(kinds))
        queue.finish(is_killed=rng.random() < 0.5)
    return queues


def selections(rows: list[Row], rng: random.Random) -> list[tuple[dict[str, Any], list[Row]]]:
    """Options, and the rows that they give."""
    some, other = rng.choice(rows), rng.choice(rows)
    first, last = sorted((some["queueOffset"], other["queueOffset"]))
    begin, end = sorted((some["storeTimestamp"], other["storeTimestamp"]))

    def where(is_one: Any) -> list[Row]:
        return [row for row in rows if is_one(row)]

    offsets = {
        "startingOffsets": json.dumps({"A": {"0": first}}),
        "endingOffsets": json.dumps({"A": {"0": last}}),
    }
    return [
        ({}, rows),
        ({"maxPartitionBytes": rng.choice([1, 700, 3000])}, rows),
        ({"subscribe": "A"}, where(lambda r: r["topic"] == "A")),
        ({"subscribe": "A,B"}, rows),
        ({"assign": {"A": [1]}}, where(lambda r: (r["topic"], r["queueId"]) == ("A", 1))),
        ({"tags": "red"}, where(lambda r: r["tags"] == "red")),
        ({"subscribe": "A", "tags": "red || blue"}, where(lambda r: r["topic"] == "A" and r["tags"])),
        ({"key": some["keys"]}, where(lambda r: r["keys"] == some["keys"])),
        ({"msgId": some["msgId"]}, where(lambda r: r["msgId"] == some["msgId"])),
        ({"startingTimestamp": begin // 1000}, where(lambda r: r["storeTimestamp"] >= begin)),
        ({"endingTimestamp": end // 1000}, where(lambda r: r["storeTimestamp"] < end)),
        (
            {"startingTimestamp": begin // 1000, "endingTimestamp": end // 1000},
            where(lambda r: begin <= r["storeTimestamp"] < end),
        ),
        (offsets, where(lambda r: (r["topic"], r["queueId"]) != ("A", 0) or first <= r["queueOffset"] < last)),
        (
            {**offsets, "subscribe": "A", "maxPartitionBytes": 900},
            where(
                lambda r: (
                    r["topic"] == "A" and ((r["topic"], r["queueId"]) != ("A", 0) or first <= r["queueOffset"] < last)
                )
            ),
        ),
    ]


def read(tier: Path, **options: Any) -> list[Row]:
    table = Store(tier).messages(COLUMNS, **options).read_all()
    at = COLUMNS.index("storeTimestamp")
    rows: list[Row] = table.set_column(at, "storeTimestamp", table.column(at).cast(pa.int64())).to_pylist()
    return rows


@pytest.mark.parametrize("kinds", KINDS)
def test_selections(tmp_path: Path, local: Path, rng: random.Random, kinds: str) -> None:
    for number in range(TIERS):
        tier = tmp_path / str(number)
        queues = killed_queues(tier, local, rng, kinds)
        rows = [row for queue in queues for row in queue.rows()]
        is_lost = any(queue.lost for queue in queues)
        for options, expected in selections(rows, rng):
            where = f"tier {number}: {options} {[queue.events for queue in queues]}"
            assert text(read(tier, mode="DROPMALFORMED", **options)) == text(expected), where
            found, told = None, "a hole in the log"
            try:
                found = text(read(tier, **options))
            except DamagedStoreError as why:
                told = f"{why} {where}"
            assert is_lost or found is not None, told
            assert found in (None, text(expected)), where
            assert "a hole in the log" in told
        if is_lost:
            with pytest.raises(DamagedStoreError, match="a hole in the log"):
                read(tier)
        assert text(read(local, tiered=tier)) == text(read(local)), where


@pytest.mark.parametrize("kinds", KINDS)
def test_tables_and_copies(tmp_path: Path, local: Path, rng: random.Random, kinds: str) -> None:
    for number in range(TIERS):
        tier = tmp_path / str(number)
        queues = killed_queues(tier, local, rng, kinds)
        where = f"tier {number}: {[queue.events for queue in queues]}"
        is_lost = any(queue.lost for queue in queues)
        problems = {row["problem"] for row in Store(tier).check().to_pylist()} - NOTES
        allowed = OF_WHAT_IS_LOST if is_lost or any(e[0] in "nfu" for q in queues for e in q.events) else set()
        assert problems <= allowed, f"{problems} {where}"
        assert problems or not is_lost, where
        found = {(q["topic"], q["queueId"]): (q["minOffset"], q["maxOffset"]) for q in Store(tier).queues().to_pylist()}
        names = ("A", 0), ("A", 1), ("B", 2)
        assert found == {name: (min(q.whole), max(q.whole) + 1) for name, q in zip(names, queues, strict=True)}, where
        mode: Any = "DROPMALFORMED"
        for by, of in (("topic", lambda r: r["topic"]), ("topic,queueId", lambda r: (r["topic"], r["queueId"]))):
            rows = [row for queue in queues for row in queue.rows()]
            counts: dict[Any, int] = {}
            for row in rows:
                counts[of(row)] = counts.get(of(row), 0) + 1
            usage = Store(tier).table("usage", by=by, mode=mode).to_pylist()
            assert {of(row): row["messages"] for row in usage} == counts, where
        if is_lost:
            with pytest.raises(DamagedStoreError, match="a hole in the log"):
                Store(tier).copy(tmp_path / f"copy{number}")
            continue
        copied = Store(tier).copy(tmp_path / f"copy{number}")
        assert copied.messages == len(rows), where
        assert text([{**row, "commitLogOffset": None} for row in read(tmp_path / f"copy{number}")]) == text(rows), where


@pytest.mark.parametrize("kinds", KINDS)
def test_streams(tmp_path: Path, local: Path, rng: random.Random, kinds: str) -> None:
    for number in range(TIERS):
        tier = tmp_path / str(number)
        units = tiered.queue_units(local)
        queues = [KilledQueue(tier, *name, units[name], rng) for name in (("A", 0), ("B", 2))]
        limits: dict[str, Any] = rng.choice(({}, {"maxBytesPerTrigger": 900}, {"maxOffsetsPerTrigger": 3}))
        query = Query(tier, columns=COLUMNS, startingOffsets="earliest", failOnDataLoss=False, **limits)
        while not all(queue.is_over for queue in queues):
            for queue in queues:
                if not queue.is_over:
                    queue.step(rng.choice(kinds))
            if rng.random() < 0.5:
                query.trigger()
            if rng.random() < 0.2:
                query.restart()
            query.clock.pass_(rng.choice([0.1, 5]))
        for queue in queues:
            queue.finish()
        for _ in range(12):
            query.run()
            query.clock.pass_(5)
        rows = [row for queue in queues for row in queue.rows()]
        assert text(query.rows) == text(rows), f"tier {number}: {limits} {[queue.events for queue in queues]}"


def test_a_file_of_units_is_missing(tmp_path: Path, local: Path, rng: random.Random) -> None:
    """What was brought twice where no units are left is one row all the same."""
    units = tiered.queue_units(local)["A", 0]
    for number in range(TIERS):
        tier = tmp_path / str(number)
        queue = KilledQueue(tier, "A", 0, units, rng)
        while not queue.is_over:
            queue.step(rng.choice("okk"))
        queue.finish()
        files = sorted(queue.queue.iterdir(), key=lambda path: path.name[8:])
        if len(files) < 3:
            continue
        rng.choice(files[1:-1]).unlink()
        for options in ({}, {"maxPartitionBytes": 700}):
            assert text(read(tier, **options)) == text(queue.rows()), queue.events
        assert [row["problem"] for row in Store(tier).check().to_pylist()] == ["noTieredQueue"], queue.events


def test_killed_before_any_unit(tmp_path: Path, local: Path, rng: random.Random) -> None:
    units = tiered.queue_units(local)["A", 0]
    for number in range(3 * TIERS):
        tier = tmp_path / str(number)
        queue = KilledQueue(tier, "A", 0, units, rng)
        for _ in range(rng.randint(2, 5)):
            queue.step(rng.choice("KH"))
        (queue.queue / tiered.name_of(0)).touch()
        queue.finish(is_killed=rng.random() < 0.7)
        for options in ({}, {"maxPartitionBytes": 700}, {"startingOffsets": json.dumps({"A": {"0": 3}})}):
            rows = [row for row in queue.rows() if row["queueOffset"] >= (3 if "startingOffsets" in options else 0)]
            assert text(read(tier, **options)) == text(rows), queue.events
        assert {row["problem"] for row in Store(tier).check().to_pylist()} <= {*NOTES, "noTieredQueue"}, queue.events
        (found,) = Store(tier).queues().to_pylist()
        assert (found["minOffset"], found["maxOffset"]) == (0, max(queue.whole) + 1), queue.events


@pytest.mark.parametrize("damaged", [0, 1, 3, 6])
def test_damage_where_there_are_no_units(tmp_path: Path, local: Path, rng: random.Random, damaged: int) -> None:
    """It is no half of a message."""
    units = tiered.queue_units(local)["A", 0][:7]
    queue = KilledQueue(tmp_path, "A", 0, units, rng)
    queue.step("K", 7)
    queue.finish(is_killed=True)
    path = queue.log / tiered.name_of(0)
    if path.stat().st_size < sum(map(len, units)):
        return
    sound, start = path.read_bytes(), sum(map(len, units[:damaged]))
    for at in (start + 5, sound.index(b"body-", start)):  # in its magic, in its body
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        with pytest.raises(DamagedStoreError, match="COMMIT_LOG"):
            read(tmp_path)
        left = [row["queueOffset"] for row in read(tmp_path, mode="DROPMALFORMED")]
        assert left == [number for number in range(7) if number != damaged]


def test_a_loss_of_power_cuts_a_file_of_units(tmp_path: Path, local: Path, rng: random.Random) -> None:
    """Within a unit: a broker goes on there, so that no later unit is at its place. Rows do not depend on units."""
    for number in range(3 * TIERS):
        tier = tmp_path / str(number)
        queues = killed_queues(tier, local, rng, "ookc")
        rows = [row for queue in queues for row in queue.rows()]
        for options, expected in selections(rows, rng):
            where = f"tier {number}: {options} {[queue.events for queue in queues]}"
            assert text(read(tier, **options)) == text(expected), where
        assert text(read(local, tiered=tier)) == text(read(local)), where
        found = [(q["topic"], q["queueId"], q["minOffset"], q["maxOffset"]) for q in Store(tier).queues().to_pylist()]
        names = ("A", 0), ("A", 1), ("B", 2)
        assert found == [(*name, 0, max(q.whole) + 1) for name, q in zip(names, queues, strict=True)], where
        assert Store(tier).copy(tmp_path / f"copy{number}").messages == len(rows), where
        problems = {row["problem"] for row in Store(tier).check().to_pylist()}
        shifted = any(int(path.name[8:]) % 20 for queue in queues for path in queue.queue.iterdir())
        assert problems <= {"wrongTieredQueue", "tieredQueueAhead", "noTieredQueue"}, where
        assert problems or not shifted, where
