"""A read with manners leaves memory as it was, and is no faster than its user says; without them nothing is done."""

from __future__ import annotations

import itertools
import mmap
import os
import pickle
import random
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support import reading, writing
from support.reading import options_of

from native_io import resident
from rmqstore_spark.errors import OptionError
from rmqstore_spark.query.options import parse_options
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.store.io import guest
from rmqstore_spark.store.io.files import Files, Prices, ReadFile
from rmqstore_spark.store.io.guest import Manners, Pace, Traces

MIB = 1024 * 1024
STRAY_PAGES = 64  # what else may come into memory: a page that was just being read when its neighbours were dropped
Pages = npt.NDArray[np.uint8]


def pages_of(path: Path) -> Pages:
    """Which are in memory."""
    found = np.zeros(-(-path.stat().st_size // mmap.PAGESIZE), np.uint8)
    fd = os.open(path, os.O_RDONLY)
    try:
        resident(fd, 0, found)
    finally:
        os.close(fd)
    return found


def forget(path: Path, *but: tuple[int, int]) -> Pages:
    """Have nothing of a file in memory but some stretches, as a broker's consumers would; which pages these are."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if pages_of(path).any():
            pytest.skip("this file system keeps its files in memory, as tmpfs does")
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # do not read ahead
        for start, stop in but:
            os.pread(fd, stop - start, start)
    finally:
        os.close(fd)
    return pages_of(path)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two segments of 32 MiB, each message of 8 KiB, every 50th with tag `rare`."""
    root = tmp_path_factory.mktemp("guest") / "store"
    rows: list[writing.Row] = [
        {"topic": "T", "queueId": i % 2, "tags": "rare" if i % 50 == 0 else "often", "body": b"%8d" % i * 1024}
        for i in range(7000)
    ]
    writing.write(root, rows, sizes=Sizes(segment=32 * MIB, queue_file=1 << 20, slots=1000, items=20_000))
    return root


def segments_of(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


# ---- memory


@pytest.fixture(params=["passing by", "dropping"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to leave memory as it was: by the system's own reads where it has such, and as on an older system."""
    if request.param == "dropping":
        monkeypatch.setattr(guest, "_PASSING_BY", 1 << 30)  # a flag that no system has


def test_pages_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1_000_001))
    found = forget(path, (40_960, 40_961), (999_999, 1_000_001))
    assert np.flatnonzero(found).tolist() == [40_960 // mmap.PAGESIZE, 1_000_000 // mmap.PAGESIZE]
    with path.open("rb") as file:
        some = np.full(3, 7, np.uint8)
        resident(file.fileno(), 40_960 // mmap.PAGESIZE * mmap.PAGESIZE, some)
        assert some.tolist() == [1, 0, 0]
        resident(file.fileno(), 1 << 40, some)  # after the end there is none
        assert some.tolist() == [0, 0, 0]
        resident(file.fileno(), 0, some[:0])
        with pytest.raises(OSError, match="Invalid argument"):
            resident(file.fileno(), 1, some)


@pytest.mark.slow
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("size", [3 * MIB, 100 * MIB])
def test_a_scan_leaves_memory_as_it_was(store: Path, size: int) -> None:
    segments = segments_of(store)
    held = [(3 * MIB, 5 * MIB), (10 * MIB + 12_345, 10 * MIB + 12_346), (31 * MIB, 32 * MIB)]
    before = [forget(path, *held) for path in segments]
    rows = scan(store, maxPartitionBytes=size, dropCache=True)
    after = [pages_of(path) for path in segments]
    assert_is_left(before, after)
    assert rows == scan(store)
    assert sum(int(pages_of(path).sum()) for path in segments) > 10 * MIB // mmap.PAGESIZE  # so we would have seen it


@pytest.mark.usefixtures("way")
def test_so_does_a_read_of_single_messages(store: Path) -> None:
    segments = segments_of(store)
    before = [forget(path, (3 * MIB, 5 * MIB)) for path in segments]
    rows = scan(store, prices=reading.FREE, tags="rare", dropCache=True)
    assert len(rows) == 140
    after = [pages_of(path) for path in segments]
    assert_is_left(before, after)


def test_a_scan_that_passes_by_reads_each_byte_once(store: Path) -> None:
    """The system drops what was read: to read the end of a window again, for the message that is cut there, would wait
    for the disk, and end the reading ahead."""
    path = segments_of(store)[0]
    options = options_of(store, dropCache=True)
    files = Files(manners=options.manners)
    with ReadFile(str(path), files, is_log=True) as file:
        if not file.flags:
            pytest.skip("this system, or file system, has no reads that pass by")
    task = reading.forced_plan(options, files).tasks[0]
    before = files.bytes
    assert len(reading.read_one(task, options)) > 3000
    extra = files.bytes - before - task.nbytes
    assert 0 <= extra < 4096  # 71,812 when window ends were read twice


def assert_is_left(before: list[Pages], after: list[Pages]) -> None:
    """What was in memory still is, but for what the system needed meanwhile; and nothing else."""
    old, new = np.concatenate(before), np.concatenate(after)
    assert (new[old == 1]).mean() > 0.5
    assert new[old == 0].sum() < STRAY_PAGES


def scan(store: Path, prices: Prices | None = None, **given: Any) -> list[reading.Row]:
    """Each task as an executor reads it."""
    options = options_of(store, **given)
    planned = reading.forced_plan(options, Files(prices, options.manners))
    return [row for task in planned.tasks for row in reading.read_one(pickle.loads(pickle.dumps(task)), options)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody whom the system tells nothing")
def test_who_is_told_nothing_drops_all_that_it_read(store: Path) -> None:
    path = segments_of(store)[0]
    held = forget(path, (3 * MIB, 5 * MIB), (20 * MIB, 21 * MIB))
    fd = os.open(path, os.O_RDONLY)
    os.seteuid(65534)
    try:
        traces = Traces(fd, 32 * MIB)
        traces.extend(0, 4 * MIB)
        os.pread(fd, 4 * MIB, 0)
        traces.extend(4 * MIB, 5 * MIB)
        traces.clear()
    finally:
        os.seteuid(0)
        os.close(fd)
    found = pages_of(path)
    assert found[: 6 * MIB // mmap.PAGESIZE].sum() < STRAY_PAGES
    assert held.sum() > 2 * MIB // mmap.PAGESIZE


def test_any_order_of_reads(tmp_path: Path, rng: random.Random) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(40 * MIB + 777))
    before = forget(path, *((at, at + rng.randrange(1, MIB)) for at in rng.sample(range(40 * MIB), 5)))
    with ReadFile(str(path), Files(manners=Manners(drop_cache=True)), is_log=True) as file:
        for _ in range(50):
            file.read(rng.randrange(42 * MIB), rng.randrange(1, MIB))
    after = pages_of(path)
    assert_is_left([before], [after])


# ---- time


class Clock(SimpleNamespace):
    """Stands still but for sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_pace(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Between any two reads there is the time for all that was read from the first one on, but for a tenth of a second;
    and never more than that."""
    clock = Clock()
    monkeypatch.setattr(guest, "time", clock)
    pace = Pace(1000)
    done: list[tuple[float, int]] = []
    idle = 0.0
    for _ in range(100):
        if rng.random() < 0.1:
            clock.sleep(5)
            idle += 5
        nbytes = rng.randrange(1, 500)
        pace.wait(nbytes)
        done.append((clock.now, nbytes))
    for (first, i), (last, j) in itertools.combinations(((at, n) for n, (at, _) in enumerate(done)), 2):
        assert sum(nbytes for _, nbytes in done[i:j]) <= 1000 * (last - first + 0.1) + 1e-6
    assert clock.now <= sum(nbytes for _, nbytes in done) / 1000 + idle


def test_threads_share_a_pace() -> None:
    pace = Pace(1_000_000)
    begin = time.monotonic()

    def work() -> None:
        for _ in range(5):
            pace.wait(10_000)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - begin >= 0.09  # 20 of them; the last, and a tenth of a second, need not be waited for


@pytest.mark.parametrize("given", [{}, {"tags": "rare"}])
def test_a_task_reads_no_faster_than_told(store: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    expected = scan(store, prices=reading.FREE, **given)
    clock = Clock()
    monkeypatch.setattr(guest, "time", clock)
    options = options_of(store, maxTaskBytesPerSecond="1m", maxPartitionBytes="8m", **given)
    rows = []
    for task in reading.forced_plan(options, Files(reading.FREE, options.manners)).tasks:
        task = pickle.loads(pickle.dumps(task))
        files = task.ranges[0].store.files
        begin = clock.now
        rows += reading.read_one(task, options)
        assert files.bytes > MIB // 8
        last = 512 * 1024  # what was read last, need not be waited for
        assert files.bytes - last <= (clock.now - begin) * MIB <= files.bytes * 1.1 + last
    assert rows == expected


# ---- options


def test_options() -> None:
    assert parse_options({"path": "x"}).manners == Manners(False, None)
    given = parse_options({"path": "x", "DROPCACHE": "True", "maxTaskBytesPerSecond": "100 MB"})
    assert given.manners == Manners(True, 100 * MIB)


@pytest.mark.parametrize(
    ("option", "text", "expected"),
    [
        ("dropCache", "yes", "true or false"),
        ("dropCache", "", "true or false"),
        *(("maxTaskBytesPerSecond", text, "a number of bytes such as") for text in ("0", "-1", "", "fast", "1.5m")),
    ],
)
def test_wrong_values(option: str, text: str, expected: str) -> None:
    with pytest.raises(OptionError) as error:
        parse_options({"path": "x", option: text})
    assert f"option {option!r}: expected {expected}" in str(error.value)
    assert f"found {text!r}" in str(error.value)
    assert "\n" not in str(error.value)


def test_without_them_nothing_is_done(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    fd = os.open(path, os.O_RDONLY)
    try:
        assert Files().guest(fd, is_log=True) is None
        assert Files(manners=Manners(drop_cache=True)).guest(fd, is_log=False) is None
    finally:
        os.close(fd)
