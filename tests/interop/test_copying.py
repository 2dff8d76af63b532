"""Copies and salvages before real brokers: what they serve, and what they pass over."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from support import writing

import rmqstore_spark
from interop.ours import SMALL
from interop.rocketmq import NEWEST, OLDEST, Broker
from rmqstore_spark.store.sizes import Sizes

pytestmark = pytest.mark.interop

TOPIC = "Orders"
SIZES = Sizes(SMALL.segment, SMALL.queue_file, SMALL.index_slots, SMALL.index_items)
QUEUES = 3


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


def damage(root: Path, rng: random.Random, count: int) -> None:
    """Some stretches in the middle of segments in the middle of the log."""
    segments = sorted((root / "commitlog").iterdir())[1:-1]
    for segment in rng.sample(segments, count):
        data = bytearray(segment.read_bytes())
        at = rng.randrange(5000, 20000)
        data[at : at + 9000] = rng.randbytes(9000)
        segment.write_bytes(data)


def pulled(broker: Broker, queue_id: int, start: int, stop: int) -> tuple[list[int], list[dict[str, Any]]]:
    """The queue offsets that a consumer receives, and where it was told that there is nothing."""
    answers = broker.client().run("pull", TOPIC, queue_id, start, stop)
    return (
        [answer["queueOffset"] for answer in answers if answer["kind"] != "missed"],
        [answer for answer in answers if answer["kind"] == "missed"],
    )


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_salvaged(real: None, tmp_path: Path, rng: random.Random, version: str) -> None:
    """Consumers get all that is left in order, wherever they begin, and new messages after it; also after a restart, a
    crash, and when the first segments have expired."""
    damaged, root = tmp_path / "damaged", tmp_path / "salvaged"
    writing.write(damaged, rows(rng, 600), sizes=SIZES)
    damage(damaged, rng, 4)
    result = rmqstore_spark.Store(damaged).salvage(root)
    assert result.lost.num_rows > 4
    left: dict[int, list[int]] = {queue_id: [] for queue_id in range(QUEUES)}
    for row in (
        rmqstore_spark.Store(damaged).messages(["queueId", "queueOffset"], mode="DROPMALFORMED").read_all().to_pylist()
    ):
        left[row["queueId"]].append(row["queueOffset"])
    broker = Broker(version, root, tmp_path / "home", SMALL)
    with broker:
        for queue_id, offsets in left.items():
            stop = offsets[-1] + 1
            (bounds,) = broker.client().run("bounds", TOPIC, queue_id)
            assert (bounds["min"], bounds["max"]) == (0, stop)
            for start in [0, *rng.sample(range(stop), 8)]:
                found, missed = pulled(broker, queue_id, start, stop)
                print(version, queue_id, start, missed)
                assert found == [offset for offset in offsets if offset >= start]
            sent = broker.client().run("send", TOPIC, queue_id, 3, "after")
            assert [ack["queueOffset"] for ack in sent] == [stop, stop + 1, stop + 2]
            offsets += [stop, stop + 1, stop + 2]
        broker.kill()
    with Broker(version, root, tmp_path / "home2", SMALL) as broker:
        for queue_id, offsets in left.items():
            found, _ = pulled(broker, queue_id, 0, offsets[-1] + 1)
            assert found == offsets
