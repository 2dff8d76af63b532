"""Commitlog segments from placed units: a whole new commitlog directory, or a stretch of the last segment."""

import contextlib
import mmap
import os
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native_io import FORMAT
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.format.message import MARK_SIZE, Mark, mark_of, store_time_in
from rmqstore_spark.store.io.files import Files, ReadFile
from rmqstore_spark.store.structures.layout import name_of
from rmqstore_spark.write.build.staging import CHUNK_SIZE
from rmqstore_spark.write.build.stretch import InPlaceAppend, digest_of
from rmqstore_spark.write.build.target import Target
from rmqstore_spark.write.fs import disk
from rmqstore_spark.write.fs.background import Lane
from rmqstore_spark.write.fs.new_file import BLOCK, NewFile, closed_if_it_fails

_IN_FLIGHT = 4  # two for each space: the write, and the release of its memory after that
_BLANK = struct.Struct(">ii")

_Buffer = npt.NDArray[np.uint8]


class Run(NamedTuple):
    """Units that stand back to back in one segment: the physical offset of the first unit, and the bytes of all."""

    position: int
    nbytes: int


@dataclass(frozen=True)
class Space:
    """Memory for the units of a chunk: units are read into it, placed in it, and written from it to disk.

        | rest of the units before | units ...                |
        ^ a block of the file begins            ^ the last whole block ends

    The bytes after the last whole block are written with the next units, as direct I/O takes whole blocks only.

    Attributes:
        runs: where in the log the units go; between two runs a segment ends.
        memory: begins at a page.
        begin: the position of the units in memory.
    """

    runs: Sequence[Run]
    memory: _Buffer
    begin: int

    @property
    def units(self) -> memoryview:
        """The units."""
        return self.memory.data[self.begin : self.begin + sum(run.nbytes for run in self.runs)]


class LogWriter:
    """Writes a commitlog that goes on where a store's ends. Segments that do not change are linked.

    A context manager. The caller asks for space for the units that come next in the log, reads and places them there,
    and has the space written; spaces are written in the order of the log. Meanwhile earlier spaces are on their way to
    disk.

    Large because the fields are where files are made, how far log and file have come, and what is on its way to disk.

    Args:
        tree: the tree that holds all of these files.
        target: the store.
        new: where the commitlog directory is made.
    """

    def __init__(self, tree: disk.Tree, target: Target, new: str) -> None:
        self._tree = tree
        self._target = target
        self._new = new
        self._size = target.sizes.segment
        self._file: NewFile | None = None
        self._ended: deque[NewFile] = deque(maxlen=_IN_FLIGHT)  # earlier segments, which may still be on their way
        self._end = target.end  # the physical offset after the units that were handed over to be written
        self._file_position = 0  # bytes of the file that were handed over to be written: a whole number of blocks
        self._rest = b""  # the bytes of the last units after the last whole block
        self._free: deque[_Buffer] = deque()  # memory of spaces that are on disk
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

    def space(self, runs: Sequence[Run]) -> Space:
        """Memory for units that go to these places."""
        begin = runs[0].position % self._size % BLOCK
        size = begin + sum(run.nbytes for run in runs)
        memory = self._free.popleft() if self._free else _buffer(max(size, BLOCK + CHUNK_SIZE))
        return Space(runs, memory if len(memory) >= size else _buffer(size), begin)

    def write(self, space: Space) -> None:
        """Write placed units, which come next in the log, to disk."""
        memory, begin, after = space.memory, space.begin, space.begin + space.runs[0].nbytes
        self._put(space.runs[0], memory, begin)
        for run in space.runs[1:]:
            own = _buffer(run.nbytes)  # the units begin a file, and so a block
            own[:] = memory[after : after + run.nbytes]
            self._put(run, own, 0)
            after += run.nbytes
        self._lane.submit(self._free.append, memory)

    def _put(self, run: Run, memory: _Buffer, begin: int) -> None:
        """Write the next units, which begin at `begin` in memory."""
        if run.position != self._end:
            self._end_segment()
        memory[:begin] = np.frombuffer(self._rest, np.uint8)
        end = begin + run.nbytes
        whole = end - end % BLOCK
        self._rest = memory[whole:end].tobytes()
        file = self._open(run.position)
        if whole:
            self._lane.submit(file.write_blocks, memory[:whole], self._file_position)
        self._file_position += whole
        self._end = run.position + run.nbytes

    def _end_segment(self) -> None:
        """End the segment with a blank."""
        data = _buffer(len(self._rest) + _BLANK.size)
        blank = _BLANK.pack(self._size - self._file_position - len(self._rest), FORMAT["MAGIC_BLANK"])
        data[:] = np.frombuffer(self._rest + blank, np.uint8)
        self._end_file(self._open(self._end), data)

    def finish(self) -> None:
        """Write everything that is left to disk."""
        if self._file is not None:
            self._end_file(self._file, np.frombuffer(self._rest, np.uint8))
        self._lane.wait()

    def reader(self) -> "LogReader":
        """A reader of single facts of the log on disk."""
        return LogReader(self._tree.files, self._new, self._size)

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
        self._file_position = size - size % BLOCK
        self._rest = self._file.read(self._file_position, size % BLOCK)

    def _open(self, position: int) -> NewFile:
        if self._file is None:
            self._file = self._tree.new_file(self._path(position - position % self._size), self._size)
        return self._file

    def _end_file(self, file: NewFile, data: _Buffer) -> None:
        self._lane.submit(_store_last, file, data, self._file_position)
        self._ended.append(file)
        self._file = None
        self._file_position, self._rest = 0, b""

    def _path(self, start: int) -> str:
        return _segment_path(self._new, start)


def _buffer(size: int) -> _Buffer:
    return np.frombuffer(mmap.mmap(-1, size or 1), np.uint8)  # begins at a page, as direct I/O wants it


def _store_last(file: NewFile, data: _Buffer, offset: int) -> None:
    """Write the last bytes of a file, and close it."""
    whole = len(data) - len(data) % BLOCK
    if whole:
        file.write_blocks(data[:whole], offset)
    if whole < len(data):
        file.write(data[whole:], offset + whole)
    file.sync()
    file.__exit__()


class InPlaceWriter:
    """Holds placed units in memory until they are published. Has the interface of a LogWriter.

    Args:
        target: the store.
        nbytes: bytes of all units.
    """

    def __init__(self, target: Target, nbytes: int) -> None:
        self._target = target
        self.units = memoryview(bytearray(nbytes))

    def __enter__(self) -> "InPlaceWriter":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def space(self, runs: Sequence[Run]) -> Space:
        """The memory in which the units for these places are held.

        Raises:
            RmqStoreError: the units do not fit, although that was checked before.
        """
        (run, *others), begin = runs, runs[0].position - self._target.end
        if others or begin + run.nbytes > len(self.units):
            raise RmqStoreError(
                f"{self._target.root}: a staged message was changed: expected units of {len(self.units)} bytes in all"
            )
        return Space(runs, np.frombuffer(self.units, np.uint8), begin)

    def write(self, space: Space) -> None:
        """Nothing: placed units are held already."""

    def finish(self) -> None:
        """Nothing: the units come to disk when they are published."""

    def reader(self) -> "InPlaceWriter":
        """A reader of single facts of the units held here."""
        return self

    def store_timestamp(self, position: int) -> int:
        """The store time (ms) of the new message at a physical offset."""
        found = store_time_in(bytes(self.units[position - self._target.end :][: FORMAT["SMALLEST_UNIT"]]))
        assert found is not None
        return found

    def mark(self, position: int) -> Mark | None:
        """The mark of the new message at a physical offset; None where there is none."""
        at = position - self._target.end
        return mark_of(bytes(self.units[at : at + MARK_SIZE]), position) if at >= 0 else None

    @property
    def stretch(self) -> InPlaceAppend:
        """The place in the log where the units go."""
        return InPlaceAppend(
            segment=self._target.segments[-1].start,
            segment_size=self._target.sizes.segment,
            start=self._target.end,
            size=len(self.units),
            head=bytes(self.units[: _BLANK.size]).hex(),
            digest=digest_of(self.units),
        )


class LogReader:
    """Reads single facts of a commitlog directory that is known to be sound. A context manager."""

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
        """The mark of the message at a physical offset; None where there is none."""
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
