"""tools/missing.sh, with which `make` and .ci/run begin: one line that names all that is to be installed first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "missing.sh"
ADVICE = "(Debian, Ubuntu: apt-get install build-essential python3-dev python3-venv)"


def missing(python: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        ["sh", SCRIPT, python], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert not done.stdout
    return done.returncode, done.stderr


def test_nothing_is_said_where_all_is_there() -> None:
    assert missing(sys.executable) == (0, "")


def test_a_compiler_that_is_missing() -> None:
    assert missing(sys.executable, CC="no-such-compiler") == (1, f"missing: a C compiler {ADVICE}\n")


def test_all_that_is_missing_is_in_one_line() -> None:
    assert missing("", CC="no-such-compiler") == (1, f"missing: a C compiler, Python 3.11 or newer {ADVICE}\n")


def test_a_python_without_its_parts(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_text("#!/bin/sh\nexit 1\n")
    bare.chmod(0o755)
    assert missing(str(bare)) == (1, f"missing: venv for {bare}, the headers of {bare} {ADVICE}\n")


def test_what_tests_need_is_brought_before_any_package_is_there() -> None:
    """.ci/run begins it with Python alone (-S), and does not wait to hear of errors."""
    command = [sys.executable, "-S", "-c", "import interop.prepare"]
    done = subprocess.run(command, cwd=SCRIPT.parents[1] / "tests", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
