"""Queues of BatchCQ topics: units in, files out, as queue.BatchConsumeQueue writes them.

Such a unit says which queue offsets its messages have. So a queue's files begin at 0 wherever its offsets begin, and a
unit goes behind the units before it, whatever its offsets are.

A reader does not ask of which form a queue is; a writer has to, here and in target and topics: it makes queues of two.
"""

import os
from collections.abc import Callable, Collection, Iterator

import numpy as np

from native_io import FORMAT, Dispatcher, Status
from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.store.format.by_queue import Integers
from rmqstore_spark.store.format.queue_block import (
    BATCH_UNIT_SIZE,
    MOST_IN_BATCH,
    QueueBlock,
    batch_unit,
    lost_unit,
)
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.layout import queue_path
from rmqstore_spark.write.build.tails import Queue, Tails
from rmqstore_spark.write.fs import disk


class BatchQueueWriter:
    """Puts units into files of BatchCQs, all of which begin anew.

    Args:
        tree: the tree that holds all of these files.
        new: where files are made.
        file_size: bytes of each file.

    Attributes:
        ends: the next queue offset of each queue that units were put into.
        additional: how many more messages than units the queues have got.
    """

    def __init__(self, tree: disk.Tree, new: str, file_size: int) -> None:
        self._tails = Tails(tree, None, new, file_size, is_batch=True)
        self.ends: dict[Queue, int] = {}
        self.additional = 0

    def put(self, queue: Queue, units: memoryview, lost: bytes | None = None) -> int:
        """Put units into a queue, in the order of the log. Units of no message are left out: a broker takes none whose
        properties do not say which messages it has.

        Args:
            lost: the unit of a simple queue that stands for messages that are missing before these, or between them.

        Returns:
            The number of messages that the queue has got.
        """
        block = QueueBlock.of(units, is_batch=True)
        are_messages = block.are_messages
        if not are_messages.all():
            block = block.only(are_messages)
            data = np.frombuffer(units, np.uint8).reshape(-1, BATCH_UNIT_SIZE)
            units = memoryview(data[are_messages].tobytes())
        if not len(block):
            return 0
        tail = self._tails.get(queue) or self._tails.begin(queue, 0)
        bases, ends = block.queue_offsets, block.queue_offsets + block.messages
        before = np.concatenate([[self.ends.get(queue, int(bases[0]))], ends[:-1]])
        at = 0
        for number in np.flatnonzero(bases > before).tolist() if lost is not None else []:
            assert lost is not None
            self._tails.append(tail, units[at : number * BATCH_UNIT_SIZE])
            at = number * BATCH_UNIT_SIZE
            for missing in _missing(lost, int(before[number]), int(bases[number]), int(block.store_times[number])):
                self._tails.append(tail, missing)
        self._tails.append(tail, units[at:])
        tail.last = tail.pending[-BATCH_UNIT_SIZE:]
        self._tails.write_if_many()
        self.ends[queue] = int(ends[-1])
        messages = int(block.messages.sum())
        self.additional += messages - len(block)
        return messages

    def begin_at(self, queue: Queue, queue_offset: int, segment_end: int) -> None:
        """Let a queue without messages go on at an offset: it gets a unit for the message before that, which no broker
        can read.

        Args:
            segment_end: the end of a segment that the log does not have any more.
        """
        if queue_offset > 0:
            tail = self._tails.begin(queue, 0)
            self._tails.append(tail, batch_unit(lost_unit(segment_end), 0, queue_offset - 1, 1))
            self.ends[queue] = queue_offset

    def finish(self, store_timestamp: Callable[[int], int]) -> None:
        """Write everything to disk; see Tails.finish()."""
        self._tails.finish(store_timestamp)


def keep_other_batches(tree: disk.Tree, store: Snapshot, batches: BatchQueueWriter, new: str, size: int) -> None:
    """Take over the BatchCQs that no message of the log has made anew, without units that point behind the log's end.
    A queue of a topic that no message can have stays as it is.

    Args:
        new: the directory in which the queues are made.
        size: bytes of each file. Brokers do not start with files of another size.
    """
    for queue in store.queues.batch:
        name = queue.topic, queue.queue_id
        if name in batches.ends or not queue.sizes:
            continue
        last = queue.last()
        is_sound = (last is None or last.position < store.end) and all(found == size for _, found in queue.sizes)
        if is_sound or queue_path(*name) is None:
            target = os.path.join(new, queue.topic, str(queue.queue_id))
            tree.make_directory(target)
            for path, _ in queue.sizes:
                tree.link(path, os.path.join(target, os.path.basename(path)))
            continue
        for number, data in queue.chunks(queue.first, queue.end, over_gaps=True):
            block = QueueBlock.of(data, number, is_batch=True)
            stop = block.first_from(store.end)
            batches.put(name, memoryview(data)[: BATCH_UNIT_SIZE * stop])
            if stop < len(block):
                break


def _missing(lost: bytes, start: int, stop: int, store_time: int) -> Iterator[bytes]:
    """The units for missing messages of these queue offsets. Without them a consumer that goes on at such an offset
    would get the batch before it, again and again."""
    for base in range(start, stop, MOST_IN_BATCH):
        yield batch_unit(lost, store_time, base, min(MOST_IN_BATCH, stop - base))


def messages_in(units: memoryview, sizes: Integers, topics: Collection[str]) -> Integers:
    """The number of messages in each of some units; 0 where a broker puts the unit into no queue.

    Args:
        units: back to back, all of BatchCQ topics; written to.
        sizes: bytes of each unit.
        topics: these topics.

    Raises:
        DamagedStoreError: a unit has changed since it was found.
    """
    dispatcher = Dispatcher(batch_topics=topics)
    end = len(units) + FORMAT["BLANK_SIZE"]
    walked = dispatcher.place(units, position=0, segment_end=end, store_timestamp=1, keep=True)
    if walked.status is not Status.LIMIT or walked.units != len(sizes):
        raise DamagedStoreError(f"a message of a BatchCQ topic was changed while it was copied: {walked.status.name}")
    counts, starts = np.zeros(len(sizes), np.int64), np.cumsum(sizes) - sizes
    for _, _, of_a_queue in dispatcher.finish().runs():
        block = QueueBlock.of(of_a_queue, is_batch=True)
        counts[np.searchsorted(starts, block.positions)] = np.where(block.are_messages, block.messages, 0)
    return counts


def directory_of(root: str) -> str:
    """The directory of a store's BatchCQs."""
    return os.path.join(root, "batchconsumequeue")
