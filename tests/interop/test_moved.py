"""Tables made of messages (delayed, transactions, inflight, traces) say what was done to a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support import reading
from support.moved import assert_scenario, rows_of

from interop import rocketmq
from interop.each import EACH
from interop.rocketmq import Broker
from interop.scenario import Written
from rmqstore_spark.tables.traces import TRACES

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("version", EACH)
def test_delayed_transactions_and_in_flight(version: str, store_of: Callable[[str], Written]) -> None:
    assert_scenario(store_of(version).root, version)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("version", rocketmq.usually(rocketmq.NEWEST))
def test_traces(version: str, real: None, tmp_path: Path) -> None:
    root, count = tmp_path / "store", 5
    settings = {"traceTopicEnable": "true"}
    with Broker(version, root, tmp_path / "home", settings=settings) as broker:
        client = broker.client()
        client.run("create", "Traced", 2)
        acks = {record["msgId"]: record for record in client.run("traced", "Traced", count)}
        broker.kill()  # quicker than to stop it
    rows = rows_of(TRACES, root)
    assert len(acks) == count
    assert Counter((row["traceType"], row["msgId"]) for row in rows) == Counter(
        (kind, id) for kind in ("Pub", "SubBefore", "SubAfter") for id in acks
    )
    sent = {row["msgId"]: row for row in reading.read(root, subscribe="Traced")}
    for row in rows:
        message, ack = sent[row["msgId"]], acks[row["msgId"]]
        assert row["keys"] == ack["keys"]
        assert row["clientHost"]
        if row["traceType"] == "Pub":
            assert (row["topic"], row["tags"], row["group"]) == ("Traced", "Traced", "traced-producer")
            assert (row["offsetMsgId"], row["bodyLength"]) == (message["offsetMsgId"], len(message["body"]))
            assert row["success"]
            assert abs(row["timestamp"] - message["storeTimestamp"]) < 60_000_000
        else:
            assert row["group"] in ("traced-group", None)
            assert row["requestId"]
        if row["traceType"] == "SubAfter":
            assert (row["success"], row["contextCode"]) == (True, 0)
    requests = Counter(row["requestId"] for row in rows if row["requestId"])
    assert set(requests.values()) == {2}
