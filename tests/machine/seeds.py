"""The seeds that have failed once: the suite writes them down itself, and tries them first ever after."""

from __future__ import annotations

import os
from pathlib import Path

FAILED = Path(__file__).with_name("failed_seeds.txt")


def kept() -> list[tuple[str, int]]:
    """Comparison and seed of each."""
    lines = [line.partition("#")[0].split() for line in FAILED.read_text().splitlines()]
    return [(line[0], int(line[1])) for line in lines if line]


def keep(comparison: str, seed: int) -> None:
    """In one call, as several workers of pytest may write at the same time."""
    if (comparison, seed) in kept():
        return
    descriptor = os.open(FAILED, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, f"{comparison} {seed}\n".encode())
    finally:
        os.close(descriptor)
