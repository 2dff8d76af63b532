"""Messages as they stand in a log: the bytes of their units, some after the other."""

import bisect
import contextlib

import numpy as np

from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.store.segments import Segment
from rmqstore_spark.store.units import Positions


class StoredUnits:
    """Reads units whose physical offsets and sizes are known. A context manager; one thread at a time."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._segments = store.segments
        self._starts = [segment.start for segment in self._segments]
        self._segment: Segment | None = None
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> "StoredUnits":
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def read_into(self, memory: memoryview, positions: Positions, sizes: Positions) -> None:
        """Put units into memory, back to back.

        Args:
            memory: as large as all of them.
            positions: their physical offsets, which ascend.
            sizes: of each.

        Raises:
            DamagedStoreError: a file has become shorter.
        """
        ends = positions + sizes
        firsts = np.flatnonzero(np.concatenate([[True], positions[1:] != ends[:-1]]))
        lasts = np.append(firsts[1:], len(positions)) - 1
        at = 0
        for start, end in zip(positions[firsts].tolist(), ends[lasts].tolist(), strict=True):
            self._read(memory[at : at + end - start], start)
            at += end - start

    def _read(self, memory: memoryview, position: int) -> None:
        segment = self._segments[bisect.bisect_right(self._starts, position) - 1]
        if segment is not self._segment:
            self._opened.close()
            self._file = self._opened.enter_context(self._store.files.file(segment.path, is_log=True, pin=segment.pin))
            self._segment = segment
        if self._file.read_into(memory, position - segment.start) != len(memory):
            raise DamagedStoreError(
                f"{segment.path}: position {position - segment.start} (commitLogOffset {position}): expected "
                f"{len(memory)} bytes of messages, found the end of the file: it has become shorter"
            )
