"""Commitlog segments: placed units in, a whole new commitlog directory out, or a stretch of the last segment."""

import contextlib
import mmap
import os
import struct
from collections import deque

import numpy as np
import numpy.typing as npt

from native_io import FORMAT
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.files import Files, ReadFile
from rmqstore_spark.store.layout import name_of
from rmqstore_spark.store.message import MARK_SIZE, Mark, mark_of, store_time_in
from rmqstore_spark.write import disk
from rmqstore_spark.write.background import Lane
from rmqstore_spark.write.new_file import BLOCK, NewFile, closed_if_it_fails
from rmqstore_spark.write.staging import CHUNK_SIZE
from rmqstore_spark.write.stretch import Stretch, digest_of
from rmqstore_spark.write.target import Target

_IN_FLIGHT = 2
_BLANK = struct.Struct(">ii")
_AROUND = BLOCK + _BLANK.size  # bytes before and after the units of a chunk

_Buffer = npt.NDArray[np.uint8]


class _Chunk:
    """Memory for some units, in which they are placed and from which they go to disk.

        | rest of the last chunk | units ...                | space for a blank |
        ^ a block of the file begins        ^ and here the last whole one ends

    What comes after the last whole block is the next chunk's rest, as disks want whole blocks.

    Args:
        memory: begins at a page.
        begin: where in it the units are to be; a guess, if the segment may end before this chunk is placed.
        nbytes: of units.
    """

    def __init__(self, memory: _Buffer, begin: int, nbytes: int) -> None:
        self.memory = memory
        self.begin = begin
        self.nbytes = nbytes

    @property
    def units(self) -> memoryview:
        """The units."""
        return self.memory.data[self.begin : self.begin + self.nbytes]

    def join(self, rest: bytes) -> memoryview:
        """Put the rest of the last chunk before the units, which are moved if the guess was wrong."""
        if self.begin != len(rest):
            moved = bytes(self.units)
            self.begin = len(rest)
            self.units[:] = moved
        self.memory[: len(rest)] = np.frombuffer(rest, np.uint8)
        return self.units


class LogWriter:
    """Writes a commitlog that goes on where a store's ends. The segments that stay as they are, are linked.

    A context manager. Three things go on at once: one chunk is read into, the one before it is placed, and those before
    that are on their way to disk. Chunks are used again in turn.

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
        self._file: NewFile | None = None
        self._ended: deque[NewFile] = deque(maxlen=_IN_FLIGHT)  # those before, which may still be on their way
        self._file_position = 0  # where in the file the chunk goes that is placed now: a whole number of blocks
        self._rest = b""  # what of the last chunk was no whole block
        self._begin = 0  # how long the rest will be when the next chunk is placed, if the segment does not end before
        self._memories = deque(_buffer(CHUNK_SIZE + _AROUND) for _ in range(_IN_FLIGHT + 2))  # the oldest first
        self._waiting: deque[_Chunk] = deque()
        self._placed = _Chunk(_buffer(0), 0, 0)
        self._lane = Lane(_IN_FLIGHT)

    def __enter__(self) -> "LogWriter":
        self._lane.__enter__()
        with closed_if_it_fails(self):
            self._take_over()
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        self._lane.__exit__(failed)
        for file in self._ended:
            file.close()
        if self._file is not None:
            self._file.close()

    def chunk(self, nbytes: int) -> memoryview:
        """Memory to read units into. Of two chunks the first must have been taken and put() before a third is asked
        for."""
        memory = self._memories.popleft()  # put() has waited until it is on disk
        if len(memory) < nbytes + _AROUND:
            memory = _buffer(nbytes + _AROUND)
        self._memories.append(memory)
        chunk = _Chunk(memory, self._begin, nbytes)
        self._begin = (self._begin + nbytes) % BLOCK
        self._waiting.append(chunk)
        return chunk.units

    def take(self) -> memoryview:
        """The units of the oldest chunk, to be placed. Then put() or end_segment() is told."""
        self._placed = self._waiting.popleft()
        return self._placed.join(self._rest)

    def put(self, position: int, nbytes: int) -> None:
        """All units of the chunk are placed, from `position` on. They do not reach over a segment's end."""
        end = self._placed.begin + nbytes
        whole = end - end % BLOCK
        self._rest = self._placed.memory[whole:end].tobytes()
        self._lane.submit(_store, self._open(position), self._placed.memory[:whole], self._file_position)
        self._file_position += whole

    def end_segment(self, position: int, nbytes: int) -> memoryview:
        """Some units of the chunk are placed, from `position` on, and after them the segment ends with a blank.

        Args:
            nbytes: how many bytes of units.

        Returns:
            the other units of the chunk, to be placed.
        """
        file, chunk = self._open(position), self._placed
        end = chunk.begin + nbytes
        others = _Chunk(_buffer(chunk.nbytes - nbytes + _BLANK.size), 0, chunk.nbytes - nbytes)
        others.units[:] = chunk.units[nbytes:]
        blank = _BLANK.pack(self._size - (self._file_position + end), FORMAT["MAGIC_BLANK"])
        chunk.memory[end : end + _BLANK.size] = np.frombuffer(blank, np.uint8)
        self._end_file(file, chunk.memory[: end + _BLANK.size])
        self._begin = (self._begin - end) % BLOCK
        self._placed = others
        return others.units

    def finish(self) -> None:
        """Bring all of it to disk."""
        if self._file is not None:
            self._end_file(self._file, np.frombuffer(self._rest, np.uint8))
        self._lane.wait()

    def reader(self) -> "LogReader":
        """Reads single facts of what is on disk."""
        return LogReader(self._tree, self._new, self._size)

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
        self._begin = size % BLOCK
        self._file_position = size - self._begin
        self._rest = self._file.read(self._file_position, self._begin)

    def _open(self, position: int) -> NewFile:
        if self._file is None:
            self._file = self._tree.new_file(self._path(position - position % self._size), self._size)
        return self._file

    def _end_file(self, file: NewFile, data: _Buffer) -> None:
        self._lane.submit(_store, file, data, self._file_position, True)
        self._ended.append(file)
        self._file = None
        self._file_position, self._rest = 0, b""

    def _path(self, start: int) -> str:
        return _segment_path(self._new, start)


def _buffer(size: int) -> _Buffer:
    return np.frombuffer(mmap.mmap(-1, size or 1), np.uint8)  # begins at a page, as direct I/O wants it


def _store(file: NewFile, data: _Buffer, offset: int, is_last: bool = False) -> None:
    whole = len(data) - len(data) % BLOCK
    if whole:
        file.write_blocks(data[:whole], offset)
    if whole < len(data):
        file.write(data[whole:], offset + whole)
    if is_last:
        file.sync()
        file.close()


class StretchWriter:
    """Holds placed units until they are published. It is used as a LogWriter is.

    Args:
        target: the store.
        nbytes: of units.
    """

    def __init__(self, target: Target, nbytes: int) -> None:
        self._target = target
        self._read = 0
        self.units = memoryview(bytearray(nbytes))
        self._chunks: list[memoryview] = []

    def __enter__(self) -> "StretchWriter":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def chunk(self, nbytes: int) -> memoryview:
        """Memory to read units into."""
        self._chunks.append(self.units[self._read : self._read + nbytes])
        self._read += nbytes
        return self._chunks[-1]

    def take(self) -> memoryview:
        """The units of the oldest chunk, to be placed."""
        return self._chunks.pop(0)

    def put(self, position: int, nbytes: int) -> None:
        """All units of the chunk are placed."""

    def end_segment(self, position: int, nbytes: int) -> memoryview:
        """The segment would end before the units do.

        Raises:
            RmqStoreError: always. It was asked before whether they fit.
        """
        raise RmqStoreError(
            f"{self._target.root}: a staged message was changed: expected units of {len(self.units)} bytes in all"
        )

    def finish(self) -> None:
        """All units are here. They come to disk when they are published."""

    def reader(self) -> "StretchWriter":
        """Reads single facts of what is here."""
        return self

    def store_timestamp(self, position: int) -> int:
        """The store time (ms) of the new message at a physical offset."""
        found = store_time_in(bytes(self.units[position - self._target.end :][: FORMAT["SMALLEST_UNIT"]]))
        assert found is not None
        return found

    def mark(self, position: int) -> Mark | None:
        """The mark of the new message at a physical offset; None where none is there."""
        at = position - self._target.end
        return mark_of(bytes(self.units[at : at + MARK_SIZE]), position) if at >= 0 else None

    @property
    def stretch(self) -> Stretch:
        """Where the units go."""
        return Stretch(
            segment=self._target.segments[-1].start,
            segment_size=self._target.sizes.segment,
            start=self._target.end,
            size=len(self.units),
            head=bytes(self.units[: _BLANK.size]).hex(),
            digest=digest_of(self.units),
        )


class LogReader:
    """Single facts of a commitlog directory that is known to be sound. A context manager."""

    def __init__(self, files: Files, directory: str, segment_size: int) -> None:
        self._files = files
        self._directory = directory
        self._size = segment_size
        self._start = -1
        self._segment = contextlib.ExitStack()

    def __enter__(self) -> "LogReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._segment.close()

    def store_timestamp(self, position: int) -> int:
        """The store time (ms) of the message at a physical offset."""
        found = store_time_in(self._read(position))
        assert found is not None
        return found

    def mark(self, position: int) -> Mark | None:
        """The mark of the message at a physical offset; None where none is there."""
        return mark_of(self._read(position), position) if position >= 0 else None

    def _read(self, position: int) -> bytes:
        start = position - position % self._size
        if start != self._start:  # most queues end where the log does
            self._segment.close()
            self._file = self._segment.enter_context(ReadFile(_segment_path(self._directory, start), self._files))
            self._start = start
        return self._file.read(position - start, FORMAT["SMALLEST_UNIT"])


def _segment_path(directory: str, start: int) -> str:
    return os.path.join(directory, name_of(start))
