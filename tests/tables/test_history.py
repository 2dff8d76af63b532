"""history() tells the life of a message, from whatever of its keys and ids one has."""

from __future__ import annotations

import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from oracle import golden, reference, stores
from support import flavours, reading

from rmqstore_spark.jobs.history import history
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot

Row = dict[str, Any]


def events(root: Path, name: str, **options: Any) -> list[Row]:
    table = history([Snapshot.find(str(root), Files())], reading.options_of(root, **options), name)
    table.validate(full=True)
    rows: list[Row] = table.to_pylist()
    times = [row["timestamp"] for row in rows if row["timestamp"] is not None]
    assert times == sorted(times)
    assert [row["timestamp"] is None for row in rows] == [False] * len(times) + [True] * (len(rows) - len(times))
    return rows


def story(root: Path, name: str, **options: Any) -> list[tuple[str, str | None]]:
    """What happened, and under which topic or to which group; without what groups have consumed."""
    rows = [row for row in events(root, name, **options) if row["event"] not in ("consumed", "waiting")]
    return [(row["event"], row["group"] or row["topic"]) for row in rows]


RETRIED = [
    ("produced", "Retried"),
    *[("retry delayed", "failing-group"), ("retried", "failing-group")] * 2,
    ("dead", "failing-group"),
]


@pytest.mark.slow
@pytest.mark.parametrize("version", golden.VERSIONS)
def test_golden_stores(tmp_path: Path, version: str) -> None:
    root = golden.unpack(version, tmp_path / "store")
    producer = "transaction-producer"
    rows = events(root, "retried-0")
    assert story(root, "retried-0") == RETRIED
    consumed = [(row["topic"], row["group"]) for row in rows if row["event"] == "consumed"]
    assert consumed.count(("Retried", "failing-group")) == 1
    assert story(root, "level-18") == [("delayed", "SCHEDULE_TOPIC_XXXX")]
    assert story(root, "level-2") == [("delayed", "SCHEDULE_TOPIC_XXXX"), ("delivered", "Delayed")]
    committed = [event for event in story(root, "COMMIT_MESSAGE-0") if event[0] != "checked"]
    assert committed == [("prepared", producer), ("committed", producer)]
    rolled_back = [event for event in story(root, "ROLLBACK_MESSAGE-1") if event[0] != "checked"]
    assert rolled_back == [("prepared", producer), ("rolled back", producer)]
    assert {event for event, _ in story(root, "UNKNOW-2")} == {"prepared", "checked"}
    # By any of its ids it is the same.
    ids = {row["offsetMsgId"]: row["msgId"] for row in reading.read(root, key="retried-0")}
    assert len(ids) == len(RETRIED)
    for id in {*ids, *ids.values(), min(ids).lower()}:
        assert events(root, id) == rows
    assert events(root, "nothing of that name") == []


def test_small_stores(tmp_path: Path) -> None:
    root, _ = flavours.unpack("system", tmp_path)
    assert story(root, "k1") == [("produced", "Or"), ("retry delayed", "CG"), ("retried", "CG")]
    assert story(root, "k2") == [("produced", "Or"), ("popped", "PopG")]
    assert story(root, "k6") == [("produced", "Or"), ("retried", "PopG")]
    assert story(root, "timer4") == [("delayed", "rmq_sys_wheel_timer"), ("recalled", "PG")]
    assert story(root, "timer1") == [("delayed", "rmq_sys_wheel_timer"), ("delivered", "Dy")]
    assert story(root, "tx3") == [("prepared", "TXG"), ("rolled back", "TXG")]
    assert story(root, "txtraced") == [
        ("traced", "TXTR"),
        ("prepared", "TXTR"),
        ("traced", "TXTR"),
        ("committed", "TXTR"),
    ]
    traced = [("traced", "TRG"), ("produced", "Or"), ("traced", "TRCG"), ("traced", "TRCG")]
    assert story(root, "traced0") == traced
    (id,) = {row["msgId"] for row in events(root, "traced0")}
    assert story(root, id) == traced
    after = {(row["event"], row["group"]) for row in events(root, "traced0") if row["timestamp"] is None}
    assert after == {("consumed", "CG"), ("consumed", "TRCG"), ("waiting", "PopG")}

    root, _ = flavours.unpack("rocksdb-trans", tmp_path)
    assert story(root, "tx0") == [("prepared", "TXG"), ("committed", "TXG")]
    assert story(root, "tx3") == [("prepared", "TXG"), ("rolled back", "TXG")]


def test_details(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path)
    now = stores.FIRST_TIMESTAMP
    waits = {"REAL_TOPIC": "Orders", "DELAY": "3", "REAL_QID": "0"}
    store.append("SCHEDULE_TOPIC_XXXX", queue_id=2, msg_id="ID", keys="a", body=b"x", properties=waits)
    store.append(
        "Orders", msg_id="ID", keys="a", body=b"1234", tags="T", born_host="10.0.0.1:5", store_timestamp=now + 10_001
    )
    store.append("Orders", msg_id="ID2", keys="b a", body=b"", born_host="10.0.0.1:5")
    store.append("Orders", msg_id="ID3", keys="ab", body=b"")
    store.append(
        "TRANS_CHECK_MAX_TIME_TOPIC", msg_id="ID4", keys="gone", properties={"REAL_TOPIC": "Orders", "PGROUP": "P"}
    )
    store.close()
    offsets = {"Orders@G": {"0": 1, "1": 9}, "Orders@CID_RMQ_SYS_X": {"0": 9}, "Other@G": {"0": 9}}
    (tmp_path / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    rows = events(tmp_path, "a")
    assert [(row["event"], row["msgId"], row["queueOffset"], row["details"]) for row in rows] == [
        ("delayed", "ID", 0, "for Orders, level 3, due 2023-11-14 22:13:30.001 UTC"),
        ("delivered", "ID", 0, "4 bytes, tags T, keys a"),
        ("produced", "ID2", 1, "0 bytes, keys b a, from 10.0.0.1:5"),
        ("consumed", "ID", 0, "the group goes on at 1"),
        ("waiting", "ID2", 1, "the group goes on at 1"),
    ]
    assert [row["commitLogOffset"] for row in rows[:3]] == [message.position for message in store.messages[:3]]
    assert [(row["event"], row["group"], row["details"]) for row in events(tmp_path, "gone")] == [
        ("given up", "P", "for Orders")
    ]


def test_delivered_messages_without_ids(tmp_path: Path) -> None:
    """Of one key: a message was delayed if one was that its client sent in that millisecond."""
    store = stores.StoreBuilder(tmp_path)
    waits = {"REAL_TOPIC": "Orders", "DELAY": "3", "REAL_QID": "0"}
    births = [(1000, "10.0.0.1:5"), (2000, "10.0.0.1:5"), (1000, "10.0.0.1:6"), (1001, "10.0.0.1:5")]
    for number, (time, host) in enumerate(births):
        is_delayed = number < 2
        topic, properties = ("SCHEDULE_TOPIC_XXXX", waits) if is_delayed else ("Orders", {})
        store.append(topic, keys="a", properties=properties, born_timestamp=time, born_host=host)
    for time, host in reversed(births[:2]):
        store.append("Orders", keys="a", properties=waits, born_timestamp=time, born_host=host)
    store.close()
    events = [event for event, _ in story(tmp_path, "a")]
    assert events == ["delayed", "delayed", "produced", "produced", "delivered", "delivered"]


@pytest.mark.parametrize("seed", range(6))
def test_rollbacks_of_one_key(tmp_path: Path, seed: int) -> None:
    """With and without msgIds: an op message ends what it names, and that is a rollback where no commit has it."""
    rng = random.Random(seed)
    store = stores.StoreBuilder(tmp_path, segment_size=1 << 16)
    if rng.random() < 0.5:
        store.append("Orders", keys="same")  # so no half message is at the physical offset 0
    for number in range(12):
        names = {"REAL_TOPIC": rng.choice(("Orders", "Bills")), "REAL_QID": "0", "PGROUP": "P"}
        msg_id = rng.choice((None, f"ID{number}"))
        at = store.append("RMQ_SYS_TRANS_HALF_TOPIC", msg_id=msg_id, keys="same", properties=names)
        fate = rng.choice(("open", "commit", "rollback", "rollback"))
        if fate == "commit":
            store.append(
                names["REAL_TOPIC"],
                msg_id=msg_id,
                keys="same",
                properties=names,
                sys_flag=reference.COMMIT,
                prepared_transaction_offset=at,
            )
        if fate != "open":
            store.append("RMQ_SYS_TRANS_OP_HALF_TOPIC", b"%d," % number, tags="d")
    store.close()

    rows = reference.read_store(tmp_path)
    commits = [row for row in rows if row["sysFlag"] & reference.TRANSACTION_BITS == reference.COMMIT]
    committed = {(row["preparedTransactionOffset"], row["topic"]) for row in commits}
    halves = {row["queueOffset"]: row for row in rows if row["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC"}
    ended = [
        (row["commitLogOffset"], halves[int(row["body"].decode().strip(","))])
        for row in rows
        if row["topic"] == "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    ]
    expected = [
        (at, half["msgId"], f"for {half['properties']['REAL_TOPIC']}")
        for at, half in ended
        if (half["commitLogOffset"], half["properties"]["REAL_TOPIC"]) not in committed
    ]
    found = [row for row in events(tmp_path, "same") if row["event"] == "rolled back"]
    assert [(row["commitLogOffset"], row["msgId"], row["details"]) for row in found] == expected
    assert expected


@pytest.mark.slow
def test_it_is_found_through_the_index(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path, 1 << 20, 20_000, index=True, index_slots=2000, index_items=40_000)
    for n in range(8000):
        store.append("Orders", keys=f"k{n}", msg_id=f"ID{n}", body=bytes(500))
    store.append("%RETRY%G", keys="k4000", msg_id="ID4000", properties={"RETRY_TOPIC": "Orders"}, reconsume_times=1)
    for n in range(50):
        store.append("Orders", keys=f"l{n}", body=bytes(500))
    store.close()
    files = Files()
    opened = Snapshot.find(str(tmp_path), files)
    assert opened.end == store.end  # to find it costs the same for every read
    files.bytes = 0
    rows = history([opened], reading.options_of(tmp_path), "k4000").to_pylist()
    assert [row["event"] for row in rows] == ["produced", "retried"]
    assert files.bytes < store.end / 5

    shutil.rmtree(tmp_path / "index")
    again = history([Snapshot.find(str(tmp_path), Files())], reading.options_of(tmp_path), "k4000")
    assert again.to_pylist() == rows


def test_index_of_a_store_whose_topics_nothing_names(tmp_path: Path) -> None:
    """As with RocksDB for queues and configuration: an index cannot be asked without the topics' names."""
    store = stores.StoreBuilder(tmp_path, index=True)
    for n in range(60):
        store.append("Orders", keys=f"k{n}", msg_id=f"ID{n}", body=b"x")
    store.close()
    expected = [row for row in reading.read(tmp_path) if row["keys"] == "k30"]
    assert len(expected) == 1
    shutil.rmtree(tmp_path / "consumequeue")
    shutil.rmtree(tmp_path / "config")
    for prices in (None, reading.FREE):
        assert reading.read(tmp_path, key="k30", prices=prices) == expected
    assert reference.read_store(tmp_path)[30] == expected[0]


def test_many_messages_of_one_key_cost_no_more_each(tmp_path: Path) -> None:
    def calls(messages: int) -> int:
        store = stores.StoreBuilder(tmp_path / str(messages), segment_size=1 << 20, index=True, index_items=10_000)
        for number in range(messages):
            store.append(keys="same", msg_id=f"ID{number}", body=b"x")
        store.close()
        opened = Snapshot.find(str(store.root), Files())
        count = 0

        def called(frame: Any, event: str, argument: Any) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(called)
        try:
            assert history([opened], reading.options_of(store.root), "same").num_rows == messages
        finally:
            sys.setprofile(None)
        return count

    assert calls(800) < 5 * calls(200)
