"""A consumer of a copy without some messages gets exactly the others, from a real broker."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support import writing

from interop.ours import SMALL
from interop.rocketmq import NEWEST, Broker, usually
from rmqstore_spark import Store
from rmqstore_spark.store.format.sizes import Sizes

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

TOPIC, GROUP, QUEUES, COUNT = "Orders", "billing", 3, 240
SIZES = Sizes(SMALL.segment, SMALL.queue_file, SMALL.index_slots, SMALL.index_items)


@pytest.mark.parametrize("version", usually(NEWEST))
def test_consumers_get_the_rest(real: None, tmp_path: Path, rng: random.Random, version: str) -> None:
    """Under the queue offsets that they had, also the last ones of a queue are not given out again; the index finds
    nobody."""
    gone = {COUNT - 1, *rng.sample(range(COUNT), 40)}
    ends = dict.fromkeys(range(QUEUES), 0)
    rows: list[writing.Row] = []
    expected: list[tuple[int, int, str]] = []
    for number in range(COUNT):
        queue_id = rng.randrange(QUEUES)
        key = "alice" if number in gone else f"key-{number}"
        rows.append({"topic": TOPIC, "queueId": queue_id, "keys": key, "body": b"%d" % number * 30})
        rows[-1] |= {"storeHost": "127.0.0.1:10911"}
        expected += [] if number in gone else [(queue_id, ends[queue_id], key)]
        ends[queue_id] += 1
    rows.append({**rows[0], "queueId": 0, "keys": "the last"})  # behind all that go
    expected.append((0, ends[0], "the last"))
    ends[0] += 1
    writing.write(tmp_path / "store", rows, sizes=SIZES)
    made = Store(tmp_path / "store").copy(tmp_path / "copy", excludeKey="alice")
    (told,) = made.excluded.to_pylist()
    assert (told["messages"], told["found"], told["inBodies"], told["inBytes"]) == (len(gone), 0, 0, 0)
    with Broker(version, tmp_path / "copy", tmp_path / "home", SMALL) as broker:
        client = broker.client()
        found = client.run("consume", TOPIC, GROUP, len(expected), 3000)
        assert sorted((each["queueId"], each["queueOffset"], each["properties"]["KEYS"]) for each in found) == sorted(
            expected
        )
        assert client.run("query", TOPIC, "alice")[0]["commitLogOffsets"] == []
        for queue_id, end in ends.items():
            (ack,) = client.run("send", TOPIC, queue_id, 1, "new")
            assert ack["queueOffset"] == end
