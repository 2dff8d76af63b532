"""A broker deletes what has expired while a store is copied, salvaged, read as a dataset, or in all ways at once: what
comes is what was there before or what is left, or one error of its own kind; and no half copy."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from oracle import reference
from support.deleting import Deleting, built, expire, moments

from rmqstore_spark import DeletedMeanwhileError, Store

KEYS = ["topic", "queueId", "queueOffset", "body"]
Rows = list[tuple[object, ...]]


@pytest.fixture
def deleting(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> Deleting:
    return Deleting(monkeypatch, rng)


def plain(root: Path) -> Rows:
    """What the reference reads."""
    return [tuple(row[name] for name in KEYS) for row in reference.read_store(root)]


def copied(root: Path, target: Path) -> Rows:
    Store(root).copy(target)
    return plain(target)


def salvaged(root: Path, target: Path) -> Rows:
    Store(root).salvage(target)
    return plain(target)


def scanned(root: Path, _: Path) -> Rows:
    return [tuple(row.values()) for row in Store(root).messages(KEYS).read_all().to_pylist()]


def dataset(root: Path, _: Path) -> Rows:
    return [tuple(row.values()) for row in Store(root).dataset("messages", KEYS).to_table().to_pylist()]


WAYS: dict[str, Callable[[Path, Path], Rows]] = {
    "copy": copied,
    "salvage": salvaged,
    "scan": scanned,
    "dataset": dataset,
}


def tried(way: str, root: Path, target: Path) -> Rows | None:
    """The rows, or None where they are gone. Either way nothing half done is left."""
    try:
        return WAYS[way](root, target)
    except DeletedMeanwhileError as why:
        told = str(why)
    finally:
        is_there = target.exists()
        shutil.rmtree(target, ignore_errors=True)
    assert "a broker deletes expired segments while it runs" in told
    assert "\n" not in told
    assert not is_there
    return None


@pytest.mark.parametrize("way", [way if way == "scan" else pytest.param(way, marks=pytest.mark.slow) for way in WAYS])
def test_at_every_look(tmp_path: Path, deleting: Deleting, way: str) -> None:
    before = plain(built(tmp_path / "before"))
    expire(tmp_path / "before")
    after = plain(tmp_path / "before")
    outcomes = Counter[str]()
    for root in moments(tmp_path, deleting, step=4 if way == "scan" else 15):
        found = tried(way, root, tmp_path / "target")
        assert found is None or sorted(found) in (sorted(before), sorted(after))
        outcomes["told" if found is None else "before" if len(found) == len(before) else "after"] += 1
    assert {"before", "after"} <= set(outcomes)


def _deleted_until(root: Path, stop: threading.Event, pause: Callable[[], float]) -> None:
    """A broker: one segment after the other, up to the last two."""
    while not stop.wait(pause()) and len(list((root / "commitlog").iterdir())) > 2:
        expire(root, 1)


def _starts(root: Path) -> Iterator[int]:
    """The number of messages behind the beginning of each segment."""
    places = [row["commitLogOffset"] for row in reference.read_store(root)]
    for path in (root / "commitlog").iterdir():
        yield sum(place >= int(path.name) for place in places)


@pytest.mark.slow
@pytest.mark.parametrize("trial", range(3))
@pytest.mark.parametrize("way", WAYS)
def test_in_a_thread_of_its_own(tmp_path: Path, rng: random.Random, way: str, trial: int) -> None:
    """Each call gets the messages of all segments from some one on, or says that they are gone."""
    root, stop = built(tmp_path / "store"), threading.Event()
    everything, starts = plain(root), set(_starts(root))
    began = time.monotonic()
    tried(way, root, tmp_path / "target")
    took = time.monotonic() - began
    thread = threading.Thread(target=_deleted_until, args=(root, stop, lambda: rng.uniform(0, took / 2)))
    thread.start()
    try:
        while thread.is_alive():
            found = tried(way, root, tmp_path / "target")
            assert found is None or len(found) in starts
            assert found is None or sorted(found) == sorted(everything[len(everything) - len(found) :])
    finally:
        stop.set()
        thread.join()
    assert sorted(WAYS[way](root, tmp_path / "last")) == sorted(plain(root))
