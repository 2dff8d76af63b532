"""Runs a program whose system calls fail as it says: faulty_calls.c, compiled and preloaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.patience import HANG


def faulty_library(directory: Path) -> Path:
    library = directory / "faulty_calls.so"
    source = Path(__file__).with_name("faulty_calls.c")
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def ran(library: Path, program: str, *arguments: object) -> tuple[list[str], str]:
    """What a program says that runs with these calls: what is wrong, line by line, and its counts."""
    done = subprocess.run(
        [sys.executable, "-m", program, *map(str, arguments)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, sys.path)),
            "LD_PRELOAD": str(library),
            "AWS_EC2_METADATA_DISABLED": "true",
        },
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *wrong, counts = done.stdout.splitlines()
    return wrong, counts
