"""Topics, consumer groups and consumers' offsets that a broker keeps in RocksDB instead of in files of config/.

Brokers have three ways: a database for each part (config v1), one for all parts with a column family for each
(useSingleRocksDBForAllConfigs), and one with keys of a form of its own (configManagerVersion=v2). The result has the
form of the file's member.
Source: docs/format.md; org.apache.rocketmq.broker.config.v1.RocksDBConfigManager,
RocksDBOffsetSerializeWrapper, broker.config.v2.ConfigHelper, SerializationType.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqstore_spark.errors import DamagedStoreError, RmqStoreError, StorageError, one_line
from rmqstore_spark.garbage import collector_paused
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.kinds import KINDS, Part, kinds_in

if TYPE_CHECKING:
    from rmqstore_spark.store.rocksdb.database import Database

Table = dict[str, Any]

_MOST_ROWS = 5_000_000
_DATA_VERSION = b"kvDataVersionKey"  # a row that is no entry
# A key of v2: 1, table (two bytes), 2 for data; then texts, each after its length (two bytes).
_V2, _V2_DATA = 1, 2
_V2_TABLES: dict[Part, int] = {"offsets": 1, "topics": 3, "groups": 4}
_V2_JSON = 1  # the byte before a value
_SEPARATOR = 1
_NUMBER_SIZE = 4  # bytes of a queueId
_JSON_SPACES = " \t\n\r"
_parsed = json.JSONDecoder().raw_decode  # a value and where it ends: half the time of json.loads for a short text
_FAMILIES: dict[Part, str] = {"topics": "topic", "groups": "subscriptionGroup", "offsets": "consumerOffset"}


class InRocksDB(NamedTuple):
    """One part of the configuration, as a database has it.

    Attributes:
        directory: the database's directory.
        table: the entries by name; offsets by `topic@group`, each with the offsets by queueId. None: the database
            cannot be read.
        why_not: the reason, where `table` is None.
    """

    directory: str
    table: Table | None
    why_not: str | None


def config_in_rocksdb(root: str, part: Part, files: Files, topics: Collection[str] | None = None) -> InRocksDB | None:
    """A part of the configuration from RocksDB; None where no database has the part.

    Args:
        root: the store directory.
        part: topics, groups or offsets.
        files: how to reach files, and where requests and bytes are counted.
        topics: only offsets of these are wanted; None: of all. Where keys begin with the topic, others are not read.

    Raises:
        StorageError: storage refuses, or does not answer.
    """
    kinds = [*kinds_in(root, files, (kind for kind in KINDS if part in kind.instead))]
    if not kinds:
        return None
    kind = kinds[0]
    directory = os.path.join(root, kind.path)
    if len(kinds) > 1:
        others = ", ".join(other.path for other in kinds[1:])
        return InRocksDB(directory, None, f"{directory}: expected the only database of {part}, found {others} as well")
    # Imported here, as most stores have no such database, and each task reads a store's configuration.
    from rmqstore_spark.store.rocksdb.changing import ChangingDatabase

    try:
        with collector_paused():  # as many objects as there are entries
            table = ChangingDatabase(directory, files).ask(lambda database: _read(database, kind.path, part, topics))
        return InRocksDB(directory, table, None)
    except StorageError:
        raise
    except RmqStoreError as why:
        return InRocksDB(directory, None, str(why))


def _read(database: "Database", path: str, part: Part, topics: Collection[str] | None) -> Table:
    if path == "config/rdb":
        return _offsets_of_v2(database, topics) if part == "offsets" else _entries_of_v2(database, part)
    family = _FAMILIES[part] if path == "config/metadata" else "default"
    prefixes = [b""] if topics is None else [os.fsencode(topic) + b"@" for topic in sorted(topics)]
    found: Table = {}
    for some in itertools.chain.from_iterable(_blocks(database, family, prefix) for prefix in prefixes):
        entries = [(_text(key, database), value) for key, value in some if key != _DATA_VERSION]
        objects = [_object(value, database) for _, value in entries]
        parts = _offsets(objects, database) if part == "offsets" else objects
        found.update(zip((name for name, _ in entries), parts, strict=True))
    return found


def _entries_of_v2(database: "Database", part: Part) -> Table:
    found: Table = {}
    for key, value in _pairs(database, "default", _prefix(part)):
        (name,), _ = _names(key, 1, database)
        if value[:1] != bytes([_V2_JSON]):
            raise _not_as(database, f"the entry of {name!r:.100}", f"{value[:1]!r} before it")
        found[name] = _object(value[1:], database)
    return found


def _offsets_of_v2(database: "Database", topics: Collection[str] | None) -> Table:
    """Keys begin with the group, so those of a topic are all over the table."""
    found: Table = {}
    ends = None if topics is None else tuple(_sized(os.fsencode(topic)) + bytes([_SEPARATOR]) for topic in topics)
    for key, value in _pairs(database, "default", _prefix("offsets")):
        if ends is not None and not key[:-_NUMBER_SIZE].endswith(ends):
            continue
        (group, topic), rest = _names(key, 2, database)
        if len(rest) != _NUMBER_SIZE or len(value) != 8:
            raise _not_as(database, f"an offset of {group!r:.100}", f"{len(rest)} and {len(value)} bytes")
        queues = found.setdefault(f"{topic}@{group}", {})
        queues[str(int.from_bytes(rest, "big", signed=True))] = int.from_bytes(value, "big", signed=True)
    return found


def _prefix(part: Part) -> bytes:
    return bytes([_V2]) + _V2_TABLES[part].to_bytes(2, "big") + bytes([_V2_DATA])


def _sized(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + text


def _names(key: bytes, count: int, database: "Database") -> tuple[list[str], bytes]:
    """The names in a key of v2, and what comes after them."""
    names = []
    rest = key[len(_prefix("topics")) :]
    for _ in range(count):
        size = int.from_bytes(rest[:2], "big")
        name = rest[2 : 2 + size]
        rest = rest[2 + size :]
        if len(name) != size or not size or (count > 1 and rest[:1] != bytes([_SEPARATOR])):
            raise _not_as(database, "a key with names", f"{key!r:.200}")
        names.append(_text(name, database))
        rest = rest[1:] if count > 1 else rest
    return names, rest


def _pairs(database: "Database", family: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    return itertools.chain.from_iterable(_blocks(database, family, prefix))


def _blocks(database: "Database", family: str, prefix: bytes) -> Iterator[Iterator[tuple[bytes, bytes]]]:
    """Keys that begin with a prefix, and their values, some at a time."""
    if family not in database.families:
        return  # a database without entries
    stop = prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None
    count = 0
    for entries in database.scan(family, prefix, stop):
        count += len(entries)
        if count > _MOST_ROWS:
            raise _not_as(database, f"at most {_MOST_ROWS} rows", "more")
        yield entries.pairs()


def _object(value: bytes, database: "Database") -> Table:
    """An entry that is an object. Each is parsed by itself, as broken ones might make whole ones together."""
    with contextlib.suppress(ValueError, RecursionError):
        text = value.decode().strip(_JSON_SPACES)
        found, end = _parsed(text)
        if type(found) is dict and end == len(text):
            return found
    raise _not_as(database, "an entry that is an object", f"{value!r:.100}")


def _offsets(entries: list[Table], database: "Database") -> list[Table]:
    found: list[Table] = [entry.get("offsetTable", ()) for entry in entries]
    for entry, table in zip(entries, found, strict=True):
        if not isinstance(table, dict):
            raise _not_as(database, "an entry with offsetTable", f"{entry!r:.100}")
    return found


def _text(name: bytes, database: "Database") -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise _not_as(database, "a name in UTF-8", f"{name!r:.100}") from None


def _not_as(database: "Database", expected: str, found: str) -> DamagedStoreError:
    return DamagedStoreError(f"{database.directory}: expected {expected}, found {one_line(found)}; bring it back")
