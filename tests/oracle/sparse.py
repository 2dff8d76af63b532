"""Files with holes: segments of 1 GiB and index files of 400 MB, of which some KB are written."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path


def read_sparse(path: Path) -> bytes | mmap.mmap:
    """What is in a file. Holes cost neither time nor memory."""
    size = path.stat().st_size
    if not size:
        return b""
    data = mmap.mmap(-1, size)
    for at, part in data_of(path):
        data[at : at + len(part)] = part
    return data


def data_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """What is between the holes, by position; nothing of a file that is one hole."""
    with path.open("rb", buffering=0) as file:
        descriptor = file.fileno()
        at, size = 0, os.fstat(descriptor).st_size
        while at < size:
            try:
                at = os.lseek(descriptor, at, os.SEEK_DATA)
            except OSError as why:
                if why.errno != errno.ENXIO:  # which says that there is no data from here on
                    raise
                return
            part = os.pread(descriptor, os.lseek(descriptor, at, os.SEEK_HOLE) - at, at)
            yield at, part
            at += len(part)


def is_zero(data: bytes | mmap.mmap) -> bool:
    step = 1 << 20
    return all(part.count(0) == len(part) for part in (data[at : at + step] for at in range(0, len(data), step)))
