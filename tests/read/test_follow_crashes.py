"""Streams of stores whose end is lost and written anew before it was read: all batches together are still a batch read
of what the logs became."""

from __future__ import annotations

import json
import os
import random
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from oracle import stores
from support.following import Query

from rmqstore_spark.errors import DataLossError

COLUMNS = ["store", "commitLogOffset", "queueOffset", "body"]
LIMITS: list[dict[str, Any]] = [
    {},
    {"maxOffsetsPerTrigger": 1},
    {"maxOffsetsPerTrigger": 5},
    {"maxBytesPerTrigger": 400},
    {"maxBytesPerTrigger": 3000},
    {"maxBytesPerTrigger": 2000, "maxOffsetsPerTrigger": 3},
]
Place = tuple[str, int]


class Broker(stores.StoreBuilder):
    """A broker's store; each has a host of its own."""

    def __init__(self, root: Path, segment_size: int = 4096) -> None:
        super().__init__(root, segment_size)
        self._host = f"10.0.0.{zlib.crc32(root.name.encode()) % 256}:10911"
        self._left_over: set[int] = set()  # where units of a log begin that was cut

    def add(self, count: int, size: int = 40) -> None:
        """Messages; no two have the same body."""
        while count > 0 or self.end in self._left_over:  # what stands just at the end is a message of it
            body = b"%d " % self.now + b"x" * size
            number = len(self.messages)
            self.append(topic=f"T{number % 3}", queue_id=number % 2, body=body, store_host=self._host, tags="A")
            count -= 1
            size += count < 0
        self.flush()

    def crash(self, rng: random.Random, lost: int) -> None:
        """It dies, and has lost its last messages when it starts again; it goes on with others."""
        now = self.now
        self._left_over |= {message.position for message in self.messages[-lost:]}
        self.forget_last(lost)
        self.now = now + rng.randrange(1, 100_000)
        self.add(1, size=rng.randrange(200, 900))
        (self.root / "abort").write_text("4711")
        os.utime(self.root / "lock", ns=(self.now * 1_000_000, self.now * 1_000_000))  # a disk's clock may be coarse


class Machine:
    """A query, its stores, and what happens to them.

    Attributes:
        gone: the rows that were read of segments that have expired.
    """

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.rng = rng
        self.stores = [Broker(root / name, rng.choice((2048, 4096, 1 << 16))) for name in "abc"[: rng.randrange(1, 4)]]
        for store in self.stores:
            store.add(rng.randrange(20))
        self.starts: dict[str, dict[str, int]] = rng.choice(({}, {}, {"T0": {"0": 3}}, {"T1": {"0": 2, "1": 9}}))
        for store in self.stores:
            # Queues that are named must be there.
            store.add(6)
        start = json.dumps(self.starts) if self.starts else "earliest"
        self.query = Query(root / "*", columns=COLUMNS, startingOffsets=start, **rng.choice(LIMITS))
        self.gone: set[Place] = set()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            often = [self.trigger, self.append, self.lose]
            self.rng.choice([*often, *often, self.restart, self.all_now, self.close, self.expire])()
        self.query.clock.pass_(5)
        self.query.run()
        rows = [(row["store"], row["commitLogOffset"]) for row in self.query.rows]
        assert sorted(rows) == sorted(self.gone | {place for store in self.stores for place in self.wanted(store)})

    def wanted(self, store: Broker) -> set[Place]:
        return {
            (str(store.root), message.position)
            for message in store.messages
            if message.queue_offset >= self.starts.get(message.topic, {}).get(str(message.queue_id), 0)
        }

    def trigger(self) -> None:
        self.query.trigger(is_limited=self.rng.random() < 0.9)

    def append(self) -> None:
        self.rng.choice(self.stores).add(self.rng.randrange(12), self.rng.randrange(300))

    def lose(self) -> None:
        """Any number of messages that were not read."""
        store = self.rng.choice(self.stores)
        read = self.read_to(store)
        unread = sum(message.position >= read for message in store.messages)
        if unread:
            store.crash(self.rng, self.rng.randrange(1, unread + 1))
            self.query.clock.pass_(self.rng.choice((0, 5)))

    def restart(self) -> None:
        nothing = {"maxOffsetsPerTrigger": 1 << 40, "maxBytesPerTrigger": 1 << 40}
        self.query.restart(**{**nothing, **self.rng.choice(LIMITS)})

    def all_now(self) -> None:
        """With trigger availableNow, while things go on happening. It ends."""
        self.query.start()
        self.restart()
        self.query.follower.stop_here()
        for _ in range(500):
            if self.query.trigger() is None:
                break
            if self.rng.random() < 0.3:
                self.rng.choice((self.append, self.lose))()
        else:
            raise AssertionError("it goes on and on")
        self.query.restart()

    def close(self) -> None:
        self.rng.choice(self.stores).close(self.rng.random() < 0.5)

    def expire(self) -> None:
        """What was read."""
        store = self.rng.choice(self.stores)
        read = self.read_to(store) // store.segment_size - store.start // store.segment_size
        if read > 0:
            kept = self.wanted(store)
            store.expire(1)
            self.gone |= kept - self.wanted(store)

    def read_to(self, store: Broker) -> int:
        self.query.start()
        return self.query.at.stores[str(store.root)].position


@pytest.mark.parametrize("count", [10, pytest.param(25, marks=pytest.mark.slow)])
def test_all_batches_are_a_batch_read_of_what_the_logs_became(tmp_path: Path, rng: random.Random, count: int) -> None:
    for number in range(count):
        Machine(tmp_path / str(number), random.Random(rng.randrange(1 << 32))).run(25)


@pytest.mark.parametrize("limit", [{"maxOffsetsPerTrigger": 4}, {"maxBytesPerTrigger": 700}])
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("lost", [1, 8, 20, 26])
@pytest.mark.parametrize("seconds", [0, 5])
def test_what_was_not_read_may_change(
    tmp_path: Path, limit: dict[str, Any], restart: bool, lost: int, seconds: float
) -> None:
    """The follower has seen the end that is lost; what was read is still there. However soon the next look comes: where
    the log is shorter now, the last message that was seen still stands where it stood."""
    store = Broker(tmp_path, 1 << 16)
    store.add(30)
    query = Query(tmp_path, columns=COLUMNS, startingOffsets="earliest", **limit)
    query.trigger()
    assert 0 < len(query.rows) <= 4
    store.crash(random.Random(1), lost)
    if restart:
        query.restart()
    query.clock.pass_(seconds)
    query.run()
    query.clock.pass_(5)
    query.run()
    assert [row["commitLogOffset"] for row in query.rows] == [message.position for message in store.messages]


def test_what_was_read_may_not(tmp_path: Path) -> None:
    """The error names what was read, not what was seen."""
    store = Broker(tmp_path)
    store.add(30)
    query = Query(tmp_path, columns=COLUMNS, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    query.trigger()
    store.crash(random.Random(1), 21)
    query.clock.pass_(5)
    with pytest.raises(DataLossError, match=f"was read to commitLogOffset {query.at.stores[str(tmp_path)].position}: "):
        query.trigger()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("lost", [5, 25])
def test_the_end_of_a_batch_is_lost_before_it_is_read(tmp_path: Path, lost: int, restart: bool) -> None:
    """It may have been read, as Spark asks for a batch again; without failOnDataLoss what is left of it comes. Also
    where the log is shorter now, so that the batch's last message still stands where it stood."""
    store = Broker(tmp_path, 1 << 16)
    store.add(30)
    query = Query(tmp_path, columns=COLUMNS, startingOffsets="earliest")

    def crash() -> None:
        store.crash(random.Random(1), lost)
        if restart:
            query.restart()

    with pytest.raises(DataLossError, match="the log is not the one that was read"):
        query.trigger(before_reading=crash)
    query.restart(failOnDataLoss=False)
    end = query.at.stores[str(tmp_path)].position
    rows = query.rows_between(-2, -1)
    kept = [message for message in store.messages if message.end <= end]
    assert [row["commitLogOffset"] for row in rows] == [message.position for message in kept]
    assert len(kept) >= 30 - lost
    query.clock.pass_(5)
    store.add(10)
    after = query.run()
    assert [row["commitLogOffset"] for row in after] == [m.position for m in store.messages if m.position >= end]


def test_the_segment_was_closed_before_what_was_read(tmp_path: Path) -> None:
    """A blank leaves what stood behind it, the last message that was read too."""
    store = Broker(tmp_path)
    store.add(20)
    query = Query(tmp_path, columns=COLUMNS, startingOffsets="earliest")
    query.run()
    assert query.at.stores[str(tmp_path)].position < store.segment_size
    store.forget_last(8)
    cut = store.end
    store.add(1, size=3000)
    store.add(60)
    assert store.messages[-1].position > 2 * store.segment_size > cut
    (tmp_path / "lock").write_bytes(b"lock")
    query.clock.pass_(5)
    with pytest.raises(DataLossError, match="the log is not the one that was read"):
        query.trigger()
    query.restart(failOnDataLoss=False)
    rows = query.run()
    assert [row["commitLogOffset"] for row in rows] == [m.position for m in store.messages if m.position >= cut]


@pytest.mark.parametrize("names", ["ab", "abc"])
@pytest.mark.parametrize("restarts", [False, True])
def test_turns_are_fair(tmp_path: Path, restarts: bool, names: str) -> None:
    """Stores take turns where a batch has fewer messages than there are stores; also those that have queues which begin
    later, and where each batch is a process of its own."""
    for name in names:
        Broker(tmp_path / name).add(90)
    starts = json.dumps({"T0": {"0": 1000}, "T1": {"1": 2000}})
    query = Query(tmp_path / "*", columns=COLUMNS, startingOffsets=starts, maxOffsetsPerTrigger=1)
    for _ in range(60):
        query.trigger()
        if restarts:
            query.restart()
    turns = Counter(Path(row["store"]).name for row in query.rows)
    assert len(query.rows) == 60
    assert min(turns[name] for name in names) >= (8 if restarts else 60 // len(names) - 1)
