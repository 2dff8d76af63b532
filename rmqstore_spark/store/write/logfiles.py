"""Commitlog segments: placed units in, a whole new commitlog directory out."""

import os
import struct

from rmqstore_spark.store.files import Counters, ReadFile
from rmqstore_spark.store.message import FORMAT, store_timestamp_at
from rmqstore_spark.store.write import disk
from rmqstore_spark.store.write.target import Target

_DIRTY_SIZE = 32 * 1024 * 1024
_BLANK = struct.Struct(">ii")
_SYS_FLAG = struct.Struct(">i")
_TIME = struct.Struct(">q")


class LogWriter:
    """Writes a commitlog that goes on where a store's ends. The segments that stay as they are, are linked.

    Args:
        target: the store.
        new: where the commitlog directory is made.

    """

    def __init__(self, target: Target, new: str) -> None:
        self._new = new
        self._size = target.sizes.segment
        self._file: disk.NewFile | None = None
        self._dirty = 0  # bytes behind which nothing has been sent to disk yet
        disk.make_directory(new)
        for segment in target.segments:
            path = self._path(segment.start)
            if segment.start <= target.end < segment.end:
                self._file = disk.NewFile(path, self._size)
                self._file.copy_from(segment.path, target.end - segment.start)
            else:
                disk.link(segment.path, path)

    def write(self, position: int, units: memoryview) -> None:
        """Put units, which do not reach over a segment's end, behind those before."""
        start = position - position % self._size
        if self._file is None:
            self._file = disk.NewFile(self._path(start), self._size)
        self._file.write(units, position - start)
        self._dirty += len(units)
        if self._dirty >= _DIRTY_SIZE:
            self._file.start_sync(position - start + len(units) - self._dirty, self._dirty)
            self._dirty = 0

    def end_segment(self, position: int) -> None:
        """Close the segment with a blank."""
        assert self._file is not None
        inside = position % self._size
        self._file.write(_BLANK.pack(self._size - inside, FORMAT["MAGIC_BLANK"]), inside)
        self.finish()

    def finish(self) -> None:
        """Bring the segment to disk."""
        if self._file is not None:
            self._file.sync()
            self._file.__exit__()
            self._file = None
            self._dirty = 0

    def _path(self, start: int) -> str:
        return _segment_path(self._new, start)


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
