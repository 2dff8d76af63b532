"""Every byte of a store that we write follows from its messages, by the plain-Python reference."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from oracle import golden, random_stores, reference, stores
from support import reading, writing
from support.writing import SMALL, Row, assert_whole, kept, plain, some_rows, stage_rows, write

import rmqstore_spark
from rmqstore_spark.errors import BadRowError, DamagedStoreError, NotAStoreError, OptionError, RmqStoreError
from rmqstore_spark.query.options import parse_write_options
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.store.geometry import index_geometry
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.write.build import topics
from rmqstore_spark.write.build.target import inspect
from rmqstore_spark.write.commit import Settings, check, commit
from rmqstore_spark.write.fs.disk import PROBE, Tree
from rmqstore_spark.write.fs.lock import StoreLock
from rmqstore_spark.write.stage.job_directory import forget, prepare


def split(rows: list[Row], rng: random.Random, pieces: int) -> list[list[Row]]:
    cuts = sorted(rng.randrange(len(rows) + 1) for _ in range(pieces - 1))
    return [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


def random_sizes(rng: random.Random) -> Sizes:
    return Sizes(
        segment=rng.choice((2048, 4096, 10_000, 65536)),
        queue_file=rng.choice((20, 40, 200, 6000)),
        slots=rng.choice((1, 3, 20, 500)),
        items=rng.choice((2, 3, 17, 1000)),
    )


# ---- what is written


def test_sizes_of_index_files_are_read_off_them(tmp_path: Path, rng: random.Random) -> None:
    slots, items = rng.randrange(50, 500), rng.randrange(100, 2000)
    write(tmp_path, some_rows(rng, 60), sizes=Sizes(1 << 20, 200, slots, items))
    assert index_geometry(str(tmp_path / "index"), Files(), None, None) == (slots, items)
    with pytest.raises(OptionError, match=f"expected {slots}, as this store has it, found 7; remove it"):
        write(tmp_path, some_rows(rng, 1), sizes=Sizes(slots=7))


@pytest.mark.parametrize("example", range(15))
@pytest.mark.slow
def test_random_rows_in_many_steps(tmp_path: Path, rng: random.Random, example: int) -> None:
    """Random sizes of files; appended in steps, the same bytes come out as from one write."""
    sizes, rows = random_sizes(rng), some_rows(rng, rng.randrange(1, 150))
    once, steps = tmp_path / "once", tmp_path / "steps"
    write(once, *split(rows, rng, 3), sizes=sizes)
    found = assert_whole(once, sizes)
    assert found == reading.read(once)
    expected = [{name: row[name] for name in ("topic", "queueId", "tags", "msgId", "body")} for row in rows]
    assert [{name: row[name] for name in expected[0]} for row in found] == expected

    for piece in split(rows, rng, rng.randrange(1, 6)):
        # Those of an index file with a handful of entries may be read off it in more than one way.
        given = rng.choice((sizes, Sizes(slots=sizes.slots, items=sizes.items)))
        given = given if any(steps.glob("consumequeue/*/*/*")) else sizes
        write(steps, *split(piece, rng, 2), sizes=given)
    assert_whole(steps, sizes)
    for part in ("commitlog", "consumequeue"):
        grown, expected_files = writing.files(steps / part, "**/*"), writing.files(once / part, "**/*")
        spare = {name for name, data in grown.items() if part == "commitlog" and not any(data)}
        assert len(spare) <= 1
        assert {name: data for name, data in grown.items() if name not in spare} == expected_files


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_copy_of_a_golden_store(tmp_path: Path, version: str) -> None:
    source = golden.unpack(version, tmp_path / "source")
    rows = [row for row in reading.read(source) if not row["sysFlag"] & 0x80]
    sizes = Sizes(1 << 22, 6000, 500, 2000)
    write(tmp_path / "copy", rows[:100], rows[100:], sizes=sizes, autoMessageVersionOnTopicLen="true")
    copy = assert_whole(tmp_path / "copy", sizes)
    assert kept(copy) == plain(kept(rows))
    queues: dict[tuple[str, int], int] = defaultdict(int)
    for row in copy:
        if row["sysFlag"] & reference.TRANSACTION_BITS in (0, reference.COMMIT):
            queue = row["topic"], row["queueId"]
            assert row["queueOffset"] == queues[queue]
            queues[queue] += 1


def test_copy_of_bodies_as_they_are_stored(tmp_path: Path, rng: random.Random) -> None:
    random_stores.random_store(tmp_path / "source", rng, unusual_times=False)
    as_stored = reading.read(tmp_path / "source", decompress=False)
    options: dict[str, Any] = {"decompress": "false", "autoMessageVersionOnTopicLen": "true"}
    write(tmp_path / "copy", as_stored, **options)
    copy = reading.read(tmp_path / "copy", decompress=False)
    assert kept(copy) == kept(as_stored)
    assert reading.read(tmp_path / "copy") == assert_whole(tmp_path / "copy")


@pytest.mark.parametrize("version", golden.VERSIONS)
def test_append_to_a_golden_store(tmp_path: Path, rng: random.Random, version: str) -> None:
    """Half-filled segments, queues and index files go on; what was there stays as it was."""
    root = golden.unpack(version, tmp_path / "store")
    before = reference.read_store(root)
    queues = dict(golden.load_truth(version).bounds)
    index = sorted((root / "index").iterdir())
    topics_before = topics_of(root)
    write(root, some_rows(rng, 40), sizes=Sizes())
    after = reference.read_store(root)
    assert after[: len(before)] == before
    assert len(after) == len(before) + 40
    assert reading.read(root) == after
    # Dense queues, and every unit in them.
    offsets = {queue: end for queue, (_, end) in queues.items()}
    units = {(t, q, offset): unit for t, q, offset, unit in reference.read_queues(root)}
    for row in after[len(before) :]:
        if row["sysFlag"] & reference.TRANSACTION_BITS in (0, reference.COMMIT):
            queue = row["topic"], row["queueId"]
            assert row["queueOffset"] == offsets.get(queue, 0)
            offsets[queue] = row["queueOffset"] + 1
            unit = units.pop((*queue, row["queueOffset"]))
            assert (unit.physical_offset, unit.size) == (row["commitLogOffset"], row["storeSize"])
    # The index holds what it would hold had the broker gone on.
    slots, items = 500, 2000
    entries: list[tuple[int, int, int]] = []
    for at, data in reference.read_units(root):
        unit_ = reference.parse_unit(data, at)
        entries += [(reference.index_hash(*key), at, unit_.store_timestamp) for key in reference.unit_index_keys(unit_)]
    files = sorted((root / "index").iterdir())
    assert files[: len(index)] == index
    expected = reference.build_index(entries, slots, items)
    if [file.encode()[40:] for file in reference.build_index(entries[: -_new_entries(root, before)], slots, items)] == [
        path.read_bytes()[40:] for path in index
    ]:
        assert [path.read_bytes()[40:] for path in files] == [file.encode()[40:] for file in expected]
    table = topics_of(root)
    for name, config in topics_before.items():
        raised = max(config["readQueueNums"], table[name]["readQueueNums"])
        assert table[name] == {**config, "readQueueNums": raised}


def topics_of(root: Path) -> dict[str, Any]:
    with Tree(str(root)) as tree:
        found: dict[str, Any] = topics.load(tree)["topicConfigTable"]
        return found


def _new_entries(root: Path, before: list[Row]) -> int:
    units = [reference.parse_unit(data, at) for at, data in reference.read_units(root)]
    return sum(len(reference.unit_index_keys(unit)) for unit in units[len(before) :])


# ---- guards


def state(root: Path) -> dict[str, bytes]:
    return {name: data for name, data in writing.files(root, "**/*").items() if name != "lock"}


def refuses(root: Path, rng: random.Random, error: type[RmqStoreError], match: str, **options: Any) -> None:
    """With one line, and the store stays as it is."""
    before = state(root)
    with pytest.raises(error, match=match) as refused:
        write(root, some_rows(rng, 3), **options)
    assert "\n" not in str(refused.value)
    assert state(root) == before


def test_lock(tmp_path: Path, rng: random.Random) -> None:
    """A broker's lock belongs to its process, ours to the opened file; each keeps the other out."""
    write(tmp_path, some_rows(rng, 30))
    broker = (
        "import fcntl, os, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR)\n"
        "fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", broker, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        assert child.stdout.readline() == "locked\n"
        with pytest.raises(RmqStoreError, match="locked: expected a store that nobody uses, found a broker"):
            check(str(tmp_path), Settings(SMALL))
        refuses(tmp_path, rng, RmqStoreError, "lock: locked")
        child.communicate("")
    with Tree(str(tmp_path)) as tree, StoreLock(tree):
        assert subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 1
        refuses(tmp_path, rng, RmqStoreError, "lock: locked")
    assert (tmp_path / "lock").read_bytes() == b"lock"
    check(str(tmp_path), Settings(SMALL))
    write(tmp_path, some_rows(rng, 30))
    assert len(assert_whole(tmp_path)) == 60


def test_a_damaged_last_segment_is_not_gone_on_with(tmp_path: Path, rng: random.Random) -> None:
    """A broker checks the last segments when it starts, and would cut off there what comes behind."""
    store = stores.StoreBuilder(tmp_path, segment_size=8192)
    at = [store.append(body=b"x" * 100) for _ in range(10)]
    store.close()
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[at[5] + 100] ^= 1
    path.write_bytes(data)
    refuses(tmp_path, rng, DamagedStoreError, rf"commitLogOffset {at[5]}\): damaged \(BAD_BODY_CRC\)", sizes=Sizes())


def test_queues_that_lag(tmp_path: Path, rng: random.Random) -> None:
    """Their next messages would get wrong offsets."""
    store = stores.StoreBuilder(tmp_path, segment_size=8192)
    for i in range(10):
        store.append(body=b"x" * 100, queue_id=i % 2)
    store.append(sys_flag=reference.PREPARED)  # is in no queue
    store.close()
    write(tmp_path, [{"topic": "TopicA", "body": b"x", "queueId": 1}], sizes=Sizes(slots=20, items=50))
    path = tmp_path / "consumequeue" / "TopicA" / "1" / f"{0:020d}"
    assert path.read_bytes()[100:120] != bytes(20)
    path.write_bytes(path.read_bytes()[:100] + bytes(100))
    refuses(tmp_path, rng, DamagedStoreError, r"lag the commitlog.*call rmqstore_spark.rebuild", sizes=Sizes())
    shutil.rmtree(tmp_path / "consumequeue")
    refuses(tmp_path, rng, DamagedStoreError, r"lag the commitlog.*call rmqstore_spark.rebuild", sizes=Sizes())


def test_only_queues_that_are_written_to_are_looked_at(tmp_path: Path) -> None:
    requests = []
    for queues in (10, 400):
        root = tmp_path / str(queues)
        store = stores.StoreBuilder(root, segment_size=1 << 20, queue_file_size=200)
        for number in range(800):
            store.append(topic=f"T{number % queues:03d}", body=b"x" * 100)
        store.close()
        with Tree(str(root)) as tree:
            target = inspect(tree, Sizes(), ["T003", "new"])
        assert target.queues == {("T003", 0): 800 // queues}
        requests.append(tree.files.requests)
    assert requests[1] <= requests[0] + 10  # the binary search for a queue's end


@pytest.mark.parametrize("uniform", [False, True])
def test_remains_of_a_cut_log(tmp_path: Path, rng: random.Random, uniform: bool) -> None:
    """Old units behind the end of log and queues are gone afterwards, and are not taken for live ones."""
    store = stores.StoreBuilder(tmp_path, segment_size=8192, queue_file_size=200)
    for i in range(60):
        store.append(body=rng.randbytes(200), queue_id=i % 2, store_timestamp=stores.FIRST_TIMESTAMP + i)
    store.forget_last(25)
    for i in range(9 if uniform else 1):
        body = rng.randbytes(200) if uniform else b"short"
        store.append("Other" if uniform else "TopicA", body, store_timestamp=stores.FIRST_TIMESTAMP + 100 + i)
    store.append(body=b"of another size", store_timestamp=stores.FIRST_TIMESTAMP + 200)
    store.close()
    before = reference.read_store(tmp_path)
    rows = [{"topic": "TopicA", "body": b"%d" % i, "queueId": i % 2} for i in range(3)]
    write(tmp_path, rows, sizes=Sizes())
    after = assert_whole(tmp_path, Sizes(8192, 200), index=False)
    assert after[: len(before)] == before
    assert [row["body"] for row in after[len(before) :]] == [b"0", b"1", b"2"]
    assert reading.read(tmp_path) == after
    end = after[-1]["commitLogOffset"] + after[-1]["storeSize"]
    last = sorted((tmp_path / "commitlog").iterdir())[-1]
    assert not any(last.read_bytes()[end - int(last.name) :])


def test_a_queue_that_has_lost_count(tmp_path: Path, rng: random.Random) -> None:
    """A broker appends behind a gap; from there on places and queueOffsets differ."""
    store = stores.StoreBuilder(tmp_path, segment_size=8192)
    for offset in (0, 1, 2, 5, 6, 7):
        store.append(body=b"x", queue_offset=offset)
    store.append("Topic_B", b"x")
    store.close()
    with pytest.raises(DamagedStoreError, match="queue 0 of TopicA: expected a unit for queueOffset 6"):
        write(tmp_path, [{"topic": "TopicA", "body": b"x", "queueId": 0}], sizes=Sizes())
    write(tmp_path, [{"topic": "Topic_B", "body": b"x", "queueId": 0}], sizes=Sizes())
    assert reference.read_store(tmp_path)[-1]["queueOffset"] == 1


def test_what_is_no_store_is_left_alone(tmp_path: Path, rng: random.Random) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    refuses(tmp_path, rng, NotAStoreError, r"expected a store, an empty directory or none, found 'thesis.txt'")
    refuses(tmp_path, rng, NotAStoreError, "found 'thesis.txt'", overwrite=True)
    (tmp_path / "thesis.txt").unlink()
    write(tmp_path, some_rows(rng, 3))
    (tmp_path / "thesis.txt").write_text("precious")
    refuses(tmp_path, rng, NotAStoreError, "thesis.txt: mode overwrite would delete this", overwrite=True)
    write(tmp_path, some_rows(rng, 3))
    (tmp_path / "thesis.txt").unlink()
    (tmp_path / "commitlog" / "notes").write_text("precious")
    refuses(tmp_path, rng, NotAStoreError, "notes: mode overwrite would delete this", overwrite=True)
    refuses(tmp_path, rng, DamagedStoreError, "notes: not a commitlog file; a broker would not start")
    (tmp_path / "commitlog" / "notes").unlink()
    (tmp_path / "commitlog").rename(tmp_path / "elsewhere")
    (tmp_path / "commitlog").symlink_to(tmp_path / "elsewhere")
    refuses(tmp_path, rng, RmqStoreError, "expected a directory of the store's own, found a link")


def test_a_store_whose_commitlog_is_elsewhere(tmp_path: Path, rng: random.Random) -> None:
    """storePathCommitLog of a broker: without it we would begin at 0 again, over its queues."""
    write(tmp_path / "store", some_rows(rng, 30))
    (tmp_path / "store" / "commitlog").rename(tmp_path / "commitlog")
    for overwrite in (False, True):
        refuses(tmp_path / "store", rng, NotAStoreError, "storePathCommitLog", overwrite=overwrite)


def test_a_file_system_that_cannot_exchange(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(above: int, name: str, other_above: int, other: str) -> None:
        raise OSError(22, "Invalid argument", other)

    monkeypatch.setattr("rmqstore_spark.write.fs.calls.exchange", refuse)
    with pytest.raises(RmqStoreError, match="cannot exchange two directories in one step"):
        write(tmp_path / "store", some_rows(rng, 3))
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("was_there", [True, False])
def test_a_failed_write_removes_only_what_it_made(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, was_there: bool
) -> None:
    """An empty directory of the user's own stays: it may be a mount point, with an owner and a mode of its own."""
    root = tmp_path / "store"
    if was_there:
        root.mkdir(0o750)
    before = root.stat().st_ino if was_there else None
    job, _ = stage_rows(root, [some_rows(rng, 3)])  # of Spark's, whose tasks have failed
    job.abandon()
    assert (root.stat().st_ino if root.exists() else None) == before
    with pytest.raises(BadRowError):
        rmqstore_spark.write_store(root, pa.table({"topic": pa.array([None], pa.string()), "body": [b"x"]}))
    assert (root.stat().st_ino if root.exists() else None) == before
    monkeypatch.setattr("rmqstore_spark.write.fs.calls.try_exchange", lambda *_: False)
    with pytest.raises(RmqStoreError, match="cannot exchange two directories in one step"):
        write(root, some_rows(rng, 3))
    assert (root.stat().st_ino if root.exists() else None) == before
    assert not list(root.glob("*")), "nothing is left in it either"


def test_jobs_together_remove_what_one_of_them_made(tmp_path: Path) -> None:
    """The two writers of a micro-batch: that of the tasks makes the directory, and that of the commit ends both."""
    root = tmp_path / "store"
    for first, second in (("tasks", "commit"), ("commit", "tasks")):
        prepare(str(root), "tasks")
        prepare(str(root), "commit")
        forget(str(root), first, second)
        assert not root.exists()


def test_jobs_that_begin_and_end_at_once(tmp_path: Path) -> None:
    """None is in the way of another. Where one has found the directory there, an empty one may stay."""
    root = str(tmp_path / "store")

    def begin_and_end(thread: int) -> None:
        for number in range(40):
            prepare(root, f"{thread}-{number}")
            forget(root, f"{thread}-{number}")

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(begin_and_end, thread) for thread in range(4)]:
            done.result()
    assert not os.path.exists(root) or not os.listdir(root)


def test_what_a_killed_try_to_exchange_left(tmp_path: Path, rng: random.Random) -> None:
    """It is in nobody's way, whatever number the process had, and the next write takes it away."""
    write(tmp_path, some_rows(rng, 3))
    for name in (f"{PROBE}{os.getpid()}-a", f"{PROBE}0123456789abcdef"):
        (tmp_path / ".rmqstore-spark" / name / "one").mkdir(parents=True)
    write(tmp_path, some_rows(rng, 3))
    assert not list(tmp_path.glob(f".rmqstore-spark/{PROBE}*"))


def test_topics_with_other_queues(tmp_path: Path, rng: random.Random) -> None:
    write(tmp_path, some_rows(rng, 3))
    path = tmp_path / "config" / "topics.json"
    table = json.loads(path.read_text())
    table["topicConfigTable"]["TopicA"] = {"topicName": "TopicA", "attributes": {"queue.type": "BatchCQ"}}
    path.write_text(json.dumps(table))
    row = {"topic": "TopicA", "body": b"x"}
    with pytest.raises(RmqStoreError, match=r"topics\.json: topic TopicA has queue.type BatchCQ: expected SimpleCQ"):
        write(tmp_path, [row])
    table["topicConfigTable"]["TopicA"] = {"topicName": "TopicA", "attributes": {"cleanup.policy": "COMPACTION"}}
    path.write_text(json.dumps(table))
    with pytest.raises(RmqStoreError, match=r"cleanup\.policy COMPACTION"):
        write(tmp_path, [row])
    write(tmp_path, [{**row, "topic": "Topic_B"}])


def test_topics_json_as_fastjson_writes_it() -> None:
    text = '{"dataVersion":{"counter":4,"timestamp":7},\n\t"topicConfigTable":{"A":{"perm":2,"readQueueNums":2,'
    text += '"writeQueueNums":2,"x":{0:1,-12:{3:"{4:5}"}},"topicName":"A \\"{1:2"}}, "other":[{7:"y"}]}'
    table = topics.parse(text)
    assert table["topicConfigTable"]["A"]["x"] == {"0": 1, "-12": {"3": "{4:5}"}}
    assert table["topicConfigTable"]["A"]["topicName"] == 'A "{1:2'
    assert table["other"] == [{"7": "y"}]
    merged = json.loads(topics.merge(table, {"A": 5, "B": 1, "SCHEDULE_TOPIC_XXXX": 3}, 99))
    assert merged["dataVersion"] == {"counter": 5, "timestamp": 99}
    config = merged["topicConfigTable"]
    assert config["A"] == {**table["topicConfigTable"]["A"], "readQueueNums": 5}
    assert (config["B"]["readQueueNums"], config["B"]["writeQueueNums"], config["B"]["perm"]) == (1, 1, 6)
    assert config["SCHEDULE_TOPIC_XXXX"]["readQueueNums"] == 18
    with pytest.raises(ValueError, match="expected an object"):
        topics.parse("[1]")


def test_topics_json_that_cannot_be_read(tmp_path: Path, rng: random.Random) -> None:
    write(tmp_path, some_rows(rng, 3))
    path = tmp_path / "config" / "topics.json"
    whole = path.read_text()
    path.write_text("{")
    refuses(
        tmp_path,
        rng,
        RmqStoreError,
        r"topics.json: cannot be understood: .*; `rmqstore rebuild --config` makes it anew",
    )
    (tmp_path / "config" / "topics.json.bak").write_text(whole)
    write(tmp_path, some_rows(rng, 3))
    assert len(assert_whole(tmp_path)) == 6


def test_times_of_queue_files(tmp_path: Path, rng: random.Random) -> None:
    """Brokers before 5.1.1 search by them; those of segments tell when a segment expires."""
    rows = some_rows(rng, 100)
    write(tmp_path, rows)
    times = {row["commitLogOffset"]: row["storeTimestamp"] // 1000 for row in reference.read_store(tmp_path)}
    for path in (tmp_path / "consumequeue").glob("*/*/*"):
        used = path.read_bytes().rstrip(b"\0")
        last = path.read_bytes()[(len(used) - 1) // 20 * 20 :][:8]
        assert path.stat().st_mtime * 1000 == pytest.approx(times[struct.unpack(">q", last)[0]], abs=1)
    assert all(time.time() - path.stat().st_mtime < 600 for path in (tmp_path / "commitlog").iterdir())


def test_no_index_file_ends_after_what_the_checkpoint_says(tmp_path: Path, rng: random.Random) -> None:
    """Whatever the order of store times: a broker that crashes later deletes such files."""
    for _ in range(3):
        rows = some_rows(rng, 60)
        times = sorted((row["storeTimestamp"] for row in rows), reverse=True)
        write(tmp_path, [{**row, "storeTimestamp": time, "keys": "k"} for row, time in zip(rows, times, strict=True)])
        ends = [struct.unpack_from(">q", path.read_bytes(), 8)[0] for path in (tmp_path / "index").iterdir()]
        assert len(ends) > 1
        assert struct.unpack_from(">q", (tmp_path / "checkpoint").read_bytes(), 16)[0] >= max(ends)


def test_units_larger_than_a_chunk_and_progress(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rmqstore_spark.write.build.staging.CHUNK_SIZE", 1000)
    monkeypatch.setattr("rmqstore_spark.write.build.staging._SIZES_AT_ONCE", 7)
    monkeypatch.setattr("rmqstore_spark.progress.REPORT_SECONDS", 0)
    rows = [{"topic": "T", "body": rng.randbytes(rng.choice((1, 100, 5000)))} for _ in range(60)]
    write(tmp_path, rows[:50], rows[50:])
    assert [row["body"] for row in assert_whole(tmp_path)] == [row["body"] for row in rows]
    told = [int(share) for message in caplog.messages for share in re.findall(r"\((\d+) %\)", message)]
    assert len(told) > 10
    assert told == sorted(told)
    assert 50 < told[-1] < 100  # what is done is not said


@pytest.mark.parametrize("direct", ["as it is", "refused", "refused when it is used"])
def test_many_chunks_and_segments(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, direct: str
) -> None:
    """Whole blocks go past the page cache, on a file system that can do that; files and chunks end anywhere in them."""
    control, pwrite = fcntl.fcntl, os.pwrite
    writes: Counter[bool] = Counter()

    def set_flags(fd: int, command: int, argument: int = 0) -> int:
        if direct == "refused" and command == fcntl.F_SETFL and argument & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return control(fd, command, argument)

    def write_at(fd: int, data: memoryview, offset: int) -> int:
        is_direct = bool(control(fd, fcntl.F_GETFL) & os.O_DIRECT)
        writes[is_direct] += 1
        if direct == "refused when it is used" and is_direct:
            raise OSError(errno.EINVAL, "Invalid argument")
        return pwrite(fd, data, offset)

    monkeypatch.setattr("fcntl.fcntl", set_flags)
    monkeypatch.setattr("os.pwrite", write_at)
    sizes = Sizes(segment=5_000_011, queue_file=2000, slots=100, items=1000)
    rows = [{"topic": "T", "body": rng.randbytes(rng.choice((1, 100, 60_000, 300_000)))} for _ in range(300)]
    rows.insert(rng.randrange(300), {"topic": "T", "body": rng.randbytes(4 * 1024 * 1024)})  # more than a buffer takes
    cuts = sorted(rng.sample(range(300), 5))
    parts = [rows[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    write(tmp_path, *parts[:3], sizes=sizes)
    write(tmp_path, *parts[3:], sizes=sizes)
    assert [row["body"] for row in assert_whole(tmp_path, sizes)] == [row["body"] for row in rows]
    assert len(list((tmp_path / "commitlog").iterdir())) > 5
    if direct == "refused":
        assert not writes[True]
    elif direct == "refused when it is used":
        assert writes[True] > 5  # each of them is tried once more, with the cache


def test_staged_files_that_were_changed(tmp_path: Path, rng: random.Random) -> None:
    for damage in ("cut", "longer", "flipped", "sizes", "gone"):
        root = tmp_path / damage
        _, (staged,) = writing.stage_rows(root, [some_rows(rng, 50)])
        path = Path(staged.path)
        data = path.read_bytes()
        match damage:
            case "cut":
                path.write_bytes(data[:-1])
            case "longer":
                path.write_bytes(data + b"x")
            case "flipped":
                path.write_bytes(data[:5] + bytes([data[5] ^ 1]) + data[6:])
            case "sizes":
                Path(staged.path + ".sizes").write_bytes(b"\1\0\0\0" * staged.rows)
            case "gone":
                path.unlink()
        with pytest.raises(RmqStoreError):
            commit(str(root), [staged], Settings(SMALL))
        assert not (root / "commitlog").exists()
        assert not (root / "abort").exists()


def test_rows_go_in_turn_or_by_key(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"topic": "T", "body": b"x", "keys": f"k{i % 5}" if i % 2 else ("" if i % 4 else None)} for i in range(80)
    ]
    write(tmp_path, rows, queues=3)
    found = assert_whole(tmp_path)
    turns = [row["queueId"] for row in found if not row["keys"]]
    assert turns == [i % 3 for i in range(len(turns))]
    for row in found:
        if row["keys"]:
            assert row["queueId"] == abs(reference.java_hash(row["keys"])) % 3
    table = json.loads((tmp_path / "config" / "topics.json").read_text())["topicConfigTable"]
    assert table["T"]["writeQueueNums"] == 3


def test_times_of_rows_without_one(tmp_path: Path) -> None:
    """The commit's clock, or the time of the last message before it if that is later; given ones are kept."""
    later = (int(time.time()) + 1000) * 1_000_000
    given = [later, None, later + 5_000_000, None]
    write(tmp_path, [{"topic": "T", "body": b"x", "storeTimestamp": at, "bornHost": "[::1]:5"} for at in given])
    first = [row["storeTimestamp"] for row in assert_whole(tmp_path)]
    assert (first[0], first[2]) == (later, later + 5_000_000)
    assert first[1] == first[3] <= time.time() * 1_000_000
    write(tmp_path, [{"topic": "T", "body": b"x", "storeTimestamp": later + 9_000_000}])
    write(tmp_path, [{"topic": "T", "body": b"y"}])
    assert [row["storeTimestamp"] for row in assert_whole(tmp_path)][-1] == later + 9_000_000
    write(tmp_path, [{"topic": "T", "body": b"z", "storeTimestamp": 946_684_800_000_000}])  # 2000
    began = int(time.time() * 1000) * 1000
    write(tmp_path, [{"topic": "T", "body": b"y"}])
    assert began <= [row["storeTimestamp"] for row in assert_whole(tmp_path)][-1] < later


def test_bad_rows_are_named_by_partition_and_row(tmp_path: Path, rng: random.Random) -> None:
    good = some_rows(rng, 30)
    bad = [*good[:20], {**good[20], "body": None}, *good[21:]]
    with pytest.raises(
        BadRowError, match=r"^partition 1, row 20: column 'body': expected a binary, found null; nothing was written$"
    ):
        writing.stage_rows(tmp_path, [good, bad])


def test_options() -> None:
    options = parse_write_options({"PATH": "/x", "mappedfilesizeconsumequeue": "6001", "storehost": "[::1]:5"})
    assert options.sizes == Sizes(queue_file=6020)
    assert options.store_host == bytes(15) + b"\1" + struct.pack(">i", 5)
    with pytest.raises(OptionError, match="option 'maxIndexNum': expected a whole number of at least 2"):
        parse_write_options({"path": "/x", "maxIndexNum": "1"})
    with pytest.raises(OptionError, match="no path is given"):
        parse_write_options({})
    with pytest.raises(OptionError, match="unknown option 'columns'"):
        parse_write_options({"path": "/x", "columns": "body"})


def test_sizes_where_a_crash_left_an_empty_segment_file(tmp_path: Path) -> None:
    """Brokers delete it, so it says nothing of the size of segments."""
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").touch()
    write(tmp_path, [{"topic": "T", "body": b"x"}], sizes=SMALL)
    assert [row["body"] for row in assert_whole(tmp_path)] == [b"x"]
