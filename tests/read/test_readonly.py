"""A store is never written to, and read with no more rights than reading takes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from oracle import reference, stores
from support import reading
from support.reading import read

PROLOGUE = """
import os, sys
from support.reading import read
try:
    read(sys.argv[1])
except Exception:
    pass
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
"""


def _as_nobody(code: str, *arguments: Any) -> str:
    """Standard output of code that has `read`, run with no rights but everyone's.

    It reads once before: the modules that it imports may be readable for their owner only.
    """
    result = subprocess.run(
        [sys.executable, "-c", PROLOGUE + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def _store(root: Path, **arguments: Any) -> list[dict[str, Any]]:
    store = stores.StoreBuilder(root, segment_size=1024, **arguments)
    for i in range(30):
        store.append(topic=f"T{i % 2}", body=b"body %d" % i)
    store.close()
    return reference.read_store(root)


def _state(root: Path) -> dict[str, tuple[int, int, int, str]]:
    state = {}
    for path in sorted(root.rglob("*")):
        status = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        state[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_size, digest)
    return state


@pytest.mark.parametrize("mode", reading.MODES)
def test_store_without_write_permission(public_path: Path, mode: str) -> None:
    rows = _store(public_path / "store")
    for path in [public_path / "store", *(public_path / "store").rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = _state(public_path)
    output = _as_nobody(
        "assert os.geteuid()\n"
        "for size in (1, 1 << 30): print(len(read(sys.argv[1], mode=sys.argv[2], maxPartitionBytes=size)))",
        public_path / "store",
        mode,
    )
    assert output == f"{len(rows)}\n" * 2
    assert _state(public_path) == before


@pytest.mark.parametrize("clean", [True, False])
def test_files_are_opened_to_be_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: bool) -> None:
    rows = _store(tmp_path)
    if not clean:
        (tmp_path / "abort").touch()
    before = _state(tmp_path)
    opened: list[str] = []
    real_open, plain_open = os.open, open

    def spy(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        assert flags & ~(os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY) == os.O_RDONLY, path
        opened.append(str(path))
        return real_open(path, flags, *arguments, **options)

    def refuse(*arguments: Any, **options: Any) -> Any:
        if str(arguments[0]).startswith(("/proc/", "/sys/")):  # how many cores there are
            return plain_open(*arguments, **options)
        raise AssertionError(f"a store is only opened through os.open: {arguments}")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", spy)
        patch.setattr("builtins.open", refuse)
        patch.setattr("io.open", refuse)
        for name in (
            "mkdir",
            "makedirs",
            "remove",
            "unlink",
            "rename",
            "replace",
            "truncate",
            "utime",
            "chmod",
            "link",
        ):
            patch.setattr(os, name, refuse)
        assert read(tmp_path, maxPartitionBytes=500) == rows
        assert read(tmp_path, mode="PERMISSIVE", columns=reading.DEFAULT_COLUMNS) == rows
    assert {path for path in opened if "commitlog" in path} == {
        str(path) for path in (tmp_path / "commitlog").iterdir()
    }
    assert any("consumequeue" in path for path in opened)
    assert _state(tmp_path) == before


@pytest.mark.slow
def test_no_permission(public_path: Path) -> None:
    root = public_path / "store"
    count = len(_store(root))
    code = """
for mode in ("FAILFAST", "DROPMALFORMED", "PERMISSIVE"):
    try:
        print(len(read(sys.argv[1], mode=mode)))
    except Exception as error:
        print(error)
"""
    for denied in (root / "commitlog" / f"{1024:020d}", root / "commitlog", root):
        old = denied.stat().st_mode
        denied.chmod(0)
        assert _as_nobody(code, root) == f"{denied}: permission denied; run as a user who may read the store\n" * 3
        denied.chmod(old)
    for accelerator in ("consumequeue", "consumequeue/T0", "consumequeue/T0/0", "checkpoint"):
        old = (root / accelerator).stat().st_mode
        (root / accelerator).chmod(0)
        assert _as_nobody(code, root) == f"{count}\n" * 3
        (root / accelerator).chmod(old)
