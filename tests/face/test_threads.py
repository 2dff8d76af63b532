"""What threads of one process share, and what each call has for itself: cores, what is found out once, what is told."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.patience import HANG
from support.writing import SIZES

import rmqstore_spark
from rmqstore_spark import Store
from rmqstore_spark import cores as cores_module
from rmqstore_spark.cores import cores
from rmqstore_spark.kept import kept
from rmqstore_spark.progress import Progress, shown
from rmqstore_spark.read.run.damage_reports import listening, say_passed_over
from rmqstore_spark.read.run.parallel import Job, in_order

# ---- found out once


class _Slow:
    count = 0

    @kept
    def found(self) -> int:
        """Takes a while."""
        time.sleep(0.05)
        type(self).count += 1
        return id(self)


def test_objects_find_out_side_by_side() -> None:
    """functools.cached_property has one lock for all objects, up to Python 3.11."""
    slow = [_Slow() for _ in range(16)]
    began = time.monotonic()
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda each: each.found, slow)) == [id(each) for each in slow]
    assert time.monotonic() - began < 16 * 0.05
    assert [each.found for each in slow] == [id(each) for each in slow]
    assert _Slow.count == 16
    assert _Slow.found.__doc__ == "Takes a while."


def test_no_property_is_behind_a_lock_for_all() -> None:
    package = Path(cores_module.__file__).parent
    assert [str(path) for path in package.rglob("*.py") if "import cached_property" in path.read_text()] == []
    assert [str(path) for path in package.rglob("*.py") if "@functools.cached_property" in path.read_text()] == []


# ---- told


def _say(number: int) -> pa.RecordBatch:
    say_passed_over("damage")
    return pa.record_batch([pa.array([number])], ["n"])


def test_a_salvage_tells_once_and_others_are_heard(caplog: pytest.LogCaptureFixture) -> None:
    salvages, others = threading.Event(), threading.Event()

    def other() -> None:
        salvages.wait(HANG)
        for number in range(3):
            _say(number)
        others.set()

    thread = threading.Thread(target=other)
    thread.start()
    with caplog.at_level(logging.WARNING), listening(is_once=True):
        _say(0)
        salvages.set()
        others.wait(HANG)
        # Also what threads say that read for it.
        jobs = [Job(lambda number=number: iter([_say(number)])) for number in range(8)]  # type: ignore[misc]
        assert sum(batch.num_rows for batch in in_order(jobs, workers=4)) == 8
    thread.join()
    assert [record.message for record in caplog.records] == ["damage; what comes after is read"] * 4
    _say(9)
    assert len(caplog.records) == 5


def test_progress_of_others_is_not_heard() -> None:
    begun, done = threading.Event(), threading.Event()
    heard: list[str] = []

    def other() -> None:
        begun.wait(HANG)
        Progress("another one's", 1).add()
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with shown(lambda progress: heard.append(progress.what)):
        begun.set()
        done.wait(HANG)
        Progress("mine", 1).add()
    thread.join()
    assert heard == ["mine"]


# ---- cores


@pytest.mark.parametrize(
    ("files", "most"),
    [
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "200000 100000"}, 2),
        ({"cpu.max": "250000 100000"}, 3),
        ({"cpu.max": "1000 100000"}, 1),
        ({"cpu.max": "noise"}, None),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "150000", "cpu/cpu.cfs_period_us": "100000"}, 2),
        ({}, None),
    ],
)
def test_cores_of_a_container(
    files: dict[str, str], most: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setattr(cores_module, "_CGROUPS", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert cores() == (most or 64)


@pytest.mark.slow
def test_fifty_readers_beside_a_writer(tmp_path: Path) -> None:
    """Each finds all that was written before it began, and nothing in part."""
    root, ready = tmp_path / "store", threading.Barrier(51)

    def write(number: int) -> None:
        rows = pa.table({"topic": ["A", "B"] * 5, "body": [f"{number}"] * 10, "keys": ["key"] * 10})
        rmqstore_spark.write_store(root, rows, **SIZES)
        done.append(number)

    done: list[int] = []
    write(0)
    ways: list[dict[str, Any]] = [{}, {"subscribe": "A,B"}, {"key": "key"}, {"trust": "queues"}, {"minPartitions": 4}]

    def read(way: int) -> None:
        ready.wait()
        while len(done) < 6:
            before = len(done)
            found = Counter(Store(root).messages("body", **ways[way % len(ways)]).read_all().column("body").to_pylist())
            assert before <= len(found) <= len(done) + 1
            assert found == {b"%d" % number: 10 for number in range(len(found))}

    with ThreadPoolExecutor(50) as threads:
        reads = [threads.submit(read, way) for way in range(50)]
        ready.wait()
        for number in range(1, 6):
            write(number)
        for each in reads:
            each.result()
