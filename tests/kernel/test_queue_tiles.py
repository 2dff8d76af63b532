"""Queues that are tiled in their files give what their units give when they are handed over one by one, and those that
are not of one short or sound file are left to others, with nothing added."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from oracle import reference

from native_io import Tiling, tile_queues

UNIT_SIZE = reference.QUEUE_UNIT_SIZE
FIRST = 100 * UNIT_SIZE  # bytes that are read first
NAME = "{:020d}".format
MOST = 1 << 62
STARTS = np.array([0, 20_000, 60_000], np.int64)
STOPS = np.array([20_000, 50_000, 400_000], np.int64)
SEGMENTS = np.array([0, 0, 60_000], np.int64)
Known = tuple[tuple[int, int], list[tuple[int, int, int]]] | None


def _tiling() -> Tiling:
    return Tiling(STARTS, STOPS, SEGMENTS, np.array([0, 48, 0], np.int64))


def _tiled(
    tiling: Tiling, directories: list[Path], asked: list[bool], most: int = MOST, room: int = FIRST
) -> tuple[list[Known], int, int]:
    found: npt.NDArray[np.int64] = np.full((len(directories), 9), 77, np.int64)
    paths = b"".join(os.fsencode(directory) + b"\0" for directory in directories)
    cost = tile_queues(tiling, paths, np.array(asked, np.uint8), found, bytearray(room), most=most)
    known: list[Known] = []
    for is_known, count, nbytes, *ends in found.tolist():
        first, last = tuple(ends[:3]), tuple(ends[3:])
        both = [] if first[0] < 0 else [first, last][first == last :]
        known.append(((count, nbytes), both) if is_known else None)
    return known, *cost


def _units(rng: random.Random, count: int) -> bytes:
    """Units that mostly ascend, and now and then one that ends the queue, or is passed over."""
    at, units = rng.randrange(3000), []
    for number in range(count):
        units.append(reference.encode_queue_unit(at, 90, number))
        at += 90 * rng.choice((1, 1, 1, 7))
        if rng.random() < 0.0007:
            odd = rng.choice([(0, 0), (0, 0x7FFFFFFF), (at, 9), (5, 9), (at, -1), ((1 << 63) - 5, 9)])
            units.append(reference.encode_queue_unit(*odd, number))
    return b"".join(units)


def _in_file(root: Path, number: int, start: int, units: bytes, size: int) -> Path:
    """A queue's directory with one file, whose end is a hole."""
    directory = root / str(number)
    directory.mkdir()
    with (directory / NAME(start * UNIT_SIZE)).open("wb") as file:
        file.write(units)
        file.truncate(max(size, len(units)))
    return directory


def test_random_queues(tmp_path: Path, rng: random.Random) -> None:
    ours, theirs = _tiling(), _tiling()
    directories, asked, expected = [], [], []
    for number in range(200):
        units, start = _units(rng, rng.choice((0, 1, 99, 100, 101, 250, 2000))), rng.choice((0, 0, 7, 300_000))
        directories.append(_in_file(tmp_path, number, start, units, rng.choice((0, 0, 90_007))))
        asked.append(rng.random() < 0.5)
        theirs.begin(start, unit_size=UNIT_SIZE, asked=asked[-1])
        theirs.add((directories[-1] / NAME(start * UNIT_SIZE)).read_bytes())
        expected.append((theirs.units, theirs.ends))
    found, nbytes, requests = _tiled(ours, directories, asked, room=rng.choice((FIRST, FIRST + 7, 5000, 1 << 18)))
    assert found == expected
    assert (np.array(ours.tiles) == np.array(theirs.tiles)).all()
    assert sum(known is not None and known[0][0] > 500 for known in found) > 5
    allocated = sum(512 * path.stat().st_blocks for each in directories for path in each.iterdir())
    assert 0 < nbytes < allocated + 200 * FIRST
    assert 0 < requests < 9000


def test_no_more_than_is_wanted(tmp_path: Path) -> None:
    """Where a queue may have more units than `most` bytes nothing is added, also where its zeros take space."""
    units = b"".join(reference.encode_queue_unit(90 * number, 90, number) for number in range(3000))
    zeros = bytes(60_000)
    for number, (data, is_known) in enumerate(
        [(units, False), (units[:FIRST] + zeros, False), (units[: FIRST - 20] + zeros, True), (units[:16_000], True)]
    ):
        tiling = _tiling()
        found, nbytes, _ = _tiled(tiling, [_in_file(tmp_path, number, 0, data, 0)], [True], most=16_384)
        assert (found[0] is not None) == is_known
        assert tiling.tiles.counts.any() == is_known
        assert nbytes <= 16_384 + 4096


def test_what_else_there_may_be(tmp_path: Path) -> None:
    """It is left to others, and no such thing is opened; the queues beside it are tiled."""
    one = b"".join(reference.encode_queue_unit(90 * number, 90, number) for number in range(3))
    sound = _in_file(tmp_path, 0, 0, one, 0)
    several = _in_file(tmp_path, 1, 0, one, 0)
    (several / NAME(60)).write_bytes(one)
    made = [several]
    for name in ("no file", "a FIFO", "a directory", "a device"):
        made.append(tmp_path / name)
        made[-1].mkdir()
    os.mkfifo(made[2] / NAME(0))
    (made[3] / NAME(0)).mkdir()
    (made[4] / NAME(0)).symlink_to("/dev/zero")
    made += [tmp_path / "gone", sound / NAME(0)]
    tiling = _tiling()
    found, *_ = _tiled(tiling, [*made, sound], [True] * (len(made) + 1))
    assert found == [None] * len(made) + [((3, 270), [(0, 90, 0), (180, 90, 2)])]
    assert tiling.tiles.counts.tolist() == [3, 0, 0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"paths": b"a\0"},
        {"paths": b"a\0b"},
        {"asked": np.zeros(1, np.uint8)},
        {"found": np.zeros((2, 8), np.int64)},
        {"buffer": bytearray(FIRST - 1)},
    ],
)
def test_wrong_arguments(wrong: dict[str, Any]) -> None:
    right = {
        "paths": b"a\0b\0",
        "asked": np.zeros(2, np.uint8),
        "found": np.zeros((2, 9), np.int64),
        "buffer": bytearray(FIRST),
    }
    with pytest.raises(ValueError, match=r"need as many paths|too small"):
        tile_queues(_tiling(), **{**right, **wrong}, most=MOST)
