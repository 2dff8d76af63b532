"""A task reads the store that the plan saw, or says that it sees another one: on every executor, and however the store
was replaced in between."""

from __future__ import annotations

import os
import pickle
import random
import re
import shutil
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from oracle import rocksdb, stores
from support import reading
from support.following import Query
from support.replacing import (
    READS,
    REPLACED,
    SEGMENT,
    another,
    built,
    cut_and_gone_on,
    gone,
    older,
    other_bodies,
    with_other_segments,
)
from support.writing import SIZES

import rmqstore_spark
from rmqstore_spark import DeletedMeanwhileError, RmqStoreError, StorageError, Store
from rmqstore_spark.columns import arrow_schema
from rmqstore_spark.read.pieces.task import Task
from rmqstore_spark.read.plan.planner import plan
from rmqstore_spark.read.run.batches import ReadSettings, read_task
from rmqstore_spark.read.run.stored import StoredUnits
from rmqstore_spark.store.io.files import Files, cannot_read
from rmqstore_spark.store.log_end import LogEnd
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.proofs import hold
from rmqstore_spark.tables import unqueued
from rmqstore_spark.tables.registry import TABLES, plan_table, read_part, schema_of, table


def tasks_of(root: Path, columns: Sequence[str], **options: Any) -> list[Task]:
    understood = reading.options_of(root, minPartitions=4, **options)
    return plan(understood, Files(reading.FREE), columns).tasks


def rows_of(tasks: list[Task], columns: Sequence[str], **options: Any) -> list[reading.Row]:
    understood = reading.options_of("/nowhere", minPartitions=4, **options)
    return [row for task in tasks for row in reading.read_one(task, understood, columns)]


# ---- what a store can be replaced with: what the error says of it, where it is one


@pytest.mark.parametrize("mode", reading.MODES)
@pytest.mark.parametrize("name", READS)
def test_a_task_with_another_store(tmp_path: Path, name: str, mode: str) -> None:
    kind, columns, options = READS[name]
    for replace, says in REPLACED.items():
        root = built(tmp_path / replace.__name__)
        sent = pickle.dumps(tasks_of(root, columns, mode=mode, **options))
        kinds = {type(piece).__name__ for task in pickle.loads(sent) for piece in task.ranges}
        assert kind in kinds
        rows = rows_of(pickle.loads(sent), columns, mode=mode, **options)
        assert rows
        replace(root)
        for task in pickle.loads(sent):
            with pytest.raises(StorageError, match=says.format(root=re.escape(str(root)))) as error:
                rows_of([task], columns, mode=mode, **options)
            assert "load" in str(error.value)


@pytest.mark.parametrize("name", READS)
def test_one_that_only_grew_or_lost_what_has_expired(tmp_path: Path, name: str) -> None:
    _, columns, options = READS[name]
    root = built(tmp_path / "store")
    sent = pickle.dumps(tasks_of(root, columns, **options))
    rows = rows_of(pickle.loads(sent), columns, **options)
    shutil.rmtree(root)
    built(root, count=900)
    assert rows_of(pickle.loads(sent), columns, **options) == rows
    first = min((root / "commitlog").iterdir())
    first.unlink()
    if name.startswith("covered"):  # of the log it needs nothing
        assert rows_of(pickle.loads(sent), columns, **options) == rows
        return
    segments = {piece.segment.path for task in pickle.loads(sent) for piece in task.ranges}
    for task in pickle.loads(sent):
        if str(first) in {piece.segment.path for piece in task.ranges}:
            with pytest.raises(DeletedMeanwhileError, match=f"{first}: the file is gone; a broker deletes expired"):
                rows_of([task], columns, **options)
    assert str(first) in segments or name in ("offsets", "key")


@pytest.mark.parametrize("name", READS)
def test_one_that_has_expired_beyond_all_that_was_planned(tmp_path: Path, name: str) -> None:
    """A broker that writes and deletes fast: the plan's last message is gone, too."""
    _, columns, options = READS[name]
    root = built(tmp_path / "store")
    sent = pickle.dumps(tasks_of(root, columns, **options))
    planned = max((root / "commitlog").iterdir()).name
    shutil.rmtree(root)
    built(root, count=1800)
    for path in (root / "commitlog").iterdir():
        if path.name <= planned:
            path.unlink()
    for task in pickle.loads(sent):
        with pytest.raises(DeletedMeanwhileError, match="the file is gone; a broker deletes expired"):
            rows_of([task], columns, **options)


def test_before_its_first_row(tmp_path: Path) -> None:
    """As for `limit`: nothing of another store is given."""
    root = built(tmp_path / "store")
    for _, columns, options in READS.values():
        (first, *_) = tasks_of(root, columns, **options)
        settings = ReadSettings.of(reading.options_of(root, **options), arrow_schema(list(columns)))
        assert next(read_task(first, settings)).num_rows
        other_bodies(root)
        with pytest.raises(StorageError, match="sees another store"):
            next(read_task(first, settings))
        shutil.rmtree(root)
        built(root)


def test_an_executor_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = built(tmp_path / "store")
    tasks = tasks_of(root, ["body"])
    monkeypatch.setattr(socket, "gethostname", lambda: "worker-7")
    assert len(rows_of(tasks, ["body"])) == 600
    another(root)
    with pytest.raises(
        StorageError, match=rf"^this executor \(worker-7\) sees another store under {root} than the plan"
    ):
        rows_of(tasks, ["body"])
    gone(root)
    with pytest.raises(
        StorageError, match=r"^this executor \(worker-7\) does not see the driver's directories: "
    ) as error:
        rows_of(tasks, ["body"])
    assert "damage" not in str(error.value)
    assert "DROPMALFORMED" not in str(error.value)


def test_queues_that_are_believed_are_those_of_the_plan(tmp_path: Path) -> None:
    """The log is the same, and its queues are those of another day."""
    for name in ("trust", "covered", "covered topic"):
        _, columns, options = READS[name]
        root = built(tmp_path / name)
        tasks = tasks_of(root, columns, **options)
        shutil.rmtree(root / "consumequeue")
        built(tmp_path / f"{name} older", count=500)
        shutil.copytree(tmp_path / f"{name} older" / "consumequeue", root / "consumequeue")
        with pytest.raises(StorageError, match=f"sees another store under {root} than the plan: .*consumequeue"):
            rows_of(tasks, columns, **options)


@pytest.mark.parametrize("name", ["trust", "covered", "covered topic"])
def test_a_queue_whose_broker_is_writing_its_last_unit(tmp_path: Path, name: str) -> None:
    """The plan sees all of it but the tagsCode, which comes last."""
    _, columns, options = READS[name]
    root = built(tmp_path / "store")
    whole = {path: path.read_bytes() for path in (root / "consumequeue").glob("*/*/*")}
    for path, data in whole.items():
        used = -(-len(data.rstrip(b"\0")) // 20) * 20
        path.write_bytes(data[: used - 8].ljust(used, b"\0") + data[used:])
    tasks = tasks_of(root, columns, **options)
    for path, data in whole.items():
        path.write_bytes(data)
    assert rows_of(tasks, columns, **options) == rows_of(tasks_of(root, columns, **options), columns, **options)


def test_records_that_are_believed_are_those_of_the_plan(tmp_path: Path, rng: random.Random) -> None:
    """Queues in RocksDB: they may be written anew, with other files, but not be those of another day."""
    for name in ("trust", "covered", "covered topic"):
        _, columns, options = READS[name]
        root = built(tmp_path / name)
        records = rocksdb.queue_records(root)
        rocksdb.put_queues(root, rng)
        tasks = tasks_of(root, columns, **options)
        assert {proof.key is None for task in tasks for piece in task.ranges for proof in piece.segment.proofs} == {
            True,
            False,
        }
        rows = rows_of(tasks, columns, **options)
        shutil.rmtree(root / "consumequeue")
        rocksdb.write(root / "consumequeue", [{"default": records}], {}, first=70)
        assert rows_of(tasks, columns, **options) == rows
        shutil.rmtree(root / "consumequeue")
        older = [(key, value) for key, value in records if int.from_bytes(value[:8], "big") < 500]
        rocksdb.write(root / "consumequeue", [{"default": older}], {}, first=90)
        with pytest.raises(
            StorageError, match=f"sees another store under {root} than the plan: .*consumequeue: the rec"
        ):
            rows_of(tasks, columns, **options)


def test_a_segment_of_another_store(tmp_path: Path) -> None:
    """A copy that is not done yet, say: the log's end is there, and something else is not."""
    root = built(tmp_path / "store")
    tasks = tasks_of(root, ["keys", "body"])
    path = sorted((root / "commitlog").iterdir())[1]
    path.write_bytes(bytes(SEGMENT))
    touched = [task for task in tasks if str(path) in {piece.segment.path for piece in task.ranges}]
    assert 0 < len(touched) < len(tasks)
    for task in touched:
        with pytest.raises(StorageError, match=f"{path}: position .*, found zeros"):
            rows_of([task], ["keys", "body"], mode="DROPMALFORMED")


def test_copies(tmp_path: Path) -> None:
    """A task that needs a copy of the store says where that is not the one that was planned with."""
    one, other = built(tmp_path / "one"), built(tmp_path / "other")
    path = sorted((one / "commitlog").iterdir())[2]
    with path.open("r+b") as file:
        file.seek(SEGMENT // 2)
        file.write(bytes(1000))
    options = reading.options_of(one, other, deduplicate=True)
    tasks = pickle.dumps(plan(options, Files(), ["keys"]).tasks)
    assert len(rows_of(pickle.loads(tasks), ["keys"])) == 600
    another(other)
    with pytest.raises(StorageError, match=f"sees another store under {other} than the plan"):
        rows_of(pickle.loads(tasks), ["keys"])


@pytest.mark.parametrize("replace", [another, older, gone])
def test_streams(tmp_path: Path, replace: Callable[[Path], None]) -> None:
    root = built(tmp_path / "store")
    query = Query(root, columns=["keys"], startingOffsets="earliest")
    with pytest.raises(StorageError, match=r"sees another store under|is gone since"):
        query.trigger(after_planning=lambda: replace(root))


@pytest.mark.parametrize("replace", [another, older, cut_and_gone_on, gone])
def test_store(tmp_path: Path, replace: Callable[[Path], None]) -> None:
    """Without Spark, where tasks are read by threads, in parts."""
    root = built(tmp_path / "store")
    for options in ({"columns": ["body"]}, {"columns": ["keys"], "subscribe": "T1"}):
        batches = Store(root).messages(**options)
        replace(root)
        with pytest.raises(StorageError, match=r"sees another store under|is gone since"):
            batches.read_all()
        shutil.rmtree(root, ignore_errors=True)
        built(root)


# ---- tables


def tables_of(root: Path) -> dict[str, bytes]:
    """The tasks of each table."""
    found = {}
    for name in TABLES:
        options = reading.options_of(root, table=name)
        found[name] = pickle.dumps(plan_table(table(name), options))
    return found


def table_rows(root: Path, name: str, sent: bytes) -> pa.Table:
    options = reading.options_of(root, table=name)
    schema = schema_of(table(name))
    batches = [b for task in pickle.loads(sent) for b in read_part(table(name), task, options, schema)]
    return pa.Table.from_batches(batches, schema)


@pytest.mark.parametrize("replace", REPLACED, ids=lambda replace: replace.__name__)
def test_tables(tmp_path: Path, replace: Callable[[Path], None]) -> None:
    root = built(tmp_path / "store")
    sent = tables_of(root)
    expected = {name: table_rows(root, name, tasks) for name, tasks in sent.items()}
    assert expected["consumequeue"].num_rows == 600
    replace(root)
    for name, tasks in sent.items():
        with pytest.raises(StorageError, match=REPLACED[replace].format(root=re.escape(str(root)))):
            table_rows(root, name, tasks)


@pytest.mark.parametrize("directory", ["consumequeue", "index"])
def test_tables_whose_files_are_of_another_day(tmp_path: Path, directory: str) -> None:
    """The log is the same: it says nothing of them."""
    root = built(tmp_path / "store")
    sent = tables_of(root)
    built(tmp_path / "older", count=590)
    shutil.rmtree(root / directory)
    shutil.copytree(tmp_path / "older" / directory, root / directory)
    says = f"sees another store under {root} than the plan: {root}/{directory}/.*: "
    for name in (directory, "check"):
        with pytest.raises(StorageError, match=says):
            table_rows(root, name, sent[name])


def test_tables_of_one_that_grew(tmp_path: Path) -> None:
    root = built(tmp_path / "store")
    (root / "abort").touch()  # else it is a fault for `check` that a segment is gone
    sent = tables_of(root)
    shutil.rmtree(root)
    built(root, count=900)
    (root / "abort").touch()
    for name, tasks in sent.items():
        table_rows(root, name, tasks)
    min((root / "commitlog").iterdir()).unlink()
    for name in sent.keys() - {"traces"}:  # that one is a scan
        table_rows(root, name, sent[name])


def test_what_it_costs_a_table_that_does_not_need_the_log(tmp_path: Path) -> None:
    """Of a store whose broker runs the log's end takes a walk through its last segment."""
    store = stores.StoreBuilder(tmp_path / "store", segment_size=1 << 22)
    for _ in range(900):
        store.append(body=b"x" * 4000)
    store.flush()
    for name in ("groups", "checkpoint", "indexfiles"):
        files = Files()
        opened = Snapshot.find(str(tmp_path / "store"), files)
        (task,) = plan_table(table(name), reading.options_of(tmp_path / "store", table=name), [opened])
        assert task.seen[0].offset == store.messages[-1].position
        assert files.bytes < 200_000
        assert files.requests < 40


@pytest.mark.parametrize("replace", [another, with_other_segments, gone])
def test_a_table_of_a_store_without_queues(tmp_path: Path, replace: Callable[[Path], None]) -> None:
    """Nothing tells for little where its log ends."""
    root = built(tmp_path / "store")
    shutil.rmtree(root / "consumequeue")
    options = reading.options_of(root, table="groups")
    (task,) = plan_table(table("groups"), options)
    replace(root)
    with pytest.raises(StorageError, match=r"sees another store under|is gone since"):
        list(read_part(table("groups"), task, options, schema_of(table("groups"))))


def test_a_table_while_it_is_read(tmp_path: Path) -> None:
    root = built(tmp_path / "store")
    options = reading.options_of(root, table="consumequeue")
    (task,) = plan_table(table("consumequeue"), options)
    batches = read_part(table("consumequeue"), task, options, schema_of(table("consumequeue")))
    next(batches)
    another(root)
    with pytest.raises(StorageError, match="sees another store"):
        list(batches)


def test_tables_of_a_store_without_a_log(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "store" / "config").mkdir()
    for name, tasks in tables_of(tmp_path / "store").items():
        table_rows(tmp_path / "store", name, tasks)
    assert isinstance(rmqstore_spark.StorageError(""), RmqStoreError)


@pytest.mark.parametrize("replace", [another, older, cut_and_gone_on, gone])
def test_a_copy_is_of_one_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace: Callable[[Path], None]
) -> None:
    """Its units are read when it is known which messages they are. All it writes is a whole copy, or nothing."""
    root = built(tmp_path / "store")
    read_into = StoredUnits.read_into
    calls: list[None] = []

    def replaced(self: StoredUnits, *arguments: Any) -> None:
        if not calls:
            replace(root)
        calls.append(None)
        read_into(self, *arguments)

    monkeypatch.setattr(StoredUnits, "read_into", replaced)
    with pytest.raises(StorageError, match=r"sees another store under|is gone since"):
        Store(root).copy(tmp_path / "copy")
    assert calls
    assert not (tmp_path / "copy").exists()


class Refusing(Files):
    """A disk that lets nobody look."""

    def open(self, path: str) -> int:
        raise cannot_read(path, PermissionError())

    def status(self, path: str) -> os.stat_result:
        raise PermissionError


def test_a_store_that_may_not_be_read(tmp_path: Path) -> None:
    root = built(tmp_path / "store")
    for task in tasks_of(root, ["keys"]):
        for piece in task.ranges:
            with pytest.raises(RmqStoreError, match="permission denied; run as a user who may read the store"):
                hold(piece.segment.proofs, Refusing())


def test_a_check_of_a_copy_that_is_not_done(tmp_path: Path) -> None:
    """A segment that is not there yet is no damage of the store that is checked."""
    root = built(tmp_path / "store")
    tasks = plan_table(table("check"), reading.options_of(root, table="check", minPartitions=4))
    sent = pickle.dumps(tasks)
    path = sorted((root / "commitlog").iterdir())[1]
    path.write_bytes(bytes(SEGMENT))
    with pytest.raises(StorageError, match=f"{path}: position .*, found zeros"):
        table_rows(root, "check", sent)


# ---- replaced at a moment of the read


def _replaced(tmp_path: Path) -> tuple[Path, list[reading.Row], Callable[[], None]]:
    """A store, the rows of the one that takes its place, as mode overwrite does it, and what has it take it."""
    root, other = tmp_path / "store", tmp_path / "other"
    rmqstore_spark.write_store(root, pa.table({"topic": ["T"] * 40, "body": ["long"] * 40}), **SIZES)
    rmqstore_spark.write_store(other, pa.table({"topic": ["T"] * 3, "body": ["new"] * 3}), **SIZES)

    def replace() -> None:
        if other.exists():
            root.rename(tmp_path / "gone")
            other.rename(root)
            for path in sorted((tmp_path / "gone").rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()

    return root, reading.read(other), replace


@pytest.mark.parametrize("moment", ["listed", "end known", "opened"])
def test_a_store_that_takes_its_place_meanwhile_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Not nothing either, where the old directory is emptied while it is listed. A read that has given no row yet
    begins anew."""
    root, expected, replace = _replaced(tmp_path)
    if moment == "listed":
        names = os.listdir

        def listed(path: Any) -> list[str]:
            if not str(path).endswith("/commitlog"):
                return names(path)
            fd = os.open(path, os.O_RDONLY)  # as opendir() does, before it reads
            try:
                replace()
                return names(fd)
            finally:
                os.close(fd)

        monkeypatch.setattr(os, "listdir", listed)
        assert reading.read(root) == expected
    elif moment == "end known":
        find = LogEnd.find

        def found(*given: Any) -> Any:
            end = find(*given)
            replace()
            return end

        monkeypatch.setattr(LogEnd, "find", found)
        assert reading.read(root) == expected
    else:
        tasks, real = tasks_of(root, ["body"]), Files.file

        def opened(files: Files, path: str, *given: Any, **named: Any) -> Any:
            if named.get("is_log"):
                replace()
            return real(files, path, *given, **named)

        monkeypatch.setattr(Files, "file", opened)
        with pytest.raises(StorageError, match=r"sees another store under .* than the plan"):
            rows_of(tasks, ["body"])


def test_messages_beside_the_queues_are_those_of_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a table that counts what no queue has: nothing is told of damage."""
    root, _, replace = _replaced(tmp_path)
    shutil.rmtree(root / "consumequeue")
    given, real = list[Any](), read_task

    def read(*arguments: Any) -> Any:
        given.append(arguments)
        replace()
        return real(*arguments)

    monkeypatch.setattr(unqueued, "read_task", read)
    with pytest.raises(StorageError, match=r"sees another store under .* than the plan"):
        Store(root).topics()
    assert len(given) == 1
    assert [each for each in caplog.messages if "cannot be read" in each] == []
