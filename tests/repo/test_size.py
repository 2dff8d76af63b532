"""Whoever clones the repository gets all test data: it stays small."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("benchmarks", "docs", "examples", "notebooks", "sample_store", "tests", "tools")
DATA = (ROOT / "sample_store", ROOT / "tests" / "data")
MOST = 5_000_000  # bytes of all data together


def _data() -> Iterator[Path]:
    """The files of stores and of tests' data, and binary files wherever they are."""
    for place in PLACES:
        for path in (ROOT / place).rglob("*"):
            parts = path.relative_to(ROOT).parts
            is_made = "__pycache__" in parts or any(part.startswith(".") for part in parts)  # by a run, and no data
            if path.is_file() and not is_made and (any(path.is_relative_to(one) for one in DATA) or _is_binary(path)):
                yield path


def _is_binary(path: Path) -> bool:
    with path.open("rb") as file:
        return b"\0" in file.read(4096)


def test_data_is_small() -> None:
    sizes = {path: path.stat().st_size for path in _data()}
    assert len(sizes) > 50
    largest = sorted(sizes, key=lambda path: -sizes[path])[:5]
    assert sum(sizes.values()) < MOST, [(str(path.relative_to(ROOT)), sizes[path]) for path in largest]
