"""A salvage of a store with one odd field that no checksum covers: it goes on, with that message or without it."""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from oracle import reference, stores

import rmqstore_spark
from rmqstore_spark.errors import NotAStoreError, StorageError
from rmqstore_spark.jobs import copy

# Where fields are that nothing protects: queueId, flag, queueOffset; from sysFlag to preparedTransactionOffset.
FIELDS = (*range(8, 28), *range(36, 84))
ALWAYS = ((27, 0), (27, 1), (26, 4), (22, 0), (20, 7), (12, 7), (39, 7))


def _store(root: Path, with_queues: bool) -> stores.StoreBuilder:
    store = stores.StoreBuilder(root, segment_size=4096)
    for number in range(12):
        store.append(f"T{number % 2}", b"body %d" % number, number % 3 // 2, tags="TagA", msg_id=f"ID{number}")
    store.close()
    if not with_queues:
        store.drop_queues()
    return store


@pytest.mark.parametrize("with_queues", [True, False])
@pytest.mark.parametrize("which", [0, 4, 10, 11])
def test_one_flipped_bit(tmp_path: Path, which: int, with_queues: bool, rng: random.Random) -> None:
    """The first message of a queue, one in the middle, and the last ones."""
    store = _store(tmp_path / "store", with_queues)
    rows = {row["msgId"]: row for row in reference.read_store(tmp_path / "store")}
    message = store.messages[which]
    path = store.segment(0)
    data = path.read_bytes()
    at_random = [(inside, bit) for inside in FIELDS for bit in range(8)]
    for inside, bit in (*ALWAYS, *rng.sample(at_random, 2)):
        flipped = bytearray(data)
        flipped[message.position + inside] ^= 1 << bit
        path.write_bytes(flipped)
        result = rmqstore_spark.Store(str(tmp_path / "store")).salvage(str(tmp_path / "new"))
        found = {row["msgId"]: row for row in reference.read_store(tmp_path / "new")}
        assert result.messages == len(found)
        own = found.pop(f"ID{which}", None)
        assert found.keys() == rows.keys() - {f"ID{which}"}, (inside, bit)
        for name, row in found.items():
            assert [row[each] for each in ("topic", "queueId", "queueOffset", "body")] == [
                rows[name][each] for each in ("topic", "queueId", "queueOffset", "body")
            ]
        is_torn = which == 11 and not with_queues and (inside, bit) in ((39, 4), (39, 5))  # the log just seems to end
        assert own is not None or result.lost.num_rows or is_torn, (inside, bit)
        shutil.rmtree(tmp_path / "new")


def test_units_of_lost_messages_are_not_counted_as_messages(tmp_path: Path) -> None:
    """Nor after more was appended, or the queues were built anew."""
    store = _store(tmp_path / "store", True)
    lost = store.messages[4:6]
    data = bytearray(store.segment(0).read_bytes())
    data[lost[0].position : lost[-1].end] = b"?" * (lost[-1].end - lost[0].position)
    store.segment(0).write_bytes(data)
    new = rmqstore_spark.Store(str(tmp_path / "store")).salvage(str(tmp_path / "new"))

    def counted() -> int:
        of_queues = rmqstore_spark.Store(str(tmp_path / "new")).queues()
        assert sum(of_queues["maxOffset"].to_pylist()) == count + 2
        assert sum(rmqstore_spark.Store(str(tmp_path / "new")).topics()["messages"].to_pylist()) == count
        return sum(of_queues["messages"].to_pylist())

    count = new.messages
    assert count == counted() == 10
    rmqstore_spark.rebuild(str(tmp_path / "new"))
    assert counted() == count
    rmqstore_spark.write_store(str(tmp_path / "new"), pa.Table.from_pylist([{"topic": "T0", "body": b"more"}]))
    count += 1
    assert counted() == count


@pytest.mark.parametrize("lost", [[9], [9, 10], [8, 9, 10], [7, 9], [10]])
def test_queues_go_on_after_their_lost_last_messages(tmp_path: Path, lost: list[int]) -> None:
    """A consumer's offset stays right, as the next message of a queue gets the offset that it would have had."""
    store = _store(tmp_path / "store", True)
    data = bytearray(store.segment(0).read_bytes())
    for message in (store.messages[number] for number in lost):
        data[message.position : message.end] = b"?" * (message.end - message.position)
    store.segment(0).write_bytes(data)
    new, ends = str(tmp_path / "new"), {}
    rmqstore_spark.Store(str(tmp_path / "store")).salvage(new)
    for message in store.messages:
        ends[message.topic, message.queue_id] = message.queue_offset + 1
    for _ in range(2):
        found = rmqstore_spark.Store(new).queues().to_pylist()
        assert {(row["topic"], row["queueId"]): row["maxOffset"] for row in found} == ends
        rmqstore_spark.write_store(new, pa.Table.from_pylist([{"topic": "T0", "queueId": 0, "body": b"more"}]))
        ends["T0", 0] += 1
    last = [row["queueOffset"] for row in reference.read_store(Path(new)) if row["body"] == b"more"]
    assert last == [ends["T0", 0] - 2, ends["T0", 0] - 1]


def test_a_batch_topic_is_refused(tmp_path: Path) -> None:
    """Where a topic has queues of batches, sysFlag 0x80 is no flipped bit."""
    store = _store(tmp_path / "store", True)
    store.append("T0", b"batch", sys_flag=0x80)
    store.close()
    (tmp_path / "store" / "batchconsumequeue" / "T0" / "0").mkdir(parents=True)
    with pytest.raises(NotAStoreError, match="BatchCQ topic"):
        rmqstore_spark.Store(str(tmp_path / "store")).salvage(str(tmp_path / "new"))


@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_one_offset_among_many_messages(tmp_path: Path, where: str) -> None:
    """More than are looked at together: the odd one is the last of these, or the first of the next."""
    store = stores.StoreBuilder(tmp_path / "store", segment_size=1 << 23)
    for number in range(16_500):
        store.append("T", queue_id=number % 2)
    store.close()
    store.drop_queues()
    which = {"first": 1, "middle": 16_383, "last": 16_499}[where]
    path = store.segment(0)
    data = bytearray(path.read_bytes())
    data[store.messages[which].position + 25] ^= 1  # 65,536 more
    path.write_bytes(data)
    result = rmqstore_spark.Store(str(tmp_path / "store")).salvage(str(tmp_path / "new"))
    assert result.messages == 16_499
    assert store.messages[which].position in result.lost["commitLogOffset"].to_pylist()


def sizes(root: Path) -> dict[str, set[int]]:
    """The sizes of a store's files, by kind."""
    found = {"commitlog": "commitlog/*", "consumequeue": "consumequeue/*/*/*", "index": "index/*"}
    return {name: {path.stat().st_size for path in root.glob(pattern)} for name, pattern in found.items()}


@pytest.mark.parametrize("kept", [0, 1, 30, 4096, 8191])
@pytest.mark.parametrize("which", ["first", "middle", "all but one"])
def test_files_have_the_size_of_most(tmp_path: Path, which: str, kept: int) -> None:
    """Of each kind some are cut. Brokers start on files of one size only, so the new store has the old one's."""
    root = tmp_path / "store"
    store = stores.StoreBuilder(root, segment_size=8192, queue_file_size=400, index=True, index_items=31)
    for number in range(300):
        store.append(f"T{number % 3}", b"%0100d" % number, msg_id=f"ID{number}", keys=f"k{number}")
    store.close()
    before = sizes(root)
    assert [len(found) for found in before.values()] == [1, 1, 1]
    for pattern in ("commitlog", "consumequeue/*/*", "index"):
        for directory in root.glob(pattern):
            files = sorted(directory.iterdir())
            cut = {"first": files[:1], "middle": files[2:3], "all but one": files[:-2]}[which]
            for path in cut[:1] if which != "all but one" and directory.parent.name in ("T1", "T2") else cut:
                path.write_bytes(path.read_bytes()[:kept])
    result = rmqstore_spark.Store(root).salvage(tmp_path / "new")
    assert result.messages == len(reference.read_store(tmp_path / "new")) > 0
    assert sizes(tmp_path / "new") == before
    assert result.lost.num_rows


@pytest.mark.parametrize("kept", [0, 50, 5000])
def test_an_only_segment_of_which_nothing_tells_the_size(tmp_path: Path, kept: int) -> None:
    """Then it is RocketMQ's own, and never that of what is left: a longer message than that may come."""
    store = stores.StoreBuilder(tmp_path / "store", segment_size=1 << 20)
    for number in range(100):
        store.append(body=b"%0100d" % number)
    store.close()
    (tmp_path / "store" / "consumequeue" / "TopicA").rename(tmp_path / "queues")
    path = store.segment(0)
    path.write_bytes(path.read_bytes()[:kept])
    rmqstore_spark.Store(tmp_path / "store").salvage(tmp_path / "new")
    assert all(path.stat().st_size == 1 << 30 for path in (tmp_path / "new" / "commitlog").iterdir())


@pytest.mark.parametrize(
    ("kept", "size"), [(1 << 20, 1 << 20), (50_001, 1 << 30), (1_000_000, 1 << 30), (40_960, 40_960)]
)
def test_an_only_segment_that_ends_in_zeros(tmp_path: Path, kept: int, size: int) -> None:
    """Its length is that of all, if brokers may be told it: else it was cut. What is cut at a whole KiB is not seen."""
    store = stores.StoreBuilder(tmp_path / "store", segment_size=1 << 20)
    for number in range(100):
        store.append(body=b"%0100d" % number)
    store.close()
    assert store.end < 40_960
    path = store.segment(0)
    path.write_bytes(path.read_bytes()[:kept])
    made = rmqstore_spark.Store(tmp_path / "store").salvage(tmp_path / "new")
    assert made.messages == 100
    assert {path.stat().st_size for path in (tmp_path / "new" / "commitlog").iterdir()} == {size}


def _long_store(root: Path) -> stores.StoreBuilder:
    store = stores.StoreBuilder(root, segment_size=8192, queue_file_size=200, index=True, index_items=31)
    for number in range(200):
        store.append(f"T{number % 3}", b"%0100d" % number, number % 2, msg_id=f"ID{number}")
    store.close()
    return store


def _remove(store: stores.StoreBuilder) -> None:
    store.segment(store.end).unlink()


def _zero(store: stores.StoreBuilder) -> None:
    path = store.segment(store.end)
    data = path.read_bytes()
    used = store.end % store.segment_size
    path.write_bytes(data[: used // 2] + bytes(len(data) - used // 2))


def _swap(store: stores.StoreBuilder) -> None:
    last = store.segment(store.end)
    before = store.segment(store.end - store.segment_size)
    last.rename(last.with_name("x"))
    before.rename(last)
    last.with_name("x").rename(before)


def _told(lost: list[dict[str, Any]]) -> set[tuple[str, int, int]]:
    """The messages that are named as lost."""
    rows = [row for row in lost if row["problem"] == "lostMessages"]
    for row in rows:
        last = row["queueOffset"] + row["count"] - 1
        assert row["found"].startswith(f"none from {row['queueOffset']} to {last}")
    return {(row["topic"], row["queueId"], row["queueOffset"] + i) for row in rows for i in range(row["count"])}


@pytest.mark.parametrize("has_abort", [False, True])
@pytest.mark.parametrize("known_by", ["queues", "groups", "index", "checkpoint"])
@pytest.mark.parametrize("harm", [_remove, _zero, _swap])
def test_the_end_of_the_log_is_lost(
    tmp_path: Path, harm: Callable[[stores.StoreBuilder], None], known_by: str, has_abort: bool
) -> None:
    """Whoever knows of messages that were there: each of them is named as far as that goes."""
    root = tmp_path / "store"
    store = _long_store(root)
    if has_abort:
        (root / "abort").touch()
    harm(store)
    if known_by != "queues":
        store.drop_queues()
    if known_by == "groups":
        offsets: dict[str, dict[str, int]] = {}
        for message in store.messages:
            offsets.setdefault(f"{message.topic}@g", {})[str(message.queue_id)] = message.queue_offset + 1
        (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    if known_by != "index":
        store.drop_index()
    checkpoint = root / "checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes() if known_by == "checkpoint" else bytes(4096))
    result = rmqstore_spark.Store(root).salvage(tmp_path / "new")
    lost = result.lost.to_pylist()
    here = {(row["topic"], row["queueId"], row["queueOffset"]) for row in reference.read_store(tmp_path / "new")}
    gone = {(m.topic, m.queue_id, m.queue_offset) for m in store.messages} - here
    assert gone
    assert result.messages == len(here)
    if known_by in ("queues", "groups"):
        assert _told(lost) == gone
        assert all(("group 'g'" in row["found"]) == (known_by == "groups") for row in lost if row["count"])
    else:
        (end,) = (row for row in lost if row["problem"] == "lostEnd")
        name = {"index": "items from", "checkpoint": "physicMsgTimestamp of at most"}[known_by]
        assert name in end["found"]


def test_a_store_that_was_left_cleanly_lacks_nothing(tmp_path: Path) -> None:
    """Group offsets at the ends of queues, a full index and a checkpoint that knows the last message."""
    store = _long_store(tmp_path / "store")
    (tmp_path / "store" / "checkpoint").write_bytes(struct.pack(">qqq", *[store.now] * 3).ljust(4096, b"\0"))
    table = {"T0@g": {"0": 34}, "T9@g": {"0": 100}, "%RETRY%g@g": {"0": 3}}  # what has expired is not lost
    (tmp_path / "store" / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    assert rmqstore_spark.Store(tmp_path / "store").salvage(tmp_path / "new").lost.num_rows == 0


@pytest.mark.parametrize("call", ["copy", "salvage"])
@pytest.mark.parametrize("which", ["none", "first", "all"])
def test_an_index_that_is_not_used_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, which: str, call: str
) -> None:
    """Once, with what that means: where no file tells how large others are, they are RocketMQ's own."""
    root = tmp_path / "store"
    store = stores.StoreBuilder(root, index=True, index_items=31)
    for number in range(100):
        store.append(keys=f"k{number}")
    store.close()
    paths = sorted((root / "index").iterdir())
    size = paths[0].stat().st_size
    for path in {"none": [], "first": paths[:1], "all": paths}[which]:
        path.unlink()
        path.mkdir()
    assert getattr(rmqstore_spark.Store(root), call)(tmp_path / "new").messages == 100
    told = [text for text in caplog.messages if "index" in text]
    assert len(told) == (which != "none"), told
    if told:
        assert told[0].startswith(str(paths[0]))
        assert ("RocketMQ's own" in told[0]) == (which == "all")
        assert (f"and {len(paths) - 1} more" in told[0]) == (which == "all")
    caplog.clear()
    found = rmqstore_spark.Store(tmp_path / "new").messages(key="k7").read_all()
    assert found.num_rows == 1
    made = {path.stat().st_size for path in (tmp_path / "new" / "index").iterdir()}
    assert (made == {size}) == (which != "all")


def test_a_queue_that_ends_in_a_missing_segment(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path / "store", segment_size=4096)
    for number in range(40):
        store.append("Ends" if number < 25 else "GoesOn", b"body" * 50, msg_id=f"ID{number}")
    store.close()
    missing = max(message.position for message in store.messages if message.topic == "Ends") // 4096
    kept = {row["msgId"] for row in reference.read_store(store.root) if row["commitLogOffset"] // 4096 != missing}
    store.segment(missing * 4096).unlink()
    result = rmqstore_spark.Store(str(store.root)).salvage(str(tmp_path / "new"))
    found = [row["msgId"] for row in reference.read_store(tmp_path / "new")]
    assert (set(found), len(found)) == (kept, result.messages)


# Records of a 5.5.0 broker's timerlog, with physical offsets of this test: a message for Reminders that was due at
# 1795610394000, one that is put back at 1795696788000, one due at 1795783265000.
TIMER_RECORDS = (
    "00000034ffffffffffffffff00000001000001a212b8262000001770%016x00000223b9336e210000000000000000",
    "00000034000000000000044400000003000001a212b8262005265c00%016x00000224b9336e210000000000000000",
    "00000034ffffffffffffffff00000001000001a217df939005267758%016x00000228b9336e210000000000000000",
)
DELIVERED_UNTIL = 1795600000000, 1795610394000, 1795783264999, 1795783265000
PUT_BACK, LAST = "2026-11-26 12:39:48", "2026-11-27 12:41:05"


@pytest.mark.parametrize("until", DELIVERED_UNTIL)
def test_timed_messages_that_are_lost_are_told(tmp_path: Path, until: int) -> None:
    """With their times, but not those that were delivered; the others come along."""
    store = stores.StoreBuilder(tmp_path / "store", segment_size=16384)
    places = [
        store.append("rmq_sys_wheel_timer", b"timed %d" % number, properties={"REAL_TOPIC": "Reminders"})
        for number in range(4)
    ]
    store.append("Reminders", b"delivered")
    store.close()
    segment = store.segment(0)
    data = bytearray(segment.read_bytes())
    for place in places[:3]:
        data[place + 80 : place + 100] = bytes(20)
    segment.write_bytes(data)
    (store.root / "timerlog").mkdir()
    records = b"".join(bytes.fromhex(text % place) for text, place in zip(TIMER_RECORDS, places[:3], strict=True))
    (store.root / "timerlog" / f"{0:020d}").write_bytes(records + bytes(52 * 8))
    (store.root / "config").mkdir(exist_ok=True)
    (store.root / "config" / "timercheck").write_bytes(struct.pack(">q", until) + bytes(32))

    made = rmqstore_spark.Store(store.root).salvage(tmp_path / "salvaged")
    lost = [row for row in made.lost.to_pylist() if row["problem"] == "lostMessages"]
    dues = (1795610394000, 1795696788000, 1795783265000)
    waiting = [number for number, due in enumerate(dues) if due > until]
    told = [(row["topic"], row["queueOffset"], row["count"]) for row in lost]
    assert told == ([("rmq_sys_wheel_timer", waiting[0], len(waiting))] if waiting else [])
    assert all("never delivers" in row["advice"] for row in lost)
    if len(waiting) == 1:
        assert lost[0]["found"] == f"none from 2 to 2; to be delivered to Reminders at {LAST} UTC"
    elif waiting:
        assert f"{len(waiting)} to be delivered to Reminders from 2026-11-2" in lost[0]["found"]
        assert lost[0]["found"].endswith(f"to {LAST} UTC or later")
    assert [row["body"] for row in reference.read_store(tmp_path / "salvaged")] == [b"timed 3", b"delivered"]
    checked = [row for row in rmqstore_spark.Store(store.root).check().to_pylist() if row["problem"] == "lostMessages"]
    assert [row["queueOffset"] for row in checked] == [0, 1, 2]
    done = [row["queueOffset"] for row in checked if row["found"].endswith("; delivered or put back already")]
    assert done == [number for number in range(3) if number not in waiting]


@pytest.mark.parametrize("written", [(1 << 63) - 1, -(1 << 63), 1 << 60, None])
def test_times_in_a_timers_log_that_are_no_times(tmp_path: Path, written: int | None) -> None:
    """None: there is no such log, as in a store of a broker that keeps timers in RocksDB."""
    store = stores.StoreBuilder(tmp_path / "store")
    place = store.append("rmq_sys_wheel_timer", b"timed")
    store.append("Orders", b"later")
    store.close()
    segment = store.segment(0)
    data = bytearray(segment.read_bytes())
    data[place + 80 : place + 90] = bytes(10)
    segment.write_bytes(data)
    if written is not None:
        record = bytearray.fromhex(TIMER_RECORDS[0] % place)
        record[16:24] = struct.pack(">q", written)
        (store.root / "timerlog").mkdir()
        (store.root / "timerlog" / f"{0:020d}").write_bytes(record)
    (found,) = [row for row in rmqstore_spark.Store(store.root).check().to_pylist() if row["problem"] == "lostMessages"]
    assert found["found"].endswith("; nothing tells whether and when it was to be delivered")


@pytest.mark.parametrize("written", [0, -5, 1 << 60])
def test_times_of_delayed_messages_that_are_no_times(tmp_path: Path, written: int) -> None:
    store = stores.StoreBuilder(tmp_path / "store")
    place = store.append("SCHEDULE_TOPIC_XXXX", b"delayed", 2)
    store.append("Orders", b"later")
    store.close()
    segment, queue = store.segment(0), store.root / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "2" / f"{0:020d}"
    data, units = bytearray(segment.read_bytes()), bytearray(queue.read_bytes())
    data[place + 80 : place + 90] = bytes(10)
    segment.write_bytes(data)
    units[12:20] = struct.pack(">q", written)
    queue.write_bytes(units)
    (found,) = [row for row in rmqstore_spark.Store(store.root).check().to_pylist() if row["problem"] == "lostMessages"]
    assert found["found"].endswith("; nothing tells whether and when it was to be delivered")


def test_delayed_messages_that_are_lost_are_told_with_their_times(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path / "store", segment_size=16384)
    topic = "SCHEDULE_TOPIC_XXXX"
    places = [store.append(topic, b"%d" % number, 2) for number in range(3)]
    store.append("Orders", b"later")
    store.close()
    segment, queue = store.segment(0), store.root / "consumequeue" / topic / "2" / f"{0:020d}"
    data, units = bytearray(segment.read_bytes()), bytearray(queue.read_bytes())
    data[places[1] + 80 : places[1] + 100] = bytes(20)
    segment.write_bytes(data)
    units[32:40] = struct.pack(">q", 1795783265000)
    queue.write_bytes(units)
    made = rmqstore_spark.Store(store.root).salvage(tmp_path / "salvaged")
    found = [row["found"] for row in made.lost.to_pylist() if row["problem"] == "lostMessages"]
    assert found == [f"none from 1 to 1; to be delivered at {LAST} UTC"]


def test_a_disk_that_fails_while_losses_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new store is there by then, and the error says so."""

    def failing(*_: object) -> object:
        raise StorageError("/disk/index/20261128: Input/output error")

    _store(tmp_path / "store", with_queues=True)
    monkeypatch.setattr(copy, "after_log", failing)
    with pytest.raises(StorageError, match=f"the new store {tmp_path}/new is whole, with all 12 messages"):
        rmqstore_spark.Store(tmp_path / "store").salvage(tmp_path / "new")
    assert [row["body"] for row in reference.read_store(tmp_path / "new")] == [b"body %d" % n for n in range(12)]
