"""What holds inside of `-p support.sandbox`. tests/repo/test_sandbox.py has pytest collect it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support import writing

from rmqstore_spark.errors import RmqStoreError

CHANGES: dict[str, Callable[[Path], object]] = {
    "create": lambda place: (place / "new").touch(),
    "make a directory": lambda place: (place / "new").mkdir(),
    "write": lambda place: (place / "file").open("r+b"),
    "truncate": lambda place: os.truncate(place / "file", 0),
    "link": lambda place: os.link(place / "file", place / "new"),
    "rename": lambda place: (place / "file").rename(place / "new"),
    "delete": lambda place: (place / "file").unlink(),
    "change mode": lambda place: (place / "file").chmod(0o600),
    "change owner": lambda place: os.chown(place / "file", -1, os.getegid()),
    "change times": lambda place: os.utime(place / "file"),
}


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of another test."""
    place = tmp_path_factory.mktemp("elsewhere")
    (place / "file").touch()
    return place


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_elsewhere_is_refused(elsewhere: Path, change: Callable[[Path], object]) -> None:
    with pytest.raises(OSError, match="Read-only file system"):
        change(elsewhere)


def test_every_mount_that_was_here_before_is_read_only(tmp_path: Path) -> None:
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    writable = {Path(mount[4]) for mount in mounts if "ro" not in mount[5].split(",")}
    assert writable == {tmp_path.parent, Path(tempfile.gettempdir())}
    for place in (Path("/"), Path.home(), Path("/dev/shm"), Path(__file__).parent):
        assert not os.access(place, os.W_OK)


def test_a_writer_says_so(elsewhere: Path) -> None:
    with pytest.raises(RmqStoreError, match="cannot be written: Read-only file system"):
        writing.write(elsewhere / "store", [{"topic": "T", "body": b"x"}])
