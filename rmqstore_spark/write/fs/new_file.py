"""A file that is being made, or an existing one opened to be changed."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from typing import Any, Protocol

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.io.files import extents
from rmqstore_spark.write.fs import calls

BLOCK = 4096  # direct I/O takes offsets, sizes and memory that are multiples of this, on every disk
_COPY_SIZE = 8 * 1024 * 1024
# Bytes in a call that fills the page cache. For more the system looks for large stretches of free memory, which a
# virtual machine may have given back to its host: getting them back takes up to 2 s a GiB, instead of 0.3 s.
_WRITE_SIZE = 128 * 1024


class Opens(Protocol):
    """A directory tree that opens files, as disk.Tree does."""

    def open(self, path: str) -> int:
        """A descriptor to read a regular file with."""


class NewFile:
    """A file made by Tree.new_file(), written to by position. A context manager."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._is_direct = False

    def __enter__(self) -> "NewFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def write(self, data: Any, offset: int) -> None:
        """Write all of a bytes-like object at a position."""
        view = memoryview(data).cast("B")
        while view:
            done = calls.do(self._pwrite, self.path, view, offset)
            view, offset = view[done:], offset + done

    def write_blocks(self, data: Any, offset: int) -> None:
        """Write whole blocks, aligned in memory and in the file; when this returns, they are on their way to disk.

        The blocks go past the page cache where the file system can do that, which saves a copy, as the caller waits for
        the disk anyway.
        """
        self._set_direct(True)
        self.write(data, offset)
        if not self._is_direct:
            calls.do(calls.start_sync, self.path, self._fd, offset, len(data))
        self._set_direct(False)

    def read(self, offset: int, size: int) -> bytes:
        """Read up to `size` bytes at a position of the file."""
        return os.pread(self._fd, size, offset)

    def _pwrite(self, view: memoryview, offset: int) -> int:
        if not self._is_direct:
            view = view[:_WRITE_SIZE]
        try:
            return os.pwrite(self._fd, view, offset)
        except OSError as why:
            if why.errno != errno.EINVAL or not self._is_direct:
                raise
            self._set_direct(False)  # the file system refuses direct I/O only at the write
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

    def copy_from(self, tree: Opens, source: str, size: int) -> None:
        """Copy the first `size` bytes of another file, without its holes."""
        fd = tree.open(source)
        try:
            for start, stop in extents(fd, 0, size):
                while start < stop:
                    done = calls.do(self._copy, self.path, fd, start, min(_COPY_SIZE, stop - start))
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

    def set_time(self, milliseconds: int) -> None:
        """Set the file's modification time."""
        calls.do(os.utime, self.path, self._fd, (milliseconds / 1000, milliseconds / 1000))

    def sync(self) -> None:
        """Wait until the file is on disk."""
        calls.do(os.fsync, self.path, self._fd)

    @property
    def identity(self) -> tuple[int, int]:
        """The file's identity, by which Tree.reopen() knows it."""
        found = os.fstat(self._fd)
        return found.st_dev, found.st_ino


@contextlib.contextmanager
def closed_if_it_fails(file: contextlib.AbstractContextManager[object]) -> Iterator[None]:
    """Close a file that nobody else can close yet, if the block fails: a deleted file takes disk space while it is
    open."""
    with contextlib.ExitStack() as stack:
        stack.push(file)
        yield
        stack.pop_all()
