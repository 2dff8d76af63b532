"""Calls that change something on disk, each of them through one gate, do(): tests stop a write at any of them.

Some calls are missing in Python's os module: syncfs and sync_file_range, which glibc has since 2.14, are called by
name; renameat2 and statx, which came later, are called in native_io.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import struct
from collections.abc import Callable
from typing import Any, TypeVar

import native_io
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.io.files import F_OFD_SETLK, FIRST_BYTE

_T = TypeVar("_T")
_SYNC_FILE_RANGE_WRITE = 2
_Answer = ctypes.c_char * 256  # longer than struct statfs
_FS_TYPE = struct.Struct("=Q")  # the first member of struct statfs
_LIBC = ctypes.CDLL(None, use_errno=True)
_SYNCFS_TELLS_ERRORS = (5, 8)  # the first Linux on which it does
# File systems that report errors of all their files (statfs(2), f_type). An overlay, for one, reports only its own.
_TELL_ERRORS = {0xEF53: "ext4", 0x58465342: "XFS", 0x9123683E: "Btrfs", 0x01021994: "tmpfs"}

_RACES = (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY)

NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class RaceError(RmqStoreError):
    """A path is gone, or is there, or is no longer empty, unlike a moment ago: somebody else has been here, or the path
    is wrong."""


def do(call: Callable[..., _T], path: str, *arguments: Any) -> _T:
    """Make a call; an OSError becomes an error of ours about `path`."""
    try:
        return call(*arguments)
    except OSError as why:
        raise cannot_write(path, why) from None


def cannot_write(path: str, why: OSError) -> RmqStoreError:
    if isinstance(why, PermissionError):
        return RmqStoreError(f"{path}: permission denied; run as a user who may write to the store")
    kind = RaceError if why.errno in _RACES else RmqStoreError
    what_to_do = "; make a copy of the store where one can write, and do it there" if why.errno == errno.EROFS else ""
    return kind(f"{path}: cannot be written: {why.strerror or why}{what_to_do}")


def mount_of(fd: int) -> int:
    """The id of the mount that an open file is on: renames work only within one mount. Before Linux 5.8: of the
    device."""
    mount = native_io.mount_of(fd)
    return os.fstat(fd).st_dev if mount is None else mount


def syncfs_tells_errors(fd: int) -> bool:
    """Does syncfs() report that something could not be written since this descriptor was opened?"""
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if version is None or (int(version[1]), int(version[2])) < _SYNCFS_TELLS_ERRORS:
        return False
    answer = _Answer()
    return _LIBC.fstatfs(fd, answer) == 0 and _FS_TYPE.unpack_from(answer)[0] in _TELL_ERRORS


def status_at(above: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        return None


# The calls that do() makes: positional arguments only, and each call is identified by its name.


def open_at(above: int, name: str, flags: int, mode: int) -> int:
    return os.open(name, flags, mode, dir_fd=above)


def open_new_at(above: int, name: str, mode: int) -> int | None:
    with contextlib.suppress(FileExistsError):
        return open_at(above, name, NEW, mode)
    return None


def lock(fd: int) -> bool:
    """Lock a file's first byte for its descriptor; False where it is locked already."""
    try:
        fcntl.fcntl(fd, F_OFD_SETLK, FIRST_BYTE)
    except OSError as why:
        if why.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False
    return True


def make_directory_at(above: int, name: str, mode: int) -> bool:
    try:
        os.mkdir(name, mode, dir_fd=above)
    except FileExistsError:
        return False
    return True


def sync_all(fd: int) -> bool:
    """Write everything on the descriptor's file system to disk; False where this process may not call syncfs()."""
    if _LIBC.syncfs(fd) != 0:
        code = ctypes.get_errno()
        if code in (errno.ENOSYS, errno.EPERM):
            return False
        raise OSError(code, os.strerror(code))
    return True


def rename_at(above: int, name: str, other_above: int, other: str) -> None:
    os.rename(name, other, src_dir_fd=above, dst_dir_fd=other_above)


def link_at(above: int, name: str, other_above: int, other: str) -> None:
    os.link(name, other, src_dir_fd=above, dst_dir_fd=other_above, follow_symlinks=False)


def unlink_at(above: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=above)


def remove_directory_at(above: int, name: str) -> None:
    os.rmdir(name, dir_fd=above)


def remove_if_empty_at(above: int, name: str) -> bool:
    try:
        os.rmdir(name, dir_fd=above)
    except OSError as why:
        if why.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def exchange(above: int, name: str, other_above: int, other: str) -> None:
    native_io.exchange(above, os.fsencode(name), other_above, os.fsencode(other))


def try_exchange(above: int, name: str, other_above: int, other: str) -> bool:
    """Exchange two names; False where Linux or the file system cannot exchange."""
    try:
        exchange(above, name, other_above, other)
    except OSError as why:
        if why.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        return False
    return True


def start_sync(fd: int, offset: int, size: int) -> None:
    """Start writing bytes of a file to disk; without effect where the system cannot do that."""
    if _LIBC.sync_file_range(fd, ctypes.c_int64(offset), ctypes.c_int64(size), _SYNC_FILE_RANGE_WRITE) != 0:
        code = ctypes.get_errno()
        if code not in (errno.ENOSYS, errno.EINVAL, errno.ESPIPE):  # starting early is only a hint
            raise OSError(code, os.strerror(code))
