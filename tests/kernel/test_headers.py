"""Each header of the kernel compiles alone: it includes all that it needs, and gives no warning."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

KERNEL = Path(__file__).resolve().parents[2] / "native_io"
HEADERS = sorted(path.name for path in KERNEL.glob("*.h"))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_header_compiles_alone(header: str) -> None:
    # Alone, most functions of a header have no caller. Warnings that follow values come where the kernel is built, and
    # the portable one is built by `make sanitize`.
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fsyntax-only"]
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # of make sanitize
    command = ["gcc", *flags, "-x", "c", str(KERNEL / header)]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_every_header_is_in_the_reading_order() -> None:
    text = (KERNEL / "README.md").read_text()
    order = text[text.index("## Reading order") : text.index("## Who owns")]
    assert [name for name in HEADERS if f"`{name}`" not in order] == []
