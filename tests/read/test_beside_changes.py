"""A read while a writer of ours, or a broker, changes the store: any step of theirs comes between any two system calls
of the read. It has the rows of a state that the store had meanwhile, warns of nothing, and `check` finds nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.faulty_program import faulty_library, ran


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "least"),
    [
        pytest.param(["--pairs", 25, "--most", 4], 50, id="some"),
        pytest.param(["--pairs", 150, "--most", 12], 800, id="more", marks=pytest.mark.long),
        pytest.param(["--trials", 0.1], 5000, id="all", marks=[pytest.mark.long, pytest.mark.nightly]),
    ],
)
def test_reads_beside_each_step(tmp_path: Path, rng: random.Random, given: list[object], least: int) -> None:
    wrong, counts = ran(faulty_library(tmp_path), "support.beside_reads", tmp_path, *given, "--seed", rng.random())
    assert wrong == []
    assert int(counts.split()[0]) > least


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "pairs", [pytest.param(["--pairs", 40], id="some"), pytest.param([], id="all", marks=pytest.mark.nightly)]
)
def test_each_state_between_is_sound(tmp_path: Path, rng: random.Random, pairs: list[object]) -> None:
    """As a reader finds it that begins after some step of a writer, which stops there."""
    given = ["--static", "only", *pairs, "--seed", rng.random()]
    wrong, _ = ran(faulty_library(tmp_path), "support.beside_reads", tmp_path, *given)
    assert [line for line in wrong if line.startswith("STATIC")] == []
