"""A write of which any system call fails (EIO), finds no room (ENOSPC, EDQUOT), is interrupted, or moves fewer bytes
than it was asked for, is whole or not there, as it says; and the next one goes on. Appends in both ways, also a
stream's, overwrite, rebuild, set_offsets, copy and salvage.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from support.faulty_program import faulty_library, ran


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(1000, id="few"),
        pytest.param(250, id="some", marks=pytest.mark.long),
        pytest.param(60, id="many", marks=[pytest.mark.long, pytest.mark.nightly]),
    ],
)
def test_whole_or_not_there(tmp_path: Path, rng: random.Random, step: int) -> None:
    wrong, counts = ran(faulty_library(tmp_path), "support.faulty_writes", tmp_path, step, rng.random())
    assert wrong == []
    tried, told = map(int, re.findall(r"\d+", counts))
    assert tried > told > 10
