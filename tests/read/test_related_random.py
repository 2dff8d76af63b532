"""Random pairs of stores, copies or not, each with damage of its own: no message comes twice, and no two stores are
taken for one."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from oracle import reference, stores
from support.reading import read

from rmqstore_spark import Store
from rmqstore_spark.errors import DamagedStoreError, OptionError

SEGMENT = 4096
HOST = "10.0.0.1:10911"
NAMES = ["topic", "queueId", "queueOffset", "commitLogOffset", "body", "storeTimestamp", "storeHost"]
TWINS = "found two copies of one"
CANNOT_TELL = "expected a message that is whole in both at the same commitLogOffset"
DIFFERENT = "on these have different messages"
MOVED = "the same messages in different places"

Pair = tuple[Path, Path]


def fill(store: stores.StoreBuilder, rng: random.Random, count: int, text: str, host: str = HOST) -> None:
    largest = rng.choice([40, 300, 1500])
    for _ in range(count):
        number = len(store.messages)
        body = f"{text}{number}-".encode() * rng.randrange(1, max(2, largest // 5))
        store.append(f"T{number % 3}", body[:largest] + b"%d" % number, queue_id=number % 2, store_host=host)


def built(root: Path, seed: int, count: int, text: str = "a", host: str = HOST) -> stores.StoreBuilder:
    """The same log for the same seed, as far as it goes."""
    store = stores.StoreBuilder(root, segment_size=SEGMENT)
    fill(store, random.Random(seed), count, text, host)
    return store


# ---- what two stores may be to each other


def copy_that_lags(base: Path, rng: random.Random) -> Pair:
    count = rng.randrange(2, 80)
    for name, number in (("a", count), ("b", rng.choice([count, rng.randrange(1, count + 1)]))):
        built(base / name, count, number).close(clean=rng.random() < 0.5)
    return base / "a", base / "b"


def moved_copy(base: Path, rng: random.Random) -> Pair:
    count = rng.randrange(2, 80)
    built(base / "a", count, count).close()
    Store(base / "a").copy(base / "b", **({"subscribe": "T1"} if rng.random() < 0.3 else {}))  # type: ignore[arg-type]
    return base / "a", base / "b"


def that_went_on(base: Path, rng: random.Random) -> Pair:
    """One was cut, and both have gone on with messages of their own."""
    count = rng.randrange(3, 60)
    for name in "ab":
        store = built(base / name, count, count)
        if name == "b":
            store.forget_last(rng.randrange(1, count))
            store.now += 1_000_000
            fill(store, rng, 1, "z" * rng.randrange(1, 50))
        fill(store, rng, rng.randrange(1, 40), name * 2)
        store.close()
    return base / "a", base / "b"


def others(base: Path, rng: random.Random) -> Pair:
    """Brokers that have the same address, as in containers, or not."""
    host = rng.choice([HOST, "10.0.0.2:10911"])
    built(base / "a", 1, rng.randrange(1, 80)).close()
    built(base / "b", rng.choice([1, 2]), rng.randrange(1, 80), rng.choice(["b", "other"]), host).close()
    return base / "a", base / "b"


# ---- what may happen to one


def ends_spoiled(root: Path, rng: random.Random) -> None:
    for at in (0, -1):
        segments = reference.segment_files(root)
        path = segments[at]
        data = bytearray(path.read_bytes())
        used = len(data.rstrip(b"\0"))
        start, size = (0, rng.randrange(1, 200)) if at == 0 else (max(0, used - 60), 60)
        data[start : start + size] = rng.randbytes(min(size, len(data) - start))
        path.write_bytes(data[: len(data)])


def spoiled(root: Path, rng: random.Random) -> None:
    for _ in range(rng.randrange(1, 4)):
        path = rng.choice(reference.segment_files(root))
        data = bytearray(path.read_bytes())
        size = rng.choice([1, 100, 1000, 4000])
        start = rng.randrange(len(data))
        noise = rng.choice([bytes(size), rng.randbytes(size)])
        data[start : start + size] = noise[: len(data) - start]
        path.write_bytes(data)


def one_bit(root: Path, rng: random.Random) -> None:
    """Of a message's store time, which no checksum covers: mostly of the first one."""
    units: list[int] = []
    with contextlib.suppress(reference.Corrupt):
        units += (position for position, _ in reference.read_units(root))
    if units:
        position = rng.choice(units[:2])
        path = max(path for path in reference.segment_files(root) if int(path.name) <= position)
        data = bytearray(path.read_bytes())
        data[position - int(path.name) + 60] ^= 1 << rng.randrange(8)
        path.write_bytes(data)


def expired(root: Path, rng: random.Random) -> None:
    segments = reference.segment_files(root)
    for path in segments[: rng.randrange(len(segments))]:
        path.unlink()


def segment_lost(root: Path, rng: random.Random) -> None:
    segments = reference.segment_files(root)
    if len(segments) > 1:
        rng.choice(segments).unlink()


def segment_cut(root: Path, rng: random.Random) -> None:
    path = rng.choice(reference.segment_files(root))
    path.write_bytes(path.read_bytes()[: rng.randrange(1, SEGMENT)])


def queues_lost(root: Path, rng: random.Random) -> None:
    shutil.rmtree(root / "consumequeue", ignore_errors=True)


HARMS = (ends_spoiled, spoiled, one_bit, expired, segment_lost, segment_cut, queues_lost)


def harmed(roots: Pair, rng: random.Random) -> None:
    for root in roots:
        for harm in rng.sample(HARMS, rng.choice([0, 1, 1, 2])):
            harm(root, rng)


def rows_of(*roots: Path, **options: object) -> list[dict[str, object]]:
    return read(*roots, columns=NAMES, mode="DROPMALFORMED", **options)


def message(row: dict[str, object]) -> object:
    return row["body"]  # it is no other message's; and a checksum covers it


def or_why(work: Callable[[], list[dict[str, object]]]) -> list[dict[str, object]] | str:
    try:
        return work()
    except OptionError as why:
        return str(why)


def check_pair(base: Path, rng: random.Random, make: Callable[[Path, random.Random], Pair]) -> str:
    roots = make(base, rng)
    harmed(roots, rng)
    try:
        alone = [rows_of(root) for root in roots]
    except DamagedStoreError:  # in every mode: files that are not of one log
        return "unreadable"
    both = or_why(lambda: rows_of(*roots))
    once = or_why(lambda: rows_of(*rng.sample(roots, 2), deduplicate=True))
    if isinstance(both, list):
        assert both == alone[0] + alone[1]
        assert max(Counter(map(message, both)).values(), default=1) == 1
    else:
        assert (TWINS in both and make is not others) or CANNOT_TELL in both, both
    if isinstance(once, list):
        found = Counter(map(message, once))
        assert max(found.values(), default=1) == 1
        there = {message(row) for row in alone[0] + alone[1]}
        assert set(found) == there
    else:
        allowed = [
            CANNOT_TELL,
            *([DIFFERENT] if make is that_went_on else []),
            *([MOVED] if make is moved_copy else []),
        ]
        assert any(text in once for text in allowed), once
    return "rows" if isinstance(both, list) else "twins" if TWINS in both else "cannot tell"


@pytest.mark.slow
@pytest.mark.parametrize("make", [copy_that_lags, moved_copy, that_went_on, others])
def test_random_pairs(tmp_path: Path, rng: random.Random, make: Callable[[Path, random.Random], Pair]) -> None:
    for number in range(25):
        check_pair(tmp_path / str(number), rng, make)


@pytest.mark.parametrize("seed", [3167, 3240])
def test_apart_behind_damage(tmp_path: Path, seed: int) -> None:
    """All that shows of one lies across the other's messages; an old message that both have shows behind damage."""
    assert check_pair(tmp_path, random.Random(seed), that_went_on) == "twins"
