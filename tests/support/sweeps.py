"""Tests with many cases, or with many random stores, of which `make test-fast` takes a few: all together they take
longer than what else is quick.

Source of the choice (quick_cases.txt): each test that took more than 0.2 s of processor time in all its cases keeps as
many of them as take that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

# By test, how many of its cases stay quick, taken evenly from all.
QUICK = {
    name: int(count)
    for count, _, name in (
        line.partition(" ") for line in Path(__file__).with_name("quick_cases.txt").read_text().splitlines()
    )
}


def slow_cases(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """The cases that the quick tests leave out."""
    for quick, cases in _chosen(items):
        kept = {(2 * number + 1) * len(cases) // (2 * quick) for number in range(quick)}
        yield from (item for number, item in enumerate(cases) if number not in kept)


def samples(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """A case of each test that they leave out wholly."""
    return (cases[0] for quick, cases in _chosen(items) if quick == 0 and cases)


def _chosen(items: Iterable[pytest.Item]) -> Iterator[tuple[int, list[pytest.Item]]]:
    """How many stay quick of which cases."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    return ((quick, cases[name]) for name, quick in QUICK.items())
