"""Judges the reader of RocksDB by RocksDB's own library, over random databases, and over databases with damage.

It needs rocksdict, as tests do:

    PYTHONPATH=.:tests python -m machine.rocksdb made 0 1000     # databases of seeds 0 to 999: contents are equal
    PYTHONPATH=.:tests python -m machine.rocksdb damaged 0 1000  # 10 damages each: right content, or one clear error
    PYTHONPATH=.:tests python -m machine.rocksdb lying 0 1000    # the same with checksums that fit: no crash, no hang
    PYTHONPATH=.:tests python -m machine.rocksdb golden 0 40 tests/data/rocksdb/made.tar.xz  # for tests

A database is made with settings that brokers have, and others that the reader takes, in several sittings; it is judged
as it lies after each, and as a copy that was taken while it was open. A failure prints its seed and ends the run.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
import random
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support import memory

from native_io import masked_crc32c
from rmqstore_spark.errors import DamagedStoreError, DeletedMeanwhileError, RmqStoreError
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.rocksdb.database import Database

Content = dict[str, dict[bytes, bytes]]

_COMPRESSIONS = ("none", "lz4", "zstd", "lz4hc", "snappy", "zlib", "bz2")
_MOST_SECONDS = 2.0  # of the processor, for a small database, however damaged
_MOST_BYTES = 1 << 30  # of memory in all; what lies asks for more
_DAMAGES = 10  # of each database
_FOOTER = 53  # bytes of a table
_MOST_GOLDEN = 40_000  # bytes of a database


def library() -> Any:
    return importlib.import_module("rocksdict")


def table_options(rng: random.Random) -> Any:
    rocks = library()
    table = rocks.BlockBasedOptions()
    table.set_format_version(rng.choice((5, 5, 5, 2, 3, 4, 6, 6)))
    table.set_checksum_type(
        getattr(rocks.ChecksumType, rng.choice(("crc32c",) * 3 + ("xxh3",) * 3 + ("no_checksum",)))()
    )
    table.set_block_size(rng.choice((256, 1024, 4096, 32768)))
    table.set_block_restart_interval(rng.choice((16, 16, 1, 4, 64)))
    if rng.random() < 0.3:
        table.set_index_block_restart_interval(rng.choice((1, 8)))
    if rng.random() < 0.5:
        table.set_data_block_index_type(rocks.DataBlockIndexType.binary_and_hash())
        table.set_data_block_hash_ratio(0.75)
    if rng.random() < 0.15:
        table.set_index_type(rocks.BlockBasedIndexType.two_level_index_search())
        table.set_metadata_block_size(rng.choice((64, 512, 4096)))
    if rng.random() < 0.8:
        table.set_bloom_filter(16, False)
    return table


def options(rng: random.Random) -> Any:
    rocks = library()
    made = rocks.Options(raw_mode=True)
    made.create_if_missing(True)
    made.create_missing_column_families(True)
    made.set_block_based_table_factory(table_options(rng))
    made.set_compression_type(getattr(rocks.DBCompressionType, rng.choice(_COMPRESSIONS))())
    if rng.random() < 0.5:
        made.set_bottommost_compression_type(getattr(rocks.DBCompressionType, rng.choice(_COMPRESSIONS))())
    made.set_write_buffer_size(rng.choice((16 * 1024, 64 * 1024, 64 * 1024 * 1024)))
    made.set_target_file_size_base(rng.choice((4 * 1024, 64 * 1024, 64 * 1024 * 1024)))
    made.set_max_bytes_for_level_base(rng.choice((16 * 1024, 256 * 1024 * 1024)))
    made.set_level_zero_file_num_compaction_trigger(rng.choice((2, 4, 100)))
    made.set_disable_auto_compactions(rng.random() < 0.3)
    style = rng.choice(("level", "universal"))
    made.set_compaction_style(getattr(rocks.DBCompactionStyle, style)())
    if style == "level" and rng.random() < 0.3:
        made.set_inplace_update_support(True)
        made.set_allow_concurrent_memtable_write(False)
    if rng.random() < 0.3:
        made.set_recycle_log_file_num(2)
    made.set_allow_concurrent_memtable_write(False)
    return made


def key_of(rng: random.Random, kind: int) -> bytes:
    topic = rng.choice((b"Rk", b"TopicTest", b"%RETRY%CG", b"x" * 200, b""))
    if kind == 0:
        head = len(topic).to_bytes(4, "big") + b"\1" + topic + b"\1" + rng.randrange(4).to_bytes(4, "big") + b"\1"
        return head + rng.randrange(2000).to_bytes(8, "big")
    if kind == 1:
        return topic + b"@CG" + str(rng.randrange(300)).encode()
    return rng.randbytes(rng.choice((0, 1, 1, 2, 3)))


def value_of(rng: random.Random, most: int) -> bytes:
    shape = rng.random()
    if shape < 0.6:
        return rng.randbytes(28)
    if shape < 0.95:
        return b'{"offsetTable":{"0":%d}}' % rng.randrange(1000)
    return rng.choice((b"", b"z" * 5000, rng.randbytes(most)))


class Sitting:
    """One time that a database is open for writing."""

    def __init__(self, path: str, rng: random.Random, families: list[str], most: int) -> None:
        rocks = library()
        self.rng = rng
        self.most = most
        self.kind = rng.choice((0, 0, 1, 2))
        self.db = rocks.Rdict(path, options(rng), column_families={name: options(rng) for name in families})
        for name in families:
            self.db.get_column_family(name).set_write_options(self.write_options())

    def write_options(self) -> Any:
        made = library().WriteOptions()
        made.disable_wal = self.rng.random() < 0.2
        return made

    def work(self, families: list[str]) -> None:
        rng = self.rng
        views = [self.db.get_column_family(name) for name in families]
        for _ in range(rng.choice((0, 3, 30))):
            view = rng.choice(views)
            deed = rng.random()
            if deed < 0.6:
                for _ in range(rng.choice((1, 10, 200))):
                    view[key_of(rng, self.kind)] = value_of(rng, self.most)
            elif deed < 0.75:
                for _ in range(rng.choice((1, 50))):
                    view.delete(key_of(rng, self.kind))
            elif deed < 0.85:
                start, stop = sorted((key_of(rng, self.kind), key_of(rng, self.kind)))
                view.delete_range(start, stop)
            elif deed < 0.95:
                view.flush(True)
            elif deed < 0.98:
                view.compact_range(None, None)
            else:
                self.batch(families)

    def batch(self, families: list[str]) -> None:
        rng = self.rng
        batch = library().WriteBatch(raw_mode=True)
        for _ in range(rng.randrange(20)):
            handle = self.db.get_column_family_handle(rng.choice(families))
            if rng.random() < 0.7:
                batch.put(key_of(rng, self.kind), value_of(rng, self.most), handle)
            else:
                batch.delete(key_of(rng, self.kind), handle)
        self.db.write(batch)


def judged(path: str) -> Content:
    """What the library says. It opens links in a directory of its own, as it writes a file there."""
    rocks = library()
    with tempfile.TemporaryDirectory() as own:
        for name in os.listdir(path):
            shutil.copy(os.path.join(path, name), own)
        names = rocks.Rdict.list_cf(own)
        families = {name: rocks.Options(raw_mode=True) for name in names}
        access = rocks.AccessType.read_only()
        db = rocks.Rdict(own, rocks.Options(raw_mode=True), column_families=families, access_type=access)
        found = {name: dict(db.get_column_family(name).items()) for name in names}
        db.close()
    return found


def read(path: str) -> Content:
    """What the reader says."""
    database = Database.open(path, Files())
    return {name: ordered(name, database) for name in database.families}


def ordered(name: str, database: Database) -> dict[bytes, bytes]:
    pairs = [pair for entries in database.scan(name) for pair in entries.pairs()]
    assert all(before[0] < after[0] for before, after in itertools.pairwise(pairs)), "keys in order, none twice"
    return dict(pairs)


def states(directory: str, seed: int, most: int = 40_000) -> Iterator[str]:
    """Directories of one database as it lies at several times; a value has at most so many bytes, or 5,000."""
    rng = random.Random(seed)
    path = os.path.join(directory, "db")
    families = ["default", *rng.sample(["offset", "topic", "kvDataVersion"], rng.randrange(3))]
    for sitting in range(rng.randrange(1, 4)):
        one = Sitting(path, rng, families, most)
        one.work(families)
        if rng.random() < 0.5:
            copied = os.path.join(directory, f"open{sitting}")
            if rng.random() < 0.8:
                one.db.flush_wal(True)
            with contextlib.suppress(OSError, shutil.Error):
                shutil.copytree(path, copied)
                yield copied
        if len(families) > 1 and rng.random() < 0.1:
            one.db.drop_column_family(families.pop())
        one.db.close()
        yield path


def check_ranges(path: str, content: Content, rng: random.Random) -> None:
    """Single keys, and ranges of keys, are those of the content."""
    database = Database.open(path, Files())
    for name, pairs in content.items():
        known = sorted(pairs)
        for _ in range(5):
            some = [
                rng.choice(known) if known and rng.random() < 0.7 else key_of(rng, rng.randrange(3)) for _ in range(2)
            ]
            assert database.get(some[0], name) == pairs.get(some[0]), (name, some[0])
            start, stop = sorted(some)
            found = dict(pair for entries in database.scan(name, start, stop) for pair in entries.pairs())
            assert found == {key: pairs[key] for key in known if start <= key < stop}, (name, start, stop)


def may_be_judged(path: str) -> bool:
    try:
        return bool(judged(path))
    except Exception as why:  # it has no other class
        print("the library says", why)
        return False


def check_made(seed: int) -> int:
    """The databases of a seed have the content that the library says."""
    count = 0
    with tempfile.TemporaryDirectory() as directory:
        for path in states(directory, seed):
            before = looks(path)
            try:
                found = read(path)
            except (DeletedMeanwhileError, DamagedStoreError):  # the library's own threads wrote while it was copied
                if path == os.path.join(directory, "db") or may_be_judged(path):
                    raise
                continue
            assert looks(path) == before, "the reader changed the directory"
            assert found == judged(path), f"{path} is read otherwise"
            check_ranges(path, found, random.Random(seed))
            count += 1
    return count


def looks(path: str) -> dict[str, tuple[int, int, int]]:
    """Names, inodes, sizes and times of change of the files in a directory."""
    found = {name: os.stat(os.path.join(path, name)) for name in os.listdir(path)}
    return {name: (status.st_ino, status.st_size, status.st_mtime_ns) for name, status in found.items()}


def damage(data: bytes, rng: random.Random) -> bytes:
    """The bytes of a file, otherwise: a bit, a byte, a length that lies, a piece gone, zeroed or twice, cut, longer."""
    if not data:
        return rng.randbytes(rng.randrange(1, 60))
    at = rng.randrange(len(data))
    size = rng.choice((1, 4, 53, 700))
    deed = rng.randrange(8)
    if deed == 0:
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if deed == 1:
        return data[:at] + bytes([rng.choice((0, 1, 0x7F, 0x80, 0xFF))]) + data[at + 1 :]
    if deed == 2:
        return data[:at] + b"\xff\xff\xff\xff" + data[at + 4 :]
    if deed == 3:
        return data[:at]
    if deed == 4:
        return data[:at] + data[at + size :]
    if deed == 5:
        return data[: at + size] + data[at:]
    if deed == 6:
        return data[:at] + bytes(min(size, len(data) - at)) + data[at + size :]
    return data + rng.randbytes(size)


def check_damaged(seed: int, lying: bool = False) -> int:
    """A damaged database of a seed gives the content, or one clear error.

    Args:
        lying: the damage is such that checksums fit: then any content will do.
    """
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        path = rng.choice([*states(directory, seed)])
        content = read(path)
        files = [name for name in os.listdir(path) if name == "CURRENT" or name.endswith((".sst", ".log"))]
        files += [name for name in os.listdir(path) if name.startswith("MANIFEST")]
        for _ in range(_DAMAGES):
            name = rng.choice(files)
            file = Path(path, name)
            kept = file.read_bytes()
            file.write_bytes(lie(kept, name, rng) if lying else damage(kept, rng))
            found = bounded(lambda: read(path), f"{path}: {name}")
            is_log = name.endswith(".log") or name.startswith("MANIFEST")
            is_right = lying or found in (None, content) or (found is not None and is_log and is_earlier(path, found))
            assert is_right or is_unchecked(file.read_bytes(), name), f"{name} is read otherwise"
            file.write_bytes(kept)
    return _DAMAGES


def lie(data: bytes, name: str, rng: random.Random) -> bytes:
    """The bytes of a file with damage that no checksum tells."""
    if name.endswith(".sst") and len(data) >= _FOOTER:
        at = rng.randrange(max(1, len(data) - _FOOTER))
        byte = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        changed = bytearray(data)
        changed[at] = byte
        changed[-_FOOTER] = 0  # no checksums
        return bytes(changed)
    if name == "CURRENT" or not data:
        return damage(data, rng)
    changed = bytearray(data)
    starts = [*pieces(data)] or [0]
    for at in rng.sample(starts, min(len(starts), rng.choice((1, 1, 3)))):
        size = 7 + 4 * (data[at + 6] in (5, 6, 7, 8)) + int.from_bytes(data[at + 4 : at + 6], "little")
        for _ in range(rng.choice((1, 1, 5))):
            changed[rng.randrange(at + 6, max(at + 7, min(at + size, len(data))))] = rng.choice((0, 1, 0x80, 0xFF, 103))
        changed[at : at + 4] = masked_crc32c(bytes(changed[at + 6 : at + size])).to_bytes(4, "little")
    return bytes(changed)


def pieces(data: bytes) -> Iterator[int]:
    """Where the pieces of a log begin."""
    at = 0
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        yield at
        at += 7 + 4 * (data[at + 6] in (5, 6, 7, 8)) + int.from_bytes(data[at + 4 : at + 6], "little")


def is_earlier(path: str, found: Content) -> bool:
    """Where the end of a log is gone, an earlier state is right: the library has the same one."""
    return may_be_judged(path) and judged(path) == found


def is_unchecked(data: bytes, name: str) -> bool:
    """Is it a table without checksums?"""
    return name.endswith(".sst") and len(data) >= _FOOTER and data[-_FOOTER] == 0


def bounded(work: Callable[[], Content], what: str) -> Content | None:
    """What is read, with bounds on time and memory; None: one clear error."""
    before, peak = time.process_time(), memory.peak()
    try:
        return work()
    except RmqStoreError as why:
        if "\n" in str(why):
            raise AssertionError(f"{what}: {why}") from None
        return None
    finally:
        spent = time.process_time() - before
        assert spent < _MOST_SECONDS, f"{what}: {spent} s"
        assert memory.peak() <= max(peak, _MOST_BYTES), what


def make_golden(first: int, after: int, packed: str) -> None:
    """Databases with their content, small ones, for tests that have no library."""
    with tarfile.open(packed, "w:xz") as archive, tempfile.TemporaryDirectory() as directory:
        for seed in range(first, after):
            own = os.path.join(directory, str(seed))
            os.mkdir(own)
            path = [*states(own, seed, 100)][-1]
            files = [name for name in sorted(os.listdir(path)) if name == "CURRENT" or name.endswith((".sst", ".log"))]
            files += [name for name in os.listdir(path) if name.startswith("MANIFEST")]
            if not 1000 < sum(os.path.getsize(os.path.join(path, name)) for name in files) < _MOST_GOLDEN:
                continue
            content = {
                family: {key.hex(): value.hex() for key, value in pairs.items()}
                for family, pairs in judged(path).items()
            }
            Path(path, "content.json").write_text(json.dumps(content))
            for name in [*files, "content.json"]:
                archive.add(os.path.join(path, name), f"{seed}/{name}", filter=without_owner)


def without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def main(kind: str, first: str, after: str, packed: str = "") -> None:
    if kind == "golden":
        make_golden(int(first), int(after), packed)
        return
    checks: dict[str, Callable[[int], int]] = {
        "made": check_made,
        "damaged": check_damaged,
        "lying": lambda seed: check_damaged(seed, True),
    }
    count = 0
    for seed in range(int(first), int(after)):
        try:
            count += checks[kind](seed)
        except BaseException:
            print(f"seed {seed}", flush=True)
            raise
    print(f"{kind}: seeds {first} to {int(after) - 1}: {count} databases")


if __name__ == "__main__":
    main(*sys.argv[1:])
