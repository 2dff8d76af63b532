"""Stores that we write, append to or rebuild, before real brokers."""

from __future__ import annotations

import random
import secrets
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import golden
import pytest
import reading
import reference
import rocketmq
import writing
from accept import assert_broker_accepts
from rocketmq import VERSIONS, Broker
from scenario import Written
from test_write import some_rows
from test_write_kill import Killed, Stopper

import rmqstore_spark
from rmqstore_spark.store.sizes import Sizes
from rmqstore_spark.write import disk
from rmqstore_spark.write.commit import Settings, commit

pytestmark = pytest.mark.interop

BENCH = rocketmq.Sizes()
SIZES = Sizes(BENCH.segment, BENCH.queue_file, BENCH.index_slots, BENCH.index_items)
# So that there are several of each kind of file.
SMALL = rocketmq.Sizes(segment=64 * 1024, queue_file=400, index_slots=50, index_items=120)
StoreOf = Callable[[str], Written]


def small_store(root: Path, rng: random.Random, count: int = 300) -> None:
    sizes = Sizes(SMALL.segment, SMALL.queue_file, SMALL.index_slots, SMALL.index_items)
    writing.write(root, rows(rng, count // 2), rows(rng, count - count // 2), sizes=sizes)


def rows(rng: random.Random, count: int, topic: str | None = None) -> list[writing.Row]:
    """As clients of any version can ask for them."""
    made = some_rows(rng, count)
    for number, row in enumerate(made):
        if row["topic"].startswith("%") or topic:
            row["topic"] = topic or "Topic_C"
        row["bornHost"], row["storeHost"] = "10.1.2.3:99", "127.0.0.1:10911"
        row["body"] = row["body"] or b"x"
        row["keys"] = f"key-{number % 9}"
        # A client looks for an id from the time on that is in it: here the beginning of the month.
        row["msgId"] = f"7F000001{number:04X}{rng.getrandbits(32):08X}00000000{number:04X}"
        del row["storeTimestamp"]
    return made


@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_store(pool: ThreadPoolExecutor, tmp_path: Path, rng: random.Random, version: str) -> None:
    small_store(tmp_path / "store", rng)
    assert_broker_accepts(tmp_path / "store", tmp_path / "home", [version], sizes=SMALL)


@pytest.mark.parametrize("version", VERSIONS)
def test_one_that_its_broker_wrote_and_we_appended_to(
    store_of: StoreOf, tmp_path: Path, rng: random.Random, version: str
) -> None:
    """And then a broker appended to, and then we."""
    root = rocketmq.copy_store(store_of(version).root, tmp_path / "store")
    before = reference.read_store(root)
    writing.write(root, rows(rng, 200), sizes=Sizes())
    writing.write(root, rows(rng, 50, before[0]["topic"]), sizes=Sizes())
    assert reference.read_store(root)[: len(before)] == before
    with Broker(version, root, tmp_path / "broker", BENCH) as broker:
        acks = broker.client().run("send", "TopicA", 1, 5, secrets.token_hex(4))
        assert all(ack["status"] == "SEND_OK" for ack in acks)
    writing.write(root, rows(rng, 100), sizes=Sizes())
    found = reference.read_store(root)
    assert found[: len(before)] == before
    assert len(found) >= len(before) + 355
    assert reading.read(root) == found
    assert_broker_accepts(root, tmp_path / "home", [version])


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_a_copy_of_a_golden_store(pool: ThreadPoolExecutor, tmp_path: Path, version: str) -> None:
    source = golden.unpack(version, tmp_path / "source")
    writing.write(tmp_path / "copy", reading.read(source), sizes=SIZES, autoMessageVersionOnTopicLen="true")
    assert_broker_accepts(tmp_path / "copy", tmp_path / "home", [version])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rebuilt_one(store_of: StoreOf, tmp_path: Path, version: str) -> None:
    root = rocketmq.copy_store(store_of(version).root, tmp_path / "store")
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    (root / "checkpoint").unlink()
    (root / "abort").touch()
    rmqstore_spark.rebuild(
        root,
        mappedFileSizeConsumeQueue=SIZES.queue_file,
        maxHashSlotNum=SIZES.slots,
        maxIndexNum=SIZES.items,
    )
    assert_broker_accepts(root, tmp_path / "home", [version])


@pytest.mark.parametrize("version", VERSIONS)
def test_killed_writers(
    pool: ThreadPoolExecutor, tmp_path: Path, rng: random.Random, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a write is killed, a broker has all of its messages, or none. (tests/write/test_write_kill.py tries it
    at every place; here at some of those that leave something behind.)"""
    small_store(tmp_path / "before", rng, 60)
    none = reference.read_store(tmp_path / "before")
    stopper = Stopper()
    monkeypatch.setattr(disk, "_do", stopper)
    new = rows(rng, 60)
    stores = []
    total = 0
    # Everything from the journal on stands at the end.
    for number in (None, *(sorted(rng.sample(range(1, 60), 3)))):
        root = tmp_path / f"store-{number}"
        stopper.at(None)
        shutil.copytree(tmp_path / "before", root)
        _, staged = writing.stage_rows(root, [new])
        stopper.at(None if number is None else total - number)
        try:
            commit(str(root), staged, Settings(Sizes()))
            total = stopper.calls
        except Killed:
            stores.append(root)
    stopper.at(None)
    tasks: list[Future[None]] = []
    for root in stores:
        found = reference.read_store(root)
        assert len(found) in (len(none), len(none) + 60)
        home = tmp_path / f"home-{root.name}"
        tasks.append(pool.submit(assert_broker_accepts, root, home, [version], sizes=SMALL, expected=found))
    assert len(tasks) == 3
    for task in tasks:
        task.result()
