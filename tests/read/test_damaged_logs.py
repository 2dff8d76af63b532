"""Logs that are damaged in several places: what is whole comes, whatever the mode, the pieces and the storage; and an
error says it wherever something in the store can tell."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from oracle import reference, stores
from oracle.damaged_logs import DamagedLog, damaged_log
from support import reading, remote

from rmqstore_spark.errors import DamagedStoreError

NAMES = [*reading.DEFAULT_COLUMNS, "corrupt"]
TRIALS = int(os.environ.get("RMQ_TRIALS", "20"))  # more by hand


def _files(is_remote: bool) -> Any:
    return remote.remote_files() if is_remote else None


def _assert_reads(root: Path, found: DamagedLog, rng: random.Random, is_remote: bool) -> None:
    told = []
    for size in (1, rng.choice((100, 300, 1000, 3000)), 1 << 30):
        rows = reading.read(root, columns=NAMES, mode="PERMISSIVE", maxPartitionBytes=size, files=_files(is_remote))
        sound, corrupt = reading.sound_and_corrupt(rows)
        if not found.is_unsure:
            assert [row["commitLogOffset"] for row in sound] == [row["commitLogOffset"] for row in found.rows], size
            assert sound == found.rows, size
        told.append(corrupt)
    assert told[0] == told[1] == told[2]
    assert reading.read(root, mode="DROPMALFORMED", files=_files(is_remote)) == [
        {name: row[name] for name in reading.DEFAULT_COLUMNS} for row in sound
    ]
    if found.is_told is None or found.is_unsure:
        return
    assert bool(told[0]) == found.is_told
    if found.is_told:
        with pytest.raises(DamagedStoreError):
            reading.read(root, files=_files(is_remote))
    else:
        assert reading.read(root, files=_files(is_remote)) == found.rows


@pytest.mark.slow
@pytest.mark.parametrize("batches", [False, True], ids=["plain", "batches"])
@pytest.mark.parametrize("is_remote", [False, True])
def test_random_damage(tmp_path: Path, rng: random.Random, is_remote: bool, batches: bool) -> None:
    with remote.small_pages(rng):
        for _ in range(TRIALS):
            seed = rng.randrange(1 << 40)
            own = random.Random(seed)
            found = damaged_log(tmp_path / "store", own, batches=batches)
            try:
                _assert_reads(tmp_path / "store", found, own, is_remote)
            except Exception as why:
                raise AssertionError(f"seed {seed}: {found.story}") from why
            shutil.rmtree(tmp_path / "store")


def _flip(store: stores.StoreBuilder, at: int) -> None:
    path = store.segment(at)
    data = bytearray(path.read_bytes())
    data[at % store.segment_size] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("inside", [0, 5, 30, 86, 90])
def test_the_next_ones_are_in_no_queue(tmp_path: Path, inside: int) -> None:
    """One flipped bit, and those that follow are of a deleted topic: not one of them goes with it."""
    store = stores.StoreBuilder(tmp_path, segment_size=1 << 16)
    for number in range(27):
        store.append("Deleted" if 5 < number < 25 else "T", b"body %d" % number)
    store.close()
    shutil.rmtree(tmp_path / "consumequeue" / "Deleted")
    whole = reference.read_store(tmp_path)
    for lost in (5, 6, 12):
        path = store.segment(0)
        data = path.read_bytes()
        _flip(store, store.messages[lost].position + inside)
        for size in (1, 300, 1 << 30):
            rows = reading.read(tmp_path, mode="DROPMALFORMED", maxPartitionBytes=size)
            assert rows == whole[:lost] + whole[lost + 1 :]
        path.write_bytes(data)


@pytest.mark.parametrize("with_queues", [True, False])
def test_what_stands_in_a_body_is_no_message(tmp_path: Path, with_queues: bool) -> None:
    """Whatever bit of the message around it is flipped that a check covers, whether its queue knows it or not."""
    store = stores.StoreBuilder(tmp_path, segment_size=1 << 14)
    store.append("T", b"before")
    at = store.end
    body = b""
    for claim in ({"topic": "Nope"}, {"topic": "T", "queue_offset": 1}, {"topic": "T", "queue_offset": 77}):
        body += reference.encode_unit(physical_offset=at + 88 + len(body), body=b"crafted", **claim)
    assert store.append("Outer", body) == at
    for number in range(3):
        store.append("T", b"after %d" % number)
    store.close()
    if not with_queues:
        store.drop_queues()
    whole = reference.read_store(tmp_path)
    path = store.segment(0)
    data = path.read_bytes()
    covered = (*range(8), *range(28, 36), *range(84, 88), 90, 200)
    for inside in covered:
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at + inside] ^= 1 << bit
            path.write_bytes(flipped)
            rows = reading.read(tmp_path, mode="DROPMALFORMED", columns=["commitLogOffset"])
            expected = [row["commitLogOffset"] for row in whole if row["commitLogOffset"] != at]
            assert [row["commitLogOffset"] for row in rows] == expected, (inside, bit)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("inside", [0, 5, 30, 87, 90])
def test_the_last_message_before_left_over_units(tmp_path: Path, inside: int, clean: bool) -> None:
    """It is damaged, and its queue unit proves it; but units that are left over from a cut log follow that one."""
    store = stores.StoreBuilder(tmp_path, segment_size=1 << 14, queue_file_size=2000)
    for number in range(40):
        store.append("T", b"old %d" % number)
    store.forget_last(25)
    store.now += 60_000
    for number in range(4):
        store.append("T", b"new" * 50 * (number + 1))
    store.close(clean)
    whole = reference.read_store(tmp_path)
    _flip(store, store.messages[-1].position + inside)
    with pytest.raises(DamagedStoreError, match=f"commitLogOffset {store.messages[-1].position}"):
        reading.read(tmp_path)
    assert reading.read(tmp_path, mode="DROPMALFORMED") == whole[:-1]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("is_remote", [False, True])
def test_a_zeroed_message_before_a_damaged_one(tmp_path: Path, is_remote: bool, clean: bool) -> None:
    """The last two: the queue has both. The zeroed one is larger than a page of what is read remotely."""
    store = stores.StoreBuilder(tmp_path, segment_size=1 << 20, queue_file_size=2000, start=3 << 20)
    for _ in range(3):
        store.append("T", b"x" * 1000)
    store.append("T", b"y" * 100_000)
    store.append("T", b"z" * 1000)
    store.close(clean)
    whole = reference.read_store(tmp_path)
    zeroed, last = store.messages[-2:]
    path = store.segment(zeroed.position)
    data = bytearray(path.read_bytes())
    begin = zeroed.position - (3 << 20)
    data[begin : begin + zeroed.size] = bytes(zeroed.size)
    data[last.position - (3 << 20) + 200] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedStoreError, match=f"commitLogOffset {zeroed.position}"):
        reading.read(tmp_path, files=_files(is_remote))
    assert reading.read(tmp_path, mode="DROPMALFORMED", files=_files(is_remote)) == whole[:-2]
