"""asOriginal: messages as their producer sent them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from oracle import golden, stores
from support import flavours, reading
from support.command import run

from rmqstore_spark import OptionError, Store, write_store
from rmqstore_spark.columns import COLUMNS, DEFAULT_COLUMNS
from rmqstore_spark.query.options import parse_options
from rmqstore_spark.read.run.original import ORIGINAL_COLUMNS

MOVED = ("%RETRY%", "%DLQ%", "SCHEDULE_TOPIC_", "RMQ_SYS_TRANS_HALF_", "rmq_sys_wheel_timer", "TRANS_CHECK_")
# What the clients that made these stores sent of their own accord (tests/interop: Scenario.java), beside numbers and
# states; and of these, what a broker sets anew on the way.
CLIENTS = {"KEYS", "TAGS", "UNIQ_KEY", "WAIT", "DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"}
APPLICATIONS = {"number", "state", "a"}
SET_ANEW = {"WAIT", "DELAY", "TIMER_DELIVER_MS"}
SAME = [
    "topic",
    "tags",
    "keys",
    "msgId",
    "body",
    "flag",
    "sysFlag",
    "bornTimestamp",
]  # 5.1.4 says that popped ones were born with itself


def producers(row: dict[str, Any]) -> tuple[Any, ...]:
    properties = {name: value for name, value in row["properties"].items() if name not in SET_ANEW}
    return (*(row[name] for name in SAME), properties, row["reconsumeTimes"], row["preparedTransactionOffset"])


@pytest.mark.parametrize("name", [*golden.VERSIONS, "retry", "system"])
def test_stores_of_brokers(tmp_path: Path, name: str) -> None:
    """What was retried, dead, delayed or half is what the application's topic has under the same msgId."""
    root = golden.unpack(name, tmp_path / "s") if name in golden.VERSIONS else flavours.unpack(name, tmp_path)[0]
    stored, sent = reading.read(root), reading.read(root, asOriginal=True)
    assert [row["commitLogOffset"] for row in stored] == [row["commitLogOffset"] for row in sent]
    plain = {
        as_sent["msgId"]: as_sent
        for as_sent, row in zip(sent, stored, strict=True)
        if not row["topic"].startswith((*MOVED, "rmq_sys_", "RMQ_SYS_"))
    }
    seen: Counter[str] = Counter()
    for as_sent, row in zip(sent, stored, strict=True):
        if row["topic"].startswith(MOVED) and row["msgId"] in plain:
            assert producers(as_sent) == producers(plain[row["msgId"]])
            is_retried = row["topic"].startswith("%") or "%" in row["properties"].get("REAL_TOPIC", "")
            assert as_sent["queueId"] == (None if is_retried else plain[row["msgId"]]["queueId"])
            assert as_sent["properties"].keys() <= CLIENTS | APPLICATIONS
            assert as_sent["queueOffset"] is as_sent["storeTimestamp"] is as_sent["storeHost"] is None
            assert ("DELAY" in as_sent["properties"]) == ("DELAY" in row["properties"] and not is_retried)
            seen[row["topic"].strip("%").partition("%")[0]] += 1
        elif not row["topic"].startswith(MOVED):
            same = row.keys() - {"properties", "sysFlag", "reconsumeTimes", "preparedTransactionOffset"}
            assert all(as_sent[column] == row[column] for column in same)
    assert seen["RETRY"]


def test_sent_again(tmp_path: Path) -> None:
    """Dead and delayed messages, written as they were read: a store of the application's topics alone."""
    root = golden.unpack(golden.VERSIONS[-1], tmp_path / "source")
    again = Store(root).messages(asOriginal=True, subscribePattern="%DLQ%.*|SCHEDULE_TOPIC_XXXX")
    write_store(tmp_path / "new", again)
    rows = reading.read(tmp_path / "new")
    assert Counter(row["topic"] for row in rows)["Retried"] == 2 + 4  # dead, and waiting for the next delivery
    assert {row["topic"] for row in rows} <= {"Retried", "Delayed"}
    assert all(row["storeTimestamp"] > row["bornTimestamp"] for row in rows)


def moved_store(root: Path, count: int = 1) -> Store:
    builder = stores.StoreBuilder(root)
    added = {"REAL_TOPIC": "Orders", "REAL_QID": "3", "DELAY": "2", "CLUSTER": "c", "color": "red"}
    retried = {"RETRY_TOPIC": "Orders", "DELAY": "5", "WAIT": "false", "CLUSTER": "c", "color": "blue"}
    for number in range(count):
        builder.append("Plain", b"%d" % number, properties={"CLUSTER": "c", "color": "green", "DELAY": "1"}, queue_id=2)
        builder.append("SCHEDULE_TOPIC_XXXX", b"%d" % number, properties=added, queue_id=1)
        builder.append("%RETRY%G", b"%d" % number, properties=retried, queue_id=0)
        builder.append("Empty", b"%d" % number, properties={"CLUSTER": "c"})
    builder.close()
    return Store(root)


def test_rows_keep_their_own_properties(tmp_path: Path) -> None:
    """Also where batches begin in the middle of others."""
    store = moved_store(tmp_path, 3000)
    table = store.messages(columns=["topic", "queueId", "properties"], asOriginal=True).read_all()
    expected: list[dict[str, Any]] = [
        {"topic": "Plain", "queueId": 2, "properties": [("color", "green"), ("DELAY", "1")]},
        {"topic": "Orders", "queueId": 3, "properties": [("DELAY", "2"), ("color", "red")]},
        {"topic": "Orders", "queueId": None, "properties": [("color", "blue")]},
        {"topic": "Empty", "queueId": 0, "properties": []},
    ]
    rows = table.to_pylist()
    for row in [*rows, *expected]:
        row["properties"] = sorted(row["properties"])
    assert rows == expected * 3000
    assert table.column("properties").type == COLUMNS["properties"].arrow


def test_columns_alone(tmp_path: Path) -> None:
    """Each column is the same with others and without, also where queues alone could answer."""
    store = moved_store(tmp_path, 20)
    whole = store.messages(asOriginal=True).read_all()
    assert set(DEFAULT_COLUMNS) >= ORIGINAL_COLUMNS
    for name in DEFAULT_COLUMNS:
        for trust in ("log", "queues"):
            alone = store.messages(columns=[name], asOriginal=True, trust=trust).read_all()
            assert alone.column(0).combine_chunks().equals(whole.column(name).combine_chunks())
    origins = ["realTopic", "realQueueId", "consumerGroup", "topic"]
    both = store.messages(columns=origins, asOriginal=True).read_all()
    assert both.select(origins[:3]).equals(store.messages(columns=origins[:3]).read_all())
    assert both.column("topic").equals(both.column("realTopic"))


def test_what_selects_is_what_is_stored(tmp_path: Path) -> None:
    store = moved_store(tmp_path, 2)
    retried = store.messages(asOriginal=True, subscribe="%RETRY%G", property="CLUSTER=c").read_all()
    assert retried.column("topic").to_pylist() == ["Orders"] * 2
    with pytest.raises(OptionError, match="topic 'Orders'"):
        store.messages(asOriginal=True, subscribe="Orders").read_all()


def test_on_the_command_line(tmp_path: Path) -> None:
    moved_store(tmp_path / "store")
    for command in (["messages", "--as-original"], ["tail", "--asOriginal"]):
        told = run(command[0], str(tmp_path / "store"), command[1], "--topic", "%RETRY%G", "--format", "json")
        assert [json.loads(line)["topic"] for line in told.out.splitlines()] == ["Orders"]


def test_what_is_refused(tmp_path: Path) -> None:
    store = moved_store(tmp_path / "store")
    with pytest.raises(OptionError, match=r"asOriginal.* a copy keeps messages as they are stored"):
        store.copy(tmp_path / "copy", asOriginal=True)
    with pytest.raises(OptionError, match=r"option 'asOriginal': expected true or false"):
        parse_options({"path": "/x", "asOriginal": "maybe"})


def test_bodies_that_cannot_be_decompressed(tmp_path: Path) -> None:
    builder = stores.StoreBuilder(tmp_path)
    builder.append("%DLQ%G", b"no zlib", sys_flag=1, properties={"RETRY_TOPIC": "Orders"})
    builder.append("%DLQ%G", b"x", properties={"RETRY_TOPIC": "Orders"})
    builder.close()
    table = Store(tmp_path).messages(columns=["topic", "body"], asOriginal=True, mode="PERMISSIVE").read_all()
    assert table.to_pylist() == [{"topic": "Orders", "body": None}, {"topic": "Orders", "body": b"x"}]
    assert pa.types.is_binary(table.column("body").type)
    assert pc.sum(pc.is_null(table.column("body"))).as_py() == 1
