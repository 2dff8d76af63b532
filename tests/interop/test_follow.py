"""Following the store of a real broker that is written to, killed, stopped and started again."""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from oracle import reference, truth
from support import reading
from support.following import Query, RealClock

from interop import scenario
from interop.rocketmq import NEWEST, OLDEST, Broker, Client, Sizes, usually
from rmqstore_spark import DataLossError

pytestmark = pytest.mark.interop

LONG = float(os.environ.get("RMQ_FOLLOW_SECONDS", "0"))  # of writing in a long run, at least
PHASE = 60.0 if LONG else 0.0  # of these, before a stop or a kill, at least
ENDINGS = ["kill", "stop"] * max(1, round(LONG / 120)) + ["kill"]
SIZES = Sizes(segment=64 << 20 if LONG else 128 << 10)  # a message has up to 120 KB
SECONDS = PHASE or 2.0  # of writing, before a stop; before a kill it goes on until MESSAGES have come
MESSAGES = 50, 200  # acknowledged, between these numbers
PATIENCE = 300.0  # seconds: a broker that is slower than that does not answer
EXPIRED = 10  # segments that a broker deletes at a time


def segments(root: Path) -> list[int]:
    return sorted(int(path.name) for path in (root / "commitlog").iterdir())


def acks_of(client: Client) -> list[dict[str, Any]]:
    return [record for record in client.seen if record["kind"] == "ack"]


Short = tuple[int, str, str]


def shortened(rows: list[reading.Row]) -> list[Short]:
    """Where each is, its id, and a digest of all of it: in ten minutes there come more than memory holds."""
    texts = (repr(sorted(row.items())) for row in rows)
    digests = (hashlib.sha256(text.encode()).hexdigest() for text in texts)
    return [(row["commitLogOffset"], row["offsetMsgId"], digest) for row, digest in zip(rows, digests, strict=True)]


@pytest.mark.parametrize("version", usually(OLDEST, NEWEST))
def test_each_message_once(real: None, tmp_path: Path, rng: random.Random, version: str) -> None:
    """A producer's every acknowledged message is a row, none is there twice or torn, and they are what the broker has
    after its recovery, whatever happens to it and to the query. What was read after a kill, before the next start or
    none at all, its recovery keeps. While all goes on the broker deletes expired segments: a query that has passed them
    does not notice, and one that has not says so."""
    root = tmp_path / "store"
    acks: list[str] = []
    rows: list[Short] = []
    count: Counter[str] = Counter()
    with Broker(version, root, tmp_path / "home", SIZES, main="interop.Expiring") as broker:
        query, late = (Query(root, clock=RealClock(), startingOffsets="earliest") for _ in range(2))
        for number, ending in enumerate(ENDINGS):
            if number:
                broker.start()
            client = broker.client()
            if not number:
                client.run("create", "Stream", 4)
            seconds = SECONDS if ending == "stop" else PHASE + PATIENCE
            client.begin("stream", "Stream", int(1000 * seconds), rng.randrange(1 << 31))
            soonest = time.monotonic() + (seconds if ending == "stop" else PHASE)
            end, enough, batches = time.monotonic() + seconds, rng.randint(*MESSAGES), len(query.offsets)
            while (now := time.monotonic()) < end and (now < soonest or len(acks_of(client)) < enough):
                query.trigger()
                if rng.random() < 0.1:
                    query.restart()
                    count["restarts of the query"] += 1
                rows += shortened(query.rows)
                query.rows.clear()
                if number and ending == "kill" and passed(root, query):
                    expire(broker, root, query, end)
                    count["deletions"] += 1
            assert len(query.offsets) > batches
            if number == 0:
                late.start()
            if number == len(ENDINGS) - 1 and not count["deletions"]:
                expire(broker, root, query, end)
                count["deletions"] += 1
            if ending == "kill":
                broker.kill()
            else:
                client.wait()
            acks += [ack["offsetMsgId"] for ack in acks_of(client)]
            if ending == "stop":
                broker.stop()
            count[ending] += 1
            if rng.random() < 0.5 or number == len(ENDINGS) - 1:
                query.run()
    rows += shortened(query.rows)
    print(f"{version}: {len(acks)} acknowledged, {len(rows)} rows, {len(query.offsets)} batches, {dict(count)}")
    assert len(acks) > 2 * MESSAGES[0]
    assert len({position for position, *_ in rows}) == len(rows)
    assert {*acks} <= {identity for _, identity, _ in rows}
    left = reference.read_store(root)
    assert rows[-len(left) :] == shortened(left)
    assert reading.read(root) == left
    assert all(position < segments(root)[0] for position, *_ in rows[: -len(left)])
    expected = truth.load(scenario.dump_of(version, root, tmp_path / "dump", SIZES))
    assert truth.as_units(left, reading.read(root, decompress=False)) == expected.units
    with pytest.raises(DataLossError, match="their segments were deleted before they were read"):
        late.trigger()
    late.restart(failOnDataLoss=False)
    assert late.run() == left


def passed(root: Path, query: Query) -> bool:
    """Whether a query has read the segments that a broker deletes next."""
    return query.at.stores[str(root)].position >= segments(root)[0] + EXPIRED * SIZES.segment


def expire(broker: Broker, root: Path, query: Query, end: float) -> None:
    """Has the broker delete its oldest segments, which the query has passed, while a producer and the query go on."""
    first = segments(root)[0]
    while not passed(root, query):
        assert time.monotonic() < end
        query.trigger()
    asked = broker.home / "expire"
    asked.touch()
    while asked.exists():
        assert time.monotonic() < end
        query.trigger()
    assert first < segments(root)[0] <= first + EXPIRED * SIZES.segment
