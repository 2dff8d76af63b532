"""realTopic, realQueueId, originMsgId and consumerGroup are what the application knew of a message before it was
moved."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from oracle import golden, stores
from support import flavours, reading, writing

from rmqstore_spark.columns import COLUMNS, DEFAULT_COLUMNS
from rmqstore_spark.read.run.origins import ORIGIN_COLUMNS

NAMES = ["realTopic", "realQueueId", "originMsgId", "consumerGroup"]
SYSTEM = ("%", "rmq_sys_", "RMQ_SYS_", "SCHEDULE_TOPIC_", "TRANS_CHECK_")


def origin(root: Path, topic: str, stored_in: int = 0, /, **properties: str) -> tuple[Any, ...]:
    """The four columns of one message."""
    store = stores.StoreBuilder(root)
    for known in ("b_c", "d", "e_d"):
        store.append(known, body=b"x")
    store.append("Before", body=b"x", properties={"REAL_TOPIC": "No", "RETRY_TOPIC": "No", "ORIGIN_MESSAGE_ID": "No"})
    store.append(topic, body=b"x", queue_id=stored_in, properties=dict(properties))
    store.close()
    *_, before, row = reading.read(root, columns=NAMES)
    assert before == {"realTopic": "Before", "realQueueId": 0, "originMsgId": None, "consumerGroup": None}
    return tuple(row[name] for name in NAMES)


def test_they_come_by_name_only() -> None:
    assert set(NAMES) == ORIGIN_COLUMNS
    assert not ORIGIN_COLUMNS & set(DEFAULT_COLUMNS)
    assert all(COLUMNS[name].derived for name in NAMES)


WAITING = (
    "SCHEDULE_TOPIC_XXXX",
    "rmq_sys_wheel_timer",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
)


@pytest.mark.parametrize("topic", WAITING)
def test_waiting(tmp_path: Path, topic: str) -> None:
    assert origin(tmp_path / "a", topic, REAL_TOPIC="Orders", REAL_QID="7") == ("Orders", 7, None, None)
    assert origin(tmp_path / "b", topic, 3) == (topic, 3, None, None)
    # What an application copied from a message that it had consumed.
    copied = {"RETRY_TOPIC": "Other", "ORIGIN_GROUP": "G", "ORIGIN_MESSAGE_ID": "AB"}
    assert origin(tmp_path / "c", topic, REAL_TOPIC="Orders", REAL_QID="7", **copied) == ("Orders", 7, None, None)
    # Retried ones wait there too.
    retried = {"REAL_TOPIC": "%RETRY%G", "RETRY_TOPIC": "Orders", "ORIGIN_MESSAGE_ID": "AB", "REAL_QID": "0"}
    assert origin(tmp_path / "d", topic, **retried) == ("Orders", None, "AB", "G")


@pytest.mark.parametrize("number", ["", "-1", "x", "2147483648", "99999999999999999999", "٣", "1 "])
def test_queue_ids_that_are_none(tmp_path: Path, number: str) -> None:
    assert origin(tmp_path, "SCHEDULE_TOPIC_XXXX", REAL_TOPIC="Orders", REAL_QID=number) == ("Orders", None, None, None)


@pytest.mark.parametrize(
    ("topic", "properties", "expected", "group"),
    [
        ("%RETRY%G", {"RETRY_TOPIC": "Orders"}, "Orders", "G"),
        ("%RETRY%G_a", {"RETRY_TOPIC": "Orders"}, "Orders", "G_a"),
        ("%DLQ%G", {"RETRY_TOPIC": "Orders"}, "Orders", "G"),
        ("%DLQ%G", {}, "%DLQ%G", "G"),
        ("%RETRY%G", {}, "%RETRY%G", "G"),
        # Served by pop: the group decides what is the topic; a plus is in no name.
        ("%RETRY%G_Orders", {"ORIGIN_GROUP": "G"}, "Orders", "G"),
        ("%RETRY%a_b_c", {"ORIGIN_GROUP": "a"}, "b_c", "a"),
        ("%RETRY%a_b_c", {"ORIGIN_GROUP": "a_b"}, "c", "a_b"),
        ("%RETRY%a_b_c", {}, "%RETRY%a_b_c", "a_b_c"),
        # Older brokers do not name the group: the topic has to be one of the store's, and only one may fit.
        ("%RETRY%a_b_c", {"1ST_POP_TIME": "1"}, "b_c", "a"),
        ("%RETRY%a_b_d", {"1ST_POP_TIME": "1"}, "d", "a_b"),
        ("%RETRY%a_e_d", {"1ST_POP_TIME": "1"}, "%RETRY%a_e_d", None),
        ("%RETRY%_b_c", {"1ST_POP_TIME": "1"}, "%RETRY%_b_c", None),
        ("%RETRY%a_z", {"1ST_POP_TIME": "1"}, "%RETRY%a_z", None),
        ("%RETRY%a_b_c", {"1ST_POP_TIME": "1", "RETRY_TOPIC": "Orders"}, "Orders", "a_b_c"),
        ("%RETRY%a_b+c_d", {}, "c_d", "a_b"),
        ("%RETRY%a_b+c_d", {"ORIGIN_GROUP": "a_b"}, "c_d", "a_b"),
        ("%RETRY%G+", {"ORIGIN_GROUP": "G"}, "%RETRY%G+", "G+"),
        # Popped from a retry topic, and given up.
        ("%DLQ%a_b", {"RETRY_TOPIC": "%RETRY%a_b_c"}, "c", "a_b"),
        ("%DLQ%a_b", {"RETRY_TOPIC": "%RETRY%a_b+c"}, "c", "a_b"),
    ],
)
def test_retried_and_dead(
    tmp_path: Path, topic: str, properties: dict[str, str], expected: str, group: str | None
) -> None:
    assert origin(tmp_path, topic, ORIGIN_MESSAGE_ID="AB", **properties) == (expected, None, "AB", group)


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_stores_of_brokers(tmp_path: Path, version: str) -> None:
    """A message under a topic of the broker's is that of an application's topic with the same msgId."""
    assert_origins(golden.unpack(version, tmp_path / "store"))


@pytest.mark.parametrize("name", ["system", "retry"])
def test_small_stores(tmp_path: Path, name: str) -> None:
    assert_origins(flavours.unpack(name, tmp_path)[0])


def assert_origins(root: Path) -> None:
    columns = [*NAMES, "topic", "queueId", "msgId", "offsetMsgId", "tags"]
    rows = reading.read(root, columns=columns)
    plain: dict[str, list[dict[str, Any]]] = {}
    seen: Counter[str] = Counter()
    for row in rows:
        if not row["topic"].startswith(SYSTEM):
            plain.setdefault(row["msgId"], []).append(row)
            assert (row["realTopic"], row["realQueueId"]) == (row["topic"], row["queueId"])
            assert row["originMsgId"] is row["consumerGroup"] is None
    for row in rows:
        if row["topic"].startswith(SYSTEM) and row["msgId"] in plain:
            first = plain[row["msgId"]][0]
            assert row["realTopic"] == first["topic"]
            retried = row["consumerGroup"] is not None
            assert row["realQueueId"] == (None if retried else first["queueId"])
            assert row["originMsgId"] in (first["offsetMsgId"], None)
            kind = row["topic"].partition("%")[2].partition("%")[0] or row["topic"]
            seen[kind] += 1
            if kind in ("RETRY", "DLQ"):
                assert retried
                assert f"%{row['consumerGroup']}" in row["topic"]
    assert seen["RETRY"]
    assert seen["SCHEDULE_TOPIC_XXXX"]


def test_only_some_of_them_and_mode_permissive(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path)
    store.append("%RETRY%G", body=b"x", properties={"RETRY_TOPIC": "Orders"})
    at = store.append("Orders", body=b"damaged")
    store.append("Orders", body=b"y")
    store.close()
    path = store.segment(at)
    data = bytearray(path.read_bytes())
    data[data.index(b"damaged")] ^= 1
    path.write_bytes(data)
    rows = reading.read(tmp_path, mode="PERMISSIVE", columns=["consumerGroup", "body", "realTopic"])
    assert rows == [
        {"consumerGroup": "G", "body": b"x", "realTopic": "Orders"},
        {"consumerGroup": None, "body": None, "realTopic": None},
        {"consumerGroup": None, "body": b"y", "realTopic": "Orders"},
    ]


def test_writing_does_not_look_at_them(tmp_path: Path) -> None:
    written = {"topic": "SCHEDULE_TOPIC_XXXX", "queueId": 2, "body": b"x", "properties": {"REAL_TOPIC": "Orders"}}
    lies = {"realTopic": "A", "realQueueId": 9, "originMsgId": "B", "consumerGroup": "C"}
    writing.write(tmp_path, [{**written, **lies}])
    (row,) = reading.read(tmp_path, columns=["topic", "queueId", *NAMES])
    assert row == {
        "topic": "SCHEDULE_TOPIC_XXXX",
        "queueId": 2,
        "realTopic": "Orders",
        "realQueueId": None,
        "originMsgId": None,
        "consumerGroup": None,
    }
