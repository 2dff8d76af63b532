"""Parts of a store that a broker keeps in a form this package does not read (kinds.py), and the tables that lack
them."""

import contextlib
import logging
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from rmqstore_spark.errors import one_line
from rmqstore_spark.store.io.files import ignore_unreadable
from rmqstore_spark.store.rocksdb.manifest import unnamed_tables
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.kinds import KINDS, Kind, kind_with
from rmqstore_spark.store.structures.rocksdb_config import config_in_rocksdb
from rmqstore_spark.store.structures.rocksdb_popped import POPPED

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Elsewhere:
    """A place in a store that this package does not read.

    Attributes:
        path: the place.
        what: a few words on the data there.
        tables: the tables that lack the data kept only there.
        is_checked: whether table check looks at it nevertheless.
        option: the option with which messages are read from there, too.
    """

    path: str
    what: str
    tables: frozenset[str]
    is_checked: bool = False
    option: str | None = None


def elsewhere(store: Snapshot, table: str | None = None, topics: Collection[str] | None = None) -> Iterator[Elsewhere]:
    """The places of a store that this package does not read.

    Args:
        table: yield only the places that this table needs.
        topics: only consumers' offsets of these topics count; None: all.
    """
    for kind in store.kinds([kind for kind in KINDS if table in (None, *kind.hides)]):
        if not _is_read(store, kind, topics):
            yield _place(store, kind)
        elif (unnamed := _unnamed(store, kind)) is not None:
            yield unnamed
        elif table is None and "queues" in kind.instead and store.queues.are_twice:
            beside = f"{kind.what} beside those in files: of each queue, only the one that knows more is taken"
            yield Elsewhere(os.path.join(store.root, kind.path), beside, frozenset())


def _is_read(store: Snapshot, kind: Kind, topics: Collection[str] | None = None) -> bool:
    """Is this kind a RocksDB that is read, and can the store's one be?"""
    if "queues" in kind.instead:
        return os.path.join(store.root, kind.path) == store.layout.queues_in_rocksdb and store.queues.why_not is None
    if kind.path == POPPED:
        return store.popped is not None and store.popped.why_not is None
    if not kind.instead or ("offsets" in kind.instead and not store.has_offsets_in_rocksdb(topics)):
        return False
    found = [config_in_rocksdb(store.root, part, store.files) for part in kind.instead - {"offsets"}]
    return all(one is not None and one.table is not None for one in found)


def _unnamed(store: Snapshot, kind: Kind) -> Elsewhere | None:
    """The first table of a RocksDB that its MANIFEST does not name, though the broker stopped cleanly."""
    directory = os.path.join(store.root, kind.path)
    names: list[str] = []
    if not store.layout.abort:
        with ignore_unreadable(), contextlib.suppress(OSError):
            names = unnamed_tables(directory, store.files)
    if not names:
        return None
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    what = f"{kind.what}, here a table{more} that MANIFEST does not name, as after the loss of MANIFEST's end"
    return Elsewhere(os.path.join(directory, names[0]), what, kind.hides)


def _place(store: Snapshot, kind: Kind) -> Elsewhere:
    return Elsewhere(os.path.join(store.root, kind.path), kind.what, kind.hides, kind.is_checked, kind.option)


def say_what_is_unknown(
    store: Snapshot, table: str, options: Collection[str] = (), topics: Collection[str] | None = None
) -> None:
    """Log a message where a table of this store may lack rows.

    Args:
        options: the options with which other places are read as well.
        topics: see elsewhere().
    """
    for place in elsewhere(store, table, topics):
        if place.option in options:
            continue
        log.warning("%s: %s: not read, so table %r lacks what is only there", one_line(place.path), place.what, table)


def offsets_elsewhere(store: Snapshot) -> Elsewhere | None:
    """The RocksDB whose consumers' offsets cannot be read; None where there is none."""
    kind = kind_with(store.root, store.files, "offsets")
    return None if kind is None or _is_read(store, kind) else _place(store, kind)
