"""A real broker with a tiered store: what it has brought there, and what it has deleted of its own log since; a killed
one, whose metadata lags."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from pathlib import Path

import pytest
from oracle import tiered
from support.following import Query, RealClock
from support.reading import read

from interop import rocketmq
from interop.expiring import ExpiringBroker
from interop.rocketmq import Client, Record, Sizes
from rmqstore_spark import Store

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

TOPIC, GROUP, QUEUES = "Orders", "billing", 2
PATIENCE = 120.0  # seconds
KILLS = 3
COLUMNS = ["msgId", "queueId", "queueOffset", "keys", "commitLogOffset"]


def settings(tier: Path) -> dict[str, object]:
    return {
        "messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore",
        "tieredBackendServiceProvider": "org.apache.rocketmq.tieredstore.provider.PosixFileSegment",
        "tieredStoreFilePath": tier,
        "tieredStorageLevel": "NOT_IN_DISK",
        "tieredStoreCommitLogMaxSize": 4000,
        "tieredStoreConsumeQueueMaxSize": 400,
        "tieredStoreIndexFileMaxHashSlotNum": 100,
        "tieredStoreIndexFileMaxIndexNum": 40,
        "tieredStoreGroupCommitTimeout": 500,
        "commitLogRollingInterval": 1,
        "commitLogRollingMinimumSize": 1000,
    }


def sent(client: Client, count: int, text: str) -> list[Record]:
    found: list[Record] = []
    for queue_id in range(QUEUES):
        found += client.run("send", TOPIC, queue_id, count, text)
    return found


def brought(tier: Path) -> int:
    """How many messages the tier has."""
    return len(read(tier, subscribe=TOPIC, columns=["queueOffset"])) if any(tier.glob("*/*/*/*/COMMIT_LOG/*")) else 0


def wait_until_brought(tier: Path, count: int) -> None:
    end = time.monotonic() + PATIENCE
    while brought(tier) < count:
        if time.monotonic() > end:
            raise AssertionError(f"{brought(tier)} of {count} messages were brought")
        time.sleep(0.5)


def as_sent(records: list[Record]) -> list[tuple[str, int, int, str]]:
    return sorted((r["msgId"], r["queueId"], r["queueOffset"], r["keys"]) for r in records)


def received(client: Client, count: int) -> set[str]:
    """The ids of so many messages, and of what comes soon after, that the group has not consumed."""
    records = client.run("consume", TOPIC, GROUP, count, 500)
    return {record["properties"]["UNIQ_KEY"] for record in records if record["kind"] == "message"}


@pytest.mark.usefixtures("real")
def test_tier_of_a_broker(tmp_path: Path) -> None:
    root, tier = tmp_path / "store", tmp_path / "tier"
    sizes = Sizes(segment=16 * 1024, queue_file=400, index_slots=50, index_items=120)
    with ExpiringBroker(rocketmq.NEWEST, root, tmp_path / "home", sizes, settings(tier)) as broker:
        client = broker.client()
        client.run("create", TOPIC, QUEUES)
        acknowledged = sent(client, 400, "early")
        consumed = received(client, len(acknowledged))
        assert consumed == {record["msgId"] for record in acknowledged}
        wait_until_brought(tier, len(acknowledged))
        expire(broker)
        assert min(broker.segments()) > 0
        acknowledged += sent(client, 100, "late")
        joined = read(root, subscribe=TOPIC, tiered=str(tier), columns=COLUMNS)
        assert as_sent(joined) == as_sent(acknowledged)
        for queue_id in range(QUEUES):  # a consumer gets the same
            got = client.run("pull", TOPIC, queue_id, 0, 1 << 40)
            ids = [m["properties"]["UNIQ_KEY"] for m in got if m["kind"] == "message"]
            assert ids == [row["msgId"] for row in joined if row["queueId"] == queue_id]
        broker.kill_alone()
    assert as_sent(read(root, subscribe=TOPIC, tiered=str(tier), columns=COLUMNS)) == as_sent(acknowledged)
    local = read(root, subscribe=TOPIC, columns=COLUMNS)
    alone = read(tier, subscribe=TOPIC, columns=COLUMNS)
    assert len(local) < len(acknowledged)
    assert len(local) + len(alone) > len(acknowledged), "nothing is in both"
    assert set(as_sent(local)) | set(as_sent(alone)) == set(as_sent(acknowledged))
    assert max(Counter(row["msgId"] for row in alone).values()) == 1
    assert [row for row in Store(tier).check().to_pylist() if row["severity"] == "error"] == []
    metadata = root / "config" / "tieredStoreMetadata.json"
    for text in (re.sub(r'"size":\d+', '"size":0', metadata.read_text()), "{"):  # it lags, or is cut off
        metadata.write_text(text)
        assert read(tier, subscribe=TOPIC, columns=COLUMNS) == alone
    for record in (acknowledged[0], acknowledged[-1]):
        (row,) = read(root, tiered=str(tier), msgId=record["msgId"], columns=COLUMNS)
        assert as_sent([row]) == as_sent([record])
    # The broker that starts on what the kill left, and goes on.
    with ExpiringBroker(rocketmq.NEWEST, root, tmp_path / "home", sizes, settings(tier)) as broker:
        client = broker.client()
        acknowledged += sent(client, 50, "again")
        wait_until_brought(tier, len(acknowledged))
        broker.stop()
    assert as_sent(read(root, subscribe=TOPIC, tiered=str(tier), columns=COLUMNS)) == as_sent(acknowledged)
    assert as_sent(read(tier, subscribe=TOPIC, columns=COLUMNS)) == as_sent(acknowledged)
    # The exit: a plain store of both, on which a plain broker serves everything, and the group goes on.
    copy = tmp_path / "copy"
    copied = Store(root).copy(copy, tiered=tier)
    assert copied.lost.num_rows == 0
    assert as_sent(read(copy, subscribe=TOPIC, columns=COLUMNS)) == as_sent(acknowledged)
    assert [row for row in Store(copy).check().to_pylist() if row["severity"] == "error"] == []
    with ExpiringBroker(rocketmq.NEWEST, copy, tmp_path / "home", sizes) as broker:
        client = broker.client()
        everything = [m for at in range(QUEUES) for m in client.run("pull", TOPIC, at, 0, 1 << 40)]
        assert [m["properties"]["UNIQ_KEY"] for m in everything if m["kind"] == "message"] == [
            record["msgId"] for record in sorted(acknowledged, key=lambda r: (r["queueId"], r["queueOffset"]))
        ]
        assert received(client, len(acknowledged) - len(consumed)) == {
            record["msgId"] for record in acknowledged if record["msgId"] not in consumed
        }


@pytest.mark.nightly
@pytest.mark.usefixtures("real")
def test_a_copy_of_batches_in_a_tier(tmp_path: Path) -> None:
    """The tier alone of a topic of batches: a plain broker serves its copy, all of it, and goes on."""
    root, tier, copy = tmp_path / "store", tmp_path / "tier", tmp_path / "copy"
    sizes = Sizes(segment=64 * 1024, queue_file=400, index_slots=50, index_items=120)
    count = 15 + 5 + 20  # as "batched" sends
    with ExpiringBroker(rocketmq.NEWEST, root, tmp_path / "home", sizes, settings(tier)) as broker:
        broker.client().run("batched", "Batched", 5)
        end = time.monotonic() + PATIENCE
        while not any(tier.glob("*/*/Batched/0/COMMIT_LOG/*")) or len(read(tier, subscribe="Batched")) < count:
            assert time.monotonic() < end
            time.sleep(0.5)
        broker.stop()
    columns = ["queueOffset", "batchIndex", "msgId", "keys", "body", "properties"]
    expected = read(root, subscribe="Batched", columns=columns)
    assert len(expected) == count
    assert read(tier, subscribe="Batched", columns=columns) == expected
    assert Store(tier).copy(copy).messages == count
    assert read(copy, subscribe="Batched", columns=columns) == expected
    assert [row for row in Store(copy).check().to_pylist() if row["severity"] == "error"] == []
    usual = Sizes(1 << 30, 6_000_000, 5_000_000, 20_000_000)  # a tier alone says none
    with ExpiringBroker(rocketmq.NEWEST, copy, tmp_path / "home", usual) as broker:
        client = broker.client()
        got = [m["queueOffset"] for m in client.run("pull", "Batched", 0, 0, count) if m["kind"] == "message"]
        assert got == [*range(count)]
        assert [ack["queueOffset"] for ack in client.run("send", "Batched", 0, 2, "after")] == [count, count + 1]
        broker.stop()


@pytest.mark.nightly
@pytest.mark.usefixtures("real")
def test_killed_while_a_producer_sends(tmp_path: Path, rng: random.Random) -> None:
    """A broker that is killed again and again while messages come and are brought, and that has deleted what was
    brought before: store and tier together have each acknowledged message, once."""
    root, tier = tmp_path / "store", tmp_path / "tier"
    sizes = Sizes(segment=16 * 1024, queue_file=400, index_slots=50, index_items=120)
    acknowledged: list[Record] = []
    rows: list[Record] = []
    for number in range(KILLS):
        with ExpiringBroker(rocketmq.NEWEST, root, tmp_path / "home", sizes, settings(tier)) as broker:
            client = broker.client()
            if number == 0:
                client.run("create", TOPIC, QUEUES)
            else:
                wait_until_brought(tier, len(rows))
                expire(broker)
            client.begin("send", TOPIC, number % QUEUES, 100_000, f"round-{number}")
            acknowledged += killed_after(broker, client, rng.randint(200, 500))
        rows = read(root, subscribe=TOPIC, tiered=str(tier), columns=COLUMNS)
        assert_has_each_once(rows, acknowledged)
        alone = read(tier, subscribe=TOPIC, columns=COLUMNS)
        assert max(Counter(row["msgId"] for row in alone).values(), default=1) == 1
        assert {row["msgId"] for row in alone} <= {row["msgId"] for row in rows}
        assert [row for row in Store(tier).check().to_pylist() if row["severity"] == "error"] == []
    assert min(int(path.name) for path in (root / "commitlog").iterdir()) > 0
    with ExpiringBroker(rocketmq.NEWEST, root, tmp_path / "home", sizes, settings(tier)) as broker:
        wait_until_brought(tier, len(rows))
        client = broker.client()
        got = [m for at in range(QUEUES) for m in client.run("pull", TOPIC, at, 0, 1 << 40) if m["kind"] == "message"]
        assert sorted(m["properties"]["UNIQ_KEY"] for m in got) == sorted(row["msgId"] for row in rows)
        broker.stop()
    for path, options in ((root, {"tiered": str(tier)}), (tier, {})):
        assert as_sent(read(path, subscribe=TOPIC, columns=COLUMNS, **options)) == as_sent(rows)


@pytest.mark.nightly
@pytest.mark.usefixtures("real")
def test_messages_that_are_brought_again(tmp_path: Path) -> None:
    """A broker that was killed when the last messages were there, and not yet their units: it brings them again."""
    root, tier = tmp_path / "store", tmp_path / "tier"
    sizes = Sizes(segment=64 * 1024, queue_file=400, index_slots=50, index_items=120)
    acknowledged: list[Record] = []
    for _ in range(2):
        with ExpiringBroker(rocketmq.NEWEST, root, tmp_path / "home", sizes, settings(tier)) as broker:
            client = broker.client()
            if not acknowledged:
                client.run("create", TOPIC, 1)
            acknowledged += client.run("send", TOPIC, 0, 47, "brought")
            wait_until_brought(tier, len(acknowledged))
            broker.kill_alone()
        if len(acknowledged) == 47:
            last = max(tier.glob("*/*/Orders/0/CONSUME_QUEUE/*"), key=lambda path: path.name[8:])
            assert last.stat().st_size > 60
            last.write_bytes(last.read_bytes()[:-60])
            assert brought(tier) == 47
    stored = Counter(row["msgId"] for row in tiered.read_tier(tier) if row["topic"] == TOPIC)
    assert sorted(stored.values())[-4:] == [1, 2, 2, 2]
    assert as_sent(read(tier, subscribe=TOPIC, columns=COLUMNS)) == as_sent(acknowledged)
    assert [row for row in Store(tier).check().to_pylist() if row["severity"] == "error"] == []


@pytest.mark.nightly
@pytest.mark.usefixtures("real")
def test_stream_beside_a_broker(tmp_path: Path, rng: random.Random) -> None:
    """A stream of the tier alone, triggered all the time while a broker takes messages and brings them, is killed and
    starts again: it has what a read of the tier has in the end, each message once."""
    root, tier = tmp_path / "store", tmp_path / "tier"
    sizes = Sizes(segment=64 * 1024, queue_file=400, index_slots=50, index_items=120)
    acknowledged: list[Record] = []
    query: Query | None = None

    for number in range(KILLS):
        with ExpiringBroker(rocketmq.NEWEST, root, tmp_path / "home", sizes, settings(tier)) as broker:
            client = broker.client()
            if number == 0:
                client.run("create", TOPIC, QUEUES)
            client.begin("send", TOPIC, number % QUEUES, 100_000, f"round-{number}")
            count, end = rng.randint(200, 500), time.monotonic() + PATIENCE
            while len([record for record in client.seen if record["kind"] == "ack"]) < count or query is None:
                assert time.monotonic() < end
                query = triggered(query, tier)
            acknowledged += killed_after(broker, client, count)
        assert query is not None
        if rng.random() < 0.5:
            query.restart()
    assert query is not None
    with ExpiringBroker(rocketmq.NEWEST, root, tmp_path / "home", sizes, settings(tier)) as broker:
        end = time.monotonic() + PATIENCE
        while brought(tier) < len(read(root, subscribe=TOPIC, columns=COLUMNS)):
            assert time.monotonic() < end
            query.trigger()
        broker.stop()
    everything = read(tier, subscribe=TOPIC, columns=COLUMNS)
    assert_has_each_once(everything, acknowledged)
    end = time.monotonic() + 15
    while len(query.rows) < len(everything) and time.monotonic() < end:
        query.trigger()
    assert len(query.offsets) > KILLS
    assert as_sent(query.rows) == as_sent(everything)


def triggered(query: Query | None, tier: Path) -> Query | None:
    """A query of a tier after one more batch; a new one where the tier has something."""
    if query is not None:
        query.trigger()
    elif any(tier.glob(f"*/*/{TOPIC}/*/COMMIT_LOG/*")):
        return Query(tier, subscribe=TOPIC, columns=COLUMNS, startingOffsets="earliest", clock=RealClock())
    return query


def expire(broker: ExpiringBroker) -> None:
    """Has a broker delete its oldest segments."""
    broker.expire()
    end = time.monotonic() + PATIENCE
    while broker.is_expiring() and time.monotonic() < end:
        time.sleep(0.05)


def killed_after(broker: ExpiringBroker, client: Client, count: int) -> list[Record]:
    """What was acknowledged to a client that sends, so many messages at least, when its broker was killed."""
    end = time.monotonic() + PATIENCE
    while len(sends := [record for record in client.seen if record["kind"] == "ack"]) < count:
        assert time.monotonic() < end, f"{len(sends)} of {count} messages were acknowledged"
        time.sleep(0.01)
    broker.kill_alone()
    return [record for record in client.seen if record["kind"] == "ack" and record["status"] == "SEND_OK"]


def assert_has_each_once(rows: list[Record], acknowledged: list[Record]) -> None:
    """All acknowledged messages as they were, and of others no more than one for each kill."""
    missing = set(as_sent(acknowledged)) - set(as_sent(rows))
    assert not missing, f"{len(missing)} of {len(acknowledged)}: {sorted(missing)[:5]}"
    twice = {name for name, count in Counter(row["msgId"] for row in rows).items() if count > 1}
    assert not twice, f"{len(twice)} twice: {sorted(twice)[:5]}"
    assert len(rows) <= len(acknowledged) + KILLS
