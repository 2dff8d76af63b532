"""What is outside of parts of ranges, byte by byte."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import cast

from rmqstore_spark.read.pieces.task import Range
from rmqstore_spark.read.plan.access_path import _outside


@dataclass(frozen=True)
class _Part:
    start: int
    stop: int


def _drawn(rng: random.Random, start: int, stop: int) -> list[_Part]:
    """Parts in order; some of them touch."""
    edges = sorted(rng.sample(range(start, stop + 1), k=2 * rng.randint(0, (stop - start) // 4)))
    return [_Part(*edges[at : at + 2]) for at in range(0, len(edges), 2)]


def _bytes(parts: list[_Part]) -> list[int]:
    return [each for part in parts for each in range(part.start, part.stop)]


def test_what_is_left(rng: random.Random) -> None:
    for _ in range(500):
        ranges = _drawn(rng, 0, 40)
        rest = [part for r in ranges for part in _drawn(rng, r.start, r.stop)]
        found = cast(list[_Part], _outside(cast(list[Range], ranges), cast(list[Range], rest)))
        assert _bytes(found) == sorted({*_bytes(ranges)} - {*_bytes(rest)})
        assert all(part.start < part.stop for part in found)
        assert all(any(r.start <= part.start and part.stop <= r.stop for r in ranges) for part in found)
