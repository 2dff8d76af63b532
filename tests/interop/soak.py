"""Operations drawn at random on one store, beside a real broker that is started, stopped and killed:

    PYTHONPATH=.:tests python -m interop.soak --minutes 60 --seed 1

Each read is held against what is known: every message that a producer was told of and every row that we wrote is there
once, until a broker has deleted its segment, and while no broker runs the rows are those of the plain reference. The
seed draws the same operations again; how much a producer sends meanwhile is another matter.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from oracle import reference
from support import reading
from support.following import Query, RealClock
from support.patience import HANG

import rmqstore_spark
from interop.expiring import EXPIRED, ExpiringBroker
from interop.rocketmq import NEWEST, Client, Sizes
from rmqstore_spark import DeletedMeanwhileError, RmqStoreError, Store

SIZES = Sizes(segment=256 << 10)  # a message has up to 120 KB
# What the writer has to be told while no file shows it: a broker starts on no files of other sizes than its own.
OURS_TOO = {name: size for name, size in SIZES.settings().items() if name != "mappedFileSizeTimerLog"}
TOPIC, OURS = "Stream", "Ours"
COPIED = ["topic", "queueId", "queueOffset", "body", "keys", "tags", "storeTimestamp"]  # what a copy has unchanged
# A broker that was killed deletes its last index file when it starts, and indexes again only what the last segment has:
# items of the segments before, which that file had too, are lost for good.
LOST_BY_A_KILL = "missingIndexItem"
Row = dict[str, Any]


class Soak:
    """Large because each operation is a method.

    Attributes:
        acked: the ids of the messages that a producer was told of, without those that have expired.
        ours: the bodies of the rows that we wrote, likewise.
        done: how often each operation was done.
    """

    def __init__(self, directory: Path, rng: random.Random, version: str = NEWEST) -> None:
        self.root, self._copy = directory / "store", directory / "copy"
        self._steps, self._rng = random.Random(rng.random()), rng
        self._broker = ExpiringBroker(version, self.root, directory / "home", SIZES)
        self._client: Client | None = None
        self._query = Query(self.root, clock=RealClock(), startingOffsets="earliest")
        self._begin = 0  # what lay before has expired
        self.acked: set[str] = set()
        self.ours: set[bytes] = set()
        self.done: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        try:
            self._start()
            while time.monotonic() < end:
                self._step()
            self._end(self._rng.choice((self._broker.stop, self._broker.kill_alone)))
            self._read_all()
        finally:
            self._broker.kill()

    def told(self) -> str:
        done = ", ".join(f"{name} {count}" for name, count in sorted(self.done.items()))
        known = f"{len(self.acked):,} messages acknowledged, {len(self.ours):,} of ours"
        return f"{sum(self.done.values())} operations ({done}), {known}"

    def _step(self) -> None:
        up = [self._send] * 6 + [self._read, self._follow] * 3 + [self._check, self._consume] * 2
        up += [self._copy_running, self._expire, self._kill, self._stop]
        down = [self._select, self._start] * 3 + [self._append] * 2
        down += [self._rebuild, self._copy_all, self._read_all, self._check, self._follow, self._set_offsets]
        operation = self._steps.choice(up if self._client else down)
        print(operation.__name__.strip("_"), end=" ", flush=True)
        self.done[operation.__name__.strip("_")] += 1
        operation()

    # ---- with a broker

    def _start(self) -> None:
        self._broker.start()
        self._client = self._broker.client()
        self._client.run("create", TOPIC, 4)

    def _begin_to_send(self) -> Client:
        assert self._client is not None
        self._client.begin("stream", TOPIC, self._rng.randrange(100, 600), self._rng.randrange(1 << 31))
        return self._client

    def _take_acks(self) -> None:
        assert self._client is not None
        acks = [record["offsetMsgId"] for record in [*self._client.seen] if record["kind"] == "ack"]
        self.acked |= {each for each in acks if _place(each) >= self._begin}

    def _send(self) -> None:
        """And read meanwhile."""
        client = self._begin_to_send()
        self._read()
        if self._rng.random() < 0.5:
            self._query.trigger()
        client.wait()
        self._take_acks()

    def _read(self) -> None:
        self._take_acks()
        known = self.acked.copy()
        found = self._rows(columns=["offsetMsgId", "commitLogOffset", "body"])
        assert len({row["commitLogOffset"] for row in found}) == len(found)
        assert known <= {row["offsetMsgId"] for row in found}
        assert Counter(row["body"] for row in found if row["body"] in self.ours) == Counter(self.ours)

    def _consume(self) -> None:
        assert self._client is not None
        if len(self.acked) > 5:
            got = self._client.run("consume", TOPIC, f"group-{secrets.token_hex(4)}", 5, 0)
            assert len(got) >= 5

    def _copy_running(self) -> None:
        """A copy has what was acknowledged before, and nothing that the store does not have."""
        self._take_acks()
        known = self.acked.copy()
        client = self._begin_to_send()
        Store(self.root).copy(self._copy)
        client.wait()
        self._take_acks()
        rows = self._rows(columns=["offsetMsgId", *COPIED])
        copied = _counted(reading.read(self._copy, columns=COPIED))
        assert _counted(row for row in rows if row["offsetMsgId"] in known) <= copied <= _counted(rows)
        assert [row for row in Store(self._copy).check().to_pylist() if row["severity"] == "error"] == []
        shutil.rmtree(self._copy)

    def _expire(self) -> None:
        """The broker deletes its oldest segments, which the query has passed."""
        if len(self._broker.segments()) < EXPIRED + 2:
            return
        self._take_acks()
        self._query.run(is_limited=False)
        places = {row["body"]: row["commitLogOffset"] for row in self._rows(columns=["commitLogOffset", "body"])}
        self._broker.expire()
        end = time.monotonic() + HANG
        while self._broker.is_expiring():
            assert time.monotonic() < end
            self._read_meanwhile()
        self._begin = self._broker.segments()[0]
        self.acked = {each for each in self.acked if _place(each) >= self._begin}
        self.ours = {body for body in self.ours if places[body] >= self._begin}

    def _read_meanwhile(self) -> None:
        """While segments are deleted: nothing is there twice, or the read says that they are gone."""
        with contextlib.suppress(DeletedMeanwhileError):
            found = self._rows(columns=["commitLogOffset"])
            assert len({row["commitLogOffset"] for row in found}) == len(found)

    def _kill(self) -> None:
        if self._rng.random() < 0.7:
            self._begin_to_send()
            time.sleep(self._rng.random() / 2)
        self._end(self._broker.kill_alone)

    def _stop(self) -> None:
        self._end(self._broker.stop)

    def _end(self, how: Callable[[], None]) -> None:
        client = self._client
        how()
        if client is not None:
            self._client = client
            self._take_acks()
        self._client = None

    # ---- without one, or with any

    def _rows(self, **options: Any) -> list[Row]:
        prices = self._rng.choice((None, reading.FREE))
        size = self._rng.choice((1, 100_000, 1 << 30))
        return reading.read(self.root, prices=prices, maxPartitionBytes=size, **options)

    def _follow(self) -> None:
        if self._rng.random() < 0.3:
            self._query.restart()
        self._query.trigger()

    def _check(self) -> None:
        rows = Store(self.root).check().to_pylist()
        wrong = [row for row in rows if row["severity"] == "error"]
        if self.done["kill"]:
            wrong = [row for row in wrong if row["problem"] != LOST_BY_A_KILL]
        assert wrong == [], wrong[:3]

    def _append(self) -> None:
        sizes = [self._rng.randrange(1, 3000) for _ in range(self._rng.randrange(1, 300))]
        bodies = [secrets.token_bytes(size) + b"ours" for size in sizes]
        topics = [self._rng.choice((OURS, TOPIC)) for _ in bodies]
        keys = [f"ours-{number % 7}" for number in range(len(bodies))]
        table = pa.table({"topic": topics, "body": pa.array(bodies, pa.binary()), "keys": keys})
        if (self.root / "abort").exists():
            try:
                rmqstore_spark.write_store(self.root, table, **OURS_TOO)
            except RmqStoreError:
                self._rebuild()
        assert rmqstore_spark.write_store(self.root, table, **OURS_TOO) == len(bodies)
        self.ours |= {*bodies}

    def _rebuild(self) -> None:
        rmqstore_spark.rebuild(self.root)

    def _copy_all(self) -> None:
        Store(self.root).copy(self._copy)
        assert reading.read(self._copy, columns=COPIED) == reading.read(self.root, columns=COPIED)
        shutil.rmtree(self._copy)

    def _set_offsets(self) -> None:
        before = self._consumed()
        groups = sorted({group for group, topic, _ in before if topic == TOPIC})
        if not groups:
            return
        place = self._rng.choice(("earliest", "latest"))
        changed = Store(self.root).set_offsets({self._rng.choice(groups): place}).to_pylist()
        bound = "minOffset" if place == "earliest" else "maxOffset"
        assert all(row["newOffset"] == row[bound] for row in changed), changed
        new = {(row["group"], row["topic"], row["queueId"]): row["newOffset"] for row in changed}
        assert self._consumed() == before | new

    def _consumed(self) -> dict[tuple[str, str, int], int]:
        rows = Store(self.root).table("offsets").to_pylist()
        return {
            (row["group"], row["topic"], row["queueId"]): row["consumerOffset"]
            for row in rows
            if row["consumerOffset"] is not None
        }

    def _read_all(self) -> None:
        truth = reference.read_store(self.root)
        assert self._rows(mode=self._rng.choice(("FAILFAST", "DROPMALFORMED"))) == truth
        assert self.acked <= {row["offsetMsgId"] for row in truth}
        assert Counter(row["body"] for row in truth if row["body"] in self.ours) == Counter(self.ours)
        self._query.run(is_limited=False)
        rows = self._query.rows
        assert rows[len(rows) - len(truth) :] == truth
        assert all(row["commitLogOffset"] < self._begin for row in rows[: len(rows) - len(truth)])

    def _select(self) -> None:
        truth = reading.read(self.root)
        if not truth:
            return
        row = self._rng.choice(truth)
        begin = row["storeTimestamp"] // 1000
        key = str(row["keys"] or "none").split()[0]
        kinds: list[tuple[Row, Callable[[Row], bool]]] = [
            ({"key": key}, lambda each: key in str(each["keys"] or "").split()),
            ({"subscribe": row["topic"]}, lambda each: each["topic"] == row["topic"]),
            ({"startingTimestamp": begin}, lambda each: each["storeTimestamp"] >= row["storeTimestamp"]),
            ({"tags": row["tags"] or "tag1"}, lambda each: each["tags"] == (row["tags"] or "tag1")),
        ]
        options, is_wanted = self._rng.choice(kinds)
        assert self._rows(**options) == [each for each in truth if is_wanted(each)], options


def _place(offset_msg_id: str) -> int:
    """In the log."""
    return int(offset_msg_id[-16:], 16)


def _counted(rows: Iterable[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[name] for name in COPIED) for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="interop.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1, 1 << 31))
    parser.add_argument("--version", default=NEWEST, help="of the broker")
    arguments = parser.parse_args()
    print(f"soak: seed {arguments.seed}, RocketMQ {arguments.version}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        soak = Soak(Path(directory), random.Random(arguments.seed), arguments.version)
        try:
            soak.run(60 * arguments.minutes)
        finally:
            print(f"\n{soak.told()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
