"""Damage is told once, and what is kept for that does not grow with it."""

from __future__ import annotations

import logging
import tracemalloc

import pytest

from rmqstore_spark import once
from rmqstore_spark.read.run.damage_reports import listening, say_passed_over


def test_more_is_told_again_rather_than_not_at_all(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(once, "_MOST", 3)
    with caplog.at_level(logging.WARNING), listening(is_once=True) as damage:
        for _ in range(3):
            for number in range(5):
                say_passed_over(f"{number}")
    told = [text[0] for text in caplog.messages]
    assert [told.count(str(number)) for number in range(5)] == [1, 1, 1, 3, 3]
    assert damage.is_lost


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once, "_MOST", 100)
    known = once.Once()
    tracemalloc.start()
    try:
        assert all(known.is_new(f"damage at {number}") for number in range(5000))
        assert tracemalloc.get_traced_memory()[0] < 64 * 1024
    finally:
        tracemalloc.stop()
