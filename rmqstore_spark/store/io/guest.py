"""A reader as a guest on a disk, which leaves memory and time to the broker that works there.

The system keeps the pages read last in memory. A scan of a whole store would fill the memory with pages that are never
needed again, and push out those that the broker hands to its consumers. So a scan drops the pages that it has brought
into memory, and leaves all others there.
"""

import contextlib
import mmap
import os
import threading
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from native_io import resident

_BLOCK = 2 * 1024 * 1024  # bytes: no page of memory crosses a multiple of this, however large the page is
_PAGES = _BLOCK // mmap.PAGESIZE
_OVERSLEPT = 0.1  # seconds
_PASSING_BY = 0x80  # RWF_DONTCACHE of linux/fs.h
_BEYOND = 1 << 30  # bytes, so far after a file's end that no page can be there
_MOST_AHEAD = 32 * 1024 * 1024  # bytes: no system reads further ahead
_FEW_BYTES = 8 * 1024 * 1024  # as many may be read ahead; a part of a scan (read/run/parts.py) has fewer


@dataclass(frozen=True)
class Manners:
    """A user's limits on a read for the sake of others on the same disk.

    Attributes:
        drop_cache: whether pages of the commitlog that the read brings into memory are dropped again.
        bytes_per_second: the most bytes read per second, in each task; None: no limit.
    """

    drop_cache: bool = False
    bytes_per_second: int | None = None


def passing_by(fd: int, is_log: bool) -> int:
    """The flags of preadv2() with which reads of an open segment leave no page in memory that was not there; 0 where
    the system has none, or not for this file system: there Traces drops pages. Linux has them since 6.14.

    From then on the system does not read ahead in the file, of whatever kind: pages that nobody reads would stay. Where
    a segment is read from start to end, Ahead lets it.
    """
    with contextlib.suppress(OSError, NotImplementedError):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        if is_log:
            os.preadv(fd, [bytearray(1)], 0, _PASSING_BY)
            return _PASSING_BY
    return 0


class Ahead:
    """Has the system read ahead where a segment is read from start to end, and memory left as it was all the same.

    Reads that pass by drop what is read, also ahead of them; what others have read is dropped here as the reading goes
    on. At the end all pages are dropped that were read ahead and not before. Who is not told which pages are there (see
    Traces) gets nothing read ahead.

    Args:
        size: the size of the file in bytes.
        do_reads_drop: whether reads pass by.
    """

    def __init__(self, fd: int, size: int, do_reads_drop: bool) -> None:
        self._fd = fd
        self._size = size
        self._do_reads_drop = do_reads_drop
        self._start = self._stop = self._done = 0
        self._before: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)  # pages from the start on: was it there? 1 or 0
        self._is_on = False

    @property
    def knows(self) -> bool:
        """Does it know the pages that were there, so that nobody else has to look after them?"""
        return len(self._before) > 0

    def expect(self, start: int, stop: int) -> None:
        """Announce that the bytes [start, stop) are read next, from start to end. Near the end nothing more is read
        ahead."""
        are_few = stop - start <= _FEW_BYTES
        if self._start <= start and stop <= self._stop:
            if not self._do_reads_drop and start - self._done >= _FEW_BYTES:
                self._drop_up_to(start)
            if are_few and self._is_on:
                self._switch(False)
            return
        self.clear()
        first, last = start // mmap.PAGESIZE, -(-min(stop + _MOST_AHEAD, self._size) // mmap.PAGESIZE)
        if not are_few and first < last and _are_told(self._fd, self._size):
            self._start, self._stop, self._done = first * mmap.PAGESIZE, stop, first * mmap.PAGESIZE
            self._before = _pages_there(self._fd, self._start, last - first)
            self._switch(True)

    def clear(self) -> None:
        """Drop the pages that were read, or read ahead, and are still there; nothing more is read ahead."""
        if len(self._before):
            rest = self._before[(self._done - self._start) // mmap.PAGESIZE :]
            _drop(self._fd, self._done, rest | (1 - _pages_there(self._fd, self._done, len(rest))))
            self._start, self._stop, self._before = 0, 0, self._before[:0]
            self._switch(False)

    def _drop_up_to(self, position: int) -> None:
        done = position // mmap.PAGESIZE * mmap.PAGESIZE
        first, last = ((each - self._start) // mmap.PAGESIZE for each in (self._done, done))
        _drop(self._fd, self._done, self._before[first:last])
        self._done = done

    def _switch(self, is_on: bool) -> None:
        self._is_on = is_on
        _advise(self._fd, 0, 0, os.POSIX_FADV_NORMAL if is_on else os.POSIX_FADV_RANDOM)


class Pace:
    """A throttle that lets a number of bytes pass per second. Threads may share it.

    Unused budget does not accumulate, except to make up for an overlong sleep.
    """

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._free_at = time.monotonic()
        self._lock = threading.Lock()

    def wait(self, nbytes: int) -> None:
        """Wait until the time of the bytes read before is over. The time of these bytes begins then."""
        with self._lock:
            now = time.monotonic()
            begin = max(now - _OVERSLEPT, self._free_at)
            self._free_at = begin + nbytes / self._rate
        if begin > now:
            time.sleep(begin - now)


class Traces:
    """The pages of an open file that a reader has brought into memory. The reader clears them at the end.

    The system does not read ahead in the file, but where Ahead lets it. (At a page that another process has read it may
    do so once, and these pages stay.)

    The system tells which pages were there before only to the file's owner, to root, and to users who may write to the
    file. For others, all pages count as brought by the reader. Another process that reads the same pages meanwhile may
    have to read them once more. Pages that a process has written to, or has mapped and used, as a broker has those of
    the segments that it works on, are never dropped by the system.

    Args:
        size: the size of the file in bytes.
    """

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._size = size
        self._before: dict[int, npt.NDArray[np.uint8]] = {}  # blocks: which pages were there, 1 or 0
        _advise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        self._may_look = _are_told(fd, size)

    def extend(self, start: int, stop: int) -> None:
        """Announce that the bytes [start, stop) are read next. The bytes before have been processed."""
        self._drop([block for block in self._before if block < start // _BLOCK])
        self._remember(start, stop)

    def scatter(self, starts: list[int], stops: list[int]) -> None:
        """Announce that these stretches are read next, in ascending order. The bytes before have been processed."""
        self._drop([block for block in self._before if block < starts[0] // _BLOCK])
        for start, stop in zip(starts, stops, strict=True):
            self._remember(start, stop)

    def clear(self) -> None:
        """Drop all pages that the reader has brought."""
        self._drop(list(self._before))

    def _remember(self, start: int, stop: int) -> None:
        """Record which pages of [start, stop) are in memory before the read."""
        blocks = range(start // _BLOCK, -(-min(stop, self._size) // _BLOCK))
        new = [block for block in blocks if block not in self._before]
        if new:
            first, count = new[0], new[-1] + 1 - new[0]
            pages = (
                _pages_there(self._fd, first * _BLOCK, count * _PAGES)
                if self._may_look
                else np.zeros(count * _PAGES, np.uint8)
            )
            for block in new:
                self._before[block] = pages[(block - first) * _PAGES :][:_PAGES]

    def _drop(self, blocks: list[int]) -> None:
        for block in sorted(blocks):
            _drop(self._fd, block * _BLOCK, self._before.pop(block))


def _are_told(fd: int, size: int) -> bool:
    """Is this process told which pages of a file of this size are in memory?"""
    beyond = -(-(size + _BEYOND) // mmap.PAGESIZE) * mmap.PAGESIZE
    return bool(_pages_there(fd, beyond, 1)[0] == 0)


def _pages_there(fd: int, offset: int, count: int) -> npt.NDArray[np.uint8]:
    """Which of some pages of a file are in memory, 1 or 0."""
    pages = np.ones(count, np.uint8)
    with contextlib.suppress(OSError):  # a file system without memory of its own
        resident(fd, offset, pages)
    return pages


def _drop(fd: int, offset: int, pages: npt.NDArray[np.uint8]) -> None:
    """Drop from memory those pages from an offset on that have a 0."""
    bounds = np.flatnonzero(np.diff(pages, prepend=1, append=1))  # where stretches of them begin and end
    for start, stop in bounds.reshape(-1, 2).tolist():
        _advise(fd, offset + start * mmap.PAGESIZE, (stop - start) * mmap.PAGESIZE, os.POSIX_FADV_DONTNEED)


def _advise(fd: int, start: int, size: int, advice: int) -> None:
    with contextlib.suppress(OSError):  # a hint to the system may fail
        os.posix_fadvise(fd, start, size, advice)


class Guest:
    """The work that manners require before reads from a file.

    Args:
        pace: the throttle of all files together.
    """

    def __init__(self, pace: Pace | None, traces: Traces | None) -> None:
        self._pace = pace
        self._traces = traces

    @property
    def is_paced(self) -> bool:
        """Is the speed limited?"""
        return self._pace is not None

    def before_reading(self, offset: int, size: int) -> None:
        """Announce a read of `size` bytes from `offset` on."""
        if self._traces is not None:
            self._traces.extend(offset, offset + size)
        if self._pace is not None:
            self._pace.wait(size)

    def before_gathering(self, offsets: npt.NDArray[np.int64], sizes: npt.NDArray[np.int32], capacity: int) -> None:
        """Announce a read of these stretches, in ascending order, as many as fit into `capacity` bytes."""
        ends = np.cumsum(sizes, dtype=np.int64)
        count = int(np.searchsorted(ends, capacity, "right"))
        if count == 0:
            return
        if self._traces is not None:
            self._traces.scatter(offsets[:count].tolist(), (offsets[:count] + sizes[:count]).tolist())
        if self._pace is not None:
            self._pace.wait(int(ends[count - 1]))

    def leave(self) -> None:
        """Announce that the file is closed next."""
        if self._traces is not None:
            self._traces.clear()
