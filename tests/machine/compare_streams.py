"""Streams: over random growth, restarts, limits and several stores they give what one read of the batch gives."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from oracle import reference
from oracle.stores import StoreBuilder
from support.following import Query

from machine.expected import Truth
from machine.past import Difference, Past, Row, read_messages
from machine.stores import HALF, Clock, Kinds, append_one
from rmqstore_spark.errors import RmqStoreError

_HOSTS = ("10.0.0.2:10911", "10.0.0.3:10911")


class Growing:
    """A broker's store that goes on.

    Attributes:
        forgotten: where messages began that were cut off. What is left of one that begins just where the log ends
            nobody can tell from a live one.
    """

    def __init__(self, root: Path, rng: random.Random, host: str) -> None:
        self.root = root
        self._rng = rng
        self._host = host
        self._clock = Clock(rng)
        self._kinds = Kinds(
            tuple(rng.sample(("TopicA", "TopicB", "Orders"), 2)), rng.choice((1, 2, 3)), (0, 10, 200), 0.1
        )
        self.forgotten: set[int] = set()
        self.builder = StoreBuilder(root, rng.choice((4096, 8192)), rng.choice((100, 400, 20_000)))

    def grow(self, count: int) -> None:
        for _ in range(count):
            append_one(self.builder, self._rng, self._kinds, self._clock.tick(), store_host=self._host)
        while self.builder.end in self.forgotten:
            self._half(13)
        self.builder.flush()

    def cut(self) -> None:
        """Truncate, and write other messages: before a stream is there."""
        count = self._rng.randrange(1, 6)
        if len(self.builder.messages) > count:
            self.cut_off(count)

    def cut_off(self, count: int) -> None:
        """So many messages; then come others."""
        self.forgotten |= {m.position for m in self.builder.messages[-count:]}
        self.builder.forget_last(count)
        (self.root / "lock").write_bytes(b"lock")  # as every broker that starts
        self._clock.after_cut()
        self._half(self._rng.randrange(300, 900))
        self.grow(0)

    def _half(self, size: int) -> None:
        """A message in no queue."""
        time = self._clock.tick()
        self.builder.append(HALF, b"x" * size, sys_flag=reference.PREPARED, store_timestamp=time, store_host=self._host)

    @property
    def rows(self) -> list[Row]:
        self.builder.flush()
        return [m.row for m in read_messages(self.root)]


def from_the_beginning(past: Past, truth: Truth, rng: random.Random) -> None:
    """All, or some topics."""
    stores = _stores(past, rng)
    _grow(stores, rng)
    options: dict[str, Any] = {"startingOffsets": "earliest"}
    topics = None
    if rng.random() < 0.4:
        topics = {rng.choice([row["topic"] for store in stores for row in store.rows])}
        options["subscribe"] = ",".join(topics)
    query = Query(*(store.root for store in stores), **options, **_limits(rng))
    _follow(query, stores, rng)
    wanted = [[row for row in store.rows if topics is None or row["topic"] in topics] for store in stores]
    _compare("from the beginning", query, wanted, options)


def from_the_end(past: Past, truth: Truth, rng: random.Random) -> None:
    """`latest`: what is appended after the query began."""
    stores = _stores(past, rng)
    _grow(stores, rng)
    before = [{row["commitLogOffset"] for row in store.rows} for store in stores]
    query = Query(*(store.root for store in stores), startingOffsets="latest", **_limits(rng))
    query.start()
    _follow(query, stores, rng)
    wanted = [
        [row for row in store.rows if row["commitLogOffset"] not in seen]
        for store, seen in zip(stores, before, strict=True)
    ]
    _compare("from the end", query, wanted, {})


def from_offsets(past: Past, truth: Truth, rng: random.Random) -> None:
    """Of some queues from an offset on, or from the end that they have; of the others all."""
    store = _stores(past, rng)[0]
    _grow([store], rng)
    ends: dict[tuple[str, int], int] = {}
    for row in store.rows:
        if row["sysFlag"] & reference.TRANSACTION_BITS in (0, reference.COMMIT):
            ends[row["topic"], row["queueId"]] = row["queueOffset"] + 1
    starts: dict[str, dict[str, int]] = {}
    least: dict[tuple[str, int], int] = {}
    for (topic, queue_id), end in rng.sample(sorted(ends.items()), rng.randrange(min(1, len(ends)), len(ends) + 1)):
        start = rng.choice((-1, -1, -2, rng.randrange(end + 1)))
        starts.setdefault(topic, {})[str(queue_id)] = start
        least[topic, queue_id] = end if start == -1 else max(start, 0)
    options: dict[str, Any] = {"startingOffsets": json.dumps(starts)}
    query = Query(store.root, **options, **_limits(rng))
    query.start()
    _follow(query, [store], rng)

    def has(row: Row) -> bool:
        return bool(row["queueOffset"] >= least.get((row["topic"], row["queueId"]), 0))

    _compare("from offsets", query, [[row for row in store.rows if has(row)]], options)


def _stores(past: Past, rng: random.Random) -> list[Growing]:
    home = past.root.with_name(f"growing{rng.randrange(10**9)}")
    return [Growing(home / str(n), rng, host) for n, host in enumerate(_HOSTS[: rng.choice((1, 1, 2))])]


def _grow(stores: list[Growing], rng: random.Random) -> None:
    for store in stores:
        store.grow(rng.choice((1, 5, 30, 60)))
        if rng.random() < 0.4:
            store.cut()
            store.grow(rng.choice((0, 1, 5)))


def _limits(rng: random.Random) -> dict[str, Any]:
    return rng.choice(
        (
            {},
            {},
            {"maxOffsetsPerTrigger": rng.choice((1, 2, 7, 50))},
            {"maxBytesPerTrigger": rng.choice((1, 500, 5000))},
        )
    )


def _follow(query: Query, stores: list[Growing], rng: random.Random) -> None:
    try:
        for _ in range(rng.choice((1, 3, 6))):
            for store in stores:
                store.grow(rng.choice((0, 0, 1, 3, 20)))
            for _ in range(rng.choice((1, 2))):
                query.clock.pass_(rng.choice((0.1, 60)))
                query.trigger()
            if rng.random() < 0.4:
                query.restart()
        for store in stores:  # what nothing proves waits for the next one
            store.grow(1)
        query.clock.pass_(60)
        query.run()
        query.clock.pass_(60)
        query.run()
    except RmqStoreError as why:
        raise Difference("streams: an error", why) from None


def _compare(what: str, query: Query, wanted: list[list[Row]], options: dict[str, Any]) -> None:
    names = ("storeHost", "commitLogOffset", "topic", "queueId", "queueOffset", "body")
    for number, rows in enumerate(wanted):
        host = _HOSTS[number]
        found = [tuple(row[name] for name in names) for row in query.rows if row["storeHost"] == host]
        expected = [tuple(row[name] for name in names) for row in rows]
        if found == expected:
            continue
        places = [each[1] for each in found]
        missing = [each[1] for each in expected if each[1] not in places]
        beyond = [at for at in places if at not in {each[1] for each in expected}]
        text = f"{options}: {len(found)} for {len(expected)}, missing {missing[:8]}, too many {beyond[:8]}"
        if len(set(places)) != len(places):
            raise Difference(f"streams {what}: a message comes twice", text)
        kind = "messages are missing" if missing else "messages come that are not wanted" if beyond else "another order"
        raise Difference(f"streams {what}: {kind}", text)


def fairness(past: Past, truth: Truth, rng: random.Random) -> None:
    """Of two stores with much to read neither waits for all of the other, wherever their queues begin."""
    home = past.root.with_name("fair")
    stores = [Growing(home / str(number), rng, host) for number, host in enumerate(_HOSTS)]
    for store in stores:
        store.grow(20)
    options: dict[str, Any] = {"startingOffsets": "earliest"}
    if rng.random() < 0.5:
        some = [m for m in stores[0].builder.messages if m.queued]
        if some:
            start = rng.choice(some)
            options["startingOffsets"] = json.dumps({start.topic: {str(start.queue_id): start.queue_offset + 100}})
    query = Query(*(store.root for store in stores), **options, maxOffsetsPerTrigger=1)
    for _ in range(16):
        query.clock.pass_(60)
        query.trigger()
    if any(len(store.rows) < 10 or len({m.queue_id for m in store.builder.messages}) < 2 for store in stores):
        return  # what begins beyond its end may be most of it
    counts = [sum(row["storeHost"] == host for row in query.rows) for host in _HOSTS]
    if min(counts) < 3:
        raise Difference("streams: one store waits for the other", f"{options}: {counts} rows of each after 16 batches")


def cut_backlog(past: Past, truth: Truth, rng: random.Random) -> None:
    """What a limited stream has not read yet loses its end in a crash: it goes on with what is there."""
    store = Growing(past.root.with_name("backlog"), rng, _HOSTS[0])
    store.grow(rng.choice((20, 60)))
    query = Query(store.root, startingOffsets="earliest", maxOffsetsPerTrigger=rng.choice((1, 3, 10)))
    query.clock.pass_(60)
    query.trigger()
    read = len(query.rows)
    if rng.random() < 0.5:
        query.restart()
    count = rng.randrange(1, len(store.builder.messages) - read) if len(store.builder.messages) - read > 1 else 0
    if not count:
        return
    store.cut_off(count)
    _follow(query, [store], rng)
    _compare("after a crash", query, [store.rows], {"cut": count, "read": read})


STEPS = (fairness, cut_backlog, from_the_beginning, from_the_end, from_offsets)
