"""Stores of other kinds: what a broker keeps elsewhere is never written beside, in any way of writing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from support import flavours, writing
from support.writing import write

import rmqstore_spark
from rmqstore_spark import NotAStoreError, OptionError, RmqStoreError, Store
from rmqstore_spark.store.structures.kinds import KINDS

IN_ROCKSDB = sorted(kind.path for kind in KINDS if kind.instead and kind.sign == "CURRENT")
CONFIG = [path for path in IN_ROCKSDB if path.startswith("config/")]
NEW = pa.table({"topic": ["BrandNew"], "body": [b"x"]})
WRITES: dict[str, Callable[[Path], object]] = {
    "append": lambda root: rmqstore_spark.write_store(root, NEW),
    "overwrite": lambda root: rmqstore_spark.write_store(root, NEW, mode="overwrite"),
    "rebuild": rmqstore_spark.rebuild,
}
FLAVOURS = {
    "combined": "consumequeue: ConsumeQueues in RocksDB",
    "rocksdb-all": "consumequeue: ConsumeQueues in RocksDB",
    "rocksdb-all-v2": "consumequeue: ConsumeQueues in RocksDB",
    "rocksdb-metadata": "consumequeue_rocksdb: ConsumeQueues in RocksDB",
    "rocksdb-trans": "consumequeue: ConsumeQueues in RocksDB",
    "dledger": "dledger-n0/data: a log of DLedger",
}


def rows(*topics: str) -> list[writing.Row]:
    return [{"topic": topic, "queueId": 0, "body": b"%d" % n} for n, topic in enumerate(topics)]


def assert_refused(root: Path, how: str, match: str) -> None:
    """By name, and nothing is changed."""
    before = writing.files(root, "**/*")
    names = sorted(path for path in root.rglob("*") if path.name != "lock")
    with pytest.raises(NotAStoreError, match=match):
        WRITES[how](root)
    assert writing.files(root, "**/*") == before
    assert sorted(path for path in root.rglob("*") if path.name != "lock") == names


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("path", IN_ROCKSDB)
def test_what_is_in_rocksdb(tmp_path: Path, path: str, how: str) -> None:
    root = tmp_path / "store"
    write(root, rows("A", "A"))
    (root / path).mkdir(exist_ok=True)
    (root / path / "CURRENT").write_text("MANIFEST-000005\n")
    (root / path / "MANIFEST-000005").touch()
    assert_refused(root, how, rf"{path}: .* in RocksDB: expected them in files")
    assert Store(root).copy(tmp_path / "copy").messages == 2
    assert rmqstore_spark.write_store(tmp_path / "copy", NEW) == 1


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("name", FLAVOURS)
def test_what_a_broker_made(tmp_path: Path, name: str, how: str) -> None:
    assert_refused(flavours.unpack_store(name, tmp_path), how, FLAVOURS[name])


@pytest.mark.parametrize("how", WRITES)
def test_a_log_of_dledger(tmp_path: Path, how: str) -> None:
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    (tmp_path / "config").mkdir()
    assert_refused(tmp_path, how, "dledger-n0/data: a log of DLedger: expected messages in commitlog/")


def test_a_topic_may_be_called_like_a_rocksdb(tmp_path: Path) -> None:
    """A name that a broker takes. CURRENT is then a directory."""
    write(tmp_path, rows("CURRENT", "B"))
    write(tmp_path, rows("CURRENT", "B"))
    assert rmqstore_spark.rebuild(tmp_path) == 4
    assert Store(tmp_path).check().num_rows == 0
    assert Store(tmp_path).queues().column("maxOffset").to_pylist() == [2, 2]


@pytest.mark.parametrize("path", CONFIG)
def test_config_is_not_taken_from_files_that_no_broker_reads(tmp_path: Path, path: str) -> None:
    """One that went over to RocksDB leaves them as they were."""
    source = tmp_path / "source"
    write(source, rows("A", "A"))
    table = Store(source).messages().read_all()
    assert rmqstore_spark.write_store(tmp_path / "before", table, configFrom=str(source)) == 2
    (source / path).mkdir()
    (source / path / "CURRENT").touch()
    with pytest.raises(
        OptionError, match=rf"'configFrom': .*{path}: expected the broker's topics, found .* in RocksDB"
    ):
        rmqstore_spark.write_store(tmp_path / "after", table, configFrom=str(source))
    assert not (tmp_path / "after").exists()


@pytest.mark.parametrize("sign", ["attribute", "directory"])
def test_queues_of_batches(tmp_path: Path, sign: str) -> None:
    """Nothing is appended to such a topic, and where topics.json does not say what it is, nothing is rebuilt."""
    write(tmp_path, rows("Batches", "Plain"))
    if sign == "attribute":
        path = tmp_path / "config" / "topics.json"
        table = json.loads(path.read_text())
        table["topicConfigTable"]["Batches"]["attributes"] = {"+queue.type": "BatchCQ"}
        path.write_text(json.dumps(table))
    else:
        shutil.move(tmp_path / "consumequeue" / "Batches", tmp_path / "batchconsumequeue" / "Batches")
    before = writing.files(tmp_path, "**/*")
    with pytest.raises(RmqStoreError, match=r"opic Batches has queue.*BatchCQ.*; config/topics.json has to say"):
        rmqstore_spark.rebuild(tmp_path)
    with pytest.raises(RmqStoreError, match=r"opic Batches has queue.*BatchCQ"):
        write(tmp_path, rows("Plain", "Batches"))
    assert writing.files(tmp_path, "**/*") == before
    write(tmp_path, rows("Plain"))
    assert [row["topic"] for row in Store(tmp_path).messages().read_all().to_pylist()] == ["Batches", "Plain", "Plain"]


def test_a_store_with_batches_goes_on(tmp_path: Path) -> None:
    """The log's last message is in a queue of batches, which has one unit for all of a batch."""
    root = flavours.unpack_store("batchcq", tmp_path)
    before, told = Store(root).queues().to_pylist(), Store(root).check().to_pylist()
    assert rmqstore_spark.write_store(root, NEW) == 1
    assert [row for row in Store(root).queues().to_pylist() if row["topic"] != "BrandNew"] == before
    assert {row["problem"] for row in Store(root).check().to_pylist()} <= {row["problem"] for row in told}


@pytest.mark.parametrize("sign", ["attribute", "directory"])
def test_advice_where_queues_of_batches_lag(tmp_path: Path, sign: str) -> None:
    """It helps."""
    root = flavours.unpack_store("batchcq", tmp_path)
    for path in (root / "batchconsumequeue").rglob("*"):
        if path.is_file() and sign == "directory":
            path.write_bytes(bytes(path.stat().st_size))
    if sign == "attribute":
        shutil.rmtree(root / "batchconsumequeue")
    with pytest.raises(RmqStoreError, match=r"call rmqstore_spark\.rebuild\(store\) first"):
        WRITES["append"](root)
    rmqstore_spark.rebuild(root)
    assert WRITES["append"](root) == 1


@pytest.mark.parametrize("name", ["compaction", "compaction2", "tiered", "system", "retry", "recover"])
def test_what_may_be_written_to(tmp_path: Path, name: str) -> None:
    """Compacted copies, tiered stores, timers, pops: what brokers keep beside files that they read. It stays."""
    root = flavours.unpack_store(name, tmp_path)
    problems = Store(root).check()
    messages = Store(root).messages().read_all().num_rows
    kept = ("compaction", "timerwheel", "timerlog", "kvStore", "rocksdbstore", "config/tieredStoreMetadata.json")
    before = {part: writing.files(root / part, "**/*") for part in kept if (root / part).is_dir()}
    assert rmqstore_spark.rebuild(root) <= messages
    assert rmqstore_spark.write_store(root, NEW) == 1
    assert Store(root).messages().read_all().num_rows == messages + 1
    assert {part: writing.files(root / part, "**/*") for part in before} == before
    is_told = Store(root).check().column("problem").to_pylist()
    assert set(is_told) <= {*problems.column("problem").to_pylist()}
