"""What may not be read is told in one line. Root may read everything, so these tests are run as somebody else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.nobody import AS_NOBODY, NOBODY

ROOT = Path(__file__).resolve().parents[2]
MODULES = {"tests/write/test_odd_entries.py": 80, "tests/face/test_copying_config.py": 11}


def _can_be_nobody() -> str:
    """Why not; nothing where it can."""
    code = f"import os; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})"
    tried = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return tried.stderr.strip().splitlines()[-1] if tried.returncode else ""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root has them among the others")
@pytest.mark.parametrize("module", MODULES)
def test_files_that_may_not_be_read(module: str, public_path: Path) -> None:
    if why := _can_be_nobody():
        pytest.skip(f"root cannot become another user here: {why}")
    os.chown(public_path, NOBODY, NOBODY)
    own = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST")}
    options = ["-q", "-n0", "-k", "forbidden", "-p", "support.nobody", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", module, *options, "--basetemp", str(public_path / "tests")],
        cwd=ROOT,
        env={**own, "TMPDIR": str(public_path), "PYTHONPATH": str(ROOT / "tests"), AS_NOBODY: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    counted = re.search(r"(\d+) passed", ran.stdout)
    assert counted is not None, ran.stdout
    assert int(counted[1]) >= MODULES[module]
    assert "skipped" not in ran.stdout.splitlines()[-1]
