"""What the harnesses begin with: pieces of files that real brokers wrote, each behind the options of its harness."""

from __future__ import annotations

import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]
_MOST = 1900  # bytes of an input


def _stores(unpacked: Path) -> Iterator[Path]:
    """Directories that have stores somewhere below them."""
    yield _REPOSITORY / "sample_store"
    yield _REPOSITORY / "tests/data/golden"
    for packed in sorted((_REPOSITORY / "tests/data").glob("*/*.tar.xz")):
        target = unpacked / packed.name
        with tarfile.open(packed) as archive:
            archive.extractall(target, filter="data")
        yield target


def _pieces(root: Path, pattern: str) -> Iterator[bytes]:
    """The first bytes of the files that match, of those that have any."""
    for path in sorted(root.rglob(pattern)):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                piece = file.read(_MOST).rstrip(b"\0")
            if piece:
                yield piece


def _inputs(root: Path) -> Iterator[tuple[str, bytes]]:
    for piece in _pieces(root, "commitlog/[0-9]*"):
        for options in (b"\x01", b"\x26", b"\x49"):
            yield "log", options + bytes(10) + b"\x14" + piece
        yield "dispatch", b"\x07\x00\x01\x01" + piece
    for piece in _pieces(root, "*ledger*/**/[0-9]*"):
        yield "log", b"\x31" + bytes(11) + piece
        yield "dispatch", b"\x27\x00\x01\x01" + piece
    for piece in _pieces(root, "consumequeue*/**/[0-9]*"):
        yield "queues", b"\0\x80\x05\0\x80\x02\0\xff\0\0" + piece
        yield "queues", b"\1\x80\x05\0\x80\x02\0\xff\0\0" + piece
    for piece in _pieces(root, "index/[0-9]*"):
        yield "index", b"\x0f\x3f\x08" + piece
    for piece in _pieces(root, "consumerOffset.json"):
        yield "offsets", b"\x80\x10\x10" + piece
    for pattern in ("*.log", "MANIFEST-*", "*.sst"):  # of a RocksDB
        for piece in _pieces(root, pattern):
            for kind in (b"\0", b"\1", b"\2"):
                yield "rocksdb", kind + b"\x80\x01" + piece


def write_seeds(corpora: Path) -> None:
    """Fill a directory for each harness below `corpora`."""
    with tempfile.TemporaryDirectory() as unpacked:
        for root in _stores(Path(unpacked)):
            for name, content in _inputs(root):
                directory = corpora / name
                directory.mkdir(parents=True, exist_ok=True)
                (directory / f"seed-{zlib.crc32(content):08x}").write_bytes(content)
