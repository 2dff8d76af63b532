"""Commitlog segments: placed units in, a whole new commitlog directory out."""

import mmap
import os
import struct
from collections import deque

import numpy as np
import numpy.typing as npt

from rmqstore_spark.store.files import Counters, ReadFile
from rmqstore_spark.store.message import FORMAT, store_timestamp_at
from rmqstore_spark.store.write import disk
from rmqstore_spark.store.write.lanes import Lane
from rmqstore_spark.store.write.staging import CHUNK_SIZE
from rmqstore_spark.store.write.target import Target

_BUFFER_SIZE = CHUNK_SIZE + 2 * disk.BLOCK  # a chunk, and what is carried over to it
_IN_FLIGHT = 2
_BLANK = struct.Struct(">ii")
_SYS_FLAG = struct.Struct(">i")
_TIME = struct.Struct(">q")


class LogWriter:
    """Writes a commitlog that goes on where a store's ends. The segments that stay as they are, are linked.

    A context manager. Units are placed in one of its buffers, while those before are on their way to disk.

    Args:
        target: the store.
        new: where the commitlog directory is made.
    """

    def __init__(self, target: Target, new: str) -> None:
        self._new = new
        self._size = target.sizes.segment
        self._file: disk.NewFile | None = None
        self._ended: disk.NewFile | None = None  # that before, which may still be on its way
        self._begin = 0  # of the buffer in the file: whole blocks
        self._filled = 0
        self._buffers = deque(_buffer(_BUFFER_SIZE) for _ in range(_IN_FLIGHT + 1))  # the first one is being filled
        self._lane = Lane(_IN_FLIGHT)
        disk.make_directory(new)
        for segment in target.segments:
            path = self._path(segment.start)
            if segment.start <= target.end < segment.end:
                self._go_on(disk.NewFile(path, self._size), segment.path, target.end - segment.start)
            else:
                disk.link(segment.path, path)

    def __enter__(self) -> "LogWriter":
        self._lane.__enter__()
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        self._lane.__exit__(failed)
        for file in (self._ended, self._file):
            if file is not None:
                file.__exit__()

    def room(self, nbytes: int) -> memoryview:
        """Memory for units, behind those that are there. It is the caller's until put() or end_segment()."""
        if self._filled + nbytes + _BLANK.size > len(self._buffers[0]):
            larger = _buffer(self._filled + nbytes + _BLANK.size)
            larger[: self._filled] = self._buffers[0][: self._filled]
            self._buffers[0] = larger
        return self._buffers[0].data[self._filled : self._filled + nbytes]

    def put(self, position: int, nbytes: int) -> None:
        """So much of the room is taken, by units for this position. They do not reach over a segment's end."""
        file = self._open(position)
        self._filled += nbytes
        whole = self._filled - self._filled % disk.BLOCK
        if whole:
            carried = self._buffers[0][whole : self._filled]
            self._send(file, whole, is_last=False)
            self._buffers[0][: len(carried)] = carried
            self._begin += whole
            self._filled = len(carried)

    def end_segment(self, position: int, nbytes: int, rest: int) -> memoryview:
        """As put(), and the segment ends there, with a blank.

        Args:
            rest: how many bytes of units are behind those that are taken.

        Returns:
            room with these.
        """
        file = self._open(position)
        self._filled += nbytes
        end = self._filled
        moved = self._buffers[0][end : end + rest].copy()
        blank = _BLANK.pack(self._size - (self._begin + end), FORMAT["MAGIC_BLANK"])
        self._buffers[0][end : end + _BLANK.size] = np.frombuffer(blank, np.uint8)
        self._filled += _BLANK.size
        self._end_file(file)
        room = self.room(rest)
        np.frombuffer(room, np.uint8)[:] = moved
        return room

    def finish(self) -> None:
        """Bring all of it to disk."""
        if self._file is not None:
            self._end_file(self._file)
        self._lane.wait()

    def _go_on(self, file: disk.NewFile, source: str, size: int) -> None:
        file.copy_from(source, size)
        self._file = file
        self._filled = size % disk.BLOCK
        self._begin = size - self._filled
        self._buffers[0][: self._filled] = np.frombuffer(file.read(self._begin, self._filled), np.uint8)

    def _open(self, position: int) -> disk.NewFile:
        if self._file is None:
            self._file = disk.NewFile(self._path(position - position % self._size), self._size)
        return self._file

    def _end_file(self, file: disk.NewFile) -> None:
        self._send(file, self._filled, is_last=True)
        self._ended, self._file = file, None
        self._begin = self._filled = 0

    def _send(self, file: disk.NewFile, nbytes: int, *, is_last: bool) -> None:
        self._lane.submit(_store, file, self._buffers[0][:nbytes], self._begin, is_last)
        self._buffers.rotate(-1)  # submit() has waited for what was in the next one

    def _path(self, start: int) -> str:
        return _segment_path(self._new, start)


def _buffer(size: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(mmap.mmap(-1, size), np.uint8)  # begins at a page, as direct I/O wants it


def _store(file: disk.NewFile, data: npt.NDArray[np.uint8], offset: int, is_last: bool) -> None:
    whole = len(data) - len(data) % disk.BLOCK
    if whole:
        file.write_blocks(data[:whole], offset)
    if whole < len(data):
        file.write(data[whole:], offset + whole)
    if is_last:
        file.sync()
        file.__exit__()


class LogReader:
    """Single facts of a commitlog directory that is known to be sound."""

    def __init__(self, directory: str, segment_size: int) -> None:
        self._directory = directory
        self._size = segment_size

    def store_timestamp(self, position: int) -> int:
        """The store time (ms) of the message at a physical offset."""
        start = position - position % self._size
        with ReadFile(_segment_path(self._directory, start), Counters()) as file:
            head = file.read(position - start, store_timestamp_at(FORMAT["SYSFLAG_BORNHOST_V6"]) + _TIME.size)
        (sys_flag,) = _SYS_FLAG.unpack_from(head, FORMAT["AT_SYSFLAG"])
        return int(_TIME.unpack_from(head, store_timestamp_at(sys_flag))[0])


def _segment_path(directory: str, start: int) -> str:
    return os.path.join(directory, f"{start:020d}")
