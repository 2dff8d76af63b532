"""Segments, and the log that they make up."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from oracle.batches import rows_of_unit
from oracle.sparse import is_zero, read_sparse
from oracle.unit import BLANK_SIZE, MAGIC_BLANK, Buffer, Corrupt, check_unit, decode_unit


def read_segment(data: bytes | mmap.mmap, start: int, last: bool) -> Iterator[tuple[int, bytes]]:
    """The position and bytes of every unit of the segment that starts at physical offset `start`.

    It ends with a blank. In the last segment the first thing that is neither unit nor blank is the end of the log as
    well; in any other it is damage.
    """
    at = 0
    view = memoryview(data)  # no copy of the rest of the segment for each unit
    while True:
        left = len(data) - at
        if is_blank(view[at : at + BLANK_SIZE], left):
            return
        try:
            size = check_unit(view[at:], start + at, left)
        except Corrupt:
            if last:
                return
            raise
        yield start + at, data[at : at + size]
        at += size


# | 4 bytes left in the segment, these included | 4 magic CBD43194 |   the rest is undefined
def is_blank(data: Buffer, left: int) -> bool:
    return len(data) == BLANK_SIZE and struct.unpack(">ii", data) == (left, MAGIC_BLANK)


def read_store(
    root: str | Path,
    decompress: bool = True,
    commitlogs: Sequence[str | Path] | None = None,
    *,
    explode: bool = True,
    with_index: bool = False,
) -> list[dict[str, Any]]:
    """Every message of a healthy store, in log order. `commitlogs`: its commitlog directories, if there are several.

    Without `explode` a batch is one row. `with_index`: rows have a batchIndex.
    """
    rows = []
    for position, unit in read_units(root, commitlogs):
        if explode:
            rows += rows_of_unit(unit, position, decompress)
        else:
            rows.append(decode_unit(unit, position, decompress) | {"batchIndex": None})
    return rows if with_index else [{n: v for n, v in row.items() if n != "batchIndex"} for row in rows]


def read_units(root: str | Path, commitlogs: Sequence[str | Path] | None = None) -> Iterator[tuple[int, bytes]]:
    segments = [(int(file.name), read_sparse(file)) for file in segment_files(root, commitlogs)]
    while segments and is_zero(segments[-1][1]):  # preallocated and not reached yet
        segments.pop()
    expected = segments[0][0] if segments else 0
    for index, (start, data) in enumerate(segments):
        if start != expected:
            raise Corrupt(f"the segment before ends at {expected}", start)
        yield from read_segment(data, start, last=index == len(segments) - 1)
        expected = start + len(data)


def segment_files(root: str | Path, commitlogs: Sequence[str | Path] | None = None) -> list[Path]:
    directories = [Path(root) / "commitlog"] if commitlogs is None else [Path(directory) for directory in commitlogs]
    files = [file for directory in directories for file in directory.iterdir()]
    return sorted((file for file in files if re.fullmatch(r"[0-9]{20}", file.name)), key=lambda file: file.name)


def encode_blank(left: int) -> bytes:
    return struct.pack(">ii", left, MAGIC_BLANK)
