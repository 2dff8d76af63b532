"""What a writer of ours does to a store, change by change, to be done again to a copy of it, as far as one wants."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import native_io
from rmqstore_spark.store.io.files import F_OFD_SETLK, FIRST_BYTE
from rmqstore_spark.write.fs import calls

# Does one change; the directory that the store is in.
Step = Callable[[Path], None]
_SAY_NOTHING = {"fsync", "sync_all", "start_sync", "fchmod", "fchown", "utime", "try_exchange"}
_MAKING = (".rmqstore-spark/commit", ".rmqstore-spark/staging", ".rmqstore-spark/exchange", "rmqstore-spark-new/")


class Locked:
    """Locks that replayed writers hold, until they are let go."""

    fds: ClassVar[list[int]] = []

    @classmethod
    def let_go(cls) -> None:
        while cls.fds:
            os.close(cls.fds.pop())


def recorded(home: Path, act: Callable[[], object]) -> list[Step]:
    """The changes that an act makes below a directory. What readers cannot see, as files that are being made in the
    workshop, comes together with the next one that they can."""
    found: list[tuple[bool, Step]] = []
    real, one_by_one = calls.do, threading.Lock()

    def do(call: Any, told: str, *arguments: Any) -> Any:
        with one_by_one:
            path = _now(call, told, arguments)
            before = _content(path)
            answer = real(call, told, *arguments)
            name = getattr(call, "__name__", "")
            for seen, step in _steps(home, name, path, arguments, answer, before):
                found.append((seen, step))
            return answer

    with mock.patch.object(calls, "do", do):
        act()
    return list(_together(found))


def _now(call: Any, path: str, arguments: tuple[Any, ...]) -> str:
    """The path of a file that may have got another name since it was opened."""
    name = getattr(call, "__name__", "")
    fd = call.__self__._fd if name in ("_pwrite", "_copy") else arguments[0] if name == "ftruncate" else None
    return path if fd is None else os.readlink(f"/proc/self/fd/{fd}")


def _together(found: list[tuple[bool, Step]]) -> Iterator[Step]:
    some: list[Step] = []
    for is_seen, step in found:
        some.append(step)
        if is_seen:
            yield functools.partial(_each, some)
            some = []
    if some:
        yield functools.partial(_each, some)


def _each(steps: list[Step], home: Path) -> None:
    for step in steps:
        step(home)


def _content(path: str) -> bytes | None:
    with contextlib.suppress(OSError):
        return Path(path).read_bytes() if os.path.isfile(path) else None
    return None


def _is_seen(*paths: str) -> bool:
    return any(not any(each in path for each in _MAKING) for path in paths)


def _steps(
    home: Path, name: str, path: str, arguments: tuple[Any, ...], answer: Any, before: bytes | None
) -> Iterator[tuple[bool, Step]]:
    if name in _SAY_NOTHING:
        return
    below = f"{home}/"

    def of(above: int, entry: str) -> str:
        return f"{os.readlink(f'/proc/self/fd/{above}')}/{entry}".removeprefix(below)

    here = path.removeprefix(below)
    if name == "lock":
        yield True, functools.partial(lock, here)
    elif name in ("make_directory_at", "makedirs"):
        if answer is not False:
            yield _is_seen(here), functools.partial(_make_directory, here)
    elif name in ("rename_at", "link_at", "exchange"):
        one, other = of(arguments[0], arguments[1]), of(arguments[2], arguments[3])
        act: Any = {"rename_at": os.rename, "link_at": os.link, "exchange": _exchange}[name]
        yield _is_seen(one, other), functools.partial(_move, act, one, other)
    elif name in ("unlink_at", "remove_directory_at", "remove_if_empty_at"):
        yield _is_seen(of(*arguments)), functools.partial(_remove, of(*arguments))
    elif name == "rmdir":
        yield True, functools.partial(_remove, here)
    else:  # it was written to, cut, or made
        after = _content(path)
        if after is None and name in ("open_at", "open_new_at"):
            return
        assert after is not None, (name, path)
        yield _is_seen(here), _written(here, before, after)


def lock(path: str, home: Path) -> None:
    fd = os.open(home / path, os.O_RDWR | os.O_CLOEXEC)
    fcntl.fcntl(fd, F_OFD_SETLK, FIRST_BYTE)
    Locked.fds.append(fd)


def _make_directory(path: str, home: Path) -> None:
    (home / path).mkdir(parents=True, exist_ok=True)


def _move(act: Callable[[str, str], None], one: str, other: str, home: Path) -> None:
    act(f"{home}/{one}", f"{home}/{other}")


def _exchange(one: str, other: str) -> None:
    native_io.exchange(-100, os.fsencode(one), -100, os.fsencode(other))


def _remove(path: str, home: Path) -> None:
    target = home / path
    with contextlib.suppress(OSError):
        if target.is_dir() and not target.is_symlink():
            target.rmdir()
        else:
            target.unlink()


def _written(path: str, before: bytes | None, after: bytes) -> Step:
    old = (before or b"")[: len(after)].ljust(len(after), b"\0")
    differ = (
        [at for at, (one, other) in enumerate(zip(old, after, strict=True)) if one != other] if old != after else []
    )
    part = (differ[0], after[differ[0] : differ[-1] + 1]) if differ else (0, b"")
    return functools.partial(_write, path, before is None or len(before) != len(after), len(after), *part)


def _write(path: str, is_resized: bool, size: int, at: int, data: bytes, home: Path) -> None:
    fd = os.open(home / path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        if is_resized:
            os.ftruncate(fd, size)
        if data:
            os.pwrite(fd, data, at)
    finally:
        os.close(fd)


def placed(before: Path, home: Path, steps: list[Step]) -> None:
    """A directory becomes a copy of another one, to which these changes were made."""
    Locked.let_go()
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(before, home, copy_function=_copied)
    for step in steps:
        step(home)


def _copied(source: str, target: str) -> None:
    """With its holes, as a broker's files have them."""
    data = Path(source).read_bytes()
    with open(target, "wb") as file:
        file.truncate(len(data))
        end = len(data.rstrip(b"\0"))
        file.write(data[:end])
