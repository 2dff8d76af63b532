"""Copies and salvages before real brokers: what they serve, and what they pass over."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import struct
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
# Often, and without an end: by default it gives up after 15 checks, whether anybody was there to be asked or not.
_CHECKS = {"transactionCheckInterval": 1000, "transactionTimeOut": 1000, "transactionCheckMax": 100_000}
SIZES = Sizes(SMALL.segment, SMALL.queue_file, SMALL.index_slots, SMALL.index_items)
QUEUES = 3
PATIENCE = 300.0  # seconds: a broker that is slower than that does not deliver

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
        asked = client.run("checked", PRODUCERS, 3, 1000 * int(PATIENCE))
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


def timed(number: int, until: int, out: int) -> list[writing.Row]:
    """Messages that a timer is to deliver: three that are due when it has come so far, and two later."""
    return [
        {
            "topic": "rmq_sys_wheel_timer",
            "queueId": 0,
            "msgId": f"timed-{number}-{n}",
            "body": f"timed-{number}-{n}".encode(),
            "properties": {
                "REAL_TOPIC": TOPIC,
                "REAL_QID": "0",
                "TIMER_OUT_MS": str(until - 1000 * n if n < 3 else out),
            },
            "storeTimestamp": (until - 60_000 + n) * 1000,
            "storeHost": "127.0.0.1:10911",
        }
        for n in range(5)
    ]


@pytest.mark.parametrize("version", [NEWEST])
def test_delayed_messages(real: None, tmp_path: Path, version: str) -> None:
    """What was delivered is not delivered again, and what waits is, at its time; also where two stores become one. The
    timer's own files do not come along: a broker begins its topic anew."""
    now = time.time_ns() // 1_000_000
    until, out = now // 1000 * 1000 - 30_000, now // 1000 * 1000 + 12_000
    expected: list[list[bytes]] = []
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
        writing.write(
            tmp_path / f"{number}", timed(number, until, out), made, rows(random.Random(number), 1), sizes=SIZES
        )
        config = tmp_path / f"{number}" / "config"
        (config / "delayOffset.json").write_text(json.dumps({"offsetTable": {"3": 12}}))
        (config / "timercheck").write_bytes(struct.pack(">q", until).ljust(4096, b"\0"))
        expected.append([f"{number}-{n}".encode() for n in range(12, 20)])
    one, both = tmp_path / "one", tmp_path / "both"
    Store(tmp_path / "0").copy(one)
    Store([tmp_path / "0", tmp_path / "1"]).copy(both)
    wanted = {one: expected[0], both: [body for pair in zip(*expected, strict=True) for body in pair]}
    sent = {one: 1, both: 2}  # they were there before
    of_timer = {root: list(range(sent[root])) for root in wanted}
    columns = ["body", "queueOffset", "storeTimestamp"]
    with contextlib.ExitStack() as running:
        for root in wanted:
            running.enter_context(Broker(version, root, tmp_path / f"home-{root.name}", SMALL))
        end = time.monotonic() + PATIENCE
        for root, bodies in wanted.items():
            count = sent[root] + len(bodies) + 2 * len(of_timer[root])
            while Store(root).messages(columns, subscribe=TOPIC).read_all().num_rows < count:
                assert time.monotonic() < end
                time.sleep(0.5)
    for root, bodies in wanted.items():
        found = Store(root).messages(columns, subscribe=TOPIC).read_all().to_pylist()
        delivered = found[sent[root] :]
        timers = [row for row in delivered if row["body"].startswith(b"timed-")]
        assert [row["body"] for row in delivered if row not in timers] == bodies
        assert sorted(row["body"] for row in timers) == [
            b"timed-%d-%d" % (n, i) for n in of_timer[root] for i in (3, 4)
        ]
        assert all(row["storeTimestamp"].timestamp() >= now / 1000 + 10 for row in delivered)
        assert all(row["storeTimestamp"].timestamp() >= out / 1000 for row in timers)
