"""Messages as they are in a log: the bytes of their units, one after the other."""

import contextlib
import itertools
import os

import numpy as np

from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.store.format.units import Positions
from rmqstore_spark.store.io.files import OpenFile
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.layout import find_store
from rmqstore_spark.store.structures.proofs import hold
from rmqstore_spark.store.structures.segments import Segment, segments_of


class StoredUnits:
    """Reads units whose physical offsets and sizes are known. A context manager; one thread at a time.

    Args:
        store: its proofs must still hold whenever a segment is opened.
    """

    def __init__(self, store: Snapshot) -> None:
        self._store = store
        self._seen = [] if store.seen is None else [store.seen]
        self._segments = list(store.segments)
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
            memory: as large as all of the units.
            positions: the physical offsets of the units, ascending.
            sizes: bytes of each unit.

        Raises:
            DamagedStoreError: a file has become shorter.
            StorageError: the store has been replaced by another one.
        """
        last = self._segments[-1]
        if positions[-1] >= last.end and not last.of_queue:  # a read that was planned later knows of it
            self._segments += _begun_since(self._store, self._segments)
            self._starts = [segment.start for segment in self._segments]
        numbers = np.searchsorted(self._starts, positions, "right") - 1
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(positions)]
        at = 0
        for first, after in itertools.pairwise(bounds):
            segment = self._segments[int(numbers[first])]
            nbytes = int(sizes[first:after].sum())
            self._read(memory[at : at + nbytes], segment, positions[first:after] - segment.start, sizes[first:after])
            at += nbytes

    def _read(self, memory: memoryview, segment: Segment, offsets: Positions, sizes: Positions) -> None:
        """read_into() for the units of one segment.

        Args:
            offsets: the positions of the units in the segment's file.
        """
        file = self._open(segment)
        end = int(offsets[-1] + sizes[-1])
        is_remote = segment.pin is not None
        if is_remote and 2 * len(memory) < end - offsets[0]:  # most bytes between the units are not asked for
            starts, lengths = np.empty((2, len(offsets)), np.int64)
            count = file.gather(offsets, sizes.astype(np.int32), memory, starts, lengths)
            if count < len(offsets) or (lengths != sizes).any():
                raise _shorter(segment, end)
            return
        if is_remote:
            file.expect(int(offsets[0]), self._store.end - segment.start)
        firsts = np.flatnonzero(np.concatenate([[True], offsets[1:] != (offsets + sizes)[:-1]]))
        at = 0
        for start, nbytes in zip(offsets[firsts].tolist(), np.add.reduceat(sizes, firsts).tolist(), strict=True):
            part = memory[at : at + nbytes]
            if (_copied(file, part, start) if is_remote else file.read_into(part, start)) < nbytes:
                raise _shorter(segment, end)
            at += nbytes

    def _open(self, segment: Segment) -> OpenFile:
        if segment is not self._segment:
            self._opened.close()
            hold(self._seen, self._store.files)
            self._file = self._opened.enter_context(self._store.files.file(segment.path, is_log=True, pin=segment.pin))
            self._segment = segment
        return self._file


def _begun_since(store: Snapshot, segments: list[Segment]) -> list[Segment]:
    """The segments that a broker has begun since a store was listed."""
    directories = dict.fromkeys(os.path.dirname(segment.path) for segment in segments)
    found, _ = segments_of(find_store(store.root, [*directories], store.files).segments)
    return [segment for segment in found if segment.start > segments[-1].start]


def _copied(file: OpenFile, memory: memoryview, offset: int) -> int:
    """OpenFile.read_into() from bytes that were fetched ahead."""
    data = file.load(offset, len(memory), lambda size: memory[:size])
    memory[: len(data)] = data
    return len(data)


def _shorter(segment: Segment, end: int) -> DamagedStoreError:
    return DamagedStoreError(
        f"{segment.path}: expected messages up to position {end} (commitLogOffset {segment.start + end}), found the "
        "end of the file: it has become shorter"
    )
