"""A new store of the units of others. They keep their queue offsets, and with them every consumer group its place.

The new log begins at the second segment: what is before it counts as expired, as in a store that has been used for
long. A queue then may begin at any offset. Where messages between two of a queue are lost, the log goes on in a new
segment, and the queue has a unit for each of them that no broker can read (store.consumequeue.lost_unit).
"""

import os
from collections.abc import Callable, Iterable, Mapping

from rmqstore_spark.errors import NotAStoreError, RmqStoreError
from rmqstore_spark.store.consumequeue import lost_unit
from rmqstore_spark.store.sizes import FileSizes
from rmqstore_spark.store.written import WORKSHOP
from rmqstore_spark.write import disk
from rmqstore_spark.write.lock import StoreLock
from rmqstore_spark.write.logfiles import LogWriter
from rmqstore_spark.write.placing import Placing
from rmqstore_spark.write.queuefiles import Queue
from rmqstore_spark.write.replacement import Replacement, sweep_beside
from rmqstore_spark.write.staging import Chunk
from rmqstore_spark.write.store_files import StoreFiles
from rmqstore_spark.write.target import Target, check_can_exchange, check_kinds, make_root
from rmqstore_spark.write.workshop import workshop

_LOCK = "lock"

Ends = dict[Queue, int]


def write_copy(
    root: str,
    chunks: Iterable[Chunk],
    nbytes: int,
    sizes: FileSizes,
    ends: Mapping[Queue, int],
    config: Callable[[Ends], Mapping[str, bytes]],
    index: bool = True,
    index_tags: bool = False,
    mode: int = 0o777,
) -> Ends:
    """Make a store: all of it, or nothing.

    Args:
        root: its directory, absolute; it does not exist yet, or is empty.
        chunks: units of logs, whose queueOffsets ascend in each queue.
        nbytes: about how much that is.
        ends: where queues go on that may lack their last messages, or all.
        config: then told where all queues go on; the names of files in config/, and what is in them.
        index: whether to make index files.
        index_tags: whether tags are index keys, too.
        mode: who may read the directory, if it does not exist yet, and all that is made in it.

    Returns:
        where all queues go on.

    Raises:
        RmqStoreError: there is something already, or it cannot be made.
    """
    was_there = disk.kind_at(root) is not None
    with make_root(root, mode) as tree:
        try:
            return _write(tree, lambda at: _make(at, chunks, nbytes, sizes, ends, config, index, index_tags), nbytes)
        except Exception:
            if not was_there:
                tree.remove_empty(workshop(root))
                tree.remove(os.path.join(root, _LOCK))
                disk.remove_empty(root)
            raise


def _write(tree: disk.Tree, make: Callable[[disk.Tree], Ends], nbytes: int) -> Ends:
    check_kinds(tree)
    refuse_all_but_empty(tree)
    with StoreLock(tree):
        tree.make_directory(workshop(tree.path))
        check_can_exchange(tree, workshop(tree.path))
        sweep_beside(tree)
        if tree.free_bytes() < nbytes:
            raise RmqStoreError(
                f"{tree.path}: the disk is too full: expected {nbytes:,} bytes for the messages, found "
                f"{tree.free_bytes():,} free; nothing was written"
            )
        with Replacement(tree) as replacement, StoreLock(replacement.tree):
            ends = make(replacement.tree)
            replacement.publish()
            return ends


def refuse_all_but_empty(tree: disk.Tree) -> None:
    """See that a directory is empty, but for what a copy that was killed has left.

    Raises:
        NotAStoreError: naming the first thing in it.
    """
    found = sorted(set(tree.names(tree.path)) - {_LOCK, WORKSHOP})
    if found:
        raise NotAStoreError(
            f"{tree.path}: expected no directory or an empty one, as a copy is a new store, found {found[0]!r} in it; "
            "give another directory"
        )


def _make(
    tree: disk.Tree,
    chunks: Iterable[Chunk],
    nbytes: int,
    sizes: FileSizes,
    ends: Mapping[Queue, int],
    config: Callable[[Ends], Mapping[str, bytes]],
    has_index: bool,
    index_tags: bool,
) -> Ends:
    target = Target(tree.path, sizes, start=sizes.segment)
    log = LogWriter(tree, target, os.path.join(tree.path, "commitlog"))
    with StoreFiles(tree, tree.path, target, goes_on=False, has_index=has_index) as files, log:
        placing = Placing(target, log, files, index_tags, keep=True)
        placing.append(chunks, nbytes)
        queues = files.queues
        found = queues.ends
        queues.go_on_at(ends, sizes.segment, nbytes)
        for queue, end in ends.items():
            if queue not in found:
                queues.begin_at(queue, end, lost_unit(target.start))
        placing.finish()
        files.put_config(config(queues.ends))
    return queues.ends
