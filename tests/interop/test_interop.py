"""Our rows are what real brokers say is in their stores, and what their producers were told."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracle import reference, truth
from support import reading
from support.patience import HANG

from interop import rocketmq, scenario
from interop.each import EACH
from interop.rocketmq import Broker
from interop.scenario import Written

pytestmark = pytest.mark.interop

Record = dict[str, Any]
ENOUGH = 300  # messages that are acknowledged while a store is read
PATIENCE = HANG  # seconds: a broker that is slower than that does not answer
# Of a row that a snapshot has to show whole.
SNAPSHOT = ["topic", "queueId", "queueOffset", "offsetMsgId", "msgId", "keys", "body", "commitLogOffset", "storeSize"]


def assert_same(root: Path, expected: truth.Truth) -> None:
    """Every row and every column, and every ConsumeQueue unit."""
    plain, stored = reading.read(root), reading.read(root, decompress=False)
    assert truth.as_units(plain, stored) == expected.units
    assert reading.read(root, minPartitions=11) == plain
    assert reference.read_store(root) == plain
    truth.assert_queues(root, expected)


def assert_acknowledged(acks: list[Record], rows: list[Record]) -> None:
    """What producers were told of is there, exactly once, as it was sent."""
    by_id = defaultdict(list)
    halves = {}
    for row in rows:
        by_id[row["offsetMsgId"]].append(row)
        if row["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC":
            halves[row["queueOffset"]] = row
    for ack in acks:
        # The producer of a transaction gets no offsetMsgId.
        (row,) = by_id[ack["offsetMsgId"]] if ack["offsetMsgId"] else [halves[ack["queueOffset"]]]
        assert row["msgId"] == ack["msgId"]
        assert truth.sha256(row["body"]) == ack["body"]
        assert row["keys"] == ack["keys"] or not ack["keys"]
        parked = row["topic"] != ack["topic"]  # delayed, or half of a transaction
        assert (row["queueId"], row["queueOffset"]) == (ack["queueId"], ack["queueOffset"]) or parked


@pytest.fixture(params=EACH)
def written(request: pytest.FixtureRequest, store_of: Callable[[str], Written]) -> Written:
    return store_of(request.param)


# ---- a store after a clean stop


def test_a_clean_store(written: Written) -> None:
    assert not (written.root / "abort").exists()
    assert_same(written.root, written.truth)


def test_what_producers_were_told(written: Written) -> None:
    rows = reading.read(written.root)
    acks = [record for record in written.acks if record["kind"] == "ack"]
    assert all(ack["status"] == "SEND_OK" for ack in acks)
    assert_acknowledged(acks, rows)
    by_id = {row["offsetMsgId"]: row for row in rows}
    for batch in (record for record in written.acks if record["kind"] == "batch"):
        assert len(batch["offsetMsgIds"]) == batch["messages"]
        for i, (offset_id, message_id) in enumerate(zip(batch["offsetMsgIds"], batch["msgIds"], strict=True)):
            row = by_id[offset_id]
            assert row["queueOffset"] == batch["queueOffset"] + i
            if written.version in ("5.1.4", "5.3.0"):
                # These brokers store the id of the batch behind that of the message. The last one counts, to them too.
                message_id = by_id[batch["offsetMsgIds"][0]]["msgId"]
            assert row["msgId"] == message_id


def test_messages_of_every_kind(written: Written) -> None:
    """The scenario does what it is there for."""
    rows = reading.read(written.root)
    five = not written.version.startswith("4.")
    topics = Counter(row["topic"] for row in rows)
    assert {"%DLQ%failing-group", "%RETRY%failing-group", "SCHEDULE_TOPIC_XXXX"} < topics.keys()
    assert {"RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"} < topics.keys()
    assert "Long-" + 122 * "t" in topics
    assert (max(map(len, topics)) > 127) == (written.version == rocketmq.NEWEST)  # V2 units
    assert topics["Delayed"] == 3
    assert topics["Transactions"] == 3
    committed = [row for row in rows if row["sysFlag"] & reference.TRANSACTION_BITS == reference.COMMIT]
    assert [row["tags"] for row in committed] == ["COMMIT_MESSAGE"] * 3
    types = {(row["tags"], row["sysFlag"] & 0x701) for row in rows if row["topic"] == "Compressed"}
    assert types == {("ZLIB", 0x301), ("LZ4", 0x101), ("ZSTD", 0x201)}
    sizes = {len(row["body"]) for row in rows}
    assert {0, 1 << 20} < sizes
    assert not any(record["kind"] == "not popped" for record in written.acks)
    if five:
        assert topics["Timers"] == 2
        assert {"rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_bench-cluster"} < topics.keys()
    segments = list((written.root / "commitlog").iterdir())
    assert len(segments) >= 1


# ---- a store under a running broker, and after its kill


def test_while_writing_and_after_a_kill(written: Written, tmp_path: Path, rng: random.Random) -> None:
    root = rocketmq.copy_store(written.root, tmp_path / "store")
    with Broker(written.version, root, tmp_path / "home", written.sizes) as broker:
        client = broker.client()
        client.run("create", "Stream", 4)
        client.begin("stream", "Stream", 600_000, rng.randrange(1 << 31))
        end = time.monotonic() + 5
        snapshots = 0
        acks: list[Record] = []
        is_enough = False
        while time.monotonic() < end or (not is_enough and time.monotonic() < end + PATIENCE):
            acks = [record for record in list(client.seen) if record["kind"] == "ack"]
            assert_snapshot(acks, snapshot(root))
            snapshots += 1
            is_enough = snapshots >= 3 and len(acks) > ENOUGH  # a busy machine takes longer
            time.sleep(rng.random() / 5)
        broker.kill()
        acks = [record for record in client.seen if record["kind"] == "ack"]
    assert snapshots >= 3
    assert len(acks) > ENOUGH
    assert (root / "abort").exists()
    rows = snapshot(root)
    assert_snapshot(acks, rows)
    # A dump recovers its copy of the store. We read what the broker left behind, and what it will have after that.
    expected = truth.load(scenario.dump_of(written.version, root, tmp_path / "dump", written.sizes))
    assert truth.as_units(reading.read(root), reading.read(root, decompress=False)) == expected.units
    assert_same(tmp_path / "dump" / "store", expected)


def snapshot(root: Path) -> list[Record]:
    """Reads as of now. That no row is torn is checked on the way: mode FAILFAST, with CRCs."""
    return reading.read(root, columns=SNAPSHOT)


def assert_snapshot(acks: list[Record], rows: list[Record]) -> None:
    assert_acknowledged(acks, rows)
    queues = defaultdict(list)
    for row in rows:
        queues[row["topic"], row["queueId"]].append(row["queueOffset"])
    for queue, offsets in queues.items():
        assert offsets == list(range(len(offsets))), queue
