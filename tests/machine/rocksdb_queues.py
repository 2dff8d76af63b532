"""Queues in RocksDB that are damaged, or that lie with sound checksums: rows are those of the full scan all the same.

    PYTHONPATH=.:tests python -m machine.rocksdb_queues 0 1000  # databases of seeds 0 to 999, 10 mutations each

A mutation must give the rows of the scan for random selections, and tables as of a store with queues in files
(rocksdb_paths.py); each has 5 seconds of the processor. A failure prints its seed and ends the run.
"""

from __future__ import annotations

import logging
import random
import shutil
import sys
import tempfile
from pathlib import Path

from oracle import rocksdb
from oracle.stores import StoreBuilder

from machine.rocksdb_paths import Judge, timed

MUTATIONS = 10  # of each database
_ODD = (0, 1, 5, 300_000, 1 << 31, (1 << 62) // 20 - 1, 1 << 62, (1 << 63) - 1)


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


def make(root: Path, rng: random.Random) -> None:
    """A store with queues in files."""
    store = StoreBuilder(root, 4096, 400)
    for _ in range(rng.choice((1, 5, 20, 40))):
        topic = rng.choice(("TopicA", "TopicB", "T"))
        store.append(topic, bytes(rng.randrange(60)), queue_id=rng.randrange(2), tags=rng.choice(("a", "b")))
    store.close(clean=rng.random() < 0.7)


def try_seed(seed: int, mutations: int = MUTATIONS) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        sound, root = Path(directory) / "sound", Path(directory) / "store"
        make(sound, rng)
        shutil.copytree(sound, root)
        judge = Judge(root, few=3)
        for _ in range(mutations):
            shutil.rmtree(root)
            shutil.copytree(sound, root)
            is_lie = rng.random() < 0.5
            twist = (lambda some: lie(some, rng)) if is_lie else None
            rocksdb.put_queues(root, rng, keeps_files=rng.random() < 0.2, twist=twist)
            if not is_lie:
                rocksdb.damage(root / "consumequeue", rng)
            timed(lambda: judge.hold(rng, "consumequeue/CURRENT", is_lie))  # noqa: B023


def main() -> int:
    logging.getLogger("rmqstore_spark").propagate = False
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
