"""A damaged log may have millions of damages: who listens to them does not keep them all."""

from __future__ import annotations

import logging
import tracemalloc

import pytest

from rmqstore_spark.read.run.damage_reports import Listener, listening, say_passed_over

MANY = 3000  # more than the texts that are kept


def report(count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        say_passed_over(f"damage {number}")


def test_each_damage_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), listening(is_once=True) as once:
        report(MANY)
        report(MANY + 1)
    assert len(caplog.messages) == len(set(caplog.messages)) == MANY + 1
    assert once.is_lost


def test_each_time_unless_asked(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), listening():
        report(2)
        report(2)
    assert len(caplog.messages) == 4


def test_silence_within_another_listener(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), listening(is_once=True) as outer, listening(is_silent=True) as inner:
        report(MANY)
    assert not caplog.messages
    assert outer.is_lost
    assert inner.is_lost
    assert 0 < len(inner.texts) < MANY


@pytest.mark.parametrize(("is_once", "each"), [(False, 1), (True, 100)])
def test_memory(is_once: bool, each: int) -> None:
    """Bytes for each damage beyond those that are kept."""
    listener = Listener(is_once=is_once)
    for number in range(MANY):
        listener.takes(f"damage {number} {'x' * 200}", True)
    tracemalloc.start()
    for number in range(MANY, 4 * MANY):
        listener.takes(f"damage {number} {'x' * 200}", True)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 3 * MANY * each
