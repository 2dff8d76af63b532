"""RemoteFiles and its files: the bytes are those of the object, whatever is asked in whatever order; few requests."""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import golden
from support import reading, remote

from rmqstore_spark.errors import NotAStoreError, OptionError, StorageError
from rmqstore_spark.store.io import read_ahead
from rmqstore_spark.store.io.remote import file as remote_file
from rmqstore_spark.store.io.remote import listing as remote_listing
from rmqstore_spark.store.io.remote import pages as remote_pages
from rmqstore_spark.store.io.remote.file import RemoteFile
from rmqstore_spark.store.io.remote.files import PRICES, RemoteFiles
from rmqstore_spark.store.io.storage import Storage, location
from rmqstore_spark.store.snapshot import Snapshot

SIZE = 300_000


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and pages so small that a file of a few hundred kilobytes has many."""
    for name, size in {"BLOCK": 40_000, "_LARGEST": 40_000, "_LOOK": 40_000}.items():
        monkeypatch.setattr(remote_file, name, size)
    for name, size in {"PAGE_BYTES": 4096, "MOST_PAGES": 8}.items():
        monkeypatch.setattr(remote_pages, name, size)
    for name, size in {"BLOCK": 40_000, "_FIRST_BLOCK": 10_000, "_SMALL_BLOCK": 10_000}.items():
        monkeypatch.setattr(read_ahead, name, size)


@pytest.fixture
def content(tmp_path: Path, rng: random.Random) -> bytes:
    data = rng.randbytes(SIZE)
    (tmp_path / "object").write_bytes(data)
    return data


def opened(path: Path, prices: Any = PRICES) -> tuple[RemoteFile, RemoteFiles]:
    files = RemoteFiles(prices, bucket=remote.bucket)
    file = files.file(str(path))
    assert isinstance(file, RemoteFile)
    return file, files


@pytest.mark.usefixtures("small")
def test_all_ways_of_reading_give_the_bytes(tmp_path: Path, content: bytes, rng: random.Random) -> None:
    for _ in range(20):
        file, _ = opened(tmp_path / "object")
        if rng.random() < 0.7:
            start = rng.randrange(SIZE)
            file.expect(start, rng.randrange(start, SIZE + 1000))
        at = 0
        for _ in range(30):
            # Most reads go on where the last one ended, as a scan does.
            at = at if rng.random() < 0.7 else rng.randrange(SIZE + 100)
            size = rng.choice([1, 20, 4096, 30_000, 120_000])
            expected = content[at : at + size]
            match rng.randrange(3):
                case 0:
                    assert bytes(file.load(at, size, lambda n: memoryview(bytearray(n)))) == expected
                    at += len(expected)
                case 1:
                    assert file.read(at, size) == expected
                case _:
                    assert_gathers(file, content, rng)
        file.close()


@pytest.mark.usefixtures("small")
def test_a_page_that_is_forgotten_just_then(tmp_path: Path, content: bytes) -> None:
    """The oldest page of all that are kept, and its neighbour that is still to come."""
    file, _ = opened(tmp_path / "object")
    for number in (0, *range(2, 9)):
        file.read(number * 4096, 20)
    assert file.read(4090, 20) == content[4090:4110]


def assert_gathers(file: RemoteFile, content: bytes, rng: random.Random) -> None:
    count = rng.randrange(1, 40)
    offsets = np.sort(np.array([rng.randrange(SIZE + 50) for _ in range(count)], np.int64))
    sizes = np.array([rng.choice([1, 100, 3000]) for _ in range(count)], np.int32)
    buffer = bytearray(rng.choice([500, 20_000, 200_000]))
    window_offsets, lengths = np.full((2, count), -1, np.int64)
    taken = file.gather(offsets, sizes, memoryview(buffer), window_offsets, lengths)
    assert taken == count or sum(sizes[: taken + 1]) > len(buffer)
    for number in range(taken):
        at, size = int(offsets[number]), int(sizes[number])
        there = buffer[window_offsets[number] :][: lengths[number]]
        assert there == content[at : at + size]


def test_a_scan_reads_each_byte_once_in_large_requests(tmp_path: Path) -> None:
    size = 40 * 1024 * 1024 + 5
    with (tmp_path / "object").open("wb") as out:
        out.truncate(size)
        os.pwrite(out.fileno(), b"end", size - 3)
    file, files = opened(tmp_path / "object")
    files.requests = 0
    file.expect(0, size)
    at, copied = 0, 0

    def buffer(count: int) -> memoryview:
        nonlocal copied
        copied += count
        return memoryview(bytearray(count))

    while at < size:
        at += len(file.load(at, 512 * 1024, buffer)) - (100 if at + 512 * 1024 < size else 0)
    assert (files.requests, files.bytes) == (11, size)  # the first one is smaller
    assert copied <= 10 * 512 * 1024  # only where one block goes over into the next


def test_the_end_of_data_costs_few_rounds(tmp_path: Path, rng: random.Random) -> None:
    """Of a file as large as a segment."""
    size, end = 1 << 30, rng.randrange(9 << 20, 1 << 30)  # beyond the first part of its extents
    with (tmp_path / "object").open("wb") as out:
        out.truncate(size)
        for at in range(0, end, 64 * 1024):  # not all of it: the test's disk is no place for a gigabyte
            os.pwrite(out.fileno(), b"x", at)
    file, files = opened(tmp_path / "object")
    assert file.data_end() == size
    assert file.likely_data_end() == (end - 1) // (64 * 1024) * 64 * 1024 + 1
    assert files.requests <= 2 * 129  # in two rounds (tests/tables/test_remote_rounds.py)
    assert files.bytes < 9 * 1024 * 1024
    files.requests = files.bytes = 0
    assert next(file.extents(size - (100 << 20), size)) == (size - (100 << 20), size - (92 << 20))
    assert files.bytes < 8 * 1024 * 1024
    assert list(file.extents(0, size)) == [(0, 8 << 20), (8 << 20, size)]


def test_a_store_is_listed_once(tmp_path: Path) -> None:
    root = golden.unpack(golden.VERSIONS[-1], tmp_path / "store")
    remote.DIRECTORY.asked.clear()
    reading.make_plan(root)
    assert not remote.DIRECTORY.asked
    reading.plan(reading.options_of(root), remote.remote_files())
    assert [what for what, _ in remote.DIRECTORY.asked if what != "get"] == ["below"]


def test_what_is_no_store_is_not_listed_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who gives a whole bucket, or a lake of tables, hears at once that it is no store."""
    monkeypatch.setattr(remote_listing, "_FIRST_LOOK", 10)
    for number in range(20):
        (tmp_path / f"part-{number}").write_bytes(b"x")
    files = remote.remote_files()
    remote.DIRECTORY.asked.clear()
    files.list_tree(str(tmp_path))
    with pytest.raises(NotAStoreError, match="expected a directory commitlog/"):
        Snapshot.find(str(tmp_path), files)
    assert [what for what, _ in remote.DIRECTORY.asked] == ["below", "inside"]
    root = golden.unpack(golden.VERSIONS[-1], tmp_path / "store")
    assert reading.read(root, files=remote.remote_files(reading.FREE)) == reading.read(root, prices=reading.FREE)


def test_marks_of_directories(tmp_path: Path) -> None:
    """As tools leave them, and what comes from nowhere."""
    (tmp_path / "store" / "queue").mkdir(parents=True)
    for name in ("store_$folder$", "store/queue_$folder$", "store/empty", "store/queue/1"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "store" / "queue" / "2").write_bytes(b"xy")
    for is_surveyed in (False, True):
        files = remote.remote_files()
        if is_surveyed:
            files.list_tree(str(tmp_path))
        assert sorted(files.names(str(tmp_path))) == ["store"]
        assert sorted(files.names(f"{tmp_path}/store/")) == ["empty", "queue"]
        assert sorted(files.names(f"{tmp_path}/store/queue")) == ["1", "2"]
        assert files.names(f"{tmp_path}/store/empty") == []
        assert files.is_directory(f"{tmp_path}/store/queue")
        assert not files.is_directory(f"{tmp_path}/store/queue/2")
        assert files.status(f"{tmp_path}/store/queue/2").st_size == 2
        for missing in ("none", "store/none", "store/queue/2/none", "store/queue/none/none"):
            assert not files.exists(f"{tmp_path}/{missing}")
            with pytest.raises((FileNotFoundError, NotADirectoryError)):
                files.names(f"{tmp_path}/{missing}")
        with pytest.raises(NotADirectoryError):
            files.names(f"{tmp_path}/store/queue/2")


def test_an_object_is_the_one_that_was_planned_with(tmp_path: Path, content: bytes) -> None:
    files = remote.remote_files()
    pin = files.pin(str(tmp_path / "object"))
    assert pin is not None
    assert files.file(str(tmp_path / "object"), pin=pin).read(5, 5) == content[5:10]
    (tmp_path / "object").write_bytes(content[::-1])
    with pytest.raises(StorageError, match="was replaced since"):
        remote.remote_files().file(str(tmp_path / "object"), pin=pin).read(5, 5)


def test_what_is_pickled_knows_no_secret() -> None:
    storage = Storage({"aws_secret_access_key": "MARKER"})
    files = RemoteFiles(storage=storage)
    assert b"MARKER" not in pickle.dumps(files)
    assert "MARKER" not in repr(files) + repr(storage) + repr(vars(files))


def test_the_page_that_is_used_most_is_kept(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_pages, "PAGE_BYTES", 4096)
    monkeypatch.setattr(remote_pages, "MOST_PAGES", 3)
    file, files = opened(tmp_path / "object")
    before = files.requests
    for number in range(20):
        assert file.read(100, 10) == content[100:110]
        at = 4096 * (2 + 2 * number)
        assert file.read(at, 10) == content[at : at + 10]
    assert files.requests - before == 1 + 20


def test_no_secret_stands_in_a_path() -> None:
    """As Hadoop once took them: they would be in every message that names the file."""
    with pytest.raises(OptionError, match=r"s3a://\(hidden\)@bucket/a: expected the name of a bucket only") as error:
        RemoteFiles().names("s3a://key:secret@bucket/a")
    assert "secret" not in str(error.value)
    assert location("abfss://container@account.dfs.core.windows.net/a").bucket == "container"
