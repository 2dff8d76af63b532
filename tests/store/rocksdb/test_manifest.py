"""What the edits of a MANIFEST add up to; and the one error for each that RocksDB, or a broker, does not write."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from oracle.rocksdb import _logged, sized, varint

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.rocksdb.manifest import Manifest, TableFile, current_manifest, read_manifest

NUMBERS = b"\x02\x05\x03\x09\x04\x63"  # log 5, next file 9, last sequence number 99
KEY = b"key" + bytes(8)


def table(number: int, tag: int = 103, level: int = 2, path: bytes = b"", more: bytes = b"", key: bytes = KEY) -> bytes:
    """An edit's field for a new table."""
    sequences = b"" if tag == 7 else b"\x01\x02"
    head = varint(tag) + varint(level) + varint(number) + path
    return head + varint(70) + sized(key) + sized(key) + sequences + (more + b"\x01" if tag == 103 else b"")


def of_family(number: int) -> bytes:
    return varint(200) + varint(number)


def add(number: int, name: bytes = b"offset") -> bytes:
    return of_family(number) + varint(201) + sized(name)


DROP = varint(202)
DELETED = b"\x06\x02\x07"  # table 7 of level 2


def read(directory: Path, edits: Sequence[bytes]) -> Manifest:
    (directory / "MANIFEST-000001").write_bytes(_logged(edits))
    (directory / "CURRENT").write_text("MANIFEST-000001\n")
    return read_manifest(str(directory), Files())


@pytest.mark.parametrize(
    ("edits", "tables"),
    [
        ([table(7), table(8, 7), table(9, 100), table(10, 102, path=b"\0")], {"default": [7, 8, 9, 10]}),
        ([table(7) + table(8), DELETED], {"default": [8]}),
        ([table(7), DELETED + table(7)], {"default": [7]}),
        ([table(7, more=b"\x05\x03abc")], {"default": [7]}),  # a field of a file that may be passed over
        ([table(7, more=b"\x41\x01\0")], {"default": [7]}),  # its directory, which is the first
        ([b"\x05\x02" + sized(KEY) + varint(1 << 13 | 1) + sized(b"of a later RocksDB")], {"default": []}),
        ([add(1), of_family(1) + table(7)], {"default": [], "offset": [7]}),
        ([add(1), of_family(1) + DROP, of_family(1) + table(7)], {"default": []}),
        ([add(1), of_family(1) + DROP, add(1, b"again")], {"default": [], "again": []}),
        ([varint(300) + b"\x01" + table(7), varint(300) + b"\x00" + table(8)], {"default": [7, 8]}),
        ([table(6), varint(300) + b"\x01" + table(7)], {"default": [6]}),  # the group's last edit is not there
    ],
)
def test_tables(edits: list[bytes], tables: dict[str, list[int]], tmp_path: Path) -> None:
    found = read(tmp_path, [NUMBERS, *edits])
    assert {each.name: sorted(each.tables) for each in found.families.values()} == tables
    for each in itertools.chain(*(family.tables.values() for family in found.families.values())):
        assert each == TableFile(each.number, 2, 70, b"key", b"key", False)
    assert found.first_log == min(found.families[0].log_number, *(f.log_number for f in found.families.values()), 5)


@pytest.mark.parametrize(
    ("edits", "found"),
    [
        ([b"\x01" + sized(b"own.Order")], "found keys in the order of own.Order"),
        ([b"\x0b"], "found an edit with field 11"),
        ([table(7, level=101)], "expected a level of an edit"),
        ([table(7, key=b"short")], "expected a key with its sequence number of an edit"),
        ([table(7, 102, path=b"\x01")], r"found table 7 in another directory \(1\)"),
        ([table(7, more=b"\x41\x01\x02")], r"found table 7 in another directory \(2\)"),
        ([table(7, more=b"\x42\x01\x02")], "found a table with field 66"),
        ([add(1), add(1)], "position [0-9]+: expected a new column family in record 2"),
        ([add(0)], "expected a new column family in record 1"),
        ([DROP], "expected a column family that is there in record 1"),
        ([of_family(3) + DROP], "expected a column family that is there in record 1"),
        ([DELETED], "expected table 7 to be there at level 2 in record 1"),
        ([table(7, level=3), DELETED], "expected table 7 to be there at level 2 in record 2"),
        ([table(7), table(7)], "expected table 7 not to be there in record 2"),
        ([table(7)[:-3]], "expected .* of an edit"),
    ],
)
def test_edits_that_are_not_sound(edits: list[bytes], found: str, tmp_path: Path) -> None:
    with pytest.raises(RmqStoreError, match=f"MANIFEST-000001: .*{found}"):
        read(tmp_path, [NUMBERS, *edits])


@pytest.mark.parametrize(
    ("edits", "found"),
    [
        ([], "expected a record, found none"),
        ([NUMBERS[:2]], "expected edits with last_sequence, next_file, found the end"),
    ],
)
def test_manifests_without_what_each_has(edits: list[bytes], found: str, tmp_path: Path) -> None:
    with pytest.raises(RmqStoreError, match=found):
        read(tmp_path, edits)


def test_the_manifest_that_counts(tmp_path: Path) -> None:
    with pytest.raises(RmqStoreError, match="CURRENT: position 0: expected the name of a MANIFEST, found no such file"):
        current_manifest(str(tmp_path), Files())
    with pytest.raises(RmqStoreError, match="gone"):  # the whole database, which may have been deleted meanwhile
        current_manifest(str(tmp_path / "gone"), Files())
    (tmp_path / "CURRENT").write_text("MANIFEST-1")
    with pytest.raises(RmqStoreError, match="expected the name of a MANIFEST, found b'MANIFEST-1'"):
        current_manifest(str(tmp_path), Files())
