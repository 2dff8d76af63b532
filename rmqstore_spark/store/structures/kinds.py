"""Kinds of stores: what a broker may keep in another form than the files that are read and written here.

A RocksDB has a file CURRENT. (A topic may have that name, too, but as a directory.) Since 5.4.0 every broker makes an
empty RocksDB in rocksdbstore/; only a RocksDB with tables (.sst) holds data there.
Source: docs/format.md (Directory); org.apache.rocketmq.store.config.StorePathConfigHelper,
broker.config.v1.RocksDBConfigManager, broker.config.v2.ConfigStorage, store.rocksdb.MessageRocksDBStorage,
tieredstore.metadata.DefaultMetadataStore.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from native_io import Wrapping
from rmqstore_spark.errors import DeletedMeanwhileError, NotAStoreError
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.dledger import DLEDGER
from rmqstore_spark.store.structures.entries import Marks, NotedEntry

Part = Literal["queues", "topics", "groups", "offsets"]

_ROCKSDB = "CURRENT"
_TABLES = ".sst"


@dataclass(frozen=True)
class Kind:
    """One form in which a broker keeps something.

    Attributes:
        path: the place, below the store.
        what: what is there, in a few words.
        hides: this package's tables that lack the data kept only there.
        instead: parts of a store that the broker keeps there instead of in files. The broker ignores files of these
            parts.
        is_checked: whether table check looks at it nevertheless.
        option: the option with which messages are read from there, too.
        sign: the file in `path` that shows that data is there, `.sst` for any file with that ending; None: `path`
            itself shows it. By default that of a RocksDB.
    """

    path: str
    what: str
    hides: frozenset[str]
    instead: frozenset[Part] = frozenset()
    sign: str | None = _ROCKSDB
    is_checked: bool = False
    option: str | None = None

    def is_in(self, root: str, files: Files) -> bool:
        """Does a store have this kind?"""
        path = os.path.join(root, self.path)
        if self.sign == _TABLES:
            try:
                return any(name.endswith(_TABLES) for name in files.names(path))
            except OSError:
                return False
        if self.sign != _ROCKSDB:
            return files.exists(path if self.sign is None else os.path.join(path, self.sign))
        return is_rocksdb(path, files)


def is_rocksdb(directory: str, files: Files) -> bool:
    """Is a directory a RocksDB? Also one that has lost its CURRENT, which whoever opens it tells. Among topics, which
    may be very many, another file is looked for then, not all names."""
    is_of_topics = os.path.basename(directory) == _OF_TOPICS
    signs = [os.path.join(directory, name) for name in ((_ROCKSDB, _IDENTITY) if is_of_topics else (_ROCKSDB,))]
    for path, is_there in zip(signs, files.schedule.mapped(files.exists, signs), strict=True):
        if is_there:
            return not files.is_directory(path)
    if is_of_topics:
        return False
    try:
        return any(name.startswith(_MANIFEST) for name in files.names(directory))
    except OSError:
        return False


_IDENTITY = "IDENTITY"  # a file that each RocksDB has
_MANIFEST = "MANIFEST-"  # begins the name of the list of a RocksDB's tables
_OF_TOPICS = "consumequeue"


def _config(path: str, what: str, hides: set[str], *instead: Part) -> Kind:
    return Kind(f"config/{path}", f"{what} in RocksDB", frozenset(hides), frozenset(instead))


_QUEUES = "ConsumeQueues in RocksDB", frozenset({"topics", "queues", "consumequeue"}), frozenset[Part]({"queues"})
_ALL = {"topics", "groups", "offsets", "transactions"}
KINDS = (
    Kind("consumequeue", *_QUEUES),
    Kind("consumequeue_rocksdb", *_QUEUES),
    _config("topics", "topics' configuration", {"topics"}, "topics"),
    _config("subscriptionGroups", "groups' configuration", {"groups"}, "groups"),
    _config("consumerOffsets", "consumers' offsets", _ALL, "offsets"),
    _config("metadata", "configuration and consumers' offsets", _ALL, "topics", "groups", "offsets"),
    _config("rdb", "configuration and consumers' offsets", _ALL, "topics", "groups", "offsets"),
    Kind("kvStore", "popped messages in flight, in RocksDB", frozenset({"inflight"})),
    Kind(
        "config/tieredStoreMetadata.json",
        "what is in a tiered store",
        frozenset({"messages", "topics", "queues", "offsets", "index"}),
        sign=None,
        option="tiered",
    ),
    Kind(
        "compaction",
        "the compacted copy of topics, which may outlive the commitlog's messages (option compacted reads it)",
        frozenset({"messages"}),
        sign="compactionLog",
        is_checked=True,
        option="compacted",
    ),
    Kind("rocksdbstore", "an index, timers or transactions in RocksDB", frozenset({"index"}), sign=_TABLES),
)


class WrappedLog(Protocol):
    """A kind of store whose log has entries that wrap message units. The segments lie beside commitlog/, or instead of
    it, are named after the physical offsets that they begin with, and end with i32 -1, i32 bytes left. Physical offsets
    include the wrapping bytes. Such a store is read like any other, and not written to.

    Attributes:
        what: what is there, in a few words.
        wrapping: the bytes before each unit.
    """

    @property
    def what(self) -> str: ...

    @property
    def wrapping(self) -> Wrapping: ...

    def directories(self, root: str, names: Iterable[str], files: Files) -> list[str]:
        """The directories with segments of this kind; none for a store of another kind.

        Args:
            root: the store directory.
            names: the entries of the root.
        """

    def begins(self, head: bytes, start: int) -> bool:
        """Do these bytes begin a file of this kind, whose first byte has this physical offset? For directories that are
        only named by storePathCommitLog."""

    def marks(self, root: str, names: Iterable[str], files: Files) -> Marks | None:
        """What a node of several had written down of its log; None for a log of another kind. Arguments as in
        directories()."""

    def led_by(self, root: str, names: Iterable[str]) -> list[str]:
        """The files that a node writes anew when another one becomes the leader, which may have it take entries back;
        they may not be there. Arguments as in directories()."""

    def noted(self, root: str, names: Iterable[str], number: int, files: Files) -> NotedEntry | None:
        """What is noted of an entry beside the log; None where nothing is. Other arguments as in directories()."""


HEAD = 64  # bytes of a file that tell its kind
WRAPPED_LOGS: tuple[WrappedLog, ...] = (DLEDGER,)  # a module for each


def wrapped_logs(root: str, names: Iterable[str], files: Files) -> dict[str, WrappedLog]:
    """The directories of a store that have segments of wrapped units; arguments as in WrappedLog.directories()."""
    entries = list(names)
    return {path: kind for kind in WRAPPED_LOGS for path in kind.directories(root, entries, files)}


def wrapped_log_of(head: bytes, start: int) -> WrappedLog | None:
    """The kind of a file that begins with these bytes (HEAD of them, or all), at a physical offset."""
    return next((kind for kind in WRAPPED_LOGS if kind.begins(head, start)), None)


def marks_of(root: str, files: Files) -> Marks | None:
    """What a node had written down of its log of entries; None if nothing."""
    names = files.names(root)
    return next((found for kind in WRAPPED_LOGS if (found := kind.marks(root, names, files)) is not None), None)


def led_by(root: str, files: Files) -> list[str]:
    """The files that change when another node becomes the leader of a log of entries; they may not be there."""
    names = files.names(root)
    return [path for kind in WRAPPED_LOGS for path in kind.led_by(root, names)]


def noted_entry(root: str, number: int, files: Files) -> NotedEntry | None:
    """What is noted beside a log of entries of the one with this number; None if nothing."""
    names = files.names(root)
    return next((found for kind in WRAPPED_LOGS if (found := kind.noted(root, names, number, files)) is not None), None)


def kinds_in(root: str, files: Files, among: Iterable[Kind] = KINDS) -> Iterator[Kind]:
    """The kinds that a store has, found one by one as they are asked for."""
    return (kind for kind in among if kind.is_in(root, files))


def kind_with(root: str, files: Files, *parts: Part) -> Kind | None:
    """The kind in which a broker keeps one of these parts outside of files; None where all are in files."""
    return next(kinds_in(root, files, (kind for kind in KINDS if kind.instead & {*parts})), None)


def _wrapped_in_commitlog(root: str, files: Files) -> Iterator[tuple[str, WrappedLog]]:
    """The first file in commitlog/, and its kind, if it has wrapped units (storePathDLedgerCommitLog). A broker may
    delete the first file meanwhile."""
    directory = os.path.join(root, "commitlog")
    names = sorted(files.names(directory)) if files.is_directory(directory) else []
    for name in (name for name in names if name.isascii() and name.isdigit()):
        with contextlib.suppress(DeletedMeanwhileError):
            with files.file(os.path.join(directory, name)) as file:
                kind = wrapped_log_of(file.read(0, HEAD), int(name))
            if kind is not None:
                yield os.path.join(directory, name), kind
            return


def refuse_to_write(root: str, files: Files) -> None:
    """Refuse to write to a store whose broker ignores the files that would be written.

    Raises:
        NotAStoreError: the store is of such a kind.
    """
    for path, wrapped in (*wrapped_logs(root, files.names(root), files).items(), *_wrapped_in_commitlog(root, files)):
        raise NotAStoreError(
            f"{path}: {wrapped.what}: expected messages in commitlog/, as this store cannot be written to otherwise; "
            "make a copy of it (Store.copy, rmqstore copy), and write to that"
        )
    kind = kind_with(root, files, *get_args(Part))
    if kind is not None:
        raise NotAStoreError(
            f"{os.path.join(root, kind.path)}: {kind.what}: expected them in files, as this store cannot be written to "
            "otherwise; make a copy of it (Store.copy, rmqstore copy), and write to that"
        )


def is_writable(root: str, files: Files) -> bool:
    """Is what a broker reads of a store all in files that can be written here?"""
    try:
        refuse_to_write(root, files)
    except NotAStoreError:
        return False
    return True
