"""Stores with light queues (LMQ), a static topic, and queues of batches (BatchCQ), small ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from oracle import light, reference, stores

import rmqstore_spark
from rmqstore_spark.store.format.sizes import Sizes

_SEGMENT, _QUEUE_FILE, _SLOTS, _ITEMS = 4096, 200, 100, 30
SIZES = Sizes(_SEGMENT, _QUEUE_FILE, _SLOTS, _ITEMS)
BATCHES, EXPIRED = "Batches", "Expired"
_UNITS = 20  # of each file of a BatchCQ


def light_and_static(root: Path, batches: bool = False) -> Path:
    """Messages that are in light queues, too, and a static topic whose queue has moved here.

    Args:
        batches: whether there are also a BatchCQ topic, and what is left of the queue of another one, of which the log
            has no message any more.
    """
    start = _SEGMENT if batches else 0
    builder = stores.StoreBuilder(
        root, _SEGMENT, _QUEUE_FILE, start, index=True, index_slots=_SLOTS, index_items=_ITEMS
    )
    for number in range(30):
        names = ("%LMQ%a", "%LMQ%b")[: number % 3]
        offsets = [str(number // 3 * 2 + number % 3 - 1), str(number // 3)][: number % 3]
        light_ones = {light.DISPATCH: ",".join(names), light.OFFSETS: ",".join(offsets)} if names else {}
        topic = ("Static", "Plain")[number % 2]
        builder.append(topic, b"body", tags="t", keys="key", msg_id=f"kind-{number}", properties=light_ones)
        if batches and number % 5 == 0:
            builder.append(BATCHES, b"body", msg_id=f"batch-{number}")
    builder.close()
    light.put_queues(builder, reference.read_store(root))
    part = {"bname": "broker-a", "gen": 0, "queueId": 0, "logicOffset": 100, "startOffset": 0, "endOffset": -1}
    info = {"topic": "Static", "bname": "broker-a", "totalQueues": 1, "epoch": 1, "hostedQueues": {"0": [part]}}
    mapping = {"topicQueueMappingInfoMap": {"Static": info}, "dataVersion": {"counter": 1, "timestamp": 1}}
    (root / "config" / "topicQueueMapping.json").write_text(json.dumps(mapping))
    if batches:
        _put_batches(root)
    return root


def _put_batches(root: Path) -> None:
    path = root / "config" / "topics.json"
    table = json.loads(path.read_text())
    topics = table["topicConfigTable"]
    for topic in (BATCHES, EXPIRED):
        topics[topic] = {**topics[BATCHES], "topicName": topic, "attributes": {"queue.type": "BatchCQ"}}
    path.write_text(json.dumps(table))
    left = root / "batchconsumequeue" / EXPIRED / "0" / f"{0:020d}"
    left.parent.mkdir(parents=True)
    units = b"".join(reference.encode_batch_unit(number, 100, 0, 1_600_000_000_000, number, 1) for number in (0, 1, 2))
    left.write_bytes(units.ljust(_UNITS * reference.BATCH_UNIT_SIZE, b"\0"))
    shutil.rmtree(root / "consumequeue" / BATCHES)
    rmqstore_spark.rebuild(root)
