"""Partitions: all of the log, each byte once, cut at starts of messages only, of a good size, and cheaply found."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from oracle import random_stores, reference, stores
from support import reading
from support.reading import make_plan

from rmqstore_spark.read.task import Range

KIB, MIB = 1 << 10, 1 << 20


def _ranges(root: Path, **options: Any) -> list[Range]:
    return [r for task in make_plan(root, **options).tasks for r in task.ranges]


@pytest.mark.parametrize("with_queues", [True, False])
@pytest.mark.parametrize("clean", [True, False])
def test_partitions_cover_the_log(tmp_path: Path, rng: random.Random, with_queues: bool, clean: bool) -> None:
    store = random_stores.random_store(tmp_path, rng, messages=200, clean=clean, start=8192 * 3)
    if not with_queues:
        store.drop_queues()
    starts = {row["commitLogOffset"] for row in reference.read_store(tmp_path)}
    for size in (1, 200, 1000, 3000, 8192, 10_000, 30_000, 1 << 30):
        ranges = _ranges(tmp_path, maxPartitionBytes=size)
        assert ranges[0].start == 8192 * 3
        for before, after in itertools.pairwise(ranges):
            assert before.stop == after.start
        assert ranges[-1].stop == store.end
        assert {r.start for r in ranges} <= starts
        for r in ranges:
            assert r.start < r.stop
            assert r.segment.start <= r.start < r.stop <= r.segment.end


@pytest.mark.parametrize("with_queues", [True, False])
def test_sizes_are_near_the_target(tmp_path: Path, with_queues: bool) -> None:
    store = stores.StoreBuilder(tmp_path, segment_size=MIB, queue_file_size=20_000)
    for i in range(3000):
        store.append(topic=f"T{i % 5}", queue_id=i % 3, body=b"x" * 1000)
    store.close()
    if not with_queues:
        store.drop_queues()
    for target in (50 * KIB, 100 * KIB, 300 * KIB, 700 * KIB):
        sizes = [
            sum(r.stop - r.start for r in task.ranges) for task in make_plan(tmp_path, maxPartitionBytes=target).tasks
        ]
        assert sum(sizes) == store.end
        assert max(sizes) <= 1.5 * target + 20 * KIB
        assert len(sizes) <= 2.2 * store.end / target
    for count in (1, 5, 20, 60):
        tasks = make_plan(tmp_path, minPartitions=count).tasks
        assert 0.8 * count <= len(tasks) <= 2 * count + 4


def test_small_segments_are_packed(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path, segment_size=8 * KIB)
    for _ in range(2000):
        store.append(body=b"x" * 900)
    store.close()
    assert len(list((tmp_path / "commitlog").iterdir())) == 250
    tasks = make_plan(tmp_path, maxPartitionBytes=512 * KIB).tasks
    assert len(tasks) < 25
    assert [r.start for task in tasks for r in task.ranges] == list(range(0, 250 * 8 * KIB, 8 * KIB))


def test_small_stores_are_packed(tmp_path: Path) -> None:
    for name in "abcdefgh":
        random_stores.random_store(tmp_path / name, random.Random(name), messages=20)
    tasks = make_plan(tmp_path / "*").tasks
    assert len(tasks) == 1
    assert [Path(r.store.root).name for r in tasks[0].ranges if r.segment.start == 0] == list("abcdefgh")


def test_tiny_store_is_one_partition(tmp_path: Path) -> None:
    random_stores.random_store(tmp_path, random.Random(0), messages=200)
    assert len(make_plan(tmp_path).tasks) == 1


def _large_store(root: Path, segments: int, body: int) -> stores.StoreBuilder:
    store = stores.StoreBuilder(root, segment_size=64 * MIB, queue_file_size=60_000)
    while store.end < segments * 64 * MIB - 2 * body:
        store.append(topic=f"T{len(store.messages) % 3}", body=b"x" * body)
    store.close()
    return store


@pytest.mark.parametrize("body", [100_000, 3_000_000])
def test_planning_reads_little(tmp_path: Path, body: int) -> None:
    """With ConsumeQueue the cost does not depend on the size of the log, and of its messages only the last is read."""
    store = _large_store(tmp_path, 1, body)
    assert store.end > 60 * MIB
    planned = make_plan(tmp_path, maxPartitionBytes=8 * MIB)
    assert len(planned.tasks) >= 6
    assert planned.files.bytes < 256 * KIB + body
    assert planned.files.requests < 3000
    starts = {message.position for message in store.messages}
    assert {r.start for task in planned.tasks for r in task.ranges} <= starts


def test_pruned_columns_do_not_cost_planning(tmp_path: Path, rng: random.Random) -> None:
    """Reading reads each byte of the log about once."""
    store = stores.StoreBuilder(tmp_path, segment_size=4 * MIB, queue_file_size=20_000)
    while store.end < 7 * MIB:
        store.append(body=rng.randbytes(1000))
    store.close()
    for size in (256 * KIB, MIB, 1 << 30):
        options = reading.options_of(tmp_path, maxPartitionBytes=size)
        planned = reading.plan(options)
        planning = planned.files.bytes
        settings = reading.ReadSettings(reading.arrow_schema(["queueOffset"]))
        rows = sum(batch.num_rows for task in planned.tasks for batch in reading.read_task(task, settings))
        assert rows == len(store.messages)
        assert planned.files.bytes - planning < 1.05 * store.end
