"""Queues in RocksDB that are damaged, or that lie with sound checksums: rows are those of the full scan all the same.

    PYTHONPATH=.:tests python -m machine.rocksdb_queues 0 1000  # databases of seeds 0 to 999, 10 mutations each

A mutation must give the rows of the scan for random selections, and tables without a crash or a hang; each call has
5 seconds of the processor. A failure prints its seed and ends the run.
"""

from __future__ import annotations

import logging
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oracle import reference, rocksdb
from oracle.stores import StoreBuilder
from support import reading

from rmqstore_spark import OptionError, Store

MUTATIONS = 10  # of each database
_MOST_SECONDS = 5.0
_TABLES = ("queues", "consumequeue", "check", "offsets", "topics")
_ODD = (0, 1, 5, 300_000, 1 << 31, (1 << 62) // 20 - 1, 1 << 62, (1 << 63) - 1)
COLUMNS = ["topic", "queueId", "queueOffset", "commitLogOffset"]


def lie(records: list[tuple[bytes, bytes]], rng: random.Random) -> list[tuple[bytes, bytes]]:
    """Records of which some are not what a broker writes, or stand for what is not there."""
    found = dict(records)
    for _ in range(rng.choice((1, 1, 3, 20))):
        key, value = rng.choice(records) if records else (rocksdb.queue_key(b"T", 0, 0), bytes(28))
        kind = rng.choice(("offset", "queue", "topic", "size", "position", "short", "key", "swap", "many"))
        if kind == "offset":
            key = key[:-8] + rng.choice(_ODD).to_bytes(8, "big")
        elif kind == "queue":
            key = key[:-13] + rng.choice((0, 3, (1 << 31) - 1, 1 << 31)).to_bytes(4, "big") + key[-9:]
        elif kind == "topic":
            key = rocksdb.queue_key(rng.choice((b"/", b"..", b"\xff" * 3, b"x" * 300, b"%LMQ%a", b"Z\n")), 0, 0)
        elif kind == "size":
            value = value[:8] + rng.choice((0, 1, 91, (1 << 31) - 1, 1 << 31)).to_bytes(4, "big") + value[12:]
        elif kind == "position":
            value = rng.choice((*_ODD, (1 << 64) - 1)).to_bytes(8, "big") + value[8:]
        elif kind == "short":
            value = value[: rng.randrange(28)] if rng.random() < 0.5 else value + b"more"
        elif kind == "key":
            key = key[: rng.randrange(len(key))] or b"k"
        elif kind == "swap":
            value = rng.choice(records)[1] if records else value
        else:
            for number in range(0, 4000, rng.choice((1, 2, 3))):
                found[key[:-8] + (1000 + number).to_bytes(8, "big")] = value
        found[key] = value
    return list(found.items())


def make(root: Path, rng: random.Random) -> list[dict[str, Any]]:
    """A store whose queues are in RocksDB; its rows."""
    store = StoreBuilder(root, 4096, 400)
    for _ in range(rng.choice((1, 5, 20, 40))):
        topic = rng.choice(("TopicA", "TopicB", "T"))
        store.append(topic, bytes(rng.randrange(60)), queue_id=rng.randrange(2), tags=rng.choice(("a", "b")))
    store.close(clean=rng.random() < 0.7)
    return [{name: row[name] for name in COLUMNS} for row in reference.read_store(root)]


def judged(root: Path, rows: list[dict[str, Any]], rng: random.Random) -> None:
    """The rows of a selection are those of the scan; tables answer or say in one line why not."""
    topic = rng.choice(("TopicA", "TopicB", "T"))
    options: dict[str, Any]
    for options in ({}, {"subscribe": topic}, {"assign": f'{{"{topic}": [1]}}'}):
        wanted = [row for row in rows if not options or row["topic"] == topic]
        if "assign" in options:
            wanted = [row for row in wanted if row["queueId"] == 1]
        try:
            read = reading.options_of(root, **options)
            plan = reading.forced_plan(read, reading.new_files(reading.FREE))
            found = [row for task in plan.tasks for row in reading.read_one(task, read, COLUMNS)]
        except OptionError:  # nothing knows the topic, or the queue
            found = []
        assert sorted(found, key=lambda row: row["commitLogOffset"]) == wanted, options
    for table in rng.sample(_TABLES, 2):
        Store(root).table(table)


def timed(call: Callable[[], None]) -> None:
    begun = time.process_time()
    call()
    spent = time.process_time() - begun
    assert spent < _MOST_SECONDS, f"{spent} s"


def try_seed(seed: int, mutations: int = MUTATIONS) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "store"
        rows = make(root, rng)
        for number in range(mutations):
            mutated = Path(directory) / f"{number}"
            shutil.copytree(root, mutated)
            records = rocksdb.queue_records(mutated)
            is_lie = rng.random() < 0.5
            twist = (lambda some: lie(some, rng)) if is_lie else None
            rocksdb.put_queues(mutated, rng, keeps_files=rng.random() < 0.2, twist=twist)
            if not is_lie:
                rocksdb.damage(mutated / "consumequeue", rng)
            assert records or not rows
            timed(lambda: judged(mutated, rows, rng))  # noqa: B023
            shutil.rmtree(mutated)


def main() -> int:
    logging.disable(logging.WARNING)
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for seed in range(first, first + count):
        try:
            try_seed(seed)
        except BaseException:
            print(f"seed {seed}", flush=True)
            raise
    print(f"{count * MUTATIONS} mutations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
