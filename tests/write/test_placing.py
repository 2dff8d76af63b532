"""Where messages go in a log: no message and no blank reaches over a segment's end, and no segment ends too early."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from oracle import reference
from support.writing import write

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.write.build.placing import Rolling

BLANK = 8
SEGMENT = 1000


def expected(sizes: list[int], begins: set[int], start: int) -> list[int]:
    """The same said message by message."""
    found, at = [], start
    for number, size in enumerate(sizes):
        is_full = at % SEGMENT + size + BLANK > SEGMENT
        if at % SEGMENT and (is_full or number in begins):
            at += SEGMENT - at % SEGMENT
        found.append(at)
        at += size
    return found


@pytest.mark.parametrize("_", range(30))
def test_message_by_message(rng: random.Random, _: int) -> None:
    sizes = [rng.choice((rng.randrange(91, 300), rng.randrange(91, SEGMENT - BLANK + 1))) for _ in range(300)]
    start = rng.choice((0, SEGMENT, rng.randrange(5 * SEGMENT), SEGMENT - BLANK))
    cuts = sorted({0, len(sizes), *rng.sample(range(len(sizes)), 20)})
    begins = set(rng.sample(cuts[:-1], 8))
    rolling, positions, at = Rolling("store", start, SEGMENT), [], start
    for first, stop in itertools.pairwise(cuts):
        places = rolling.take(np.array(sizes[first:stop], np.int32), first in begins)
        positions += places.positions.tolist()
        assert sum(run.nbytes for run in places.runs) == sum(sizes[first:stop])
        for run in places.runs:
            assert run.position == at or (run.position % SEGMENT == 0 and run.position > at)
            at = run.position + run.nbytes
            assert run.position // SEGMENT == (at + BLANK - 1) // SEGMENT
    assert positions == expected(sizes, begins, start)


def test_larger_than_a_segment() -> None:
    rolling = Rolling("store", 10, SEGMENT)
    with pytest.raises(RmqStoreError, match="a message does not fit into a segment of 1000 bytes"):
        rolling.take(np.array([91, SEGMENT - BLANK + 1]), False)


def test_the_log_is_where_it_was_said(tmp_path: Path, rng: random.Random) -> None:
    """What the rule says of the sizes of a store's messages is where they are in it."""
    root = tmp_path / "store"
    rows = [{"topic": "T", "queueId": 0, "body": rng.randbytes(rng.randrange(700))} for _ in range(200)]
    write(root, rows[:120], rows[120:], sizes=Sizes(segment=SEGMENT, queue_file=200, slots=20, items=50))
    units = [(at, len(data)) for at, data in reference.read_units(root)]
    places = Rolling("store", 0, SEGMENT).take(np.array([size for _, size in units]), False)
    assert places.positions.tolist() == [at for at, _ in units]
