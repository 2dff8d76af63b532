"""Queues and configuration that a real broker keeps in RocksDB: tables say what its admin API answers, after a clean
stop and after a kill; and so they say of a copy."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from oracle import reference

from interop import rocketmq
from interop.accept import sizes_of
from interop.rocketmq import Broker, Sizes
from interop.test_tables import check_groups, check_offsets, check_queues, check_topics, check_units, grows
from rmqstore_spark import Store

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long, pytest.mark.usefixtures("real")]

Record = dict[str, Any]
UNTOLD = {"rmq_sys_wheel_timer"}  # a topic that the broker does not put into RocksDB, and one with a wheel of its own
CREATED = {  # by the client, beside a topic whose name begins with Long-
    *("Plain", "Properties", "Ordered", "Batches", "Compressed", "Sizes", "Delayed", "Timers", "Transactions"),
    "Retried",
}
SIZES = Sizes(1024 * 1024, queue_file=4000, index_slots=100, index_items=400)
_ROCKSDB = {"storeType": "defaultRocksDB", "transactionCheckInterval": 10_000_000}
_COMBINED = {
    "rocksdbCQDoubleWriteEnable": "true",
    "combineCQLoadingCQTypes": "default;defaultRocksDB",
    "combineCQPreferCQType": "default",
    "combineAssignOffsetCQType": "default",
    "transactionCheckInterval": 10_000_000,
}
MODES: dict[str, tuple[str, dict[str, Any]]] = {
    "5.5.0": ("5.5.0", _ROCKSDB),
    "5.5.0 separate": (
        "5.5.0",
        {**_ROCKSDB, "useSeparateStorePathForRocksdbCQ": "true", "useSingleRocksDBForAllConfigs": "true"},
    ),
    "5.5.0 v2": ("5.5.0", {**_ROCKSDB, "configManagerVersion": "v2"}),
    "5.5.0 combined": ("5.5.0", {**_COMBINED, "combineCQUseRocksdbForLmq": "true"}),
    "5.3.0": ("5.3.0", _ROCKSDB),
    "5.3.3 twice": ("5.3.3", {"rocksdbCQDoubleWriteEnable": "true", "transactionCheckInterval": 10_000_000}),
    "5.4.0": ("5.4.0", _ROCKSDB),
    "5.4.0 combined": ("5.4.0", _COMBINED),
}
TRIED = tuple(MODES) if os.environ.get("RMQ_ALL_VERSIONS") else ("5.5.0",)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", TRIED)
def test_admin_api_says_the_same(mode: str, tmp_path: Path) -> None:
    version, settings = MODES[mode]
    root = tmp_path / "store"
    (root / "config").mkdir(parents=True)
    with Broker(version, root, tmp_path / "home", SIZES, settings) as broker:
        broker.client().run("scenario", 1, 100, 2000, "", "timer")
        answers = broker.client().run("admin")
        running = rows_of_log(root)
        with broker.frozen():
            assert same_as_scan(root) >= running - 5
        seen = {row["topic"] for row in Store(root).queues().to_pylist()}
        told = {answer["topic"] for answer in answers if answer["kind"] == "queue" and answer["maxOffset"] > 0}
        configured = {row["topic"] for row in Store(root).topics().to_pylist() if row["configured"]}
        assert {topic for topic in told if not grows(topic)} & configured <= seen
    if settings.get("configManagerVersion") == "v2":
        answers = [answer for answer in answers if is_stored_by_v2(answer)]
    check(root, answers)
    target = tmp_path / "copy"
    Store(root).copy(target)
    assert not list(target.rglob("CURRENT"))
    check(target, answers, is_copy=True)


@pytest.mark.parametrize("mode", TRIED)
def test_a_killed_broker(mode: str, tmp_path: Path) -> None:
    """Of its queues there may be nothing, as it writes them without a log; after a second start it was stopped cleanly
    once, and is killed again."""
    version, settings = MODES[mode]
    root = tmp_path / "store"
    (root / "config").mkdir(parents=True)
    broker = Broker(version, root, tmp_path / "home", SIZES, settings)
    try:
        broker.start()
        broker.client().run("scenario", 2, 50, 2000, "", "timer")
        broker.kill()
        assert same_as_scan(root) > 50
        before = files_of(root)
        found = Store(root).check().to_pylist()
        assert [row for row in found if row["severity"] == "error"] == []
        assert files_of(root) == before
        with Broker(version, root, tmp_path / "home", SIZES, settings):
            pass
        broker = Broker(version, root, tmp_path / "home", SIZES, settings)
        broker.start()
        broker.kill()
        assert same_as_scan(root) > 50
    finally:
        broker.kill()


@pytest.mark.parametrize("mode", TRIED)
def test_groups_go_on_in_a_copy(mode: str, tmp_path: Path) -> None:
    """A copy is a plain store: a broker without RocksDB starts on it, and a group gets what it had not consumed, each
    message once. While the broker runs its store is read, and nothing in it changes by that."""
    version, settings = MODES[mode]
    root = tmp_path / "store"
    (root / "config").mkdir(parents=True)
    with Broker(version, root, tmp_path / "home", SIZES, settings) as broker:
        client = broker.client()
        client.run("create", "Orders", 2)
        sent = [answer for queue_id in range(2) for answer in client.run("send", "Orders", queue_id, 30, "first")]
        consumed = client.run("consume", "Orders", "billing", len(sent), 3000)
        assert places(consumed) == places(sent)
        with broker.frozen():
            before = files_of(root)
            assert {row["topic"] for row in Store(root).queues().to_pylist()} >= {"Orders"}
            for table in ("topics", "groups", "offsets", "check", "inflight"):
                Store(root).table(table)
            # No queue in RocksDB vouches yet for the last message of a log that is written to.
            rows = Store(root).messages(subscribe="Orders").read_all().num_rows
            assert len(sent) - 1 <= rows <= len(sent)
            assert files_of(root) == before
        sent = [answer for queue_id in range(2) for answer in client.run("send", "Orders", queue_id, 30, "second")]
    stopped = tmp_path / "copy"
    Store(root).copy(stopped)
    for store in (root, stopped):
        rows = [row for row in Store(store).offsets().to_pylist() if row["group"] == "billing"]
        reached = [(row["queueId"], row["consumerOffset"]) for row in rows if row["topic"] == "Orders"]
        assert reached == [(0, 30), (1, 30)], store
    # No file of the store tells how large the broker's queue files would be: the copy has those of RocketMQ's defaults.
    with Broker(version, stopped, tmp_path / "other", sizes_of(stopped)) as broker:
        assert not list((stopped / "consumequeue").glob("CURRENT"))
        found = broker.client().run("consume", "Orders", "billing", len(sent), 5000)
        broker.kill()
    assert places(found) == places(sent)


def is_stored_by_v2(answer: Record) -> bool:
    """Whether a broker with config v2 has it in RocksDB: topics and groups that it makes by itself are in its memory
    only, and made anew after a start. (RocksDB's own library finds no others there.)"""
    kind, topic = answer["kind"], str(answer.get("topic"))
    return topic in CREATED or topic.startswith("Long-") if kind == "topic" else kind != "group"


def places(answers: list[Record]) -> list[tuple[int, int]]:
    return sorted((answer["queueId"], answer["queueOffset"]) for answer in answers if "queueOffset" in answer)


def check(root: Path, answers: list[Record], is_copy: bool = False) -> None:
    store = Store(root)
    if is_copy or not (root / "config" / "topics.json").exists():
        answers = [each for each in answers if each.get("topic") not in UNTOLD]
    of = {
        kind: [answer for answer in answers if answer["kind"] == kind] for kind in ("topic", "queue", "unit", "group")
    }
    if not is_copy:  # which has an entry for each topic with a queue
        check_topics(store, of["topic"])
    check_groups(store, of["group"])
    check_offsets(store, [answer for answer in answers if answer["kind"] == "offset"])
    check_queues(store, [each for each in of["queue"] if not (is_copy and grows(each["topic"]))])  # timers begin anew
    if not is_copy:  # messages have other physical offsets there, if the broker filled a segment in another way
        # Of a queue in RocksDB, 5.3.0 gives the first messages only.
        shown = {(each["topic"], each["queueId"]): each["queueOffset"] for each in of["unit"]}
        check_units(Shown(store, shown), of["unit"])
    found = store.check().to_pylist()
    assert [row for row in found if row["severity"] == "error"] == []
    # After a clean stop MANIFEST names all tables: else they would be told as lost.
    assert not [row for row in found if row["file"].endswith(".sst")]


class Shown:
    """A store whose queues end after what the admin API has shown of each."""

    def __init__(self, store: Store, last: dict[tuple[str, int], int]) -> None:
        self._units = [
            row
            for row in store.consumequeue().to_pylist()
            if row["queueOffset"] <= last.get((row["topic"], row["queueId"]), -1)
        ]

    def consumequeue(self) -> pa.Table:
        return pa.Table.from_pylist(self._units)


def rows_of_log(root: Path) -> int:
    return len(reference.read_store(root))


def same_as_scan(root: Path) -> int:
    """The rows of each topic are those of the full scan; their number."""
    copied = root.parent / "seen"
    shutil.rmtree(copied, ignore_errors=True)
    rocketmq.copy_store(root, copied)
    store = Store(copied)
    everything = store.messages(columns="topic,queueId,queueOffset,commitLogOffset").read_all().to_pylist()
    for topic in {row["topic"] for row in everything}:
        rows = store.messages(columns="topic,queueId,queueOffset,commitLogOffset", subscribe=topic).read_all()
        wanted = sorted((row for row in everything if row["topic"] == topic), key=lambda row: row["commitLogOffset"])
        assert sorted(rows.to_pylist(), key=lambda row: row["commitLogOffset"]) == wanted
    return len(everything)


def files_of(root: Path) -> dict[str, tuple[int, int]]:
    found = ((path, path.stat()) for path in root.rglob("*"))
    return {str(path): (status.st_ino, status.st_mtime_ns) for path, status in found}
