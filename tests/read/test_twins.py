"""Copies of one broker's store under one glob: told at planning, and nothing else is taken for one."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from oracle import reference, stores
from support.reading import make_plan, new_files, read

from rmqstore_spark.errors import OptionError
from rmqstore_spark.read.twins import twins
from rmqstore_spark.store.opened import OpenStore

Change = Callable[[stores.StoreBuilder, stores.StoreBuilder], None]


def broker(root: Path, host: str = "10.0.0.1:10911", count: int = 100) -> stores.StoreBuilder:
    """Its bodies are those of each other broker's; store times, sizes and offsets, too."""
    store = stores.StoreBuilder(root, segment_size=4096)
    add(store, host, count)
    store.close()
    return store


def add(store: stores.StoreBuilder, host: str, count: int, text: bytes = b"b") -> None:
    for _ in range(count):
        number = len(store.messages)
        store.append(f"T{number % 3}", text * (1 + number % 70), queue_id=number % 2, store_host=host)


def cut(root: Path, size: int = 4096, keep: int = 100) -> None:
    """As a crash and a broker that starts again leave it, at some message."""
    position = list(reference.read_units(root))[keep][0]
    for path in (root / "commitlog").iterdir():
        start = int(path.name)
        data = path.read_bytes()
        path.write_bytes(data[: max(0, position - start)].ljust(size, b"\0"))
        if start > position:
            path.unlink()
    shutil.rmtree(root / "consumequeue")
    (root / "checkpoint").unlink(missing_ok=True)


def expire(root: Path, count: int) -> None:
    for path in sorted((root / "commitlog").iterdir())[:count]:
        path.unlink()


def spoil(root: Path, position: int, size: int = 60) -> None:
    """A message's head becomes noise."""
    path = root / "commitlog" / f"{position // 4096 * 4096:020d}"
    data = bytearray(path.read_bytes())
    data[position % 4096 : position % 4096 + size] = b"\x5a" * size
    path.write_bytes(data)


def old_backup(one: stores.StoreBuilder, other: stores.StoreBuilder) -> None:
    cut(other.root, keep=30)


def expired(one: stores.StoreBuilder, other: stores.StoreBuilder) -> None:
    expire(one.root, 3)


def both_ends(one: stores.StoreBuilder, other: stores.StoreBuilder) -> None:
    expire(one.root, 2)
    cut(other.root, keep=80)


def other_tails(one: stores.StoreBuilder, other: stores.StoreBuilder) -> None:
    """Both have gone on with messages of their own, as two masters do."""
    add(one, "10.0.0.1:10911", 40, b"x")
    add(other, "10.0.0.2:10911", 30, b"y")
    one.close()
    other.close()


def damaged_first(one: stores.StoreBuilder, other: stores.StoreBuilder) -> None:
    spoil(one.root, 0)


def damaged_head(one: stores.StoreBuilder, other: stores.StoreBuilder) -> None:
    """A time in a message's head, which no checksum is over; and the last message, in the other one."""
    path = one.root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    spoil(other.root, other.messages[-1].position)


def without_queues(one: stores.StoreBuilder, other: stores.StoreBuilder) -> None:
    one.drop_queues()


def same(one: stores.StoreBuilder, other: stores.StoreBuilder) -> None:
    pass


CHANGES = [same, old_backup, expired, both_ends, other_tails, damaged_first, damaged_head, without_queues]


@pytest.mark.parametrize("change", CHANGES)
def test_copies(tmp_path: Path, change: Change) -> None:
    one = broker(tmp_path / "a")
    shutil.copytree(one.root, tmp_path / "b")
    other = broker(tmp_path / "b")
    assert other.messages == one.messages
    change(one, other)
    third = broker(tmp_path / "c", "10.0.0.3:10911")
    for roots in (("a", "c", "b"), ("b", "a", "c")):
        with pytest.raises(OptionError, match=r"[ab] and .*/[ab]: expected stores of different .* two copies of one"):
            make_plan(*(tmp_path / name for name in roots))
    assert len(read(one.root, third.root, mode="DROPMALFORMED")) > 100
    assert make_plan(one.root, other.root, startingTimestamp=5, endingTimestamp=5).tasks == []


def test_moved_brokers(tmp_path: Path) -> None:
    """Their logs have messages of several hosts, and what an old backup has, may be of none of those at the ends."""
    for name in "ab":
        store = broker(tmp_path / name, "10.0.0.1:10911", 60)
        add(store, "10.0.0.2:10911", 60)
        store.close()
        if name == "a":
            add(store, "10.0.0.3:10911", 60)
            store.close()
    expire(tmp_path / "b", 3)
    assert {row["storeHost"] for row in read(tmp_path / "b")} == {"10.0.0.2:10911"}
    with pytest.raises(OptionError, match="two copies of one"):
        make_plan(tmp_path / "*")


@pytest.mark.parametrize("host", ["10.0.0.2:10911", "10.0.0.1:10911"])
def test_brokers_that_have_nothing_to_do_with_each_other(tmp_path: Path, host: str) -> None:
    """Messages at equal offsets, of equal sizes and times; also of brokers that have the same address."""
    one = broker(tmp_path / "a")
    other = stores.StoreBuilder(tmp_path / "b", segment_size=4096)
    add(other, host, 150, b"c")
    other.close()
    assert other.messages[:100] == one.messages
    empty = stores.StoreBuilder(tmp_path / "empty")
    empty.close()
    assert len(read(tmp_path / "*")) == 250


def test_a_store_in_two_parts(tmp_path: Path) -> None:
    """What one has is not in the other: nothing comes twice."""
    one = broker(tmp_path / "a")
    shutil.copytree(one.root, tmp_path / "b")
    segments = sorted(path.name for path in (one.root / "commitlog").iterdir())
    for name in segments[3:]:
        (one.root / "commitlog" / name).unlink()
    for name in segments[:3]:
        (tmp_path / "b" / "commitlog" / name).unlink()
    assert len(read(tmp_path / "*", mode="DROPMALFORMED")) == 100


def test_costs(tmp_path: Path, rng: random.Random) -> None:
    """One store: nothing. Several brokers: two looks each, however many there are."""
    hosts = [f"10.0.0.{number}:10911" for number in range(8)]
    for number, host in enumerate(hosts):
        broker(tmp_path / f"s{number}", host, rng.randrange(20, 200))

    def requests(count: int) -> int:
        files = new_files()
        opened = [OpenStore.find(str(tmp_path / f"s{number}"), files) for number in range(count)]
        for store in opened:
            _ = store.log, store.last_message
        before = files.requests
        assert list(twins(opened)) == []
        return int(files.requests - before)

    assert requests(1) == 0
    assert requests(8) == 4 * requests(2)
    assert requests(2) <= 2 * 2 * 4
