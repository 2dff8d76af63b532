"""From staged units to a store that a broker starts on: all of them, or none (change.py says how)."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from native_io import Dispatcher
from rmqstore_spark.errors import OptionError, RmqStoreError, one_line
from rmqstore_spark.kept import kept
from rmqstore_spark.option_values import Transaction
from rmqstore_spark.store import checkpoint
from rmqstore_spark.store.clock import milliseconds_now
from rmqstore_spark.store.config import Table
from rmqstore_spark.store.consumequeue import UNIT_SIZE
from rmqstore_spark.store.geometry import indexes_tags
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.store.sizes import Sizes
from rmqstore_spark.write import checked, disk, stretch, times, topics, transactions
from rmqstore_spark.write.brought import Brought, Counts
from rmqstore_spark.write.change import PATCHES, Change
from rmqstore_spark.write.indexfiles import IndexWriter
from rmqstore_spark.write.journal import APPENDED
from rmqstore_spark.write.lock import StoreLock, check_lock
from rmqstore_spark.write.logfiles import LogReader, LogWriter, StretchWriter
from rmqstore_spark.write.placing import Placing
from rmqstore_spark.write.queuefiles import Queue, QueueWriter
from rmqstore_spark.write.replacement import Replacement
from rmqstore_spark.write.staging import Staged, read_chunks
from rmqstore_spark.write.target import (
    Target,
    check_can_exchange,
    check_kinds,
    check_writable,
    inspect,
    is_new,
    make_root,
    refuse_foreign_files,
    sizes_of,
)
from rmqstore_spark.write.workshop import transactions_path, workshop

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """How a store is written.

    Attributes:
        sizes: of the files of a new store, or to hold against those of one that is there.
        index: whether the messages get index entries (messageIndexEnable).
        overwrite: whether the whole store is replaced.
        transaction: the write is skipped if its application has written this version already, or a later one.
        brought: what option configFrom brings into a new store.
    """

    sizes: Sizes
    index: bool = True
    overwrite: bool = False
    transaction: Transaction | None = None
    brought: Brought | None = None


def commit(root: str, staged: Sequence[Staged], settings: Settings) -> int:
    """Write staged units into a store, in their order.

    Args:
        root: the store directory, absolute; it is made if it is not there.

    Returns:
        How many messages were written: 0 where they have been before (Settings.transaction).

    Raises:
        RmqStoreError: something is in the way. The store is as it was.
    """
    with make_root(root) as tree:
        change = Change(tree)
        check_kinds(tree)
        if not change.is_pending:
            is_new(tree)  # or it refuses, before there is a lock in it
        with StoreLock(tree):
            tree.make_directory(workshop(root))
            check_can_exchange(tree, workshop(root))
            change.recover()
            change.sweep()
            new = is_new(tree)
            known = {} if new else transactions.load(tree)  # of a store that is gone, nothing counts
            if settings.transaction is not None and transactions.is_done(known, settings.transaction):
                log.info("%s: skipped: written before: %s", *map(one_line, (root, settings.transaction)))
                return 0
            check_writable(tree)
            messages = _Messages(tree, staged)
            if settings.brought is not None and not new and not settings.overwrite:
                raise _not_new(root)
            if settings.overwrite and not new:
                refuse_foreign_files(tree)
            if settings.brought is not None or (settings.overwrite and not new):
                _replace(messages, settings, known)
            else:
                sizes = settings.sizes
                target = Target(root, sizes.or_defaults()) if new else inspect(tree, sizes, messages.topics)
                _append(change, target, messages, settings, known)
    return sum(part.rows for part in staged)


@dataclass(frozen=True)
class _Messages:
    """What is written.

    Attributes:
        tree: the store's directory, which the tasks have staged it in,
        staged: in these files.
    """

    tree: disk.Tree
    staged: Sequence[Staged]

    @property
    def nbytes(self) -> int:
        """How large it is."""
        return sum(part.nbytes for part in self.staged)

    @kept
    def topics(self) -> dict[str, int]:
        """Its topics, with the number of queues that each needs."""
        needed: dict[str, int] = {}
        for part in self.staged:
            for topic, count in part.topics.items():
                needed[topic] = max(count, needed.get(topic, 0))
        return needed

    def entries_in(self, entries: Mapping[str, Table]) -> dict[str, Table]:
        """What is said of its topics."""
        return {topic: entry for topic, entry in entries.items() if topic in self.topics}

    def counts(self, brought: Brought) -> Counts:
        """Where the queue offsets of the store that they are of are now.

        Raises:
            OptionError: they do not come in the order of its queues.
        """
        found = Counts(brought.positions())
        found.extend([part.counts for part in self.staged if part.counts is not None])
        return found


@dataclass(frozen=True)
class _Work:
    """Where the files of a store are made.

    Attributes:
        tree: the directory that all is read and made in, but for the messages.
        new: the one in it that they are made in, in a tree like a store's.
        old: the store that they go on with; None where all of them are new.
        topics: what that one's topics.json says.
    """

    tree: disk.Tree
    new: str
    old: str | None = None
    topics: Table = field(default_factory=dict)


def _replace(messages: _Messages, settings: Settings, known: Mapping[str, int]) -> None:
    with Replacement(messages.tree) as replacement, StoreLock(replacement.tree):
        tree = replacement.tree
        brought = settings.brought
        table = {} if brought is None else {"topicConfigTable": messages.entries_in(brought.topics)}
        work = _Work(tree, tree.path, topics=table)
        _make(work, Target(tree.path, settings.sizes.or_defaults()), messages, settings)
        if brought is not None:
            for name, text in brought.files(messages.counts(brought), messages.topics).items():
                tree.write_file(os.path.join(tree.path, "config", name), text)
        transactions.put(tree, transactions_path(tree.path), known, settings.transaction)
        replacement.publish()


def _append(change: Change, target: Target, messages: _Messages, settings: Settings, known: Mapping[str, int]) -> None:
    tree = messages.tree
    work = _Work(tree, change.new, tree.path, topics.load(tree))
    topics.refuse_unwritable(tree, work.topics, messages.topics)
    last = target.segments[-1] if target.segments else None
    is_small = last is not None and stretch.fits(tree, last, target.end, messages.nbytes)
    _refuse_full_disk(target, messages, 0 if is_small else sum(target.end - s.start for s in target.segments[-1:]))
    change.begin()
    try:
        new_log = StretchWriter(target, messages.nbytes) if is_small else None
        ends = _make(work, target, messages, settings, new_log)
        transactions.put(tree, transactions_path(work.new), known, settings.transaction)
        if new_log is not None:
            change.publish_stretch(new_log.stretch, new_log.units)
            others = {
                (topic, queue_id): end for topic, queues in target.known.items() for queue_id, end in queues.items()
            }
            checked.remember(tree, target.segments[-1], target.end + messages.nbytes, {**others, **ends})
        else:
            change.publish(APPENDED)
    except Exception:
        change.give_up()
        raise


def _refuse_full_disk(target: Target, messages: _Messages, copied: int) -> None:
    """Before anything is made: does it fit? Files are sparse, so what they take is what is written; what a task has
    staged is deleted once it is.

    Args:
        copied: bytes of the segment that goes on.

    Raises:
        RmqStoreError: it does not.
    """
    staged = messages.staged
    needed = copied + max((part.nbytes for part in staged), default=0) + sum(UNIT_SIZE * part.rows for part in staged)
    free = messages.tree.free_bytes()
    if free < needed:
        raise RmqStoreError(
            f"{target.root}: the disk is too full: expected at least {needed:,} bytes to write these messages, found "
            f"{free:,} free; nothing was written"
        )


def check(root: str, settings: Settings) -> None:
    """Refuse early what commit() would refuse. Nothing is changed, but what a killed writer left is tidied up.

    Raises:
        RmqStoreError: something is in the way.
    """
    if disk.kind_at(root) is None:
        settings.sizes.or_defaults()
        return
    with make_root(root) as tree:
        check_kinds(tree)
        change = Change(tree)
        if change.is_pending:
            with StoreLock(tree):
                change.recover()
        if is_new(tree) or settings.overwrite:
            settings.sizes.or_defaults()
        if is_new(tree):
            return
        if settings.brought is not None and not settings.overwrite:
            raise _not_new(root)
        check_lock(tree)
        check_writable(tree)
        if settings.overwrite:
            refuse_foreign_files(tree)
        else:
            sizes_of(OpenStore.find(root, tree), settings.sizes)


def _not_new(root: str) -> OptionError:
    return OptionError(
        f"{root}: option 'configFrom' is for a new store, as the groups of this one have places of their own; use mode "
        "overwrite, or another directory"
    )


def _make(
    work: _Work, target: Target, messages: _Messages, settings: Settings, new_log: StretchWriter | None = None
) -> dict[Queue, int]:
    """Make all files that are changed or new.

    Args:
        new_log: takes the units, where no segment is changed or new.

    Returns:
        where the queues of topics that are written to go on afterwards.
    """
    tree, new, old = work.tree, work.new, work.old
    queues = QueueWriter(
        tree,
        None if old is None else os.path.join(old, "consumequeue"),
        os.path.join(new, "consumequeue"),
        target.sizes.queue_file,
        target.queues,
    )
    index_directory = os.path.join(old or new, "index")
    index = IndexWriter(
        tree,
        index_directory,
        os.path.join(new, "index"),
        target.sizes.slots,
        target.sizes.items,
        None if new_log is None else os.path.join(new, PATCHES),
        target.store,
    )
    dispatcher = Dispatcher(index_tags=target.store is not None and indexes_tags(target.store, target.sizes.slots))
    for (topic, queue_id), offset in target.queues.items():
        dispatcher.set_next(topic, queue_id, offset)

    with index, new_log or LogWriter(tree, target, os.path.join(new, "commitlog")) as segments:
        placing = Placing(target, dispatcher, segments, queues, index if settings.index else None)
        chunks = (chunk for part in messages.staged for chunk in read_chunks(messages.tree, part))
        placing.append(chunks, messages.nbytes)
    with new_log or LogReader(tree, os.path.join(new, "commitlog"), target.sizes.segment) as made:
        queues.finish(made.store_timestamp)
        record = placing.times.record(made.mark(placing.times.last_position))
    times.put(tree, new, record)
    indexed = 0 if old is None else checkpoint.index_timestamp(os.path.join(old, "checkpoint"), tree)
    if settings.index:  # an earlier file may end later: a broker that crashes would delete it
        indexed = max(indexed, index.end_timestamp)
    last = checkpoint.encode(placing.last_timestamp, indexed, placing.position, record.has_any)
    tree.write_file(os.path.join(new, "checkpoint"), last)
    needed = dict(messages.topics)
    if target.store is not None:
        needed = topics.with_queues(work.topics, needed, target.store.queues)
    merged = topics.merge(work.topics, needed, milliseconds_now())
    tree.make_directory(os.path.join(new, "config"))
    tree.write_file(os.path.join(new, "config", "topics.json"), merged)
    return {**target.queues, **queues.ends}
