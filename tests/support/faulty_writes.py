"""Writes of a small store, each again and again, with another one of their system calls failing each time: a program of
its own, as the calls are those of faulty_calls.c, which is preloaded.

    PYTHONPATH=.:tests LD_PRELOAD=.../faulty_calls.so python -m support.faulty_writes /dev/shm/scratch 1 1 kinds append

It prints a line for each write that left something else than all of it or nothing, whose error said otherwise, that
raised what is none of our errors, or after which the next write failed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import json
import logging
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rmqstore_spark
from rmqstore_spark import OptionError, RmqStoreError, Store
from rmqstore_spark.store.format.sizes import Sizes
from support import rare_kinds, writing
from support.killing import open_files, ours, rows

FAILS, IS_SHORT, IS_INTERRUPTED, LACKS_ROOM = 0, 1, 3, 4  # as in faulty_calls.c
FAULTS = (
    (FAILS, errno.EIO),
    (LACKS_ROOM, errno.ENOSPC),
    (LACKS_ROOM, errno.EDQUOT),
    (IS_SHORT, 0),
    (IS_INTERRUPTED, 0),
)
# Segments of which each is made anew, and some that have room for what is appended.
SIZES = {"files": Sizes(2048, 400, 10, 100), "in place": Sizes(1 << 18, 400, 10, 100)}
KINDS = "kinds"  # light queues, a static topic, and queues of batches, one of which no message is left
OFFSETS = Path("config") / "consumerOffset.json"
# What an error says where all is there.
_IS_DONE = ("all messages are written", "is whole", "changed: 1 of 1 file")

Ids = list[str]


@dataclass(frozen=True)
class Write:
    """What is done to a store, `root`, that is a copy of `before`, if there is one.

    Attributes:
        act: does it.
        state: what is looked at.
        before, after: that, before and after it.
        is_again: whether doing it again is the next write.
    """

    act: Callable[[Path], object]
    state: Callable[[Path], object]
    before: object
    after: object
    is_again: bool = False


def writes(before: Path, sizes: Sizes) -> Iterator[tuple[str, Write]]:
    old, new = rows(20, "Old"), rows(20, "New", 1000)
    added = [row["msgId"] for row in new]
    writing.write(before, old, sizes=sizes)
    (before / OFFSETS).write_text(json.dumps({"offsetTable": {"Old@G": {"0": 3}}}))
    there = ours(before)
    yield "append", Write(lambda root: writing.write(root, new, sizes=sizes), ours, there, there + added)
    yield (
        "append of a stream",
        Write(
            lambda root: writing.write(root, new, sizes=sizes, txnAppId="app", txnVersion="7"),
            ours, there, there + added, is_again=True,
        ),
    )  # fmt: skip
    yield "overwrite", Write(lambda root: writing.write(root, new, sizes=sizes, overwrite=True), ours, there, added)
    yield "rebuild", Write(rmqstore_spark.rebuild, ours, there, there, is_again=True)
    yield "set offsets", Write(lambda root: Store(root).set_offsets({"G": "latest"}), _offset("Old@G"), 3, 6)
    yield "copy", Write(lambda root: Store(before).copy(root.with_name("new")), _copied, [], there)
    yield "salvage", Write(lambda root: Store(before).salvage(root.with_name("new")), _copied, [], there)
    yield "new", Write(lambda root: writing.write(root.with_name("new"), new, sizes=sizes), _copied, [], added)


def writes_of_kinds(before: Path) -> Iterator[tuple[str, Write]]:
    """Those of a store with light queues, a static topic and queues of batches: after each these have what they had, or
    after an overwrite, nothing."""
    rare_kinds.light_and_static(before, batches=True)
    (before / OFFSETS).write_text(json.dumps({"offsetTable": {"%LMQ%a@G": {"0": 3}}}))
    there, new = _kinds(before), rows(20, "New", 1000)
    assert [len(ids) for ids in there] == [36, 20, 10, 15, 6, 2], there
    added, queues = [row["msgId"] for row in new], there[1:]

    def write(root: Path, **options: Any) -> None:
        writing.write(root, new, sizes=rare_kinds.SIZES, **options)

    yield "append", Write(write, _kinds, there, [there[0] + added, *queues])
    yield "overwrite", Write(lambda root: write(root, overwrite=True), _kinds, there, [added, *([] for _ in queues)])
    yield "rebuild", Write(rmqstore_spark.rebuild, _kinds, there, there, is_again=True)
    yield "set offsets", Write(lambda root: Store(root).set_offsets({"G": "latest"}), _offset("%LMQ%a@G"), 3, 20)

    def copied(root: Path) -> list[list[Any]]:
        return _kinds(root.with_name("new"))[:-1]

    yield "copy", Write(lambda root: Store(before).copy(root.with_name("new")), copied, [[]] * 5, there[:-1])


def _kinds(root: Path) -> list[list[Any]]:
    """The messages of the log, of light queues, of the static topic by their places in it, and of queues of batches, by
    the queue itself. The last ones are files of queues of batches, also that of which no message is left."""
    found: list[list[Any]] = [ours(root)]
    for topic in ("%LMQ%a", "%LMQ%b", "Static", rare_kinds.BATCHES):
        names = ["msgId", "logicOffset"] if topic == "Static" else ["msgId"]
        given = []
        if found[0]:
            with contextlib.suppress(OptionError):  # there is no such topic, after an overwrite
                given = Store(root, trust="queues").messages(names, subscribe=topic).read_all().to_pylist()
        found.append([tuple(row.values()) for row in given])
    queues = root / "batchconsumequeue"
    files = sorted((path, path.read_bytes().rstrip(b"\0")) for path in queues.glob("*/*/*"))
    found.append([(str(path.relative_to(queues)), data) for path, data in files])
    return found


def _offset(name: str) -> Callable[[Path], object]:
    """What tells the offset in queue 0 of a topic and group."""
    return lambda root: json.loads((root / OFFSETS).read_text())["offsetTable"][name]["0"]


def _copied(root: Path) -> Ids:
    return ours(root.with_name("new"))


class Trials:
    def __init__(self, scratch: Path, sizes: Sizes) -> None:
        self._calls = ctypes.CDLL(os.environ["LD_PRELOAD"])
        self._calls.faulty_path.restype = ctypes.c_char_p
        self.before, self._home, self._sizes = scratch / "before", scratch / "home", sizes
        self.tried = self.told = 0
        self._left_open: set[str] = set()  # which is told once

    @property
    def at(self) -> str:
        return str(self._calls.faulty_path().decode()).removeprefix(str(self._home))

    def count(self, write: Write) -> int:
        """Of a whole write, how many calls it makes."""
        told, count = self._done(write, 0, FAILS, 0)
        root = self._home / "store"
        assert (told, write.state(root)) == (None, write.after), (told, write.state(root))
        return count

    def wrong(self, write: Write, n: int, how: int, error: int) -> str | None:
        """What is wrong after a write whose n-th call fails."""
        self.tried += 1
        try:
            told, _ = self._done(write, n, how, error)
        except Exception as why:
            return f"{type(why).__name__}: {why}"
        self.told += told is not None
        if how in (IS_SHORT, IS_INTERRUPTED) and told is not None:
            return f"was not to fail: {told}"
        root = self._home / "store"
        if left_open := sorted({*open_files(self._home)} - self._left_open):
            self._left_open.update(left_open)
            return f"left open: {left_open}"
        found = write.state(root)
        is_done = told is None or any(each in told for each in _IS_DONE)
        if found != (write.after if is_done else write.before):
            there = "all" if found == write.after else "nothing" if found == write.before else "a part"
            return f"{there} is there: {told}"
        return self._goes_on(write, root, is_done)

    def _done(self, write: Write, n: int, how: int, error: int) -> tuple[str | None, int]:
        shutil.rmtree(self._home, ignore_errors=True)
        self._home.mkdir()
        root, told = self._home / "store", None
        shutil.copytree(self.before, root)
        self._calls.faulty_begin(str(self._home.parent).encode(), n, how, error)
        try:
            write.act(root)
        except RmqStoreError as why:
            told = str(why)
        finally:
            count = self._calls.faulty_end()
        return told, count

    def _goes_on(self, write: Write, root: Path, is_done: bool) -> str | None:
        """The next write, of the same or of more, is whole."""
        try:
            if write.is_again or not is_done:
                write.act(root)
            if write.state(root) != write.after:
                return "done again, it is not whole"
            for each in (root, root.with_name("new")):
                if each.exists():
                    self._append(each)
        except Exception as why:
            return f"the next write: {type(why).__name__}: {why}"
        return None

    def _append(self, root: Path) -> None:
        there = ours(root)
        writing.write(root, rows(3, "More", 5000), sizes=self._sizes if root.name == "store" else Sizes())
        assert ours(root) == there + [row["msgId"] for row in rows(3, "More", 5000)]
        wrong = [row for row in Store(root).check().to_pylist() if row["severity"] == "error"]
        assert wrong == [], wrong


def main(scratch: Path, step: int, rng: random.Random, names: Sequence[str], acts: Sequence[str]) -> None:
    """Let every `step`-th call of each write fail, of these stores and acts, or of all."""
    logging.disable()
    tried = told = 0
    for name in names or (*SIZES, KINDS):
        sizes = SIZES.get(name, rare_kinds.SIZES)
        trials = Trials(scratch / name.replace(" ", "-"), sizes)
        all_ = writes_of_kinds(trials.before) if name == KINDS else writes(trials.before, sizes)
        for what, write in [each for each in all_ if not acts or each[0] in acts]:
            count = trials.count(write)
            for (how, error), n in itertools.product(FAULTS, range(1, count + 1, step)):
                number = min(count, n + rng.randrange(step))
                if found := trials.wrong(write, number, how, error):
                    print(
                        f"{what}, {name}, call {number} of {count} at {trials.at}, fault {how} {error}: {found}",
                        flush=True,
                    )
        tried, told = tried + trials.tried, told + trials.told
    print(f"{tried} faults, {told} told")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), random.Random(sys.argv[3]), sys.argv[4:5], sys.argv[5:])
