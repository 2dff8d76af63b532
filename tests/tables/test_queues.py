"""Tables topics, queues and offsets have what RocketMQ and the plain reader say is in stores."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import tarfile
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from oracle import aged_stores, golden, reference, stores
from support.flavours import unpack_store

from native_io import list_queue_ids
from rmqstore_spark import OptionError, Store
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures import queue_heads
from rmqstore_spark.tables.queues import queue_facts

Row = dict[str, Any]
Queues = dict[tuple[str, int], list[Row]]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OLD_SEARCH = ("4.9.7",)  # before 5.1.1 a broker answers the message nearest to the time, even an older one


def microseconds(time: datetime | None) -> int | None:
    return None if time is None else (time - EPOCH) // timedelta(microseconds=1)


def by_queue(root: Path) -> Queues:
    """The messages that are in queues, as the plain reader finds them."""
    found: Queues = defaultdict(list)
    for row in reference.read_store(root):
        if row["sysFlag"] & reference.TRANSACTION_BITS in (0, reference.COMMIT):
            found[row["topic"], row["queueId"]].append(row)
    return found


def assert_queues(root: Path, rows: list[Row]) -> None:
    messages = by_queue(root)
    for row in rows:
        expected = messages.pop((row["topic"], row["queueId"]), [])
        assert row["messages"] == row["maxOffset"] - row["minOffset"] == len(expected)
        for first, last, name in (
            ("minOffset", "maxOffset", "queueOffset"),
            ("firstCommitLogOffset", "lastCommitLogOffset", "commitLogOffset"),
            ("firstStoreTimestamp", "lastStoreTimestamp", "storeTimestamp"),
        ):
            found = [row[first], row[last]]
            if name == "queueOffset":
                if expected:
                    assert found == [expected[0][name], expected[-1][name] + 1]
            elif name == "storeTimestamp":
                assert list(map(microseconds, found)) == (
                    [e[name] for e in (expected[0], expected[-1])] if expected else [None, None]
                )
            else:
                assert found == ([e[name] for e in (expected[0], expected[-1])] if expected else [None, None])
    assert messages == {}


@pytest.fixture(scope="module", params=golden.VERSIONS)
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    return request.param, golden.unpack(request.param, tmp_path_factory.mktemp("golden") / "store")


def test_queues_of_real_stores(real: tuple[str, Path]) -> None:
    version, root = real
    rows = Store(root).queues().to_pylist()
    bounds = {(row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"]) for row in rows}
    told = golden.load_truth(version).bounds
    assert bounds.items() <= told.items()
    assert all(told[queue] == (0, 0) for queue in told.keys() - bounds.keys())  # made by being asked for
    assert_queues(root, rows)
    for row in rows:
        files = list((root / "consumequeue" / row["topic"] / str(row["queueId"])).iterdir())
        assert (row["queueType"], row["files"]) == ("simple", len(files))
        assert row["sizeOnDisk"] == sum(file.stat().st_blocks * 512 for file in files)


def test_topics_of_real_stores(real: tuple[str, Path]) -> None:
    _, root = real
    topics = {row["topic"]: row for row in Store(root).topics().to_pylist()}
    messages = by_queue(root)
    entries = json.loads((root / "config" / "topics.json").read_text())["topicConfigTable"]
    assert {name for name, row in topics.items() if row["configured"]} == set(entries)
    assert set(topics) >= {topic for topic, _ in messages}
    for name, row in topics.items():
        queues = {queue: rows for queue, rows in messages.items() if queue[0] == name}
        assert row["messages"] == sum(map(len, queues.values()))
        times = [m["storeTimestamp"] for rows in queues.values() for m in rows]
        assert microseconds(row["lastStoreTimestamp"]) == max(times, default=None)
        if row["configured"]:
            assert row["readQueueNums"] == entries[name]["readQueueNums"]
            assert (row["messageType"], row["cleanupPolicy"], row["queueType"]) == ("NORMAL", "DELETE", "SimpleCQ")
    kinds = {name: row["kind"] for name, row in topics.items()}
    assert kinds["Plain"] == "user"
    assert kinds["%RETRY%failing-group"] == "retry"
    assert kinds["%DLQ%failing-group"] == "dlq"
    for name in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102", "bench", "bench-cluster"):
        assert kinds[name] == "system", name
    assert topics["TBW102"]["perm"] == "RWX"
    assert topics["Plain"]["perm"] == "RW-"


def test_bytes_of_topics(real: tuple[str, Path]) -> None:
    _, root = real
    expected: dict[str, int] = defaultdict(int)
    for row in reference.read_store(root):
        expected[row["topic"]] += row["storeSize"]
    store = Store(root)
    assert "bytes" not in store.topics().column_names  # it costs more than the others
    rows = store.topics(["topic", "bytes"]).to_pylist()
    assert {row["topic"]: row["bytes"] for row in rows} == {row["topic"]: expected[row["topic"]] for row in rows}
    assert {row["topic"] for row in rows} >= expected.keys()
    some = store.topics(["bytes", "messages", "store"], subscribe="Plain").to_pylist()
    assert some == [{"bytes": expected["Plain"], "messages": len(by_topic(root, "Plain")), "store": str(root)}]


def by_topic(root: Path, topic: str) -> list[Row]:
    return [row for queue, rows in by_queue(root).items() if queue[0] == topic for row in rows]


def test_bytes_of_light_queues_are_those_of_other_topics(tmp_path: Path) -> None:
    rows = Store(unpack_store("system", tmp_path)).topics(["topic", "bytes", "messages"]).to_pylist()
    light = [row for row in rows if row["topic"].startswith("%LMQ%")]
    assert [(row["bytes"], row["messages"]) for row in light] == [(None, 1), (None, 1)]
    assert all((row["bytes"] == 0) == (row["messages"] == 0) for row in rows if row not in light)


def test_offsets_of_real_stores(real: tuple[str, Path]) -> None:
    _, root = real
    messages = by_queue(root)
    rows = Store(root).offsets().to_pylist()
    assert {(row["group"], row["topic"]) for row in rows} >= {("partial-group", "Plain"), ("failing-group", "Retried")}
    for row in rows:
        queue = messages[row["topic"], row["queueId"]]
        rest = [m for m in queue if m["queueOffset"] >= row["consumerOffset"]]
        before = [m for m in queue if m["queueOffset"] < row["consumerOffset"]]
        assert row["lag"] == len(rest)
        assert microseconds(row["lastConsumedTimestamp"]) == (before[-1]["storeTimestamp"] if before else None)
        since = (before[-1:] or queue[:1] or [{}])[0].get("storeTimestamp")
        assert row["lagMillis"] == ((queue[-1]["storeTimestamp"] - since) // 1000 if rest and since else 0)
        assert row["expired"] is False


def test_groups_of_real_stores(real: tuple[str, Path]) -> None:
    _, root = real
    entries = json.loads((root / "config" / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    rows = {row["group"]: row for row in Store(root).groups().to_pylist()}
    assert {name for name, row in rows.items() if row["configured"]} == set(entries)
    assert rows["failing-group"]["topics"] == ["%RETRY%failing-group", "Retried"]
    assert rows["failing-group"]["consumeEnable"] is True
    assert rows["failing-group"]["retryMaxTimes"] == entries["failing-group"]["retryMaxTimes"]


# ---- positions


def test_offsets_at_what_rocketmq_finds(real: tuple[str, Path]) -> None:
    version, root = real
    store, messages = Store(root), by_queue(root)
    times = golden.load_truth(version).times
    asked = sorted({time for _, _, time in times})
    asked = asked[:: len(asked) // 10] + asked[-2:]
    found = {time: json.loads(store.offsets_at(time)) for time in asked}
    for (topic, queue_id, time), online in times.items():
        if time not in found:
            continue
        queue = messages[topic, queue_id]
        later = [m["queueOffset"] for m in queue if m["storeTimestamp"] >= time * 1000]
        offset = found[time][topic][str(queue_id)]
        assert offset == (later[0] if later else queue[-1]["queueOffset"] + 1)
        # A broker answers the last offset, and not the end, where all messages are older.
        assert offset == online or version in OLD_SEARCH or not later


def test_offsets_of_a_group_are_starting_offsets(real: tuple[str, Path]) -> None:
    _, root = real
    store = Store(root)
    offsets = json.loads(store.offsets_of("partial-group"))
    assert set(offsets) - {"%RETRY%partial-group"} == {"Plain"}
    offsets = {"Plain": offsets["Plain"]}
    columns = ["topic", "queueId", "queueOffset"]
    rest = store.messages(columns, subscribe="Plain", startingOffsets=offsets).read_all().to_pylist()
    assert rest == store.messages(columns, startingOffsets="group:partial-group").read_all().to_pylist()
    assert sum(store.offsets(subscribe="Plain")["lag"].to_pylist()) == len(rest) > 0
    with pytest.raises(OptionError, match=r"offsets_of: no store has .* 'partial-grop'\. Did you mean 'partial-group'"):
        store.offsets_of("partial-grop")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A store with one message and a group, and all of config/ that tables tell of."""
    builder = stores.StoreBuilder(tmp_path / "store")
    builder.append("Orders", b"x")
    builder.close()
    for name, content in {
        "topics": '{"topicConfigTable":{"Orders":{}}}',
        "consumerOffset": '{"offsetTable":{"Orders@G":{0:0}}}',
        "subscriptionGroup": '{"subscriptionGroupTable":{"G":{}}}',
    }.items():
        (tmp_path / "store" / "config" / f"{name}.json").write_text(content)
    return tmp_path / "store"


@pytest.mark.parametrize(
    ("name", "tables"),
    [
        ("topics", ["topics"]),
        ("consumerOffset", ["groups", "offsets"]),
        ("subscriptionGroup", ["groups"]),
    ],
)
def test_a_config_file_that_cannot_be_read_is_told(
    small: Path, name: str, tables: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        caplog.clear()
        store = Store(small)
        store.topics(), store.groups(), store.offsets()
        return caplog.messages

    path = small / "config" / f"{name}.json"
    assert told() == []
    good = path.read_text()
    path.write_text("{oops")
    said = told()
    assert all(text.startswith(f"{path}: expected JSON as a broker writes it (") for text in said)
    assert [text.partition(" lacks its contents")[0].rpartition("; so table ")[2] for text in said] == [
        repr(table) for table in tables
    ]
    path.with_name(f"{name}.json.bak").write_text(good)
    (taken,) = told()  # as a broker takes it
    assert taken.startswith(f"{path}: is missing, or cannot be read: its backup is taken, of 20")
    assert told() == []
    path.with_name(f"{name}.json.bak").unlink()
    path.unlink()
    assert told() == []
    path.mkdir()
    assert len(told()) == len(tables)


def test_a_group_whose_offsets_cannot_be_read(small: Path) -> None:
    (small / "config" / "consumerOffset.json").write_text("{oops")
    with pytest.raises(OptionError, match=r"where consumer group 'G' stands is not known: /.*\.json: expected"):
        Store(small).messages(startingOffsets="group:G")


def test_a_topic_that_is_not_there_is_told(small: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It may come, so a table without rows is the answer all the same."""
    for name in ("topics", "queues", "offsets", "consumequeue"):
        caplog.clear()
        assert getattr(Store(small), name)(subscribe="Order").num_rows == 0
        assert caplog.messages == ["unknown topic 'Order'. Did you mean 'Orders'? The store has 'Orders'"]
        caplog.clear()
        assert getattr(Store(small), name)(subscribe="Orders").num_rows == 1
        assert caplog.messages == []


def test_a_group_starts_in_each_store_where_it_is_there(tmp_path: Path) -> None:
    for name, offset in (("a", 3), ("b", 5)):
        builder = stores.StoreBuilder(tmp_path / name)
        for number in range(8):
            builder.append("T", b"%d of %s" % (number, name.encode()), queue_id=number % 2)
        builder.append("Other", name.encode())
        builder.close()
        table = f'{{"offsetTable":{{"T@G":{{0:{offset - 2},7:9}},"Gone@G":{{0:1}}}}}}'
        (tmp_path / name / "config" / "consumerOffset.json").write_text(table)
    store = Store(tmp_path / "*")
    rows = (
        store.messages(["store", "topic", "queueId", "queueOffset"], startingOffsets="group:G").read_all().to_pylist()
    )
    found = [(Path(row["store"]).name, row["queueId"], row["queueOffset"]) for row in rows]
    assert {row["topic"] for row in rows} == {"T"}
    # A queue without an offset is read from its beginning.
    assert sorted(found) == sorted(
        [("a", 0, n) for n in (1, 2, 3)] + [("b", 0, 3)] + [(name, 1, n) for name in ("a", "b") for n in range(4)]
    )
    only = store.messages(["queueId"], startingOffsets="group:G", assign={"T": [0]}, endingOffsets={"T": {0: 3}})
    assert only.read_all().num_rows == 2
    with pytest.raises(
        OptionError, match=r"no store has an offset of consumer group 'H'\. .*Groups with offsets are 'G'"
    ):
        store.messages(startingOffsets="group:H")
    with pytest.raises(OptionError, match="expected the name of a consumer group"):
        store.messages(startingOffsets="group:")


@pytest.mark.parametrize("is_there", [False, True])
def test_no_queues_at_all(tmp_path: Path, is_there: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The log itself tells, as where only a RocksDB has the queues; an empty directory is no other case."""
    builder = stores.StoreBuilder(tmp_path)
    for number in range(20):
        builder.append(f"T{number % 3}", queue_id=number % 2)
    builder.close()
    columns = ["topic", "queueId", "minOffset", "maxOffset", "firstCommitLogOffset", "lastStoreTimestamp"]
    expected = Store(tmp_path).queues(columns)
    assert expected.num_rows == 6
    shutil.rmtree(tmp_path / "consumequeue")
    if is_there:
        (tmp_path / "consumequeue").mkdir()
    assert Store(tmp_path).queues(columns) == expected
    assert caplog.messages == [f"{tmp_path}: no ConsumeQueues of files, so the whole log is read to know its queues"]
    caplog.clear()
    assert Store(tmp_path).offsets().num_rows == 0
    assert not caplog.messages, "no group has consumed anything"


# ---- stores with a past


def test_aged_stores(tmp_path: Path, rng: random.Random) -> None:
    compared = 0
    for number in range(12):
        root = tmp_path / str(number)
        builder, is_cut = aged_stores.aged_store(root, rng)
        if is_cut and len(Store(root, mode="PERMISSIVE").messages("corrupt").read_all()["corrupt"].drop_null()):
            continue  # what the cut has left over cannot be told from live messages after damage
        rows = Store(root).queues().to_pylist()
        light = [row for row in rows if row["queueType"] == "lmq"]
        count = 0 if is_cut else len(builder.light)  # of a log that was cut no message says that it is in this queue
        assert [row["messages"] for row in light] in ([], [count])
        last = builder.light[-1].position if count else None
        assert [row["lastCommitLogOffset"] for row in light] in ([], [last])
        assert {row["queueType"] for row in rows if row["topic"] == aged_stores.BATCHES} <= {"batch"}
        assert_queues(root, [row for row in rows if row not in light])
        compared += 1
    assert compared > 5


def test_expired_messages(tmp_path: Path) -> None:
    builder = stores.StoreBuilder(tmp_path, 1024)
    builder.append("Idle", b"x" * 100)
    for _ in range(40):
        builder.append("T", b"x" * 100)
    builder.expire(2)
    builder.close()
    table = '{"offsetTable":{"T@slow":{0:2},"T@quick":{0:40},"Idle@slow":{0:0},"T@wrong":{0:50},"Never@slow":{0:3}}}'
    (tmp_path / "config" / "consumerOffset.json").write_text(table)
    least = builder.messages[0].queue_offset
    store = Store(tmp_path)
    queues = {row["topic"]: row for row in store.queues().to_pylist()}
    assert (queues["T"]["minOffset"], queues["T"]["maxOffset"]) == (least, 40)
    assert (queues["Idle"]["minOffset"], queues["Idle"]["maxOffset"], queues["Idle"]["messages"]) == (1, 1, 0)
    rows = {(row["group"], row["topic"]): row for row in store.offsets().to_pylist()}
    slow = rows["slow", "T"]
    assert (slow["lag"], slow["expired"], slow["lastConsumedTimestamp"]) == (40 - least, True, None)
    assert slow["lagMillis"] == builder.messages[-1].store_timestamp - builder.messages[0].store_timestamp
    assert (rows["quick", "T"]["lag"], rows["quick", "T"]["lagMillis"], rows["quick", "T"]["expired"]) == (0, 0, False)
    assert (rows["slow", "Idle"]["lag"], rows["slow", "Idle"]["expired"]) == (0, True)
    assert rows["wrong", "T"]["lag"] == -10  # the queue ends before the group's offset
    assert rows["slow", "Never"]["maxOffset"] is None


def test_without_consume_queues_the_log_tells(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    builder = stores.StoreBuilder(tmp_path)
    for number in range(50):
        builder.append("T", queue_id=number % 3)
    builder.close()

    def told() -> list[pa.Table]:
        store = Store(tmp_path)
        named = "topic,queueId,minOffset,maxOffset,messages,lastStoreTimestamp"
        return [store.queues(columns=named), store.topics(columns="topic,queues,messages")]

    before = told()
    builder.drop_queues()
    after = told()
    assert after == before
    facts = queue_facts(Snapshot.find(str(tmp_path), Files()))
    assert facts.names == facts.without_light().names == [("T", 0), ("T", 1), ("T", 2)]
    assert after[0].num_rows == 3
    assert "the whole log is read to know its queues" in caplog.text


def test_hostile_configuration(tmp_path: Path) -> None:
    builder = stores.StoreBuilder(tmp_path)
    builder.append("T")
    builder.close()
    topics = {
        "T": {"perm": "x", "order": 1, "readQueueNums": -1, "attributes": {"queue.type": 5, "message.type": "FIFO"}},
        "\ud800": {"perm": 1 << 40, "attributes": []},
        "no object": 7,
    }
    groups = {"G": {"consumeEnable": "yes", "retryQueueNums": 1 << 40, "retryMaxTimes": None, "attributes": {"a": {}}}}
    offsets = {"T@G": {"0": 1 << 63, "x": 1, "1": -1, "2": 2.5, "3": True}, "T@": {"0": 1}, "@G": {"0": 1}, "T@H": 5}
    (tmp_path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    (tmp_path / "config" / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": groups}))
    (tmp_path / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    store = Store(tmp_path)
    found = {row["topic"]: row for row in store.topics().to_pylist()}
    assert set(found) == {"T", "\N{REPLACEMENT CHARACTER}" * 3}
    row = found["T"]
    assert (row["perm"], row["order"], row["readQueueNums"], row["writeQueueNums"]) == (None, None, None, 16)
    assert (row["attributes"], row["messageType"], row["queueType"]) == ([("message.type", "FIFO")], "FIFO", "SimpleCQ")
    (group,) = store.groups().to_pylist()
    assert [group[name] for name in ("consumeEnable", "retryQueueNums", "retryMaxTimes")] == [None, None, None]
    assert (group["broadcastEnable"], group["attributes"], group["topics"]) == (True, [], [])
    assert store.offsets().num_rows == 0


# ---- other kinds of stores, where they are at hand (STORE_FLAVOURS.md)

FLAVOURS = Path(__file__).resolve().parents[3] / "shared" / "stores" / "flavours"


def test_queues_of_other_kinds(tmp_path: Path) -> None:
    expected = {
        "batchcq": {("Bq", 0): ("batch", 0, 14), ("Bq", 1): ("batch", 0, 15), ("Plain", 1): ("simple", 0, 8)},
        "system": {("%LMQ%a", 0): ("lmq", 0, 1), ("%LMQ%b", 0): ("lmq", 0, 1)},
        "combined": {("Cb", 0): ("simple", 0, 6), ("Cb", 1): ("simple", 0, 5), ("%LMQ%a", 0): ("lmq", 0, 1)},
        "recover": {("Rc", 0): ("simple", 56, 120)},
    }
    for name, queues in expected.items():
        archive = FLAVOURS / f"{name}-5.5.0.tar.xz"
        if archive.exists():
            with tarfile.open(archive) as packed:
                packed.extractall(tmp_path, filter="data")
            rows = Store(tmp_path / f"{name}-5.5.0" / "store").queues().to_pylist()
            found = {(r["topic"], r["queueId"]): (r["queueType"], r["minOffset"], r["maxOffset"]) for r in rows}
            assert queues.items() <= found.items()


# ---- queues that were cut


def test_positions_after_a_truncation(tmp_path: Path) -> None:
    """1 kept, 2 cut, 1 new; and the clock never went back. The end is after the new one."""
    builder = stores.StoreBuilder(tmp_path)
    start = builder.now
    for number in range(3):
        builder.append("T", b"x" * 50, store_timestamp=start + 1 + number)
    builder.forget_last(2)
    builder.append("Other", b"y" * 8000, store_timestamp=start + 9)  # a segment of its own
    builder.append("T", b"y", store_timestamp=start + 10)
    builder.append("Other", b"z" * 7, store_timestamp=start + 11)
    builder.close()
    store = Store(tmp_path)
    (row,) = store.queues(subscribe="T").to_pylist()
    assert (row["minOffset"], row["maxOffset"]) == (0, 2)
    assert [json.loads(store.offsets_at(start + ms))["T"]["0"] for ms in (0, 1, 2, 10, 11)] == [0, 0, 1, 1, 2]


def test_lost_units_keep_their_places(tmp_path: Path) -> None:
    """Of a salvage: units that no message can be read by stand between live ones, and the last message is damaged."""
    builder = stores.StoreBuilder(tmp_path)
    for number in range(15):
        builder.append("T", b"%d" % number)
    builder.append("Other")
    builder.close()
    (path,) = sorted(builder.queue_directory("T", 0).iterdir())[:1]
    data = bytearray(path.read_bytes())
    data[7 * 20 : 8 * 20] = reference.encode_queue_unit(builder.segment_size - 8, 9, 0)
    path.write_bytes(data)
    segment = bytearray(builder.segment(0).read_bytes())
    segment[builder.messages[14].position + 4] ^= 1
    builder.segment(0).write_bytes(segment)
    (tmp_path / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@G":{0:0}}}')
    (row,) = Store(tmp_path).queues(subscribe="T").to_pylist()
    assert (row["maxOffset"], row["lastCommitLogOffset"]) == (15, builder.messages[13].position)
    (row,) = Store(tmp_path).offsets().to_pylist()
    assert (row["maxOffset"], row["lag"]) == (15, 15)


@pytest.mark.parametrize("first", [b"", None])
def test_the_first_queue_file_is_empty_or_a_hole(tmp_path: Path, first: bytes | None) -> None:
    builder = stores.StoreBuilder(tmp_path)
    builder.append("T")
    builder.close()
    path = builder.queue_directory("A", 0) / f"{0:020d}"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(0 if first is not None else 200)
    assert Store(tmp_path).consumequeue().num_rows == 1
    assert Store(tmp_path).queues().num_rows == 2
    Store(tmp_path).check()


def test_what_may_not_be_listed_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: the table may lack its queues. Messages come whole."""
    builder = stores.StoreBuilder(tmp_path / "store")
    for number in range(10):
        builder.append(topic="AB"[number % 2])
    builder.close()
    denied = str(builder.root / "consumequeue" / "A")
    listed = os.listdir

    def names(path: str) -> list[str]:
        if str(path) == denied:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return listed(path)

    def queue_ids(paths: bytes, counts: npt.NDArray[np.int64], ids: npt.NDArray[np.int32]) -> int:
        return list_queue_ids(paths.replace(denied.encode(), denied.encode() + b"-"), counts, ids)

    monkeypatch.setattr(os, "listdir", names)
    monkeypatch.setattr(queue_heads, "list_queue_ids", queue_ids)
    assert Store(builder.root).messages().read_all().num_rows == 10
    for _ in range(2):
        Store(builder.root).consumequeue()
    assert len([text for text in caplog.messages if text.startswith(f"{denied}: permission denied")]) == 1


@pytest.mark.parametrize("asked", [4, 5, 7, 10, 11])
def test_offsets_at_a_time_within_a_lost_file(tmp_path: Path, asked: int) -> None:
    """Whoever reads from there gets all messages from that time on, which the log still has."""
    builder = stores.StoreBuilder(tmp_path, queue_file_size=100)
    for number in range(12):
        builder.append("T", b"%d" % number, store_timestamp=stores.FIRST_TIMESTAMP + number)
    builder.close()
    (tmp_path / "consumequeue" / "T" / "0" / f"{100:020d}").unlink()
    store = Store(tmp_path)
    offset = json.loads(store.offsets_at(stores.FIRST_TIMESTAMP + asked))["T"]["0"]
    assert 5 <= offset <= asked if asked in (5, 7, 10) else offset == asked  # the queue does not tell which of them
    found = store.messages(["queueOffset"], startingOffsets={"T": {"0": offset}}).read_all()
    assert found.column("queueOffset").to_pylist() == list(range(offset, 12))
