"""Many headers of a log at once are those that are read one by one, whatever is said to be there."""

from __future__ import annotations

import random
from pathlib import Path

from oracle import random_stores

from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.message_headers import headers_of
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.many_headers import Place


def _places(rng: random.Random, store: Snapshot, starts: list[tuple[int, int]]) -> list[Place]:
    """Those of units, with right and wrong sizes, and others."""
    places = [Place(position, size) for position, size in starts]
    places += [Place(at, rng.choice((0, -1, 91, size, 1 << 30))) for at, size in rng.sample(starts, len(starts) // 4)]
    places += [Place(at + rng.randint(1, 90), size) for at, size in rng.sample(starts, len(starts) // 4)]
    return [*places, Place(store.end, 100), Place(1 << 50, 100), Place(-1, 100)]


def scribble(root: Path, rng: random.Random) -> None:
    for segment in (root / "commitlog").iterdir():
        data = bytearray(segment.read_bytes())
        for _ in range(20):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        segment.write_bytes(data)


def test_random_stores(tmp_path: Path, rng: random.Random) -> None:
    decoded = 0
    for number in range(6):
        root = tmp_path / str(number)
        built = random_stores.random_store(root, rng, 150)
        for time in (random_stores.LATEST, random_stores.LATEST + 1, -1):
            built.append("Odd", b"time", store_timestamp=time)
        built.append("Large", rng.randbytes(5000))
        built.close()
        starts = [(each.position, each.size) for each in built.messages]
        if number % 2:
            scribble(root, rng)
        store = Snapshot.find(str(root), Files())
        places = _places(rng, store, starts)
        rng.shuffle(places)
        found = headers_of(store, places)
        for place in places:
            assert found.get(place.position) == store.log.header(place.position), place
        decoded += sum(header is not None for header in found.values())
    assert decoded > 300
