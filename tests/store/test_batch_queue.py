"""Which unit of a BatchCQ has a queue offset: the search against all units looked at one by one."""

from __future__ import annotations

import bisect
import random
from pathlib import Path

import pytest

from rmqstore_spark.store.format.queue_block import BATCH_UNIT_SIZE, UNIT, batch_unit
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.batch_queue import BatchQueue
from rmqstore_spark.store.structures.queues import ConsumeQueues


def _queue(root: Path, rng: random.Random, count: int, per_file: int, first: int) -> tuple[BatchQueue, list[int]]:
    """A queue of so many batches, whose first `first` units are in files that are gone; and the batches' offsets."""
    units, offsets, at = [], [], rng.choice((0, 500))
    for number in range(count):
        size = rng.choice((1, 1, 10))
        units.append(batch_unit(UNIT.pack(1000 * (first + number), 900, 0), 1, at, size))
        offsets.append(at)
        at += size
    for start in range(0, max(count, 1), per_file):
        data = b"".join(units[start : start + per_file]).ljust(per_file * BATCH_UNIT_SIZE, b"\0")
        (root / f"{(first + start) * BATCH_UNIT_SIZE:020d}").write_bytes(data)
    return BatchQueue(str(root), "T", 0, Files()), offsets


@pytest.mark.parametrize("count", [0, 1, 100, 5000])
@pytest.mark.parametrize("per_file", [40, 10_000])
def test_the_unit_of_an_offset(tmp_path: Path, rng: random.Random, count: int, per_file: int) -> None:
    first = rng.choice((0, 3)) * per_file
    queue, offsets = _queue(tmp_path, rng, count, per_file, first)
    last = offsets[-1] if offsets else 0
    for wanted in [0, last, last + 20, *(rng.randrange(last + 2) for _ in range(60))]:
        expected = first + bisect.bisect_right(offsets, wanted) - 1
        number, block = queue.units_from(wanted)
        assert number == queue.number_with(wanted) == expected
        assert block.numbers.tolist() == list(range(max(expected, first), max(expected, first) + len(block)))
        assert block.queue_offsets.tolist() == offsets[max(expected, first) - first :][: len(block)]
        assert len(block) or not count


def test_the_units_of_a_name(tmp_path: Path) -> None:
    """Of a BatchCQ and a simple queue of the same name, one of them left over; a unit without messages has none."""

    def simple(*offsets: int) -> bytes:
        return b"".join(UNIT.pack(offset, 90 if offset else 0, 0) for offset in offsets).ljust(200, b"\0")

    batches = (5, 0, 2), (6, 2, 0), (7, 2, 3)  # position, first queue offset, messages
    units = [batch_unit(UNIT.pack(at, 900, 0), 1, first, count) for at, first, count in batches]
    places = {"consumequeue": simple(50, 60, 70, 80), "batchconsumequeue": b"".join(units)}
    for there in ("consumequeue",), ("batchconsumequeue",), tuple(places):
        root = tmp_path / "-".join(there)
        for name in there:
            (root / name / "T" / "0").mkdir(parents=True)
            (root / name / "T" / "0" / f"{0:020d}").write_bytes(places[name])
        queues = ConsumeQueues(str(root / "consumequeue"), Files(), [str(root / "batchconsumequeue")])
        for offset, (in_simple, in_batches) in enumerate([(50, 5), (60, 5), (70, 7), (80, 7), (None, 7), (None, None)]):
            expected = [in_simple] * ("consumequeue" in there) + [in_batches] * ("batchconsumequeue" in there)
            found = [unit.position for _, unit in queues.units_with("T", 0, offset)]
            assert found == [position for position in expected if position is not None], (there, offset)


def test_a_short_queue_is_read_at_once(tmp_path: Path, rng: random.Random) -> None:
    """To narrow the search down would take more requests than all of the units cost."""
    queue, offsets = _queue(tmp_path, rng, 700, 10_000, 0)
    assert queue.end == 700
    queue.files.requests = 0
    assert queue.number_with(offsets[600]) == 600
    assert queue.files.requests <= 2
