"""MANIFEST: the tables that a database has now, as a sequence of edits.

Source: RocksDB's db/version_edit.h, db/version_edit.cc, db/version_edit_handler.cc.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from native_io import SEQUENCE_SIZE, NotSoundError
from rmqstore_spark.errors import DeletedMeanwhileError
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.rocksdb.faults import damaged, not_read
from rmqstore_spark.store.rocksdb.fields import Fields
from rmqstore_spark.store.rocksdb.log_file import LogFile, read_log

CURRENT = "CURRENT"
DEFAULT = "default"
_NAMED = re.compile(rb"MANIFEST-([0-9]{1,19})\n")
_TABLE_NAMED = re.compile(r"[0-9]{6,19}\.sst")
_COMPARATOR = b"leveldb.BytewiseComparator"
_MOST_LEVEL = 100
_IGNORED = 1 << 13  # a tag with this bit may be passed over: its field has its length before it
_REQUIRED_OF_FILE = 1 << 6  # a field of a file with this bit must not be passed over
_COMPARE, _LOG, _NEXT_FILE, _LAST_SEQUENCE, _CURSOR, _DELETED, _NEW_1, _PREVIOUS_LOG, _LEAST_LOG = *range(1, 8), 9, 10
_NEW_2, _NEW_3, _NEW_4, _FAMILY, _ADD, _DROP, _MOST_FAMILY, _GROUP = 100, 102, 103, 200, 201, 202, 203, 300
_END_OF_FILE, _PATH_ID = 1, 65
_LARGEST_OF_RANGE = (((1 << 56) - 1) << 8 | 0xF).to_bytes(8, "little")  # the exclusive end of a range deletion


@dataclass(frozen=True)
class TableFile:
    """A table's entry in MANIFEST.

    Attributes:
        number: the file's number.
        level: tables of level 0 may overlap; those of any other level do not.
        size: bytes.
        smallest, largest: the first and the last users' key; ranges that the table deletes are within.
        is_open: whether the largest key is excluded: a deleted range ends there.
    """

    number: int
    level: int
    size: int
    smallest: bytes
    largest: bytes
    is_open: bool

    @property
    def name(self) -> str:
        return f"{self.number:06}.sst"


@dataclass(frozen=True)
class Family:
    """A column family.

    Attributes:
        number: of it.
        name: of it.
        log_number: writes in logs with lower numbers are in tables already.
        tables: by number.
    """

    number: int
    name: str
    log_number: int = 0
    tables: dict[int, TableFile] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """The column families and tables of a database.

    Attributes:
        path: the file.
        size: bytes of the file when it was read.
        families: by number.
        least_log: logs with lower numbers are no longer needed.
    """

    path: str
    size: int
    families: dict[int, Family]
    least_log: int

    @property
    def first_log(self) -> int:
        """The lowest number of a log that may have writes that are in no table."""
        return max(self.least_log, min(family.log_number for family in self.families.values()))


@dataclass(frozen=True)
class _Edit:
    """One record of a MANIFEST.

    Large because a record may have any of these tags, each a field.
    """

    family: int = 0
    add: str | None = None
    drop: bool = False
    log_number: int | None = None
    least_log: int | None = None
    deleted: tuple[tuple[int, int], ...] = ()
    new: tuple[TableFile, ...] = ()
    group_left: int | None = None  # edits after this one in an atomic group, of which all count or none
    next_file: int | None = None
    last_sequence: int | None = None
    unused: int | None = None


def current_manifest(directory: str, files: Files) -> str:
    """The name of the MANIFEST that counts.

    Raises:
        RmqStoreError: CURRENT cannot be read, or names no MANIFEST.
    """
    path = os.path.join(directory, CURRENT)
    try:
        with files.file(path) as file:
            named = file.read(0, 64)
    except DeletedMeanwhileError:
        if not files.is_directory(directory):
            raise
        # A database that is in use has one at each moment: a new one is renamed over it.
        raise damaged(path, 0, "the name of a MANIFEST", "no such file") from None
    if not _NAMED.fullmatch(named):
        raise damaged(path, 0, "the name of a MANIFEST", repr(named))
    return named[:-1].decode()


def read_manifest(directory: str, files: Files) -> Manifest:
    """The Manifest of a database as it is now.

    Args:
        directory: of the database.
        files: how to reach files, and where requests and bytes are counted.

    Raises:
        RmqStoreError: MANIFEST cannot be read, or is damaged.
    """
    path = os.path.join(directory, current_manifest(directory, files))
    log = read_log(path, files, 0)
    families = {0: Family(0, DEFAULT)}
    least_log = 0
    wanted = {"log_number", "next_file", "last_sequence"}  # the fields that some edit of every database has
    for number, edit in _whole_groups(_edits(log)):
        try:
            _apply(edit, families)
        except NotSoundError as why:
            raise damaged(path, _start(log, number), f"{why.expected} in record {number}", "another one") from None
        least_log = max(least_log, edit.least_log or 0)
        wanted = {name for name in wanted if getattr(edit, name) is None}
    if wanted:
        raise damaged(path, log.size, f"edits with {', '.join(sorted(wanted))}", "the end")
    return Manifest(path, log.size, families, least_log)


def unnamed_tables(directory: str, files: Files) -> list[str]:
    """The names of the tables in a database's directory that its MANIFEST does not name. A kill may leave some, which a
    broker deletes when it starts; after a clean stop there are none, unless MANIFEST has lost its end.

    Raises:
        RmqStoreError: MANIFEST cannot be read, or is damaged.
        OSError: the directory cannot be listed.
    """
    there = {name for name in files.names(directory) if _TABLE_NAMED.fullmatch(name)}
    families = read_manifest(directory, files).families.values()
    return sorted(there - {table.name for family in families for table in family.tables.values()})


def _start(log: LogFile, number: int) -> int:
    return int(log.ends[number - 1]) if number else 0


def _edits(log: LogFile) -> Iterator[tuple[int, _Edit]]:
    """Each edit with its number."""
    if not len(log.ends):
        raise damaged(log.path, 0, "a record", "none")
    for number, end in enumerate(log.ends.tolist()):
        fields = Fields(bytes(log.data[_start(log, number) : end]))
        try:
            yield number, _parse(fields, log.path)
        except NotSoundError as why:
            raise damaged(
                log.path, _start(log, number) + fields.position, f"{why.expected} of an edit", "none"
            ) from None


def _whole_groups(edits: Iterable[tuple[int, _Edit]]) -> Iterator[tuple[int, _Edit]]:
    """The edits without a last group that is not yet complete."""
    group = []
    for number, edit in edits:
        group.append((number, edit))
        if not edit.group_left:
            yield from group
            group = []


def _parse(fields: Fields, path: str) -> _Edit:
    edit = _Edit()
    while fields:
        tag = fields.varint()
        if tag in (_NEW_1, _NEW_2, _NEW_3, _NEW_4):
            edit = replace(edit, new=(*edit.new, _new_file(fields, tag, path)))
        elif tag == _DELETED:
            edit = replace(edit, deleted=(*edit.deleted, (fields.varint(), fields.varint())))
        elif tag == _COMPARE:
            name = fields.text()
            if name != _COMPARATOR:
                raise not_read(path, f"keys in the order of {name.decode(errors='replace'):.80}")
        elif tag == _ADD:
            edit = replace(edit, add=fields.text().decode(errors="replace"))
        elif tag == _CURSOR:
            fields.varint()
            fields.text()
        elif tag in _NUMBERS:
            number: dict[str, Any] = {_NUMBERS[tag]: fields.varint()}
            edit = replace(edit, **number)
        elif tag == _DROP:
            edit = replace(edit, drop=True)
        elif tag & _IGNORED:
            fields.text()
        else:
            raise not_read(path, f"an edit with field {tag}")
    return edit


_NUMBERS = {
    _LOG: "log_number",
    _LEAST_LOG: "least_log",
    _FAMILY: "family",
    _GROUP: "group_left",
    _NEXT_FILE: "next_file",
    _LAST_SEQUENCE: "last_sequence",
    _PREVIOUS_LOG: "unused",
    _MOST_FAMILY: "unused",
}


def _new_file(fields: Fields, tag: int, path: str) -> TableFile:
    level, number = fields.varint(), fields.varint()
    if level > _MOST_LEVEL:
        raise NotSoundError("a level", fields.position)
    path_id = fields.varint() if tag == _NEW_3 else 0
    size, smallest, largest = fields.varint(), fields.text(), fields.text()
    if min(len(smallest), len(largest)) < SEQUENCE_SIZE:
        raise NotSoundError("a key with its sequence number", fields.position)
    if tag != _NEW_1:
        fields.varint()
        fields.varint()
    if tag == _NEW_4:
        path_id = _more_of_file(fields, path)
    if path_id:
        raise not_read(path, f"table {number} in another directory ({path_id})")
    return TableFile(
        number,
        level,
        size,
        smallest[:-SEQUENCE_SIZE],
        largest[:-SEQUENCE_SIZE],
        largest[-SEQUENCE_SIZE:] == _LARGEST_OF_RANGE,
    )


def _more_of_file(fields: Fields, path: str) -> int:
    """Pass the further fields of a file; returns the number of the directory that the file is in."""
    path_id = 0
    while (tag := fields.varint()) != _END_OF_FILE:
        value = fields.text()
        if tag == _PATH_ID:
            path_id = int.from_bytes(value, "little")
        elif tag & _REQUIRED_OF_FILE:
            raise not_read(path, f"a table with field {tag}")
    return path_id


def _apply(edit: _Edit, families: dict[int, Family]) -> None:
    if edit.add is not None:
        if edit.family in families:
            raise NotSoundError("a new column family", 0)
        families[edit.family] = Family(edit.family, edit.add, edit.log_number or 0)
        return
    if edit.drop:
        if families.pop(edit.family, None) is None or not edit.family:
            raise NotSoundError("a column family that is there", 0)
        return
    family = families.get(edit.family)
    if family is None:
        return  # a family that was dropped
    for level, number in edit.deleted:
        table = family.tables.pop(number, None)
        if table is None or table.level != level:
            raise NotSoundError(f"table {number} to be there at level {level}", 0)
    for table in edit.new:
        if family.tables.setdefault(table.number, table) is not table:
            raise NotSoundError(f"table {table.number} not to be there", 0)
    if edit.log_number is not None:
        families[edit.family] = replace(family, log_number=max(family.log_number, edit.log_number))
