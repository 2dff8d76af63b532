"""One trial: a seed makes a store, and one comparison holds the package against its truth."""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support import memory

from machine import (
    compare_check,
    compare_copies,
    compare_faces,
    compare_ours,
    compare_rows,
    compare_streams,
    compare_tables,
    compare_writes,
)
from machine.expected import Truth, truth_of
from machine.past import Difference, Past
from machine.stores import make

Step = Callable[[Past, Truth, random.Random], None]
COMPARISONS: dict[str, tuple[Step, ...]] = {
    "rows": compare_rows.STEPS,
    "batches": compare_rows.STEPS,
    "tables": compare_tables.STEPS,
    "writes": compare_writes.STEPS,
    "ours": compare_ours.STEPS,
    "check": compare_check.STEPS,
    "copies": compare_copies.STEPS,
    "streams": compare_streams.STEPS,
    "faces": compare_faces.STEPS,
}


@contextmanager
def store_of(seed: int, batches: bool = False) -> Iterator[Past]:
    """The store of a seed, in memory where there is such."""
    home = tempfile.mkdtemp(prefix="rmq-machine-", dir=memory.place())
    try:
        yield make(Path(home) / "store", seed, batches)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def try_seed(comparison: str, seed: int) -> list[Difference]:
    """What the package says otherwise than the truth; an exception that is none of ours is a difference as well. All
    steps of a comparison are gone through, each with randomness of its own."""
    found: list[Difference] = []
    logging.disable(logging.ERROR)
    try:
        with store_of(seed, batches=comparison == "batches") as past:
            truth = truth_of(past)
            for number, step in enumerate(COMPARISONS[comparison]):
                try:
                    step(past, truth, random.Random(f"{seed} {comparison} {number}"))
                except Difference as why:
                    found.append(why)
                except Exception as why:
                    found.append(
                        Difference(f"{comparison}: {type(why).__name__}", why).with_traceback(why.__traceback__)
                    )
            for each in found:
                each.add_note(past.told())
    finally:
        logging.disable(logging.NOTSET)
    return found
