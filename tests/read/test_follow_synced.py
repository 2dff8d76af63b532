"""Streams of a store that is copied to object storage again and again: whatever a copy has and has not, each message
comes once, none is torn, and none is taken for lost that only comes later."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from oracle import stores
from read.test_follow import add, builder, positions
from support import reading
from support.following import Query

from rmqstore_spark.errors import DataLossError, StorageError


@pytest.fixture(autouse=True)
def in_object_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "STORAGE", "objects")


def put(source: Path, target: Path) -> None:
    """As an object comes: whole, and at once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target.with_name(target.name + ".new"))
    os.rename(target.with_name(target.name + ".new"), target)


def changed(source: Path, target: Path) -> list[Path]:
    """The files that are others than in the copy, or missing there."""
    files = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
    return [
        name
        for name in files
        if not (target / name).exists() or (target / name).read_bytes() != (source / name).read_bytes()
    ]


def sync(source: Path, target: Path) -> None:
    for name in changed(source, target):
        put(source / name, target / name)


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.slow] * (seed > 1)) for seed in range(8)])
def test_copies_in_any_order(tmp_path: Path, rng: random.Random, seed: int) -> None:
    """A copy takes files in any order while the broker goes on, and is looked at all the time."""
    store = builder(tmp_path / "broker", 5, segment_size=rng.choice((2048, 4096)))
    copy = tmp_path / "copy"
    sync(store.root, copy)
    query = Query(copy, startingOffsets="earliest")
    query.run()
    for number in range(12):
        add(store, rng.randrange(1, 30))
        names = changed(store.root, copy)
        rng.shuffle(names)
        # Some are cut short; the next one is not.
        for name in names[: rng.randrange(len(names) + 1) if number % 2 else None]:
            put(store.root / name, copy / name)
            if rng.random() < 0.3:
                query.clock.pass_(rng.choice((0, 2)))
                query.trigger()
            if rng.random() < 0.1:
                add(store, rng.randrange(1, 10))
            if rng.random() < 0.05:
                query.restart()
    add(store, 1)
    sync(store.root, copy)
    query.clock.pass_(2)
    query.run()
    assert positions(query.rows) == [m.position for m in store.messages]
    assert query.rows == reading.read(copy)


def test_a_torn_last_message_waits(tmp_path: Path) -> None:
    """A copy that was made while a broker wrote: the body is whole, and properties are not. The same bytes, however
    often they are read, prove nothing there."""
    store = builder(tmp_path / "broker", 5)
    copy = tmp_path / "copy"
    sync(store.root, copy)
    query = Query(copy, startingOffsets="earliest")
    assert len(query.run()) == 5
    add(store, 1, properties={"KEYS": "k" * 50})
    last = store.messages[-1]
    name = store.segment(last.position).relative_to(store.root)
    put(store.root / name, copy / name)
    with (copy / name).open("r+b") as file:
        file.seek(last.end % store.segment_size - 20)
        file.write(bytes(20))
    for _ in range(5):
        query.clock.pass_(2)
        assert query.trigger() is None
    put(store.root / name, copy / name)  # whole, but nothing proves it yet
    query.clock.pass_(2)
    assert query.trigger() is None
    sync(store.root, copy)  # its ConsumeQueue does
    assert positions(query.run()) == [last.position]


def test_a_longer_object_while_it_is_read(tmp_path: Path) -> None:
    """What takes a segment's place between planning and reading is the same segment, if it has the last planned
    message."""
    store = builder(tmp_path / "broker", 20, segment_size=1 << 16)
    copy = tmp_path / "copy"
    sync(store.root, copy)
    query = Query(copy, startingOffsets="earliest")

    def longer() -> None:
        add(store, 5)
        sync(store.root, copy)

    assert len(query.trigger(after_planning=longer) or []) == 20
    assert len(query.trigger(after_planning=longer) or []) == 5
    assert positions(query.run()) == [m.position for m in store.messages[25:]]


@pytest.mark.parametrize("is_shorter", [False, True])
def test_another_object_while_it_is_read(tmp_path: Path, is_shorter: bool) -> None:
    store = builder(tmp_path / "broker", 20, segment_size=1 << 16)
    other = builder(tmp_path / "other", 0, segment_size=1 << 16)
    add(other, 1 if is_shorter else 60, tags="B" * 7)
    copy = tmp_path / "copy"
    sync(store.root, copy)
    query = Query(copy, startingOffsets="earliest")
    with pytest.raises(StorageError, match="the object was replaced since the read was planned"):
        query.trigger(after_planning=lambda: sync(other.root, copy))
    query.restart()
    with pytest.raises(DataLossError, match="the log is not the one that was read"):
        query.rows_between(-2, -1)


def test_restart_reads_the_batch_that_was_planned(tmp_path: Path) -> None:
    """Of a longer object, under its new tag."""
    store = builder(tmp_path / "broker", 20, segment_size=1 << 16)
    copy = tmp_path / "copy"
    sync(store.root, copy)
    query = Query(copy, startingOffsets="earliest")
    first = query.trigger() or []
    add(store, 5)
    sync(store.root, copy)
    query.restart()
    assert query.rows_between(-2, -1) == first
    assert len(query.run()) == 5


def test_what_never_comes_is_damage(tmp_path: Path) -> None:
    """The rest of a segment is waited for until a later copy has left it as it is."""
    store: stores.StoreBuilder = builder(tmp_path / "broker", 5, segment_size=2048)
    copy = tmp_path / "copy"
    sync(store.root, copy)
    query = Query(copy, startingOffsets="earliest", mode="DROPMALFORMED")
    query.run()
    old = (copy / "commitlog" / ("0" * 20)).read_bytes()
    add(store, 40)
    sync(store.root, copy)
    (copy / "commitlog" / ("0" * 20)).write_bytes(old)
    for _ in range(3):
        query.clock.pass_(2)
        assert query.trigger() is None
        add(store, 1)
        last = store.segment(store.messages[-1].position).relative_to(store.root)
        put(store.root / last, copy / last)
    query.clock.pass_(2)
    query.run()
    assert positions(query.rows)[:5] == [m.position for m in store.messages[:5]]
    assert positions(query.rows)[5:-1] == [m.position for m in store.messages[5:-2] if m.position >= 2048]
