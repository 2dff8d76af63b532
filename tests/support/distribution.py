"""What users install: the sources as a distribution, and a wheel of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from support.patience import HANG

ROOT = Path(__file__).resolve().parents[2]
# What the distribution is made of. No more is copied, so nothing else can be needed to build it.
SOURCES = ["pyproject.toml", "setup.cfg", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "NOTICE", "CHANGELOG.md"]
PACKAGES = ["native_io", "rmqstore_spark"]
MODULE = "pyspark_rmqstore.py"  # how Spark finds the format


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    ran = subprocess.run(
        command, cwd=cwd, env=os.environ | env, capture_output=True, text=True, timeout=HANG, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def make_sdist(copy: Path) -> Path:
    """The source distribution, built in a directory from a clean copy of the sources."""
    for name in [*SOURCES, MODULE]:
        shutil.copy2(ROOT / name, copy)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.c"))
    run(sys.executable, "setup.py", "-q", "sdist", cwd=copy)
    (path,) = (copy / "dist").iterdir()
    return path


def make_wheel(sdist: Path, into: Path) -> Path:
    """The wheel, built from the sdist alone: a header that MANIFEST.in forgets is found out here.

    The compiler need not make it fast: it would take a minute.
    """
    compiler = into.with_name("unhurried-cc")
    compiler.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    compiler.chmod(0o755)
    # No isolation: the test extra has the build's requirements, and tests need no network.
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-cache-dir", "--wheel-dir", str(into)]
    run(*pip, "wheel", *options, sdist, cwd=into, CC=str(compiler))
    (path,) = into.iterdir()
    return path
