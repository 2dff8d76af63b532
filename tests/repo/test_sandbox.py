"""The writing tests write nowhere but into the test's own directory: they pass where nothing else can be written to."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import sandbox

TESTS = Path(__file__).parents[1]
QUICK = ["-m", "not slow or sample", "repo/inside_sandbox.py", "write/test_*.py"]  # each test, if not all its cases
KILLED = ["tests/write/test_kill.py::test_stopped_at_every_change[Killed-0]"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("chosen", "least"), [pytest.param(QUICK, 350, marks=pytest.mark.nightly), (KILLED, 1)])
def test_no_write_leaves_its_directory(chosen: list[str], least: int, public_path: Path) -> None:
    options = ["-p", "support.sandbox", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *found(chosen)],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(public_path),
        },
        cwd=TESTS.parent,
        check=False,
    )
    print(ran.stdout, ran.stderr)
    if ran.returncode == sandbox.REFUSED:
        pytest.skip(ran.stderr.strip())
    assert ran.returncode == 0
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed
    assert int(passed[1]) >= least


def found(chosen: list[str]) -> list[str]:
    """With the files of a pattern in its place."""
    return [path for name in chosen for path in sorted(map(str, TESTS.glob(name))) or [name]]
