"""Parts of many files of queue units, read in one call, are those of each file."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest

from native_io import read_queue_parts

SHARE = 100


def _read(paths: list[Path], asked: list[list[int]], share: int = SHARE) -> tuple[list[int], list[bytes]]:
    """Sizes and shares."""
    starts = np.cumsum([0, *map(len, asked)])
    positions = np.array([at for each in asked for at in each], np.int64)
    sizes, buffer = np.full(len(positions), 77, np.int64), bytearray(b"\xee" * (share * len(positions)))
    names = b"".join(os.fsencode(path) + b"\0" for path in paths)
    nbytes, requests = read_queue_parts(names, starts, positions, sizes, buffer)
    assert nbytes == sizes[sizes > 0].sum()
    assert requests <= 2 * len(positions)
    shares = [bytes(buffer[at : at + share]) for at in range(0, len(buffer), share)]
    return sizes.tolist(), shares


def test_random_files(tmp_path: Path, rng: random.Random) -> None:
    paths, asked, expected = [], [], []
    for number in range(100):
        path = tmp_path / str(number)
        data = rng.randbytes(rng.randrange(1, 9000))
        with path.open("wb") as file:
            file.write(data)
            file.truncate(len(data) + rng.choice((0, 10, 40_000)))
        whole, size = path.read_bytes(), path.stat().st_size
        places = [rng.choice((-1, rng.randrange(size), size, size + 5, 1 << 62, -2)) for _ in range(rng.randrange(4))]
        for at in places:
            part = whole[at : at + SHARE] if at >= 0 else None
            expected.append((-1 if part is None else len(part), (part or b"").ljust(SHARE, b"\0")))
        paths.append(path)
        asked.append(places)
    assert [*zip(*_read(paths, asked), strict=True)] == expected


def test_what_else_there_may_be(tmp_path: Path) -> None:
    """Nothing is read of it, and no such thing is opened."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    paths = [*sorted(tmp_path.iterdir()), tmp_path / "gone", Path("/dev/zero")]
    assert _read(paths, [[0, -1]] * len(paths)) == ([-1] * 10, [bytes(SHARE)] * 10)


@pytest.mark.parametrize(
    ("paths", "starts", "positions", "sizes", "size"),
    [
        (b"a\0", [0, 1], 1, 2, 20),
        (b"a\0", [0, 2], 1, 1, 20),
        (b"a\0", [1, 1], 1, 1, 20),
        (b"a", [0, 1], 1, 1, 20),
        (b"a\0b", [0, 1], 1, 1, 20),
        (b"a\0b\0", [0, 1], 1, 1, 20),
        (b"a\0b\0c\0", [0, 2, 1, 2], 2, 2, 40),
        (b"a\0", [0, 2], 2, 2, 1),
        (b"", [], 0, 0, 20),
    ],
)
def test_wrong_arguments(paths: bytes, starts: list[int], positions: int, sizes: int, size: int) -> None:
    places, lengths = np.zeros(positions, np.int64), np.zeros(sizes, np.int64)
    with pytest.raises(ValueError, match=r"need|do not ascend|has no share"):
        read_queue_parts(paths, np.array(starts, np.int64), places, lengths, bytearray(size))
