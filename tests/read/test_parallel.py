"""Batches from threads come all and in order, errors too, and no thread is left."""

from __future__ import annotations

import functools
import gc
import itertools
import random
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from support.patience import HANG

from rmqstore_spark.read.run import parallel
from rmqstore_spark.read.run.parallel import Job, in_order


def batch(job: int, number: int, nbytes: int = 8) -> pa.RecordBatch:
    return pa.record_batch({"job": [job], "number": [number], "filler": [b"x" * nbytes]})


def seen(batches: Iterator[pa.RecordBatch]) -> list[tuple[int, int]]:
    return [(b["job"][0].as_py(), b["number"][0].as_py()) for b in batches]


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "rmqstore-decode"]


def ended() -> bool:
    """All threads of ours are, soon."""
    end = time.monotonic() + HANG
    while threads() and time.monotonic() < end:
        time.sleep(0.01)
    return not threads()


def counting(jobs: int, batches: int, made: list[int], nbytes: int = 8) -> list[Job]:
    def job(number: int) -> Iterator[pa.RecordBatch]:
        for at in range(batches):
            made.append(number)
            yield batch(number, at, nbytes)

    return [Job(functools.partial(job, number)) for number in range(jobs)]


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_all_batches_in_order(workers: int, rng: random.Random) -> None:
    counts = [rng.choice((0, 1, 2, 30)) for _ in range(40)]

    def job(number: int) -> Iterator[pa.RecordBatch]:
        for at in range(counts[number]):
            if rng.random() < 0.1:
                time.sleep(0.002)
            yield batch(number, at)

    jobs = [Job(functools.partial(job, number)) for number in range(len(counts))]
    assert seen(in_order(jobs, workers)) == [(job, at) for job, count in enumerate(counts) for at in range(count)]
    assert ended()


def test_nothing_to_do() -> None:
    assert seen(in_order([], 2)) == []


def test_several_work_at_a_time() -> None:
    both = threading.Barrier(2, timeout=HANG)

    def job(number: int) -> Iterator[pa.RecordBatch]:
        both.wait()
        yield batch(number, 0)

    assert seen(in_order([Job(lambda: job(0)), Job(lambda: job(1))], 2)) == [(0, 0), (1, 0)]


def test_what_is_ready_is_bounded_and_threads_end_without_a_taker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_ENOUGH", 10_000)
    monkeypatch.setattr(parallel, "_FEW", 5_000)
    made: list[int] = []
    batches = in_order(counting(50, 20, made, nbytes=1000), 3)
    assert seen(itertools.islice(batches, 1)) == [(0, 0)]
    assert ended()  # nobody closes it or takes more
    assert len(made) < 30
    assert len(seen(batches)) == 999
    assert len(made) == 1000
    assert ended()


@pytest.mark.parametrize("forget", [False, True])
def test_closed_or_forgotten(forget: bool) -> None:
    made: list[int] = []
    batches = in_order(counting(50, 1000, made), 2)
    next(batches)
    if forget:
        del batches
        gc.collect()
    else:
        batches.close()  # type: ignore[attr-defined]
    assert threads() == []
    assert len(made) < 50_000


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_nothing_of_a_void_job_is_given(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what is ready nor its error; and what it took of the room for others is free again."""
    monkeypatch.setattr(parallel, "_ENOUGH", 20_000)
    monkeypatch.setattr(parallel, "_FEW", 10_000)
    void = threading.Event()

    def first() -> Iterator[pa.RecordBatch]:
        yield batch(0, 0)
        time.sleep(0.05)  # others go on
        void.set()
        yield batch(0, 1)

    def wrong(number: int) -> Iterator[pa.RecordBatch]:
        yield from (batch(number, at, nbytes=1000) for at in range(5))
        raise ValueError("nobody asked")

    jobs = [Job(functools.partial(wrong, number), void.is_set) for number in range(1, 6)]
    given = seen(in_order([Job(first), *jobs, *counting(30, 3, [], nbytes=1000)], workers))
    assert given == [(0, 0), (0, 1), *((job, at) for job in range(30) for at in range(3))]
    assert ended()


def test_what_a_void_job_still_makes_takes_no_room() -> None:
    begun, void, later = threading.Event(), threading.Event(), threading.Event()

    def first() -> Iterator[pa.RecordBatch]:
        begun.wait(HANG)
        void.set()
        yield batch(0, 0)

    def wrong() -> Iterator[pa.RecordBatch]:
        begun.set()
        later.wait(HANG)
        yield batch(1, 0)

    work = parallel._Work([Job(first), Job(wrong, void.is_set), *counting(1, 1, [])], 2)
    assert work.go_on()
    assert work.next_batch() is not None
    assert work.next_batch() is None
    assert work.go_on()
    assert work.next_batch() is None
    later.set()
    assert work.go_on()
    while work.next_batch() is not None:
        pass
    assert not work.go_on()
    work.stop()
    assert work._bytes == 0


def test_jobs_are_asked_for_a_few_at_a_time() -> None:
    """A large log has millions of parts."""
    asked = []

    def jobs() -> Iterator[Job]:
        for number in range(1_000):
            asked.append(number)
            yield Job(lambda number=number: iter([batch(number, 0)]))  # type: ignore[misc]

    batches = in_order(jobs(), 2)
    assert seen(itertools.islice(batches, 3)) == [(0, 0), (1, 0), (2, 0)]
    assert len(asked) <= 3 + 2 + parallel._AHEAD
    assert seen(batches) == [(number, 0) for number in range(3, 1_000)]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_an_error_comes_in_its_place(workers: int) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield batch(1, 0)
        raise ValueError("broken")

    batches = in_order([*counting(1, 3, []), Job(broken), *counting(1, 10_000, [])], workers)
    assert seen(itertools.islice(batches, 4)) == [(0, 0), (0, 1), (0, 2), (1, 0)]
    with pytest.raises(ValueError, match="broken"):
        next(batches)
    assert threads() == []


@pytest.mark.parametrize("by", ["caller", "thread"])
def test_an_interrupt(by: str) -> None:
    """That of the caller may come while it works ahead; one in a thread comes as an error does."""
    caller = threading.current_thread()
    begun = threading.Event()

    def job(number: int) -> Iterator[pa.RecordBatch]:
        for at in range(1000):
            if (threading.current_thread() is caller) == (by == "caller"):
                begun.set()
                raise KeyboardInterrupt
            begun.wait(HANG)  # so that the other one comes to it
            yield batch(number, at)

    jobs = [Job(functools.partial(job, number)) for number in range(50)]
    with pytest.raises(KeyboardInterrupt):
        seen(in_order(jobs, 2))
    assert threads() == []
