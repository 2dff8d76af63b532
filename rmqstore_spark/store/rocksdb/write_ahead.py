"""The write-ahead logs of a database: writes that are in no table yet.

A log may end in the middle of a record, if the broker was killed, or is writing just now. The records before count.
Source: RocksDB's db/write_batch.cc, db/db_impl/db_impl_open.cc.
"""

import os
import re
from dataclasses import dataclass

from native_io import UNKNOWN_RECORD, Batches, NotSoundError, Run
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.rocksdb.entry_types import name_of_other
from rmqstore_spark.store.rocksdb.faults import damaged, not_read
from rmqstore_spark.store.rocksdb.log_file import read_log
from rmqstore_spark.store.rocksdb.manifest import Family
from rmqstore_spark.store.rocksdb.tombstones import RangeDeletion

_NAMED = re.compile(r"([0-9]{6,19})\.log")


@dataclass(frozen=True)
class WriteAheadLog:
    """A log.

    Attributes:
        number: the log's number.
        batches: the write batches in the log.
    """

    number: int
    batches: Batches

    def run(self, family: Family) -> Run:
        """The entries of a column family that are only in this log, in order."""
        return self.batches.run(family.number)

    def deletions(self, family: Family) -> list[RangeDeletion]:
        """The ranges of a column family that are deleted in this log."""
        return [RangeDeletion(*deletion) for deletion in self.batches.range_deletions(family.number)]

    def concerns(self, family: Family) -> bool:
        """May the log have writes that are not yet in the family's tables?"""
        return self.number >= family.log_number


def read_logs(directory: str, files: Files, first: int) -> tuple[WriteAheadLog, ...]:
    """The logs of a database from a number on.

    Args:
        directory: the database's directory.
        files: how to reach files, and where requests and bytes are counted.
        first: the lowest number.

    Raises:
        RmqStoreError: a log cannot be read, or is damaged before its end.
        OSError: the directory cannot be listed.
    """
    numbers = sorted(int(found[1]) for name in files.names(directory) if (found := _NAMED.fullmatch(name)))
    return tuple(
        _read(os.path.join(directory, f"{number:06}.log"), number, files) for number in numbers if number >= first
    )


def _read(path: str, number: int, files: Files) -> WriteAheadLog:
    log = read_log(path, files, number)
    try:
        return WriteAheadLog(number, Batches(log.data, log.ends))
    except NotSoundError as why:
        other = name_of_other(log.data[why.position]) if why.position < len(log.data) else None
        if why.expected == UNKNOWN_RECORD and other is not None:
            raise not_read(path, f"{other} at position {why.position}") from None
        raise damaged(path, why.position, f"{why.expected} in batch {why.part}", "none") from None
