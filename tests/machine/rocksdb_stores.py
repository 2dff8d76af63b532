"""Real stores with RocksDB in them, of which a file of a database is damaged: in every file, and all along it.

    PYTHONPATH=.:tests python -m machine.rocksdb_stores 1 3000    # seed, mutations
    PYTHONPATH=.:tests python -m machine.rocksdb_stores 1 10000 2  # and how many paths and tables are tried each time

Queues, configuration and popped messages are in these databases. Whatever is done to them, rows of messages are those
of the log, and tables are those of the sound store, or say in the log of the program which database was not read
(rocksdb_paths.py); each mutation has 5 seconds of the processor, and all of them a bound of memory. A failure prints
what was done, and ends the run.
"""

from __future__ import annotations

import itertools
import logging
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from support import flavours

from machine.rocksdb import lie
from machine.rocksdb_paths import Judge, timed

STORES = ("combined", "rocksdb-all", "rocksdb-all-v2", "rocksdb-metadata", "rocksdb-trans")


class Place(NamedTuple):
    """Bytes of a file, from `at` on, up to the next place."""

    store: Path
    file: Path
    at: int
    size: int


def is_read(file: Path) -> bool:
    """Is a file of a database one that is read?"""
    return file.suffix in (".sst", ".log") or file.name == "CURRENT" or file.name.startswith("MANIFEST-")


def places(stores: list[Path], count: int) -> list[Place]:
    """About so many places in all files of databases: those that are read are divided evenly, others have one each."""
    directories = [(root, sign.parent) for root in stores for sign in root.rglob("CURRENT")]
    files = [(root, file) for root, directory in directories for file in directory.iterdir() if file.is_file()]
    total = sum(file.stat().st_size for _, file in files if is_read(file))
    step = max(1, total // count)
    return [
        Place(root, file, at, min(step, size - at) if is_read(file) else size)
        for root, file in files
        for size in [file.stat().st_size]
        for at in (range(0, size, step) if is_read(file) else range(min(size, 1)))
    ]


def mutated(data: bytes, place: Place, rng: random.Random) -> tuple[bytes, bool]:
    """The bytes of a file with a change at a place, and whether checksums fit them."""
    deed = rng.choice(("bit", "byte", "ones", "zeros", "cut", "gone", "twice", "lie", "lie"))
    is_lie = deed == "lie" and is_read(place.file)
    if is_lie:
        return lie(data, place.file.name, rng), True
    return _changed(data, place.at + rng.randrange(place.size), deed, rng), False


def _changed(data: bytes, at: int, deed: str, rng: random.Random) -> bytes:
    if deed == "bit":
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if deed == "byte":
        return data[:at] + bytes([rng.choice((0, 1, 0x7F, 0x80, 0xFF))]) + data[at + 1 :]
    if deed in ("ones", "zeros"):
        size = min(rng.choice((2, 4, 8, 64)), len(data) - at)
        return data[:at] + (b"\xff" if deed == "ones" else b"\0") * size + data[at + size :]
    if deed == "cut":
        return data[:at]
    if deed == "gone":
        return data[:at] + data[at + rng.choice((1, 5, 100)) :]
    return data[: at + rng.choice((1, 5, 100))] + data[at:]


def try_places(
    stores: list[Path], rng: random.Random, count: int, most: int | None = None, few: int = 4
) -> Iterator[Place]:
    """Change each place once, in any order, and judge the store; gives what was tried. Arguments as of places() and
    Judge."""
    judges = {root: Judge(root, few) for root in stores}
    every = places(stores, count)
    rng.shuffle(every)
    for place in itertools.islice(every, most):
        kept, seed = place.file.read_bytes(), rng.randrange(1 << 32)
        own = random.Random(seed)
        changed, is_lie = mutated(kept, place, own)
        place.file.write_bytes(changed)
        name = str(place.file.relative_to(place.store))
        try:
            timed(lambda: judges[place.store].hold(own, name, is_lie))  # noqa: B023
        except BaseException:
            print(f"{place}, seed {seed}", flush=True)
            raise
        place.file.write_bytes(kept)
        yield place


def main() -> int:
    logging.getLogger("rmqstore_spark").propagate = False
    logging.getLogger("rmqstore_spark").addHandler(logging.NullHandler())  # else all is told on the screen
    seed, count, few = [*map(int, sys.argv[1:]), 4][:3]
    with tempfile.TemporaryDirectory() as directory:
        stores = [flavours.unpack_store(name, Path(directory)) for name in STORES]
        tried = []
        for place in try_places(stores, random.Random(seed), count, few=few):
            tried.append(place)
            if len(tried) % 500 == 0:
                print(len(tried), flush=True)
    print(f"seed {seed}: {len(tried)} mutations in {len({place.file for place in tried})} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
