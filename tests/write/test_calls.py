"""Single calls of a write on file systems that lack one, and beside somebody who changes the tree meanwhile: the same
bytes, or the one error that names the path."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.write.fs import calls
from rmqstore_spark.write.fs.disk import Tree
from rmqstore_spark.write.fs.new_file import BLOCK

DATA = bytes(range(256)) * (BLOCK // 256) * 3


def _failing(call: Callable[..., Any], error: int, fails: Callable[..., bool] = lambda *_: True) -> Callable[..., Any]:
    """A call that fails once, where its arguments are such ones."""
    left = [error]

    def made(*arguments: Any, **named: Any) -> Any:
        if left and fails(*arguments):
            raise OSError(left.pop(), os.strerror(error))
        return call(*arguments, **named)

    return made


def _asks_direct(_: int, what: int, *flags: int) -> bool:
    return what == fcntl.F_SETFL and bool(flags[0] & os.O_DIRECT)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    with Tree(str(tmp_path)) as tree:
        yield tree


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EIO])
@pytest.mark.parametrize("refused", ["fcntl", "pwrite"])
def test_blocks_where_direct_writes_are_refused(
    refused: str, error: int, tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems refuse them when they are asked for, some only at a write; then the system is told to begin."""
    aligned = mmap.mmap(-1, len(DATA))
    aligned[:] = DATA
    begun: list[tuple[int, ...]] = []
    monkeypatch.setattr(calls, "start_sync", lambda fd, at, size: begun.append((at, size)))
    if refused == "fcntl":
        monkeypatch.setattr(fcntl, "fcntl", _failing(fcntl.fcntl, error, _asks_direct))
    else:
        monkeypatch.setattr(os, "pwrite", _failing(os.pwrite, error))
    with tree.new_file(str(tmp_path / "new")) as file:
        if error == errno.EIO:
            with pytest.raises((OSError, RmqStoreError), match="Input/output error"):
                file.write_blocks(aligned, BLOCK)
            return
        file.write_blocks(aligned, BLOCK)
        assert not fcntl.fcntl(file._fd, fcntl.F_GETFL) & os.O_DIRECT
    assert (tmp_path / "new").read_bytes() == bytes(BLOCK) + DATA
    assert begun == [(BLOCK, len(DATA))]


@pytest.mark.parametrize("error", [errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EIO, 0])
def test_copies_where_the_system_cannot_copy(
    error: int, tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old").write_bytes(DATA)
    call = _failing(os.copy_file_range, error) if error else lambda *_: 0
    monkeypatch.setattr(os, "copy_file_range", call)
    with tree.new_file(str(tmp_path / "new")) as file:
        if error in (errno.EIO, 0):
            told = "new: cannot be written: Input/output error" if error else "old: cut while it was copied: expected"
            with pytest.raises(RmqStoreError, match=told):
                file.copy_from(tree, str(tmp_path / "old"), len(DATA))
            return
        file.copy_from(tree, str(tmp_path / "old"), len(DATA))
    assert (tmp_path / "new").read_bytes() == DATA


def _libc(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    """The functions that are called by name fail."""

    def fails(*_: object) -> int:
        ctypes.set_errno(error)
        return -1

    names = ("syncfs", "sync_file_range", "fstatfs")
    monkeypatch.setattr(calls, "_LIBC", SimpleNamespace(**dict.fromkeys(names, fails)))


@pytest.mark.parametrize(
    ("error", "can_sync", "may_hint"),
    [(errno.ENOSYS, False, True), (errno.EPERM, False, False), (errno.ESPIPE, None, True), (errno.EIO, None, False)],
)
def test_calls_that_are_made_by_name(
    error: int, can_sync: bool | None, may_hint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a system lacks is done in another way; that to begin early failed is told where it is no mere hint."""
    _libc(monkeypatch, error)
    assert not calls.syncfs_tells_errors(0)
    if can_sync is None:
        with pytest.raises(OSError, match=os.strerror(error)):
            calls.sync_all(0)
    else:
        assert calls.sync_all(0) == can_sync
    if may_hint:
        calls.start_sync(0, 0, 1)
    else:
        with pytest.raises(OSError, match=os.strerror(error)):
            calls.start_sync(0, 0, 1)


@pytest.mark.parametrize(("release", "tells"), [("5.7.9", False), ("5.8.0", True), ("no number", False)])
def test_whether_the_system_tells_of_lost_writes(release: str, tells: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=release))
    monkeypatch.setattr(calls, "_TELL_ERRORS", _Everything())
    with open(os.devnull, "rb") as file:
        assert calls.syncfs_tells_errors(file.fileno()) == tells


class _Everything:
    def __contains__(self, kind: object) -> bool:
        return True


@pytest.mark.parametrize(
    ("name", "quiet", "call"),
    [
        ("fcntl.fcntl", {errno.EAGAIN, errno.EACCES}, lambda: calls.lock(0)),
        ("os.rmdir", {errno.ENOTEMPTY, errno.EEXIST}, lambda: calls.remove_if_empty_at(0, "x")),
        ("os.mkdir", {errno.EEXIST}, lambda: calls.make_directory_at(0, "x", 0o700)),
        (
            "native_io.exchange",
            {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP},
            lambda: calls.try_exchange(0, "x", 0, "y"),
        ),
    ],
)
@pytest.mark.parametrize(
    "error",
    [
        errno.EAGAIN,
        errno.EACCES,
        errno.ENOTEMPTY,
        errno.EEXIST,
        errno.EINVAL,
        errno.ENOSYS,
        errno.EOPNOTSUPP,
        errno.EIO,
    ],
)
def test_errors_that_are_an_answer(
    name: str, quiet: set[int], call: Callable[[], bool], error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name, _failing(lambda *_, **__: None, error))
    if error in quiet:
        assert call() is False
    else:
        with pytest.raises(OSError, match=os.strerror(error)):
            call()


def test_names_that_are_there_or_not(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "full" / "directory").mkdir(parents=True)
    above = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        assert calls.status_at(above, "none") is None
        assert calls.open_new_at(above, "file", 0o600) is None
        assert not calls.remove_if_empty_at(above, "full")
        calls.unlink_at(above, "none")
    finally:
        os.close(above)
    tree.make_lock(str(tmp_path / "file"), b"other")
    assert (tmp_path / "file").read_bytes() == b"x"  # of another process, which made it just before
    tree.remove_tree(str(tmp_path / "file"))
    tree.remove_tree(str(tmp_path / "file"))
    assert not (tmp_path / "file").exists()


def test_what_another_process_did_meanwhile(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pipe").touch()
    os.link(tmp_path / "pipe", tmp_path / "second")
    with pytest.raises(RmqStoreError, match=r"pipe: expected a file of the store's owner, user .*, found another one"):
        tree.open_to_change(str(tmp_path / "pipe"))
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(RmqStoreError, match="fifo: expected a regular file, found another thing; move it away"):
        tree.link(str(tmp_path / "fifo"), str(tmp_path / "new"))
    monkeypatch.setattr(os, "dup", _failing(os.dup, errno.EMFILE))
    with pytest.raises(RmqStoreError, match="cannot be written: Too many open files"), tree.kept_free(1):
        pass
    monkeypatch.setattr(calls, "try_exchange", _failing(calls.try_exchange, errno.EIO))
    with pytest.raises(RmqStoreError, match="Input/output error"):
        tree.can_exchange(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fifo", "new", "pipe", "second"]
    monkeypatch.setattr("rmqstore_spark.write.fs.remove_tree._MOST_PASSES", 3)
    monkeypatch.setattr(calls, "remove_if_empty_at", lambda *_: False)
    (tmp_path / "directory").mkdir()
    with pytest.raises(RmqStoreError, match="directory: cannot be deleted: another process keeps creating files in it"):
        tree.remove_tree(str(tmp_path / "directory"))


def test_an_error_of_the_system_becomes_one_of_ours(tmp_path: Path) -> None:
    """One that nobody expected, as somebody has changed the store between two looks at it."""
    with pytest.raises(RmqStoreError, match=f"{tmp_path}/gone: cannot be written: No such file"), Tree(str(tmp_path)):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "gone")


def test_directories_of_any_depth_are_deleted(tree: Tree, tmp_path: Path) -> None:
    deep = tmp_path / "top"
    for number in range(30):
        deep = deep / f"d{number}"
    deep.mkdir(parents=True)
    for number in range(70):  # more than one thread deletes
        (tmp_path / "top" / f"file{number}").touch()
    tree.remove_tree(str(tmp_path / "top"))
    assert [*tmp_path.iterdir()] == []
