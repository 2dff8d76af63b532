"""Stretches of numbers, joined and spelled out, are those of plain Python."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from rmqstore_spark.store.format.stretches import joined, numbers_in


@pytest.mark.parametrize("near", [0, 1, 5])
def test_joined(rng: random.Random, near: int) -> None:
    for _ in range(200):
        starts = sorted(rng.randrange(60) for _ in range(rng.randrange(8)))
        stretches = [(start, start + rng.randint(1, 9)) for start in starts]
        found = list(joined(stretches, near))
        inside = {number for start, stop in stretches for number in range(start, stop)}
        covered = {number for start, stop in found for number in range(start, stop)}
        filled = {number for number in range(80) if number not in inside and number in covered}
        assert inside <= covered
        assert all(after[0] - before[1] > near for before, after in itertools.pairwise(found))
        assert all(
            any(number - back in inside for back in range(1, near + 1))
            and any(number + on in inside for on in range(1, near + 1))
            for number in filled
        )


def test_numbers_in(rng: random.Random) -> None:
    for _ in range(200):
        some = [(rng.randrange(1 << 40), rng.randrange(5)) for _ in range(rng.randrange(6))]
        firsts, counts = np.array(some, np.int64).reshape(-1, 2).T
        assert numbers_in(firsts, counts).tolist() == [first + at for first, count in some for at in range(count)]
