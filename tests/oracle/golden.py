"""The golden stores in data/golden: written once by real brokers (`make golden`), packed, with RocketMQ's dump beside.

Here they are only read; that needs neither Java nor Maven.
"""

from __future__ import annotations

import functools
import lzma
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from oracle import truth

DIRECTORY = Path(__file__).parents[1] / "data" / "golden"
OLD = DIRECTORY.parent / "old"  # smaller ones, of brokers before 4.9 (tests/interop/older.py)
VERSIONS = sorted(path.name for path in DIRECTORY.glob("*") if (path / "store.tar.xz").exists())
_BLOCK = 1 << 16


class _Member(NamedTuple):
    """A file or a directory of a packed store, and what of a file is not zeros alone, by position."""

    name: str
    is_directory: bool
    size: int
    blocks: list[tuple[int, bytes]]


def unpack(version: str, target: Path, directory: Path = DIRECTORY) -> Path:
    """The store, in a new directory. Holes stay holes: the timer's files alone are 40 MB of nothing."""
    for member in _members(version, directory):
        path = target / member.name
        if member.is_directory:
            path.mkdir(parents=True, exist_ok=True)
            continue
        with path.open("wb") as out:
            _write_sparse(member.blocks, out, member.size)
    return target


@functools.cache
def _members(version: str, directory: Path) -> list[_Member]:
    """Many tests unpack one: that takes a fifth of a second but for the first time."""
    with tarfile.open(directory / version / "store.tar.xz") as packed:
        files = ((each, packed.extractfile(each)) for each in packed)
        return [_Member(e.name, e.isdir(), e.size, list(_blocks(file)) if file else []) for e, file in files]


def load_truth(version: str, directory: Path = DIRECTORY) -> truth.Truth:
    with lzma.open(directory / version / "dump.jsonl.xz", "rt") as lines:
        return truth.parse(lines)


def copy_sparse(source: IO[bytes], target: IO[bytes], size: int) -> None:
    """Leaves holes where there are only zeros."""
    _write_sparse(_blocks(source), target, size)


def _write_sparse(blocks: Iterable[tuple[int, bytes]], target: IO[bytes], size: int) -> None:
    target.truncate(size)
    for at, block in blocks:
        target.seek(at)
        target.write(block)


def _blocks(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Those that are not zeros alone, by position."""
    at = 0
    while block := file.read(_BLOCK):
        if block.count(0) != len(block):
            yield at, block
        at += len(block)
