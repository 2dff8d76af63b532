"""Files of stores: listed, opened read-only, read by position, counted."""

import bisect
import contextlib
import errno
import fcntl
import glob
import os
import stat
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from native_io import gather
from rmqstore_spark.errors import DamagedStoreError, DeletedMeanwhileError, NotAStoreError, RmqStoreError, StorageError
from rmqstore_spark.store.io.guest import Guest, Manners, Pace, Traces
from rmqstore_spark.store.io.read_ahead import ReadAhead
from rmqstore_spark.store.io.schedule import Serial
from rmqstore_spark.store.io.storage import Storage

_FLOCK = struct.Struct("hhqqi")  # l_type, l_whence, l_start, l_len, l_pid
# As Linux has them: a Python that was built with headers older than Linux 3.15 lacks the names.
F_OFD_GETLK, F_OFD_SETLK = 36, 37
FIRST_BYTE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)  # as fcntl() takes a lock on it


@dataclass(frozen=True)
class Prices:
    """What work costs, in bytes that could be read meanwhile.

    Attributes:
        request: one request more, apart from others.
        gap: to read over this much that is not needed costs less than one request more to one that is open.
        search: to find where in a ConsumeQueue a physical offset comes, and to read on there.
        linear_below: so many units of a queue are read rather than searched.
        concurrency: so many requests that do not need each other's answers are made at a time.
    """

    request: int = 16 * 1024
    gap: int = 4 * 1024
    search: int = 8 * 16 * 1024
    linear_below: int = 64
    concurrency: int = 1


@dataclass(frozen=True)
class Pin:
    """Which object it was that a read was planned with. Only remote ones have it: a file on a disk may grow, and what
    stands in it tells it from others (store/structures/proofs.py).

    Attributes:
        size: bytes.
        tag: its ETag, None where the storage gave none.
        proof: (offset, bytes): another object that is at least as long and has these bytes there is this one, gone on.
            None: no other one will do.
    """

    size: int
    tag: str | None
    proof: tuple[int, bytes] | None = field(default=None, compare=False, kw_only=True)


def allocated(status: os.stat_result) -> int:
    """The bytes that a file takes on the disk; its holes take none."""
    return 512 * status.st_blocks


class Files:
    """How the files of stores are reached, with what manners, what that costs, and how much was asked of them.

    Links are followed, as every reader of a disk does; the writer has files of its own (write/fs/disk.py). When it is
    pickled the counters begin anew.

    Large because each question to a file system is a method, so that a remote store answers all of them in its own
    way.

    Attributes:
        prices: of this file system.
        manners: towards others who work on the same disk.
        requests, bytes: what was read by now: what pruning saves is measured here.
        is_snapshot: whether files stay as they were when they were seen first: fresh() shows them as they are now.
        has_holes: whether it can be seen where the data of a file ends.
        schedule: how requests are made that do not need each other's answers.
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
        """Whether the kernel may open and read files by their paths. Requests and bytes are to be counted then."""
        return self._pace is None

    def count(self, requests: int, nbytes: int) -> None:
        """So much more was read. Several threads may say so."""
        with self._lock:
            self.requests += requests
            self.bytes += nbytes

    def __reduce__(self) -> tuple[type["Files"], tuple[Prices, Manners]]:
        return type(self), (self.prices, self.manners)

    def guest(self, fd: int, is_log: bool) -> Guest | None:
        """What is to be done about an open file before it is read from; None: nothing."""
        traces = Traces(fd, os.fstat(fd).st_size) if is_log and self.manners.drop_cache else None
        return Guest(self._pace, traces) if traces or self._pace else None

    def fresh(self) -> "Files":
        """The files as they are now: those of a snapshot anew, else the same."""
        return self

    def set_credentials(self, storage: Storage) -> None:
        """Reach remote stores so from now on. A task calls it: pickled files know no secrets."""

    def list_tree(self, path: str) -> None:
        """Most of what is in a directory, and below it, is asked for next. Where that is cheaper, it is listed at
        once."""

    def prefetch(self, places: Iterable[tuple[str, int]]) -> None:
        """A few bytes of each of these files are read soon, from these offsets on. Where a request takes long, all of
        them are asked for now."""

    def prefetch_range(self, ahead: ReadAhead, path: str, pin: Pin | None, start: int, stop: int) -> None:
        """The bytes [start, stop) of a file are read from end to end, after those that were added before. Where a
        request takes long, they are fetched ahead, for who reads them by way of files that read from `ahead`."""

    def read_from(self, ahead: ReadAhead) -> None:
        """The ranges that were added there are read by way of these files now."""

    def pin(self, path: str) -> Pin | None:
        """Which object stands at a path now; None where that cannot be held."""
        return None

    def hold(self, path: str, pin: Pin) -> None:
        """See that the object of a pin stands at a path, or it gone on.

        Raises:
            StorageError: another one does, or none.
        """

    def file(self, path: str, is_log: bool = False, pin: Pin | None = None) -> "OpenFile":
        """A file, open to be read. To be closed.

        Args:
            is_log: whether it is a segment, which is large.
            pin: which object it has to be; else the one that stands there.

        Raises:
            RmqStoreError: it cannot be opened; the text says why.
        """
        return ReadFile(path, self, is_log)

    def unlinked(self) -> "Files":
        """The same files, of which no link is followed: neither a file's, nor that of the directory it is in."""
        return _UnlinkedFiles(self.prices, self.manners)

    def names(self, path: str) -> list[str]:
        """The names in a directory, as os.listdir gives them, with its errors."""
        return os.listdir(path)

    def status(self, path: str) -> os.stat_result:
        """What a path is, as os.stat tells it, with its errors."""
        return os.stat(path)

    def lstat(self, path: str) -> os.stat_result:
        """What a path itself is, and not what it leads to where it is a link, with the errors of os.lstat."""
        return os.lstat(path)

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
        """The paths that a glob matches, in order."""
        return sorted(glob.glob(pattern))

    def is_locked(self, path: str) -> bool:
        """Does somebody hold a lock on the first byte of a file? False also where that cannot be seen."""
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
        refused: makes the error where the system refuses; cannot_read() without it.

    Raises:
        RmqStoreError: there is none, or it cannot be opened; the text says why.
    """
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    try:
        found = os.stat(name, dir_fd=dir_fd, follow_symlinks=follow)
        if stat.S_ISREG(found.st_mode):
            fd = os.open(name, flags, dir_fd=dir_fd)
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode):
                return fd
            os.close(fd)  # it was swapped for something else in between
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
    """What something is, in words."""
    return _KINDS.get(stat.S_IFMT(status.st_mode), "a device")


def file_status(path: str, files: Files) -> os.stat_result | None:
    """What a regular file is; None where something else is at a path, nothing, or what cannot be looked at."""
    try:
        found = files.status(path)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


class OpenFile(Protocol):
    """One file, open read-only, to be closed. A context manager, which closes it.

    Attributes:
        path: the file.
    """

    path: str

    def __enter__(self) -> "OpenFile": ...

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None: ...

    @property
    def descriptor(self) -> int | None:
        """The file descriptor, if the kernel may read from it by itself: requests and bytes are to be counted then
        (Files.count). None of a remote file, and where something is to be done before each read (Manners)."""

    @property
    def size(self) -> int:
        """Length in bytes."""

    def expect(self, start: int, stop: int) -> None:
        """The bytes [start, stop) are read next, one after the other, if nothing in them stops that."""

    def load(self, offset: int, size: int, buffer: Callable[[int], memoryview]) -> memoryview:
        """At most `size` bytes from `offset` on, fewer only where the file ends. They stay as they are until the next
        call.

        Args:
            buffer: gives one of a size, where one is needed.
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
        """Where the last data ends; after it there is only a hole."""

    def used_end(self) -> int:
        """The same, where holes cannot be seen, too: after it there are only zeros. That may cost as much as to read
        all of them."""

    def likely_data_end(self) -> int:
        """Where the last data seems to end: data_end(), or where holes cannot be seen, a guess that costs little. For
        hints only: zeros in the middle of a file fool it."""


class ReadFile:
    """One file on a disk: an OpenFile.

    Args:
        path: the file.
        files: how to reach it, and where to count requests and bytes.
        is_log: whether it is a segment, which is large.

    Raises:
        RmqStoreError: it cannot be opened; the text says why.
    """

    def __init__(self, path: str, files: Files, is_log: bool = False) -> None:
        self.path = path
        self._files = files
        self._fd = files.open(path)
        self._guest = files.guest(self._fd, is_log)

    def __enter__(self) -> "ReadFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._guest is not None:
            self._guest.leave()
        os.close(self._fd)

    @property
    def size(self) -> int:
        """Length in bytes."""
        return os.fstat(self._fd).st_size

    def expect(self, start: int, stop: int) -> None:
        """See OpenFile. The system reads ahead by itself."""

    @property
    def descriptor(self) -> int | None:
        """See OpenFile."""
        return self._fd if self._guest is None else None

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
                n = os.preadv(self._fd, [buffer[done:]], offset + done)
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
                self._fd, offsets, sizes, buffer, window_offsets, lengths, slack=self._files.prices.gap
            )
        except OSError as why:
            raise cannot_read(self.path, why) from None
        self._files.count(requests, size)
        return count

    def extents(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of [start, stop) that are not holes."""
        return extents(self._fd, start, stop)

    def data_end(self) -> int:
        """Where the last data ends; after it there is only a hole. Few calls find it, however many holes there are."""
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
        """See OpenFile. A file system tells."""
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
        # ENXIO: no data after start. Else it is a file system that knows no holes.
        return None if why.errno == errno.ENXIO else (start, stop)
    return (start, min(end, stop)) if start < stop else None


class ignore_unreadable:
    """A context in which something is read that need not be there: what cannot be read counts as missing.

    But not where storage refuses, or does not answer: that says nothing of what is there, and the next try may succeed.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, RmqStoreError) and not issubclass(kind, StorageError)


def status_of(path: str, files: Files) -> os.stat_result:
    """What a path is that was there a moment ago; an error is one of ours."""
    try:
        return files.status(path)
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
        if os.path.islink(path):
            return DamagedStoreError(f"{where}: expected a file, found a dangling link; replace it by the file itself")
        return DeletedMeanwhileError(
            f"{where}: the file is gone; a broker deletes expired segments while it runs: load the store again, "
            "or read a copy or a snapshot of it"
        )
    if isinstance(why, NotADirectoryError):
        return NotAStoreError(f"{where}: not a directory; give the broker's store directory")
    return RmqStoreError(f"{where}: cannot be read: {why.strerror or why}")
