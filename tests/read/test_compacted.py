"""Option `compacted`: the last value of each key of compaction topics, whatever the commitlog still has."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from oracle import compaction
from oracle.compaction import LogWriter, Value
from oracle.stores import StoreBuilder
from support import flavours

from rmqstore_spark import DamagedStoreError, OptionError, StorageError, Store
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.compaction import compaction_topics

COLUMNS = ["topic", "queueId", "queueOffset", "keys", "body", "commitLogOffset", "offsetMsgId", "file"]
FILE_SIZE = 2048
DIRECTORIES = ("compactionLog", "compactionCq")


class Made:
    """A store with the compaction topics A (2 queues) and B, a plain topic, and what was sent to them."""

    def __init__(self, root: Path, rng: random.Random, count: int = 200, passes: bool = True) -> None:
        self.root, self.rng = root, rng
        self.builder = StoreBuilder(root, segment_size=8192)
        self.values: dict[str, list[Value]] = {"A": [], "B": []}
        for topic, queue_id in self.queues:  # in the log alone, once the first segment has expired
            self.values[topic].append(compaction.append(self.builder, topic, queue_id, "oldest", b"first"))
        for number in range(count):
            topic = rng.choice(["A", "A", "B", "Plain"])
            key = rng.choice([None, *"abcdefgh"]) if rng.random() < 0.9 else f"only-{number}"
            body = b"" if rng.random() < 0.2 else f"value-{number}".encode() * rng.randint(1, 9)
            if topic == "Plain":
                self.builder.append(topic, body, keys=key)
            else:
                queue_id = rng.randrange(2) if topic == "A" else 0
                self.values[topic].append(compaction.append(self.builder, topic, queue_id, key, body))
        self.builder.close()
        compaction.configure(root, self.values)
        for topic, queue_id in self.queues:
            self.write_log(topic, queue_id, passes)

    queues = (("A", 0), ("A", 1), ("B", 0))

    def of_queue(self, topic: str, queue_id: int) -> list[Value]:
        return [value for value in self.values[topic] if value.queue_id == queue_id]

    def write_log(self, topic: str, queue_id: int, passes: bool) -> None:
        """The log of a queue; a pass has seen a part of it, and the log lags behind the commitlog."""
        values = self.of_queue(topic, queue_id)
        there = values[: max(1, len(values) - self.rng.randint(0, 3))]
        seen = self.rng.randint(0, len(there)) if passes else 0
        writer = LogWriter(self.root, topic, queue_id, FILE_SIZE)
        start = 0
        if seen:
            start = writer.write_all(compaction.compact(there[:seen]), 0) + self.rng.randrange(3) * FILE_SIZE
        writer.write_all(there[seen:], start)

    def expire(self, segments: int) -> None:
        """Lose the first segments, as far as the compaction logs have what was there."""
        self.builder.expire(segments)

    def expected(self, topic: str, queue_id: int) -> list[Value]:
        return compaction.last_values(self.of_queue(topic, queue_id))


def rows_of(root: Path, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = Store(root).messages(COLUMNS, compacted=True, **options).read_all().to_pylist()
    return rows


def found(rows: list[dict[str, Any]], topic: str, queue_id: int) -> list[tuple[int, str, bytes]]:
    of_queue = [row for row in rows if (row["topic"], row["queueId"]) == (topic, queue_id)]
    return sorted((row["queueOffset"], row["keys"], row["body"]) for row in of_queue)


@pytest.mark.parametrize("expired", [0, 1, 100])
def test_last_values(tmp_path: Path, rng: random.Random, expired: int) -> None:
    for trial in range(4):
        made = Made(tmp_path / f"{trial}", rng)
        segments = len(list((made.root / "commitlog").iterdir()))
        last = min(segments - 2, expired)  # the newest messages may not be in the compaction log yet
        if last:
            made.expire(last)
        rows = rows_of(made.root)
        for queue in made.queues:
            expected = made.expected(*queue)
            assert found(rows, *queue) == [(v.queue_offset, v.key, v.body) for v in expected], (trial, queue)
        assert len(rows) == sum(len(made.expected(*queue)) for queue in made.queues)
        for row in rows:
            in_commitlog = "commitlog" in row["file"]
            assert (row["commitLogOffset"] is not None, row["offsetMsgId"] is not None) == (in_commitlog, in_commitlog)


def test_selections_are_those_of_all_last_values(tmp_path: Path, rng: random.Random) -> None:
    made = Made(tmp_path, rng)
    made.expire(1)
    everything = rows_of(made.root)
    assert rows_of(made.root, subscribe="A") == [row for row in everything if row["topic"] == "A"]
    assert rows_of(made.root, assign={"A": [1]}) == [row for row in everything if found([row], "A", 1)]
    assert rows_of(made.root, key="c") == [row for row in everything if row["keys"] == "c"]
    middle = sorted(row["queueOffset"] for row in everything)[len(everything) // 2]
    begun = {"A": {0: middle, 1: middle}, "B": {0: middle}}
    wanted = [row for row in everything if row["queueOffset"] >= middle]
    assert rows_of(made.root, startingOffsets=json.dumps(begun)) == wanted
    with_id = next(row for row in everything if row["offsetMsgId"])
    assert rows_of(made.root, msgId=with_id["offsetMsgId"]) == [with_id]
    assert rows_of(made.root, offsetMsgId=with_id["offsetMsgId"]) == [with_id]


def test_offsets_of_a_compaction_log_are_no_ids(tmp_path: Path, rng: random.Random) -> None:
    """The same bytes in a commitlog would have this offsetMsgId."""
    made = Made(tmp_path, rng)
    (row, *_) = compaction.read_log(made.root, "A", 0)
    made.expire(1)
    for name in ("msgId", "offsetMsgId"):
        assert not [r for r in rows_of(made.root, **{name: row["offsetMsgId"]}) if "compaction" in r["file"]]


def test_parts_are_read_in_tasks(tmp_path: Path, rng: random.Random) -> None:
    made = Made(tmp_path, rng)
    made.expire(1)
    assert rows_of(made.root, maxPartitionBytes=1) == rows_of(made.root)


def test_damage(tmp_path: Path, rng: random.Random) -> None:
    """Flipped bits of a log: the rows are right, or it is told."""
    made = Made(tmp_path, rng, count=60, passes=False)
    rows = rows_of(made.root)
    (path, *_) = sorted((made.root / "compaction" / "compactionLog" / "A" / "0").iterdir())
    sound = path.read_bytes()
    for at in rng.sample(range(len(sound.rstrip(b"\0"))), 25):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << rng.randrange(8)]) + sound[at + 1 :])
        told = {row["problem"] for row in Store(made.root).check().to_pylist() if row["area"] in ("log", "queue")}
        try:
            assert rows_of(made.root) == rows or told, at
        except DamagedStoreError:
            # Of the log's last message only its queue still knows.
            assert told & {"damagedCompactionLog", "wrongCompactionQueue"}
            assert rows_of(made.root, mode="DROPMALFORMED") == rows  # all of it is in the commitlog as well
            corrupt = Store(made.root).messages(["corrupt", "commitLogOffset"], compacted=True, mode="PERMISSIVE")
            told_in = [row for row in corrupt.read_all().to_pylist() if row["corrupt"]]
            assert told_in
            assert all(row["commitLogOffset"] is None for row in told_in)
    path.write_bytes(sound)


def test_lost_files(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, rng: random.Random) -> None:
    """Files that compactionCq/ has units for: of a queue's log each one, and all of them with their directory."""
    made = Made(tmp_path, rng, count=60, passes=False)
    rows = rows_of(made.root)
    directory = made.root / "compaction" / "compactionLog" / "A" / "0"
    paths, elsewhere = sorted(directory.iterdir()), tmp_path_factory.mktemp("elsewhere")
    for lost in [*([path] for path in paths), paths]:
        for path in lost:
            shutil.move(path, elsewhere)
        os.utime(directory, (0, 0))  # no broker is at work there
        if lost is paths:
            directory.rmdir()
        with pytest.raises(DamagedStoreError, match=f"{lost[0]}: .* found none"):
            rows_of(made.root)
        assert rows_of(made.root, mode="DROPMALFORMED") == rows  # all of it is in the commitlog as well
        told = [row for row in Store(made.root).check().to_pylist() if row["problem"] == "damagedCompactionLog"]
        assert [row["file"] for row in told] == [str(path) for path in lost]
        with pytest.raises(DamagedStoreError, match="damagedCompactionLog"):
            Store(made.root).copy(elsewhere / "copy")
        directory.mkdir(exist_ok=True)
        for path in lost:
            shutil.move(elsewhere / path.name, path)
    assert rows_of(made.root) == rows


def test_cut_at_any_byte(tmp_path: Path, rng: random.Random) -> None:
    made = Made(tmp_path, rng, count=60, passes=False)
    rows = rows_of(made.root)
    path = sorted((made.root / "compaction" / "compactionLog" / "A" / "0").iterdir())[-1]
    sound = path.read_bytes()
    for size in rng.sample(range(len(sound)), 15):
        path.write_bytes(sound[:size])
        assert rows_of(made.root, mode="DROPMALFORMED") == rows


def test_a_lost_last_message_is_told(tmp_path: Path) -> None:
    """Its queue unit points just where the log ends now."""
    store = Replaced(tmp_path)
    *_, last = compaction.read_log(tmp_path, "A", 0)
    path = Path(last["file"])
    at = last["commitLogOffset"] - int(path.name)
    path.write_bytes(path.read_bytes()[:at].ljust(FILE_SIZE, b"\0"))
    with pytest.raises(DamagedStoreError, match=f"up to the one at {last['commitLogOffset']}, with queueOffset 89"):
        store.rows()
    assert store.rows(mode="DROPMALFORMED") == store.expected  # the commitlog has it as well


def test_units_in_the_file_before(tmp_path: Path) -> None:
    """A broker that begins a file while a pass replaces others may forget the queue's one, and goes on in the one
    before (a real one did: its lists of files are replaced without the lock that appends take)."""
    store = Replaced(tmp_path)
    logs, queues = (sorted((tmp_path / "compaction" / each / "A" / "0").iterdir()) for each in DIRECTORIES)
    units = [path.read_bytes()[at : at + 46] for path in queues[-2:] for at in range(0, path.stat().st_size, 46)]
    queues[-2].write_bytes(b"".join(unit for unit in units if any(unit)).ljust(len(units) // 2 * 46, b"\0"))
    queues[-1].write_bytes(bytes(queues[-1].stat().st_size))
    assert store.rows() == store.expected
    data = logs[-1].read_bytes()
    *_, last = compaction.read_log(tmp_path, "A", 0)
    logs[-1].write_bytes(data[: last["commitLogOffset"] - int(logs[-1].name)].ljust(len(data), b"\0"))
    with pytest.raises(DamagedStoreError, match=f"{logs[-1]}: .* with queueOffset 89.*lost its end"):
        store.rows()
    logs[-1].unlink()
    with pytest.raises(DamagedStoreError, match=f"{logs[-2]}: .* with queueOffset 89.*lost its end"):
        store.rows()


def test_half_a_message_at_the_end_is_no_damage(tmp_path: Path, rng: random.Random) -> None:
    made = Made(tmp_path, rng, passes=False)
    rows = rows_of(made.root)
    path = sorted((made.root / "compaction" / "compactionLog" / "B" / "0").iterdir())[-1]
    data = path.read_bytes()
    used = len(data.rstrip(b"\0"))
    (unit, *_) = compaction.read_log(made.root, "B", 0)
    path.write_bytes(data[:used] + data[: unit["storeSize"] // 2].ljust(len(data) - used, b"\0")[: len(data) - used])
    assert rows_of(made.root) == rows
    assert "unfinishedQueueLog" in {row["problem"] for row in Store(made.root).check().to_pylist()}


def test_work_in_progress_does_not_count(tmp_path: Path, rng: random.Random) -> None:
    made = Made(tmp_path, rng)
    rows = rows_of(made.root)
    directory = made.root / "compaction" / "compactionLog" / "A" / "0"
    for name in ("compacting", "replicating"):
        (directory / name).mkdir()
        (directory / name / f"{0:020d}").write_bytes(b"half done")
    (directory / f"{0:020d}.delete").write_bytes(b"old")
    assert rows_of(made.root) == rows


class Replaced:
    """A store whose broker replaces the files of its one compaction log; all but the last segment have expired."""

    def __init__(self, root: Path) -> None:
        self.root = root
        builder = StoreBuilder(root, segment_size=4096)
        sent = [compaction.append(builder, "A", 0, f"key{n % 9}" if n % 5 else f"only{n}", b"x" * n) for n in range(90)]
        builder.close()
        compaction.configure(root, ["A"])
        LogWriter(root, "A", 0, FILE_SIZE).write_all(sent, 0)
        *_, last = sorted(row["file"] for row in compaction.read_log(root, "A", 0))
        before = sum(row["file"] != last for row in compaction.read_log(root, "A", 0))
        self.new = compaction.compact(sent[:before])
        self.expected = [(v.queue_offset, v.key, v.body) for v in compaction.last_values(sent)]
        builder.expire(len(list((root / "commitlog").iterdir())) - 1)

    def steps(self) -> Iterator[str]:
        return compaction.replace_files(self.root, "A", 0, FILE_SIZE, self.new)

    def rows(self, **options: Any) -> list[tuple[int, str, bytes]]:
        return found(rows_of(self.root, **options), "A", 0)

    def problems(self) -> set[str]:
        return {row["problem"] for row in Store(self.root).check().to_pylist() if row["severity"] == "error"}


def test_broker_killed_while_it_replaces_files(tmp_path: Path) -> None:
    """After each rename: the rows are right, or it is told; and check tells whatever no broker starts on."""
    store = Replaced(tmp_path)
    assert store.rows() == store.expected
    lost, told = 0, set[str]()
    for step in store.steps():
        problems = store.problems()
        if step.startswith("compactionLog") and step.endswith((".delete", f"{0:020d}")):
            lost += 1
            with pytest.raises(DamagedStoreError, match="have units in compactionCq/, found none"):
                store.rows()
            assert "damagedCompactionLog" in problems, step
            assert set(store.rows(mode="DROPMALFORMED")) < set(store.expected)
            with pytest.raises(DamagedStoreError, match="damagedCompactionLog"):
                Store(store.root).copy(tmp_path.with_name("copy"))
        else:
            assert store.rows() == store.expected, step
            assert problems <= {"wrongCompactionQueue"}
        told |= problems
    assert lost > 5
    assert told == {"damagedCompactionLog", "wrongCompactionQueue"}
    assert store.rows() == store.expected
    assert store.problems() == set()


def test_broker_that_replaces_files_is_waited_for(tmp_path: Path) -> None:
    store = Replaced(tmp_path)
    steps = store.steps()
    assert next(steps).endswith(".delete")
    os.utime(tmp_path / "compaction" / "compactionLog" / "A" / "0")

    def go_on() -> None:
        time.sleep(0.3)
        for _ in steps:
            pass

    with ThreadPoolExecutor(1) as broker:
        broker.submit(go_on)
        assert store.rows() == store.expected


def test_refusals(tmp_path: Path, rng: random.Random) -> None:
    made = Made(tmp_path / "store", rng)
    with pytest.raises(OptionError, match="found 'Plain'"):
        rows_of(made.root, subscribe="A,Plain")
    with pytest.raises(OptionError, match="'compacted' and 'deduplicate'"):
        rows_of(made.root, deduplicate=True)
    plain = StoreBuilder(tmp_path / "plain")
    plain.append()
    plain.close()
    with pytest.raises(OptionError, match="expected a store with compaction topics"):
        rows_of(tmp_path / "plain")
    with pytest.raises(OptionError, match="'compacted' is not for copies"):
        Store(made.root).copy(tmp_path / "copy", compacted=True)


def test_plan_of_another_log_fails(tmp_path: Path, rng: random.Random) -> None:
    """A pass between plan and task."""
    made = Made(tmp_path, rng, passes=False)
    made.expire(1)
    reader = Store(made.root).messages(COLUMNS, compacted=True)
    for directory in (made.root / "compaction" / "compactionLog" / "A").iterdir():
        for path in directory.iterdir():
            path.write_bytes(bytes(FILE_SIZE))
    with pytest.raises(StorageError, match="another store"):
        reader.read_all()


# ---- a real one


def test_real_log(tmp_path: Path) -> None:
    """What a consumer was given is in the log, in its order; and what it knows in the end are the last values."""
    root, seen = flavours.unpack("compaction2", tmp_path)
    consumed = {event["queueOffset"]: event["keys"] for event in seen if event["event"] == "consumed"}
    log = list(compaction.read_log(root, "Cp", 0))
    assert [row["queueOffset"] for row in log] == sorted(consumed)
    known = {consumed[offset]: offset for offset in sorted(consumed)}
    rows = rows_of(root)
    assert {row["keys"]: row["queueOffset"] for row in rows} == known
    assert all(row["commitLogOffset"] is not None for row in rows)
    assert not [row for row in Store(root).check().to_pylist() if row["severity"] != "info"]
    bodies = {row["queueOffset"]: row["body"] for row in log}
    (root / "commitlog" / f"{0:020d}").write_bytes(bytes(1 << 20))  # all of it expired
    alone = rows_of(root)
    assert {row["keys"]: row["queueOffset"] for row in alone} == known
    assert all(row["commitLogOffset"] is None and row["offsetMsgId"] is None for row in alone)
    assert all(row["body"] == bodies[row["queueOffset"]] for row in alone)


def test_order_of_rows(tmp_path: Path, rng: random.Random) -> None:
    """Of a queue, rows come in the order in which a consumer gets them."""
    made = Made(tmp_path, rng)
    made.expire(1)
    rows = rows_of(made.root)
    for queue in made.queues:
        offsets = [row["queueOffset"] for row in rows if (row["topic"], row["queueId"]) == queue]
        assert offsets == sorted(offsets)


def test_a_topic_that_was_compacted_once(tmp_path: Path) -> None:
    """The configuration, or a directory, tells that it was."""
    for topic in ("Once", "Now"):
        (tmp_path / "compaction" / "compactionLog" / topic / "0").mkdir(parents=True)
    (tmp_path / "config").mkdir()
    entries = {topic: {"attributes": {"cleanup.policy": "COMPACTION"}} for topic in ("Now", "New")}
    (tmp_path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": entries}))
    assert compaction_topics(str(tmp_path), Files()) == {"Once", "Now", "New"}
