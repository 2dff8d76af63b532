"""What the kernel reads of many queues in one call, each as often as it asks the system, while one call fails
(failing_calls.c, preloaded): a line for each answer that was not as it should be, and at last the counts.

What is known of a queue is right, whatever fails, and the other queues are known as before."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from oracle import reference

from native_io import (
    Tiling,
    find_queue_files,
    list_queue_ids,
    read_queue_ends,
    read_queue_heads,
    read_queue_parts,
    read_short_queues,
    tile_queues,
)

_LIBRARY = ctypes.CDLL(None)
_UNIT, _NAME = reference.QUEUE_UNIT_SIZE, "{:020d}".format
_WAYS = [
    *(("pread", error) for error in (errno.EIO, errno.EINTR, 0)),
    *((name, errno.EIO) for name in ("lseek", "open", "openat", "syscall")),
]
# By queue: what is known; None where it is left to others.
Answer = list[object]


def queues(root: Path) -> Iterator[Path]:
    """With a hole at the end, of several pages, full, of few units that take a page more, and with a hole within."""
    kinds = ((50, 5000, 0), (300, 5000, 0), (300, 300, 0), (3, 400, 4096), (250, 100_000, 0), (900, 2000, 0))
    for number, (used, size, zeros) in enumerate(kinds):
        directory = root / "T" / str(number)
        directory.mkdir(parents=True)
        units = b"".join(reference.encode_queue_unit(90 * at, 90, at) for at in range(used))
        with (directory / _NAME(0)).open("wb") as file:
            file.write(units + bytes(zeros))
            file.truncate(size * _UNIT)
        yield directory


def _readers(directories: list[Path]) -> Iterator[tuple[str, Callable[[], Answer]]]:
    paths = b"".join(os.fsencode(each) + b"\0" for each in directories)
    files = b"".join(os.fsencode(each / _NAME(0)) + b"\0" for each in directories)
    count = len(directories)

    def short() -> Answer:
        numbers, sizes = np.full((2, count), 77, np.int64)
        buffer = bytearray(400 * _UNIT * count)
        read_short_queues(paths, numbers, sizes, buffer)
        return [
            None if size < 0 else (number, bytes(buffer[400 * _UNIT * at :][:size]))
            for at, (number, size) in enumerate(zip(numbers.tolist(), sizes.tolist(), strict=True))
        ]

    def tiled() -> Answer:
        none = np.zeros(1, np.int64)
        tiling = Tiling(none, np.array([1 << 40], np.int64), none, none)
        found = np.full((count, 9), 77, np.int64)
        tile_queues(tiling, paths, np.ones(count, np.uint8), found, bytearray(100 * _UNIT), most=350 * _UNIT)
        return [row if row[0] == 1 else None for row in found.tolist()]

    def heads(of: bytes, start: int) -> Answer:
        rows, buffer = np.full((count, 6), 77, np.int64), bytearray(b"\xee" * (300 * _UNIT * count))
        read_queue_heads(of, np.full(count, start, np.int64), rows, buffer)
        shares = [bytes(buffer[at : at + 300 * _UNIT]) for at in range(0, len(buffer), 300 * _UNIT)]
        if any(share.strip(b"\0") for row, share in zip(rows.tolist(), shares, strict=True) if row[3] < 0):
            raise AssertionError("units of a head that is not known")
        # That only a hole follows is a hint, which not all file systems give.
        return [None if row[3] < 0 else (*row[:5], share) for row, share in zip(rows.tolist(), shares, strict=True)]

    def ends() -> Answer:
        rows, units = np.full((count, 7), 77, np.int64), bytearray(2 * _UNIT * count)
        asked = np.tile(np.array([0, 250, 1500], np.int64), count)
        places = np.full((2, len(asked)), 77, np.int64)
        starts = np.arange(0, len(asked) + 1, 3, dtype=np.int64)
        read_queue_ends(paths, rows, units, starts=starts, numbers=asked, places=places, begin=0, width=128)
        both = [bytes(units[at : at + 2 * _UNIT]) for at in range(0, len(units), 2 * _UNIT)]
        return [
            (row, both[at], places[:, 3 * at : 3 * at + 3].tolist()) if row[6] else None
            for at, row in enumerate(rows.tolist())
        ]

    def parts() -> Answer:
        sizes, buffer = np.full(3 * count, 77, np.int64), bytearray(b"\xee" * (3 * 100 * count))
        positions = np.tile(np.array([0, -1, 5900], np.int64), count)
        read_queue_parts(files, np.arange(0, 3 * count + 1, 3, dtype=np.int64), positions, sizes, buffer)
        each = [
            None if size < 0 else bytes(buffer[100 * at : 100 * at + size]) for at, size in enumerate(sizes.tolist())
        ]
        pairs = zip(each[::3], each[2::3], strict=True)
        return [None if first is None or last is None else (first, last) for first, last in pairs]

    def found() -> Answer:
        rows = np.full((count, 3), 77, np.int64)
        find_queue_files(paths, rows)
        return [None if row[0] < 0 else row for row in rows.tolist()]

    def listed() -> Answer:
        counts, ids = np.full(1, 77, np.int64), np.full(50, 77, np.int32)
        list_queue_ids(os.fsencode(directories[0].parent) + b"\0", counts, ids)
        return [None if counts[0] < 0 else sorted(ids[: counts[0]].tolist())]

    yield "short", short
    yield "tiled", tiled
    yield "heads", lambda: heads(paths, -1)
    yield "heads of files", lambda: heads(files, 0)
    yield "ends", ends
    yield "parts", parts
    yield "files", found
    yield "ids", listed


def _wrong(found: Answer, expected: Answer, ends: bool) -> str | None:
    """`ends`: a file has become shorter; then what is known of it is that."""
    changed = [each for each, before in zip(found, expected, strict=True) if each != before]
    known = [each for each in changed if each is not None]
    return f"{len(changed)} are not known, or are {known}" if len(changed) > 1 or (known and not ends) else None


def main() -> None:
    failed = unknown = 0
    directories = list(queues(Path(sys.argv[1])))
    for name, read in _readers(directories):
        expected = read()
        for function, error in _WAYS:
            for number in range(1000):
                _LIBRARY.fail_call(function.encode(), ctypes.c_long(number), error)
                found = read()
                if not _LIBRARY.has_call_failed():
                    break
                if wrong := _wrong(found, expected, ends=error == 0):
                    print(f"{name}: {function} {number}: {error}: {wrong}")
                if error == errno.EINTR and found != expected:
                    print(f"{name}: {function} {number}: not called again")
                failed, unknown = failed + 1, unknown + (found != expected)
        _LIBRARY.fail_call(b"", ctypes.c_long(-1), 0)
    print(f"{failed} calls failed, {unknown} left a queue to others")


if __name__ == "__main__":
    main()
