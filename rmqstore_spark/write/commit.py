"""From staged units to a store that a broker starts on: all units or none (change.py says how)."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmqstore_spark.errors import OptionError, one_line
from rmqstore_spark.query.option_values import WriteId
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.write.append import append
from rmqstore_spark.write.build import topics, write_ids
from rmqstore_spark.write.build.config_from import ConfigFrom
from rmqstore_spark.write.build.logfiles import LogWriter
from rmqstore_spark.write.build.messages import Messages
from rmqstore_spark.write.build.staging import Staged
from rmqstore_spark.write.build.store_files import StoreFiles
from rmqstore_spark.write.build.target import (
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
from rmqstore_spark.write.fs import disk
from rmqstore_spark.write.fs.lock import StoreLock, check_lock
from rmqstore_spark.write.fs.workshop import workshop, write_ids_path
from rmqstore_spark.write.publish.change import Change
from rmqstore_spark.write.publish.replacement import Replacement
from rmqstore_spark.write.publish.sweep import sweep

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """How a store is written.

    Attributes:
        sizes: sizes of a new store's files; an existing store must have the same.
        index: whether the messages get index entries (messageIndexEnable).
        overwrite: whether the whole store is replaced.
        write_id: the write is skipped if its application has written this version already, or a later one.
        config_from: what option configFrom brings into a new store.
    """

    sizes: Sizes
    index: bool = True
    overwrite: bool = False
    write_id: WriteId | None = None
    config_from: ConfigFrom | None = None


def commit(root: str, staged: Sequence[Staged], settings: Settings) -> int:
    """Write staged units into a store, in order.

    Args:
        root: the store directory, absolute; made if it is missing.

    Returns:
        How many messages were written: 0 where they had been written before (Settings.write_id).

    Raises:
        RmqStoreError: something is in the way. The store is unchanged.
    """
    with make_root(root) as tree:
        change = Change(tree)
        check_kinds(tree)
        if not change.is_pending:
            is_new(tree)  # raises before a lock file is made, if the directory holds something else
        with StoreLock(tree):
            tree.make_directory(workshop(root))
            check_can_exchange(tree, workshop(root))
            change.recover()
            sweep(tree)
            new = is_new(tree)
            known = {} if new else write_ids.load(tree)  # the writes of a deleted store do not count
            if settings.write_id is not None and write_ids.is_done(known, settings.write_id):
                logger.info("%s: skipped: written before: %s", *map(one_line, (root, settings.write_id)))
                return 0
            check_writable(tree)
            messages = Messages(tree, staged)
            if settings.config_from is not None and not new and not settings.overwrite:
                raise _not_new(root)
            if settings.overwrite and not new:
                refuse_foreign_files(tree)
            if settings.config_from is not None or (settings.overwrite and not new):
                _replace(messages, settings, known)
            else:
                sizes = settings.sizes
                table = topics.load(tree)
                topics.refuse_unwritable(tree, table, messages.topics)  # before their queues are missed
                target = Target(root, sizes.or_defaults()) if new else inspect(tree, sizes, messages.topics)
                append(change, target, messages, table, settings.index, known, settings.write_id)
    return messages.count


def _replace(messages: Messages, settings: Settings, known: Mapping[str, int]) -> None:
    """Make a whole store of messages, in the place of the existing one."""
    with Replacement(messages.tree) as replacement, StoreLock(replacement.tree):
        tree, config_from = replacement.tree, settings.config_from
        target = Target(tree.path, settings.sizes.or_defaults())
        files = StoreFiles(tree, tree.path, target, goes_on=False, has_index=settings.index)
        table = {} if config_from is None else {"topicConfigTable": messages.entries_in(config_from.topics)}
        messages.make(files, LogWriter(tree, target, os.path.join(tree.path, "commitlog")), target, table)
        if config_from is not None:
            files.put_config(config_from.files(messages.counts(config_from), messages.topics))
        write_ids.put(tree, write_ids_path(tree.path), known, settings.write_id)
        replacement.publish()


def check(root: str, settings: Settings) -> None:
    """Refuse early what commit() would refuse. Nothing is changed, except that the remains of a killed writer are
    removed.

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
        if settings.config_from is not None and not settings.overwrite:
            raise _not_new(root)
        check_lock(tree)
        check_writable(tree)
        if settings.overwrite:
            refuse_foreign_files(tree)
        else:
            sizes_of(Snapshot.find(root, tree.files), settings.sizes)


def _not_new(root: str) -> OptionError:
    return OptionError(
        f"{root}: option 'configFrom' needs a new store, and this one has consumer offsets already; use mode "
        "overwrite, or another directory"
    )
