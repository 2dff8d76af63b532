"""rmqstore_spark.rebuild makes of a commitlog what a broker's dispatchers would have made."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import struct
from pathlib import Path

import pyarrow as pa
import pytest
from oracle import golden, random_stores, reference, truth
from oracle.stores import StoreBuilder
from support import reading, writing
from support.writing import assert_whole, write

import rmqstore_spark
from rmqstore_spark.errors import DamagedStoreError, NotAStoreError, OptionError, RmqStoreError
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.store.geometry import index_geometry
from rmqstore_spark.store.io.files import Files

SIZES = {"mappedFileSizeConsumeQueue": 200, "maxHashSlotNum": 20, "maxIndexNum": 50}


def rows_with_keys(rng: random.Random, count: int) -> list[writing.Row]:
    return [
        {"topic": rng.choice("AB"), "body": rng.randbytes(90), "keys": f"k{i % 7} x", "msgId": f"id{i}"}
        for i in range(count)
    ]


def index_entries(root: Path, slots: int) -> list[tuple[int, int]]:
    """Key hash and physical offset of all entries, in order; those in a row that are the same, once."""
    found = []
    for _, data in sorted(writing.files(root / "index", "*").items()):
        (count,) = struct.unpack_from(">i", data, 36)
        at = 40 + 4 * slots
        found += [struct.unpack_from(">iq", data, at + 20 * number) for number in range(1, count)]
    return [entry for number, entry in enumerate(found) if entry not in found[max(0, number - 8) : number]]


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("version", golden.VERSIONS)
def test_of_a_golden_store(tmp_path: Path, version: str, lost: bool) -> None:
    """The same units, and the same answers, as the broker's own."""
    root = golden.unpack(version, tmp_path / "store")
    expected = golden.load_truth(version)
    slots, items = index_geometry(str(root / "index"), Files(), None, None)
    assert slots
    before = {name: data for name, data in writing.files(root / "consumequeue", "*/*/*").items() if any(data)}
    entries = index_entries(root, slots)
    options: dict[str, object] = {}
    if lost:
        (root / "abort").touch()
        (root / "checkpoint").unlink()
        shutil.rmtree(root / "index")
        shutil.rmtree(root / "consumequeue")
        size = len(next(iter(before.values())))
        options = {"mappedFileSizeConsumeQueue": size, "maxHashSlotNum": slots, "maxIndexNum": items}
    assert rmqstore_spark.rebuild(root, **options) == sum(len(units) for units in expected.queue_units.values())
    after = writing.files(root / "consumequeue", "*/*/*")
    assert {name: data for name, data in after.items() if any(data)} == before
    truth.assert_queues(root, expected)
    rows = {row["commitLogOffset"]: row for row in reading.read(root)}
    if lost:  # 5.4 and later also index tags; that can only be known from what they have written
        tags = {(reference.index_hash(row["topic"], f"T#{row['tags']}"), at) for at, row in rows.items()}
        entries = [entry for entry in entries if entry not in tags]
    assert index_entries(root, slots) == entries
    assert not (root / "abort").exists()
    assert not (root / ".rmqstore-spark").exists()
    assert list(rows) == [unit["commitLogOffset"] for unit in expected.units]


def test_of_our_own_store_changes_nothing(tmp_path: Path, rng: random.Random) -> None:
    write(tmp_path, rows_with_keys(rng, 200))
    before = {name: writing.files(tmp_path / name, "**/*") for name in ("commitlog", "consumequeue", "index")}
    rmqstore_spark.rebuild(tmp_path)
    assert_whole(tmp_path)
    assert writing.files(tmp_path / "commitlog", "**/*") == before["commitlog"]
    assert writing.files(tmp_path / "consumequeue", "**/*") == before["consumequeue"]
    after = writing.files(tmp_path / "index", "*")
    assert [after[name] for name in sorted(after)] == [before["index"][name] for name in sorted(before["index"])]


def test_where_everything_is_broken(tmp_path: Path, rng: random.Random) -> None:
    rows = rows_with_keys(rng, 200)
    write(tmp_path, rows)
    for path in (tmp_path / "consumequeue").glob("*/*/*"):
        path.write_bytes(rng.randbytes(rng.randrange(500)))
    for path in (tmp_path / "index").iterdir():
        path.write_bytes(rng.randbytes(rng.randrange(500)))
    (tmp_path / "config" / "topics.json").unlink()
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "abort").write_text("17")
    with pytest.raises(RmqStoreError, match="abort: the broker runs or did not stop cleanly"):
        write(tmp_path, rows)
    rmqstore_spark.rebuild(tmp_path, **SIZES)
    assert len(assert_whole(tmp_path)) == 200
    write(tmp_path, rows)
    assert len(assert_whole(tmp_path)) == 400


def test_topics_get_the_queues_that_the_log_has(tmp_path: Path) -> None:
    """A broker that falls back on an older topics.json.bak would refuse to serve the rest."""
    write(tmp_path, [{"topic": "T", "queueId": i, "body": b"x"} for i in range(3)])
    path = tmp_path / "config" / "topics.json"
    table = json.loads(path.read_text())
    table["topicConfigTable"]["T"].update(readQueueNums=1, writeQueueNums=1)
    path.write_text(json.dumps(table))
    rmqstore_spark.rebuild(tmp_path)
    table["topicConfigTable"]["T"].update(readQueueNums=3)
    found = json.loads(path.read_text())
    assert found["topicConfigTable"] == table["topicConfigTable"]
    before = path.stat().st_mtime_ns
    rmqstore_spark.rebuild(tmp_path)
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("how", ["rebuild", "append"])
@pytest.mark.parametrize("config", ["gone", "without the topic"])
def test_topics_that_are_made_anew_know_all_queues(tmp_path: Path, how: str, config: str) -> None:
    """Also one whose messages have all expired, and those that are not written to; of no topic more than that."""
    store = StoreBuilder(tmp_path, segment_size=1024, queue_file_size=100)
    for _ in range(8):
        store.append("A", b"x" * 50, 7)
    for number in range(60):
        store.append("AB"[number % 2], body=b"body %d" % number, queue_id=number // 2 % 3)
    store.expire(3)
    store.close()
    path = tmp_path / "config" / "topics.json"
    table = json.loads(path.read_text())
    del table["topicConfigTable"]["A"]
    if config == "gone":
        path.unlink()
    else:
        path.write_text(json.dumps(table))
    if how == "rebuild":
        rmqstore_spark.rebuild(tmp_path)
    else:
        write(tmp_path, [{"topic": "A", "queueId": 1, "body": b"x"}], sizes=Sizes(), index=False)
    found = json.loads(path.read_text())["topicConfigTable"]
    assert {topic: entry["readQueueNums"] for topic, entry in found.items()} == {"A": 8, "B": 3}
    problems = rmqstore_spark.Store(tmp_path).check()["problem"].to_pylist()
    assert not {"queueBeyondConfig", "topicWithoutConfig"} & set(problems)


def test_without_an_index(tmp_path: Path, rng: random.Random) -> None:
    write(tmp_path, rows_with_keys(rng, 50))
    index = writing.files(tmp_path / "index", "*")
    shutil.rmtree(tmp_path / "consumequeue")
    rmqstore_spark.rebuild(tmp_path, messageIndexEnable=False, mappedFileSizeConsumeQueue=200)
    assert writing.files(tmp_path / "index", "*") == index
    assert_whole(tmp_path)


def test_queues_whose_beginning_has_expired(tmp_path: Path) -> None:
    """Units before the first that is left are pre-blank; a queue that has expired wholly keeps its place."""
    store = StoreBuilder(tmp_path, segment_size=1024, queue_file_size=100)
    store.append("Old", b"x" * 50)
    for i in range(60):
        store.append(body=b"body %d" % i, queue_id=i % 2)
    store.expire(3)
    store.close()
    old = (tmp_path / "consumequeue" / "Old" / "0" / f"{0:020d}").read_bytes()
    rmqstore_spark.rebuild(tmp_path)
    assert (tmp_path / "consumequeue" / "Old" / "0" / f"{0:020d}").read_bytes() == old
    units = [(at, reference.parse_unit(data, at)) for at, data in reference.read_units(tmp_path)]
    found = writing.files(tmp_path / "consumequeue", "TopicA/*/*")
    assert found == reference.expected_queues(units, 100)
    assert any(reference.encode_queue_unit(*reference.PRE_BLANK) in data for data in found.values())


def test_queues_whose_messages_were_all_cut_off(tmp_path: Path) -> None:
    """As the advice of check says, their units are gone; what comes next has the offset that it would have had."""
    store = StoreBuilder(tmp_path, segment_size=4096, queue_file_size=100)
    store.start_queue("Begun", 0, 32)
    store.append(body=b"stays")
    cut = store.append("Begun", b"cut")
    for i in range(7):
        store.append("New", b"cut %d" % i)
    store.close()
    segment = store.segment(0)
    segment.write_bytes(segment.read_bytes()[:cut].ljust(4096, b"\0"))
    rmqstore_spark.rebuild(tmp_path)
    assert {row["problem"] for row in rmqstore_spark.Store(tmp_path).check().to_pylist()} <= {"topicWithoutQueue"}
    rows = pa.table({"topic": ["Begun", "New"], "body": [b"comes", b"comes"]})
    rmqstore_spark.write_store(tmp_path, rows)
    found = rmqstore_spark.Store(tmp_path).messages(subscribe=["Begun", "New"]).read_all().to_pylist()
    assert [(row["topic"], row["queueId"], row["queueOffset"]) for row in found] == [("Begun", 0, 32), ("New", 1, 0)]


@pytest.mark.parametrize("name", [b"A\n", b"\xff"])
def test_a_queue_of_an_impossible_topic_stays(tmp_path: Path, name: bytes) -> None:
    """Though it has units of messages that were cut off: no message can have such a topic."""
    store = StoreBuilder(tmp_path, segment_size=4096, queue_file_size=100)
    store.append(body=b"stays")
    cut = store.append(body=b"cut")
    store.close()
    segment = store.segment(0)
    segment.write_bytes(segment.read_bytes()[:cut].ljust(4096, b"\0"))
    stray = tmp_path / "consumequeue" / os.fsdecode(name)
    shutil.copytree(tmp_path / "consumequeue" / "TopicA", stray)
    before = writing.files(stray, "*/*")
    assert rmqstore_spark.rebuild(tmp_path) == 1
    assert writing.files(stray, "*/*") == before


def test_queue_offsets_with_gaps_and_repetitions(tmp_path: Path) -> None:
    """ConsumeQueue.putMessagePositionInfo: at the queue's end, unless the offset is below it and not 0."""
    store = StoreBuilder(tmp_path, segment_size=4096, queue_file_size=200)
    offsets = [0, 1, 2, 5, 6, 3, 4, 5, 6, 0, 1, 2, 0, 7, 8, 9, 10]
    at = [store.append(body=b"%d" % i, queue_offset=offset) for i, offset in enumerate(offsets)]
    store.close()
    rmqstore_spark.rebuild(tmp_path)
    queue: list[int] = []
    for position, offset in zip(at, offsets, strict=True):
        if offset == 0 or offset >= len(queue):
            queue.append(position)
    assert [unit.physical_offset for _, _, _, unit in reference.read_queues(tmp_path)] == queue


def test_random_stores(tmp_path: Path, rng: random.Random) -> None:
    store = random_stores.random_store(tmp_path, rng, messages=300, unusual_times=False)
    before = writing.files(tmp_path / "consumequeue", "*/*/*")
    store.drop_queues()
    rmqstore_spark.rebuild(tmp_path, **SIZES)
    assert writing.files(tmp_path / "consumequeue", "*/*/*") == before


def test_refusals(tmp_path: Path, rng: random.Random) -> None:
    with pytest.raises(NotAStoreError, match="expected a directory commitlog/ in it, found nothing"):
        rmqstore_spark.rebuild(tmp_path)
    with pytest.raises(NotAStoreError, match="nowhere: no such directory; give the broker's store directory"):
        rmqstore_spark.rebuild(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(NotAStoreError, match="file: this is a file; give the broker's store directory"):
        rmqstore_spark.rebuild(tmp_path / "file")
    root = tmp_path / "store"
    write(root, rows_with_keys(rng, 200))
    with pytest.raises(OptionError, match="unknown option 'queues'"):
        rmqstore_spark.rebuild(root, queues=3)
    before = writing.files(root, "**/*")
    segment = sorted((root / "commitlog").iterdir())[1]
    data = bytearray(segment.read_bytes())
    data[100] ^= 1  # in the body of its first message
    segment.write_bytes(data)
    with pytest.raises(DamagedStoreError, match=r"bodyCRC differs.*nothing was changed"):
        rmqstore_spark.rebuild(root)
    segment.write_bytes(before[str(segment.relative_to(root))])
    assert {name: data for name, data in writing.files(root, "**/*").items() if "commit" not in name} == {
        name: data for name, data in before.items() if "commit" not in name
    }


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (OSError(errno.EROFS, os.strerror(errno.EROFS)), "cannot be written: Read-only file system; make a copy"),
        (PermissionError(errno.EACCES, "Permission denied"), "permission denied; run as a user who may write to"),
    ],
)
def test_what_may_only_be_read_cannot_be_written(
    refusal: OSError, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And that is said; not that a file, which is there to be locked, cannot be read."""
    builder = StoreBuilder(tmp_path / "store")
    builder.append()
    builder.close()
    (builder.root / "lock").touch()
    opened = os.open

    def refusing(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise refusal
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(RmqStoreError, match=told) as failed:
        rmqstore_spark.rebuild(builder.root)
    assert str(failed.value).startswith(str(builder.root / "lock"))


@pytest.mark.parametrize("untagged", [0, 300])
def test_tags_are_kept_where_the_index_is_ahead_of_the_log(tmp_path: Path, untagged: int) -> None:
    """As in any copy of a running broker's store; and where its last messages have no tags."""
    root = tmp_path / "store"
    builder = StoreBuilder(root, segment_size=1 << 20, index=True, index_slots=100, index_items=5000)
    for number in range(300 + untagged):
        properties = {"KEYS": f"k{number}"} | ({"TAGS": "t"} if number < 300 else {})
        builder.append(topic="T", queue_id=0, body=b"x", properties=properties)
    builder.close()
    rmqstore_spark.rebuild(root)
    (path,) = (root / "index").iterdir()
    assert struct.unpack_from(">i", path.read_bytes(), 36)[0] > 1
    put_tag_items(root, path, slots=100)
    cut = int(len(reading.read(root)) * 0.7)
    at = reading.read(root)[cut]["commitLogOffset"]
    (segment,) = (root / "commitlog").iterdir()
    data = bytearray(segment.read_bytes())
    data[at:] = bytes(len(data) - at)
    segment.write_bytes(data)
    shutil.rmtree(root / "consumequeue")
    rmqstore_spark.rebuild(root)
    hashes = [key_hash for key_hash, _ in index_entries(root, 100)]
    assert hashes.count(reference.index_hash("T", "T#t")) == min(cut, 300)


def put_tag_items(root: Path, path: Path, slots: int) -> None:
    """An index file anew, as a broker since 5.4 makes it."""
    items = [
        (reference.index_hash("T", key), row["commitLogOffset"])
        for row in reading.read(root)
        for key in (*(row["keys"] or "").split(), *([f"T#{row['tags']}"] if row["tags"] else []))
    ]
    data, head = bytearray(path.read_bytes()), 40 + 4 * slots
    data[40:] = bytes(len(data) - 40)
    used = 0
    for number, (key_hash, position) in enumerate(items, 1):
        slot = 40 + 4 * (key_hash % slots)
        (previous,) = struct.unpack_from(">i", data, slot)
        used += previous == 0
        struct.pack_into(">iqii", data, head + 20 * number, key_hash, position, 0, previous)
        struct.pack_into(">i", data, slot, number)
    struct.pack_into(">qqii", data, 16, items[0][1], items[-1][1], used, len(items) + 1)
    path.write_bytes(data)


@pytest.mark.parametrize("kept", [0, 7, 200])
def test_one_file_of_another_size(tmp_path: Path, rng: random.Random, kept: int) -> None:
    """What most files say is the size, and an append names the file that says otherwise."""
    write(tmp_path, rows_with_keys(rng, 200), sizes=writing.SMALL)
    before = {name: writing.files(tmp_path / name, "**/*") for name in ("consumequeue", "index")}
    for pattern in ("consumequeue/A/*/*", "index/*"):
        path = rng.choice(sorted(tmp_path.glob(pattern)))
        if kept == path.stat().st_size:
            kept *= 2  # padded
        path.write_bytes(path.read_bytes().ljust(kept, b"\0")[:kept])
        with pytest.raises(DamagedStoreError, match=rf"{path}: expected .* file of \d+ bytes like .*, found {kept}"):
            write(tmp_path, [{"topic": "A", "body": b"x"}])
        rmqstore_spark.rebuild(tmp_path)
        assert writing.files(tmp_path / "consumequeue", "**/*") == before["consumequeue"]
        found = writing.files(tmp_path / "index", "*")
        assert [found[name] for name in sorted(found)] == [before["index"][name] for name in sorted(before["index"])]
