"""The golden stores in data/golden: written once by real brokers (`make golden`), packed, with RocketMQ's dump beside.

Here they are only read; that needs neither Java nor Maven.
"""

from __future__ import annotations

import lzma
import tarfile
from pathlib import Path
from typing import IO

from oracle import truth

DIRECTORY = Path(__file__).parents[1] / "data" / "golden"
VERSIONS = sorted(path.name for path in DIRECTORY.glob("*") if (path / "store.tar.xz").exists())
_BLOCK = 1 << 16


def unpack(version: str, target: Path) -> Path:
    """The store, in a new directory."""
    with tarfile.open(DIRECTORY / version / "store.tar.xz") as packed:
        for member in packed:
            path = target / member.name
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            data = packed.extractfile(member)
            assert data
            with path.open("wb") as out:
                copy_sparse(data, out, member.size)
    return target


def load_truth(version: str) -> truth.Truth:
    with lzma.open(DIRECTORY / version / "dump.jsonl.xz", "rt") as lines:
        return truth.parse(lines)


def copy_sparse(source: IO[bytes], target: IO[bytes], size: int) -> None:
    """Leaves holes where there are only zeros: the timer's files alone are 40 MB of nothing."""
    target.truncate(size)
    for at in range(0, size, _BLOCK):
        block = source.read(_BLOCK)
        if block.count(0) != len(block):
            target.seek(at)
            target.write(block)
