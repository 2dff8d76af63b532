"""Random databases that RocksDB's library has just made: the reader has what that has, or names what it refuses."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from machine.rocksdb import check_made

from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.rocksdb.database import Database

rocks: Any = importlib.import_module("rocksdict")


def test_the_reader_has_what_the_library_has(rng: random.Random) -> None:
    """All compressions and checksums, deleted ranges, several column families, tables and logs."""
    assert sum(check_made(rng.randrange(1 << 30)) for _ in range(6)) > 6


def checksums(made: Any) -> None:
    table = rocks.BlockBasedOptions()
    table.set_checksum_type(rocks.ChecksumType.xxhash64())
    made.set_block_based_table_factory(table)


def blobs(made: Any) -> None:
    made.set_enable_blob_files(True)
    made.set_min_blob_size(1)


def dictionaries(made: Any) -> None:
    made.set_compression_type(rocks.DBCompressionType.zstd())
    made.set_compression_options(-14, 3, 0, 4096)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (checksums, "checksums of kind xxHash64"),
        (blobs, "a table with field 100|a value in a blob file|an edit with field"),
        (dictionaries, "compressed with a dictionary"),
    ],
)
def test_other_settings_are_refused_by_name(change: Callable[[Any], None], name: str, tmp_path: Path) -> None:
    made = rocks.Options(raw_mode=True)
    made.create_if_missing(True)
    change(made)
    db = rocks.Rdict(str(tmp_path), made)
    for number in range(2000):
        db[b"key%05d" % number] = b"a value that is like others %d" % number
    db.flush(True)
    db.close()
    with pytest.raises(DamagedStoreError, match=name):
        contents(tmp_path)


def test_wide_columns_are_refused_by_name(tmp_path: Path) -> None:
    db = rocks.Rdict(str(tmp_path), rocks.Options(raw_mode=True))
    db.put_entity(b"key", [b"column"], [b"value"])
    db.close()
    with pytest.raises(DamagedStoreError, match="a wide column"):
        contents(tmp_path)


def contents(directory: Path) -> list[tuple[bytes, bytes]]:
    return [pair for entries in Database.open(str(directory), Files()).scan() for pair in entries.pairs()]
