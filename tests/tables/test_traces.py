"""Table traces has the records of the trace topic, of every type and of versions old and new."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from oracle import stores
from support import flavours
from support.moved import rows_of

from rmqstore_spark.tables.traces import TRACES

TOPIC = "RMQ_SYS_TRACE_TOPIC"
PUB = ("Pub", "1700000000001", "R", "PG", "Orders", "ID1", "T", "k1 k2", "127.0.0.1:1", "11", "53", "0")
RECORDS: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    (
        (*PUB, "OID", "true", "10.0.0.1"),
        {"offsetMsgId": "OID", "success": True, "clientHost": "10.0.0.1"},
    ),
    ((*PUB, "OID", "false"), {"offsetMsgId": "OID", "success": False, "clientHost": "192.168.1.9"}),
    ((*PUB, "true"), {"offsetMsgId": None, "success": True, "clientHost": "192.168.1.9"}),
    ((*PUB[:6], "null", "null", *PUB[8:10], "x", "99999999999", "OID", "yes"), {
        "tags": None, "keys": None, "costMillis": None, "msgType": None, "success": None, "bodyLength": 11,
    }),
    (
        ("SubBefore", "1700000000002", "R", "CG", "Q", "ID1", "3", "k1"),
        {"requestId": "Q", "retryTimes": 3, "group": "CG", "msgId": "ID1", "keys": "k1", "topic": None},
    ),
    (
        ("SubAfter", "Q", "ID1", "4", "true", "k1", "0", "1700000000003", "CG"),
        {"costMillis": 4, "success": True, "contextCode": 0, "timestamp": 1700000000003000, "group": "CG"},
    ),
    (("SubAfter", "Q", "ID1", "4", "false", "k1"), {"success": False, "contextCode": None, "timestamp": None}),
    (
        ("EndTransaction", "17", "R", "PG", "Orders", "ID1", "T", "k1", "h:1", "2", "TX", "COMMIT_MESSAGE", "true"),
        {"transactionId": "TX", "transactionState": "COMMIT_MESSAGE", "fromTransactionCheck": True, "msgType": 2},
    ),
    (("Recall", "1700000000005", "R", "PG", "Orders", "ID1", "true"), {"success": True, "topic": "Orders"}),
    (("Pub",), {"traceType": "Pub", "timestamp": None, "topic": None, "success": None}),
    (("Later", "1", "2"), {"traceType": "Later", "timestamp": None, "group": None}),
]  # fmt: skip


def encoded(records: Iterable[tuple[str, ...]]) -> bytes:
    return "".join("\1".join(record) + "\2" for record in records).encode()


def test_every_type(tmp_path: Path, rng: random.Random) -> None:
    store = stores.StoreBuilder(tmp_path)
    chosen = rng.sample(RECORDS, len(RECORDS)) + rng.choices(RECORDS, k=60)
    expected: list[tuple[int, dict[str, Any]]] = []
    host = "192.168.1.9:4321"
    while chosen:
        some = [chosen.pop() for _ in range(min(len(chosen), rng.randrange(4)))]
        body = encoded(record for record, _ in some)
        compressed = rng.random() < 0.3 and bool(body)
        at = store.append(
            TOPIC, body=zlib.compress(body) if compressed else body, sys_flag=int(compressed), born_host=host
        )
        store.append("Orders", body=encoded([PUB]))
        expected += [(at, {"traceType": record[0], **values}) for record, values in some]
    store.append(TOPIC, body=b"\2\2" + b"Pub\xff\1\2", born_host=host)
    expected.append((store.messages[-1].position, {"traceType": "Pub\ufffd", "timestamp": None}))
    store.close()
    rows = rows_of(TRACES, tmp_path)
    assert [row["commitLogOffset"] for row in rows] == [at for at, _ in expected]
    for row, (_, values) in zip(rows, expected, strict=True):
        assert {name: row[name] for name in values} == values
    assert rows_of(TRACES, tmp_path, maxPartitionBytes=500) == rows


def test_selections(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path)
    for n in range(4):
        store.append(
            TOPIC, body=encoded([(*PUB[:5], f"ID{n}", "T", f"k{n} all", *PUB[8:], "true")] * 2), keys=f"ID{n} k{n}"
        )
    store.append(TOPIC, body=encoded([PUB, (*PUB[:5], "ID9", *PUB[6:])]), keys="ID1 ID9 k1")
    store.append("Custom", body=encoded([PUB]))
    store.close()
    assert Counter(row["msgId"] for row in rows_of(TRACES, tmp_path)) == {
        "ID0": 2,
        "ID1": 3,
        "ID2": 2,
        "ID3": 2,
        "ID9": 1,
    }
    assert [row["msgId"] for row in rows_of(TRACES, tmp_path, key="ID1")] == ["ID1"] * 3
    assert [row["msgId"] for row in rows_of(TRACES, tmp_path, key="k2")] == ["ID2"] * 2
    assert [row["msgId"] for row in rows_of(TRACES, tmp_path, subscribe="Custom")] == ["ID1"]
    start = stores.FIRST_TIMESTAMP
    times = {"startingTimestamp": start + 2, "endingTimestamp": start + 3}
    assert [row["msgId"] for row in rows_of(TRACES, tmp_path, **times)] == ["ID1", "ID1"]


def test_small_store_of_system_topics(tmp_path: Path) -> None:
    """Two messages were sent and consumed with tracing, and a transaction committed."""
    root, expected = flavours.unpack("system", tmp_path)
    ids = {record["offsetMsgId"]: record for record in expected if record.get("body", "").startswith("tracedbody")}
    rows = rows_of(TRACES, root)
    assert Counter(row["traceType"] for row in rows) == {"Pub": 3, "SubBefore": 2, "SubAfter": 2, "EndTransaction": 1}
    pubs = {row["offsetMsgId"]: row for row in rows if row["topic"] == "Or"}
    assert pubs.keys() == ids.keys()
    for id, record in ids.items():
        assert (pubs[id]["msgId"], pubs[id]["bodyLength"]) == (record["msgId"], len(record["body"]))
        assert (pubs[id]["group"], pubs[id]["success"], pubs[id]["tags"]) == ("TRG", True, "tr")
    assert all(row["timestamp"] <= row["storeTimestamp"] and row["clientHost"] == "127.0.0.1" for row in rows)
    by_request = Counter((row["requestId"], row["msgId"]) for row in rows if row["requestId"])
    assert set(by_request.values()) == {2}
    assert {row["contextCode"] for row in rows if row["traceType"] == "SubAfter"} == {0}
