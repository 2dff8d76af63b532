"""Following the store of a real broker that is written to, killed, stopped and started again."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
from oracle import reference, truth
from support import reading
from support.following import Query, RealClock

from interop import scenario
from interop.rocketmq import NEWEST, OLDEST, Broker, Client, Sizes

pytestmark = pytest.mark.interop

SIZES = Sizes()
SECONDS = 2.0  # of writing, before a stop; before a kill it goes on until MESSAGES have come
MESSAGES = 50, 200  # acknowledged, between these numbers
PATIENCE = 60.0  # seconds: a broker that is slower than that does not answer


def acks_of(client: Client) -> list[dict[str, Any]]:
    return [record for record in client.seen if record["kind"] == "ack"]


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_each_message_once(real: None, tmp_path: Path, rng: random.Random, version: str) -> None:
    """A producer's every acknowledged message is a row, none is there twice or torn, and they are what the broker has
    after its recovery, whatever happens to it and to the query. What was read after a kill, before the next start or
    none at all, its recovery keeps."""
    root = tmp_path / "store"
    acks: list[dict[str, Any]] = []
    with Broker(version, root, tmp_path / "home", SIZES) as broker:
        query = Query(root, clock=RealClock(), startingOffsets="earliest")
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
            if ending == "kill":
                broker.kill()
            else:
                client.wait()
            acks += acks_of(client)
            if ending == "stop":
                broker.stop()
            if rng.random() < 0.5 or number == 2:
                query.run()
    assert len(acks) > 2 * MESSAGES[0]
    positions = [row["commitLogOffset"] for row in query.rows]
    assert len(set(positions)) == len(positions)
    found = {row["offsetMsgId"] for row in query.rows}
    assert {ack["offsetMsgId"] for ack in acks} <= found
    assert query.rows == reference.read_store(root) == reading.read(root)
    expected = truth.load(scenario.dump_of(version, root, tmp_path / "dump", SIZES))
    assert truth.as_units(query.rows, reading.read(root, decompress=False)) == expected.units
