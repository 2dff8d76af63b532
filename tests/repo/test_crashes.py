"""A test that crashes its process is seen in what is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CRASH = """
import os, signal, threading
def test_crashes():
    for _ in range(150):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    os.kill(os.getpid(), signal.SIGSEGV)
"""


@pytest.mark.slow
def test_the_thread_that_crashed_is_shown(tmp_path: Path) -> None:
    """Also where more threads wait than Python shows."""
    tests = tmp_path / "tests"
    tests.mkdir()
    for name in ("conftest.py", "support", "oracle"):
        (tests / name).symlink_to(ROOT / "tests" / name)
    (tests / "test_it.py").write_text(CRASH)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTEST_ADDOPTS", None)
    ran = subprocess.run(
        [*command, f"--rootdir={tmp_path}", str(tests)], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == -signal.SIGSEGV
    assert ran.stderr.startswith("Fatal Python error: Segmentation fault")
    assert "in test_crashes\n" in ran.stderr
