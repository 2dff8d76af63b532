"""A static topic of a real broker: the logic queues and offsets of our rows are those that its consumer gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support import reading

from interop import rocketmq
from interop.rocketmq import Broker, Record, Sizes
from rmqstore_spark import Store, write_store

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long]

TOPIC, GROUP = "Static", "readers"
MOVED, ALONE = 12, 5  # messages of queue 0 and 1


def part(gen: int, queue_id: int, logic: int, end: int = -1) -> dict[str, Any]:
    numbers = {"gen": gen, "queueId": queue_id, "logicOffset": logic, "startOffset": 0, "endOffset": end}
    return {"bname": "bench", **numbers, "timeOfStart": -1, "timeOfEnd": -1}


def map_queues(root: Path) -> None:
    """As `mqadmin remappingStaticTopic`: logic queue 0 was queue 0, and is queue 2 now; logic queue 1 is queue 1."""
    parts = {0: [part(0, 0, 0, MOVED), part(1, 2, MOVED)], 1: [part(0, 1, 0)]}
    info = {
        "topic": TOPIC,
        "scope": "__global__",
        "totalQueues": 2,
        "bname": "bench",
        "epoch": 1,
        "dirty": False,
        "hostedQueues": parts,
    }
    mapping = {"topicQueueMappingInfoMap": {TOPIC: info}, "dataVersion": {"counter": 1, "timestamp": 1}}
    (root / "config" / "topicQueueMapping.json").write_text(json.dumps(mapping))


@pytest.mark.nightly
@pytest.mark.usefixtures("real")
def test_rows_are_what_a_consumer_gets(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with Broker(rocketmq.NEWEST, root, tmp_path / "home", Sizes()) as broker:
        client = broker.client()
        client.run("create", TOPIC, 3)
        for queue_id, count in enumerate((MOVED, ALONE, 9)):
            client.run("send", TOPIC, queue_id, count, f"of queue {queue_id}")
        broker.stop()
        map_queues(root)
        broker.start()
        client = broker.client()
        received = client.run("consume", TOPIC, GROUP, MOVED + ALONE + 9, 500)
        broker.stop()
    got = [record for record in received if record["kind"] == "message"]
    names = ["logicQueueId", "logicOffset", "keys"]
    rows = reading.read(root, subscribe=TOPIC, columns=names)
    assert sorted(tuple(row.values()) for row in rows) == sorted(map(as_row, got))
    assert len(rows) == MOVED + ALONE + 9
    queues = Store(root).logicqueues(["logicQueueId", "queueId", "maxLogicOffset"]).to_pylist()
    assert max(row["maxLogicOffset"] for row in queues if row["logicQueueId"] == 0) == MOVED + 9
    # What the broker stores counts in its own queues, and nothing of it is wrong.
    offsets = Store(root).offsets(["queueId", "consumerOffset", "lag"], subscribe=TOPIC).to_pylist()
    assert {1: ALONE, 2: 9}.items() <= {row["queueId"]: row["consumerOffset"] for row in offsets}.items()
    assert not any(row["lag"] for row in offsets)
    assert [row for row in Store(root).check().to_pylist() if row["area"] == "offsets"] == []
    # On a copy the group goes on where it was, in the same logic queue.
    Store(root).copy(tmp_path / "copy")
    more = [{"topic": TOPIC, "queueId": 2, "body": b"more", "keys": f"more-{number}"} for number in range(3)]
    write_store(tmp_path / "copy", pa.Table.from_pylist(more), mode="append")
    with Broker(rocketmq.NEWEST, tmp_path / "copy", tmp_path / "home", Sizes()) as broker:
        received = [r for r in broker.client().run("consume", TOPIC, GROUP, 3, 2000) if r["kind"] == "message"]
    assert [as_row(each) for each in received] == [(0, MOVED + 9 + n, f"more-{n}") for n in range(3)]


def as_row(message: Record) -> tuple[int, int, str]:
    return message["queueId"], message["queueOffset"], message["properties"]["KEYS"]
