"""Staged units: the tasks of a write encode them before the places in the log are known.

A staged file has units back to back, and beside it is a file `.sizes` with the size of each unit as an i32 in the
machine's byte order. Values that only the commit knows are 0 in a staged unit: physicalOffset, queueOffset, and the
storeTimestamp where the row gives none.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from native_io import FORMAT
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.format.by_queue import Integers
from rmqstore_spark.store.io.files import ReadFile
from rmqstore_spark.write.build.config_from import Counts
from rmqstore_spark.write.fs import disk
from rmqstore_spark.write.fs.calls import RaceError
from rmqstore_spark.write.fs.new_file import closed_if_it_fails

_HELD = "held"
_ROOT_IS_MADE = "made-the-store"
CHUNK_SIZE = 4 * 1024 * 1024
_SIZE = np.dtype(np.int32)
_SIZES_AT_ONCE = 256 * 1024

UnitSizes = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Staged:
    """A task's file.

    Attributes:
        path: the file of the units.
        nbytes: bytes of all units together.
        rows: the number of units.
        topics: the topics of the units, with the number of queues that each needs.
        counts: the counts of the rows, with option configFrom.
    """

    path: str
    nbytes: int
    rows: int
    topics: dict[str, int] = field(default_factory=dict)
    counts: Counts | None = None


class Chunk(NamedTuple):
    """Whole units that are to be read.

    Attributes:
        sizes: bytes of each unit.
        read_into: reads the units into memory for all of them, given the physical offsets they get. Must be called
            once, before the next chunk is asked for.
        after_gap: whether a queue goes on in this chunk after lost messages, so that a segment must begin with it.
    """

    sizes: UnitSizes | Integers
    read_into: Callable[[memoryview, Integers], None]
    after_gap: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of all units together."""
        return int(self.sizes.sum(dtype=np.int64))


def unseen(directory: str) -> RmqStoreError:
    """The error of a task that cannot find the directory to stage in."""
    return RmqStoreError(
        f"{directory}: no such directory: the write was given up, or this executor ({socket.gethostname()}) does not "
        "see the driver's directories; write to a path that all of them share"
    )


class StagingWriter:
    """Writes a task's file. A context manager that deletes it when the task fails.

    Args:
        tree: the store.
        directory: the job's (workshop.staging). Not made here: a task that outlives its job must leave nothing behind.
        name: differs from the name of every other task and attempt.

    Raises:
        RmqStoreError: there is no such directory.
    """

    def __init__(self, tree: disk.Tree, directory: str, name: str) -> None:
        self._tree = tree
        if not tree.is_directory(directory):
            raise unseen(directory)
        self._path = os.path.join(directory, name)
        self._units = tree.new_file(self._path)
        with closed_if_it_fails(self._units):
            self._sizes = tree.new_file(_sizes_path(self._path))
        self._nbytes = self._rows = 0
        self._topics: dict[str, int] = {}

    def __enter__(self) -> "StagingWriter":
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        self._units.close()
        self._sizes.close()
        if failed is not None:
            self._tree.remove(self._path)
            self._tree.remove(_sizes_path(self._path))

    def write(self, units: Any, sizes: UnitSizes, topics: dict[str, int]) -> None:
        """Add units.

        units: bytes-like.
        sizes: bytes of each unit.
        topics: how many queues each of the units' topics needs.
        """
        self._units.write(units, self._nbytes)
        self._sizes.write(np.ascontiguousarray(sizes, _SIZE), self._rows * _SIZE.itemsize)
        self._nbytes += len(memoryview(units))
        self._rows += len(sizes)
        for topic, queues in topics.items():
            self._topics[topic] = max(queues, self._topics.get(topic, 0))

    def finish(self) -> Staged:
        """The finished staged file."""
        return Staged(self._path, self._nbytes, self._rows, self._topics)


def hold(tree: disk.Tree, made: str, directory: str) -> int:
    """Mark a job's directory as in use by this process, for as long as the descriptor is open.

    Only for a job of one process: a Spark job has several processes, and none of them lives as long as the job.

    Args:
        made: the name of the directory until it is held.

    Raises:
        RaceError: another process has thrown the directory away meanwhile.
    """
    path = os.path.join(made, _HELD)
    tree.make_lock(path, b"")
    fd = tree.lock(path)
    if fd is None:
        raise RaceError(f"{path}: locked: expected a file that was just made, found it in use by another process")
    with contextlib.ExitStack() as if_it_fails:
        if_it_fails.callback(os.close, fd)
        tree.rename(made, directory)
        if_it_fails.pop_all()
    return fd


def is_left(tree: disk.Tree, directory: str) -> bool:
    """Was a directory held by a process that has been killed?"""
    path = os.path.join(directory, _HELD)
    if tree.find(path) is None:
        return False
    fd = tree.lock(path)
    if fd is None:
        return False
    os.close(fd)
    return True


def tell_root_is_made(tree: disk.Tree, directory: str) -> None:
    """Note that a job has made the store's directory, for the process that ends the job, whichever it is."""
    tree.make_lock(os.path.join(directory, _ROOT_IS_MADE), b"")


def root_is_made(tree: disk.Tree, directory: str) -> bool:
    """Has the job made the store's directory?"""
    return tree.find(os.path.join(directory, _ROOT_IS_MADE)) is not None


def read_chunks(tree: disk.Tree, staged: Staged) -> Iterator[Chunk]:
    """The units of a file, in chunks of whole units of about CHUNK_SIZE bytes. The file is deleted afterwards: bytes
    that have not come to disk by then never have to.

    Raises:
        RmqStoreError: the file does not have what the task wrote.
    """
    at = rows = 0

    def read_into(memory: memoryview, _: Integers) -> None:
        if units.read_into(memory, at) != len(memory):
            raise _changed(staged)

    with ReadFile(staged.path, tree.files) as units, ReadFile(_sizes_path(staged.path), tree.files) as sizes_file:
        while rows < staged.rows:
            count = min(_SIZES_AT_ONCE, staged.rows - rows)
            sizes = np.frombuffer(sizes_file.read(rows * _SIZE.itemsize, count * _SIZE.itemsize), _SIZE)
            ends = at + np.cumsum(sizes, dtype=np.int64)
            if len(sizes) != count or sizes.min() < FORMAT["SMALLEST_UNIT"] or ends[-1] > staged.nbytes:
                raise _changed(staged)
            first = 0
            while first < count:
                after = max(int(np.searchsorted(ends, at + CHUNK_SIZE, "right")), first + 1)
                size = int(ends[after - 1]) - at
                yield Chunk(sizes[first:after], read_into)
                first, at = after, at + size
            rows += count
        if at != staged.nbytes or units.size != staged.nbytes:
            raise _changed(staged)
    tree.remove(staged.path)
    tree.remove(_sizes_path(staged.path))


def _sizes_path(path: str) -> str:
    return path + ".sizes"


def _changed(staged: Staged) -> RmqStoreError:
    return RmqStoreError(
        f"{staged.path}: expected the {staged.rows} messages that a task wrote there, found something else; "
        "the store's directory must be the same one on the driver and on all executors"
    )
