"""`-p support.sandbox`: a test can write to its own tmp_path and to what tempfile makes; everywhere else is a read-only
file system (EROFS). tests/repo/test_sandbox.py runs the writing tests so.

For that pytest enters a mount namespace of its own, which nobody else sees and which ends with it. Its TMPDIR has to be
an empty directory.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis.configuration import set_hypothesis_home_dir

REFUSED = 77  # the exit code where there is no such namespace to be had

# <sched.h>, <sys/mount.h>, <linux/mount.h>, <fcntl.h>
_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_MS_BIND, _MS_PRIVATE, _MNT_DETACH = 1 << 12, 1 << 18, 2
_MOUNT_ATTR_RDONLY = 1
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_SETATTR = 442  # glibc has no function for it before 2.36

_LIBC = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_namespace")]


def _succeeded(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def _enter_namespaces() -> None:
    """A mount namespace, and where root alone may have one, a user namespace in which we may."""
    uid, gid = os.geteuid(), os.getegid()
    _succeeded(_LIBC.unshare(_CLONE_NEWNS | (0 if uid == 0 else _CLONE_NEWUSER)), "unshare")
    if uid != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def _set_mount(path: Path, attributes: _MountAttributes, flags: int = 0) -> None:
    size = ctypes.sizeof(attributes)
    result = _LIBC.syscall(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), flags, ctypes.byref(attributes), size)
    _succeeded(result, f"mount_setattr {path}")


def _mount_memory(path: Path) -> None:
    options = f"mode=755,uid={os.geteuid()},gid={os.getegid()}"
    _succeeded(_LIBC.mount(b"sandbox", os.fsencode(path), b"tmpfs", 0, options.encode()), f"mount {path}")


def _bind(path: Path) -> None:
    """Make a directory a mount of its own. It can be written to, whatever becomes of the one that it is in."""
    _succeeded(_LIBC.mount(os.fsencode(path), os.fsencode(path), None, _MS_BIND, None), f"bind {path}")


def enclose(home: Path) -> None:
    """Let this process and its children write to one directory alone, which is empty memory from now on.

    Raises:
        OSError: there is no such namespace to be had.
    """
    _enter_namespaces()
    everything = _MountAttributes(set=_MOUNT_ATTR_RDONLY, propagation=_MS_PRIVATE)
    _set_mount(Path("/"), everything, _AT_RECURSIVE)
    _mount_memory(home)


def enclose_again(home: Path) -> None:
    """Let a process that is enclosed have a directory for itself and its children, which is empty and ends with them.

    Raises:
        OSError: there is no such namespace to be had.
    """
    _succeeded(_LIBC.unshare(_CLONE_NEWNS), "unshare")
    _mount_memory(home)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before there are threads, which would stay where they are: nothing has imported pyarrow yet."""
    home = Path(tempfile.gettempdir())
    if any(home.iterdir()):
        pytest.exit(f"{home}: expected an empty directory, found something in it; set TMPDIR", returncode=2)
    try:
        enclose(home)
    except OSError as why:
        pytest.exit(f"no mount namespace of our own: {why.strerror or why}", returncode=REFUSED)
    config.option.basetemp = str(home / "tests")
    scratch = home / "scratch"
    scratch.mkdir()
    scratch.chmod(0o1777)
    _bind(scratch)
    tempfile.tempdir = os.environ["TMPDIR"] = str(scratch)
    set_hypothesis_home_dir(scratch)  # it warns where it cannot write


@pytest.fixture(autouse=True)
def tmp_path(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A level deeper than without a sandbox: it may be the store, and the writer also needs a place beside that."""
    base = tmp_path_factory.getbasetemp()
    everyones = base.parent
    (tmp_path / "own").mkdir()
    for directory in (base, tmp_path):
        directory.chmod(0o755)  # nobody else is here but users that a test has made up
    _bind(tmp_path)
    _set_mount(everyones, _MountAttributes(set=_MOUNT_ATTR_RDONLY))
    yield tmp_path / "own"
    _set_mount(everyones, _MountAttributes(clear=_MOUNT_ATTR_RDONLY))
    _succeeded(_LIBC.umount2(os.fsencode(tmp_path), _MNT_DETACH), f"umount {tmp_path}")
