"""What need not wait for each other's answers: answers come in order, as do errors, whoever makes the requests; where a
request takes long, many are made at a time, in every read of a process."""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref

import pytest

from rmqstore_spark.store.io import schedule
from rmqstore_spark.store.io.schedule import Concurrent, Serial

HANG = 20  # seconds
SCHEDULES = [Serial(), Concurrent()]


@pytest.mark.parametrize("each", SCHEDULES)
def test_answers_in_the_order_of_items(each: Serial, rng: random.Random) -> None:
    pauses = [rng.random() / 200 for _ in range(50)]

    def late(number: int) -> int:
        time.sleep(pauses[number])
        return number * 2

    assert each.mapped(late, range(50)) == list(range(0, 100, 2))
    assert each.mapped(late, iter([])) == []


@pytest.mark.parametrize("each", SCHEDULES)
def test_nothing_is_left_to_be_done_later(each: Serial) -> None:
    seen: list[int] = []
    each.mapped(seen.append, range(10))
    assert sorted(seen) == list(range(10))


@pytest.mark.parametrize("each", SCHEDULES)
def test_the_error_is_that_of_the_first_item_that_fails(each: Serial) -> None:
    failed = threading.Event()

    def fail(number: int) -> None:
        if number == 7:
            failed.set()  # a later item fails first, where it can
            raise ValueError(number)
        if number == 3:
            failed.wait(0 if type(each) is Serial else HANG)
            raise ValueError(number)

    for _ in range(20):
        failed.clear()
        with pytest.raises(ValueError, match=r"^3$"):
            each.mapped(fail, range(10))


@pytest.mark.parametrize("each", SCHEDULES)
def test_a_partition_point(each: Serial, rng: random.Random) -> None:
    for trial in range(60):
        least = rng.randrange(50)
        most = rng.randrange(least, least + 5000)
        answer = rng.randrange(least, most + 1)

        def find(_: int, least: int = least, most: int = most, answer: int = answer) -> int:
            return each.partition_point(least, most, lambda number: number < answer)

        searches = 1 + trial % 2  # one is not beside others
        assert each.mapped(find, range(searches)) == [answer] * searches


def test_a_second_read_has_as_many_at_a_time_as_the_first() -> None:
    """A thread that was inside a function that is mapped is not any more, whether that failed or not."""
    each = Concurrent()
    together = threading.Barrier(32)
    for _ in range(3):
        each.mapped(lambda _: time.sleep(0.001), range(2 * schedule.REQUESTS_AT_ONCE))  # all threads have worked
        with pytest.raises(ZeroDivisionError):
            each.mapped(lambda _: 1 // 0, range(schedule.REQUESTS_AT_ONCE))
        each.mapped(lambda _: together.wait(HANG), range(32))  # ends only if all run beside each other
        done = threading.Event()

        def work(done: threading.Event = done) -> None:
            each.mapped(lambda _: together.wait(HANG), range(32))
            done.set()

        each.in_background(work)
        assert done.wait(HANG)


def test_what_is_mapped_inside_has_what_its_neighbours_leave() -> None:
    """Also where all of them wait for what they map; and inside of that, requests come one after the other."""
    each, lock = Concurrent(), threading.Lock()
    now = most = 0

    def request(_: int) -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.002)
        with lock:
            now -= 1
        return threading.get_ident()

    def inside(_: int) -> set[int]:
        return set(each.mapped(request, range(3)))

    for outer in (2, 20, schedule.REQUESTS_AT_ONCE):
        found = each.mapped(lambda _: each.mapped(inside, range(4)), range(outer))
        # Where there are as many neighbours as requests, the last ones have what the others left.
        assert outer == schedule.REQUESTS_AT_ONCE or all(len(threads) == 1 for row in found for threads in row)
        assert {len(row) for row in found} == {4}
        most = 0
        found_at_once = each.mapped(lambda _: set(each.mapped(request, range(8))), range(outer))
        assert outer == schedule.REQUESTS_AT_ONCE or all(len(threads) > 1 for threads in found_at_once)
        assert outer < schedule.REQUESTS_AT_ONCE or any(len(threads) == 1 for threads in found_at_once)
        assert 1 < most <= schedule.REQUESTS_AT_ONCE


def test_the_last_ones_have_what_those_that_are_done_leave() -> None:
    """One of very many neighbours that asks on when all others are done asks for as much as if it were alone."""
    each, others = Concurrent(), 150
    done, together = threading.Semaphore(0), threading.Barrier(32)

    def work(number: int) -> None:
        if number:
            done.release()
            return
        for _ in range(others):
            assert done.acquire(timeout=HANG)
        deadline = time.monotonic() + HANG
        while schedule._at_once() < 32:  # the last of the others has not quite ended
            assert time.monotonic() < deadline
            time.sleep(0.001)
        each.mapped(lambda _: together.wait(HANG), range(32))

    each.mapped(work, range(others + 1))


def test_an_error_leaves_what_is_not_begun() -> None:
    each, begun, is_told = Concurrent(), [], threading.Event()

    def fail(number: int) -> None:
        begun.append(number)
        if number:
            is_told.wait(60)
        raise ValueError(number)

    with pytest.raises(ValueError, match=r"^0$"):
        each.mapped(fail, range(20 * schedule.REQUESTS_AT_ONCE))
    is_told.set()
    each.mapped(
        lambda _: None, range(2 * schedule.REQUESTS_AT_ONCE)
    )  # threads that waited would have begun others meanwhile
    assert len(begun) <= 2 * schedule.REQUESTS_AT_ONCE


def test_memory_and_threads_are_given_back() -> None:
    class Answer:
        pass

    each = Concurrent()
    for _ in range(3):
        answers = each.mapped(lambda _: Answer(), range(100))
        kept = [weakref.ref(answer) for answer in answers]
        del answers
        each.mapped(lambda _: None, range(2 * schedule.REQUESTS_AT_ONCE))  # threads forget what they did last
        gc.collect()
        assert not [ref for ref in kept if ref() is not None]
    named = [thread for thread in threading.enumerate() if thread.name.startswith("rmqstore-mapped")]
    assert len(named) <= schedule._POOLS * schedule.REQUESTS_AT_ONCE
