"""Warnings about the sources' index files. The copy's index files are made from the log, so they lack no message; but
only the sources' files tell how large they are and whether tags are keys in them."""

from __future__ import annotations

import logging
import os

from rmqstore_spark.errors import RmqStoreError, StorageError, one_line
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.indexfile import IndexFile, file_names

logger = logging.getLogger(__name__)


def say_what_is_not_used(store: Snapshot) -> None:
    """Warn in the log of index files of a store that could not be used, and what that means for the copy's."""
    directory = os.path.join(store.root, "index")
    try:
        names = file_names(directory, store.files)
    except StorageError:
        raise
    except RmqStoreError as why:
        logger.warning("%s; %s", why, _instead(store, is_known=False))
        return
    if names and store.files.is_locked(store.layout.lock):
        names.pop()  # the last file changes while it is read
    broken, is_known = [], False
    for name in names:
        try:
            is_known |= IndexFile.open(os.path.join(directory, name), store.files, may_read_all=True) is not None
        except StorageError:
            raise
        except RmqStoreError as why:
            broken.append(str(why))
    for text in broken[:1]:
        more = f" (and {len(broken) - 1} more like it)" if len(broken) > 1 else ""
        logger.warning("%s%s; %s", one_line(text), more, _instead(store, is_known))


def _instead(store: Snapshot, is_known: bool) -> str:
    made = "this index file is not used: the new store's are made from the log"
    if is_known:
        return made
    return f"{made}, and as none of {one_line(store.root)} tells, with RocketMQ's own sizes and without tags as keys"
