"""Many short queues read in one call give what stands in each, and leave to others those that are not short or
sound."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest
from oracle import reference

from native_io import read_short_queues

UNIT_SIZE = reference.QUEUE_UNIT_SIZE
FIRST = 100 * UNIT_SIZE  # bytes that are read first
NAME = "{:020d}".format
Found = tuple[int, bytes] | None


def _read(directories: list[Path], share: int) -> tuple[list[Found], int, int]:
    numbers, sizes = np.full((2, len(directories)), 77, np.int64)
    buffer = bytearray(b"\xee" * (share * len(directories)))
    paths = b"".join(os.fsencode(directory) + b"\0" for directory in directories)
    nbytes, requests = read_short_queues(paths, numbers, sizes, buffer)
    found: list[Found] = []
    for at, (number, size) in enumerate(zip(numbers.tolist(), sizes.tolist(), strict=True)):
        found.append(None if size < 0 else (number, bytes(buffer[at * share : at * share + size])))
    return found, nbytes, requests


def _units(count: int, used: int) -> bytes:
    """Units of which the first ones are used."""
    units = [reference.encode_queue_unit(100 * number, 90, number) for number in range(used)]
    return b"".join(units) + bytes((count - used) * UNIT_SIZE)


def _used(data: bytes) -> bytes:
    """The units before the first one that is not used."""
    sizes = [int.from_bytes(data[at + 8 : at + 12], "big") for at in range(0, len(data) - UNIT_SIZE + 1, UNIT_SIZE)]
    return data[: UNIT_SIZE * next((at for at, size in enumerate(sizes) if size == 0), len(sizes))]


def test_random_queues(tmp_path: Path, rng: random.Random) -> None:
    """All used units of those with one file that the share has space for."""
    directories, expected = [], []
    share = 300 * UNIT_SIZE + 7
    for number in range(300):
        directory = tmp_path / str(number)
        directory.mkdir()
        count = rng.choice((0, 1, 5, 99, 100, 101, 250, 300, 301, 5000))
        used = min(count, rng.choice((0, 1, 50, 99, 100, 101, 250, 299, 300, 301, 1000)))
        start = UNIT_SIZE * rng.choice((0, 0, 300_000, 7))
        with (directory / NAME(start)).open("wb") as file:
            file.write(_units(used, used))
            file.truncate(count * UNIT_SIZE + rng.choice((0, 0, 3)))  # as a broker does: a hole
        directories.append(directory)
        is_short = used < 300 or used == count <= 300
        expected.append((start // UNIT_SIZE, _units(used, used)) if is_short else None)
    found, nbytes, requests = _read(directories, share)
    assert [each and (each[0], _used(each[1])) for each in found] == expected
    assert 0 < found.count(None) < 100
    assert 0 < nbytes < 300 * share
    assert 0 < requests <= 600


def test_unused_units_that_take_space(tmp_path: Path) -> None:
    """A file without a hole is left to others where its first units do not show its end."""
    for used, is_read in ((99, True), (100, False)):
        directory = tmp_path / str(used)
        directory.mkdir()
        (directory / NAME(0)).write_bytes(_units(5000, used))
        found, nbytes, requests = _read([directory], 1 << 14)
        assert found == [(0, _units(100, used)) if is_read else None]
        assert (nbytes, requests) == (FIRST, 1)


def test_what_else_there_may_be(tmp_path: Path) -> None:
    """Nothing is said of it, and no such thing is opened."""
    made = {}

    def directory(name: str) -> Path:
        made[name] = tmp_path / name
        made[name].mkdir()
        return made[name]

    one = _units(3, 2)
    directory("no file")
    (directory("other names") / "0").write_bytes(one)
    (made["other names"] / (NAME(0) + "0")).write_bytes(one)
    (made["other names"] / "9999999999999999999x").write_bytes(one)
    (made["other names"] / NAME((1 << 62) + 1)).write_bytes(one)
    (made["other names"] / ("9" * 20)).write_bytes(one)
    several = directory("several")
    (several / NAME(0)).write_bytes(one)
    (several / NAME(60)).write_bytes(one)
    os.mkfifo(directory("a FIFO") / NAME(0))
    (directory("a directory") / NAME(0)).mkdir()
    (directory("a link to nothing") / NAME(0)).symlink_to(tmp_path / "gone")
    (directory("a device") / NAME(0)).symlink_to("/dev/zero")
    made["gone"] = tmp_path / "gone"
    made["a file"] = tmp_path / "a file"
    made["a file"].write_bytes(one)
    found, nbytes, requests = _read(list(made.values()), 4096)
    assert dict(zip(made, found, strict=True)) == dict.fromkeys(made)
    assert (nbytes, requests) == (0, 0)


def test_what_is_read(tmp_path: Path) -> None:
    """Links are followed, other names are passed over, and no more is read than it takes."""
    root = tmp_path / "queue"
    root.mkdir()
    (root / "0.bak").write_bytes(b"x")
    with (root / NAME((1 << 62) - 4)).open("wb") as file:  # no multiple of a unit's size: it is rounded down
        file.write(_units(300, 99))
        file.truncate(6_000_000)
    link = tmp_path / "link"
    link.symlink_to(root)
    expected = (((1 << 62) - 4) // UNIT_SIZE, _units(100, 99))
    found, nbytes, requests = _read([root, link], 1 << 14)
    assert found == [expected, expected]
    assert (nbytes, requests) == (2 * FIRST, 2)


def test_wrong_arguments() -> None:
    two = np.zeros(2, np.int64)
    for paths, sizes, buffer in (
        (b"a\0", two, bytearray(4096)),
        (b"a\0b", two, bytearray(4096)),
        (b"a\0b\0c\0", two, bytearray(4096)),
        (b"", two[:0], bytearray(4096)),
        (b"a\0b\0", two[:1], bytearray(4096)),
        (b"a\0b\0", two, bytearray(1)),
    ):
        with pytest.raises(ValueError, match=r"need as many sizes|has no share"):
            read_short_queues(paths, two[: paths.count(b"\0")] if not paths else two, sizes, buffer)
