"""Random stores with a past, held against the plain truth: some seconds in every run, other seeds each time.

A seed that fails is written to failed_seeds.txt, which is tried first from then on: commit it with the mending.
`PYTHONPATH=tests python -m machine.run --help` tries many by hand.
"""

from __future__ import annotations

import itertools
import os
import random
import time

import pytest

from machine import seeds
from machine.trials import COMPARISONS, try_seed

SECONDS = 60 / len(COMPARISONS)
_LEAST = 5  # trials, however slow the machine
_IN_CI = 5  # trials there: half as long, and the same however fast the machine is

pytestmark = pytest.mark.slow


def _told(comparison: str, seed: int) -> str:
    """What differs, line by line; empty where nothing does."""
    found = try_seed(comparison, seed)
    return "\n".join(f"{comparison} {seed}: {why}\n    {'; '.join(why.__notes__)}" for why in found)


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_seeds_that_failed_once(comparison: str) -> None:
    told = [_told(name, seed) for name, seed in seeds.kept() if name == comparison]
    assert not any(told), "\n".join(filter(None, told))


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_new_seeds(comparison: str) -> None:
    """In CI they are always the same, so that none fails by chance over what it did not touch."""
    first = random.Random(f"{os.environ['RMQ_TEST_SEED']} {comparison}").randrange(10**9)
    end = time.monotonic() + SECONDS
    for number in itertools.count():
        if number == _IN_CI if "CI" in os.environ else number >= _LEAST and time.monotonic() > end:
            break
        if told := _told(comparison, first + number):
            seeds.keep(comparison, first + number)
            pytest.fail(f"after {number} trials that went well:\n{told}")
