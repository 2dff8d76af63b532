"""Whichever call of the kernel's to the system fails: what is known of queues is right, and the others are left to code
that tells of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.patience import HANG

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.skipif("RMQ_SANITIZED" in os.environ, reason="a sanitizer has to be preloaded first")
def test_any_call_of_many_queues(tmp_path: Path) -> None:
    library, source = tmp_path / "failing_calls.so", TESTS / "support" / "failing_calls.c"
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    run = subprocess.run(
        [sys.executable, "-m", "support.failing_reads", str(tmp_path / "store")],
        env={
            **os.environ,
            "LD_PRELOAD": str(library),
            "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)]),
        },
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    *wrong, counts = run.stdout.splitlines() or [run.stderr]
    assert wrong == []
    failed, unknown = map(int, re.findall(r"\d+", counts))
    assert failed > unknown > 50
