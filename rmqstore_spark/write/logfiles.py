"""Commitlog segments: placed units in, a whole new commitlog directory out."""

import mmap
import os
import struct
from collections import deque

import numpy as np
import numpy.typing as npt

from native_io import FORMAT
from rmqstore_spark.store.files import Files, ReadFile
from rmqstore_spark.store.message import store_timestamp_at
from rmqstore_spark.write import disk
from rmqstore_spark.write.background import Lane
from rmqstore_spark.write.staging import CHUNK_SIZE
from rmqstore_spark.write.target import Target

_IN_FLIGHT = 2
_BLANK = struct.Struct(">ii")
_SYS_FLAG = struct.Struct(">i")
_TIME = struct.Struct(">q")

_Buffer = npt.NDArray[np.uint8]


class LogWriter:
    """Writes a commitlog that goes on where a store's ends. The segments that stay as they are, are linked.

    A context manager. Units are read into a room, and placed there when it is taken: while one room is being read into
    and another one is placed, those before are on their way to disk. That goes in whole blocks; what is behind the last
    of them is carried over to the next room, which has space for it before the units.

    Args:
        tree: where all of it is.
        target: the store.
        new: where the commitlog directory is made.
    """

    def __init__(self, tree: disk.Tree, target: Target, new: str) -> None:
        self._tree = tree
        self._target = target
        self._new = new
        self._size = target.sizes.segment
        self._file: disk.NewFile | None = None
        self._ended: deque[disk.NewFile] = deque(maxlen=_IN_FLIGHT)  # those before, which may still be on their way
        self._begin = 0  # where the taken room goes to in the file, with what is carried over
        self._carried = b""
        self._buffer = _buffer(0)  # that of the taken room
        self._rooms: deque[tuple[_Buffer, int, int]] = deque()  # those not taken yet: where units begin, how many bytes
        self._next_begin = 0  # where units will begin in the next one, if the segment does not end before
        self._ring = deque(_buffer(CHUNK_SIZE + disk.BLOCK + _BLANK.size) for _ in range(_IN_FLIGHT + 2))
        self._lane = Lane(_IN_FLIGHT)

    def __enter__(self) -> "LogWriter":
        self._lane.__enter__()
        with disk.closed_if_it_fails(self):
            self._take_over()
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        self._lane.__exit__(failed)
        for file in self._ended:
            file.__exit__()
        if self._file is not None:
            self._file.__exit__()

    def room(self, nbytes: int) -> memoryview:
        """Memory for units. One room more may be asked for than is taken and put()."""
        if len(self._ring[0]) < disk.BLOCK + nbytes + _BLANK.size:
            self._ring[0] = _buffer(disk.BLOCK + nbytes + _BLANK.size)
        buffer, begin = self._ring[0], self._next_begin
        self._ring.rotate(-1)  # the oldest comes next: put() has waited until it is on disk
        self._rooms.append((buffer, begin, nbytes))
        self._next_begin = (begin + nbytes) % disk.BLOCK
        return buffer.data[begin : begin + nbytes]

    def take(self) -> memoryview:
        """The oldest room's units, where they are to be placed. Then put() or end_segment() is told."""
        self._buffer, begin, nbytes = self._rooms.popleft()
        return self._behind_carried(self._buffer[begin : begin + nbytes])

    def put(self, position: int, nbytes: int) -> None:
        """All units are placed, from `position` on. They do not reach over a segment's end."""
        file = self._open(position)
        end = len(self._carried) + nbytes
        whole = end - end % disk.BLOCK
        self._carried = self._buffer[whole:end].tobytes()
        self._lane.submit(_store, file, self._buffer[:whole], self._begin)
        self._begin += whole

    def end_segment(self, position: int, nbytes: int, rest: int) -> memoryview:
        """Some units are placed, from `position` on, and behind them the segment ends with a blank.

        Args:
            nbytes: how many bytes of units.
            rest: how many there are behind them.

        Returns:
            the rest, where it is to be placed.
        """
        file = self._open(position)
        end = len(self._carried) + nbytes
        moved = self._buffer[end : end + rest].copy()
        blank = _BLANK.pack(self._size - (self._begin + end), FORMAT["MAGIC_BLANK"])
        self._buffer[end : end + _BLANK.size] = np.frombuffer(blank, np.uint8)
        self._end_file(file, self._buffer[: end + _BLANK.size])
        self._next_begin = (self._next_begin - end) % disk.BLOCK
        self._buffer = _buffer(rest + _BLANK.size)
        return self._behind_carried(moved)

    def finish(self) -> None:
        """Bring all of it to disk."""
        if self._file is not None:
            self._end_file(self._file, np.frombuffer(self._carried, np.uint8))
        self._lane.wait()

    def _take_over(self) -> None:
        self._tree.make_directory(self._new)
        for segment in self._target.segments:
            path = self._path(segment.start)
            if segment.start <= self._target.end < segment.end:
                self._go_on(path, segment.path, self._target.end - segment.start)
            else:
                self._tree.link(segment.path, path)

    def _go_on(self, path: str, source: str, size: int) -> None:
        self._file = self._tree.new_file(path, self._size)
        self._file.copy_from(self._tree, source, size)
        self._next_begin = size % disk.BLOCK
        self._begin = size - self._next_begin
        self._carried = self._file.read(self._begin, self._next_begin)

    def _open(self, position: int) -> disk.NewFile:
        if self._file is None:
            self._file = self._tree.new_file(self._path(position - position % self._size), self._size)
        return self._file

    def _behind_carried(self, units: _Buffer) -> memoryview:
        begin = len(self._carried)
        place = self._buffer[begin : begin + len(units)]
        if place.ctypes.data != units.ctypes.data:  # a segment ended since the room was given
            np.copyto(place, units.copy())
        self._buffer[:begin] = np.frombuffer(self._carried, np.uint8)
        return place.data

    def _end_file(self, file: disk.NewFile, data: _Buffer) -> None:
        self._lane.submit(_store, file, data, self._begin, True)
        self._ended.append(file)
        self._file = None
        self._begin, self._carried = 0, b""

    def _path(self, start: int) -> str:
        return _segment_path(self._new, start)


def _buffer(size: int) -> _Buffer:
    return np.frombuffer(mmap.mmap(-1, size or 1), np.uint8)  # begins at a page, as direct I/O wants it


def _store(file: disk.NewFile, data: _Buffer, offset: int, is_last: bool = False) -> None:
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

    def __init__(self, files: Files, directory: str, segment_size: int) -> None:
        self._files = files
        self._directory = directory
        self._size = segment_size

    def store_timestamp(self, position: int) -> int:
        """The store time (ms) of the message at a physical offset."""
        start = position - position % self._size
        with ReadFile(_segment_path(self._directory, start), self._files) as file:
            head = file.read(position - start, store_timestamp_at(FORMAT["SYSFLAG_BORNHOST_V6"]) + _TIME.size)
        (sys_flag,) = _SYS_FLAG.unpack_from(head, FORMAT["AT_SYSFLAG"])
        return int(_TIME.unpack_from(head, store_timestamp_at(sys_flag))[0])


def _segment_path(directory: str, start: int) -> str:
    return os.path.join(directory, f"{start:020d}")
