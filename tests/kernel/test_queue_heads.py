"""The first units of many queues, read in one call, are those in each queue's one file."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest

from native_io import read_queue_heads

NAME = "{:020d}".format


def _read(directories: list[Path], share: int) -> tuple[list[tuple[int, ...]], list[bytes], tuple[int, int]]:
    heads = np.full((len(directories), 6), 77, np.int64)
    buffer = bytearray(b"\xee" * (share * len(directories)))
    cost = read_queue_heads(b"".join(os.fsencode(each) + b"\0" for each in directories), heads, buffer)
    shares = [bytes(buffer[at * share : (at + 1) * share]) for at in range(len(directories))]
    return [tuple(row) for row in heads.tolist()], shares, cost


def _has_data(path: Path, start: int) -> bool:
    with path.open("rb") as file:
        try:
            return os.lseek(file.fileno(), start, os.SEEK_DATA) >= start
        except OSError:
            return False


@pytest.mark.parametrize("share", [2560, 6000])
def test_random_queues(tmp_path: Path, rng: random.Random, share: int) -> None:
    """A hole behind the first page is not read."""
    directories, expected, least = [], [], 0
    for number in range(200):
        directory = tmp_path / str(number)
        directory.mkdir()
        data, size = rng.randbytes(rng.choice((0, 7, 20, 2559, 2560, 2561, 4096, 4100, 9000))), 0
        start = 20 * rng.choice((0, 300_000, 7))
        with (directory / NAME(start)).open("wb") as file:
            file.write(data)
            file.truncate(size := len(data) + rng.choice((0, 0, 900, 5000)))
        status = (directory / NAME(start)).stat()
        if others := rng.choice((0, 0, 1, 2)):  # a name that no broker gives; another file
            (directory / ("x" if others == 1 else NAME(start + 40))).write_bytes(b"other")
        directories.append(directory)
        is_one = others != 2
        used = len(data[:share].rstrip(b"\0"))
        is_all = size <= share or not _has_data(directory / NAME(start), share)
        row = (start, size, 512 * status.st_blocks, min(size, share), used, int(is_all))
        expected.append((*row, data) if is_one else None)
        least += min(size, share, share if _has_data(directory / NAME(start), 4096) else 4096) if is_one else 0
    found, shares, (nbytes, requests) = _read(directories, share)
    for head, data, one in zip(found, shares, expected, strict=True):
        if one is None:
            assert head[3] == -1
        else:
            assert head == one[:6]
            assert data == one[6][:share].ljust(share, b"\0")
    assert nbytes == least
    assert requests <= 200 * (1 + (share > 4096))


def test_what_else_there_may_be(tmp_path: Path) -> None:
    """Nothing is said of it, and no such thing is opened."""
    for name in ("empty", "fifo", "directory", "link", "long"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "fifo" / NAME(0))
    (tmp_path / "directory" / NAME(0)).mkdir()
    (tmp_path / "link" / NAME(0)).symlink_to(tmp_path / "gone")
    (tmp_path / "long" / (NAME(0) + "0")).write_bytes(b"x")
    (tmp_path / "file").write_bytes(b"x")
    found, shares, cost = _read([*sorted(tmp_path.iterdir()), tmp_path / "gone"], 40)
    assert [head[3:] for head in found] == [(-1, 0, 0)] * 7
    assert shares == [bytes(40)] * 7
    assert cost == (0, 0)


def test_wrong_arguments() -> None:
    for paths, rows, columns, size in ((b"a\0", 2, 6, 80), (b"a", 1, 6, 80), (b"a\0", 1, 5, 80), (b"a\0b\0", 2, 6, 1)):
        with pytest.raises(ValueError, match=r"as many paths|has no share"):
            read_queue_heads(paths, np.zeros((rows, columns), np.int64), bytearray(size))
