"""A reader that is a guest on a disk: it leaves memory and time to the broker that works there.

The system keeps in memory what was read last. A scan of a whole store would fill it with bytes that nobody asks for
again, and push out those that the broker hands to its consumers. So what a scan brings into memory it lets go again,
and what was there before it leaves there.
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

_BLOCK = 2 * 1024 * 1024  # no page of memory reaches over a multiple of it, however large
_PAGES = _BLOCK // mmap.PAGESIZE
# More than the system reads ahead of us, which is a little more than two times what a disk is set to: 128 KiB as a
# rule, and hardly ever more than 8 MiB.
_AHEAD = 32 * 1024 * 1024
_STEP = 128 * 1024  # of what is read ahead, so much comes at a time, at least
_OVERSLEPT = 0.1  # seconds
_BEYOND = 1 << 30  # bytes after a file's end, where no page can be


@dataclass(frozen=True)
class Manners:
    """What a user asks of a read for the sake of others.

    Attributes:
        drop_cache: whether pages of the commitlog that it brings into memory are dropped again.
        bytes_per_second: the most that it reads, in each task; None: as fast as it can.
    """

    drop_cache: bool = False
    bytes_per_second: int | None = None


class Pace:
    """Lets a number of bytes pass in a second. Threads may share it.

    Who was slow may not be so much faster afterwards, but for what makes good a sleep that took too long.
    """

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._free_at = time.monotonic()
        self._lock = threading.Lock()

    def wait(self, nbytes: int) -> None:
        """Wait until what was read before has had its time. The time of these bytes begins then."""
        with self._lock:
            now = time.monotonic()
            begin = max(now - _OVERSLEPT, self._free_at)
            self._free_at = begin + nbytes / self._rate
        if begin > now:
            time.sleep(begin - now)


class Traces:
    """The pages of an open file that a reader has brought into memory. To be cleared at its end.

    What the system reads ahead of the reader is among them. It does so only where one read goes on after another.

    The system tells which pages were there before to the file's owner, to root, and to whoever may write to it. For
    others, all pages count as brought by the reader. Whoever reads the same pages meanwhile may have to read them once
    more. Those that somebody has written to, or has mapped and used, as a broker has the segments that it works on,
    stay whatever we say.

    Args:
        size: of the file.
    """

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._size = size
        self._before: dict[int, npt.NDArray[np.uint8]] = {}  # blocks: which pages were there, 1 or 0
        self._start = self._stop = -1  # of what was read last
        self._reads_ahead = False
        self._advise(0, 0, os.POSIX_FADV_RANDOM)
        beyond = -(-(self._size + _BEYOND) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._is_told = self._look(beyond, 1)[0] == 0

    def extend(self, start: int, stop: int) -> None:
        """The bytes [start, stop) are read next. What lies before them has been worked on."""
        goes_on = self._start < start <= self._stop
        if goes_on and not self._reads_ahead:
            self._advise(0, 0, os.POSIX_FADV_NORMAL)
            self._reads_ahead = True
        elif not goes_on:
            self._settle()
        self._start, self._stop = start, stop
        self._drop([block for block in self._before if block < start // _BLOCK])
        self._remember(start, stop + _AHEAD if goes_on else stop)

    def scatter(self, starts: list[int], stops: list[int]) -> None:
        """These stretches are read next, in ascending order. What lies before them has been worked on."""
        self._settle()
        self._drop([block for block in self._before if block < starts[0] // _BLOCK])
        for start, stop in zip(starts, stops, strict=True):
            self._remember(start, stop)

    def clear(self) -> None:
        """Drop all of them."""
        self._settle()
        self._drop(list(self._before))

    def _settle(self) -> None:
        """Wait for what is still being read ahead: it could not be dropped."""
        if not self._reads_ahead:
            return
        self._advise(0, 0, os.POSIX_FADV_RANDOM)
        self._reads_ahead = False
        stop = self._stop - self._stop % mmap.PAGESIZE
        for at in range(stop, stop + _AHEAD if self._is_told else stop, _STEP):
            with contextlib.suppress(OSError):
                os.pread(self._fd, 1, at)
            if at > stop and self._look(at - _STEP, 2 * _STEP // mmap.PAGESIZE).sum() <= 2:
                return  # there is only what we have asked for here

    def _remember(self, start: int, stop: int) -> None:
        """What of it is there before it is read."""
        blocks = range(start // _BLOCK, -(-min(stop, self._size) // _BLOCK))
        new = [block for block in blocks if block not in self._before]
        if new:
            first, count = new[0], new[-1] + 1 - new[0]
            pages = self._look(first * _BLOCK, count * _PAGES) if self._is_told else np.zeros(count * _PAGES, np.uint8)
            for block in new:
                self._before[block] = pages[(block - first) * _PAGES :][:_PAGES]

    def _look(self, offset: int, count: int) -> npt.NDArray[np.uint8]:
        pages = np.ones(count, np.uint8)
        with contextlib.suppress(OSError):  # a file system without memory of its own
            resident(self._fd, offset, pages)
        return pages

    def _drop(self, blocks: list[int]) -> None:
        for block in sorted(blocks):
            pages = self._before.pop(block)
            bounds = np.flatnonzero(np.diff(pages, prepend=1, append=1))  # where stretches of new pages begin and end
            for start, stop in bounds.reshape(-1, 2).tolist():
                self._advise(
                    block * _BLOCK + start * mmap.PAGESIZE, (stop - start) * mmap.PAGESIZE, os.POSIX_FADV_DONTNEED
                )

    def _advise(self, start: int, size: int, advice: int) -> None:
        with contextlib.suppress(OSError):  # it is a hint
            os.posix_fadvise(self._fd, start, size, advice)


class Guest:
    """What is done about a file before it is read from.

    Args:
        pace: of all files together.
    """

    def __init__(self, pace: Pace | None, traces: Traces | None) -> None:
        self._pace = pace
        self._traces = traces

    def before_reading(self, offset: int, size: int) -> None:
        """So many bytes are read next, from `offset` on."""
        if self._traces is not None:
            self._traces.extend(offset, offset + size)
        if self._pace is not None:
            self._pace.wait(size)

    def before_gathering(self, offsets: npt.NDArray[np.int64], sizes: npt.NDArray[np.int32], capacity: int) -> None:
        """Of these stretches, in ascending order, as many are read next as fit into `capacity` bytes."""
        ends = np.cumsum(sizes, dtype=np.int64)
        count = int(np.searchsorted(ends, capacity, "right"))
        if count == 0:
            return
        if self._traces is not None:
            self._traces.scatter(offsets[:count].tolist(), (offsets[:count] + sizes[:count]).tolist())
        if self._pace is not None:
            self._pace.wait(int(ends[count - 1]))

    def leave(self) -> None:
        """The file is closed next."""
        if self._traces is not None:
            self._traces.clear()
