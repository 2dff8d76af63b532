"""Whichever request of the kernel's for memory is refused: a MemoryError, and nothing is done by half."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from oracle.stores import StoreBuilder
from support.patience import HANG

TESTS = Path(__file__).resolve().parents[1]
SANITIZED = bool(os.environ.get("RMQ_SANITIZED"))


@pytest.mark.slow
@pytest.mark.skipif(SANITIZED, reason="a sanitizer has a malloc of its own")
def test_no_memory_for_any_request(tmp_path: Path) -> None:
    library, source = tmp_path / "scarce_memory.so", TESTS / "support" / "scarce_memory.c"
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    store = StoreBuilder(tmp_path / "store", index=True)
    for number in range(24):
        tags, keys = "TagA" if number % 4 else "TagB", f"key k{number}"
        store.append(f"Topic{number % 3}", b"body %d" % number, number % 2, tags, keys, f"{number:032X}")
    store.close()
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    run = subprocess.run(
        [sys.executable, "-m", "support.scarce_reads", str(store.root)],
        env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    *wrong, counts = run.stdout.splitlines() or [run.stderr]
    assert wrong == []
    refused, told = map(int, re.findall(r"\d+", counts))
    assert refused == told > 500
