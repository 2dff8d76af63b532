"""The files of a store beside its log, made as messages come: ConsumeQueue and index files, the checkpoint, config/."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from rmqstore_spark.store.structures import checkpoint
from rmqstore_spark.store.structures.written import Record
from rmqstore_spark.write.build import times
from rmqstore_spark.write.build.batchqueues import BatchQueueWriter, directory_of
from rmqstore_spark.write.build.indexfiles import IndexWriter
from rmqstore_spark.write.build.patch import PATCHES
from rmqstore_spark.write.build.queuefiles import QueueWriter
from rmqstore_spark.write.build.tails import Queue
from rmqstore_spark.write.build.target import Target
from rmqstore_spark.write.fs.disk import Tree

# The files of config/, by name; a large one in parts.
ConfigFiles = Mapping[str, bytes | Iterable[bytes]]


class StoreFiles:
    """Makes these files. A context manager.

    Args:
        tree: the tree that holds all of these files.
        new: the directory in which they are made, in a tree like a store's.
        target: the store.
        goes_on: whether the files go on with those of the store; else they are made anew.
        batch_topics: the topics whose queues are BatchCQs. Such queues are only made anew.
        later: how much later than usual delayed messages are due; see store/due_times.py.
        has_index: whether index files are made.
        has_patches: whether changes to an index file of the store are only put down as a patch (patch.py).

    Attributes:
        queues: the simple ConsumeQueues.
        batches: the BatchCQs.
        batch_topics: as above.
    """

    def __init__(
        self,
        tree: Tree,
        new: str,
        target: Target,
        *,
        goes_on: bool,
        has_index: bool,
        has_patches: bool = False,
        batch_topics: Collection[str] = (),
        later: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self._tree = tree
        self._new = new
        root, sizes = target.root, target.sizes
        self.queues = QueueWriter(
            tree,
            os.path.join(root, "consumequeue") if goes_on else None,
            os.path.join(new, "consumequeue"),
            sizes.queue_file,
            target.queues,
            later,
        )
        self.batch_topics = frozenset(batch_topics)
        self.batches = BatchQueueWriter(tree, directory_of(new), sizes.batch_file)
        self._index: IndexWriter | None = None
        if has_index:
            self._index = IndexWriter(
                tree,
                os.path.join(root if goes_on else new, "index"),
                os.path.join(new, "index"),
                sizes.slots,
                sizes.items,
                os.path.join(new, PATCHES) if has_patches else None,
                target.store if goes_on else None,
            )
        self._indexed = 0  # store time (ms) up to which the kept index files reach
        if goes_on or not has_index:
            self._indexed = checkpoint.index_timestamp(os.path.join(root, "checkpoint"), tree.files)

    def __enter__(self) -> "StoreFiles":
        return self

    def __exit__(self, *_: object) -> None:
        if self._index is not None:
            self._index.close()

    def put_units(self, queue: Queue, queue_offset: int, units: memoryview, lost: bytes | None) -> None:
        """Put units into a queue, whose kind decides where; see QueueWriter.put() and BatchQueueWriter.put()."""
        if queue[0] in self.batch_topics:
            self.batches.put(queue, units, lost)
        else:
            self.queues.put(queue, queue_offset, units, lost)

    def put_keys(
        self,
        key_hash: npt.NDArray[np.int32],
        key_position: npt.NDArray[np.int64],
        key_timestamp: npt.NDArray[np.int64],
    ) -> None:
        """Put index entries, which come after all earlier ones; see native_io.Dispatched."""
        if self._index is not None:
            self._index.put(key_hash, key_position, key_timestamp)

    def finish_index(self) -> None:
        """Write index files to disk."""
        if self._index is not None:
            self._index.finish()

    def finish(self, store_timestamp: Callable[[int], int], last_timestamp: int, end: int, record: Record) -> None:
        """Write the queues to disk, and make a checkpoint that covers everything.

        Args:
            store_timestamp: the store time (ms) of the message at a physical offset.
            last_timestamp: the store time (ms) of the last message.
            end: the physical offset of the log's end.
            record: the known store times.
        """
        self.queues.finish(store_timestamp)
        self.batches.finish(store_timestamp)
        # A kept index file may end later than the new ones: a broker would delete it after a crash.
        indexed = max(self._indexed, self._index.end_timestamp if self._index is not None else 0)
        last = checkpoint.encode(last_timestamp, indexed, end, record.has_any)
        self._tree.write_file(os.path.join(self._new, "checkpoint"), last)

    def put_times(self, record: Record) -> None:
        """Note down the store times of all messages, once the queues are written."""
        has_lost = record.has_lost or self.queues.has_lost
        times.put(self._tree, self._new, replace(record, has_lost=has_lost))

    def put_config(self, files: ConfigFiles) -> None:
        """Make files in config/."""
        directory = os.path.join(self._new, "config")
        self._tree.make_directory(directory)
        for name, text in files.items():
            self._tree.write_file(os.path.join(directory, name), text)
