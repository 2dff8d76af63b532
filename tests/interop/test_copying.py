"""Copies and salvages before real brokers: what they serve, and what they pass over."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support import writing

from interop.ours import SMALL
from interop.rocketmq import NEWEST, OLDEST, Broker, Client
from interop.scenario import Written
from rmqstore_spark import Store
from rmqstore_spark.store.sizes import Sizes
from rmqstore_spark.store.system_topics import HALF_TOPIC

pytestmark = pytest.mark.interop

TOPIC = "Orders"
GROUP = "billing"
PRODUCERS = "payers"
_CHECKS = {"transactionCheckInterval": 1000, "transactionTimeOut": 1000}
SIZES = Sizes(SMALL.segment, SMALL.queue_file, SMALL.index_slots, SMALL.index_items)
QUEUES = 3

StoreOf = Callable[[str], Written]


def rows(rng: random.Random, count: int) -> list[writing.Row]:
    return [
        {
            "topic": TOPIC,
            "queueId": rng.randrange(QUEUES),
            "keys": f"key-{number}",
            "body": f"{number}".encode().ljust(rng.choice((50, 2000)), b"."),
            "storeHost": "127.0.0.1:10911",
        }
        for number in range(count)
    ]


def damage(root: Path, rng: random.Random, count: int, which: slice = slice(None)) -> None:
    """Some stretches in the middle of segments in the middle of the log, or of some of these."""
    segments = sorted((root / "commitlog").iterdir())[1:-1][which]
    for segment in rng.sample(segments, count):
        data = bytearray(segment.read_bytes())
        at = rng.randrange(5000, 20000)
        data[at : at + 9000] = rng.randbytes(9000)
        segment.write_bytes(data)


def pulled(client: Client, topic: str, queue_id: int, start: int, stop: int) -> list[int]:
    """The queue offsets that a consumer receives."""
    answers = client.run("pull", topic, queue_id, start, stop)
    return [answer["queueOffset"] for answer in answers if answer["kind"] != "missed"]


def left_in(root: Path) -> dict[int, list[int]]:
    """The queue offsets that can still be read, by queue."""
    left: dict[int, list[int]] = {queue_id: [] for queue_id in range(QUEUES)}
    rows = Store(root).messages(["queueId", "queueOffset"], mode="DROPMALFORMED", subscribe=TOPIC).read_all()
    for row in rows.to_pylist():
        left[row["queueId"]].append(row["queueOffset"])
    return left


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_salvaged(real: None, tmp_path: Path, rng: random.Random, version: str) -> None:
    """Consumers get all that is left in order, wherever they begin, and new messages after it; also after a crash."""
    damaged, root = tmp_path / "damaged", tmp_path / "salvaged"
    writing.write(damaged, rows(rng, 600), sizes=SIZES)
    damage(damaged, rng, 4)
    assert Store(damaged).salvage(root).lost.num_rows > 4
    left = left_in(damaged)
    with Broker(version, root, tmp_path / "home", SMALL) as broker:
        client = broker.client()
        for queue_id, offsets in left.items():
            stop = offsets[-1] + 1
            (bounds,) = client.run("bounds", TOPIC, queue_id)
            assert (bounds["min"], bounds["max"]) == (0, stop)
            for start in [0, *rng.sample(range(stop), 8)]:
                found = pulled(client, TOPIC, queue_id, start, stop)
                assert found == [offset for offset in offsets if offset >= start]
            sent = client.run("send", TOPIC, queue_id, 3, "after")
            assert [ack["queueOffset"] for ack in sent] == [stop, stop + 1, stop + 2]
            offsets += [stop, stop + 1, stop + 2]
        broker.kill()
    with Broker(version, root, tmp_path / "home2", SMALL) as broker:
        client = broker.client()
        for queue_id, offsets in left.items():
            assert pulled(client, TOPIC, queue_id, 0, offsets[-1] + 1) == offsets


def consumed(root: Path, offsets: dict[int, int]) -> None:
    """A group that has come so far."""
    table = {f"{TOPIC}@{GROUP}": {str(queue_id): offset for queue_id, offset in offsets.items()}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))


def open_transaction(name: str) -> writing.Row:
    """A half message, of which its producer has not said yet what is to become of it."""
    properties = {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "REAL_TOPIC": TOPIC, "REAL_QID": "0"}
    names = {"topic": HALF_TOPIC, "queueId": 0, "msgId": name, "body": name.encode(), "storeHost": "127.0.0.1:10911"}
    return {**names, "properties": {**properties, "__transactionId__": name}}


@pytest.mark.parametrize("version", [NEWEST])
def test_groups_go_on(real: None, tmp_path: Path, rng: random.Random, version: str) -> None:
    """A group that had consumed half of three stores consumes the other halves, each message once and in order, after
    one was made of two damaged copies, two were copied with what was expired or damaged in them, and all have become
    one. The broker asks for the transactions that were open in them."""
    stores = []
    expected = []
    for number in range(3):
        root = tmp_path / f"store-{number}"
        made = rows(rng, 300)
        for row in made:
            row["body"] = f"{number}-".encode() + row["body"]
        writing.write(root, made, [open_transaction(f"half-{number}")], sizes=SIZES)
        at = {queue_id: rng.randrange(60, 80) for queue_id in range(QUEUES)}
        consumed(root, at)
        stores.append(root)
        if number == 1:  # what is expired was consumed
            for segment in sorted((root / "commitlog").iterdir())[:2]:
                segment.unlink()
        if number:
            other = tmp_path / f"copy-{number}"
            if number == 2:
                damage(root, rng, 2)
            (Store(root).salvage if number == 2 else Store(root).copy)(other)
            stores[-1] = other
        left = left_in(root)
        if number == 0:
            twin, whole = tmp_path / "twin", tmp_path / "whole"
            shutil.copytree(root, twin)
            damage(root, rng, 1, slice(0, None, 2))
            damage(twin, rng, 1, slice(1, None, 2))
            Store([root, twin]).copy(whole, deduplicate=True)
            stores[-1] = whole
        expected += [(f"{number}-", [o for o in left[queue_id] if o >= at[queue_id]]) for queue_id in range(QUEUES)]
    target = tmp_path / "target"
    Store(stores).copy(target)
    with Broker(version, target, tmp_path / "home", SMALL, _CHECKS) as broker:
        client = broker.client()
        asked = client.run("checked", PRODUCERS, 3, 60_000)
        assert {(answer["topic"], answer["body"]) for answer in asked} == {(TOPIC, f"half-{n}") for n in range(3)}
        answers = client.run("consume", TOPIC, GROUP, sum(len(offsets) for _, offsets in expected), 5000)
    found: dict[int, list[int]] = {queue_id: [] for queue_id in range(3 * QUEUES)}
    for answer in answers:
        found[answer["queueId"]].append(answer["queueOffset"])
    assert found == {queue_id: offsets for queue_id, (_, offsets) in enumerate(expected)}


@pytest.mark.parametrize("version", [OLDEST])
def test_a_brokers_own_store(store_of: StoreOf, accept_ours: Callable[..., None], version: str) -> None:
    """With all kinds of messages: retried, dead, delayed, half ones."""
    accept_ours("copied whole", version, lambda other, root: Store(store_of(other).root).copy(root))


@pytest.mark.parametrize("version", [NEWEST])
def test_delayed_messages(real: None, tmp_path: Path, version: str) -> None:
    """What was delivered is not delivered again, and what waits is, at its time; also where two stores become one."""
    now = time.time_ns() // 1_000_000
    expected = []
    for number in range(2):
        made = [
            {
                "topic": "SCHEDULE_TOPIC_XXXX",
                "queueId": 2,  # level 3: ten seconds
                "body": f"{number}-{n}".encode(),
                "properties": {"REAL_TOPIC": TOPIC, "REAL_QID": "0", "DELAY": "3"},
                "storeTimestamp": (now + 10 * n + number) * 1000,
                "storeHost": "127.0.0.1:10911",
            }
            for n in range(20)
        ]
        writing.write(tmp_path / f"{number}", made, rows(random.Random(number), 1), sizes=SIZES)
        (tmp_path / f"{number}" / "config" / "delayOffset.json").write_text(json.dumps({"offsetTable": {"3": 12}}))
        expected.append([f"{number}-{n}".encode() for n in range(12, 20)])
    one, both = tmp_path / "one", tmp_path / "both"
    Store(tmp_path / "0").copy(one)
    Store([tmp_path / "0", tmp_path / "1"]).copy(both)
    wanted = {one: expected[0], both: [body for pair in zip(*expected, strict=True) for body in pair]}
    with contextlib.ExitStack() as running:
        for root in wanted:
            running.enter_context(Broker(version, root, tmp_path / f"home-{root.name}", SMALL))
        time.sleep(max(0.0, now / 1000 + 10 - time.time()) + 8)
    for root, bodies in wanted.items():
        found = Store(root).messages(["body", "properties", "storeTimestamp"], subscribe=TOPIC).read_all().to_pylist()
        delivered = [row for row in found if "REAL_TOPIC" in dict(row["properties"])]
        assert len(found) == len(delivered) + (1 if root == one else 2)
        assert [row["body"] for row in delivered] == bodies
        assert all(row["storeTimestamp"].timestamp() >= now / 1000 + 10 for row in delivered)
