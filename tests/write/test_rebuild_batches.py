"""rebuild makes the queues of BatchCQ topics as a broker's dispatcher does, or refuses the store by name."""

from __future__ import annotations

import json
import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracle import aged_stores, reference
from oracle.stores import StoreBuilder
from support import flavours, reading, writing
from support.killing import Killed, Stopper, stopped_at_every_change

import rmqstore_spark
from rmqstore_spark import NotAStoreError, RmqStoreError, Store

UNIT = reference.BATCH_UNIT_SIZE


def queues(root: Path) -> dict[str, bytes]:
    """The files of all queues."""
    return {**writing.files(root, "consumequeue/*/*/*"), **writing.files(root, "batchconsumequeue/*/*/*")}


def set_topic(root: Path, topic: str, entry: dict[str, Any] | None) -> None:
    path = root / "config" / "topics.json"
    table = json.loads(path.read_text()) if path.exists() else {"topicConfigTable": {}}
    table["topicConfigTable"].pop(topic, None)
    if entry is not None:
        table["topicConfigTable"][topic] = {"topicName": topic, "readQueueNums": 2, "writeQueueNums": 2, **entry}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(table))


def units_of(root: Path, topic: str, queue_id: int) -> list[bytes]:
    """The units of a BatchCQ, without unused ones at the end."""
    files = sorted((root / "batchconsumequeue" / topic / str(queue_id)).glob("*"))
    assert [int(path.name) for path in files] == [number * files[0].stat().st_size for number in range(len(files))]
    data = b"".join(path.read_bytes() for path in files)
    units = [data[at : at + UNIT] for at in range(0, len(data), UNIT)]
    while units and not any(units[-1]):
        units.pop()
    return units


def expected(root: Path, topic: str) -> dict[int, list[bytes]]:
    """The units that a broker makes, by queueId (CommitLog.setBatchSizeIfNeeded, BatchConsumeQueue)."""
    found: dict[int, list[bytes]] = {}
    for at, data in reference.read_units(root):
        unit = reference.parse_unit(data, at)
        if unit.topic.decode() != topic or unit.sys_flag & reference.TRANSACTION_BITS not in (0, reference.COMMIT):
            continue
        properties = reference.parse_properties(unit.properties)
        base, count = unit.queue_offset, 1
        if "INNER_BASE" in properties and "INNER_NUM" in properties:
            base, count = int(properties["INNER_BASE"]), int(properties["INNER_NUM"])
        code = reference.tags_code(topic, reference.java_properties(unit.properties), unit.store_timestamp)
        if count > 0:
            made = reference.encode_batch_unit(at, len(data), code, unit.store_timestamp, base, count)
            found.setdefault(unit.queue_id, []).append(made)
    return found


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("lost", ["nothing", "a queue", "all units", "all queues"])
def test_of_a_real_store(tmp_path: Path, lost: str, index: bool) -> None:
    """Byte for byte what the broker itself had made."""
    root = flavours.unpack_store("batchcq", tmp_path)
    before, rows, told = queues(root), reading.read(root), Store(root).check().to_pylist()
    if lost == "a queue":
        shutil.rmtree(root / "batchconsumequeue" / "Bq" / "0")
    elif lost == "all units":
        for path in root.glob("batchconsumequeue/*/*/*"):
            path.write_bytes(bytes(path.stat().st_size))
    elif lost == "all queues":
        shutil.rmtree(root / "batchconsumequeue")
    assert rmqstore_spark.rebuild(root, messageIndexEnable=index) == len(rows)
    after = queues(root)
    if lost == "all queues":  # nothing tells which size they had: that of a broker without any setting
        assert {len(data) for name, data in after.items() if name.startswith("batch")} == {300_000 * UNIT}
        before = {name: data.rstrip(b"\0") for name, data in before.items()}
        after = {name: data.rstrip(b"\0") for name, data in after.items()}
    assert after == before
    assert reading.read(root) == rows
    assert [row for row in Store(root).check().to_pylist() if row not in told] == []
    assert not (root / "abort").exists()


def test_random_stores(tmp_path: Path, rng: random.Random) -> None:
    """The queues are those that the log gives, whatever was there; rows and selections stay."""
    seen = 0
    for number in range(25):
        root = tmp_path / str(number)
        _, is_cut = aged_stores.aged_store(root, rng, batches=True)
        if is_cut:
            continue  # its end is damage, which a rebuild refuses
        rows = reference.read_store(root)
        if rng.random() < 0.5:
            shutil.rmtree(root / "batchconsumequeue", ignore_errors=True)
        rmqstore_spark.rebuild(root)
        queues_made = expected(root, aged_stores.BATCHES)
        for queue_id in {*queues_made, *_ids(root)}:
            if made := queues_made.get(queue_id):
                assert units_of(root, aged_stores.BATCHES, queue_id) == made
        assert not (root / "consumequeue" / aged_stores.BATCHES).exists()
        assert reading.read(root) == rows
        if rows:
            word = rng.choice(rows)["keys"] or "nothing"
            with_word = [row for row in rows if word.split()[0:1] and word.split()[0] in (row["keys"] or "").split()]
            if word.split():
                assert reading.read(root, key=word.split()[0], prices=reading.FREE) == with_word
        seen += sum(map(len, queues_made.values()))
    assert seen > 100


def _ids(root: Path) -> set[int]:
    return {int(path.name) for path in root.glob(f"batchconsumequeue/{aged_stores.BATCHES}/*")}


def _append(store: StoreBuilder, base: bytes, count: bytes, messages: int = 2) -> int:
    body = reference.encode_batch([reference.Inner(b"x", b"")] * messages)
    properties = b"INNER_BASE\x01" + base + b"\x02INNER_NUM\x01" + count + b"\x02"
    return store.append("B", body, sys_flag=reference.BATCH, messages=messages, properties=properties)


def test_numbers_that_are_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A broker takes no message whose numbers it cannot read; the log still has it."""
    store = StoreBuilder(tmp_path)
    good = [(b"0", b"2"), (b"+2", b"2"), (b"0004", b"+2"), (str((1 << 63) - 1 - 32767).encode(), b"32767")]
    bad = [
        *((base, b"2") for base in (b"-1", b"x", b"1.0", b" 1", b"9223372036854775808", b"9" * 40, b"+", b"--1")),
        *((b"0", count) for count in (b"0", b"-1", b"32768", b"+", b"x", b"4294967298", b"9" * 40, b"1\xff")),
    ]
    positions = [_append(store, *numbers) for numbers in (*good, *bad)]
    store.append("B", b"single", properties=b"INNER_NUM\x017\x02")
    store.append("B", b"single", properties=b"INNER_BASE\x017\x02")
    last = store.messages[-1].queue_offset
    store.close()
    set_topic(tmp_path, "B", {"attributes": {"queue.type": "BatchCQ"}})
    with caplog.at_level(logging.WARNING):
        assert rmqstore_spark.rebuild(tmp_path) == 2 + 2 + 2 + 32767 + 2
    assert (
        f"commitLogOffset {positions[len(good)]}: topic 'B', queue 0: expected a name, and a queueOffset" in caplog.text
    )
    fields = [unit[28:38] for unit in units_of(tmp_path, "B", 0)]
    numbers = [(int.from_bytes(each[:8]), int.from_bytes(each[8:])) for each in fields]
    assert numbers == [(0, 2), (2, 2), (4, 2), ((1 << 63) - 1 - 32767, 32767), (last - 1, 1), (last, 1)]
    assert len(reading.read(tmp_path)) == 2 * len(positions) + 2


def test_a_light_queue_that_topics_json_makes_a_batch_topic(tmp_path: Path) -> None:
    """It is none; units of both kinds in one queue would be as long as neither."""
    store = StoreBuilder(tmp_path)
    light = {"INNER_MULTI_DISPATCH": "%LMQ%x", "INNER_MULTI_QUEUE_OFFSET": "0"}
    for number in range(20):
        store.append("T", b"%d" % number, properties=light if number % 3 else {})
        store.append("%LMQ%x", b"own", 0)
    store.close()
    shutil.rmtree(tmp_path / "consumequeue")
    set_topic(tmp_path, "%LMQ%x", {"attributes": {"queue.type": "BatchCQ"}})
    rmqstore_spark.rebuild(tmp_path)
    assert len(units_of(tmp_path, "%LMQ%x", 0)) == 20
    assert len(reading.read(tmp_path)) == 40


def test_only_one_kind_of_queue_stays(tmp_path: Path) -> None:
    """A broker does not start where a topic's queues are not of the kind that topics.json says."""
    root = flavours.unpack_store("batchcq", tmp_path)
    shutil.copytree(root / "consumequeue" / "Plain", root / "consumequeue" / "Bq")
    before = queues(root)
    rmqstore_spark.rebuild(root)
    assert queues(root) == {
        name: data for name, data in before.items() if "consumequeue/Bq" not in name.partition("batch")[0]
    }


def test_a_topic_that_topics_json_does_not_know(tmp_path: Path) -> None:
    """Its queues tell what it is; and then topics.json does."""
    root = flavours.unpack_store("batchcq", tmp_path)
    before = queues(root)
    set_topic(root, "Bq", None)
    rmqstore_spark.rebuild(root)
    assert queues(root) == before
    entry = json.loads((root / "config" / "topics.json").read_text())["topicConfigTable"]["Bq"]
    assert (entry["attributes"], entry["readQueueNums"]) == ({"queue.type": "BatchCQ"}, 2)


@pytest.mark.parametrize("entry", [None, {}, {"attributes": {"+queue.type": "BatchCQ"}}])
def test_refused_by_name(tmp_path: Path, entry: dict[str, Any] | None) -> None:
    """Where topics.json says something else than the log or batchconsumequeue/, and a broker would not start."""
    root = flavours.unpack_store("batchcq", tmp_path)
    set_topic(root, "Bq", entry)
    if entry is None:
        shutil.rmtree(root / "batchconsumequeue")
    before = writing.files(root, "**/*")
    with pytest.raises((NotAStoreError, RmqStoreError), match=r"queue\.type BatchCQ.*bring back the broker's topics"):
        rmqstore_spark.rebuild(root)
    assert writing.files(root, "**/*") == before


def test_queues_that_no_message_makes_anew(tmp_path: Path) -> None:
    """They stay, without units that point behind the log's end."""
    root = flavours.unpack_store("batchcq", tmp_path)
    end = Store(root).segments().to_pylist()[-1]
    beyond = int(Path(end["file"]).name) + 1_000_000
    kept = reference.encode_batch_unit(0, 100, 0, 1, 7, 3)
    behind = reference.encode_batch_unit(beyond, 100, 0, 2, 10, 2)
    for queue_id, units in (("5", kept), ("6", kept + behind), ("7", behind)):
        path = root / "batchconsumequeue" / "Bq" / queue_id / f"{0:020d}"
        path.parent.mkdir()
        path.write_bytes(units.ljust(46_000, b"\0"))
    before = queues(root)
    rmqstore_spark.rebuild(root)
    expected_files = {name: data for name, data in before.items() if "Bq/7" not in name}
    expected_files = {
        name: kept.ljust(46_000, b"\0") if "Bq/6" in name else data for name, data in expected_files.items()
    }
    assert queues(root) == expected_files


def test_a_queue_of_an_impossible_topic_stays(tmp_path: Path) -> None:
    root = flavours.unpack_store("batchcq", tmp_path)
    path = root / "batchconsumequeue" / "A\n" / "0" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(reference.encode_batch_unit(1 << 40, 100, 0, 2, 10, 2).ljust(46_000, b"\0"))
    before = queues(root)
    rmqstore_spark.rebuild(root)
    assert queues(root) == before


@pytest.mark.slow
@pytest.mark.long
def test_stopped_at_every_change(home: Path, stop: Stopper) -> None:
    """Queues of both kinds are the old ones or the new ones, and the next rebuild makes them."""
    packed = flavours.unpack_store("batchcq", home / "packed")
    good, rows = queues(packed), reading.read(packed)
    for path in packed.glob("batchconsumequeue/*/*/*"):
        path.write_bytes(path.read_bytes()[: 46 * 3].ljust(46_000, b"\0"))
    root = home / "store"

    def begin() -> Callable[[], object]:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(packed, root)
        return lambda: rmqstore_spark.rebuild(root)

    for _ in stopped_at_every_change(stop, begin, Killed):
        assert reading.read(root) == rows
        stop.at(None)
        rmqstore_spark.rebuild(root)
        assert queues(root) == good
