"""Tables delayed, transactions and inflight say what became of messages that were put aside."""

from __future__ import annotations

import json
import random
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from oracle import golden, reference, stores
from support import flavours
from support.moved import assert_scenario, rows_of

from rmqstore_spark import Store
from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.tables.delayed import DELAYED
from rmqstore_spark.tables.inflight import INFLIGHT
from rmqstore_spark.tables.transactions import TRANSACTIONS

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF, ROCKSDB_OP = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
TIMER, SCHEDULE, REVIVE = "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX", "rmq_sys_REVIVE_LOG_c"
NOW = stores.FIRST_TIMESTAMP


def configure(root: Path, name: str, content: object) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / name).write_text(json.dumps(content))


def states(root: Path, table: Any, **options: Any) -> dict[str, str]:
    return {row["msgId"]: row["state"] for row in rows_of(table, root, **options)}


# ---- real stores


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_golden_stores(tmp_path: Path, version: str) -> None:
    assert_scenario(golden.unpack(version, tmp_path / "store"), version)


def test_small_store_of_system_topics(tmp_path: Path) -> None:
    root, expected = flavours.unpack("system", tmp_path)
    recalled = [record["key"] for record in expected if record["event"] == "recalled"]
    timers = {row["keys"]: row["state"] for row in rows_of(DELAYED, root) if row["kind"] == "timer"}
    assert [key for key, state in timers.items() if state == "cancelled"] == recalled == ["timer4"]
    assert [key for key, state in timers.items() if state == "delivered"] == ["timer0", "timer1"]
    assert [key for key, state in timers.items() if state == "pending"] == ["timer2", "timer3", "timer5"]
    levels = {(r["keys"], r["delayLevel"]): r["state"] for r in rows_of(DELAYED, root) if r["kind"] == "level"}
    assert levels == {
        ("dl0", 1): "delivered",
        ("dl1", 3): "delivered",
        ("dl2", 7): "pending",
        ("dl3", 8): "pending",
        ("k1", 3): "delivered",
    }

    names = {"COMMIT_MESSAGE": "committed", "ROLLBACK_MESSAGE": "rolledBack", "UNKNOW": "open"}
    ended = {record["msgId"]: names[record["state"]] for record in expected if record["event"] == "tx"}
    found = states(root, TRANSACTIONS)
    assert {id: found[id] for id in ended} == ended
    assert Counter(found.values()) == {"committed": 4, "rolledBack": 1, "open": 2}

    popped, visible = set(), {}
    for record in expected:
        place = record.get("topic", "Or"), record.get("queueId"), record.get("queueOffset")
        match record["event"]:
            case "pop" | "popOrderly":
                popped.add((record["group"], *place))
                visible[place] = record["popTime"] + record["invisible"]
            case "ack":
                # Of the two topics that were popped, the one in which this offset waits.
                topic = "Ff" if any(p[1] == "Ff" for p in popped) else "Or"
                popped = {p for p in popped if p[1:] != (topic, *place[1:])}
    rows = rows_of(INFLIGHT, root)
    assert {(row["group"], row["topic"], row["queueId"], row["queueOffset"]) for row in rows} == popped
    assert len(rows) == len(popped) == 4
    assert {row["retries"] for row in rows} == {0}
    changed = ("Or", 1, 2)  # its time was changed
    for row in rows:
        place = row["topic"], row["queueId"], row["queueOffset"]
        assert (row["visibleTimestamp"] == visible[place] * 1000) == (place != changed)


def test_small_stores_with_rocksdb(tmp_path: Path) -> None:
    root, expected = flavours.unpack("rocksdb-trans", tmp_path)
    names = {"COMMIT_MESSAGE": "committed", "ROLLBACK_MESSAGE": "rolledBack", "UNKNOW": "open"}
    assert states(root, TRANSACTIONS) == {r["msgId"]: names[r["state"]] for r in expected if r["event"] == "tx"}
    assert {row["checkTimes"] for row in rows_of(TRANSACTIONS, root)} == {None}

    root, _ = flavours.unpack("rocksdb-all", tmp_path)
    timers = {row["keys"]: row["state"] for row in rows_of(DELAYED, root)}
    assert Counter(timers.values()) == {"delivered": 2, "pending": 3, "cancelled": 1}
    assert timers["timer4"] == "cancelled"
    assert [(row["queueId"], row["queueOffset"]) for row in rows_of(INFLIGHT, root)] == [(0, 1), (1, 2)]


# ---- transactions


def test_op_messages_of_rocksdb_in_a_copy(tmp_path: Path) -> None:
    """They name transaction ids, and physical offsets of the old log: that of another half message here, once that of
    the half message itself, and of one without msgId."""
    store = stores.StoreBuilder(tmp_path)
    at = {name: half_in_rocksdb(store, name) for name in ("a", "b", "c", "d")}
    nameless = store.append(ROCKSDB_HALF, properties={"REAL_TOPIC": "Orders", "REAL_QID": "0"})
    by_id = {"REAL_TOPIC": "Orders", "__transactionId__": "a", "TRANS_OFFSET": str(at["b"])}
    store.append(ROCKSDB_OP, body=b"\0", properties=by_id)
    store.append(ROCKSDB_OP, body=b"\0", properties={"TRANS_OFFSET": str(at["c"])})
    for text in ("none", str(nameless)):
        other = {"REAL_TOPIC": "Orders", "__transactionId__": "other", "TRANS_OFFSET": text}
        store.append(ROCKSDB_OP, body=b"\0", properties=other)
    store.append(ROCKSDB_OP, body=b"\0", properties={**by_id, "REAL_TOPIC": "Others", "__transactionId__": "d"})
    store.close()
    found = {"a": "rolledBack", "b": "open", "c": "rolledBack", "d": "open", None: "rolledBack"}
    assert states(tmp_path, TRANSACTIONS) == found
    for name, state in found.items():
        if name is not None:
            events = [row["event"] for row in Store(tmp_path).history(name).to_pylist()]
            assert events == ["prepared"] + ["rolled back"] * (state == "rolledBack"), name


def test_transactions_of_a_copy_with_rocksdb(tmp_path: Path) -> None:
    root, _ = flavours.unpack("rocksdb-trans", tmp_path)
    first, *others = states(root, TRANSACTIONS).items()
    Store(root).copy(tmp_path / "copy", excludeMsgId=first[0])  # the others move
    assert states(tmp_path / "copy", TRANSACTIONS) == dict(others)
    assert {state for _, state in others} == {"committed", "rolledBack", "open"}


def half_in_rocksdb(store: stores.StoreBuilder, name: str) -> int:
    properties = {"REAL_TOPIC": "Orders", "REAL_QID": "0", "__transactionId__": name}
    return store.append(ROCKSDB_HALF, msg_id=name, keys=name, properties=properties)


def half(store: stores.StoreBuilder, name: str, **properties: str) -> int:
    names = {"REAL_TOPIC": "Orders", "REAL_QID": "0", "PGROUP": "P", **properties}
    return store.append(HALF, body=f"body of {name}".encode(), msg_id=name, keys=f"key-{name}", properties=names)


def commit(store: stores.StoreBuilder, name: str, at: int) -> None:
    store.append("Orders", body=b"x", msg_id=name, sys_flag=reference.COMMIT, prepared_transaction_offset=at)


def test_states_of_transactions(tmp_path: Path) -> None:
    """The first half message is at offset 0, which is also what other messages name."""
    store = stores.StoreBuilder(tmp_path)
    first = half(store, "first")
    assert first == 0
    committed = half(store, "committed")
    half(store, "rolled back")
    half(store, "checked")
    half(store, "given up")
    half(store, "copied")
    store.append("Orders", body=b"x", msg_id="first")  # sent by somebody else
    store.append("Orders", body=b"x", msg_id="other", sys_flag=reference.COMMIT)
    commit(store, "committed", committed)
    store.append(OP, body=b"7,2,x,,1,99999999999999999999,-3,", tags="d")
    store.append(OP, body=b"5\xff", tags="d")
    half(store, "checked", TRANSACTION_CHECK_TIMES="2")
    half(store, "immune", TRAN_PREPARED_QUEUE_OFFSET="7")
    half(store, "odd", TRANSACTION_CHECK_TIMES="many")
    store.append("TRANS_CHECK_MAX_TIME_TOPIC", msg_id="copied", properties={"REAL_TOPIC": "Orders"})
    store.close()
    expected = {
        "first": "givenUp",
        "committed": "committed",
        "rolled back": "rolledBack",
        "checked": "open",
        "given up": "givenUp",
        "copied": "givenUp",
        "immune": "rolledBack",
        "odd": "open",
    }
    configure(tmp_path, "consumerOffset.json", {"offsetTable": {f"{HALF}@CID_RMQ_SYS_TRANS": {"0": 6}}})
    assert states(tmp_path, TRANSACTIONS) == expected
    rows = {row["msgId"]: row for row in rows_of(TRANSACTIONS, tmp_path)}
    assert [rows[name]["checkTimes"] for name in ("first", "checked", "odd")] == [0, 2, 0]
    assert rows["checked"]["keys"] == "key-checked"
    assert rows["checked"]["storeTimestamp"] == (NOW + 4) * 1000

    commit(store, "first", 0)
    store.close()
    configure(tmp_path, "consumerOffset.json", {"offsetTable": {}})
    assert states(tmp_path, TRANSACTIONS) == {**expected, "first": "committed", "given up": "open"}
    for options in ({"subscribe": "Other"}, {"endingTimestamp": NOW + 1}):
        assert rows_of(TRANSACTIONS, tmp_path, **options) == []
    selected = rows_of(TRANSACTIONS, tmp_path, subscribe="Orders", startingTimestamp=NOW + 3, endingTimestamp=NOW + 4)
    assert [row["msgId"] for row in selected] == ["rolled back"]


def test_no_transactions(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path)
    store.append("Orders", body=b"x")
    store.close()
    for table in (TRANSACTIONS, DELAYED, INFLIGHT):
        assert rows_of(table, tmp_path) == []


@pytest.mark.slow
def test_many_transactions(tmp_path: Path, rng: random.Random) -> None:
    """More of them than ids are looked up one by one; against what was done to each."""
    store = stores.StoreBuilder(tmp_path, segment_size=1 << 20, queue_file_size=20_000)
    expected = {}
    for n in range(5000):
        at, name = half(store, f"id{n}"), f"id{n}"
        expected[name] = rng.choice(("open", "committed", "rolledBack"))
        if expected[name] == "committed":
            commit(store, name, at)
        if expected[name] != "open":
            store.append(OP, body=f"{n},".encode(), tags="d")
    store.close()
    assert states(tmp_path, TRANSACTIONS) == expected


def test_damage(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path)
    for name in ("whole", "damaged", "last"):
        half(store, name)
    store.close()
    path = store.segment(0)
    data = bytearray(path.read_bytes())
    data[data.index(b"body of damaged")] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedStoreError):
        rows_of(TRANSACTIONS, tmp_path)
    for mode in ("DROPMALFORMED", "PERMISSIVE"):
        assert list(states(tmp_path, TRANSACTIONS, mode=mode)) == ["whole", "last"]


# ---- delayed


def test_levels(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path)

    def park(name: str, level: int, topic: str = "Orders", **fields: Any) -> None:
        names = {"REAL_TOPIC": topic, "REAL_QID": "3", "DELAY": str(level), "RETRY_TOPIC": "Orders"}
        store.append(SCHEDULE, queue_id=level - 1, msg_id=name, properties=names, body=b"x", **fields)

    park("delivered", 1)
    park("not told", 1)
    park("waiting", 1)
    park("far", 18)
    park("retried", 2, "%RETRY%G", reconsume_times=2)
    store.append("%RETRY%G", msg_id="retried", body=b"x", reconsume_times=1)
    store.append("Orders", msg_id="not told", body=b"x", store_timestamp=NOW + 60_000)
    store.close()
    configure(tmp_path, "delayOffset.json", {"offsetTable": {"1": 1}})
    rows = {row["msgId"]: row for row in rows_of(DELAYED, tmp_path)}
    assert {name: row["state"] for name, row in rows.items()} == {
        "delivered": "delivered",
        "not told": "delivered",
        "waiting": "pending",
        "far": "pending",
        "retried": "pending",
    }
    assert [rows[name]["deliverTimestamp"] for name in ("waiting", "far")] == [
        (NOW + 3 + 1000) * 1000,
        (NOW + 4 + 7_200_000) * 1000,
    ]
    assert (rows["far"]["realTopic"], rows["far"]["realQueueId"], rows["far"]["delayLevel"]) == ("Orders", 3, 18)
    assert (rows["retried"]["realTopic"], rows["retried"]["realQueueId"]) == ("Orders", None)
    store.append("%RETRY%G", msg_id="retried", body=b"x", reconsume_times=2)
    store.close()
    configure(tmp_path, "delayOffset.json", {"offsetTable": {"1": 1}})
    assert states(tmp_path, DELAYED)["retried"] == "delivered"
    store.drop_queues()
    assert {row["deliverTimestamp"] for row in rows_of(DELAYED, tmp_path)} == {None}


def test_timers(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path)

    def wait(name: str, out: int, topic: str = "Orders", **properties: str) -> None:
        names = {"REAL_TOPIC": topic, "REAL_QID": "1", "TIMER_OUT_MS": str(out), **properties}
        store.append(TIMER, msg_id=name, properties=names, body=b"x")

    def cancel(victim: str, out: int, named: str) -> None:
        wait(f"cancel {victim}", out, TIMER_DEL_UNIQKEY=named)

    wait("done", NOW + 1000, TIMER_DELIVER_MS=str(NOW + 1001))
    wait("seconds", NOW + 90_000, TIMER_DELAY_SEC="90")
    wait("recalled", NOW + 90_000, TIMER_DELAY_MS="90500")
    wait("recalled since 5.4", NOW + 90_000)
    wait("of another time", NOW + 90_000)
    wait("recalled too late", NOW + 1000)
    wait("rolled", NOW + 300_000_000, TIMER_DELAY_SEC="300000")
    wait("rolled", NOW + 300_000_000, TIMER_DELAY_SEC="300000", TIMER_ROLL_TIMES="1")
    wait("just delivered", NOW + 30_000)
    wait("late", NOW + 30_000)
    wait("odd", NOW + 90_000, TIMER_DELAY_SEC="999999999999999")
    wait("Orders@0@0@G@1@b@ck", NOW + 90_000, REVIVE)
    cancel("recalled", NOW + 90_000, "recalled")
    cancel("recalled since 5.4", NOW + 90_000, "Orders+recalled since 5.4")
    cancel("of another time", NOW + 91_000, "of another time")
    store.append("Orders", msg_id="recalled too late", body=b"x")
    cancel("recalled too late", NOW + 1000, "recalled too late")
    store.append("Orders", msg_id="just delivered", body=b"x", store_timestamp=NOW + 40_000)
    store.close()
    (tmp_path / "config" / "timercheck").write_bytes(struct.pack(">qq", NOW + 20_000, 0).ljust(4096, b"\0"))
    rows = {row["msgId"]: row for row in rows_of(DELAYED, tmp_path)}
    assert {name: row["state"] for name, row in rows.items()} == {
        "done": "delivered",
        "seconds": "pending",
        "recalled": "cancelled",
        "recalled since 5.4": "cancelled",
        "of another time": "pending",
        "recalled too late": "delivered",
        "rolled": "pending",
        "just delivered": "delivered",
        "late": "pending",
        "odd": "pending",
    }
    due = {name: None if (at := row["deliverTimestamp"]) is None else at // 1000 - NOW for name, row in rows.items()}
    assert (due["done"], due["seconds"], due["recalled"]) == (1001, 2 + 90_000, 3 + 90_500)
    assert (due["of another time"], due["rolled"], due["odd"]) == (90_000, 7 + 300_000_000, None)
    assert {row["delayLevel"] for row in rows.values()} == {None}


# ---- in flight


def checkpoint(start: int, pop_time: int, invisible: int, steps: list[Any] | None, **more: Any) -> dict[str, Any]:
    common = {"bm": 0, "c": "G", "it": invisible, "pt": pop_time, "q": 0, "so": start, "t": "Orders"}
    return common | ({} if steps is None else {"d": steps, "n": len(steps)}) | more


def test_in_flight(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path, segment_size=1 << 20)

    def tell(tags: str, record: object, topic: str = TIMER, real: str = REVIVE) -> None:
        body = record if isinstance(record, bytes) else json.dumps(record).encode()
        store.append(topic, body=body, tags=tags, properties={"REAL_TOPIC": real})

    def acknowledge(**record: Any) -> dict[str, Any]:
        return {"c": "G", "pt": NOW, "q": 0, "so": 0, "t": "Orders", **record}

    store.append("%RETRY%G_Orders", body=b"x", reconsume_times=4)
    tell("ack", acknowledge(ao=7))  # came before what it acknowledges
    tell("ck", checkpoint(0, NOW, 60_000, [0, 2, 5, 7, 9], bm=0b10000))
    tell("ck", checkpoint(20, NOW, 60_000, None, n=2))
    tell("ck", checkpoint(30, NOW, 1, [0]))  # visible again
    tell("ck", checkpoint(0, NOW + 1, 60_000, [0], t="%RETRY%G_Orders"))
    tell("ck", checkpoint(40, NOW, 60_000, [0]), REVIVE)
    tell("ck", checkpoint(50, NOW, 60_000, [0]), real="Orders")  # an application's
    tell("ack", acknowledge(ao=2))
    tell("ack", acknowledge(ao=5, c="Other"))
    tell("bAck", acknowledge(so=20, ao=0, aol=[20, 21, "x"]))
    for odd in (b"{", b"[]", b"[" * 100_000, b"\xff", {"c": 1}, checkpoint(0, NOW, 60_000, [-1, "x", 1 << 63])):
        tell("ck", odd)
        tell("ack", odd)
    store.close()
    found = {(r["topic"], r["queueOffset"]): r for r in rows_of(INFLIGHT, tmp_path)}
    assert set(found) == {("Orders", 0), ("Orders", 5), ("Orders", 40), ("%RETRY%G_Orders", 0)}
    assert found["Orders", 0] == {
        "group": "G",
        "topic": "Orders",
        "queueId": 0,
        "queueOffset": 0,
        "popTimestamp": NOW * 1000,
        "visibleTimestamp": (NOW + 60_000) * 1000,
        "retries": 0,
    }
    assert found["%RETRY%G_Orders", 0]["retries"] == 4
    assert len(rows_of(INFLIGHT, tmp_path, subscribe="Orders")) == 3
    assert rows_of(INFLIGHT, tmp_path, assign='{"Orders": [1]}') == []


def test_in_flight_in_order(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path)
    store.append("Orders", body=b"x", store_timestamp=NOW)
    store.close()
    info = {
        "cm": 2,
        "i": 60_000,
        "o": [10, 1, 2, 4],
        "popTime": NOW,
        "ot": {"14": NOW + 5},
        "oc": {"12": 3, "14": 1 << 31},
    }
    old = {"i": 1000, "o": [1], "popTime": NOW - 1000}
    odd = [{"i": 1, "o": [0]}, {"o": "x"}, 7, {**info, "o": [1, "x"]}, {**info, "o": []}]
    table = {"Orders@G": {"0": info, "1": old, "x": info}, "Orders": {"0": info}, "Odd@G": dict(enumerate(odd))}
    configure(tmp_path, "consumerOrderInfo.json", {"table": table})
    rows = rows_of(INFLIGHT, tmp_path)
    assert [(r["queueOffset"], r["visibleTimestamp"] // 1000 - NOW, r["retries"]) for r in rows] == [
        (10, 60_000, 0),
        (12, 60_000, 3),
        (14, 5, 0),
    ]
    assert {(r["group"], r["topic"], r["queueId"], r["popTimestamp"]) for r in rows} == {("G", "Orders", 0, NOW * 1000)}
