"""What a walk along queues adds up is what a plain count of the same units gives."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from native_io import Tiles, Tiling, fingerprint

UNIT = struct.Struct(">qiq")
BATCH_UNIT = struct.Struct(">qiqqqhii")
LOST_SIZE = 9  # of a unit that stands for a lost message
Unit = tuple[int, int]  # physical offset, size


def random_units(rng: random.Random) -> list[Unit]:
    """Ascending, with now and then one that is not used, PRE_BLANK, of a lost message, in the wrong order or noise."""
    units, at = [], rng.randrange(50)
    for _ in range(rng.randrange(40)):
        at += rng.choice((0, 0, 1, 60))
        units.append((at, rng.randrange(1, 30)))
        at += units[-1][1]
        if rng.random() < 0.03:
            units.append(rng.choice([(0, 0), (-5, 7), (3, 9), (at, -1), ((1 << 63) - 5, 9), (0, 0x7FFFFFFF)]))
    return [(0, 0x7FFFFFFF)] * rng.choice((0, 0, 3)) + units


def taken(units: list[Unit], stretches: list[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    """(stretch, physical offset, size, number) of the units that count."""
    found, end = [], 0
    for number, (begin, size) in enumerate(units):
        if size <= 0 or begin < 0 or begin + size >= 1 << 63:
            break
        if (begin, size) == (0, 0x7FFFFFFF) or size == LOST_SIZE:
            continue
        if begin < end or begin >= stretches[-1][1]:
            break
        end = begin + size
        found += [(at, begin, size, number) for at, (start, stop) in enumerate(stretches) if start <= begin < stop]
    return found


@pytest.mark.parametrize("unit_size", [20, 46])
def test_random_queues(unit_size: int, rng: random.Random) -> None:
    followed = 0
    for _ in range(200):
        cuts = sorted(rng.sample(range(1500), 2 * rng.randrange(1, 5)))
        stretches = list(zip(cuts[::2], cuts[1::2], strict=True))
        starts, stops = (np.array(values, np.int64) for values in zip(*stretches, strict=True))
        segments = starts // 700 * 700
        expected = Tiles(*np.zeros((len(Tiles._fields), len(stretches)), np.int64))
        tiling = Tiling(starts, stops, segments)
        for _ in range(rng.randrange(1, 6)):
            units, first, asked = random_units(rng), rng.randrange(9), rng.random() < 0.5
            pack = UNIT.pack if unit_size == 20 else lambda *of: BATCH_UNIT.pack(*of, 7, of[0] // 2, 1, -1, 0)
            data = b"".join(pack(begin, size, 5) for begin, size in units)
            tiling.begin(first, unit_size=unit_size, asked=asked)
            at, goes_on = 0, True
            while at < len(data) and goes_on:
                count = rng.randrange(1, 9) * unit_size
                goes_on = tiling.add(
                    data[at : at + count] + (b"x" * rng.randrange(9) if at + count < len(data) else b"")
                )
                at += count
            mine = taken(units, stretches)
            ends = [
                (begin, size, first + number if unit_size == 20 else begin // 2)
                for _, begin, size, number in ((mine[0], mine[-1])[: len(mine)] if mine else ())
            ]
            assert tiling.ends == ends
            assert tiling.units == (len(mine), sum(size for _, _, size, _ in mine))
            for stretch, begin, size, _ in mine:
                one, other = fingerprint(np.array([begin])), fingerprint(np.array([begin + size]))
                added = {"open_ends": other - one, "counts": 1}
                if asked:
                    added |= {"asked_counts": 1, "asked_prints": one, "asked_bytes": size}
                for name, value in added.items():
                    sums = getattr(expected, name)
                    sums[stretch] = (int(sums[stretch]) + value + (1 << 63)) % (1 << 64) - (1 << 63)
                greatest = {"furthest": begin + size, "latest": begin, "crossed": begin + size > stretches[stretch][1]}
                if segments[stretch] < max(segments[at] for at, *_ in mine):
                    greatest["followed"] = begin + size
                    followed += 1
                for name, value in greatest.items():
                    most = getattr(expected, name)
                    most[stretch] = max(most[stretch], value)
        found = tiling.tiles
        assert (found.followed <= found.furthest).all()
        # Of a queue only the last unit in each segment is looked at, so only a segment's greatest counts.
        for segment in set(segments.tolist()):
            in_it = segments == segment
            assert found.followed[in_it].max() == expected.followed[in_it].max(), (stretches, found, expected)
        found.followed[:] = expected.followed
        assert (np.array(found) == np.array(expected)).all(), (stretches, found, expected)
    assert followed > 100


def test_fingerprints_add_up(rng: random.Random) -> None:
    offsets = np.array([rng.randrange(1 << 62) for _ in range(50)], np.int64)
    each = sum(fingerprint(offsets[i : i + 1]) for i in range(50))
    assert (fingerprint(offsets) - each) % (1 << 64) == 0
    assert fingerprint(offsets[::-1].copy()) == fingerprint(offsets)
    assert fingerprint(offsets[:0]) == 0


def test_wrong_arguments() -> None:
    numbers = np.zeros(2, np.int64)
    for stops, segments in ((numbers[:1], numbers), (numbers, numbers[:1])):
        with pytest.raises(ValueError, match="need as many stops"):
            Tiling(numbers, stops, segments)
    with pytest.raises(ValueError, match="need as many headers"):
        Tiling(numbers, numbers, numbers, numbers[:1])
    tiling = Tiling(numbers, numbers, numbers)
    with pytest.raises(ValueError, match="no queue was begun"):
        tiling.add(bytes(20))
    with pytest.raises(ValueError, match="there is none"):
        tiling.begin(0, unit_size=21, asked=False)
    assert tiling.ends == []
