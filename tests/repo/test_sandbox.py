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
WRITING = ("repo/inside_sandbox.py", "write/test_*.py")
# Kills at all other places do nothing that these do not.
SLOW = "sigkill or stopped_again or (every_change and RmqStoreError) or swapped or mount_points or any_journal"
SLOW += " or power_cut or Killed-40 or overwrite_stopped or rebuild_stopped or after_the_commit_point or json"
SLOW += " or goes_on_after_a_kill or killed_anywhere or any_number_of_queues or with_any_limit"


@pytest.mark.slow
@pytest.mark.long
def test_no_write_leaves_its_directory(public_path: Path) -> None:
    files = [str(path) for pattern in WRITING for path in sorted(TESTS.glob(pattern))]
    options = ["-p", "support.sandbox", "-p", "no:cacheprovider", "-k", f"not ({SLOW})"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
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
    assert int(passed[1]) > 60
