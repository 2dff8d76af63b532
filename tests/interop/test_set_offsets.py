"""A real group goes on exactly where set_offsets put it, in its broker's own store and in a copy."""

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

TOPIC, GROUP, QUEUES = "Orders", "billing", 3
FIRST = 1_700_000_000_000
SIZES = Sizes(SMALL.segment, SMALL.queue_file, SMALL.index_slots, SMALL.index_items)


def consume(version: str, root: Path, home: Path, count: int) -> dict[int, list[int]]:
    """The queue offsets that the group gets, by queue, until nothing more comes; the broker stops cleanly."""
    found: dict[int, list[int]] = {queue_id: [] for queue_id in range(QUEUES)}
    with Broker(version, root, home, SMALL) as broker:
        for answer in broker.client().run("consume", TOPIC, GROUP, count, 3000):
            found[answer["queueId"]].append(answer["queueOffset"])
    return found


@pytest.mark.parametrize("version", usually(NEWEST))
def test_a_group_goes_on_there(real: None, tmp_path: Path, rng: random.Random, version: str) -> None:
    """In its broker's store after it has consumed all; in each queue at another offset, and by time; once more in a
    copy. The broker in between writes its file itself."""
    root, ends = tmp_path / "store", dict.fromkeys(range(QUEUES), 0)
    rows: list[writing.Row] = []
    for number in range(300):
        queue_id = rng.randrange(QUEUES)
        ends[queue_id] += 1
        times = {"storeTimestamp": (FIRST + number) * 1000, "storeHost": "127.0.0.1:10911"}
        rows.append({"topic": TOPIC, "queueId": queue_id, "body": b"%d" % number * 30, **times})
    writing.write(root, rows, sizes=SIZES)
    everything = {queue_id: list(range(end)) for queue_id, end in ends.items()}
    assert consume(version, root, tmp_path / "home0", 300) == everything

    places = {queue_id: rng.randrange(end + 1) for queue_id, end in ends.items()}
    told = Store(root).set_offsets({GROUP: {TOPIC: places}}).to_pylist()
    assert [row["again"] for row in told] == [ends[queue_id] - at for queue_id, at in places.items()]
    expected = {queue_id: list(range(at, ends[queue_id])) for queue_id, at in places.items()}
    assert consume(version, root, tmp_path / "home1", sum(map(len, expected.values()))) == expected

    since = rng.randrange(300)
    copy = tmp_path / "copy"
    Store(root).copy(copy, groupOffset={GROUP: FIRST + since})
    late = {q: sum(row["queueId"] == q for row in rows[:since]) for q in ends}
    expected = {queue_id: list(range(at, ends[queue_id])) for queue_id, at in late.items()}
    assert consume(version, copy, tmp_path / "home2", 300 - since) == expected
