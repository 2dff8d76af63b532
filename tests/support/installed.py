"""Environments of Python with the package as a machine of a cluster has it, which is not this source tree."""

from __future__ import annotations

import shutil
import sys
import tarfile
import venv
from pathlib import Path

from support.distribution import MODULE, PACKAGES, ROOT, run


def environment(home: Path, wheel: Path | None = None, is_copied: bool = False) -> Path:
    """The Python of a new virtual environment. What the package needs it has from this one.

    Args:
        home: where it goes.
        wheel: what is installed.
        is_copied: whether the package is put there as a wheel would have it.
    """
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    site = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "needs.pth").write_text("".join(f"{path}\n" for path in sys.path if path.endswith("site-packages")))
    if wheel is not None:
        pip: list[str | Path] = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
        options = ["--quiet", "--no-deps", "--no-index", "--ignore-installed"]
        run(*pip, "install", *options, wheel, cwd=home)
    if is_copied:
        unneeded = shutil.ignore_patterns("__pycache__", "*.c", "*.h", "*.pyx", "*.pxd")
        for name in PACKAGES:
            shutil.copytree(ROOT / name, site / name, ignore=unneeded)
        shutil.copy2(ROOT / MODULE, site)
    return python


def archived(python: Path, into: Path) -> Path:
    """An environment as an archive, as venv-pack makes one: with paths that begin in the environment."""
    archive = into / "job.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(python.parents[1], ".")
    return archive
