"""Batches that a real broker keeps whole: rows are what its consumer gets, and keys are found in every one."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle import reference, truth
from support import reading

from interop import rocketmq
from interop.rocketmq import Broker, Sizes

pytestmark = pytest.mark.interop

COUNT = 5  # batches of 1 to 5 messages, as many single messages, and as many from each of 4 threads
MESSAGES = 15 + 5 + 20


@pytest.mark.usefixtures("real")
def test_rows_are_what_a_consumer_gets(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with Broker(rocketmq.NEWEST, root, tmp_path / "home", Sizes()) as broker:
        client = broker.client()
        sent = client.run("batched", "Batched", COUNT)
        received = client.run("consume", "Batched", "group", MESSAGES, 500)
        broker.stop()
    assert [record["status"] for record in sent] == ["SEND_OK"] * 20
    rows = reading.read(root, subscribe="Batched", columns=[*reading.DEFAULT_COLUMNS, "batchIndex"])
    names = ("queueOffset", "queueId", "commitLogOffset", "flag", "reconsumeTimes", "preparedTransactionOffset")
    by_offset = {message["queueOffset"]: message for message in received}
    assert len(received) == len(by_offset) == len(rows) == MESSAGES
    for row in rows:
        message = by_offset[row["queueOffset"]]
        assert [row[name] for name in names] == [message[name] for name in names]
        assert (row["bornTimestamp"], row["storeTimestamp"]) == (
            message["bornTimestamp"] * 1000,
            message["storeTimestamp"] * 1000,
        )
        assert truth.sha256(row["body"]) == message["body"]
        assert row["properties"].items() <= message["properties"].items()  # a consumer adds some of its own
    assert [row["queueOffset"] for row in rows] == list(range(MESSAGES))
    units = reading.read(root, subscribe="Batched", explodeBatches=False)
    assert len(units) < MESSAGES - 10  # autoBatch has made some, too
    assert reference.read_store(root) == reading.read(root)
    for row in rows:
        (found,) = reading.read(root, key=row["keys"], columns=["queueOffset"], prices=reading.FREE)
        assert found["queueOffset"] == row["queueOffset"]
