"""The draws that have failed once: each test that draws, with the seed. A run writes them down itself, and they are run
again ever after (tests/repo/test_failed_draws.py)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

KEPT = Path(os.environ.get("RMQ_FAILED_DRAWS") or Path(__file__).resolve().parents[1] / "failed_draws.txt")
# So many tests do not fail in one run by what they drew: there it is the code, and nothing is kept.
MOST = 3


class Draw(NamedTuple):
    """Attributes:
    seed: RMQ_TEST_SEED of the run.
    test: as pytest names it.
    """

    seed: str
    test: str

    def again(self) -> str:
        """The command that runs it once more."""
        return f"RMQ_TEST_SEED={self.seed} .venv/bin/python -m pytest '{self.test}'"


def kept(path: Path = KEPT) -> list[Draw]:
    """Those that were written down."""
    lines = [line.partition("#")[0].strip().split(maxsplit=1) for line in path.read_text().splitlines()]
    return [Draw(*line) for line in lines if line]


def keep(draws: list[Draw], path: Path = KEPT) -> None:
    """Write down what is new, unless it is too much to be due to draws."""
    new = [draw for draw in dict.fromkeys(draws) if draw not in kept(path)]
    if len(draws) <= MOST:
        with path.open("a") as out:
            out.writelines(f"{draw.seed} {draw.test}\n" for draw in new)
