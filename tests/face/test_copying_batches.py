"""Copies of stores with BatchCQ topics: the same units in queues of the same kind, and each group in its place."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from oracle import aged_stores, reference
from oracle.stores import StoreBuilder
from support import flavours, reading

from rmqstore_spark import NotAStoreError, OptionError, Store

KEPT = ["topic", "queueId", "queueOffset", "batchIndex", "msgId", "keys", "tags", "body", "properties", "sysFlag"]
KEPT += ["storeTimestamp", "bornTimestamp", "flag", "storeSize"]
UNIT = reference.BATCH_UNIT_SIZE


def rows_of(root: Path, **options: Any) -> list[dict[str, Any]]:
    return reading.read(root, columns=KEPT, **options)


def units_of(root: Path) -> dict[str, list[tuple[int, ...]]]:
    """The units of all BatchCQs but for the position: size, tagsCode, store time, first queue offset, messages."""
    found: dict[str, list[tuple[int, ...]]] = {}
    for path in sorted(root.glob("batchconsumequeue/*/*/*")):
        data = path.read_bytes()
        units = found.setdefault("/".join(path.parts[-3:-1]), [])
        for at in range(0, len(data), UNIT):
            _, *fields = aged_stores.BATCH_UNIT.unpack_from(data, at)
            if any(fields):
                units.append(tuple(fields))
    return found


def config(root: Path, name: str) -> dict[str, Any]:
    table: dict[str, Any] = json.loads((root / "config" / name).read_text())
    return table


def test_of_a_real_store(tmp_path: Path) -> None:
    source, target = flavours.unpack_store("batchcq", tmp_path), tmp_path / "copy"
    offsets = {"Bq@g": {"0": 7, "1": 3}, "Plain@g": {"0": 2}}
    (source / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    copied = Store(source).copy(target)
    assert (copied.messages, copied.lost.num_rows) == (len(rows_of(source)), 0)
    assert rows_of(target) == rows_of(source)
    assert units_of(target) == units_of(source)
    assert {path.stat().st_size for path in target.glob("batchconsumequeue/*/*/*")} == {46_000}
    assert not (target / "consumequeue" / "Bq").exists()
    assert config(target, "consumerOffset.json")["offsetTable"]["Bq@g"] == {"0": 7, "1": 3}
    assert config(target, "topics.json")["topicConfigTable"]["Bq"]["attributes"]["queue.type"] == "BatchCQ"
    told = {row["problem"] for row in Store(source).check().to_pylist()}
    assert {row["problem"] for row in Store(target).check().to_pylist()} <= told
    row = next(row for row in rows_of(target) if row["batchIndex"] == 2)
    assert rows_of(target, msgId=row["msgId"]) == [row]
    names = ["topic", "queueId", "queueType", "minOffset", "maxOffset"]
    before, after = (Store(root).queues(columns=",".join(names)).to_pylist() for root in (source, target))
    assert after == before


def test_random_stores(tmp_path: Path, rng: random.Random) -> None:
    """Whole copies, and copies of some topics."""
    seen = 0
    for number in range(15):
        source, target = tmp_path / f"{number}", tmp_path / f"{number}-copy"
        _, is_cut = aged_stores.aged_store(source, rng, batches=True)
        rows = rows_of(source) if not is_cut else []
        if not {aged_stores.BATCHES, aged_stores.PLAIN} <= {row["topic"] for row in rows}:
            continue
        lost = rng.random() < 0.3
        if lost:
            shutil.rmtree(source / "batchconsumequeue", ignore_errors=True)
        options: Any = rng.choice(({}, {"subscribe": aged_stores.BATCHES}, {"subscribe": "TopicA,Batches"}))
        expected = rows_of(source, **options)
        Store(source).copy(target, **options)
        assert rows_of(target) == expected
        seen += sum(row["batchIndex"] is not None for row in rows)
        told = [(row["problem"], row["commitLogOffset"]) for row in Store(target).check().to_pylist()]
        units = [(at, reference.parse_unit(data, at)) for at, data in reference.read_units(target)]
        # No queue can have a batch of no message.
        empty = [at for at, unit in units if unit.sys_flag & reference.BATCH == reference.BATCH and not unit.body]
        assert {at for problem, at in told if problem == "missingQueueUnit"} <= set(empty)
        assert {problem for problem, _ in told} <= {
            "brokerRuns",
            "olderThanBefore",
            "missingQueueUnit",
            "topicWithoutQueue",
            "longRecovery",
        }
    assert seen > 10


def built(root: Path, start: int = 0) -> StoreBuilder:
    """A BatchCQ topic `B`, whose queues are lost, with a batch, a message and a batch."""
    store = StoreBuilder(root, segment_size=4096, start=start)
    for names in (("a", "b"), ("single",), ("c", "d", "e")):
        base = store.next_offset("B", 0)
        inner = [reference.Inner(name.encode(), f"TAGS\x01{name}\x02".encode()) for name in names]
        is_batch = len(names) > 1
        store.append(
            "B",
            reference.encode_batch(inner) if is_batch else b"single",
            sys_flag=reference.BATCH if is_batch else 0,
            messages=len(names),
            properties=f"INNER_BASE\x01{base}\x02INNER_NUM\x01{len(names)}\x02".encode()
            if is_batch
            else b"TAGS\x01x\x02",
        )
    store.close()
    shutil.rmtree(root / "consumequeue")
    table = config(root, "topics.json")
    table["topicConfigTable"]["B"]["attributes"] = {"queue.type": "BatchCQ"}
    (root / "config" / "topics.json").write_text(json.dumps(table))
    return store


def test_selected_messages_leave_a_gap_that_no_broker_reads(tmp_path: Path) -> None:
    """Without a unit for it, a consumer in the gap would get the batch before it for ever. A batch is copied whole."""
    source, target = tmp_path / "store", tmp_path / "copy"
    built(source)
    copied = Store(source).copy(target, tags="a || d")
    assert [row["queueOffset"] for row in rows_of(target)] == [0, 1, 3, 4, 5]
    units = units_of(target)["B/0"]
    assert [unit[3:5] for unit in units] == [(0, 2), (2, 1), (3, 3)]
    assert units[1][0] == 9  # bytes: the end of a segment and one more
    assert [(row["queueOffset"], row["count"]) for row in copied.lost.to_pylist()] == [(2, 1)]
    (queue,) = Store(target).queues(columns="minOffset,maxOffset,messages").to_pylist()
    assert queue == {"minOffset": 0, "maxOffset": 6, "messages": 6}
    assert rows_of(target, tags="e") == [row for row in rows_of(source) if row["tags"] == "e"]


def test_a_queue_without_messages_goes_on(tmp_path: Path) -> None:
    source, target = tmp_path / "store", tmp_path / "copy"
    built(source, start=4096)
    path = source / "batchconsumequeue" / "B" / "5" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(reference.encode_batch_unit(0, 100, 0, 1, 40, 2).ljust(46_000, b"\0"))
    (source / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": {"B@g": {"5": 42}}}))
    Store(source).copy(target)
    assert config(target, "consumerOffset.json")["offsetTable"]["B@g"]["5"] == 42
    assert [unit[3:5] for unit in units_of(target)["B/5"]] == [(41, 1)]
    assert rows_of(target) == rows_of(source)


def test_several_into_one(tmp_path: Path) -> None:
    first, second = flavours.unpack_store("batchcq", tmp_path / "1"), flavours.unpack_store("batchcq", tmp_path / "2")
    # With the first one's storeHost it would be a copy of it.
    Store(first).copy(tmp_path / "other", subscribe="Bq", storeHost="192.0.2.7:10911")
    shutil.rmtree(second)
    rows = rows_of(first, subscribe="Bq")
    Store([first, tmp_path / "other"]).copy(tmp_path / "both", subscribe="Bq")
    moved = [{**row, "queueId": row["queueId"] + 2} for row in rows]

    def place(row: dict[str, Any]) -> tuple[int, int]:
        return row["queueId"], row["queueOffset"]

    assert sorted(rows_of(tmp_path / "both"), key=place) == sorted([*rows, *moved], key=place)
    table = config(first, "topics.json")
    del table["topicConfigTable"]["Bq"]["attributes"]
    (tmp_path / "other" / "config" / "topics.json").write_text(json.dumps(table))
    with pytest.raises((OptionError, NotAStoreError), match="topic 'Bq' has simple queues: expected BatchCQs"):
        Store([first, tmp_path / "other"]).copy(tmp_path / "never", subscribe="Bq")
    assert not (tmp_path / "never").exists()


def test_a_salvage_refuses_them(tmp_path: Path) -> None:
    source = flavours.unpack_store("batchcq", tmp_path)
    with pytest.raises(NotAStoreError, match="topic 'Bq' is a BatchCQ topic, which a salvage does not take"):
        Store(source).salvage(tmp_path / "new")
    assert Store(source).salvage(tmp_path / "new", subscribe="Plain").messages == 11
