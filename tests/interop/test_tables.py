"""The tables of a store say what RocketMQ's admin API answers of it while a broker serves it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from oracle import golden

from interop.each import EACH
from interop.rocketmq import Broker, Sizes
from rmqstore_spark import Store

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("real")]

Record = dict[str, Any]


class HasUnits(Protocol):
    """A Store, or some of its units."""

    def consumequeue(self) -> pa.Table: ...


# A broker goes on writing to these by itself: checks of transactions, timers, pop; and it delivers a message that has
# become due since the store was made, soon after it has started.
GROWING = {"RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "Delayed"}
PERMISSIONS = {6: "RW-", 7: "RWX", 1: "--X", 4: "R--", 2: "-W-"}


def milliseconds(row: Record, name: str) -> int:
    """As RocketMQ tells a time: 0 where there is none."""
    return 0 if row[name] is None else round(row[name].timestamp() * 1000)


def grows(topic: str) -> bool:
    return topic in GROWING or topic.startswith("rmq_sys_")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("version", EACH)
def test_admin_api_says_the_same(version: str, tmp_path: Path) -> None:
    root = golden.unpack(version, tmp_path / "store")
    (segment, *_) = (root / "commitlog").iterdir()
    sizes = Sizes(segment.stat().st_size, queue_file=400, index_slots=100, index_items=200)  # make_golden.py
    with Broker(version, root, tmp_path / "home", sizes, {"transactionCheckInterval": 10_000_000}) as broker:
        answers = broker.client().run("admin")
    assert not (root / "abort").exists()
    store = Store(root)
    check_topics(store, [answer for answer in answers if answer["kind"] == "topic"])
    check_queues(store, [answer for answer in answers if answer["kind"] == "queue"])
    check_units(store, [answer for answer in answers if answer["kind"] == "unit"])
    check_groups(store, [answer for answer in answers if answer["kind"] == "group"])
    check_offsets(store, [answer for answer in answers if answer["kind"] == "offset"])


def check_topics(store: Store, answers: list[Record]) -> None:
    found = {row["topic"]: row for row in store.topics().to_pylist() if row["configured"]}
    assert {answer["topic"] for answer in answers} == set(found)
    for answer in answers:
        row = found[answer["topic"]]
        assert (row["readQueueNums"], row["writeQueueNums"]) == (answer["readQueueNums"], answer["writeQueueNums"])
        assert (row["perm"], row["order"]) == (PERMISSIONS[answer["perm"]], answer["order"])


def check_queues(store: Store, answers: list[Record]) -> None:
    found = {(row["topic"], row["queueId"]): row for row in store.queues().to_pylist()}
    compared = 0
    for answer in answers:
        row = found.pop((answer["topic"], answer["queueId"]), None)
        if row is None:
            assert answer["maxOffset"] == 0  # no message was ever put into it
            continue
        assert row["minOffset"] == answer["minOffset"]
        if grows(answer["topic"]):
            assert row["maxOffset"] >= answer["maxOffset"]
            continue
        assert row["maxOffset"] == answer["maxOffset"]
        assert milliseconds(row, "lastStoreTimestamp") == answer["lastStoreTimestamp"]
        compared += 1
    assert compared > 15
    assert all(grows(topic) for topic, _ in found)  # of these the configuration need not know


def check_units(store: HasUnits, answers: list[Record]) -> None:
    names = ("commitLogOffset", "size", "tagsCode")
    found = {
        (row["topic"], row["queueId"], row["queueOffset"]): tuple(row[name] for name in names)
        for row in store.consumequeue().to_pylist()
        if not grows(row["topic"])
    }
    told = {
        (answer["topic"], answer["queueId"], answer["queueOffset"]): tuple(answer[name] for name in names)
        for answer in answers
        if not grows(answer["topic"])
    }
    assert found == told
    assert len(told) > 100


def check_groups(store: Store, answers: list[Record]) -> None:
    found = {row["group"]: row for row in store.groups().to_pylist() if row["configured"]}
    names = ("group", "consumeEnable", "broadcastEnable", "retryQueueNums", "retryMaxTimes")
    told = {answer["group"]: {name: answer[name] for name in names} for answer in answers}
    assert {group: {name: row[name] for name in names} for group, row in found.items()} == told


def check_offsets(store: Store, answers: list[Record]) -> None:
    told = {(answer["group"], answer["topic"], answer["queueId"]): answer for answer in answers}
    compared = 0
    for row in store.offsets().to_pylist():
        answer = told.get((row["group"], row["topic"], row["queueId"]))
        if answer is None or grows(row["topic"]):
            continue
        assert not row["expired"]
        assert (row["consumerOffset"], row["maxOffset"]) == (answer["consumerOffset"], answer["maxOffset"])
        assert row["lag"] == answer["maxOffset"] - answer["consumerOffset"]
        assert milliseconds(row, "lastConsumedTimestamp") == answer["lastConsumedTimestamp"]
        compared += 1
    assert compared >= 5
