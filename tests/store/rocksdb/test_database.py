"""Databases of brokers and of RocksDB's library, which lie in data with their content: read whole, in part, damaged.

machine/rocksdb.py made most of them, and judges thousands of others by the library itself; those with merge operands
were made as in interop/test_rocksdb_library.py.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from machine.rocksdb import damage, lie, looks
from oracle import rocksdb
from support import remote

from rmqstore_spark.errors import DamagedStoreError, DeletedMeanwhileError, RmqStoreError
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.io.remote.files import RemoteFiles
from rmqstore_spark.store.rocksdb.database import Database
from rmqstore_spark.store.rocksdb.entry_types import name_of_other
from rmqstore_spark.store.rocksdb.tombstones import RangeDeletion, fragments, newest_over

PACKED = Path(__file__).parents[2] / "data" / "rocksdb"

Content = dict[str, dict[bytes, bytes]]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("databases")
    for packed in sorted(PACKED.glob("*.tar.xz")):
        with tarfile.open(packed) as archive:
            archive.extractall(target / packed.name.split(".")[0], filter="data")
    return target


@pytest.fixture(scope="module")
def databases(unpacked: Path) -> dict[Path, Content]:
    """Directories, and what is in their databases."""
    found = {}
    for content in sorted(unpacked.rglob("content.json")):
        found[content.parent] = {
            family: {bytes.fromhex(key): bytes.fromhex(value) for key, value in pairs.items()}
            for family, pairs in json.loads(content.read_text()).items()
        }
    return found


def read(directory: Path, files: Files | None = None) -> Content:
    database = Database.open(str(directory), files or Files())
    return {name: dict(pairs(database, name)) for name in database.families}


def pairs(database: Database, *scan: Any) -> list[tuple[bytes, bytes]]:
    return [pair for entries in database.scan(*scan) for pair in entries.pairs()]


def test_content_is_what_the_library_says(databases: dict[Path, Content]) -> None:
    assert len(databases) >= 46
    for directory, content in databases.items():
        before = looks(str(directory))
        assert read(directory) == content, directory
        assert looks(str(directory)) == before  # nothing was written


def test_content_in_object_storage_is_the_same(databases: dict[Path, Content]) -> None:
    for directory, content in databases.items():
        assert read(directory, RemoteFiles(bucket=remote.bucket)) == content, directory


def test_what_is_fetched_from_object_storage(tmp_path: Path, rng: random.Random) -> None:
    """CURRENT, MANIFEST, the log, the ends of the tables with the range, and of these the blocks of the range."""
    keys = [f"{number:06}".encode() for number in range(3000)]
    values = {key: rng.randbytes(1000) for key in keys}
    halves = [[(key, values[key]) for key in some] for some in (keys[:1500], keys[1500:])]
    rocksdb.write(tmp_path, [{"default": halves[0]}, {"default": halves[1]}], {})
    files = RemoteFiles(bucket=remote.bucket)
    database = Database.open(str(tmp_path), files)
    opened = files.bytes
    assert opened < 10_000
    found = pairs(database, "default", keys[100], keys[110])
    assert found == [(key, values[key]) for key in keys[100:110]]
    assert (
        10_000 < files.bytes - opened < 64 * 1024 + 2 * 64 * 1024 < 1_500_000
    )  # of a table of 1.5 MB, none of the other


def test_ranges_and_single_keys(databases: dict[Path, Content], rng: random.Random) -> None:
    for directory, content in databases.items():
        database = Database.open(str(directory), Files())
        for family, known in content.items():
            keys = sorted(known)
            assert [key for key, _ in pairs(database, family)] == keys
            for _ in range(10):
                some = [rng.choice(keys) if keys and rng.random() < 0.7 else rng.randbytes(2) for _ in range(2)]
                assert database.get(some[0], family) == known.get(some[0])
                start, stop = sorted(some)
                wanted = [key for key in keys if start <= key < stop]
                assert [key for key, _ in pairs(database, family, start, stop)] == wanted
        with pytest.raises(KeyError):
            database.scan("no such family")


def changed(
    databases: dict[Path, Content], rng: random.Random, how_often: int, lying: bool
) -> Iterator[tuple[Path, str, Content, Content | None]]:
    """A database with damage in one file, that file, the content without it, and what is read; None: an error."""
    for _ in range(how_often):
        directory, content = rng.choice([*databases.items()])
        name = rng.choice([name for name in os.listdir(directory) if name != "content.json"])
        file = directory / name
        kept = file.read_bytes()
        file.write_bytes(lie(kept, name, rng) if lying else damage(kept, rng))
        begun = time.process_time()
        found: Content | None = None
        try:
            found = read(directory)
        except RmqStoreError as why:
            if "\n" in str(why) or str(directory) not in str(why):
                pytest.fail(f"{name}: {why}")
        finally:
            file.write_bytes(kept)
        assert time.process_time() - begun < 5
        yield directory, name, content, found


def test_damage_gives_the_content_or_one_error(databases: dict[Path, Content], rng: random.Random) -> None:
    errors = 0
    for directory, name, content, found in changed(databases, rng, 400, lying=False):
        errors += found is None
        if name.endswith(".sst") and (directory / name).read_bytes()[-53]:
            assert found in (None, content), name
    assert 100 < errors < 400


def test_damage_that_no_checksum_tells_does_no_harm(databases: dict[Path, Content], rng: random.Random) -> None:
    for _ in changed(databases, rng, 400, lying=True):
        pass


def test_a_log_counts_up_to_where_it_ends(unpacked: Path, databases: dict[Path, Content], rng: random.Random) -> None:
    """What is left of a log is a state that the database had: with each byte more there is as much, or more."""
    logs = [log for directory in databases for log in directory.glob("*.log") if 100 < log.stat().st_size < 20_000]
    assert logs
    for log in logs[:3]:
        kept = log.read_bytes()
        before = -1
        for size in sorted(rng.sample(range(len(kept)), min(len(kept), 60))):
            log.write_bytes(kept[:size])
            found = sum(len(one.batches) for one in Database.open(str(log.parent), Files()).logs)
            assert found >= before
            before = found
        log.write_bytes(kept)


class Deleting(Files):
    """Files of which one goes away when it is asked for, so often."""

    def __init__(self, name: str, times: int, source: Path) -> None:
        super().__init__()
        self.name, self.times, self.source = name, times, source

    def fresh(self) -> Files:
        return self

    def file(self, path: str, *args: Any, **kwargs: Any) -> Any:
        if os.path.basename(path) == self.name and self.times:
            self.times -= 1
            raise DeletedMeanwhileError(f"{path}: the file is gone")
        return super().file(path, *args, **kwargs)


def test_a_database_that_changes_is_opened_anew(databases: dict[Path, Content]) -> None:
    directory, content = next((path, content) for path, content in databases.items() if [*path.glob("*.log")])
    log = next(directory.glob("*.log")).name
    assert read(directory, Deleting(log, 2, directory)) == content
    with pytest.raises(DeletedMeanwhileError, match="come and go"):
        read(directory, Deleting(log, 100, directory))
    with pytest.raises(DamagedStoreError, match="expected the name of a MANIFEST, found no such file"):
        read(directory, Deleting("CURRENT", 100, directory))


def test_errors_name_file_and_position(databases: dict[Path, Content], tmp_path: Path) -> None:
    directory = next(path for path in databases if [*path.glob("*.sst")])
    table = next(directory.glob("*.sst"))
    kept = table.read_bytes()
    table.write_bytes(kept[:10] + bytes([kept[10] ^ 1]) + kept[11:])
    try:
        with pytest.raises(DamagedStoreError, match=rf"{table.name}: position 0: expected a block with its CRC-32C"):
            read(directory)
    finally:
        table.write_bytes(kept)


def test_operands_need_their_operator(databases: dict[Path, Content], tmp_path: Path) -> None:
    """Where there are operands, an unknown operator in the options is told, and options that are not there are."""
    refused = 0
    for directory, content in databases.items():
        if directory.parent.name != "merged":
            continue
        own = shutil.copytree(directory, tmp_path / directory.name)
        (options,) = own.glob("OPTIONS-*")
        text = options.read_text()
        options.write_text(text.replace("delimiter=,;", "delimiter=;"))
        without = [value for pairs in read(own).values() for value in pairs.values()]
        options.write_text(text.replace("{id=StringAppendOperator;delimiter=,;}", "UInt64AddOperator"))
        if sum(map(len, without)) == sum(len(value) for pairs in content.values() for value in pairs.values()):
            continue  # all operands were merged when tables were written
        refused += 1
        with pytest.raises(DamagedStoreError, match=rf"{options.name}: .* with the operator UInt64AddOperator"):
            read(own)
        options.unlink()
        with pytest.raises(DamagedStoreError, match="no OPTIONS that name their operator"):
            read(own)
    assert refused > 3


def test_keys_that_are_not_in_order_are_told(tmp_path: Path, rng: random.Random) -> None:
    """Blocks whose checksums are right, with two entries exchanged. A look-up of one key reads one block, which cannot
    show that the key is in another."""
    keys = [f"{number:03}".encode() for number in range(40)]
    for number in range(60):
        one, other = sorted(rng.sample(range(40), 2))
        made = tmp_path / str(number)

        def mix(entries: list[Any], one: int = one, other: int = other) -> None:
            entries[one], entries[other] = entries[other], entries[one]

        rocksdb.write(made, [{"default": [(key, key) for key in keys]}], {}, mix=mix)
        with pytest.raises(DamagedStoreError, match=r"000010\.sst: position \d+: expected .*keys"):
            pairs(Database.open(str(made), Files()))
        for start, stop in [sorted(rng.sample(keys, 2)) for _ in range(10)]:
            with contextlib.suppress(DamagedStoreError):
                found = [key for key, _ in pairs(Database.open(str(made), Files()), "default", start, stop)]
                assert found == sorted(found)
                assert set(found) <= {key for key in keys if start <= key < stop}


def test_an_older_entry_before_a_newer_one_is_told(tmp_path: Path) -> None:
    for in_block in (1, 8):
        made = tmp_path / str(in_block)
        rocksdb.write(made, [{"default": [(b"a", b"old"), (b"a", b"new")]}], {}, in_block)
        with pytest.raises(DamagedStoreError, match=r"000010\.sst: position \d+: expected .*keys in order"):
            pairs(Database.open(str(made), Files()))


def test_a_key_may_go_on_from_the_one_before(tmp_path: Path) -> None:
    """The order of keys is not that of their bytes with sequence numbers; each block here is read by itself."""
    large = bytes(1_100_000)
    records = [(b"k", large), (b"k\0", large), (b"k\0\0", large)]
    rocksdb.write(tmp_path, [{"default": records}], {}, in_block=1)
    assert read(tmp_path) == {"default": dict(records)}


def test_a_file_that_is_no_table_is_told_by_its_last_bytes(tmp_path: Path) -> None:
    rocksdb.write(tmp_path, [{"default": [(b"key", b"value")]}], {})
    (path,) = tmp_path.glob("*.sst")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"\0")
    with pytest.raises(DamagedStoreError, match=f"{path}: position {len(data) - 8}: "):
        read(tmp_path)


def test_names_of_types_that_are_not_read() -> None:
    assert {number: name for number in range(256) if (name := name_of_other(number)) is not None} == {
        **dict.fromkeys((9, 10, 11, 12, 18, 19, 21), "a transaction"),
        **dict.fromkeys((16, 17), "a value in a blob file"),
        20: "a deletion with a timestamp",
        **dict.fromkeys((22, 23), "a wide column"),
        **dict.fromkeys((24, 25), "a value with a time of writing"),
    }


def test_a_compression_that_is_not_rocksdbs_is_refused_by_name(tmp_path: Path) -> None:
    """Tables of format version 7 name who compressed their blocks."""
    for named, is_read in ((b"BuiltinV2;04;", True), (b";;", True), (b"Own;80;", False)):
        rocksdb.write(tmp_path / named.decode(), [{"default": [(b"k", b"v")]}], {}, version=7, compression=named)
        if is_read:
            assert read(tmp_path / named.decode()) == {"default": {b"k": b"v"}}
        else:
            with pytest.raises(DamagedStoreError, match="found blocks that are compressed by Own"):
                read(tmp_path / named.decode())


def test_fragments_say_what_the_ranges_do(rng: random.Random) -> None:
    for _ in range(300):
        keys = [bytes([n]) for n in range(12)]
        ranges = [RangeDeletion(rng.choice(keys), rng.choice(keys), rng.randrange(50)) for _ in range(rng.randrange(8))]
        found = fragments(ranges)
        assert all(one.stop <= other.start for one, other in itertools.pairwise(found))
        for key in keys:
            assert newest_over(found, key) == max(
                (one.newest for one in ranges if one.start <= key < one.stop), default=0
            )
            expected = max((one.newest for one in ranges if one.start <= key < one.stop), default=None)
            assert next((one.newest for one in found if one.start <= key < one.stop), None) == expected
            assert newest_over(found, key) == (expected or 0)


@pytest.mark.parametrize("at", range(29, 37))
def test_a_footer_with_more_than_is_known(at: int, tmp_path: Path) -> None:
    """Its unused bytes are zeros; a later RocksDB may say something there, with the right checksum."""
    rocksdb.write(tmp_path, [{"default": [(b"key", b"value")]}], {}, version=6)
    (table,) = tmp_path.glob("*.sst")
    data = bytearray(table.read_bytes())
    footer = len(data) - 53
    data[footer + 4 + at] = 1
    cleared = bytes(data[footer : footer + 5]) + bytes(4) + bytes(data[footer + 9 :])
    data[footer + 5 : footer + 9] = rocksdb.masked_crc(cleared)
    table.write_bytes(data)
    with pytest.raises(RmqStoreError, match="a footer with what is not known here"):
        read(tmp_path)


@pytest.mark.parametrize("keys", [[b""], [b"", b"\0", b"key"]])
def test_a_key_may_be_empty(keys: list[bytes], tmp_path: Path) -> None:
    content = {key: b"value of " + key for key in keys}
    rocksdb.write(tmp_path, [{"default": [*content.items()]}], {})
    assert read(tmp_path) == {"default": content}
    assert Database.open(str(tmp_path), Files()).get(b"", "default") == b"value of "


@pytest.mark.parametrize("size", [40, 9000])
def test_a_log_with_damage_before_its_end(size: int, tmp_path: Path, rng: random.Random) -> None:
    """What follows shows that the record was written whole: it is not left out. The last record may be half written."""
    logged = {name: [(b"key", bytes(size))] for name in ("default", "one", "two")}
    rocksdb.write(tmp_path, [], logged)
    (path,) = tmp_path.glob("*.log")
    data = path.read_bytes()
    last = data.rindex(b"key") - 30
    for at in rng.sample(range(7, last - size), 10):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(DamagedStoreError, match=rf"{path.name}: position \d+: expected a record with its CRC-32C"):
            read(tmp_path)
    path.write_bytes(data[: len(data) - 1])
    assert read(tmp_path) == {name: dict(pairs) for name, pairs in logged.items() if name != "two"} | {"two": {}}
