"""What RemoteFiles is made of, each part without the others: which requests bring stretches of a file, pages that are
kept, pinned ranges and their objects that go on, and what a listing knows. No server and no disk."""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import remote

from rmqstore_spark.errors import StorageError
from rmqstore_spark.store.io.files import Files, Pin
from rmqstore_spark.store.io.remote import listing as remote_listing
from rmqstore_spark.store.io.remote import pages as remote_pages
from rmqstore_spark.store.io.remote.buckets import Buckets
from rmqstore_spark.store.io.remote.files import RemoteFiles
from rmqstore_spark.store.io.remote.listing import Listing
from rmqstore_spark.store.io.remote.objects import Entry
from rmqstore_spark.store.io.remote.pages import PageCache
from rmqstore_spark.store.io.remote.ranges import Ranges
from rmqstore_spark.store.io.remote.spans import how_many_fit, spans
from rmqstore_spark.store.io.storage import Storage

HANG = 20  # seconds


class Bucket:
    """A bucket in memory: keys with their bytes, of which the tag is a hash.

    Attributes:
        asked: of each request what it was, and of what.
        fails: the next request fails.
    """

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content = content
        self.asked: list[tuple[str, object]] = []
        self.fails = False

    def pin_of(self, key: str) -> Pin:
        return Pin(len(self.content[key]), str(hash(self.content[key])))

    def below(self, key: str, most: int | None = None) -> Iterator[Entry]:
        self.asked.append(("below", key))
        found = [
            Entry(name, self.pin_of(name)) for name in sorted(self.content) if name.startswith(f"{key}/" * bool(key))
        ]
        yield from found[:most]

    def inside(self, key: str) -> tuple[list[str], list[Entry]]:
        self.asked.append(("inside", key))
        above = f"{key}/" if key else ""
        below = [name[len(above) :] for name in sorted(self.content) if name.startswith(above)]
        directories = dict.fromkeys(above + name.split("/")[0] for name in below if "/" in name)
        return list(directories), [Entry(above + name, self.pin_of(above + name)) for name in below if "/" not in name]

    def look(self, key: str) -> Pin | None:
        self.asked.append(("look", key))
        return self.pin_of(key) if key in self.content else None

    def get(self, key: str, start: int, stop: int, pin: Pin) -> memoryview:
        self.asked.append(("get", (start, stop)))
        if self.fails or self.pin_of(key) != pin:
            self.fails = False
            raise StorageError(f"{key}: another one")
        return memoryview(self.content[key])[start:stop]


class Counts:
    def __init__(self) -> None:
        self.requests = self.bytes = 0

    def add(self, requests: int, nbytes: int) -> None:
        self.requests += requests
        self.bytes += nbytes


def buckets(bucket: Bucket) -> Buckets:
    return Buckets(Storage(), lambda path, _: (bucket, path.removeprefix("s3://b").strip("/")))


def ranges(bucket: Bucket) -> tuple[Ranges, Counts]:
    counts = Counts()
    return Ranges(buckets(bucket), counts.add, None), counts


# ---- spans


def test_spans_bring_what_is_needed_and_no_more_than_is_cheap(rng: random.Random) -> None:
    for _ in range(300):
        count, gap, most = rng.randrange(1, 30), rng.randrange(50), rng.randrange(1, 300)
        starts = np.sort(np.array([rng.randrange(1000) for _ in range(count)], np.int64))
        counts = np.array([rng.randrange(1, 40) for _ in range(count)], np.int64)
        needed = sorted(rng.sample(range(count), rng.randrange(count + 1)))
        found = spans(starts, counts, needed, gap, most)
        assert [number for span in found for number in range(span.first, span.last)] == needed
        for span in found:
            stretches = [(int(starts[n]), int(starts[n] + counts[n])) for n in range(span.first, span.last)]
            assert (span.start, span.stop) == (stretches[0][0], max(stop for _, stop in stretches))
            assert len(stretches) == 1 or max(span.stop - span.start - 40, 0) <= most
            assert all(after[0] - before[1] <= gap for before, after in itertools.pairwise(stretches))
        for before, after in itertools.pairwise(found):
            if before.last == after.first:  # neighbours that come apart would cost more together
                start, stop = int(starts[after.first]), int(starts[after.first] + counts[after.first])
                last = int(starts[before.last - 1] + counts[before.last - 1])
                assert start - last > gap or stop - before.start > most


def test_how_many_stretches_fit(rng: random.Random) -> None:
    for _ in range(300):
        count, capacity = rng.randrange(1, 20), rng.randrange(400)
        offsets = [rng.choice([rng.randrange(1000)] * 20 + [-1]) for _ in range(count)]
        sizes = [rng.choice([rng.randrange(1, 50)] * 20 + [0, -5]) for _ in range(count)]
        expected = total = 0
        for offset, size in zip(offsets, sizes, strict=True):
            total += size
            if offset < 0 or size <= 0 or total > capacity:
                break
            expected += 1
        assert how_many_fit(np.array(offsets, np.int64), np.array(sizes, np.int32), capacity) == expected


# ---- pages


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_pages, "PAGE_BYTES", 16)
    monkeypatch.setattr(remote_pages, "MOST_PAGES", 3)


@pytest.mark.usefixtures("small_pages")
def test_pages_have_the_bytes_and_are_fetched_once(rng: random.Random) -> None:
    bucket = Bucket({"a": rng.randbytes(1000), "b": rng.randbytes(55)})
    fetched, counts = ranges(bucket)
    pages = PageCache(fetched)
    for _ in range(500):
        key = rng.choice("ab")
        content, pin = bucket.content[key], bucket.pin_of(key)
        start = rng.randrange(len(content))
        stop = rng.randrange(start + 1, min(start + 60, len(content)) + 1)
        buffer = bytearray(stop - start)
        pages.read_into(f"s3://b/{key}", pin, memoryview(buffer), start)
        assert buffer == content[start:stop]
        before = counts.requests
        kept = pages.kept(f"s3://b/{key}", pin, start, stop)
        assert kept is None or bytes(kept) == content[start:stop]
        assert counts.requests == before


@pytest.mark.usefixtures("small_pages")
def test_the_page_that_was_used_last_is_kept_longest() -> None:
    bucket = Bucket({"a": bytes(range(256))})
    fetched, counts = ranges(bucket)
    pages, pin = PageCache(fetched), bucket.pin_of("a")
    for number in range(1, 15):
        for at in (0, 16 * number):
            pages.read_into("s3://b/a", pin, memoryview(bytearray(4)), at)
    assert counts.requests == 1 + 14
    assert bytes(pages.kept("s3://b/a", pin, 0, 4) or b"") == bytes(range(4))
    assert pages.kept("s3://b/a", pin, 16, 20) is None


def test_pages_of_zeros_take_no_memory_and_so_are_kept(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of queues, of which a large store has very many, each with few units in a file of zeros."""
    monkeypatch.setattr(remote_pages, "MOST_PAGES", 8)
    size = remote_pages.PAGE_BYTES
    used = [rng.choice((0, 1, 100, 4000)) for _ in range(64)]
    content = {f"q{n}": rng.randbytes(count) + bytes(size - count + n) for n, count in enumerate(used)}
    content |= {f"full{n}": rng.randbytes(size) for n in range(3)}
    bucket = Bucket(content)
    fetched, counts = ranges(bucket)
    pages = PageCache(fetched)
    for again in (1, 2):
        for key, whole in content.items():
            buffer = bytearray(size)
            pages.read_into(f"s3://b/{key}", bucket.pin_of(key), memoryview(buffer), 0)
            assert buffer == whole[:size]
            assert counts.requests <= len(content), again
    assert pages._kept.held == sum(page.held for page in pages._kept.pages.values()) <= 8 * size


def test_an_object_of_another_tag_has_other_pages() -> None:
    bucket = Bucket({"a": b"old"})
    fetched, _ = ranges(bucket)
    pages, old = PageCache(fetched), bucket.pin_of("a")
    buffer = bytearray(3)
    pages.read_into("s3://b/a", old, memoryview(buffer), 0)
    bucket.content["a"] = b"new"
    pages.read_into("s3://b/a", bucket.pin_of("a"), memoryview(buffer), 0)
    assert buffer == b"new"
    assert bytes(pages.kept("s3://b/a", old, 0, 3) or b"") == b"old"


def test_a_page_that_failed_is_asked_for_again() -> None:
    bucket = Bucket({"a": b"0123"})
    fetched, _ = ranges(bucket)
    pages, pin, buffer = PageCache(fetched), bucket.pin_of("a"), bytearray(4)
    bucket.fails = True
    with pytest.raises(StorageError):
        pages.read_into("s3://b/a", pin, memoryview(buffer), 0)
    pages.read_into("s3://b/a", pin, memoryview(buffer), 0)
    assert buffer == b"0123"


def test_who_needs_a_page_that_is_under_way_waits_for_it() -> None:
    bucket, go_on = Bucket({"a": b"0123"}), threading.Event()
    fetched, counts = ranges(bucket)
    get = bucket.get
    bucket.get = lambda *arguments: go_on.wait(HANG) and get(*arguments)  # type: ignore[assignment, method-assign]
    pages, pin, buffer = PageCache(fetched), bucket.pin_of("a"), bytearray(4)
    pages.prefetch("s3://b/a", pin, 0, 4)
    threading.Timer(0.05, go_on.set).start()
    pages.read_into("s3://b/a", pin, memoryview(buffer), 0)
    assert buffer == b"0123"
    assert counts.requests == 1


# ---- pinned ranges


def test_a_range_is_of_the_object_that_was_pinned() -> None:
    bucket = Bucket({"a": b"0123456789"})
    fetched, counts = ranges(bucket)
    pin = bucket.pin_of("a")
    assert bytes(fetched.fetch("s3://b/a", pin, 2, 5)) == b"234"
    assert bytes(fetched.fetch_in_background("s3://b/a", pin, 3, 5).result(HANG)) == b"34"
    assert bytes(fetched.fetch_block("s3://b/a", pin, 4, 5).result(HANG)) == b"4"
    assert (counts.requests, counts.bytes) == (3, 6)
    bucket.content["a"] = b"0123456789abc"
    with pytest.raises(StorageError, match="another one"):
        fetched.fetch("s3://b/a", pin, 2, 5)


@pytest.mark.parametrize(
    ("now", "is_same"), [(b"0123456789abc", True), (b"0123456789", True), (b"01x3456789abc", False), (b"0123", False)]
)
def test_an_object_that_has_gone_on(now: bytes, is_same: bool) -> None:
    """At least as long, and what was seen of it is there; then it is asked for by its new tag, without another look."""
    bucket = Bucket({"a": b"012345678X"})
    fetched, _ = ranges(bucket)
    pin = Pin(10, bucket.pin_of("a").tag, proof=(1, b"123"))
    bucket.content["a"] = now
    if not is_same:
        with pytest.raises(StorageError):
            fetched.fetch("s3://b/a", pin, 0, 4)
        return
    assert bytes(fetched.fetch("s3://b/a", pin, 0, 4)) == b"0123"
    bucket.asked.clear()
    assert bytes(fetched.fetch("s3://b/a", pin, 4, 8)) == b"4567"
    assert bucket.asked == [("get", (4, 8))]


def test_an_object_that_is_gone_is_an_error() -> None:
    bucket = Bucket({"a": b"0123"})
    fetched, _ = ranges(bucket)
    pin = Pin(4, "another", proof=(0, b"xyz"))
    with pytest.raises(StorageError):
        fetched.fetch("s3://b/a", pin, 0, 4)


# ---- listing

TREE = {
    name: name.encode()
    for name in ("s/commitlog/0", "s/commitlog/1", "s/config/topics.json", "s/abort", "s/config_$folder$", "other/x")
}


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_listing_is_that_of_the_tree(is_listed: bool) -> None:
    bucket, counts = Bucket(dict(TREE)), Counts()
    listing = Listing(buckets(bucket), counts.add)
    if is_listed:
        listing.list_tree("s3://b/s")
        bucket.asked.clear()
    for _ in range(2):
        assert sorted(listing.names("s3://b/s")) == ["abort", "commitlog", "config"]
        assert sorted(listing.names("s3://b/s/commitlog/")) == ["0", "1"]
        assert listing.look("s3://b/s/commitlog") is None
        assert listing.look("s3://b/s/abort") == bucket.pin_of("s/abort")
        for missing in ("none", "commitlog/2", "abort/x", "none/x"):
            with pytest.raises(FileNotFoundError):
                listing.look(f"s3://b/s/{missing}")
        with pytest.raises(NotADirectoryError):
            listing.names("s3://b/s/abort")
    assert not (is_listed and bucket.asked)
    assert counts.requests > 0
    assert counts.bytes == 0


def test_what_was_listed_stays() -> None:
    bucket = Bucket(dict(TREE))
    listing = Listing(buckets(bucket), Counts().add)
    before = listing.look("s3://b/s/abort")
    bucket.content["s/abort"] = b"changed"
    bucket.content.pop("s/commitlog/0")
    assert listing.look("s3://b/s/abort") == before
    assert Listing(buckets(bucket), Counts().add).look("s3://b/s/abort") == bucket.pin_of("s/abort")


def test_a_bucket_of_other_things_is_not_listed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_listing, "_FIRST_LOOK", 5)
    bucket = Bucket({f"t/part-{number}": b"x" for number in range(50)} | TREE)
    listing = Listing(buckets(bucket), Counts().add)
    listing.list_tree("s3://b/t")
    assert [what for what, _ in bucket.asked] == ["below", "inside"]
    bucket.content |= {f"s/commitlog/{number}": b"x" for number in range(50)}
    bucket.asked.clear()
    listing.list_tree("s3://b/s")
    listing.names("s3://b/s/commitlog")
    assert [what for what, _ in bucket.asked] == ["below", "inside", "below"]


def test_patterns() -> None:
    bucket = Bucket({"a1/x": b"", "a2/x": b"", "b/x": b"", ".a3/x": b"", "a4": b""})
    listing = Listing(buckets(bucket), Counts().add)
    assert listing.matching("s3://b/a*") == ["s3://b/a1", "s3://b/a2", "s3://b/a4"]
    assert listing.matching("s3://b/*/x") == ["s3://b/a1/x", "s3://b/a2/x", "s3://b/b/x"]
    assert listing.matching("s3://b/.a[0-9]/x") == ["s3://b/.a3/x"]
    assert listing.matching("s3://b/c?") == []


@pytest.mark.parametrize("is_tagged", [True, False])
def test_fresh_files_read_again_what_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_tagged: bool
) -> None:
    """What has not changed is not fetched again, if a tag says so."""
    if not is_tagged:
        monkeypatch.setattr(remote.Directory, "_pin", staticmethod(lambda path: Pin(os.path.getsize(path), None)))
    directory, path = remote.Directory(), tmp_path / "object"
    files: Files = RemoteFiles(bucket=lambda path, _: (directory, path.strip("/")))

    def seen() -> tuple[bytes, int]:
        directory.asked.clear()
        with files.file(str(path)) as file:
            return file.read(0, 10), sum(what == "get" for what, _ in directory.asked)

    path.write_bytes(b"first")
    assert seen() == (b"first", 1)
    assert seen() == (b"first", 0)
    files = files.fresh()
    assert seen() == (b"first", 0 if is_tagged else 1)
    path.unlink()
    path.write_bytes(b"other")
    files = files.fresh()
    assert seen() == (b"other", 1)
