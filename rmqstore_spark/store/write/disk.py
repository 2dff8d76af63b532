"""Every call that changes something on disk, each of them through one gate, _do: tests stop a write at any of them.

Whatever a reader or a broker may see comes into place by one rename or one exchange of two directories, whole and on
disk already. Nothing that they see is changed in place.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from rmqstore_spark.errors import RmqStoreError

_T = TypeVar("_T")
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_SYNC_FILE_RANGE_WRITE = 2
_COPY_SIZE = 8 * 1024 * 1024
BLOCK = 4096  # direct I/O takes places, sizes and memory that are multiples of this, on every disk
_LIBC = ctypes.CDLL(None, use_errno=True)


def _do(call: Callable[..., _T], path: str, *arguments: Any) -> _T:
    try:
        return call(*arguments)
    except OSError as why:
        raise cannot_write(path, why) from None


def cannot_write(path: str, why: OSError) -> RmqStoreError:
    if isinstance(why, PermissionError):
        return RmqStoreError(f"{path}: permission denied; run as a user who may write to the store")
    return RmqStoreError(f"{path}: cannot be written: {why.strerror or why}")


class NewFile:
    """A file that is made: of `size` bytes, all zeros and sparse, written to by position. A context manager."""

    def __init__(self, path: str, size: int = 0) -> None:
        self.path = path
        self._fd: int = _do(os.open, path, path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._is_direct = False
        if size:
            with closed_if_it_fails(self):
                _do(os.ftruncate, path, self._fd, size)

    def __enter__(self) -> "NewFile":
        return self

    def __exit__(self, *_: object) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def write(self, data: Any, offset: int) -> None:
        """Write all of a bytes-like object at a position."""
        view = memoryview(data).cast("B")
        while view:
            done = _do(self._pwrite, self.path, view, offset)
            view, offset = view[done:], offset + done

    def write_blocks(self, data: Any, offset: int) -> None:
        """Write whole blocks, aligned in memory and in the file, on their way to disk already when this returns.

        They go past the page cache where the file system can do that: who waits for the disk anyway saves a copy.
        """
        self._set_direct(True)
        self.write(data, offset)
        if not self._is_direct:
            self._start_sync(offset, len(data))
        self._set_direct(False)

    def read(self, offset: int, size: int) -> bytes:
        """Some of its bytes."""
        return os.pread(self._fd, size, offset)

    def _pwrite(self, view: memoryview, offset: int) -> int:
        try:
            return os.pwrite(self._fd, view, offset)
        except OSError as why:
            if why.errno != errno.EINVAL or not self._is_direct:
                raise
            self._set_direct(False)  # only now it says that it cannot
            return os.pwrite(self._fd, view, offset)

    def _set_direct(self, direct: bool) -> None:
        if direct != self._is_direct:
            flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
            try:
                fcntl.fcntl(self._fd, fcntl.F_SETFL, flags | os.O_DIRECT if direct else flags & ~os.O_DIRECT)
            except OSError as why:
                if why.errno != errno.EINVAL:
                    raise
                return
            self._is_direct = direct

    def copy_from(self, source: str, size: int) -> None:
        """The first `size` bytes of another file, holes left out."""
        fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for start, stop in _data(fd, size):
                while start < stop:
                    wanted = min(_COPY_SIZE, stop - start)
                    done = _do(self._copy, self.path, fd, start, wanted)
                    if done == 0:
                        raise RmqStoreError(f"{source}: cut while it was copied: expected {size} bytes, found {start}")
                    start += done
        finally:
            os.close(fd)

    def _copy(self, source: int, at: int, size: int) -> int:
        try:
            return os.copy_file_range(source, self._fd, size, at, at)
        except OSError as why:
            if why.errno not in (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
                raise
            return os.pwrite(self._fd, os.pread(source, size, at), at)

    def _start_sync(self, offset: int, size: int) -> None:
        if _LIBC.sync_file_range(self._fd, ctypes.c_int64(offset), ctypes.c_int64(size), _SYNC_FILE_RANGE_WRITE) != 0:
            code = ctypes.get_errno()
            if code not in (errno.ENOSYS, errno.EINVAL, errno.ESPIPE):  # it is a hint
                raise cannot_write(self.path, OSError(code, os.strerror(code)))

    def sync(self) -> None:
        """Wait until it is on disk."""
        _do(os.fsync, self.path, self._fd)


@contextlib.contextmanager
def closed_if_it_fails(file: contextlib.AbstractContextManager[object]) -> Iterator[None]:
    """For what nobody else can close yet: a deleted file takes space on disk as long as it is open."""
    with contextlib.ExitStack() as stack:
        stack.push(file)
        yield
        stack.pop_all()


def reopen(path: str) -> NewFile:
    """A file that NewFile has made, once more."""
    file = NewFile.__new__(NewFile)
    file.path = path
    file._fd = _do(os.open, path, path, os.O_RDWR | os.O_CLOEXEC)
    file._is_direct = False
    return file


def _data(fd: int, size: int) -> Iterator[tuple[int, int]]:
    at = 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
            at = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as why:
            if why.errno != errno.ENXIO:  # ENXIO: no data behind it
                yield at, size
            return
        if start < size:
            yield start, min(at, size)


def write_file(path: str, data: bytes) -> None:
    """A new file of these bytes, on disk."""
    with NewFile(path) as file:
        file.write(data, 0)
        file.sync()


def make_directory(path: str) -> None:
    """Make a directory, and those above it, where they are missing."""
    if not os.path.isdir(path):
        _do(os.makedirs, path, path, 0o777, True)


def rename(source: str, target: str) -> None:
    """Move, in place of what has the name."""
    _do(os.rename, target, source, target)


def link(source: str, target: str) -> None:
    """One more name for a file."""
    _do(os.link, target, source, target)


def remove(path: str) -> None:
    """Delete a file, if it is there."""
    _do(_unlink, path, path)


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_empty(path: str) -> None:
    """Delete a directory if nothing is in it."""
    with contextlib.suppress(RmqStoreError):
        _do(os.rmdir, path, path)


def remove_tree(path: str) -> None:
    """Delete a directory and all in it, if it is there; file by file, so that it can be stopped at any of them."""
    if os.path.isdir(path) and not os.path.islink(path):
        for entry in list(os.scandir(path)):
            remove_tree(entry.path)
        _do(os.rmdir, path, path)
    else:
        remove(path)


def sync_directory(path: str) -> None:
    """Wait until the names in a directory are on disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _do(os.fsync, path, fd)
    finally:
        os.close(fd)


def sync_directories(top: str) -> None:
    """sync_directory for a directory and all in it."""
    for directory, _, _ in os.walk(top, topdown=False):
        sync_directory(directory)


def set_time(path: str, milliseconds: int) -> None:
    """When the file was modified, as far as others can tell."""
    _do(os.utime, path, path, (milliseconds / 1000, milliseconds / 1000))


def adopt(top: str, like: str) -> None:
    """Give a directory and all in it to the owner of another, so that a broker can go on with what root wrote."""
    owner = os.stat(like)
    if os.geteuid() != 0 or owner.st_uid == 0:
        return
    for directory, _, names in os.walk(top):
        for path in (directory, *(os.path.join(directory, name) for name in names)):
            if os.lstat(path).st_uid != owner.st_uid:
                _do(os.lchown, path, path, owner.st_uid, owner.st_gid)
    _do(os.chmod, top, top, stat.S_IMODE(owner.st_mode))


def exchange(one: str, other: str) -> None:
    """Let two directories swap their names in one step.

    Raises:
        RmqStoreError: the file system cannot, or one of them is a mount point.
    """
    _do(_exchange, other, one, other)


def _exchange(one: str, other: str) -> None:
    if _LIBC.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), other)


def can_exchange(directory: str) -> bool:
    """Does the file system of a directory know how to exchange?"""
    one, other = (os.path.join(directory, f"exchange-{os.getpid()}-{i}") for i in "ab")
    made = []
    try:
        for path in (one, other):
            make_directory(path)
            made.append(path)
        _exchange(one, other)
    except OSError:
        return False
    finally:
        for path in made:
            os.rmdir(path)
    return True
