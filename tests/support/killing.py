"""What is killed, or fails, at the n-th change it makes on disk; and what it has left."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from oracle import reference

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.write.commit import Settings, check, commit
from rmqstore_spark.write.fs import calls
from support import reading, writing
from support.writing import Row, assert_whole, write

SIZES = Sizes(segment=2048, queue_file=400, slots=10, items=100)


class Killed(BaseException):
    """No code handles it: what it leaves is what a kill leaves."""


# How an act is stopped: it has no time to undo anything, or it undoes what it has done.
STOPS = [Killed, pytest.param(RmqStoreError, marks=[pytest.mark.slow, pytest.mark.long])]


class Stopper:
    """Lets the n-th change on disk fail: as a kill, and all after it as well; as an error, only that one, if not told
    otherwise."""

    def __init__(self) -> None:
        self._real = calls.do
        self._left: int | None = None
        self._error: type[BaseException] = Killed
        self._for_ever = True
        self.calls = 0
        self.last = ""  # path that something was to be done with
        self.written: set[str] = set()  # names of files
        self.writes: list[tuple[int, str]] = []  # since at(): the number of the call, and the path

    def at(self, number: int | None, error: type[BaseException] = Killed, for_ever: bool = False) -> None:
        self._left, self._error, self.calls = number, error, 0
        self.writes = []
        self._for_ever = for_ever or error is Killed

    def __call__(self, call: Any, path: str, *arguments: Any) -> Any:
        self.calls += 1
        self.last = path
        if call.__name__ == "_pwrite":
            self.written.add(os.path.basename(path))
            self.writes.append((self.calls, path))
        if self._left is not None and self.calls > self._left:
            if not self._for_ever:
                self._left = None
            raise self._error(path)
        return self._real(call, path, *arguments)


def rows(count: int, topic: str, first: int = 0) -> list[Row]:
    return [
        {
            "topic": topic if i % 3 else "Both",
            "queueId": i % 2,
            "keys": f"k{i}",
            "msgId": f"{topic}-{i}",
            "body": b"%d " % i * (10 + i % 7),
            "storeTimestamp": (1_700_000_000_000 + i) * 1000,
        }
        for i in range(first, first + count)
    ]


# ---- what a killed writer has left


def ids(root: Path) -> list[str]:
    """As a broker sees it that recovers: from the first segment to the first thing that is no message."""
    found: list[str] = []
    segments = reference.segment_files(root) if (root / "commitlog").exists() else []
    expected = int(segments[0].name) if segments else 0
    for path in segments:
        if int(path.name) != expected:
            break
        data = path.read_bytes()
        last = expected
        for at, unit in reference.read_segment(data, expected, last=True):
            found.append(reference.decode_unit(unit, at)["msgId"])
            last = at + len(unit)
        inside = last - expected
        if not reference.is_blank(data[inside : inside + 8], len(data) - inside):
            break
        expected += len(data)
    return found


def ours(root: Path) -> list[str]:
    return [row["msgId"] for row in reading.read(root)] if (root / "commitlog").exists() else []


def assert_all_or_none(root: Path, none: list[str], all_: list[str]) -> bool:
    """Whether it is all. The reference, which expects every file to be sound, ours, and one that recovers, agree."""
    found = ids(root)
    assert found in (none, all_)
    assert ours(root) == found
    if (root / "commitlog").exists():
        assert [row["msgId"] for row in reference.read_store(root)] == found
    if not (root / "abort").exists():
        # A broker takes it for a clean stop: ConsumeQueue has to know every message.
        units = [(at, reference.parse_unit(data, at)) for at, data in reference.read_units(root)] if found else []
        queued = {(t, q, o): unit.physical_offset for t, q, o, unit in reference.read_queues(root)}
        wanted = {(u.topic.decode(), u.queue_id, u.queue_offset): at for at, u in units}
        assert queued == wanted
    else:
        assert not (root / "checkpoint").exists()
    return found == all_


@dataclass(frozen=True)
class Try:
    """An act that was stopped, or came to its end.

    Attributes:
        number: how many changes it was allowed.
        told: the error that it ended with; None where it ended without one.
        has_stopped: whether one change more was tried, so that it failed.
    """

    number: int
    told: str | None
    has_stopped: bool


def stopped_at_every_change(
    stop: Stopper,
    begin: Callable[[], Callable[[], object]],
    error: type[BaseException] = Killed,
    *,
    raises: type[BaseException] | None = None,
    for_ever: bool = False,
    backwards: bool = False,
) -> Iterator[Try]:
    """An act is done again and again: stopped at its first change on disk, at its second, and so on to a whole one.
    What each has left is for the loop to look at, and to clear away.

    Args:
        begin: makes ready for one more, and gives the act.
        error: what the change fails with.
        raises: what the act makes of that; where nothing is said, it lets it through.
        for_ever: all later changes fail as well; a kill's always do.
        backwards: the whole one comes first, then the one that lacks only the last change, and so on.
    """

    caught = error if raises is None else (error, raises)

    def tried(number: int | None) -> Try:
        act = begin()
        stop.at(number, error, for_ever)
        told = None
        try:
            act()
        except caught as why:
            told = str(why)
        finally:
            made = stop.calls
            stop.at(None)
        return Try(made if number is None else number, told, number is not None and made > number)

    if backwards:
        whole = tried(None)
        yield whole
        yield from map(tried, reversed(range(whole.number)))
        return
    for number in itertools.count():
        yield (found := tried(number))
        if not found.has_stopped:
            return


def stopped_writes(
    home: Path, stop: Stopper, error: type[BaseException], new: list[Row], sizes: Sizes = SIZES
) -> Iterator[tuple[Path, bool]]:
    """A write to a copy of `home`/before, or to a new store where there is none, that is stopped at every change.

    Yields:
        What it left: the store, and whether all of the messages are there, or none.
    """
    before, root = home / "before", home / "store"
    none = ids(before)
    all_ = none + [row["msgId"] for row in new]

    def begin() -> Callable[[], object]:
        if before.exists():
            shutil.copytree(before, root)
        _, staged = writing.stage_rows(root, [new])
        return lambda: commit(str(root), staged, Settings(sizes))

    outcomes: list[bool] = []
    for each in stopped_at_every_change(stop, begin, error):
        outcomes.append(assert_all_or_none(root, none, all_))
        if error is not Killed:
            # What fails has left nothing. What has been published does not fail any more.
            assert open_files(home) == []
            assert (each.told is None) == outcomes[-1]
        yield root, outcomes[-1]
        assert_goes_on(root, sizes)
        shutil.rmtree(root)
    assert outcomes == sorted(outcomes)  # first none, then all
    assert outcomes.count(False) > 30
    assert outcomes.count(True) > 10


def state(root: Path) -> dict[str, bytes]:
    return {name: data for name, data in writing.files(root, "**/*").items() if not name.startswith(".rmqstore")}


def open_files(root: Path) -> list[str]:
    """Those of this process; a deleted file takes space on disk as long as it is open."""
    paths = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            paths.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [path for path in paths if path.startswith(str(root))]


def assert_goes_on(root: Path, sizes: Sizes = SIZES) -> None:
    """The next write cleans up, or finishes; then the store is whole, and has no trace of what was."""
    found = ids(root)
    check(str(root), Settings(sizes))  # as Spark does before it plans
    assert ids(root) == found
    write(root, rows(1, "Next", 9000), sizes=sizes)
    shutil.rmtree(root / ".rmqstore-spark", ignore_errors=True)  # staged by a job that was not told to abort
    assert [row["msgId"] for row in assert_whole(root, sizes)] == [*found, "Next-9000"]
