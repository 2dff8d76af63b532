"""What a broker may keep where nobody here looks: in RocksDB, in a log of DLedger, in a tiered store. Which tables do
not know what is only there.

A RocksDB has a file CURRENT. Since 5.4.0 every broker makes an empty one in rocksdbstore/; only one with tables (.sst)
has something in it. Source: docs/format.md (Directory); org.apache.rocketmq.store.config.StorePathConfigHelper,
broker.config.v1.RocksDBConfigManager, broker.config.v2.ConfigStorage, store.rocksdb.MessageRocksDBStorage,
tieredstore.metadata.DefaultMetadataStore.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass

from rmqstore_spark.errors import counted, one_line
from rmqstore_spark.store.config import why_unread
from rmqstore_spark.store.layout import queue_id_of
from rmqstore_spark.store.opened import OpenStore

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Elsewhere:
    """A place in a store that is not looked at.

    Attributes:
        path: where it is.
        what: what is there, in a few words.
        tables: those that do not know what is only there.
    """

    path: str
    what: str
    tables: frozenset[str]


@dataclass(frozen=True)
class _Kind:
    """Attributes: path: below the store; inside: the entry that shows that something is there."""

    path: str
    inside: str | None
    what: str
    tables: tuple[str, ...] = ()


_ROCKSDB = "CURRENT"
_TOPIC_CONFIG = ("topics", "metadata", "rdb")  # below config/
_OFFSETS = ("config/consumerOffsets", "config/metadata", "config/rdb")
_CONFIG = ("topics", "groups", "offsets", "transactions")
_KINDS = (
    _Kind("consumequeue", _ROCKSDB, "ConsumeQueues in RocksDB", ("queues", "consumequeue")),
    _Kind("consumequeue_rocksdb", _ROCKSDB, "ConsumeQueues in RocksDB", ("queues", "consumequeue")),
    _Kind("config/topics", _ROCKSDB, "topics' configuration in RocksDB", ("topics",)),
    _Kind("config/subscriptionGroups", _ROCKSDB, "groups' configuration in RocksDB", ("groups",)),
    _Kind("config/consumerOffsets", _ROCKSDB, "consumers' offsets in RocksDB", _CONFIG),
    _Kind("config/metadata", _ROCKSDB, "configuration and consumers' offsets in RocksDB", _CONFIG),
    _Kind("config/rdb", _ROCKSDB, "configuration and consumers' offsets in RocksDB", _CONFIG),
    _Kind("kvStore", _ROCKSDB, "popped messages in flight, in RocksDB", ("inflight",)),
    _Kind(
        "config/tieredStoreMetadata.json",
        None,
        "what is in a tiered store",
        ("messages", "topics", "queues", "offsets", "index"),
    ),
    _Kind(
        "compaction",
        "compactionLog",
        "the compacted copy of topics, which may outlive the commitlog's messages",
        ("messages",),
    ),
)
_INDEX_AND_STATE = _Kind("rocksdbstore", None, "an index, timers or transactions in RocksDB", ("index",))


def elsewhere(store: OpenStore, table: str | None = None) -> Iterator[Elsewhere]:
    """The places of a store that are not looked at.

    Args:
        table: only those that this table needs.
    """
    if store.layout.dledger is not None and table is None:
        yield Elsewhere(store.layout.dledger, "all messages, in a log of DLedger", frozenset())
    for kind in _KINDS:
        path = os.path.join(store.root, kind.path)
        sign = path if kind.inside is None else os.path.join(path, kind.inside)
        if table in (None, *kind.tables) and store.files.exists(sign):
            yield Elsewhere(path, kind.what + _beside(store, kind), frozenset(kind.tables))
    if table in (None, *_INDEX_AND_STATE.tables):
        path = os.path.join(store.root, _INDEX_AND_STATE.path)
        if any(name.endswith(".sst") for name in _names(store, path)):
            yield Elsewhere(path, _INDEX_AND_STATE.what, frozenset(_INDEX_AND_STATE.tables))


def say_what_is_unknown(store: OpenStore, table: str) -> None:
    """Say it in the log where a table of this store may lack something."""
    for place in elsewhere(store, table):
        log.warning(
            "%s: %s: not read, so table %r does not know what is only there", one_line(place.path), place.what, table
        )


def say_if_unread(store: OpenStore, name: str, table: str) -> None:
    """Say it in the log where a file of config/ is there and cannot be read. For tables that have found nothing in it.

    Args:
        name: the file's.
    """
    why = why_unread(store.root, name, store.files)
    if why is not None:
        log.warning("%s; so table %r does not know what is in it", one_line(why), table)


def config_is_elsewhere(store: OpenStore) -> bool:
    """Is what the broker was told of topics in a RocksDB?"""
    return any(store.files.exists(os.path.join(store.root, "config", name, _ROCKSDB)) for name in _TOPIC_CONFIG)


def offsets_elsewhere(store: OpenStore) -> Elsewhere | None:
    """Where a RocksDB has the consumers' offsets; None where none has."""
    paths = [os.path.join(store.root, name) for name in _OFFSETS]
    return next((place for place in elsewhere(store, "offsets") if place.path in paths), None)


def _beside(store: OpenStore, kind: _Kind) -> str:
    """Of ConsumeQueues that are there twice (rocksdbCQDoubleWriteEnable): that those of files are not read either."""
    if kind.path != "consumequeue":
        return ""
    directory = os.path.join(store.root, kind.path)
    topics = [name for name in _names(store, directory) if _has_queues(store, os.path.join(directory, name))]
    return f", and beside it files of queues of {counted(len(topics), 'topic')}" if topics else ""


def _has_queues(store: OpenStore, topic: str) -> bool:
    return any(queue_id_of(name) is not None for name in _names(store, topic))


def _names(store: OpenStore, directory: str) -> list[str]:
    try:
        return sorted(store.files.names(directory))
    except OSError:
        return []
