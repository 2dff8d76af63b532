"""A new store from units of other stores. Units keep their queue offsets, so every consumer group keeps its place.

The new log begins at the second segment: everything before counts as expired, as in a store that has been used for
long. So a queue may begin at any offset. Where messages between two of a queue are lost, the log goes on in a new
segment, and the queue has a unit for each lost message that no broker can read (queue_block.lost_unit).
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rmqstore_spark.errors import NotAStoreError, RmqStoreError
from rmqstore_spark.store.format.queue_block import lost_unit
from rmqstore_spark.store.format.sizes import FileSizes
from rmqstore_spark.store.structures.written import WORKSHOP
from rmqstore_spark.write.build.logfiles import LogWriter
from rmqstore_spark.write.build.other_files import OtherFile, put_others
from rmqstore_spark.write.build.placing import Placing
from rmqstore_spark.write.build.staging import Chunk
from rmqstore_spark.write.build.store_files import ConfigFiles, StoreFiles
from rmqstore_spark.write.build.tails import Queue
from rmqstore_spark.write.build.target import Target, check_can_exchange, check_kinds, make_root
from rmqstore_spark.write.fs import disk
from rmqstore_spark.write.fs.lock import StoreLock
from rmqstore_spark.write.fs.workshop import workshop
from rmqstore_spark.write.publish.replacement import Replacement, sweep_beside

_LOCK = "lock"

Ends = dict[Queue, int]


@dataclass(frozen=True)
class NewStore:
    """The contents of a new store, besides its units.

    Large because it is all that those who make a store (copies, overwrites) have to say of it, in one value.

    Attributes:
        nbytes: about how many bytes the units have.
        sizes: of the store's files.
        ends: where queues go on that may lack their last messages, or all messages.
        batch_topics: the topics whose queues are BatchCQs.
        has_index: whether the store gets index files.
        index_tags: whether tags are index keys, too.
        mode: the mode of the store's directory if it does not exist yet, and so of everything made in it.
        others: files that are taken over as they are.
        later: how much later than usual delayed messages are due; see store/due_times.py.
    """

    nbytes: int
    sizes: FileSizes
    ends: Mapping[Queue, int]
    batch_topics: Collection[str] = ()
    has_index: bool = True
    index_tags: bool = False
    mode: int = 0o777
    others: Sequence[OtherFile] = ()
    later: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Written:
    """The contents of a new store that has been written.

    Attributes:
        messages: the number of messages, those in batches included.
        ends: where all queues go on.
    """

    messages: int
    ends: Ends


def write_new_store(
    root: str, new: NewStore, chunks: Iterable[Chunk], config: Callable[[Ends], ConfigFiles]
) -> Written:
    """Make a store: all of it, or nothing.

    Args:
        root: the store's directory, absolute; missing so far, or empty.
        chunks: units of logs, whose queueOffsets ascend in each queue.
        config: returns the files of config/, by name, given where all queues go on.

    Raises:
        RmqStoreError: there is something in the directory already, or the store cannot be made.
    """
    was_there = disk.kind_at(root) is not None
    with make_root(root, new.mode) as tree:
        try:
            return _write(tree, new, chunks, config)
        except Exception:
            if not was_there:
                tree.remove_empty(workshop(root))
                tree.remove(os.path.join(root, _LOCK))
                disk.remove_empty(root)
            raise


def _write(tree: disk.Tree, new: NewStore, chunks: Iterable[Chunk], config: Callable[[Ends], ConfigFiles]) -> Written:
    check_kinds(tree)
    refuse_all_but_empty(tree)
    with StoreLock(tree):
        tree.make_directory(workshop(tree.path))
        check_can_exchange(tree, workshop(tree.path))
        sweep_beside(tree)
        if tree.free_bytes() < new.nbytes:
            raise RmqStoreError(
                f"{tree.path}: the disk is too full: expected {new.nbytes:,} bytes for the messages, found "
                f"{tree.free_bytes():,} free; nothing was written"
            )
        with Replacement(tree) as replacement, StoreLock(replacement.tree):
            made = _make(replacement.tree, new, chunks, config)
            replacement.publish()
            return made


def refuse_all_but_empty(tree: disk.Tree) -> None:
    """See that a directory is empty, except for the remains of a copy that was killed.

    Raises:
        NotAStoreError: naming the first thing in it.
    """
    found = sorted(set(tree.names(tree.path)) - {_LOCK, WORKSHOP})
    if found:
        raise NotAStoreError(
            f"{tree.path}: expected no directory or an empty one, as a copy is a new store, found {found[0]!r} in it; "
            "give another directory"
        )


def _make(tree: disk.Tree, new: NewStore, chunks: Iterable[Chunk], config: Callable[[Ends], ConfigFiles]) -> Written:
    target = Target(tree.path, new.sizes, start=new.sizes.segment)
    log = LogWriter(tree, target, os.path.join(tree.path, "commitlog"))
    made = StoreFiles(
        tree,
        tree.path,
        target,
        goes_on=False,
        has_index=new.has_index,
        batch_topics=new.batch_topics,
        later=new.later,
    )
    with made as files, log:
        placing = Placing(target, log, files, new.index_tags, keep=True)
        units = placing.append(chunks, new.nbytes)
        queues, batches = files.queues, files.batches
        found = {**queues.ends, **batches.ends}
        queues.go_on_at(new.ends, new.sizes.segment, new.nbytes)
        for queue, end in new.ends.items():
            if queue not in found and queue[0] in new.batch_topics:
                batches.begin_at(queue, end, target.start)
            elif queue not in found:
                queues.begin_at(queue, end, lost_unit(target.start))
        placing.finish()
        put_others(tree, new.others)
        ends = {**queues.ends, **batches.ends}
        files.put_config(config(ends))
    return Written(units + batches.additional, ends)
