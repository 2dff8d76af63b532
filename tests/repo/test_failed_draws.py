"""What failed once with the numbers that it drew is tried with them ever after, and no such draw is lost."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import pytest
from support import own_tests
from support.failed_draws import MOST, Draw, keep, kept

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.long
def test_draws_that_failed_once() -> None:
    for seed, draws in itertools.groupby(sorted(kept(), key=attrgetter("seed")), attrgetter("seed")):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(draw.test for draw in draws)]
        environment = {**os.environ, "RMQ_TEST_SEED": seed}
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"RMQ_TEST_SEED={seed}\n{ran.stdout}"


def test_what_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "draws.txt"
    path.write_text("# why\n7 tests/a.py::test[x y]  # a word on it\n")
    first = Draw("7", "tests/a.py::test[x y]")
    assert kept(path) == [first]
    other = Draw("8", "tests/b.py::test")
    keep([first, other, other], path)
    assert kept(path) == [first, other]
    keep([Draw("9", f"tests/c.py::test_{number}") for number in range(MOST + 1)], path)
    assert kept(path) == [first, other]


@pytest.mark.slow
def test_a_run_tells_and_keeps_them(tmp_path: Path) -> None:
    """Of a test that draws, how to run it again; of no other."""
    ran = own_tests.run(
        tmp_path, "def test_draws(rng):\n    assert rng.random() > 1\n\ndef test_does_not():\n    assert False\n"
    )
    (draw,) = kept(tmp_path / "tests/failed_draws.txt")
    assert draw.test == "tests/test_it.py::test_draws"
    assert ran.stdout.count(draw.again()) == 1
    assert ran.stdout.count("RMQ_TEST_SEED=") == 1
