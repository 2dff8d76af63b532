"""A test that crashes its process is seen in what is left."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support import own_tests

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
    ran = own_tests.run(tmp_path, CRASH)
    assert ran.returncode == -signal.SIGSEGV
    assert ran.stderr.startswith("Fatal Python error: Segmentation fault")
    assert "in test_crashes\n" in ran.stderr
