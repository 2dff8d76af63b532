"""A log of DLedger, alone and behind an ordinary one: what is read is what a node that starts on it takes for its log,
whatever was rolled back; damage is told; queues, selections, tables, check and copies are as of an ordinary store."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from oracle import dledger, reference
from oracle.dledger import DLedgerStoreBuilder
from oracle.stores import StoreBuilder
from support import flavours
from support.reading import FREE, make_plan, read

from rmqstore_spark import Store
from rmqstore_spark.read.pieces.task import Queued

TOPICS = ("Orders", "Payments", "Mails")


def message(rng: random.Random, number: int) -> dict[str, Any]:
    return {
        "topic": rng.choice(TOPICS),
        "body": rng.randbytes(rng.choice((0, 20, 20, 300, 1500))),
        "queue_id": rng.randrange(2),
        "tags": rng.choice((None, "a", "b")),
        "keys": f"k{number % 40}",
        "msg_id": f"{number:032X}",
    }


def grown(rng: random.Random, builder: DLedgerStoreBuilder, count: int) -> None:
    """Some more entries; a few of them without a message."""
    for _ in range(count):
        if rng.random() < 0.1:
            builder.append_empty(rng.choice((2, 3)))
        builder.append(**message(rng, builder.index))


def rolled_back(rng: random.Random, builder: DLedgerStoreBuilder) -> None:
    """A leader's last entries reach no other node; then it follows a leader of a later term."""
    builder.flush()
    builder.holding = True
    kept = builder.index
    grown(rng, builder, rng.randrange(1, 20))
    builder.cut(kept + rng.randrange(builder.index - kept))
    builder.holding = False
    builder.term += rng.randrange(1, 3)


def random_store(rng: random.Random, root: Path, may_end_cut: bool = True) -> DLedgerStoreBuilder:
    """A node's store with a past."""
    size = rng.choice((8192, 16384, 65536))
    classic = None
    if rng.random() < 0.4:
        classic = StoreBuilder(root, size, index=True)
        for number in range(rng.randrange(1, 60)):
            classic.append(**message(rng, 10_000 + number))
    builder = DLedgerStoreBuilder(root, size, classic=classic, index=classic is None)
    for _ in range(rng.randrange(1, 4)):
        grown(rng, builder, rng.randrange(1, 60))
        if rng.random() < 0.7:
            rolled_back(rng, builder)
            if rng.random() < 0.7 or not may_end_cut:
                grown(rng, builder, rng.randrange(1, 6))
    builder.close(clean=rng.random() < 0.5)
    return builder


def positions(rows: list[dict[str, Any]]) -> list[int]:
    return [row["commitLogOffset"] for row in rows]


def recovered(root: Path) -> list[int]:
    """The messages that a node takes for its log, ordinary ones before included."""
    classic = [row["commitLogOffset"] for row in reference.read_store(root)] if (root / "commitlog").exists() else []
    return classic + [entry.position + dledger.HEADER.size for entry in dledger.entries(root) if entry.unit]


@pytest.mark.parametrize("queues", [True, False])
def test_what_a_node_takes_for_its_log(tmp_path: Path, rng: random.Random, queues: bool) -> None:
    more = 0
    for number in range(30):
        builder = random_store(rng, tmp_path / str(number))
        if not queues:
            builder.drop_queues()
        found = recovered(builder.root)
        rows = read(builder.root)
        assert positions(rows) == found
        live = [m.position for m in builder.messages]
        assert found[: len(live)] == live  # and behind them perhaps what was rolled back last
        more += len(found) > len(live)
    assert more > 1


def test_a_real_one(tmp_path: Path) -> None:
    root = flavours.unpack_store("dledger", tmp_path)
    rows = read(root)
    assert positions(rows) == recovered(root)
    assert len(rows) == 19
    problems = {row["problem"] for row in Store(root).check().to_pylist() if row["severity"] != "info"}
    assert problems == set()


def test_the_queues_prove_the_log(tmp_path: Path, rng: random.Random) -> None:
    """As in an ordinary store: with queues that cover the log, nothing of it is read but what was asked for."""
    builders = DLedgerStoreBuilder(tmp_path / "dledger", 65536), StoreBuilder(tmp_path / "plain", 65536)
    for _ in range(400):
        topic, body = rng.choice(("A", *"B" * 20)), rng.randbytes(500)
        for builder in builders:
            builder.append(topic, body)
    plans = []
    for builder in builders:
        builder.close(clean=False)
        planned = make_plan(builder.root, prices=FREE, subscribe="A", maxPartitionBytes="100k")
        pieces = [piece for task in planned.tasks for piece in task.ranges]
        assert all(isinstance(piece, Queued) for piece in pieces)
        rows = read(builder.root, prices=FREE, subscribe="A")
        assert positions(rows) == [m.position for m in builder.messages if m.topic == "A"]
        plans.append([(access.name, len(access.pieces)) for _, access in planned.accesses])
    assert plans[0] == plans[1]
