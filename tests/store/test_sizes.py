"""The size of a store's files is found though some were cut, padded or lost: from their names and from most of them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from oracle.stores import StoreBuilder

from rmqstore_spark.store.format.sizes import usual_size
from rmqstore_spark.store.geometry import segment_size, usual_queue_file
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot

Row = list[tuple[int, int]]


@pytest.mark.parametrize(
    ("rows", "unit", "expected"),
    [
        ([], 1, 0),
        ([[(0, 0)]], 1, 0),
        ([[(0, 0), (400, 0)]], 1, 0),  # one may be missing between them
        ([[(0, 100), (8192, 8192), (16384, 8192)]], 1, 8192),
        ([[(0, 8192), (8192, 100)]], 1, 8192),
        ([[(0, 4096), (8192, 8192)]], 1, 8192),
        ([[(0, 9000), (8192, 8192)]], 1, 8192),  # padded
        ([[(0, 100), (8192, 0), (16384, 77)]], 1, 8192),  # names alone tell
        ([[(0, 8192), (24576, 8192)]], 1, 8192),  # two are missing
        ([[(0, 1), (8192, 1), (16384, 8192)]], 1, 8192),
        ([[(0, 8192), (100, 8192)]], 1, 8192),  # files of two logs
        ([[(0, 200)], [(0, 30)]], 20, 200),
        ([[(0, 30)]], 20, 0),
        ([[(0, 40)], [(0, 200), (200, 60)]], 20, 200),
    ],
)
def test_names_and_most_files_tell(rows: list[Row], unit: int, expected: int) -> None:
    assert usual_size(rows, unit) == expected


def test_any_files_but_one_may_be_cut(rng: random.Random) -> None:
    for _ in range(200):
        size, count = 20 * rng.randrange(2, 500), rng.randrange(2, 12)  # names of two files tell
        first = size * rng.randrange(3)
        row = [(first + size * number, size) for number in range(count)]
        for number in rng.sample(range(count), rng.randrange(count)):
            row[number] = row[number][0], rng.randrange(size)
        assert usual_size([row], 20) == size, row


@pytest.mark.parametrize("kept", ["in a head", "in a body", "in the blank", "in zeros"])
def test_an_only_segment_that_was_cut(tmp_path: Path, kept: str) -> None:
    """Then nothing tells but a blank, which has the bytes up to the end in it: RocketMQ's own size is more likely than
    that of the rest."""
    builder = StoreBuilder(tmp_path, segment_size=8192)
    for number in range(30):
        builder.append(body=b"%030d" % number)
    while kept == "in the blank" and builder.end < 8192:
        builder.append(body=b"x" * 500)
    builder.close()
    for path in sorted((tmp_path / "commitlog").iterdir())[1:]:
        path.unlink()
    at = [message.position for message in builder.messages if message.end < 8192 - 8]
    end = {"in a head": at[9] + 40, "in a body": at[9] + 100, "in the blank": 8190, "in zeros": 8000}[kept]
    path = tmp_path / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:end])
    expected = {"in the blank": 8192, "in zeros": 8000}.get(kept)
    assert segment_size(Snapshot.find(str(tmp_path), Files())) == expected


def test_the_queue_files_usual_size_where_most_are_cut(tmp_path: Path) -> None:
    """Files' names count, which are bytes."""
    store = StoreBuilder(tmp_path, queue_file_size=100)
    for _ in range(11):
        store.append("TopicA")
    store.close()
    for start in (0, 100):
        os.truncate(store.queue_directory("TopicA", 0) / f"{start:020d}", 40)
    assert usual_queue_file(Snapshot.find(str(tmp_path), Files()).queues.of_topic("TopicA")) == 100


@pytest.mark.parametrize(("more", "is_known"), [(0, True), (1, False), (512, False), (1023, False), (1024, True)])
def test_a_single_segment_that_may_be_cut(more: int, is_known: bool, tmp_path: Path) -> None:
    """Brokers' files are of whole KiB."""
    builder = StoreBuilder(tmp_path)
    builder.append("TopicA")
    builder.close()
    os.truncate(tmp_path / "commitlog" / f"{0:020d}", 8192 + more)
    store = Snapshot.find(str(tmp_path), Files())
    assert segment_size(store) == 8192 + more
    assert segment_size(store, may_be_cut=True) == (8192 + more if is_known else None)
