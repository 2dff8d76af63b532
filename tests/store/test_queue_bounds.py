"""Queues begin and end where what is known to be in them does, in stores that were cut, damaged and robbed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from oracle import stores
from oracle.worn_stores import TOPICS, Worn, worn_store

from rmqstore_spark.store.bounds_search import QueueBounds
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.queue_bounds import ManyBounds, _outer, many_bounds, queue_bounds
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.many_headers import NO_TIME
from rmqstore_spark.store.unit_evidence import UnitEvidence


def bounds_of(root: Path) -> dict[tuple[str, int], QueueBounds]:
    store = Snapshot.find(str(root), Files())
    return {(each.queue.topic, each.queue.queue_id): each for each in queue_bounds(store, store.queues.every)}


def assert_bounds(worn: Worn) -> int:
    """How many queues were compared in full."""
    compared = 0
    lost = {message.position for message in worn.damaged}
    for queue, bounds in bounds_of(worn.store.root).items():
        if queue[0] not in TOPICS:
            continue
        known = worn.known(queue)
        whole = [message for message in known if message.position not in lost]
        assert bounds.end >= max((message.queue_offset + 1 for message in known), default=0), (queue, bounds)
        found = [None if each is None else each.position for each in (bounds.first, bounds.last)]
        assert found == ([whole[0].position, whole[-1].position] if whole else [None, None]), (queue, bounds)
        assert bounds.least == (whole[0].queue_offset if whole else bounds.end)
        if known and not (worn.was_cut and worn.damaged):  # a left-over unit may point to what is damaged
            assert bounds.end == known[-1].queue_offset + 1, (queue, bounds)
            compared += 1
    return compared


def test_bounds_of_worn_stores(tmp_path: Path, rng: random.Random) -> None:
    compared = 0
    for number in range(60):
        root = tmp_path / str(number)
        compared += assert_bounds(worn_store(root, rng))
        shutil.rmtree(root)
    assert compared > 60


def test_of_every_set_of_damaged_messages(tmp_path: Path, rng: random.Random) -> None:
    """A damaged message keeps its place, the last one as well."""
    builder = stores.StoreBuilder(tmp_path, queue_file_size=60)
    for _ in range(7):
        builder.append("T", b"x" * 20)
    builder.append("Other", b"x" * 21)
    builder.close()
    path = builder.segment(0)
    good = path.read_bytes()
    for which in range(1 << 7):
        data = bytearray(good)
        for message in builder.messages[:7]:
            if which >> message.queue_offset & 1:
                data[message.position + 4] ^= 1
        path.write_bytes(data)
        bounds = bounds_of(tmp_path)["T", 0]
        whole = [message for message in builder.messages[:7] if not which >> message.queue_offset & 1]
        assert bounds.end == 7
        assert bounds.least == (whole[0].queue_offset if whole else 7)


@pytest.mark.parametrize("width", [100, 250, 400, 1000])
def test_the_last_unit_of_a_queue_that_lost_a_block(tmp_path: Path, width: int) -> None:
    """However many units are looked at first: also where these end with the block's zeros."""
    builder = stores.StoreBuilder(tmp_path, queue_file_size=200_000)
    for _ in range(900):
        builder.append("T")
    builder.close()
    (path,) = builder.queue_directory("T", 0).iterdir()
    data = path.read_bytes()
    path.unlink()
    with path.open("wb") as file:  # with a hole behind the units, as brokers' files have
        file.truncate(len(data))
        file.write(data[:4096])
        file.seek(8192)
        file.write(data[8192 : 900 * 20])
    (queue,) = Snapshot.find(str(tmp_path), Files()).queues.every
    found = _outer(queue, width, 0)
    assert found.first is not None
    assert found.last is not None
    assert (found.first.number, found.last.number) == (0, 899)


def test_where_a_file_of_a_queue_is_cut_or_missing(tmp_path: Path) -> None:
    """What the other files have still counts, wherever the log begins."""
    builder = stores.StoreBuilder(tmp_path, segment_size=512, queue_file_size=60)
    for _ in range(12):
        builder.append("T", b"x" * 20)
    builder.close()
    whole, begin = {m.queue_offset for m in builder.messages}, {m.queue_offset: m.position for m in builder.messages}
    for expired in range(3):
        for path in sorted((tmp_path / "consumequeue" / "T" / "0").iterdir()):
            data = path.read_bytes()
            for size in (0, 20, 40, None):
                path.unlink() if size is None else path.write_bytes(data[:size])
                first = int(path.name) // 20
                cut = set(range(first + (size or 0) // 20, first + 3))
                left = [n for n in sorted(whole - cut) if begin[n] >= builder.start]
                bounds = bounds_of(tmp_path)["T", 0]
                assert (bounds.least, bounds.end) == (left[0], left[-1] + 1), (expired, path.name, size)
            path.write_bytes(data)
        builder.expire(1)


def test_many_at_once_are_as_each_by_itself(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In columns, where the log confirms both ends; as objects; and where no fact answers, so that each is searched."""
    confirmed = 0
    for number in range(12):
        root = tmp_path / str(number)
        worn_store(root, rng)
        found = []
        for is_searched in (False, True):
            with monkeypatch.context() as context:
                if is_searched:
                    context.setattr(UnitEvidence, "are_surely_live", lambda self, positions, sizes: positions < 0)
                store = Snapshot.find(str(root), Files())
                queues = store.queues.every
                each, many = list(queue_bounds(store, queues)), many_bounds(store, queues)
            assert many.queues == queues
            of_each = ManyBounds.of(each)
            for name in ("least", "end", "numbers", "positions", "times"):
                assert (getattr(of_each, name) == getattr(many, name)).all(), name
            found.append([(one.least, one.end, one.first, one.last, one.numbers) for one in each])
            rows = zip(many.least, many.end, many.positions.T, many.times.T, many.numbers.T, strict=True)
            for one, (least, end, positions, times, numbers) in zip(each, rows, strict=True):
                assert (one.least, one.end) == (least, end)
                for header, position, time in zip((one.first, one.last), positions, times, strict=True):
                    known = (-1, NO_TIME) if header is None else (header.position, header.store_timestamp)
                    assert known == (position, time)
                assert one.first is None or one.numbers == range(numbers[0], numbers[1] + 1)
        assert found[0] == found[1]
        confirmed += sum(first is not None for _, _, first, _, _ in found[0])
        shutil.rmtree(root)
    assert confirmed > 20


def worn_by_hand(root: Path, seed: int, trials: int) -> None:
    """For thousands of them, in a directory of their own."""
    for number in range(trials):
        shutil.rmtree(root, ignore_errors=True)
        rng = random.Random(seed + number)
        try:
            assert_bounds(worn_store(root, rng))
        except BaseException:
            print("seed", seed + number)
            raise
