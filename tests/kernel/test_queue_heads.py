"""The first units of many queues, read in one call, are those in each queue's one file."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest

from native_io import find_queue_files, list_queue_ids, read_queue_heads

NAME = "{:020d}".format


def _paths(some: list[Path]) -> bytes:
    return b"".join(os.fsencode(each) + b"\0" for each in some)


def _read(
    some: list[Path], share: int, starts: list[int] | None = None
) -> tuple[list[tuple[int, ...]], list[bytes], tuple[int, int]]:
    """Of directories; of files where they begin somewhere."""
    heads = np.full((len(some), 6), 77, np.int64)
    buffer = bytearray(b"\xee" * (share * len(some)))
    cost = read_queue_heads(_paths(some), np.array(starts or [-1] * len(some), np.int64), heads, buffer)
    shares = [bytes(buffer[at * share : (at + 1) * share]) for at in range(len(some))]
    return [tuple(row) for row in heads.tolist()], shares, cost


def _found(directories: list[Path]) -> list[list[int]]:
    found = np.full((len(directories), 3), 77, np.int64)
    find_queue_files(_paths(directories), found)
    rows: list[list[int]] = found.tolist()
    return rows


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
    assert _found(directories) == [[-1, 0, 0] if one is None else list(one[:3]) for one in expected]
    starts = [-1 if one is None else one[0] for one in expected]
    paths = [path if start < 0 else path / NAME(start) for path, start in zip(directories, starts, strict=True)]
    assert _read(paths, share, starts) == (found, shares, (nbytes, requests))


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
    assert _found([*sorted(tmp_path.iterdir()), tmp_path / "gone"]) == [[-1, 0, 0]] * 7
    names = [tmp_path / name / NAME(0) for name in ("empty", "fifo", "directory", "link")]
    found, shares, cost = _read(names, 40, [0] * 4)
    assert [head[3:] for head in found] == [(-1, 0, 0)] * 4
    assert (shares, cost) == ([bytes(40)] * 4, (0, 0))


def test_queue_ids(tmp_path: Path, rng: random.Random) -> None:
    """Whatever room there is, they are the names that a broker gives."""
    numbers = (0, 1, 9, 10, (1 << 31) - 1)
    others = ("00", "01", "-1", "1x", str(1 << 31), str(1 << 40), "9" * 40, "x", "\u0661")
    expected = []
    for topic in range(40):
        some = {*rng.sample(numbers, rng.randrange(5)), *(rng.randrange(1 << 31) for _ in range(rng.choice((0, 60))))}
        for name in (*map(str, some), *rng.sample(others, 3)):
            (tmp_path / f"t{topic:02d}" / name).mkdir(parents=True)
        expected.append(sorted(some))
    (tmp_path / "t40").touch()
    paths, found, at = [tmp_path / f"t{topic:02d}" for topic in range(42)], [], 0
    while at < len(paths):
        counts, ids = np.zeros(len(paths) - at, np.int64), np.zeros(rng.choice((70, 100, 5000)), np.int32)
        listed, start = list_queue_ids(_paths(paths[at:]), counts, ids), 0
        assert listed > 0
        for count in counts[:listed].tolist():
            found.append(sorted(ids[start : start + count].tolist()) if count >= 0 else None)
            start += max(0, count)
        at += listed
    assert found == [*expected, None, None]
    assert list_queue_ids(b"", np.zeros(0, np.int64), np.zeros(1, np.int32)) == 0


def test_wrong_arguments() -> None:
    for paths, count, room in ((b"a\0", 2, 1), (b"a", 1, 1), (b"a\0", 1, 0)):
        with pytest.raises(ValueError, match="as many paths"):
            list_queue_ids(paths, np.zeros(count, np.int64), np.zeros(room, np.int32))
    for paths, rows, columns, size in ((b"a\0", 2, 6, 80), (b"a", 1, 6, 80), (b"a\0", 1, 5, 80), (b"a\0b\0", 2, 6, 1)):
        with pytest.raises(ValueError, match=r"as many starts|has no share"):
            read_queue_heads(paths, np.zeros(rows, np.int64), np.zeros((rows, columns), np.int64), bytearray(size))
    with pytest.raises(ValueError, match="as many starts"):
        read_queue_heads(b"a\0", np.zeros(2, np.int64), np.zeros((1, 6), np.int64), bytearray(80))
    for paths, shape in ((b"a\0", (2, 3)), (b"a", (1, 3)), (b"a\0", (1, 2))):
        with pytest.raises(ValueError, match="as many paths"):
            find_queue_files(paths, np.zeros(shape, np.int64))
