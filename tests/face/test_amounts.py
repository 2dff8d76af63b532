"""Lengths of time are said in their two largest units, sizes in one."""

from __future__ import annotations

import pytest

from rmqstore_spark.amounts import duration_text, size_text

HOUR = 3_600_000  # milliseconds


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (8_500, "8.5 s"),
        (61_999, "1 min 1 s"),
        (HOUR * 10 // 3, "3 h 20 min"),
        (48 * HOUR, "2 days 0 h"),
        (729 * 24 * HOUR + 23 * HOUR, "729 days 23 h"),
        (3919 * 24 * HOUR + 13 * HOUR, "10 years 269 days"),
    ],
)
def test_two_units(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (1023, "1,023 bytes"), (2_202_009, "2.1 MiB"), (5 << 50, "5,120.0 TiB")]
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text
