"""Checksums of parts of a segment that overlap: each is that of zlib, and bytes are read a few times at most."""

from __future__ import annotations

import random
import zlib
from typing import cast

import pytest

from rmqstore_spark.store.structures.body_sums import BodySums
from rmqstore_spark.store.structures.window import Window


class _Bytes:
    """A window on bytes in memory, which counts what is read."""

    def __init__(self, data: bytes) -> None:
        self.data, self.count = data, 0

    def seen(self, at: int, size: int) -> memoryview:
        self.count += size
        return memoryview(self.data)[at : at + size]

    read = seen


@pytest.mark.parametrize("begin", [0, 4096, 5000])
def test_overlapping_parts(rng: random.Random, begin: int) -> None:
    window = _Bytes(rng.randbytes(300_000))
    sums = BodySums(cast(Window, window))
    parts = [(start, rng.randrange(start, 300_000)) for start in sorted(rng.choices(range(begin, 300_000), k=200))]
    edges = [(begin, 4096 * count + begin + more) for count in (1, 2, 60) for more in (-1, 0, 1)]
    for start, stop in [(begin, 300_000)] * 6 + edges + parts:
        assert sums.of(start, stop) == zlib.crc32(window.data[start:stop]), (start, stop)
    asked = sum(stop - start for start, stop in parts)
    assert window.count < asked / 2  # of each part only what lies behind the last step


def test_a_part_before_the_others(rng: random.Random) -> None:
    window = _Bytes(rng.randbytes(50_000))
    sums = BodySums(cast(Window, window))
    for start, stop in [*[(20_000, 40_000)] * 8, (19_999, 30_000), (25_000, 50_000), (0, 1), (0, 0)]:
        assert sums.of(start, stop) == zlib.crc32(window.data[start:stop])
