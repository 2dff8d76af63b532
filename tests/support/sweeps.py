"""Tests with many cases, or with many random stores, of which `make test-fast` takes a few, and `make test` some: all
together they take longer than what else there is. The others are nightly.

Source of the choices: of each test that took more than 0.2 s of processor time in all its cases, as many of them are
quick as take that (quick_cases.txt). Of those that took longest in `make test`, a third is left there besides, at least
one, where cases are random or combinations (merge_cases.txt).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest


def _counts(name: str) -> dict[str, int]:
    lines = Path(__file__).with_name(name).read_text().splitlines()
    return {test: int(count) for count, _, test in (line.partition(" ") for line in lines)}


# By test, how many of its cases stay quick, taken evenly from all; and how many of the others run before each merge.
QUICK, MERGE = _counts("quick_cases.txt"), _counts("merge_cases.txt")


def slow_cases(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """The cases that the quick tests leave out."""
    return _left_out(_chosen(items, QUICK))


def nightly_cases(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """The slow cases that are left out before a merge."""
    some = (item for item in items if item.get_closest_marker("slow") and not item.get_closest_marker("long"))
    return _left_out(_chosen(some, MERGE))


def samples(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """A case of each test that they leave out wholly."""
    return (cases[0] for quick, cases in _chosen(items, QUICK) if quick == 0 and cases)


def _left_out(chosen: Iterable[tuple[int, list[pytest.Item]]]) -> Iterator[pytest.Item]:
    for count, cases in chosen:
        kept = {(2 * number + 1) * len(cases) // (2 * count) for number in range(count)}
        yield from (item for number, item in enumerate(cases) if number not in kept)


def _chosen(items: Iterable[pytest.Item], counts: dict[str, int]) -> Iterator[tuple[int, list[pytest.Item]]]:
    """How many of which cases are chosen."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    return ((count, cases[name]) for name, count in counts.items())
