"""Reads of a store that others change in between, before the first, the second and each later system call: a program of
its own, as the calls are those of faulty_calls.c, which is preloaded. With --remote it is in a bucket, and requests are
counted.

    PYTHONPATH=.:tests LD_PRELOAD=.../faulty_calls.so python -m support.changing_reads /dev/shm/scratch --step 1

It prints a line for each read that gave rows which are of neither state, or lost some that are of both, or raised what
is none of our errors; one that hangs ends it.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import itertools
import logging
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from oracle import stores

from rmqstore_spark import DeletedMeanwhileError, RmqStoreError, Store
from rmqstore_spark.read.plan import again
from rmqstore_spark.read.plan.stores import files_of
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.io.remote import tries
from rmqstore_spark.tables.registry import TABLES
from support import reading, s3_server
from support.changed_stores import Change, Content, Operation, Place, changes, faults

Read = Callable[[], list[Any]]
_HANGS = 300.0  # seconds of one read
# A row of these is made of several reads: where something else takes the place of what a broker has written, it has
# numbers of both.
_SUMS = (
    "glance",
    "table topics",
    "table queues",
    "table offsets",
    "table usage",
    "table segments",
    "table indexfiles",
    "offsets_at",
)
_OF_THE_READ = ("allocated", "files", "sizeOnDisk", "source")
_COVERED = ["topic", "queueId", "commitLogOffset"]


# ---- where a store is


class OnDisk:
    """In a directory, where system calls are counted."""

    def __init__(self, root: Path) -> None:
        self.path = str(root)
        self.options: dict[str, str] = {}
        self._calls = ctypes.CDLL(os.environ["LD_PRELOAD"])
        self._calls.faulty_path.restype = ctypes.c_char_p
        self._hook = ctypes.CFUNCTYPE(None, ctypes.c_int)
        self._step: Any = None

    def files(self) -> Files:
        return reading.new_files(reading.FREE)

    def begin(self, n: int = 0, every: int = 0, step: Callable[[], None] = lambda: None) -> None:
        """From now on `step` is called before the n-th call, and before each `every`-th one after it."""
        self._step = self._hook(lambda number: step())
        self._calls.faulty_change(self.path.encode(), n, every, self._step)

    def end(self) -> int:
        """How many calls there were."""
        return int(self._calls.faulty_end())

    @property
    def at(self) -> str:
        """What the call was about."""
        return str(self._calls.faulty_path().decode().replace(self.path, ""))


class InBucket:
    """In a bucket of S3, where requests are counted. Otherwise as OnDisk."""

    path = "s3://stores/store"

    def __init__(self, root: Path) -> None:
        tries._FIRST_PAUSE, tries._LONGEST_PAUSE = 0.001, 0.01
        self._server = s3_server.Server(root.parent)
        self._server.__enter__()  # up to the end of this process
        self._server.fault = self._asked
        self.options = self._server.options
        self.at = ""
        self._lock = threading.Lock()
        self._given: tuple[int, int, Callable[[], None]] = 0, 0, lambda: None
        self._count: int | None = None

    def files(self) -> Files:
        return files_of(reading.options_of(self.path, **self.options))

    def begin(self, n: int = 0, every: int = 0, step: Callable[[], None] = lambda: None) -> None:
        self._given, self._count = (n, every, step), 0

    def _asked(self, number: int, key: str) -> None:
        with self._lock:
            if self._count is None:
                return
            self._count += 1
            n, every, step = self._given
            past = self._count - n
            if past == 0:
                self.at = " ".join(map(str, self._server.asked[number][1:]))
            if n and (past == 0 or (every and past > 0 and past % every == 0)):
                step()

    def end(self) -> int:
        with self._lock:  # a step that has begun is to be over before the store is made anew
            count, self._count = self._count, None
        return count or 0


# ---- reads


def reads(where: OnDisk | InBucket) -> Iterator[tuple[str, Read]]:
    """The ways to the store's messages, and its tables."""

    def messages(columns: Sequence[str] | None = None, **options: Any) -> Read:
        given = {**where.options, **options}
        return lambda: reading.read(where.path, columns=columns, files=where.files(), **given)

    def opened(**options: Any) -> Store:
        return Store(where.path, **where.options, **options)  # type: ignore[arg-type]

    for mode in reading.MODES:
        yield f"messages all, {mode}", messages(mode=mode)
        yield f"messages topic, {mode}", messages(mode=mode, subscribe="Orders")
        yield f"messages key, {mode}", messages(mode=mode, subscribe="Bills", key="order-2")
    yield "messages tags", messages(subscribe="Orders", tags="g1")
    yield "messages trust", messages(subscribe="Orders", trust="queues")
    yield "messages covered", messages(_COVERED, trust="queues")
    yield "messages covered topic", messages(_COVERED, trust="queues", subscribe="Orders")
    yield "messages covered, proved", messages(_COVERED)
    yield "messages key alone", messages(key="n33")
    yield "messages assign", messages(assign='{"Orders": [1]}', startingOffsets='{"Orders": {"1": 3}}')
    yield "messages time", messages(startingTimestamp=stores.FIRST_TIMESTAMP + 20)
    yield "messages until", messages(endingTimestamp=stores.FIRST_TIMESTAMP + 40)
    yield "messages msgId", messages(msgId=f"{33:032X}")
    yield "messages of Store", lambda: opened().messages(["commitLogOffset", "body"]).read_all().to_pylist()
    for name in TABLES:
        yield f"table {name}", _table(opened, name)
    yield "offsets_at", lambda: [opened().offsets_at(stores.FIRST_TIMESTAMP + 20)]
    yield "offsets_of", lambda: [opened().offsets_of("G")]
    yield "history", lambda: opened().history("order-3").to_pylist()
    yield "get", lambda: opened().get("n33").to_pylist()
    if isinstance(where, OnDisk):  # in a bucket it says what went wrong, in a line of its own
        yield "glance", lambda: repr(opened()).splitlines()[1:]


def _table(opened: Callable[[], Store], name: str) -> Read:
    return lambda: opened().table(name).to_pylist()


# ---- what comes of them


class Outcome(NamedTuple):
    """What a read gave: rows (None where it raised one of our errors) and what it told of damage."""

    rows: list[str] | None
    offsets: list[int]
    told: str = ""
    is_deleted: bool = False


def outcome(read: Read) -> Outcome:
    try:
        rows = read()
    except RmqStoreError as why:
        return Outcome(None, [], f"{type(why).__name__}: {why}", isinstance(why, DeletedMeanwhileError))
    corrupt = [row for row in rows if isinstance(row, dict) and row.get("corrupt") is not None]
    sound = [row for row in rows if row not in corrupt]
    offsets = (row.get("commitLogOffset") for row in sound if isinstance(row, dict))
    return Outcome(list(map(_text, sound)), sorted(at for at in offsets if at is not None), str(corrupt or ""))


def _text(row: Any) -> str:
    """What files take on the disk depends on how they were written. How many a queue has is counted when its directory
    is listed, which may be after the log's end was found. Of what comes just then, `usage` knows from the log, not from
    queues."""
    if not isinstance(row, dict):
        return repr(row)
    return repr({name: value for name, value in row.items() if name not in _OF_THE_READ})


def wrong(name: str, change: Change, expected: list[Outcome], got: Outcome, is_remote: bool) -> str | None:
    """What is wrong with what came, if anything; `expected`: of each state that the store had."""
    is_scan = name.startswith("messages")
    is_fine = change.kind == "expires" and is_scan and got.is_deleted
    if got.told and change.kind and not is_fine and not is_remote:  # an object does not grow: another takes its place
        return f"told of one that {change.kind}: {got.told}"
    if got.rows is None or got.rows in [each.rows for each in expected]:
        return None
    if not change.kind and name in _SUMS:
        return None
    if name == "table check":
        return _found_wrong(got.rows, expected) if change.kind else None
    return _mixed(got.rows, expected, bool(got.told)) or (
        "not the beginning of what came"
        if change.kind == "grows" and is_scan and "covered" not in name and not _is_beginning(got, expected[-1])
        else None
    )


def _is_beginning(got: Outcome, last: Outcome) -> bool:
    return got.offsets == last.offsets[: len(got.offsets)]


def _found_wrong(rows: list[str], expected: list[Outcome]) -> str | None:
    """A broker that does its work is no damage."""
    news = {row for row in rows if "'severity': 'info'" not in row}.difference(*(each.rows or () for each in expected))
    return f"finds: {min(news)}" if news else None


def _mixed(rows: list[str], expected: list[Outcome], is_told: bool) -> str | None:
    """Each row is one of some state, as often as there, and what is in all states is here."""
    some = [Counter(each.rows) for each in expected if each.rows is not None]
    if len(some) < len(expected) and not is_told:
        return f"{len(rows)} rows, a mixture, where a state is told of"
    if not some:
        return None
    upper = lower = some[0]
    for each in some:
        upper, lower = upper | each, lower & each
    extra, lacking = Counter(rows) - upper, lower - Counter(rows)
    if extra:
        return f"rows of no state: {extra.total()}, {min(extra)}"
    return f"rows are lost: {lacking.total()}, {min(lacking)}" if lacking else None


class Trials:
    """Reads of one store again and again. Counts them, and prints what is wrong."""

    def __init__(self, where: OnDisk | InBucket, root: Path, rng: random.Random, step: int) -> None:
        self._where = where
        self._root = root
        self._rng = rng
        self._step = step
        self._known: dict[tuple[str, int], Outcome] = {}
        self.tried = self.told = 0

    def run(self, change: Change, names: Sequence[str]) -> None:
        place = Place(self._root, change)
        steps = change.steps()
        for name, read in reads(self._where):
            if any(each in name for each in names):
                self._all(change, place, steps, name, read)

    def _all(self, change: Change, place: Place, steps: list[Operation], name: str, read: Read) -> None:
        faulthandler.dump_traceback_later(_HANGS, exit=True)
        expected = [self._of_state(place, content, name, read) for content in change.possible]
        place.set(change.states[0])
        self._where.begin()
        assert outcome(read) == expected[0], name
        count = self._where.end()
        for n in range(1 + self._rng.randrange(self._step), count + 1, self._step):
            faulthandler.dump_traceback_later(_HANGS, exit=True)
            if found := self._one(change, steps, expected, n, name, read):
                print(f"{change.name}: {name}, call {n} of {count} at {self._where.at}: {found}", flush=True)
            place.set(change.states[0])
        faulthandler.cancel_dump_traceback_later()

    def _of_state(self, place: Place, content: Content, name: str, read: Read) -> Outcome:
        key = name, hash(tuple(sorted(content.items())))
        if key not in self._known:
            place.set(content)
            self._known[key] = outcome(read)
        return self._known[key]

    def _one(
        self, change: Change, steps: list[Operation], expected: list[Outcome], n: int, name: str, read: Read
    ) -> str | None:
        left, lock = iter(steps), threading.Lock()

        def step() -> None:
            time.sleep(change.stalls)
            if change.fault:
                raise s3_server.Fault(*change.fault)
            with lock:  # some reads have threads
                for each in itertools.islice(left, 1) if change.every else left:
                    each(self._root)

        self._where.begin(n, change.every, step)
        try:
            got = outcome(read)
        except Exception as why:
            return f"{type(why).__name__}: {why}"
        finally:
            self._where.end()
        self.tried += 1
        self.told += bool(got.told)
        return wrong(name, change, expected, got, isinstance(self._where, InBucket))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--remote", action="store_true")
    parser.add_argument("--step", type=int, default=1, help="of so many calls one is tried")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--count", type=int, default=36, help="messages")
    parser.add_argument("--some", type=int, help="so many of the changes, drawn anew with each seed")
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the names of changes")
    parser.add_argument("--reads", nargs="*", default=[""])
    given = parser.parse_args()
    logging.disable()
    again._PAUSES = (0.0,) * len(again._PAUSES)  # type: ignore[assignment]
    rng = random.Random(given.seed)
    root = given.scratch / "at" / "store"
    where = InBucket(root) if given.remote else OnDisk(root)
    trials = Trials(where, root, rng, given.step)
    some = list(changes(given.scratch, rng, given.count))
    some += faults(given.scratch, given.count) if given.remote else ()
    some = [change for change in some if any(each in change.name for each in given.only)]
    for change in rng.sample(some, given.some) if given.some else some:
        print(f"{change.name}, after {trials.tried}", file=sys.stderr, flush=True)
        trials.run(change, given.reads)
    print(f"{trials.tried} changes, {trials.told} told")


if __name__ == "__main__":
    main()
