"""Temporary files, in which waits what is more than IN_MEMORY. They have no name and are gone when the process ends,
however it ends, and lie where Python puts temporary files: in $TMPDIR, else in /tmp."""

import contextlib
import os
import tempfile
import weakref
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rmqstore_spark.errors import StorageError

IN_MEMORY = 8 * 1024 * 1024  # bytes


class Column:
    """Numbers of one type, one after the other. First all are added, then they are read. Where they are many they are
    in a file, of which no more is read than is asked for."""

    def __init__(self, dtype: npt.DTypeLike, values: npt.NDArray[Any] | None = None) -> None:
        self._dtype = np.dtype(dtype)
        self._memory = bytearray()  # which grows in its place, so that nothing is there twice
        self._file: IO[bytes] | None = None
        self._count = 0
        if values is not None:
            self.add(values)

    def __len__(self) -> int:
        return self._count

    @property
    def is_in_memory(self) -> bool:
        """Whether no file is read for these numbers."""
        return self._file is None

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add numbers at the end.

        Raises:
            StorageError: there is no room for temporary files.
        """
        data = values.astype(self._dtype).tobytes()
        self._count += len(values)
        if self._file is None and len(self._memory) + len(data) > IN_MEMORY:
            self._file = temporary_file()
            weakref.finalize(self, close, self._file)
            data, self._memory = bytes(self._memory) + data, bytearray()
        if self._file is None:
            self._memory += data
            return
        with no_room_named():
            self._file.write(data)
            self._file.flush()

    def __getitem__(self, which: slice) -> npt.NDArray[Any]:
        """Numbers side by side."""
        start, stop, _ = which.indices(self._count)
        count, size = max(0, stop - start), self._dtype.itemsize
        if self._file is None:
            return np.frombuffer(self._memory, self._dtype, count, start * size if count else 0)
        return np.frombuffer(os.pread(self._file.fileno(), count * size, start * size), self._dtype)


def spooled(owner: object) -> IO[bytes]:
    """A file that is in memory up to IN_MEMORY, and is gone with its owner."""
    file: IO[bytes] = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115
    weakref.finalize(owner, close, file)
    return file


def temporary_file() -> IO[bytes]:
    """A file that the caller closes.

    Raises:
        StorageError: there is no room.
    """
    with no_room_named():
        return tempfile.TemporaryFile()


def close(file: IO[bytes]) -> None:
    """Close a file, whatever becomes of what it had."""
    with contextlib.suppress(OSError):  # of what could not be written, as has been said
        file.close()


@contextlib.contextmanager
def no_room_named() -> Iterator[None]:
    """What an operating system says of temporary files, in our words."""
    try:
        yield
    except OSError as why:
        raise StorageError(
            f"no room for temporary files: {why.strerror or why}; what is more than {IN_MEMORY >> 20} MiB waits there: "
            "set TMPDIR to a directory that has room for it"
        ) from None
