"""Snapshot is the one handle on a store, and Files the one seam under it."""

from __future__ import annotations

import ast
import errno
import os
import pickle
from pathlib import Path

import pytest
from oracle import reference, stores
from support import reading
from support.killing import open_files

import rmqstore_spark
from rmqstore_spark import RmqStoreError, StorageError
from rmqstore_spark.read.plan.planner import plan
from rmqstore_spark.store.io.files import Files, Prices, open_file
from rmqstore_spark.store.snapshot import Snapshot, StoreRef, as_snapshot
from rmqstore_spark.store.structures.window import Window

PACKAGE = Path(rmqstore_spark.__file__).parent


def make_store(root: Path, messages: int = 60) -> stores.StoreBuilder:
    store = stores.StoreBuilder(root, segment_size=2048, queue_file_size=400, index=True)
    for number in range(messages):
        store.append(topic=f"T{number % 3}", queue_id=number % 2, body=b"b" * (number % 40), keys=f"k{number}")
    store.close()
    return store


# ---- what goes to a task


def test_pickled_it_is_small_and_counts_anew(tmp_path: Path) -> None:
    sizes = []
    for messages in (60, 600):
        root = tmp_path / str(messages).zfill(4)
        make_store(root, messages)
        store = Snapshot.find(str(root), Files(Prices(request=7)))
        assert len(store.log.extents) > messages / 30
        assert store.files.requests > 0
        sizes.append(len(pickle.dumps(store)))
        again = pickle.loads(pickle.dumps(store))
        assert (again.files.requests, again.files.bytes, again.files.prices) == (0, 0, Prices(request=7))
        assert (again.root, again.layout.consumequeue) == (store.root, store.layout.consumequeue)
        assert [queue.topic for queue in again.queues] == [queue.topic for queue in store.queues]
    assert sizes[0] == sizes[1]  # however many segments it has
    assert sizes[0] < 1000


def test_what_the_driver_has_found_is_not_there_in_a_task(tmp_path: Path) -> None:
    """Rather than a store that looks empty."""
    make_store(tmp_path)
    store = Snapshot.find(str(tmp_path), Files())
    for again in (pickle.loads(pickle.dumps(store)), pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(store))))):
        assert type(again) is StoreRef
        for name in ("segments", "faults", "end", "last_message", "log", "times", "seen"):
            getattr(store, name)
            with pytest.raises(AttributeError, match=name):
                getattr(again, name)
        with pytest.raises(AssertionError, match="planned elsewhere"):
            as_snapshot(again)


def test_a_task_that_was_pickled_reads_the_same(tmp_path: Path) -> None:
    make_store(tmp_path)
    for given in ({}, {"subscribe": "T1"}, {"key": "k7"}):
        options = reading.options_of(tmp_path, maxPartitionBytes=3000, **given)
        for task in plan(options, Files(reading.FREE)).tasks:
            assert reading.read_one(pickle.loads(pickle.dumps(task)), options) == reading.read_one(task, options)


# ---- faults


class FaultyFiles(Files):
    """Fails at one call, as a disk does."""

    def __init__(self, fails_at: int) -> None:
        super().__init__(reading.FREE)
        self._left = fails_at
        self.has_failed = False

    def _count(self, path: str) -> None:
        self._left -= 1
        if self._left == 0:
            self.has_failed = True
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def names(self, path: str) -> list[str]:
        self._count(path)
        return super().names(path)

    def status(self, path: str) -> os.stat_result:
        self._count(path)
        return super().status(path)

    def open(self, path: str) -> int:
        try:
            self._count(path)
        except OSError as why:
            raise RmqStoreError(f"{path}: cannot be read: {why.strerror}") from None
        return super().open(path)


@pytest.mark.slow
@pytest.mark.parametrize("given", [{}, {"subscribe": "T1"}, {"key": "k7"}, {"startingTimestamp": "1700000000010"}])
def test_a_fault_costs_an_error_or_nothing(tmp_path: Path, given: dict[str, str]) -> None:
    """Wherever the disk fails: the right rows, or one line that says so; what only speeds a read up may be missing."""
    make_store(tmp_path)
    expected = reading.read(tmp_path, **given)
    assert expected
    texts: list[str] = []
    passed = 0
    for fails_at in range(1, 2000):
        files = FaultyFiles(fails_at)
        options = reading.options_of(tmp_path, maxPartitionBytes=3000, **given)
        try:
            rows = [row for task in plan(options, files).tasks for row in reading.read_one(task, options)]
        except RmqStoreError as error:
            texts.append(str(error))
            continue
        assert sorted(rows, key=lambda row: row["commitLogOffset"]) == expected, fails_at
        passed += files.has_failed
        if not files.has_failed:
            break
    else:
        pytest.fail("it never got through")
    assert texts
    assert all(os.strerror(errno.EIO) in text and "\n" not in text for text in texts), texts
    assert passed > 0 or not given
    assert len(reference.read_store(tmp_path)) == 60


@pytest.mark.parametrize("call", ["open_file", "Window"])
def test_no_file_stays_open_whose_status_cannot_be_read(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path)
    store = Snapshot.find(str(tmp_path), Files())
    segment, real, left = store.segments[0], os.fstat, [int(call == "Window")]  # of calls that are answered

    def fails(fd: int) -> os.stat_result:
        if left[0] == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        left[0] -= 1
        return real(fd)

    monkeypatch.setattr(os, "fstat", fails)
    with pytest.raises(RmqStoreError, match="cannot be read: Input/output error"):
        open_file(segment.path, segment.path) if call == "open_file" else Window(segment, Files())
    monkeypatch.undo()
    assert open_files(tmp_path) == []


# ---- the seam


LOOKING = {"listdir", "scandir", "stat", "lstat", "fstat", "walk", "open", "access", "readlink"}


def test_nobody_else_looks_at_a_store() -> None:
    """Only these ask the system: Files for all that read, and the writer's Tree with its calls and files. A command
    line looks where its user wants a file, which of its streams are open, and whether a word is a directory; cores.py
    what a container allows."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Attribute):
                continue
            asked = ast.unparse(node)
            is_call = asked.startswith("os.") and asked.removeprefix("os.") in LOOKING
            if is_call or asked in (
                "os.path.exists",
                "os.path.lexists",
                "os.path.isdir",
                "os.path.isfile",
                "glob.glob",
            ):
                found.add(name)
    assert found == {
        *(f"write/fs/{name}.py" for name in ("disk", "walk", "remove_tree", "new_file", "calls")),
        *("store/io/files.py", "cores.py", "cli/output_file.py", "cli/partitioned.py"),
        *("cli/streams.py", "cli/commands/__init__.py"),
    }


def test_a_log_that_is_cut_while_its_end_is_searched_for(tmp_path: Path) -> None:
    """What is missing is no zeros, behind which the log ends, and what queues know of it is not ahead of the log."""
    make_store(tmp_path)
    store = Snapshot.find(str(tmp_path), Files())
    path = store.segments[-1].path
    os.truncate(path, 100)
    with pytest.raises(StorageError, match=f"{path}: expected 2,048 bytes, .* found 100: the file was cut meanwhile"):
        _ = store.end
    assert Snapshot.find(str(tmp_path), Files()).end > 0


@pytest.mark.parametrize("is_locked", [True, False])
@pytest.mark.parametrize("is_left", [True, False])
def test_only_a_broker_that_did_not_end_may_have_lost_pages(is_locked: bool, is_left: bool, tmp_path: Path) -> None:
    class Locked(Files):
        def is_locked(self, path: str) -> bool:
            return is_locked

    make_store(tmp_path)
    if is_left:
        (tmp_path / "abort").touch()
    assert Snapshot.find(str(tmp_path), Locked()).may_have_old_pages == (is_left and not is_locked)
