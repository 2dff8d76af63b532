"""Reads of a small store beside a writer of ours, or a broker, whose steps come between any two of their system calls:
a program of its own, as the calls are those of faulty_calls.c, which is preloaded.

    PYTHONPATH=.:tests LD_PRELOAD=.../faulty_calls.so python -m support.beside_reads /dev/shm/scratch --trials 1

A read begins after some step of the write; before its n-th call come some more, and then perhaps one more before each
few calls. It prints a line for each read that gave rows of none of the states that the store had meanwhile, that told
of damage, warned of something, or failed.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import random
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from oracle import stores

import rmqstore_spark
from rmqstore_spark import RmqStoreError, Store
from rmqstore_spark.read.plan import again
from rmqstore_spark.store import log_end
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.tables.check import config as check_config
from rmqstore_spark.write.build import stretch
from support import broker_steps, changing_reads, writing
from support.changing_reads import OnDisk, Read
from support.following import Query
from support.recorded import Step, placed, recorded

_HANGS = 300.0  # seconds of one read
KEPT = ["topic", "queueId", "queueOffset", "msgId", "keys", "body"]  # what a copy has unchanged
OFFSETS = '{"offsetTable":{"Orders@G":{0:1,1:4},"Bills@G":{0:1,1:4}}}'


@dataclass(frozen=True)
class Change:
    """What happens to a store.

    Attributes:
        before: the directory in which the store is, before it.
        steps: what is done to it.
        is_atomic: whether the messages come all at once.
        may_be_told: whether a read may end with an error that tells of it.
    """

    name: str
    before: Path
    steps: list[Step]
    is_atomic: bool = True
    may_be_told: tuple[str, ...] = ()


def _rows(numbers: range, topics: Sequence[str] = ("Orders", "Bills", "%RETRY%G")) -> list[dict[str, Any]]:
    return [
        {
            "topic": topics[number % len(topics)],
            "queueId": number % 2,
            "keys": f"order-{number // 10} n{number}",
            "tags": f"g{number % 4}",
            "msgId": f"{number:032X}",
            "body": b"b" * (number * 37 % 300),
            "storeTimestamp": (stores.FIRST_TIMESTAMP + number) * 1000,
            "storeHost": "10.0.0.1:10911",
        }
        for number in numbers
    ]


def _ours(scratch: Path, name: str, sizes: Sizes, count: int, running: bool = False) -> Path:
    """A store that a broker has written, and perhaps we."""
    home = scratch / f"before {name}"
    shutil.rmtree(home, ignore_errors=True)
    store = stores.StoreBuilder(
        home / "store", sizes.segment or 0, sizes.queue_file or 100, index=True,
        index_slots=sizes.slots or 10, index_items=sizes.items or 12,
    )  # fmt: skip
    for row in _rows(range(count)):
        row["msg_id"], row["queue_id"], row["store_host"] = row.pop("msgId"), row.pop("queueId"), row.pop("storeHost")
        row["store_timestamp"] = row.pop("storeTimestamp") // 1000
        store.append(**row)
    store.close()
    (home / "store" / "config" / "consumerOffset.json").write_text(OFFSETS)
    (home / "store" / "config" / "subscriptionGroup.json").write_text(
        '{"subscriptionGroupTable":{"G":{"groupName":"G"}}}'
    )
    return home


IN_PLACE = Sizes(segment=1 << 15, queue_file=400, slots=10, items=40)
BY_EXCHANGE = Sizes(segment=2048, queue_file=100, slots=10, items=12)


def changes_of_ours(scratch: Path, count: int) -> Iterator[Change]:
    new = _rows(range(count, count + 12), ("Orders", "Bills", "New"))

    def made(name: str, sizes: Sizes, act: Callable[[Path], object], twice: bool = False, **more: Any) -> Change:
        before = _ours(scratch, name, sizes, count)
        if twice:  # the log has a record of what we have written
            writing.write(before / "store", _rows(range(500, 505)), sizes=sizes)
        home = scratch / "recorded"
        placed(before, home, [])
        steps = recorded(home, lambda: act(home / "store"))
        shutil.rmtree(home)
        return Change(name, before, steps, **more)

    def append(sizes: Sizes, **options: Any) -> Callable[[Path], object]:
        return lambda root: writing.write(root, new, sizes=sizes, **options)

    yield made("append in place", IN_PLACE, append(IN_PLACE))
    yield made("append in place, twice", IN_PLACE, append(IN_PLACE), twice=True)
    yield made("append by exchange", BY_EXCHANGE, append(BY_EXCHANGE))
    yield made("append by exchange, twice", BY_EXCHANGE, append(BY_EXCHANGE), twice=True)
    with mock.patch.object(stretch, "fits", return_value=False):
        yield made("append to a copy of the segment", IN_PLACE, append(IN_PLACE))
    yield made("append of a stream", IN_PLACE, append(IN_PLACE, txnAppId="app", txnVersion="7"))
    for name, sizes in (("one segment", IN_PLACE), ("segments", BY_EXCHANGE)):
        # Of index files that are made anew, a table that lists their items says so, and a copy that has none to take.
        yield made(
            f"rebuild, {name}",
            sizes,
            rmqstore_spark.rebuild,
            may_be_told=("than the plan", "this index file is not used", "with RocketMQ's own sizes"),
        )
        yield made(f"set offsets, {name}", sizes, lambda root: Store(root).set_offsets({"G": "latest"}))
        yield made(
            f"overwrite, {name}",
            sizes,
            append(sizes, overwrite=True),
            may_be_told=("changed", "gone", "than the plan", "is not the one"),
        )


def changes_of_brokers(scratch: Path, rng: random.Random, count: int) -> Iterator[Change]:
    for name, states, may_delete in broker_steps.broker_states(scratch, rng, count):
        told = ("the file is gone", "are gone") if may_delete else ()
        before = broker_steps.made(scratch, name, states[0])
        yield Change(name, before, broker_steps.steps_of(rng, states), is_atomic=False, may_be_told=told)


# ---- reads


class Where(OnDisk):
    """As OnDisk, where a read may have all that is left of the change be done."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.finish: Callable[[], None] = lambda: None


def reads(where: Where) -> Iterator[tuple[str, Read]]:
    yield from changing_reads.reads(where)
    root = where.path

    def store(**options: Any) -> Store:
        return Store(root, **options)

    yield "messages minPartitions", lambda: store().messages(KEPT, minPartitions=4).read_all().to_pylist()
    yield (
        "messages of tasks",
        lambda: [row for task in store().tasks(columns=KEPT) for batch in task.read() for row in batch.to_pylist()],
    )
    for name in ("copy", "salvage"):
        yield f"messages {name}", lambda name=name: _copied(root, name)  # type: ignore[misc]
    for start in ("earliest", "latest"):
        yield f"stream {start}", lambda start=start: _followed(where, start)  # type: ignore[misc]


def _copied(root: str, name: str) -> list[Any]:
    target = Path(root).parents[1] / "copied"
    shutil.rmtree(target, ignore_errors=True)
    try:
        getattr(Store(root), name)(target)
        wrong = [row for row in Store(target).check().to_pylist() if row["severity"] == "error"]
        assert wrong == [], wrong
        rows: list[Any] = Store(target).messages(KEPT).read_all().to_pylist()
        return rows
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _followed(where: Where, start: str) -> list[Any]:
    """All rows of a stream that goes on when all is done."""
    query = Query(where.path, columns=KEPT, startingOffsets=start)
    query.run(is_limited=False)
    where.finish()
    query.clock.pass_(60)
    query.run(is_limited=False)
    return query.rows if start == "earliest" else query.rows[-1:]


# ---- what comes of them


class Warnings(logging.Handler):
    """What is logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())


@dataclass(frozen=True)
class Outcome:
    """What a read gave: rows, or an error; and what it has warned of."""

    rows: list[str]
    error: str = ""
    warned: tuple[str, ...] = ()

    @property
    def corrupt(self) -> list[str]:
        return [row for row in self.rows if "'corrupt': " in row and "'corrupt': None" not in row]


# A row of these is made of several looks, each at what is there just then.
_SUMS: tuple[str, ...] = (
    "glance",
    "table topics",
    "table queues",
    "table offsets",
    "table usage",
    "table segments",
    "offsets_at",
)
_SUMS += ("table indexfiles", "table checkpoint", "table delayed", "table groups")
# Units that come one by one are the user's word; and a broker may just have written half of one.
_IN_PARTS = ("messages trust", "messages covered", "messages covered topic")
_IS_SO = "units have changed since the read was planned"


def _text(row: Any) -> str:
    if not isinstance(row, dict):
        return repr(row)
    return repr({name: value for name, value in row.items() if name not in changing_reads._OF_THE_READ})


class Trials:
    def __init__(self, scratch: Path, rng: random.Random, given: argparse.Namespace) -> None:
        self._home = scratch / "at"
        self._where = Where(self._home / "store")
        self._rng = rng
        self._given = given
        self.tried = self.told = 0
        self.seen: Counter[str] = Counter()
        self._warnings = Warnings()
        logging.getLogger("rmqstore_spark").addHandler(self._warnings)
        logging.getLogger("rmqstore_spark").propagate = False

    def run(self, some: list[Change]) -> None:
        """Each read beside each change, or some of these pairs that are drawn."""
        asked = [(name, read) for name, read in reads(self._where) if any(each in name for each in self._given.reads)]
        pairs = [(change, name, read) for change in some for name, read in asked]
        if self._given.pairs:
            pairs = self._rng.sample(pairs, min(len(pairs), self._given.pairs))
        for change, name, read in pairs:
            self._all(change, name, read)

    def _outcome(self, read: Read) -> Outcome:
        self._warnings.told.clear()
        try:
            rows = [_text(row) for row in read()]
        except RmqStoreError as why:
            return Outcome([], f"{type(why).__name__}: {why}", tuple(self._warnings.told))
        return Outcome(rows, "", tuple(self._warnings.told))

    def _all(self, change: Change, name: str, read: Read) -> None:
        count = len(change.steps)
        known: dict[int, Outcome] = {}

        def static(k: int) -> Outcome:
            if k not in known:
                placed(change.before, self._home, change.steps[:k])
                rest = iter(change.steps[k:])
                self._where.finish = lambda: broker_steps.all_of(rest, self._home)
                known[k] = self._outcome(read)
                self._judge_static(change, name, k, known[k], static)
            return known[k]

        for k in range(count + 1) if self._given.static else ():
            static(k)
        if self._given.static == "only":
            return
        faulthandler.dump_traceback_later(_HANGS, exit=True)
        placed(change.before, self._home, [])
        self._where.finish = lambda: None
        self._where.begin()
        self._outcome(read)
        calls = self._where.end()
        for _ in range(min(self._given.most, max(1, round(self._given.trials * calls)))):
            faulthandler.dump_traceback_later(_HANGS, exit=True)
            first, n = self._rng.randrange(count), self._rng.randrange(1, calls + 1)
            jump = self._rng.choice([1, 1, 1, 2, 3, self._rng.randrange(1, count + 1)])
            every = self._rng.choice([0, 0, 1, 2, 5, 20])
            if self._given.one:
                first, n, jump, every = self._given.one
            found = self._one(change, name, read, static, first, n, jump, every)
            if found:
                how = f"--one {first} {n} {jump} {every}, {count} steps, {calls} calls, at {self._where.at}"
                print(f"{change.name}: {name}: {how}: {found}"[: self._given.width], flush=True)
            if self._given.one:
                return
        faulthandler.cancel_dump_traceback_later()
        print(f"{change.name}: {name}: {calls} calls, {self.tried} so far", file=sys.stderr, flush=True)

    def _judge_static(
        self, change: Change, name: str, k: int, found: Outcome, static: Callable[[int], Outcome]
    ) -> None:
        if "check" in name:
            wrong = [row for row in found.rows if "'severity': 'error'" in row]
        else:
            wrong = [*found.corrupt, *filter(None, [found.error]), *found.warned]
        is_whole = change.is_atomic and name.startswith(("messages", "get")) and name not in _IN_PARTS
        if is_whole and k not in (0, len(change.steps)):
            whole = [len(static(each).rows) for each in (0, len(change.steps))]
            if len(found.rows) not in whole:
                wrong.append(f"{len(found.rows)} rows, not {whole}")
        for each in wrong:
            if self._given.static:
                print(f"STATIC {change.name}: {name}: after {k}: {each}"[: self._given.width], flush=True)

    def _one(
        self, change: Change, name: str, read: Read, static: Callable[[int], Outcome],
        first: int, n: int, jump: int, every: int,
    ) -> str | None:  # fmt: skip
        done, lock = first, threading.Lock()  # some reads have threads
        placed(change.before, self._home, change.steps[:first])

        def step() -> None:
            nonlocal done
            with lock:
                for each in change.steps[done : done + (jump if done == first else 1)]:
                    each(self._home)
                    done += 1

        def finish() -> None:
            nonlocal done
            self._where.end()
            for each in change.steps[done:]:
                each(self._home)

        self._where.finish = finish
        self._where.begin(n, every, step)
        try:
            got = self._outcome(read)
        except Exception as why:
            return f"{type(why).__name__}: {why}"
        finally:
            self._where.end()
        self.tried += 1
        last = done
        return self._wrong(change, name, got, [static(k) for k in range(first, last + 1)])

    def _wrong(self, change: Change, name: str, got: Outcome, expected: list[Outcome]) -> str | None:
        warned = {each for each in got.warned if not any(told in each for told in (_IS_SO, *change.may_be_told))}
        warned -= {each for one in expected for each in one.warned}
        if warned:
            return f"warns: {min(warned)}"
        if got.error:
            self.told += 1
            kind = got.error.partition(":")[0]
            self.seen[f"{change.name}: {kind}"] += 1
            if got.error in [each.error for each in expected] or any(each in got.error for each in change.may_be_told):
                return None
            return f"raises: {got.error}"
        if got.rows in [each.rows for each in expected if not each.error]:
            return None
        if got.corrupt and not any(each.corrupt for each in expected):
            return f"tells of damage: {got.corrupt[0]}"
        if name == "table check":
            news = {row for row in got.rows if "'severity': 'info'" not in row}
            news = news.difference(*(each.rows for each in expected))
            return f"finds: {min(news)}" if news else None
        if name in _SUMS:
            return None
        some = [Counter(each.rows) for each in expected if not each.error]
        upper = lower = some[0] if some else Counter()
        for each in some:
            upper, lower = upper | each, lower & each
        extra, lacking = Counter(got.rows) - upper, lower - Counter(got.rows)
        if extra:
            if self._given.one:
                print([len(each.rows) for each in expected], *extra, *(upper - Counter(got.rows)), sep="\n")
            return f"rows of no state: {extra.total()} of {len(got.rows)}, {min(extra)}"
        if lacking:
            return f"rows are lost: {lacking.total()}, {min(lacking)}"
        if change.is_atomic and name.partition(" ")[0] in ("messages", "stream", "get") and name not in _IN_PARTS:
            return f"a part: {len(got.rows)} of {sorted({len(each.rows) for each in expected})}"
        return None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--trials", type=float, default=1, help="for each call")
    parser.add_argument("--most", type=int, default=1 << 30, help="for each read beside a change")
    parser.add_argument("--pairs", type=int, help="so many reads beside a change, drawn")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--count", type=int, default=30, help="messages")
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the names of changes")
    parser.add_argument("--reads", nargs="*", default=[""])
    parser.add_argument("--static", nargs="?", const="also", default="")
    parser.add_argument("--one", nargs=4, type=int)
    parser.add_argument("--width", type=int, default=500)
    given = parser.parse_args()
    again._PAUSES = (0.0,) * len(again._PAUSES)  # type: ignore[assignment]
    log_end._SETTLE_SECONDS = check_config._SECONDS_BETWEEN = 0
    rng = random.Random(given.seed)
    trials = Trials(given.scratch, rng, given)
    ours = changes_of_ours(given.scratch, given.count)
    some = [*ours, *changes_of_brokers(given.scratch, rng, given.count)]
    trials.run([change for change in some if any(each in change.name for each in given.only)])
    print(dict(trials.seen), file=sys.stderr)
    print(f"{trials.tried} reads, {trials.told} told")


if __name__ == "__main__":
    main()
