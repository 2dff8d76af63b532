"""Bytes of files: opened read-only, read by position, counted."""

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from native_io import gather
from rmqstore_spark.errors import DamagedStoreError, NotAStoreError, RmqStoreError

_SLACK = 4 * 1024  # to read so much that is not wanted costs less than a request more


@dataclass
class Counters:
    """How much was asked of the file system; what pruning saves is measured here."""

    requests: int = 0
    bytes: int = 0


class ReadFile:
    """One file, open read-only. A context manager.

    Args:
        path: the file.
        counters: where to count requests and bytes.

    Raises:
        RmqStoreError: it cannot be opened; the text says why.
    """

    def __init__(self, path: str, counters: Counters) -> None:
        self.path = path
        self._counters = counters
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as why:
            raise cannot_read(path, why) from None

    def __enter__(self) -> "ReadFile":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    @property
    def size(self) -> int:
        """Length in bytes."""
        return os.fstat(self._fd).st_size

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` from `offset` on; answers the number of bytes, fewer only where the file ends."""
        done = 0
        while done < len(buffer):
            try:
                n = os.preadv(self._fd, [buffer[done:]], offset + done)
            except OSError as why:
                raise cannot_read(self.path, why, offset + done) from None
            self._counters.requests += 1
            self._counters.bytes += n
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
        places: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
    ) -> int:
        """native_io.gather() from this file: how many of the offsets were read."""
        try:
            count, size, requests = gather(self._fd, offsets, sizes, buffer, places, lengths, slack=_SLACK)
        except OSError as why:
            raise cannot_read(self.path, why) from None
        self._counters.requests += requests
        self._counters.bytes += size
        return count

    def data_end(self) -> int:
        """Where the last data ends; behind it there is only a hole."""
        end = 0
        for _, end in self.extents(0, self.size):  # noqa: B007
            pass
        return end

    def extents(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The parts of [start, stop) that are not holes: store files are sparse, and a hole holds nothing but zeros."""
        while start < stop:
            try:
                start = os.lseek(self._fd, start, os.SEEK_DATA)
                end = os.lseek(self._fd, start, os.SEEK_HOLE)
            except OSError as why:
                if why.errno != errno.ENXIO:  # ENXIO: no data behind start
                    yield start, stop  # a file system that knows no holes
                return
            if start >= stop:
                return
            yield start, min(end, stop)
            start = end


def cannot_read(path: str, why: OSError, offset: int | None = None) -> RmqStoreError:
    """The error for a file or directory that the system refuses."""
    where = path if offset is None else f"{path}: position {offset}"
    if isinstance(why, PermissionError):
        return RmqStoreError(f"{where}: permission denied; run as a user who may read the store")
    if isinstance(why, FileNotFoundError):
        return DamagedStoreError(
            f"{where}: the file is gone; a broker deletes expired segments while it runs: load the store again, "
            "or read a copy or a snapshot of it"
        )
    if isinstance(why, NotADirectoryError):
        return NotAStoreError(f"{where}: not a directory; give the broker's store directory")
    return RmqStoreError(f"{where}: cannot be read: {why.strerror or why}")
