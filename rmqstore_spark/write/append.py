"""Messages appended to a store: a few go into its last segment as it is, more go into a copy that replaces the
segment."""

import os
from collections.abc import Mapping

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.query.option_values import WriteId
from rmqstore_spark.store.format.queue_block import UNIT_SIZE
from rmqstore_spark.store.structures.config import Table
from rmqstore_spark.write.build import checked, stretch, write_ids
from rmqstore_spark.write.build.logfiles import InPlaceWriter, LogWriter
from rmqstore_spark.write.build.messages import Messages
from rmqstore_spark.write.build.store_files import StoreFiles
from rmqstore_spark.write.build.tails import Queue
from rmqstore_spark.write.build.target import Target
from rmqstore_spark.write.fs.workshop import write_ids_path
from rmqstore_spark.write.publish.change import Change
from rmqstore_spark.write.publish.journal import APPENDED


def append(
    change: Change,
    target: Target,
    messages: Messages,
    table: Table,
    has_index: bool,
    known: Mapping[str, int],
    write_id: WriteId | None,
) -> None:
    """Append messages to a store, or make a new store of them.

    Args:
        change: a change of the store; nothing is pending.
        table: the store's topics (topics.load); those of the messages can be written to.
        has_index: whether the messages get index entries.
        known: of each application the version that the store has (write_ids.load).
        write_id: what the store is to remember of this write.

    Raises:
        RmqStoreError: the store is unchanged; or as Change.publish() says.
    """
    tree = messages.tree
    last = target.segments[-1] if target.segments else None
    is_small = last is not None and stretch.fits(tree, last, target.end, messages.nbytes)
    _refuse_full_disk(target, messages, 0 if is_small else sum(target.end - s.start for s in target.segments[-1:]))
    change.begin()
    try:
        files = StoreFiles(tree, change.new, target, goes_on=True, has_index=has_index, has_patches=is_small)
        stretched = InPlaceWriter(target, messages.nbytes) if is_small else None
        log = stretched or LogWriter(tree, target, os.path.join(change.new, "commitlog"))
        ends = messages.make(files, log, target, table)
        write_ids.put(tree, write_ids_path(change.new), known, write_id)
        if stretched is None:
            change.publish(APPENDED)
        else:
            change.publish_stretch(stretched.stretch, stretched.units)
            _remember(target, messages, ends)
    except Exception:
        change.give_up()
        raise


def _remember(target: Target, messages: Messages, ends: Mapping[Queue, int]) -> None:
    others = {(topic, queue_id): end for topic, queues in target.known.items() for queue_id, end in queues.items()}
    checked.remember(messages.tree, target.segments[-1], target.end + messages.nbytes, {**others, **ends})


def _refuse_full_disk(target: Target, messages: Messages, copied: int) -> None:
    """Check before any file is made that the messages fit on the disk. Files are sparse, so a file takes as much space
    as is written to it; a task's staged file is deleted once its units are written.

    Args:
        copied: bytes of the last segment, which is copied.

    Raises:
        RmqStoreError: there is too little space.
    """
    largest = max((part.nbytes for part in messages.staged), default=0)
    needed = copied + largest + UNIT_SIZE * messages.count
    free = messages.tree.free_bytes()
    if free < needed:
        raise RmqStoreError(
            f"{target.root}: the disk is too full: expected at least {needed:,} bytes to write these messages, found "
            f"{free:,} free; nothing was written"
        )
