"""A walk along a queue takes the units that a plain loop over them takes."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from oracle import reference

from native_io import QueueWalk

UNIT = struct.Struct(">qiq")
Taken = tuple[int, int, int]  # physical offset, size, queue offset


def random_units(rng: random.Random, unit_size: int) -> bytes:
    """Ascending, with now and then one that is not used, PRE_BLANK, of a lost message, in the wrong order or noise."""
    if rng.random() < 0.1:
        return rng.randbytes(rng.randrange(5 * unit_size))
    at, units = rng.randrange(50), [(0, 0x7FFFFFFF)] * rng.choice((0, 0, 3))
    for _ in range(rng.randrange(40)):
        at += rng.choice((0, 0, 1, 60))
        units.append((at, rng.randrange(1, 30)))
        at += units[-1][1]
        if rng.random() < 0.03:
            odd = [(0, 0), (-5, 7), (3, 9), (at, -1), ((1 << 63) - 5, 9), ((1 << 63) - 9, 9), (0, 0x7FFFFFFF)]
            units.append(rng.choice(odd))

    def pack(position: int, size: int, code: int) -> bytes:
        if unit_size == 20:
            return UNIT.pack(position, size, code)
        is_odd = rng.random() < 0.01
        base, count = rng.choice([(-1, 1), (3, 0), (3, -2), ((1 << 63) - 1, 1)]) if is_odd else (position // 2, 1)
        return reference.encode_batch_unit(position, size, code, 7, base, count)

    return b"".join(pack(position, size, 5) for position, size in units)


def expected(data: bytes, unit_size: int, first: int, start: int, stop: int) -> tuple[list[Taken], int]:
    """What is to be taken, and how many units come before the one that ends the walk."""
    found: list[Taken] = []
    end = number = 0
    for number in range(len(data) // unit_size):
        unit = reference.read_queue_unit(data[number * unit_size :][:unit_size], first + number)
        if unit.kind == "nothing":
            return found, number
        if unit.kind in ("pre-blank", "lost"):
            continue
        if unit.physical_offset < end or unit.physical_offset >= stop:
            return found, number
        end = unit.physical_offset + unit.size
        if unit.physical_offset >= start:
            found.append((unit.physical_offset, unit.size, unit.queue_offset))
    return found, len(data) // unit_size


@pytest.mark.parametrize("unit_size", [20, 46])
def test_random_queues(unit_size: int, rng: random.Random) -> None:
    walk, some = QueueWalk(), 0
    for _ in range(600):
        data, first = random_units(rng, unit_size), rng.randrange(9)
        start, stop = sorted(rng.choice((0, 1 << 62, rng.randrange(900))) for _ in range(2))
        capacity = rng.randrange(1, 30)
        positions, offsets, sizes = (
            np.zeros(capacity, np.int64),
            np.zeros(capacity, np.int64),
            np.zeros(capacity, np.int32),
        )
        walk.fill(positions, sizes, offsets)
        walk.begin(first, unit_size=unit_size, start=start, stop=stop)
        taken: list[Taken] = []
        done = 0
        while True:
            part = data[done * unit_size :][: rng.randrange(1, 9) * unit_size + rng.randrange(9)]
            step = walk.take(part)
            done += step
            is_full, rows = walk.rows == capacity, walk.rows
            if is_full or step < len(part) // unit_size or len(part) < unit_size:
                taken += list(zip(positions.tolist(), sizes.tolist(), offsets.tolist(), strict=True))[:rows]
                if not is_full:
                    break
                walk.fill(positions, sizes, offsets)
        assert (taken, done) == expected(data, unit_size, first, start, stop)
        some += len(taken) > 0
    assert some > 100


def test_rows_are_dropped() -> None:
    walk, positions, sizes, offsets = QueueWalk(), np.zeros(4, np.int64), np.zeros(4, np.int32), np.zeros(4, np.int64)
    walk.fill(positions, sizes, offsets)
    walk.begin(5, unit_size=20, start=0, stop=1000)
    data = b"".join(UNIT.pack(100 * number, 100, 0) for number in range(5))
    assert walk.take(data[:60]) == 3
    walk.drop(2)
    assert walk.take(data[60:]) == 2
    assert (walk.rows, positions[:3].tolist(), offsets[:3].tolist()) == (3, [0, 300, 400], [5, 8, 9])
    for rows in (4, -1):
        with pytest.raises(ValueError, match="there are 3 rows"):
            walk.drop(rows)


def test_wrong_arguments() -> None:
    walk, longs, ints = QueueWalk(), np.zeros(2, np.int64), np.zeros(2, np.int32)
    with pytest.raises(ValueError, match="no queue was begun"):
        walk.take(bytes(20))
    for unit_size, number in ((21, 0), (20, -1), (20, 1 << 62)):
        with pytest.raises(ValueError, match=r"there is none|no unit has it"):
            walk.begin(number, unit_size=unit_size, start=0, stop=1)
    walk.begin(0, unit_size=20, start=0, stop=1)
    for wrong in ((longs, ints[:1], longs), (longs, ints, longs[:1]), (longs[:0], ints[:0], longs[:0])):
        with pytest.raises(ValueError, match="need as many"):
            walk.fill(*wrong)
    with pytest.raises(ValueError, match="nothing to fill"):
        walk.take(bytes(20))
