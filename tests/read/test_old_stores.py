"""Small stores of brokers of 4.0 to 4.8 (tests/interop/older.py): rows, queues, index and times are what the newest
RocketMQ finds in them, and what their own clients sent and got; what a version had otherwise is said here."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from oracle import golden, reference, truth
from support import reading
from support.moved import rows_of

import rmqstore_spark
from rmqstore_spark import Store
from rmqstore_spark.columns import DEFAULT_COLUMNS
from rmqstore_spark.tables.consumequeue import CONSUMEQUEUE
from rmqstore_spark.tables.delayed import DELAYED

VERSIONS = sorted(path.name for path in golden.OLD.iterdir())
OLDEST = "4.0.0-incubating"  # a half message stayed in its own topic, in no queue (until 4.3)
WITH_EXT = "4.3.2"  # tags in consumequeue_ext/
ANEW = ("4.7.1", "4.8.0")  # the broker takes a message's properties apart, and writes them anew
OF_A_PLACE = {"commitLogOffset", "offsetMsgId", "preparedTransactionOffset", "file"}
TRANSACTION = reference.TRANSACTION_BITS
Row = dict[str, Any]


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(version: str, tmp_path: Path) -> Path:
    return golden.unpack(version, tmp_path / "store", golden.OLD)


def _told(version: str) -> list[Row]:
    """What producer and consumer of the broker's own version said."""
    with lzma.open(golden.OLD / version / "told.jsonl.xz", "rt") as lines:
        return [json.loads(line) for line in lines]


def test_every_row_and_every_queue(version: str, root: Path) -> None:
    expected = golden.load_truth(version, golden.OLD)
    plain, stored = reading.read(root), reading.read(root, decompress=False)
    assert len(plain) > 50
    assert truth.as_units(plain, stored) == expected.units
    assert reference.read_store(root) == plain
    truth.assert_queues(root, expected)
    assert [row["problem"] for row in Store(root).check().to_pylist() if row["severity"] != "info"] == []


def test_every_key_and_every_time(version: str, root: Path) -> None:
    expected = golden.load_truth(version, golden.OLD)
    for (topic, key), offsets in list(expected.keys.items())[::3]:
        rows = reading.read(root, subscribe=topic, key=key, columns=["commitLogOffset"], prices=reading.FREE)
        assert [row["commitLogOffset"] for row in rows] == offsets, key
    found = {time: json.loads(Store(root).offsets_at(time)) for time in sorted({t for _, _, t in expected.times})[::9]}
    for (topic, queue_id, time), offset in expected.times.items():
        # Where all messages are older, a broker answers with the last offset, and not with the end.
        if time in found and (at := found[time][topic][str(queue_id)]) < expected.bounds[topic, queue_id][1]:
            assert at == offset, (topic, queue_id, time)


def test_selections(root: Path) -> None:
    rows = reading.read(root)
    for options, wanted in (
        ({"subscribe": "Orders"}, lambda row: row["topic"] == "Orders"),
        ({"subscribe": "Orders", "tags": "tag-1"}, lambda row: (row["topic"], row["tags"]) == ("Orders", "tag-1")),
        ({"subscribe": "SCHEDULE_TOPIC_XXXX"}, lambda row: row["topic"] == "SCHEDULE_TOPIC_XXXX"),
        ({"key": "transaction-0"}, lambda row: row["keys"] == "transaction-0"),
    ):
        assert reading.read(root, prices=reading.FREE, **options) == list(filter(wanted, rows))


def test_what_clients_sent_and_got(version: str, root: Path) -> None:
    told, rows = _told(version), reading.read(root)
    by_place = {
        (row["queueId"], row["queueOffset"]): row for row in rows if row["topic"] == "Orders" and _is_queued(row)
    }
    sent = [record for record in told if record["kind"] == "ack" and record["step"] == "sent"]
    assert len(sent) == 33
    for record in sent:
        row = by_place[record["queueId"], record["queueOffset"]]
        same = ("msgId", "tags", "keys", "flag")
        assert [row[name] for name in same] == [record[name] for name in same]
        assert truth.sha256(row["body"]) == record["body"]
        is_long = int(record["keys"].partition("-")[2]) % 4 == 0
        assert row["sysFlag"] == is_long  # bit 0 alone is zlib: no version before 4.9.4 says how a body is compressed
    got = [record for record in told if record["kind"] == "message"]
    assert {(record["queueId"], record["queueOffset"]) for record in got} == by_place.keys()
    for record in got:
        row = by_place[record["queueId"], record["queueOffset"]]
        assert (record["commitLogOffset"], record["body"]) == (row["commitLogOffset"], truth.sha256(row["body"]))
        # Its value has the byte 01 in it: who read properties then dropped it, a client or a broker; today nobody does.
        assert "odd" not in record["properties"]
        is_kept = int(row["properties"].get("number", 1)) % 10 == 0 and version not in ANEW
        assert row["properties"].get("odd") == ("a\x01b" if is_kept else None)
        assert ("CLUSTER" in row["properties"]) == (version in ANEW) or row["tags"] == "batch"
        in_common = record["properties"].keys() & row["properties"].keys()
        assert {name: record["properties"][name] for name in in_common} == {n: row["properties"][n] for n in in_common}


def _is_queued(row: Row) -> bool:
    return row["sysFlag"] & TRANSACTION in (0, reference.COMMIT)


def test_transactions(version: str, root: Path) -> None:
    """Before 4.3 half messages and rolled-back ones stood in their topic, and no broker asked what became of them."""
    rows = [row for row in reading.read(root, subscribe="Orders") if (row["keys"] or "").startswith("transaction")]
    kinds = Counter(row["sysFlag"] & TRANSACTION for row in rows)
    states = Counter(row["state"] for row in Store(root).transactions().to_pylist())
    assert [row["keys"] for row in rows if _is_queued(row)] == ["transaction-0", "transaction-3"]
    if version == OLDEST:
        assert kinds == {reference.PREPARED: 6, reference.COMMIT: 2, reference.ROLLBACK: 2}
        assert {row["queueOffset"] for row in rows if not _is_queued(row)} == {0}
        halves = {row["commitLogOffset"] for row in rows if row["sysFlag"] & TRANSACTION == reference.PREPARED}
        assert {row["preparedTransactionOffset"] for row in rows} - {0} <= halves
        assert states == {}
    else:
        assert kinds == {reference.COMMIT: 2}
        assert states == {"committed": 2, "rolledBack": 2, "open": 2}


def test_delayed_messages(version: str, root: Path) -> None:
    """Five that wait for two hours, one that a consumer asked for again, and two that have been delivered."""
    rows = rows_of(DELAYED, root)
    assert Counter(row["state"] for row in rows) == {"pending": 6, "delivered": 2}
    for row in rows:
        wait = {1: 1_000_000, 18: 7_200_000_000}[row["delayLevel"]]
        assert row["deliverTimestamp"] == row["storeTimestamp"] + wait  # also where it stands in consumequeue_ext/
    assert [row["keys"] for row in rows if row["realQueueId"] is None] == ["key-1"]
    (given_up,) = reading.read(root, subscribe="%DLQ%billing")
    assert given_up["keys"] == "key-2"
    units = rows_of(CONSUMEQUEUE, root, subscribe="SCHEDULE_TOPIC_XXXX")
    assert {row["filterBitMap"] is not None or row["storeTimestamp"] is not None for row in units} == {
        version == WITH_EXT
    }


def test_what_else_tables_say(version: str, root: Path) -> None:
    """All that was in the queues when the group stopped was consumed; what later versions have is not there."""
    offsets = [
        row for row in Store(root).offsets().to_pylist() if row["group"] == "billing" and row["topic"] == "Orders"
    ]
    assert [row["consumerOffset"] - row["maxOffset"] for row in offsets] == [0, 0]
    checkpoint = Store(root).checkpoint().to_pylist()[0]
    assert not checkpoint["abort"]
    unknown = {row["topic"] for row in Store(root).topics().to_pylist() if not row["configured"]}
    expected = {"RMQ_SYS_TRANS_OP_HALF_TOPIC"} if version != OLDEST else set()
    assert unknown == (expected if version in ANEW else expected | {"SCHEDULE_TOPIC_XXXX"})
    (index,) = Store(root).indexfiles().to_pylist()
    assert (index["usedSlots"] < index["items"]) == (version in ANEW)  # before, each item counted
    assert checkpoint["masterFlushedOffset"] == checkpoint["confirmPhyOffset"] == 0  # which came with 5.0 and 5.1.1


def test_a_rebuild_and_an_append(version: str, root: Path) -> None:
    """Queues made anew are those that the broker made, and messages go on behind them."""
    expected = golden.load_truth(version, golden.OLD)
    if version != WITH_EXT:  # tagsCodes in the queue itself say the same
        rmqstore_spark.rebuild(root)
        truth.assert_queues(root, expected)
    before = reading.read(root)
    new_row = {"topic": "Orders", "queueId": 0, "body": b"new", "keys": "new"}
    rmqstore_spark.write_store(root, pa.Table.from_pylist([new_row]), mode="append")
    rows = reading.read(root)
    assert rows[: len(before)] == before
    (new,) = rows[len(before) :]
    assert new["queueOffset"] == expected.bounds["Orders", 0][1]
    assert reading.read(root, key="new") == [new]
    assert [row["problem"] for row in Store(root).check().to_pylist() if row["severity"] != "info"] == []


def test_a_copy(version: str, root: Path, tmp_path: Path) -> None:
    """Each message is in it as it was, but for its place in the log."""
    copied = Store(root).copy(tmp_path / "copy")
    columns = [name for name in DEFAULT_COLUMNS if name not in OF_A_PLACE]
    rows = reading.read(tmp_path / "copy", columns=columns)
    assert rows == reading.read(root, columns=columns)
    assert copied.messages == len(rows) > 50
    assert copied.lost.num_rows == 0
    assert [row["problem"] for row in Store(tmp_path / "copy").check().to_pylist() if row["severity"] != "info"] == []
