"""A run of pytest with this project's conftest.py, and tests of its own: to see what is told of tests that fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(directory: Path, source: str) -> subprocess.CompletedProcess[str]:
    """Run tests/test_it.py in an empty directory. Draws that fail are kept in tests/failed_draws.txt there."""
    tests = directory / "tests"
    tests.mkdir()
    for name in ("conftest.py", "support", "oracle"):
        (tests / name).symlink_to(ROOT / "tests" / name)
    (tests / "failed_draws.txt").write_text("")
    (tests / "test_it.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    environment = {
        name: text for name, text in os.environ.items() if name not in ("CI", "RMQ_TEST_SEED", "PYTEST_ADDOPTS")
    }
    environment |= {"PYTHONPATH": str(ROOT), "RMQ_FAILED_DRAWS": str(tests / "failed_draws.txt")}
    return subprocess.run(
        [*command, f"--rootdir={directory}", str(tests)], env=environment, capture_output=True, text=True, check=False
    )
