"""Both ends of many queues, and units by number, found in one call, are those in each queue's one file."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest

from native_io import read_queue_ends

NAME = "{:020d}".format
UNIT, PAGE, WIDTH = 20, 4096, 128
Ends = tuple[int, int, bool]  # numbers of the first and the last unit, and whether the first units show all


def _read(
    directories: list[Path], asked: list[list[int]], begin: int = 0
) -> tuple[list[list[int]], list[bytes], list[tuple[int, int]], tuple[int, int]]:
    """Rows of ends, both units of each, places, and the cost."""
    ends, units = np.full((len(directories), 7), 77, np.int64), bytearray(b"\xee" * (2 * UNIT * len(directories)))
    numbers = np.array([number for each in asked for number in each], np.int64)
    places = np.full((2, len(numbers)), 77, np.int64)
    paths = b"".join(os.fsencode(each) + b"\0" for each in directories)
    starts = np.cumsum([0, *map(len, asked)])
    cost = read_queue_ends(paths, ends, units, starts=starts, numbers=numbers, places=places, begin=begin, width=WIDTH)
    both = [bytes(units[at : at + 2 * UNIT]) for at in range(0, len(units), 2 * UNIT)]
    return ends.tolist(), both, [(at, size) for at, size in places.T.tolist()], cost


def _unit(data: bytes, index: int) -> bytes:
    return data[index * UNIT : (index + 1) * UNIT]


def _place(unit: bytes) -> tuple[int, int]:
    """Position and size, as the broker reads them; (-1, -1) for what stands for no message."""
    position, size = (int.from_bytes(unit[a:b], "big", signed=True) for a, b in ((0, 8), (8, 12)))
    is_message = len(unit) == UNIT and size > 0 and position >= 0 and (position, size) != (0, (1 << 31) - 1)
    return (position, size) if is_message and size != 9 else (-1, -1)


def _is_used(unit: bytes) -> bool:
    return int.from_bytes(unit[8:12], "big", signed=True) > 0 and unit[0] < 128


def _expected(data: bytes, allocated: int, begin: int) -> Ends:
    """By all bytes of a file: the units behind the first ones count unless those end in zeros that take no page of
    their own."""
    count = len(data) // UNIT
    shown = min(WIDTH, count)
    first = next((at for at in range(shown) if _place(_unit(data, at))[0] >= max(0, begin)), -1)
    used = [at for at in range(count) if _is_used(_unit(data, at))]
    last = max((at for at in used if at < shown), default=-1)
    has_space = shown * UNIT + PAGE < allocated < len(data)
    if shown < count and (last in (-1, shown - 1) or has_space):
        last = max(used, default=-1)
    return first, last, last < shown


@pytest.mark.parametrize("units", [(0, 1, 3, 127), (128, 129, 150, 203), (204, 205, 206, 409, 410), (3000,)])
def test_random_queues(tmp_path: Path, rng: random.Random, units: tuple[int, ...]) -> None:
    """Files are a broker's: full size, a hole behind the last page with a unit."""
    directories, asked, expected, places = [], [], [], []
    begin = rng.choice((0, 500))
    for number in range(60):
        directory = tmp_path / str(number)
        directory.mkdir()
        data = b"".join(
            rng.choice((0, 100 * at)).to_bytes(8, "big") + size.to_bytes(4, "big") + rng.randbytes(8)
            for at in range(rng.choice(units))
            for size in [rng.choice((100, 100, 100, 100, 9, (1 << 31) - 1))]
        )
        if rng.random() < 0.3:
            data = data[: rng.randrange(len(data) + 1)]
        start = UNIT * rng.choice((0, 300_000))
        path = directory / NAME(start)
        with path.open("wb") as file:
            file.write(data)
            file.truncate(len(data) + rng.choice((0, 7, 900, 100_000)))
        whole, first = path.read_bytes(), start // UNIT
        some = [
            first + rng.choice((-1, 0, 100, 204, 205, 2000, len(whole) // UNIT, 1 << 61)) for _ in range(number % 4)
        ]
        if number % 7 == 0:
            (directory / "x").write_bytes(b"no broker's name")
        directories.append(directory)
        asked.append(some)
        places += [_place(_unit(whole, at - first)) if at >= first else (-1, -1) for at in some]
        expected.append((start, whole, 512 * path.stat().st_blocks))
    found, both, at, (_, requests) = _read(directories, asked, begin)
    for row, (start, whole, allocated), found_units in zip(found, expected, both, strict=True):
        first, last, is_all = _expected(whole, allocated, begin)
        numbers = [-1 if index < 0 else start // UNIT + index for index in (first, last)]
        if row[6] or max(units) < 205:
            assert row == [start, len(whole), allocated, *numbers, is_all, 1]
            assert found_units == b"".join(bytes(UNIT) if i < 0 else _unit(whole, i) for i in (first, last))
            continue
        assert last < 0 or len(whole) <= PAGE or not whole[-UNIT * 200 :].strip(b"\0")  # zeros as data, to the end
    assert sum(row[6] for row in found) > 30
    assert [
        each for each, row in zip(at, np.repeat([row[6] for row in found], [*map(len, asked)]), strict=True) if row
    ] == [
        each for each, row in zip(places, np.repeat([row[6] for row in found], [*map(len, asked)]), strict=True) if row
    ]
    assert requests <= 3 * len(directories) + len(places)


def test_where_the_end_cannot_be_told(tmp_path: Path) -> None:
    """Holes between data, zeros that were written; but a file without data has no unit in use, and that is known."""
    unit = (100).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8)
    for name, pages in (("holes", (0, 50)), ("zeros", (0, 1, 2)), ("nothing", ())):
        (tmp_path / name).mkdir()
        with (tmp_path / name / NAME(0)).open("wb") as file:
            for page in pages:
                file.seek(page * PAGE)
                file.write((unit * 204)[:PAGE].ljust(PAGE, b"\0") if name == "holes" or page == 0 else bytes(2 * PAGE))
            file.truncate(1 << 20)
    found, _, _, _ = _read(sorted(tmp_path.iterdir()), [[]] * 3)
    assert [row[6] for row in found] == [0, 1, 0]
    assert found[1][3:6] == [-1, -1, 1]


def test_what_else_there_may_be(tmp_path: Path) -> None:
    """Nothing is said of it, and no such thing is opened."""
    for name in ("empty", "fifo", "directory", "link", "long", "two"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "fifo" / NAME(0))
    (tmp_path / "directory" / NAME(0)).mkdir()
    (tmp_path / "link" / NAME(0)).symlink_to(tmp_path / "gone")
    (tmp_path / "long" / (NAME(0) + "0")).write_bytes(b"x")
    for start in (0, 40):
        (tmp_path / "two" / NAME(start)).write_bytes(b"\1" * 40)
    (tmp_path / "file").write_bytes(b"x")
    directories = [*sorted(tmp_path.iterdir()), tmp_path / "gone", Path("")]
    found, both, places, cost = _read(directories, [[0, 1]] * len(directories))
    assert {(*row[3:5], row[6]) for row in found} == {(-1, -1, 0)}
    assert set(both) == {bytes(2 * UNIT)}
    assert set(places) == {(-1, -1)}
    assert cost == (0, 0)


@pytest.mark.parametrize(
    ("paths", "rows", "columns", "units", "starts", "places", "width"),
    [
        (b"a\0", 2, 7, 80, [0, 0, 0], 0, 128),
        (b"a", 1, 7, 40, [0, 0], 0, 128),
        (b"a\0", 1, 6, 40, [0, 0], 0, 128),
        (b"a\0", 1, 7, 20, [0, 0], 0, 128),
        (b"a\0", 1, 7, 40, [0], 0, 128),
        (b"a\0", 1, 7, 40, [0, 2], 1, 128),
        (b"a\0b\0", 2, 7, 80, [0, 2, 1], 1, 128),
        (b"a\0", 1, 7, 40, [0, 0], 1, 128),
        (b"a\0", 1, 7, 40, [0, 0], 0, 205),
        (b"a\0", 1, 7, 40, [0, 0], 0, 0),
    ],
)
def test_wrong_arguments(
    paths: bytes, rows: int, columns: int, units: int, starts: list[int], places: int, width: int
) -> None:
    numbers = np.zeros(starts[-1], np.int64)
    with pytest.raises(ValueError, match=r"need|do not ascend|width must be"):
        read_queue_ends(
            paths,
            np.zeros((rows, columns), np.int64),
            bytearray(units),
            starts=np.array(starts, np.int64),
            numbers=numbers,
            places=np.zeros((2, places), np.int64),
            begin=0,
            width=width,
        )
