"""Files of stores: listed, opened read-only, read by position, counted."""

import bisect
import contextlib
import errno
import fcntl
import fnmatch
import functools
import glob
import logging
import math
import os
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from native_io import gather
from rmqstore_spark.errors import (
    DamagedStoreError,
    DeletedMeanwhileError,
    NotAStoreError,
    RmqStoreError,
    StorageError,
    one_line,
)
from rmqstore_spark.store.io.guest import Ahead, Guest, Manners, Pace, Traces, passing_by
from rmqstore_spark.store.io.read_ahead import ReadAhead
from rmqstore_spark.store.io.schedule import Serial
from rmqstore_spark.store.io.storage import Storage

log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")
_FLOCK = struct.Struct("hhqqi")  # l_type, l_whence, l_start, l_len, l_pid
# As Linux has them: a Python that was built with headers older than Linux 3.15 lacks the names.
F_OFD_GETLK, F_OFD_SETLK = 36, 37
_EXCHANGES = 10  # of a directory by writes, one after the other, while it is listed
FIRST_BYTE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)  # as fcntl() takes a lock on it


@dataclass(frozen=True)
class Prices:
    """The costs of work, in bytes that could be read in the same time.

    Attributes:
        request: one more separate request.
        gap: reading over this many unneeded bytes costs less than one more request to an open file.
        search: finding the place of a physical offset in a ConsumeQueue, and reading on there.
        linear_below: up to this many units of a queue are read rather than searched.
        concurrency: the number of independent requests made at a time.
    """

    request: int = 16 * 1024
    gap: int = 4 * 1024
    search: int = 8 * 16 * 1024
    linear_below: int = 64
    concurrency: int = 1


@dataclass(frozen=True)
class Pin:
    """The object that a read was planned with. Only remote objects have a pin: a file on a disk may grow, and its bytes
    tell it from others (store/structures/proofs.py).

    Attributes:
        size: bytes.
        tag: the ETag; None where the storage gave none.
        proof: (offset, bytes): another object that is at least as long and has these bytes at this offset is the same
            one, grown. None: no other object will do.
    """

    size: int
    tag: str | None
    proof: tuple[int, bytes] | None = field(default=None, compare=False, kw_only=True)


def allocated(status: os.stat_result) -> int:
    """The bytes that a file takes on the disk; its holes take none."""
    return 512 * status.st_blocks


class Files:
    """Access to the files of stores: how they are reached, with what manners, at what prices, and how much was read.

    Links are followed, as every reader of a disk does; the writer has files of its own (write/fs/disk.py). The counters
    of an unpickled copy begin at 0.

    Large because each question to a file system is a method, so that a remote store answers all of them in its own
    way.

    Attributes:
        prices: the prices of this file system.
        manners: consideration for others who work on the same disk.
        requests, bytes: the reads so far; they measure what pruning saves.
        is_snapshot: whether files stay as they were when first seen; fresh() shows them as they are now.
        has_holes: whether the end of a file's data can be seen.
        schedule: how independent requests are made.
    """

    is_snapshot: ClassVar[bool] = False
    has_holes: ClassVar[bool] = True
    schedule: ClassVar[Serial] = Serial()

    def __init__(self, prices: Prices | None = None, manners: Manners | None = None) -> None:
        self.prices = prices or Prices()
        self.manners = manners or Manners()
        self._pace = Pace(self.manners.bytes_per_second) if self.manners.bytes_per_second else None
        self.requests = 0
        self.bytes = 0
        self._lock = threading.Lock()

    @property
    def is_slow(self) -> bool:
        """Whether a request takes long, however little it brings, and many of them go on at once."""
        return self.prices.concurrency > 1

    @property
    def are_paths_the_systems(self) -> bool:
        """Whether the kernel may open and read files by their paths. The caller then counts requests and bytes."""
        return self._pace is None

    def count(self, requests: int, nbytes: int) -> None:
        """Add to the counters. Several threads may call this at once."""
        with self._lock:
            self.requests += requests
            self.bytes += nbytes

    def __reduce__(self) -> tuple[type["Files"], tuple[Prices, Manners]]:
        return type(self), (self.prices, self.manners)

    def guest(self, fd: int, is_log: bool) -> Guest | None:
        """The Guest to ask before reading from an open file; None: nothing is to be done."""
        traces = Traces(fd, os.fstat(fd).st_size) if is_log and self.manners.drop_cache else None
        return Guest(self._pace, traces) if traces or self._pace else None

    def ahead(self, fd: int, do_reads_drop: bool) -> Ahead | None:
        """What lets the system read ahead in an open segment; None where nothing keeps it from that."""
        return Ahead(fd, os.fstat(fd).st_size, do_reads_drop) if self.manners.drop_cache else None

    def fresh(self) -> "Files":
        """The files as they are now: for a snapshot a new object, else `self`."""
        return self

    def set_credentials(self, storage: Storage) -> None:
        """Reach remote stores with these options from now on. Tasks call this, as pickled files hold no secrets."""

    def share(self, other: "Files") -> None:
        """Know from now on what other access to the same stores has found out, and tell it there: of a part of one
        work, beside the other parts in this process. Does nothing where asking again costs little."""

    def list_tree(self, path: str) -> None:
        """Announce that most entries in and below a directory are needed next. They are listed at once where that is
        cheaper."""

    def prefetch(self, places: Iterable[tuple[str, int]]) -> None:
        """Announce that a few bytes of each of these files are read soon, from these offsets on. Where a request takes
        long, all are requested now."""

    def prefetch_range(self, ahead: ReadAhead, path: str, pin: Pin | None, start: int, stop: int) -> None:
        """Announce that the bytes [start, stop) of a file are read from start to end, after the ranges added before.
        Where a request takes long, they are fetched ahead, for readers whose files read from `ahead`."""

    def read_from(self, ahead: ReadAhead) -> None:
        """From now on, read the ranges that were added to `ahead` through these files."""

    def pin(self, path: str) -> Pin | None:
        """The pin of the object at a path now; None where files have no pins."""
        return None

    def hold(self, path: str, pin: Pin) -> None:
        """Check that a pin's object is at a path, unchanged or grown.

        Raises:
            StorageError: another object is there, or none.
        """

    def file(self, path: str, is_log: bool = False, pin: Pin | None = None) -> "OpenFile":
        """A file, open for reading. The caller closes it.

        Args:
            is_log: whether it is a segment, which is large.
            pin: the object that it has to be; None: the object that is there.

        Raises:
            RmqStoreError: it cannot be opened; the text says why.
        """
        return ReadFile(path, self, is_log)

    def unlinked(self) -> "Files":
        """These files without following links: neither a link to a file, nor one to the file's directory."""
        return _UnlinkedFiles(self.prices, self.manners)

    def names(self, path: str) -> list[str]:
        """The names in a directory, as os.listdir gives them, with its errors.

        Raises:
            StorageError: reading fails, which does not tell what is there. So in status() and lstat().
        """
        return asked(os.listdir, path)

    def names_in_place(self, path: str) -> list[str]:
        """names(), but of one directory from the first name to the last: where another one takes its place meanwhile,
        as a write exchanges commitlog/ and empties the old one, the names are those of the new one."""
        if self.is_snapshot:
            return self.names(path)
        for _ in range(_EXCHANGES):
            before, names = self.status(path), self.names(path)
            if os.path.samestat(before, self.status(path)):
                break
        return names

    def look_into(self, path: str) -> None:
        """Raise the errors of names(). However many names there are, this costs the same where the kernel reads."""
        if self.are_paths_the_systems:
            asked(os.scandir, path).close()
        else:
            self.names(path)

    def status(self, path: str) -> os.stat_result:
        """The status of a path, as os.stat gives it, with its errors."""
        return asked(os.stat, path)

    def lstat(self, path: str) -> os.stat_result:
        """The status of a path itself, without following a link, with the errors of os.lstat."""
        return asked(os.lstat, path)

    def is_directory(self, path: str) -> bool:
        """Is there a directory at a path?"""
        try:
            return stat.S_ISDIR(self.status(path).st_mode)
        except OSError:
            return False

    def exists(self, path: str) -> bool:
        """Is there anything at a path?"""
        try:
            self.status(path)
        except (OSError, ValueError):  # a path may have a NUL
            return False
        return True

    def matching(self, pattern: str) -> list[str]:
        """The paths that a glob matches, in order.

        Raises:
            RmqStoreError: it cannot be seen what is at some place, so that a match might be missing.
        """
        start = "" if pattern.startswith("/") else "."
        paths = candidates(start, filter(None, pattern.split("/")), self._names_in)
        there = sorted(filter(self._is_anything_at, paths))
        return [path for path in there if self.is_directory(path)] if pattern.endswith("/") else there

    def _names_in(self, path: str) -> list[str]:
        try:
            return self.names(path or "/")
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as why:
            raise cannot_read(path, why) from None

    def _is_anything_at(self, path: str) -> bool:
        try:
            self.lstat(path)
        except (FileNotFoundError, NotADirectoryError, ValueError):  # a path may have a NUL
            return False
        except OSError as why:
            raise cannot_read(path, why) from None
        return True

    def is_locked(self, path: str) -> bool:
        """Does a process hold a lock on the first byte of a file? False also where locks cannot be seen."""
        with contextlib.suppress(OSError, RmqStoreError):
            fd = self.open(path)
            try:
                return bool(_FLOCK.unpack(fcntl.fcntl(fd, F_OFD_GETLK, FIRST_BYTE))[0] != fcntl.F_UNLCK)
            finally:
                os.close(fd)
        return False

    def open(self, path: str) -> int:
        """A descriptor to read a file with.

        Raises:
            RmqStoreError: it is no regular file, or cannot be opened; the text says why.
        """
        return open_file(path, path)


class _UnlinkedFiles(Files):
    @property
    def are_paths_the_systems(self) -> bool:
        return False  # the kernel follows links

    def status(self, path: str) -> os.stat_result:
        return self.lstat(path)

    def open(self, path: str) -> int:
        directory = os.path.dirname(path)
        if os.path.islink(directory):
            raise DamagedStoreError(
                f"{directory}: expected a directory, found a link; replace it by the directory itself"
            )
        return open_file(path, path, follow=False)


def open_file(
    name: str,
    path: str,
    flags: int = os.O_RDONLY,
    dir_fd: int | None = None,
    follow: bool = True,
    refused: "Callable[[str, OSError], RmqStoreError] | None" = None,
) -> int:
    """A descriptor of a regular file. Nothing else is opened: a FIFO would wait, a device may do anything.

    Args:
        name: the file, below `dir_fd` where that is given.
        path: for messages.
        flags: besides those that are always set.
        follow: whether the name may be a link.
        refused: makes the error where the system refuses; by default cannot_read().

    Raises:
        RmqStoreError: there is no regular file, or it cannot be opened; the text says why.
    """
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    try:
        found = os.stat(name, dir_fd=dir_fd, follow_symlinks=follow)
        if stat.S_ISREG(found.st_mode):
            fd = os.open(name, flags, dir_fd=dir_fd)
            is_regular = False
            try:
                found = os.fstat(fd)
                is_regular = stat.S_ISREG(found.st_mode)  # else another entry took the name in between
            finally:
                if not is_regular:
                    os.close(fd)
            if is_regular:
                return fd
    except OSError as why:
        raise (refused or cannot_read)(path, why) from None
    raise DamagedStoreError(f"{path}: expected a regular file, found {kind_of(found)}; move it away")


_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
}


def kind_of(status: os.stat_result) -> str:
    """The kind of a directory entry, as text."""
    return _KINDS.get(stat.S_IFMT(status.st_mode), "a device")


def file_status(path: str, files: Files) -> os.stat_result | None:
    """The status of a regular file; None where a path has another entry, no entry, or one that cannot be read."""
    try:
        found = files.status(path)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


class OpenFile(Protocol):
    """One file, open read-only. A context manager, which closes the file.

    Attributes:
        path: the file.
        flags: of preadv2(), for the kernel's reads from `descriptor`.
    """

    path: str
    flags: int

    def __enter__(self) -> "OpenFile": ...

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None: ...

    @property
    def descriptor(self) -> int | None:
        """The file descriptor, if the kernel may read from it directly: the caller then counts requests and bytes
        (Files.count). None for a remote file, and where each read needs some work before (Manners)."""

    @property
    def size(self) -> int:
        """Length in bytes."""

    def expect(self, start: int, stop: int) -> None:
        """The bytes [start, stop) are read next, one after the other, if nothing in them stops that."""

    def load(self, offset: int, size: int, buffer: Callable[[int], memoryview]) -> memoryview:
        """At most `size` bytes from `offset` on, fewer only where the file ends. The bytes are valid until the next
        call.

        Args:
            buffer: gives a buffer of a size, where one is needed.
        """

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` from `offset` on; answers the number of bytes, fewer only where the file ends."""

    def read(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset` on, fewer only where the file ends."""

    def gather(
        self,
        offsets: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int32],
        buffer: memoryview,
        window_offsets: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
    ) -> int:
        """native_io.gather() from this file: how many of the offsets were read."""

    def extents(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of [start, stop) that are not holes."""

    def data_end(self) -> int:
        """The offset after the last data; only a hole follows."""

    def used_end(self) -> int:
        """The offset after which there are only zeros, also where holes cannot be seen. The call may cost as much as
        reading all the zeros."""

    def likely_data_end(self) -> int:
        """The apparent end of the data: data_end(), or where holes cannot be seen, a cheap guess. For hints only: zeros
        in the middle of a file fool the guess."""


class ReadFile:
    """One file on a disk: an OpenFile.

    Args:
        path: the file.
        files: how to reach the file, and where requests and bytes are counted.
        is_log: whether it is a segment, which is large.

    Raises:
        RmqStoreError: it cannot be opened; the text says why.
    """

    def __init__(self, path: str, files: Files, is_log: bool = False) -> None:
        self.path = path
        self._files = files
        self._fd = files.open(path)
        self.flags = passing_by(self._fd, is_log) if files.manners.drop_cache else 0
        try:
            self._ahead = files.ahead(self._fd, bool(self.flags)) if is_log else None
            self._guest = files.guest(self._fd, is_log and not self.flags)
        except BaseException:
            os.close(self._fd)
            raise

    def __enter__(self) -> "ReadFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead.clear()
        if self._guest is not None:
            self._guest.leave()
        os.close(self._fd)

    @property
    def size(self) -> int:
        """Length in bytes."""
        try:
            return os.fstat(self._fd).st_size
        except OSError as why:
            raise cannot_read(self.path, why) from None

    def expect(self, start: int, stop: int) -> None:
        """See OpenFile. The system reads ahead by itself, but where memory is to be left as it was."""
        if self._ahead is not None:
            self._ahead.expect(start, stop)

    @property
    def descriptor(self) -> int | None:
        """See OpenFile."""
        if self._guest is None or (self._ahead is not None and self._ahead.knows and not self._guest.is_paced):
            return self._fd
        return None

    def load(self, offset: int, size: int, buffer: Callable[[int], memoryview]) -> memoryview:
        """See OpenFile."""
        whole = buffer(size)
        return whole[: self.read_into(whole, offset)]

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` from `offset` on; answers the number of bytes, fewer only where the file ends."""
        if self._guest is not None:
            self._guest.before_reading(offset, len(buffer))
        done = 0
        while done < len(buffer):
            try:
                n = os.preadv(self._fd, [buffer[done:]], offset + done, self.flags)
            except OSError as why:
                raise cannot_read(self.path, why, offset + done) from None
            self._files.count(1, n)
            if n == 0:
                break
            done += n
        return done

    def read(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset` on, fewer only where the file ends."""
        buffer = bytearray(size)
        return bytes(buffer[: self.read_into(memoryview(buffer), offset)])

    def gather(
        self,
        offsets: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int32],
        buffer: memoryview,
        window_offsets: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
    ) -> int:
        """native_io.gather() from this file: how many of the offsets were read."""
        if self._guest is not None:
            self._guest.before_gathering(offsets, sizes, len(buffer))
        try:
            count, size, requests = gather(
                self._fd,
                offsets,
                sizes,
                buffer,
                window_offsets,
                lengths,
                slack=self._files.prices.gap,
                flags=self.flags,
            )
        except OSError as why:
            raise cannot_read(self.path, why) from None
        self._files.count(requests, size)
        return count

    def extents(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of [start, stop) that are not holes."""
        return extents(self._fd, start, stop)

    def data_end(self) -> int:
        """The offset after the last data; only a hole follows. Few calls find it, however many holes there are."""
        size = self.size
        first = next_extent(self._fd, 0, size)
        end = 0 if first is None else first[1]
        if next_extent(self._fd, end, size) is None:
            return end
        return bisect.bisect_left(range(size), True, lo=end, key=lambda at: next_extent(self._fd, at, size) is None)

    def used_end(self) -> int:
        """See OpenFile."""
        return self.data_end()

    def likely_data_end(self) -> int:
        """See OpenFile. On a disk this is data_end(), as the file system knows."""
        return self.data_end()


def extents(fd: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The parts of [start, stop) in a file that are not holes: store files are sparse, and a hole is all zeros."""
    while (extent := next_extent(fd, start, stop)) is not None:
        yield extent
        start = extent[1]


def next_extent(fd: int, start: int, stop: int) -> tuple[int, int] | None:
    """The first of extents()."""
    if start >= stop:
        return None
    try:
        start = os.lseek(fd, start, os.SEEK_DATA)
        end = os.lseek(fd, start, os.SEEK_HOLE)
    except OSError as why:
        # ENXIO: no data after start. Any other error: a file system without holes.
        return None if why.errno == errno.ENXIO else (start, stop)
    return (start, min(end, stop)) if start < stop else None


# A disk, a network or a system that fails: nothing is known of what is there.
_FAILURES = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOMEM, errno.EMFILE, errno.ENFILE}


class ignore_unreadable:
    """A context for reading something optional: a file that cannot be read counts as missing.

    Errors of a storage that refuses, or does not answer, still pass: the file may be there, and the next try may
    succeed.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, RmqStoreError) and not issubclass(kind, StorageError)


@functools.lru_cache(maxsize=1000)
def _say_denied(directory: str) -> None:
    log.warning("%s: permission denied: what is in it is not read; run as a user who may", one_line(directory))


def say_if_denied(directory: str, why: OSError) -> None:
    """Log, once, that a directory counts as missing because it may not be listed: tables of what is in it lack rows."""
    if isinstance(why, PermissionError):
        _say_denied(directory)


def seconds_since_change(found: os.stat_result) -> float:
    """How long ago what has this status was changed, by this machine's clock; infinite where no time is known. What
    another machine's clock puts into the near future is as new as what was changed as long ago."""
    return abs(time.time() - found.st_mtime) if found.st_mtime else math.inf


def status_of(path: str, files: Files) -> os.stat_result:
    """The status of a path that existed a moment ago; errors become RmqStoreErrors."""
    try:
        return files.status(path)
    except OSError as why:
        raise cannot_read(path, why) from None


def is_link(path: str, files: Files) -> bool:
    """Is a path that existed a moment ago a link? Errors become RmqStoreErrors."""
    try:
        return stat.S_ISLNK(files.lstat(path).st_mode)
    except OSError as why:
        raise cannot_read(path, why) from None


def cannot_read(path: str, why: OSError, offset: int | None = None) -> RmqStoreError:
    """The error for a file or directory that the system refuses."""
    where = path if offset is None else f"{path}: position {offset}"
    if isinstance(why, PermissionError):
        return RmqStoreError(f"{where}: permission denied; run as a user who may read the store")
    if isinstance(why, FileNotFoundError) and os.path.islink(path):
        return DamagedStoreError(f"{where}: expected a file, found a dangling link; replace it by the file itself")
    if isinstance(why, FileNotFoundError):
        return DeletedMeanwhileError(
            f"{where}: the file is gone; a broker deletes expired segments while it runs: load the store again, "
            "or read a copy or a snapshot of it"
        )
    if isinstance(why, NotADirectoryError):
        return NotAStoreError(f"{where}: not a directory; give the broker's store directory")
    said = f"{where}: cannot be read: {why.strerror or why}"
    if why.errno in _FAILURES:
        return StorageError(f"{said}; try again, or read a copy of what can be read")
    return RmqStoreError(said)


def candidates(start: str, parts: Iterable[str], names: Callable[[str], Iterable[str]]) -> list[str]:
    """The paths below a directory that a glob may match: what follows the last of its patterns need not be there.

    Args:
        start: the directory; empty for `/`.
        parts: the glob, cut at each slash.
        names: gives the names in a directory.
    """
    paths = [start]
    for part in parts:
        if glob.has_magic(part):
            paths = [
                f"{path}/{name}"
                for path in paths
                for name in names(path)
                if fnmatch.fnmatchcase(name, part) and (part.startswith(".") or not name.startswith("."))
            ]
        else:
            paths = [f"{path}/{part}" for path in paths]
    return paths


def asked(call: Callable[[str], _Answer], path: str) -> _Answer:
    """What the system says of a path. Its errors tell what is there; a StorageError where they do not."""
    try:
        return call(path)
    except OSError as why:
        raise (cannot_read(path, why) if why.errno in _FAILURES else why) from None
