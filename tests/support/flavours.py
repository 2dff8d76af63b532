"""The small stores of every kind: some lie in data, the others beside a checkout, for tests that hold without them."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

OWN = Path(__file__).resolve().parents[1] / "data" / "flavours"
DIRECTORY = Path(__file__).resolve().parents[3] / "shared" / "stores" / "flavours"


def unpack(name: str, target: Path) -> tuple[Path, list[dict[str, Any]]]:
    """A store in a new directory, and what its clients saw. Skips the test where there is none."""
    root = unpack_store(name, target)
    expected = _file(f"{name}-5.5.0.expected.jsonl").read_text()
    return root, [json.loads(line) for line in expected.splitlines()]


def unpack_store(name: str, target: Path) -> Path:
    """A store in a new directory. Skips the test where there is none."""
    packed = _file(f"{name}-5.5.0.tar.xz")
    if not packed.exists():
        pytest.skip(f"no {packed.name} beside the checkout")
    with tarfile.open(packed) as archive:
        archive.extractall(target, filter="data")
    return target / f"{name}-5.5.0" / "store"


def _file(name: str) -> Path:
    return OWN / name if (OWN / name).exists() else DIRECTORY / name
