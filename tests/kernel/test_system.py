"""System calls that old C libraries have no function for: two names are swapped in one step, and a mount is the one
that Linux tells."""

import errno
import os
import re
from pathlib import Path

import pytest

import native_io


def test_two_names_are_swapped_in_one_step(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "one" / "file").write_text("of one")
    above = os.open(tmp_path, os.O_RDONLY)
    try:
        native_io.exchange(above, b"one", above, b"two")
        with pytest.raises(FileNotFoundError) as missing:
            native_io.exchange(above, b"one", above, b"three")
        with pytest.raises(OSError, match="Bad file descriptor") as closed:
            native_io.exchange(-1, b"one", above, b"two")
    finally:
        os.close(above)
    assert os.listdir(tmp_path / "one") == []
    assert (tmp_path / "two" / "file").read_text() == "of one"
    assert (missing.value.errno, closed.value.errno) == (errno.ENOENT, errno.EBADF)


def test_the_mount_is_the_one_that_linux_tells(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        told = re.search(r"^mnt_id:\s*(\d+)$", Path(f"/proc/self/fdinfo/{fd}").read_text(), re.MULTILINE)
        assert told is not None
        assert native_io.mount_of(fd) in (int(told[1]), None)  # None: before Linux 5.8
    finally:
        os.close(fd)
    assert native_io.mount_of(-1) is None
