"""A store that somebody has prepared, what lies beside it, and what can stand in the place of its files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rmqstore_spark.errors import RmqStoreError
from support import writing
from support.patience import HANG
from support.writing import some_rows

SOMEBODY = 65534
IS_ROOT = os.geteuid() == 0
WRITERS = ["root", "owner"] if IS_ROOT else ["owner"]
_SECONDS = int(HANG)


class Ground:
    """A store, what lies beside it, and who may be anybody.

    Attributes:
        root: the store, sound, of somebody.
        victim: files that are none of its business.
    """

    def __init__(self, home: Path, rng: random.Random) -> None:
        self.home = home
        self.root = home / "store"
        self.victim = home / "victim"
        (self.victim / "commit" / "new").mkdir(parents=True)
        (self.victim / "0").mkdir()
        for name in ("file", "commit/journal", f"{0:020d}", f"0/{0:020d}", f"0/{99999:020d}", "20200101000000000"):
            (self.victim / name).write_text(f"precious {name}")
        (self.victim / "topics.json").write_text('{"topicConfigTable":{}}')
        rows = some_rows(rng, 60)
        for i, row in enumerate(rows):
            row.update(topic="TopicA", queueId=i % 2, keys=f"k{i}", storeTimestamp=1_700_000_000_000_000 + i * 1000)
        writing.write(self.root, rows)
        self.give(self.root)
        self.give(self.victim, 0)

    def give(self, top: Path, user: int = SOMEBODY) -> None:
        """All of a directory to somebody."""
        if IS_ROOT:
            for path in (top, *top.rglob("*")):
                os.lchown(path, user, user)

    @contextlib.contextmanager
    def acting_as(self, writer: str) -> Iterator[None]:
        """Root, or the store's owner."""
        if IS_ROOT and writer == "owner":
            for path in self.home.parents:  # another session of pytest closes them when it starts
                if not path.stat().st_mode & stat.S_IXOTH:
                    path.chmod(path.stat().st_mode | stat.S_IXGRP | stat.S_IXOTH)
            os.setegid(SOMEBODY)
            os.seteuid(SOMEBODY)
        try:
            yield
        finally:
            if IS_ROOT:
                os.seteuid(0)
                os.setegid(0)

    def attempt(self, act: Callable[[], object], writer: str) -> str | None:
        """What an act says: None where it goes well; an error of ours in one line else. All that is outside stays."""
        before = self.outside()
        told = None
        with in_time(), self.acting_as(writer):
            try:
                act()
            except RmqStoreError as error:
                told = str(error)
        assert self.outside() == before
        if told is not None:
            assert told.isprintable(), told
        return told

    def put(self, place: str, kind: Callable[[Path], None]) -> None:
        """Put something else in the place of the last of the store's files that a glob matches; or where none is."""
        found = sorted(self.root.glob(place))
        path = found[-1] if found else self.root / place
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        kind(path)
        self.give(self.root)

    def outside(self) -> dict[str, tuple[Any, ...]]:
        """What must stay as it is: names, inodes, kinds, owners, times and contents of all that is not the store's."""
        found = entries(self.home, but=self.root)
        return {
            path: entry if Path(path).parent != self.home or path == str(self.victim) else (*entry[:4], 0, entry[5])
            for path, entry in found.items()
        }


def entries(top: Path, but: Path | None = None) -> dict[str, tuple[Any, ...]]:
    """All below a directory, but for one: the inode, kind, owner, group, time and content of each."""
    found: dict[str, tuple[Any, ...]] = {}
    for directory, names, files in os.walk(top):
        names[:] = [name for name in names if Path(directory, name) != but]
        for path in (Path(directory, name) for name in (*names, *files)):
            if path == but:
                continue
            status = path.lstat()
            digest = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(status.st_mode) else ""
            found[str(path)] = (
                *(status.st_ino, status.st_mode, status.st_uid, status.st_gid),
                *(status.st_mtime_ns, digest),
            )
    return found


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """Whoever waits for ever, fails."""

    def give_up(*_: object) -> None:
        raise AssertionError(f"nothing happened for {_SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def link_at(*place: str, to: str = "") -> Callable[[Ground], None]:
    def plant(ground: Ground) -> None:
        path = ground.root.joinpath(*place)
        target = ground.victim / to
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(target)

    return plant


LINKS = {
    "consumequeue": link_at("consumequeue"),
    "index": link_at("index"),
    "config": link_at("config"),
    "workshop": link_at(".rmqstore-spark"),
    "commit": link_at(".rmqstore-spark", "commit", to="commit"),
    "lock": link_at("lock", to="file"),
    "lock that dangles": link_at("lock", to="none"),
    "checkpoint": link_at("checkpoint", to="file"),
    "checkpoint that dangles": link_at("checkpoint", to="none"),
    "topics.json": link_at("config", "topics.json", to="topics.json"),
    "topics.json.bak": link_at("config", "topics.json.bak", to="topics.json"),
    "topic": link_at("consumequeue", "TopicA"),
    "queue": link_at("consumequeue", "TopicA", "0", to="0"),
    "another topic": link_at("consumequeue", "Other"),
}


def fifo(path: Path) -> None:
    os.mkfifo(path)


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(path.parent):
        listener.bind(path.name)


def directory(path: Path) -> None:
    path.mkdir()


def device(path: Path) -> None:
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero, which never ends


PLACES = ("commitlog/*", "consumequeue/TopicA/0/*", "index/*", "checkpoint", "config/topics.json", "lock", "abort")
