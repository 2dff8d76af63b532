"""ConsumeQueue files: units in, files out, as ConsumeQueue.putMessagePositionInfo writes them."""

import os
import stat
from collections.abc import Callable, Mapping

import numpy as np

from native_io import FORMAT
from rmqstore_spark.errors import DamagedStoreError, RmqStoreError
from rmqstore_spark.store.structures.layout import name_of, queue_path
from rmqstore_spark.store.format.queue_block import PRE_BLANK, UNIT_SIZE, QueueBlock, lost_unit
from rmqstore_spark.write.fs import disk
from rmqstore_spark.write.fs.new_file import NewFile, closed_if_it_fails

_LOST_AT_ONCE = 64 * 1024  # units
_MOST_PENDING = 64 * 1024 * 1024

Queue = tuple[str, int]  # topic, queueId


class _Tail:
    """The end of a queue: units that are not written yet; `start`, the byte offset in the queue where they go; and
    `last`, the unit of the queue's last message, empty where there is none."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.pending = bytearray()
        self.last = bytearray()

    @property
    def position(self) -> int:
        """The physical offset of the queue's last message; -1 where there is none."""
        return QueueBlock.of(self.last)[0].position if self.last else -1

    @property
    def next_offset(self) -> int:
        return (self.start + len(self.pending)) // UNIT_SIZE


class QueueWriter:
    """Puts units into ConsumeQueue files.

    Large because the fields are the arguments, the end of each queue, and the files made, which rebuild and the
    checkpoint ask for.

    Args:
        tree: the tree that holds all of these files.
        directory: the store's ConsumeQueue, to go on with; None to begin all queues anew.
        new: where changed and new files are made.
        file_size: bytes of each file.
        go_on: the queue offsets at which the queues in `directory` go on.
    """

    def __init__(
        self, tree: disk.Tree, directory: str | None, new: str, file_size: int, go_on: dict[Queue, int]
    ) -> None:
        self._tree = tree
        self._directory = directory
        self._new = new
        self._file_size = file_size
        self._go_on = go_on
        self._tails: dict[Queue, _Tail] = {}
        self._pending = 0
        self._made: dict[str, tuple[int, int]] = {}  # each file that was made
        self._last_units: dict[str, bytes] = {}  # the last unit of each of these files

    def put(self, queue: Queue, queue_offset: int, units: memoryview, lost: bytes | None = None) -> int:
        """Put units into a queue, in the order of the log; their queueOffsets begin with `queue_offset` and have no
        gap.

        A broker puts a unit at its queue's end, except a unit whose queueOffset is below that end and not 0: the queue
        has that unit already.

        Args:
            lost: the unit to put into the queue for each message that is missing before these.

        Returns:
            The number of units that the queue has got.

        Raises:
            DamagedStoreError: the store has files of this queue that the commitlog does not confirm.
        """
        tail = self._tails.get(queue)
        if tail is None:
            tail = self._tails[queue] = self._begin(queue, queue_offset)
        if lost is not None and tail.next_offset < queue_offset:
            self._append_lost(tail, lost, queue_offset - tail.next_offset)
        taken = 0
        if 0 < queue_offset < tail.next_offset:
            units = units[(tail.next_offset - queue_offset) * UNIT_SIZE :]
        elif queue_offset == 0 < tail.next_offset:
            self._append(tail, units[:UNIT_SIZE])
            units = units[tail.next_offset * UNIT_SIZE :]
            taken += 1
        taken += len(units) // UNIT_SIZE
        self._append(tail, units)
        if taken:
            tail.last = tail.pending[-UNIT_SIZE:]
        if self._pending > _MOST_PENDING:
            self._flush()
        return taken

    @property
    def ends(self) -> dict[Queue, int]:
        """The next queue offset of each queue that units were put into."""
        return {queue: tail.next_offset for queue, tail in self._tails.items()}

    def begin_at(self, queue: Queue, queue_offset: int, expired: bytes) -> None:
        """Let a queue without messages go on at an offset: it gets units of expired messages before that offset, as
        many as its last file has."""
        if queue_offset == 0:
            return
        units = (queue_offset - 1) % (self._file_size // UNIT_SIZE) + 1
        tail = self._tails[queue] = self._begin(queue, queue_offset - units)
        self._append_lost(tail, expired, units)

    def go_on_at(self, ends: Mapping[Queue, int], segment: int, nbytes: int) -> None:
        """Let queues go on at offsets after those of their last messages, because the messages between are lost. This
        is possible only where another queue has a message in a later segment: at the log's end a broker would drop the
        units.

        Args:
            segment: bytes of a segment.
            nbytes: bytes of the log. No more messages can be lost than would have had space in it.
        """
        most = (nbytes + segment) // FORMAT["SMALLEST_UNIT"]
        newest = max((tail.position for tail in self._tails.values()), default=-1)
        start = newest - newest % segment
        for queue, end in ends.items():
            tail = self._tails.get(queue)
            if tail is not None and 0 <= tail.position < start and 0 < end - tail.next_offset <= most:
                most -= end - tail.next_offset
                self._append_lost(tail, lost_unit(start), end - tail.next_offset)

    def finish(self, store_timestamp: Callable[[int], int]) -> None:
        """Write everything to disk.

        Args:
            store_timestamp: the store time (ms) of the message at a physical offset. Old brokers search a queue by the
                modification times of its files, so each file gets the store time of its last message.
        """

        def set_time(file: NewFile) -> None:
            last = QueueBlock.of(self._last_units[file.path])[0]
            if last.is_message:
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

    def _append_lost(self, tail: _Tail, lost: bytes, count: int) -> None:
        while count:
            some = min(count, _LOST_AT_ONCE)
            self._append(tail, memoryview(lost * some))
            count -= some
            if self._pending > _MOST_PENDING:
                self._flush()

    def _append(self, tail: _Tail, units: memoryview) -> None:
        tail.pending += units
        self._pending += len(units)

    def _begin(self, queue: Queue, queue_offset: int) -> _Tail:
        directory = self._path(self._directory, queue) if self._directory is not None else None
        if directory is not None and queue not in self._go_on and self._tree.find(directory) is not None:
            self._refuse_units(directory)
        return _Tail(self._go_on.get(queue, queue_offset) * UNIT_SIZE)

    def _refuse_units(self, directory: str) -> None:
        self._tree.refuse_other_than(directory, stat.S_ISDIR, "a directory")
        if self._tree.names(directory):
            raise DamagedStoreError(
                f"{directory}: expected units that the commitlog confirms, found others; "
                "call rmqstore_spark.rebuild(store) first"
            )

    def _path(self, top: str, queue: Queue) -> str:
        path = queue_path(*queue)
        if path is None:  # rows are checked when they are encoded, so it comes from a staged file
            raise RmqStoreError(
                f"{top}: a staged message was changed: it is for queue {queue[1]} of topic {queue[0]!r}"
            )
        return os.path.join(top, path)

    def _flush(self, last: Callable[[NewFile], None] | None = None) -> set[str]:
        """Write the pending units.

        Args:
            last: is called with each file after that.

        Returns:
            The files that were written to.
        """
        written = set()
        for queue, tail in sorted(self._tails.items()):  # so that directories are made and left one after the other
            while tail.pending:
                inside = tail.start % self._file_size
                part = bytes(tail.pending[: self._file_size - inside])
                with self._open(queue, tail.start - inside, inside) as file:
                    file.write(part, inside)
                    self._last_units[file.path] = _last_used(part)
                    if last is not None:
                        last(file)
                written.add(file.path)
                del tail.pending[: len(part)]
                tail.start += len(part)
        self._pending = 0
        return written

    def _open(self, queue: Queue, start: int, inside: int) -> NewFile:
        path = os.path.join(self._path(self._new, queue), name_of(start))
        made = self._made.get(path)
        return self._tree.reopen(path, made) if made else self._make(path, queue, start, inside)

    def _make(self, path: str, queue: Queue, start: int, inside: int) -> NewFile:
        self._tree.make_directory(os.path.dirname(path))
        file = self._tree.new_file(path, self._file_size)
        self._made[path] = file.identity
        if inside:
            before = os.path.join(self._path(self._directory, queue), name_of(start)) if self._directory else None
            with closed_if_it_fails(file):
                if before is not None and self._tree.find(before) is not None:
                    file.copy_from(self._tree, before, inside)
                else:
                    file.write(PRE_BLANK * (inside // UNIT_SIZE), 0)
        return file


def _last_used(units: bytes) -> bytes:
    """The last unit that stands for a message; the first one if none does."""
    last = units[-UNIT_SIZE:]
    if QueueBlock.of(last)[0].is_message:
        return last
    used = np.flatnonzero(QueueBlock.of(units).are_messages)  # millions may be lost
    at = UNIT_SIZE * int(used[-1]) if len(used) else 0
    return units[at : at + UNIT_SIZE]
