"""Many files are brought to disk several at a time: all of them, or an error."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import writing
from support.patience import HANG
from support.reading import read

import rmqstore_spark
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.write.fs import calls, disk
from rmqstore_spark.write.fs.background import for_each

MANY = 2000


@pytest.mark.parametrize("count", [0, 1, 500, MANY])
def test_each_is_done_once(count: int) -> None:
    done: list[int] = []
    for_each(range(count), done.append)
    assert sorted(done) == list(range(count))


def test_many_are_done_by_several_threads() -> None:
    threads = set()
    meeting = threading.Barrier(2, timeout=HANG)

    def work(item: int) -> None:
        threads.add(threading.get_ident())
        if item in (0, MANY - 1):
            meeting.wait()  # the first and the last at the same time

    for_each(range(MANY), work)
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_error_no_other_is_begun(error: type[BaseException]) -> None:
    begun: list[int] = []

    def work(item: int) -> None:
        begun.append(item)
        if item == 100:
            raise error("that one")

    with pytest.raises(error, match="that one"):
        for_each(range(100 * MANY), work)
    assert len(begun) < 50 * MANY


def stored(queues: int) -> list[dict[str, Any]]:
    return [{"topic": f"T{n // 7}", "queueId": n % 7, "body": b"%d" % n} for n in range(queues)]


class Recorder:
    """What a write does on disk, in order: the names of the calls, and the paths."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, str]] = []
        self._do = calls.do
        monkeypatch.setattr(calls, "do", self)

    def __call__(self, call: Any, path: str, *arguments: Any) -> Any:
        self.calls.append((getattr(call, "__name__", ""), path))
        return self._do(call, path, *arguments)

    def until_published(self) -> list[tuple[str, str]]:
        """Those before two directories swap their names in a store, and a probe of that is none; or before the last
        write into a segment that is there."""
        swaps = [n for n, (name, _) in enumerate(self.calls) if name == "exchange"]
        segments = [n for n, (_, path) in enumerate(self.calls) if "/commitlog/" in path and "/new/" not in path]
        writes = [n for n in segments if self.calls[n][0] == "_pwrite"]
        return self.calls[: swaps[0] if swaps else writes[-1]]


@pytest.mark.slow
def test_all_of_many_queues_come_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More queues than are brought to disk one by one: each file and directory is, before the commit point."""
    queues = 700
    rows = stored(queues)
    writing.write(tmp_path, rows[:1], sizes=Sizes(slots=1000, items=5000))
    recorder = Recorder(monkeypatch)
    writing.write(tmp_path, rows, sizes=Sizes())
    monkeypatch.undo()
    synced = {path for name, path in recorder.until_published() if name == "fsync"}
    files = {path for path in synced if "/new/consumequeue/" in path and path.endswith("0" * 20)}
    assert len(files) == queues
    assert {path.rpartition("/")[0] for path in files} <= synced
    before = read(tmp_path)
    assert len(before) == queues + 1
    assert rmqstore_spark.rebuild(tmp_path) == queues + 1
    assert read(tmp_path) == before


SIZES = Sizes(segment=1 << 17, queue_file=400, slots=1000, items=5000)
CHANGES = ("open_at", "make_directory_at", "_pwrite", "ftruncate", "utime", "link_at")


@pytest.mark.parametrize("action", ["new", "append", "rebuild"])
def test_one_call_brings_all_of_many_queues_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """Nothing is made or changed in the new ConsumeQueue between that call and the commit point."""
    monkeypatch.setattr(disk, "_MANY_TO_SYNC", 100)
    with disk.Tree(str(tmp_path)) as tree:
        if not tree.sync_all(100):
            pytest.skip("syncfs() tells no errors on this system, or of this file system")
    rows = stored(150)
    if action != "new":
        writing.write(tmp_path, rows[::-1] if action == "append" else rows, sizes=SIZES)
    recorder = Recorder(monkeypatch)
    if action == "rebuild":
        rmqstore_spark.rebuild(tmp_path)
    else:
        writing.write(tmp_path, rows, sizes=SIZES)
    done = recorder.calls if action == "new" else recorder.until_published()
    made = [n for n, (name, path) in enumerate(done) if name in CHANGES and "/new/consumequeue" in path]
    assert len(made) > 500
    assert "sync_all" in [name for name, _ in done[max(made) :]]
    assert len([name for name, path in done if name == "fsync" and "/new/consumequeue/" in path]) == 0
    assert len(read(tmp_path)) == 150 * (2 if action == "append" else 1)


@pytest.mark.parametrize("when", [0, 1])
def test_when_it_tells_an_error_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int) -> None:
    rows = stored(150)
    writing.write(tmp_path, rows, sizes=SIZES)
    before, files = read(tmp_path), writing.files(tmp_path, "**/*")
    monkeypatch.setattr(disk, "_MANY_TO_SYNC", 100)
    monkeypatch.setattr(calls, "syncfs_tells_errors", lambda _: True)
    synced = itertools.count()

    def broken(_: int) -> bool:
        if next(synced) == when:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return True

    monkeypatch.setattr(calls, "sync_all", broken)
    with pytest.raises(RmqStoreError, match="cannot be written: Input/output error"):
        writing.write(tmp_path, rows, sizes=SIZES)
    assert next(synced) == when + 1
    monkeypatch.undo()
    assert read(tmp_path) == before
    assert {name: data for name, data in writing.files(tmp_path, "**/*").items() if "staging" not in name} == files


@pytest.mark.parametrize("release", ["4.19.0-26-amd64", "5.7.19", "fancy"])
def test_each_is_synced_where_nobody_would_tell_of_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setattr(disk, "_MANY_TO_SYNC", 1)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=release))
    with disk.Tree(str(tmp_path)) as tree:
        assert not tree.sync_all(1000)


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM])
def test_each_is_synced_where_the_call_is_forbidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def forbidden(_: int) -> int:
        ctypes.set_errno(code)
        return -1

    monkeypatch.setattr(calls, "_LIBC", SimpleNamespace(syncfs=forbidden))
    monkeypatch.setattr(calls, "syncfs_tells_errors", lambda _: True)
    with disk.Tree(str(tmp_path)) as tree:
        assert not tree.sync_all(disk._MANY_TO_SYNC)


def test_what_is_wide_and_deep_is_removed_and_nothing_else(tmp_path: Path) -> None:
    """Many directories at several levels, links out of them among their files, and one name of a file elsewhere."""
    outside = tmp_path / "outside"
    (outside / "a" / "b").mkdir(parents=True)
    (outside / "a" / "file").write_text("precious")
    top = tmp_path / "tree" / "top"
    for n in range(150):
        queue = top / f"T{n}" / str(n % 3)
        queue.mkdir(parents=True)
        (queue / "0").write_text("x")
        (queue / "link").symlink_to(outside)
        (queue / "link to nothing").symlink_to(outside / "none")
        os.link(outside / "a" / "file", queue / "second name")
        os.mkfifo(top / f"T{n}" / "fifo")
        (top / f"link {n}").symlink_to(outside / "a")
    (top / "T0").joinpath(*["a"] * 40).mkdir(parents=True)
    for n in range(200):
        (top / "T1" / "many" / str(n)).mkdir(parents=True)
    with disk.Tree(str(tmp_path / "tree")) as tree:
        tree.remove_tree(str(top))
    assert list((tmp_path / "tree").iterdir()) == []
    assert [path.name for path in sorted(outside.rglob("*"))] == ["a", "b", "file"]
    assert (outside / "a" / "file").read_text() == "precious"
    assert (outside / "a" / "file").stat().st_nlink == 1


@pytest.mark.parametrize("place", ["mounted", "a/b/mounted"])
def test_what_is_mounted_in_a_directory_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    top = tmp_path / "top"
    mounted = top / place
    mounted.mkdir(parents=True)
    (mounted / "precious").touch()
    mount = calls.mount_of
    monkeypatch.setattr(calls, "mount_of", lambda fd: mount(fd) + os.path.samestat(os.fstat(fd), mounted.stat()))
    with disk.Tree(str(tmp_path)) as tree, pytest.raises(RmqStoreError, match="found a mount point"):
        tree.remove_tree(str(top))
    assert (mounted / "precious").exists()
