"""A stream of a real broker's store has each message once, though the broker is killed, stopped and started again."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
from oracle import reference, truth
from support import reading
from support.following import Query, RealClock
from support.patience import HANG

from interop import scenario
from interop.expiring import EXPIRED, ExpiringBroker
from interop.rocketmq import NEWEST, Client, Sizes, usually
from rmqstore_spark import DataLossError

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

SIZES = Sizes(segment=128 << 10)  # a message has up to 120 KB
SECONDS = 2.0  # of writing, before a stop; before a kill it goes on until MESSAGES have come
MESSAGES = 50, 200  # acknowledged, between these numbers
PATIENCE = HANG  # seconds: a broker that is slower than that does not answer


def acks_of(client: Client) -> list[dict[str, Any]]:
    return [record for record in client.seen if record["kind"] == "ack"]


@pytest.mark.parametrize("version", usually(NEWEST))
def test_each_message_once(real: None, tmp_path: Path, rng: random.Random, version: str) -> None:
    """A producer's every acknowledged message is a row, none is there twice or torn, and they are what the broker has
    after its recovery, whatever happens to it and to the query. What was read after a kill, before the next start or
    none at all, its recovery keeps. While all goes on the broker deletes expired segments: a query that has passed them
    does not notice, and one that has not says so."""
    root = tmp_path / "store"
    acks: list[str] = []
    with ExpiringBroker(version, root, tmp_path / "home", SIZES) as broker:
        query, late = (Query(root, clock=RealClock(), startingOffsets="earliest") for _ in range(2))
        for number, ending in enumerate(("kill", "stop", "kill")):
            if number:
                broker.start()
            client = broker.client()
            if not number:
                client.run("create", "Stream", 4)
            seconds = SECONDS if ending == "stop" else PATIENCE
            client.begin("stream", "Stream", int(1000 * seconds), rng.randrange(1 << 31))
            end, enough, batches = time.monotonic() + seconds, rng.randint(*MESSAGES), len(query.offsets)
            while time.monotonic() < end and (ending == "stop" or len(acks_of(client)) < enough):
                query.trigger()
                if rng.random() < 0.1:
                    query.restart()
            assert len(query.offsets) > batches
            if number == 0:
                late.start()
            if number == 2:
                expire(broker, query, end)
            if ending == "kill":
                broker.kill()
            else:
                client.wait()
            acks += [ack["offsetMsgId"] for ack in acks_of(client)]
            if ending == "stop":
                broker.stop()
            if rng.random() < 0.5 or number == 2:
                query.run()
    assert len(acks) > 2 * MESSAGES[0]
    rows = query.rows
    assert len({row["commitLogOffset"] for row in rows}) == len(rows)
    assert {*acks} <= {row["offsetMsgId"] for row in rows}
    left = reference.read_store(root)
    assert rows[-len(left) :] == left
    assert reading.read(root) == left
    assert all(row["commitLogOffset"] < broker.segments()[0] for row in rows[: -len(left)])
    expected = truth.load(scenario.dump_of(version, root, tmp_path / "dump", SIZES))
    assert truth.as_units(left, reading.read(root, decompress=False)) == expected.units
    with pytest.raises(DataLossError, match="their segments were deleted before they were read"):
        late.trigger()
    late.restart(failOnDataLoss=False)
    # What its follower knows of the log may lie behind the loss. Then the batch was planned, and Spark reads it again.
    again = late.rows_between(-2, -1) if len(late.offsets) > 1 else []
    assert again + late.run() == left


def expire(broker: ExpiringBroker, query: Query, end: float) -> None:
    """Has the broker delete its oldest segments, which the query has passed, while a producer and the query go on."""
    first = broker.segments()[0]
    while query.at.stores[str(broker.root)].position < broker.next_start():
        assert time.monotonic() < end
        query.trigger()
    broker.expire()
    while broker.is_expiring():
        assert time.monotonic() < end
        query.trigger()
    assert first < broker.segments()[0] <= first + EXPIRED * SIZES.segment
