"""A database: its column families, and the keys and values of each, by their newest entries.

A broker may be running. Its files are read as they are now; where a file goes away in between, or MANIFEST grows,
opening begins anew. An opened database is a state that the broker's database had: tables do not change, and only the
beginning of a log counts.
"""

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from native_io import NOT_IN_ORDER, SEQUENCE_SIZE, Run, Tombstones, take_newest
from rmqstore_spark.errors import DeletedMeanwhileError
from rmqstore_spark.store.io.files import Files, cannot_read, status_of
from rmqstore_spark.store.rocksdb.entries import Entries
from rmqstore_spark.store.rocksdb.entry_types import MERGE, name_of_other
from rmqstore_spark.store.rocksdb.faults import damaged, not_read
from rmqstore_spark.store.rocksdb.manifest import DEFAULT, Family, Manifest, TableFile, current_manifest, read_manifest
from rmqstore_spark.store.rocksdb.merges import Version, delimiter_of, merged
from rmqstore_spark.store.rocksdb.table import Table, open_table
from rmqstore_spark.store.rocksdb.tombstones import RangeDeletion, fragments, newest_over
from rmqstore_spark.store.rocksdb.write_ahead import WriteAheadLog, read_logs

_MOST_OPENINGS = 5  # attempts to open a changing database
_LAST_BLOCKS = 64  # blocks of each table in which the last key of a range is looked for, before the whole range is


@dataclass(frozen=True)
class Database:
    """An open database. Nothing is held open between calls.

    Attributes:
        directory: the database's directory.
        files: how to reach files, and where requests and bytes are counted.
        manifest: the column families and their tables.
        logs: the writes that are in no table yet.
    """

    directory: str
    files: Files
    manifest: Manifest
    logs: tuple[WriteAheadLog, ...]
    _tables: dict[int, Table] = field(default_factory=dict, repr=False)  # tables whose index was read
    _delimiters: dict[str, bytes] = field(default_factory=dict, repr=False)  # of merge operands, by column family

    @classmethod
    def open(cls, directory: str, files: Files) -> "Database":
        """The database in a directory, as it is now.

        Raises:
            RmqStoreError: the database cannot be read, is damaged, or changes all the time.
        """
        for _ in range(_MOST_OPENINGS):
            try:
                found = _as_it_is(cls, directory, files)
            except DeletedMeanwhileError:
                found = None
            if found is not None:
                return found
            files = files.fresh()
        raise DeletedMeanwhileError(
            f"{directory}: files of the database come and go while it is read; read a copy or a snapshot of the store"
        )

    @property
    def families(self) -> tuple[str, ...]:
        """The names of the column families."""
        return tuple(family.name for family in self.manifest.families.values())

    def get(self, key: bytes, family: str = DEFAULT) -> bytes | None:
        """The value of a key; None where there is none.

        Raises:
            KeyError: there is no such column family.
            RmqStoreError: a file cannot be read, or is damaged.
        """
        return next((value for entries in self.scan(family, key, key + b"\0") for _, value in entries.pairs()), None)

    def scan(self, family: str = DEFAULT, start: bytes = b"", stop: bytes | None = None) -> Iterator[Entries]:
        """Keys in [start, stop) with their values, in the order of keys. Only blocks that overlap the range are read.

        Args:
            family: the column family's name.
            start: the first key.
            stop: the first key after the range; None: no end.

        Raises:
            KeyError: there is no such column family.
            RmqStoreError: a file cannot be read, or is damaged.
        """
        found = {one.name: one for one in self.manifest.families.values()}[family]
        logs = [log for log in self.logs if log.concerns(found)]
        tables = [table for table in found.tables.values() if _overlaps(table, start, stop)]
        deletions = [deletion for log in logs for deletion in log.deletions(found)]
        deletions += [deletion for table in tables for deletion in self._opened(table).deletions]
        sources = [self._of_log(log, found, start, stop) for log in logs]
        sources += [self._of_tables(run, start, stop) for run in self._sorted_runs(tables)]
        return self._newest(sources, fragments(deletions), family)

    def blocks_in(self, family: str, start: bytes, stop: bytes | None, enough: int | None = None) -> int:
        """The number of blocks of tables that keys in [start, stop) may be in: a bound of the work that scan() is, as
        long as the logs have little. Further arguments and errors as of scan().

        Args:
            enough: where there are more, some number above this one will do: not all tables are opened.
        """
        count = 0
        for table in self._tables_with(family, start, stop):
            count += self._opened(table).blocks_in(start, stop)
            if enough is not None and count > enough:
                break
        return count

    def last(self, family: str, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        """The last key in [start, stop), with its value; None where there is none. Arguments and errors as of
        scan()."""
        bounds = {start}
        for table in self._tables_with(family, start, stop):
            bounds.update(self._opened(table).last_bounds(start, stop, _LAST_BLOCKS))
        step, ordered = 1, sorted(bounds)
        while True:
            step = min(2 * step, len(ordered))
            last = None
            for entries in self.scan(family, ordered[-step], stop):
                last = entries.pair(len(entries) - 1)
            if last is not None or step == len(ordered):
                return last

    def _tables_with(self, family: str, start: bytes, stop: bytes | None) -> list[TableFile]:
        found = {one.name: one for one in self.manifest.families.values()}[family]
        return [table for table in found.tables.values() if _overlaps(table, start, stop)]

    def _opened(self, table: TableFile) -> Table:
        if table.number not in self._tables:
            self._tables[table.number] = open_table(self.directory, table, self.files)
        return self._tables[table.number]

    def _sorted_runs(self, tables: list[TableFile]) -> list[list[TableFile]]:
        """Groups of tables whose entries are in order, one table after the other: each table of level 0 alone, and each
        other level."""
        runs = [[table] for table in tables if not table.level]
        levels = sorted({table.level for table in tables} - {0})
        for level in levels:
            run = sorted((table for table in tables if table.level == level), key=lambda table: table.smallest)
            for before, after in itertools.pairwise(run):
                if before.largest > after.smallest:
                    name = f"tables {before.number} and {after.number}"
                    raise damaged(self.manifest.path, 0, f"{name} of level {level} apart", "an overlap")
            runs.append(run)
        return runs

    def _delimiter(self, family: str) -> bytes:
        if family not in self._delimiters:
            self._delimiters[family] = delimiter_of(self.directory, family, self.files)
        return self._delimiters[family]

    def _of_tables(self, tables: list[TableFile], start: bytes, stop: bytes | None) -> Iterator[Run]:
        last: bytes | None = None
        for table in tables:
            for run in self._opened(table).runs(self.files, start, stop):
                if len(run):
                    if last is not None and _order(last) >= _order(first := run.first_key()):
                        raise damaged(self._opened(table).blocks.path, 0, f"keys after {last!r:.80}", f"{first!r:.80}")
                    last = run.last_key()
                yield run

    def _of_log(self, log: WriteAheadLog, family: Family, start: bytes, stop: bytes | None) -> Iterator[Run]:
        run = log.run(family)
        run.begin_at(start)
        if stop is not None:
            run.stop_at(stop)
        yield run

    def _newest(self, sources: list[Iterator[Run]], deletions: list[RangeDeletion], family: str) -> Iterator[Entries]:
        """The newest entries of all keys. Deletions are disjoint and in order."""
        tombstones = Tombstones(deletions)
        heads: list[Run] = []
        for source in [*sources]:
            head = _next_run(source)
            if head is None:
                sources.remove(source)
            else:
                heads.append(head)
        last = None
        while heads:
            arrays, last, stopped, unknown = take_newest(heads, tombstones, last)
            if unknown == NOT_IN_ORDER:
                found = f"one that comes before {last!r:.80}"
                raise damaged(self.manifest.path, 0, "tables with keys in order", found)
            if unknown >= 0 and unknown != MERGE:
                raise not_read(self.directory, name_of_other(unknown) or f"an entry of type {unknown}")
            if len(arrays[1]) > 1:
                yield Entries(*arrays)
            if unknown == MERGE:
                last = heads[stopped].first_key()[:-SEQUENCE_SIZE]
                versions = _versions(last, heads, sources)
                value = merged(versions, newest_over(deletions, last), self._delimiter(family), self.directory)
                if value is not None:
                    yield Entries.of(last, value)
                continue
            head = _next_run(sources[stopped])
            if head is None:
                del heads[stopped], sources[stopped]
            else:
                heads[stopped] = head


def _versions(key: bytes, heads: list[Run], sources: list[Iterator[Run]]) -> list[Version]:
    """Take all entries of a user's key; heads and sources without further entries are left out."""
    found: list[Version] = []
    for at in reversed(range(len(heads))):
        head: Run | None = heads[at]
        while head is not None:
            found += head.take_versions(key)
            if len(head):
                break
            head = _next_run(sources[at])
        if head is None:
            del heads[at], sources[at]
        else:
            heads[at] = head
    return found


def _as_it_is(cls: type[Database], directory: str, files: Files) -> Database | None:
    """The database as it is now; None if it changed while being read. MANIFEST grows before a log is removed."""
    manifest = read_manifest(directory, files)
    try:
        logs = read_logs(directory, files, manifest.first_log)
    except OSError as why:
        raise cannot_read(directory, why) from None
    is_same = (
        os.path.basename(manifest.path) == current_manifest(directory, files)
        and status_of(manifest.path, files).st_size == manifest.size
    )
    return cls(directory, files, manifest, logs) if is_same else None


def _next_run(source: Iterator[Run]) -> Run | None:
    """The next run of a source that has entries; None at the end."""
    return next((run for run in source if len(run)), None)


def _order(key: bytes) -> tuple[bytes, int]:
    """The order of internal keys: that of users' keys, of the same one the newest first."""
    return key[:-SEQUENCE_SIZE], -int.from_bytes(key[-SEQUENCE_SIZE:], "little")


def _overlaps(table: TableFile, start: bytes, stop: bytes | None) -> bool:
    return table.largest >= start and (stop is None or table.smallest < stop)
