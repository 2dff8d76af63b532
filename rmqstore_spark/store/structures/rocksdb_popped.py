"""Popped messages that a broker with popConsumerKVServiceEnable keeps in the RocksDB kvStore/: a record for each
message until it is acknowledged, or visible again.

Column family `popState` has a JSON object for each message; what its key says is in the object, too.
Source: org.apache.rocketmq.broker.pop.PopConsumerRecord, PopConsumerRocksdbStore.
"""

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqstore_spark.errors import RmqStoreError, StorageError
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.kinds import is_rocksdb

if TYPE_CHECKING:
    from rmqstore_spark.store.rocksdb.database import Database

POPPED = "kvStore"
_FAMILY = "popState"
_MOST_BYTES = 1 << 16  # of a record; a broker's has some hundred


class Popped(NamedTuple):
    """The popped messages of a store, as the database has them.

    Attributes:
        records: fields popTime, invisibleTime (ms), groupId, topicId, queueId, offset; unchecked.
        why_not: why the database cannot be read, if so.
    """

    records: list[dict[str, Any]]
    why_not: str | None = None


def popped_in_rocksdb(root: str, files: Files) -> Popped | None:
    """The popped messages that are in RocksDB; None where there is no such database.

    Args:
        root: the store directory.
        files: how to reach files, and where requests and bytes are counted.

    Raises:
        StorageError: storage refuses, or does not answer.
    """
    directory = os.path.join(root, POPPED)
    if not is_rocksdb(directory, files):
        return None
    # Imported here, as most stores have no such database.
    from rmqstore_spark.store.rocksdb.changing import ChangingDatabase

    try:
        return Popped(ChangingDatabase(directory, files).ask(_records))
    except StorageError:
        raise
    except RmqStoreError as why:
        return Popped([], str(why))


def _records(database: "Database") -> list[dict[str, Any]]:
    if _FAMILY not in database.families:
        return []
    found = (_object(value) for entries in database.scan(_FAMILY) for _, value in entries.pairs())
    return [record for record in found if record is not None]


def _object(value: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(value) if len(value) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
