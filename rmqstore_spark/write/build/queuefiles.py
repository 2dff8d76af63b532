"""ConsumeQueue files: units in, files out, as ConsumeQueue.putMessagePositionInfo writes them."""

import stat
from collections.abc import Callable, Mapping

import numpy as np

from native_io import FORMAT
from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.store.format.queue_block import UNIT_SIZE, QueueBlock, lost_unit
from rmqstore_spark.store.format.system_topics import SCHEDULE_TOPIC
from rmqstore_spark.write.build.tails import Queue, Tail, Tails, path_of
from rmqstore_spark.write.fs import disk

_LOST_AT_ONCE = 64 * 1024  # units
_TAGS_CODE = 12  # its place in a unit


class QueueWriter:
    """Puts units into ConsumeQueue files.

    Args:
        tree: the tree that holds all of these files.
        directory: the store's ConsumeQueue, to go on with; None to begin all queues anew.
        new: where changed and new files are made.
        file_size: bytes of each file.
        go_on: the queue offsets at which the queues in `directory` go on.
        later: how much later than usual delayed messages are due; see store/due_times.py.

    Attributes:
        has_lost: whether units of lost messages were put anywhere.
    """

    def __init__(
        self,
        tree: disk.Tree,
        directory: str | None,
        new: str,
        file_size: int,
        go_on: dict[Queue, int],
        later: Mapping[int, int],
    ) -> None:
        self._tree = tree
        self._directory = directory
        self._file_size = file_size
        self._go_on = go_on
        self.has_lost = False
        self._later = later
        self._tails = Tails(tree, directory, new, file_size)

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
        if queue[0] == SCHEDULE_TOPIC and self._later.get(queue[1]):
            units = _due_later(units, self._later[queue[1]])
        tail = self._tails.get(queue) or self._begin(queue, queue_offset)
        if lost is not None and tail.stop < queue_offset:
            self._append_lost(tail, lost, queue_offset - tail.stop)
        taken = 0
        if 0 < queue_offset < tail.stop:
            units = units[(tail.stop - queue_offset) * UNIT_SIZE :]
        elif queue_offset == 0 < tail.stop:
            self._tails.append(tail, units[:UNIT_SIZE])
            units = units[tail.stop * UNIT_SIZE :]
            taken += 1
        taken += len(units) // UNIT_SIZE
        self._tails.append(tail, units)
        if taken:
            tail.last = tail.pending[-UNIT_SIZE:]
        self._tails.write_if_many()
        return taken

    @property
    def ends(self) -> dict[Queue, int]:
        """The next queue offset of each queue that units were put into."""
        return {queue: tail.stop for queue, tail in self._tails.all.items()}

    def begin_at(self, queue: Queue, queue_offset: int, expired: bytes) -> None:
        """Let a queue without messages go on at an offset: it gets units of expired messages before that offset, as
        many as its last file has."""
        if queue_offset == 0:
            return
        units = (queue_offset - 1) % (self._file_size // UNIT_SIZE) + 1
        tail = self._begin(queue, queue_offset - units)
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
        newest = max((tail.position for tail in self._tails.all.values()), default=-1)
        start = newest - newest % segment
        for queue, end in ends.items():
            tail = self._tails.get(queue)
            if tail is not None and 0 <= tail.position < start and 0 < end - tail.stop <= most:
                most -= end - tail.stop
                self._append_lost(tail, lost_unit(start), end - tail.stop)

    def finish(self, store_timestamp: Callable[[int], int]) -> None:
        """Write everything to disk; see Tails.finish()."""
        self._tails.finish(store_timestamp)

    def _append_lost(self, tail: Tail, lost: bytes, count: int) -> None:
        self.has_lost = self.has_lost or count > 0
        while count:
            some = min(count, _LOST_AT_ONCE)
            self._tails.append(tail, memoryview(lost * some))
            count -= some
            self._tails.write_if_many()

    def _begin(self, queue: Queue, queue_offset: int) -> Tail:
        directory = path_of(self._directory, queue) if self._directory is not None else None
        if directory is not None and queue not in self._go_on and self._tree.find(directory) is not None:
            self._refuse_units(directory)
        return self._tails.begin(queue, self._go_on.get(queue, queue_offset) * UNIT_SIZE)

    def _refuse_units(self, directory: str) -> None:
        self._tree.refuse_other_than(directory, stat.S_ISDIR, "a directory")
        if self._tree.names(directory):
            raise DamagedStoreError(
                f"{directory}: expected units that the commitlog confirms, found others; "
                "call rmqstore_spark.rebuild(store) first"
            )


def _due_later(units: memoryview, later: int) -> memoryview:
    """Units of delayed messages that are due some milliseconds later. Other tagsCodes are hashes of 32 bits."""
    codes = QueueBlock.of(units).tags_codes
    found = np.frombuffer(units, np.uint8).reshape(-1, UNIT_SIZE).copy()
    moved = np.where(codes > 1 << 32, codes + later, codes).astype(">i8")
    found[:, _TAGS_CODE:] = moved.view(np.uint8).reshape(-1, 8)
    return memoryview(found.reshape(-1).data)
