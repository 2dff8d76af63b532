"""The ends of queues, at which units are put into files: the same for simple queues and for those of BatchCQ topics."""

import os
from collections.abc import Callable

import numpy as np

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.format.queue_block import BATCH_UNIT_SIZE, PRE_BLANK, UNIT_SIZE, QueueBlock, QueueUnit
from rmqstore_spark.store.structures.layout import name_of, queue_path
from rmqstore_spark.write.fs import disk
from rmqstore_spark.write.fs.new_file import NewFile, closed_if_it_fails

_MOST_PENDING = 64 * 1024 * 1024

Queue = tuple[str, int]  # topic, queueId


class Tail:
    """The end of a queue: units that are not written yet; `start`, the byte offset in the queue where they go; and
    `last`, the unit of the queue's last message, empty where there is none.

    Args:
        unit_size: bytes of a unit.
    """

    def __init__(self, start: int, unit_size: int) -> None:
        self.start = start
        self.pending = bytearray()
        self.last = bytearray()
        self._unit_size = unit_size

    @property
    def position(self) -> int:
        """The physical offset of the queue's last message; -1 where there is none."""
        last = QueueUnit.of(self.last, 0, self._unit_size)
        return -1 if last is None else last.position

    @property
    def stop(self) -> int:
        """The number of the queue's next unit; in a simple queue that is the next queue offset."""
        return (self.start + len(self.pending)) // self._unit_size


class Tails:
    """The ends of all queues, and their files.

    Large because the fields are the arguments, the ends, and the files made, which finish() opens again.

    Args:
        tree: the tree that holds all of these files.
        directory: the store's queues, to go on with; None to begin all queues anew.
        new: where changed and new files are made.
        file_size: bytes of each file.
        is_batch: whether the queues are BatchCQs.

    Attributes:
        all: the end of each queue that begin() was called for.
    """

    def __init__(
        self, tree: disk.Tree, directory: str | None, new: str, file_size: int, *, is_batch: bool = False
    ) -> None:
        self._tree = tree
        self._directory = directory
        self._new = new
        self._file_size = file_size
        self._is_batch = is_batch
        self._unit_size = BATCH_UNIT_SIZE if is_batch else UNIT_SIZE
        self.all: dict[Queue, Tail] = {}
        self._pending = 0
        self._made: dict[str, tuple[int, int]] = {}  # each file that was made
        self._last_units: dict[str, bytes] = {}  # the last unit of each of these files

    def get(self, queue: Queue) -> Tail | None:
        """The end of a queue; None where begin() was not called for it."""
        return self.all.get(queue)

    def begin(self, queue: Queue, start: int) -> Tail:
        """Let a queue go on at a byte offset."""
        tail = self.all[queue] = Tail(start, self._unit_size)
        return tail

    def append(self, tail: Tail, units: bytes | memoryview) -> None:
        """Append units to a queue, in memory."""
        tail.pending += units
        self._pending += len(units)

    def write_if_many(self) -> None:
        """Write the pending units to files if there are many."""
        if self._pending > _MOST_PENDING:
            self._flush()

    def finish(self, store_timestamp: Callable[[int], int]) -> None:
        """Write everything to disk.

        Args:
            store_timestamp: the store time (ms) of the message at a physical offset. Old brokers search a queue by the
                modification times of its files, so each file gets the store time of its last message.
        """

        def set_time(file: NewFile) -> None:
            last = QueueUnit.of(self._last_units[file.path], 0, self._unit_size)
            if last is not None and last.is_message:
                file.set_time(store_timestamp(last.position))

        earlier = set(self._last_units)
        earlier -= self._flush(set_time)
        for path in sorted(earlier):
            with self._tree.reopen(path, self._made[path]) as file:
                set_time(file)

        def bring_to_disk(path: str) -> None:
            with self._tree.reopen(path, self._made[path]) as file:
                file.sync()

        if not self._tree.sync_all(len(self._made)):
            self._tree.for_each(list(self._made), bring_to_disk)

    def _flush(self, last: Callable[[NewFile], None] | None = None) -> set[str]:
        """Write the pending units.

        Args:
            last: is called with each file after that.

        Returns:
            The files that were written to.
        """
        written = set()
        for queue, tail in sorted(self.all.items()):  # so that directories are made and left one after the other
            while tail.pending:
                inside = tail.start % self._file_size
                part = bytes(tail.pending[: self._file_size - inside])
                with self._open(queue, tail.start - inside, inside) as file:
                    file.write(part, inside)
                    self._last_units[file.path] = self._last_used(part)
                    if last is not None:
                        last(file)
                written.add(file.path)
                del tail.pending[: len(part)]
                tail.start += len(part)
        self._pending = 0
        return written

    def _open(self, queue: Queue, start: int, inside: int) -> NewFile:
        path = os.path.join(path_of(self._new, queue), name_of(start))
        made = self._made.get(path)
        return self._tree.reopen(path, made) if made else self._make(path, queue, start, inside)

    def _make(self, path: str, queue: Queue, start: int, inside: int) -> NewFile:
        self._tree.make_directory(os.path.dirname(path))
        file = self._tree.new_file(path, self._file_size)
        with closed_if_it_fails(file):
            self._made[path] = file.identity
            if inside:
                before = os.path.join(path_of(self._directory, queue), name_of(start)) if self._directory else None
                if before is not None and self._tree.find(before) is not None:
                    file.copy_from(self._tree, before, inside)
                else:
                    file.write(PRE_BLANK * (inside // UNIT_SIZE), 0)
        return file

    def _last_used(self, units: bytes) -> bytes:
        """The last unit that stands for a message; the first one if none does."""
        last = units[-self._unit_size :]
        found = QueueUnit.of(last, 0, self._unit_size)
        if found is not None and found.is_message:
            return last
        used = np.flatnonzero(QueueBlock.of(units, is_batch=self._is_batch).are_messages)  # millions may be lost
        at = self._unit_size * int(used[-1]) if len(used) else 0
        return units[at : at + self._unit_size]


def path_of(top: str, queue: Queue) -> str:
    """The directory of a queue's files.

    Args:
        top: the directory of all queues.

    Raises:
        RmqStoreError: no file can have the name of such a queue.
    """
    path = queue_path(*queue)
    if path is None:  # rows are checked when they are encoded, so it comes from a staged file
        raise RmqStoreError(f"{top}: a staged message was changed: it is for queue {queue[1]} of topic {queue[0]!r}")
    return os.path.join(top, path)
