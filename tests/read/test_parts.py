"""A task in parts that several threads read gives the same rows in the same order as in one piece."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle import random_stores, reference, stores
from support.reading import ALL_COLUMNS, MODES, Row, read, rows_of

from rmqstore_spark import DamagedStoreError, Store, progress
from rmqstore_spark.read import scan
from rmqstore_spark.read.run import parts
from rmqstore_spark.store.structures.commitlog import SegmentReader

Reads = Callable[..., tuple[list[Row], str | None]]


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Reads with three threads, in parts of so many bytes: the rows, and the error that came after them."""
    monkeypatch.setattr(scan, "workers", lambda: 3)
    monkeypatch.setattr(parts, "_FEWEST", 2)

    def rows(root: Path | list[Path], size: int, **options: Any) -> tuple[list[Row], str | None]:
        monkeypatch.setattr(scan, "PART_BYTES", size)
        return _until_error(row for batch in Store(root).messages(ALL_COLUMNS, **options) for row in rows_of(batch))

    return rows


def _until_error(rows: Iterator[Row]) -> tuple[list[Row], str | None]:
    found: list[Row] = []
    try:
        found.extend(rows)
    except DamagedStoreError as why:
        return found, str(why)
    return found, None


def _wanted(root: Path, mode: str) -> tuple[list[Row], str | None]:
    """By the task in one piece, of which other tests say that it is right; all up to the place of an error."""
    rows = read(root, columns=ALL_COLUMNS, mode="PERMISSIVE")
    sound = [row for row in rows if row["corrupt"] is None]
    if mode == "PERMISSIVE" or len(sound) == len(rows):
        return rows, None
    if mode == "DROPMALFORMED":
        return sound, None
    first = next(number for number, row in enumerate(rows) if row["corrupt"] is not None)
    with pytest.raises(DamagedStoreError) as failed:
        read(root)
    return rows[:first], str(failed.value)


def _guesses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The parts that had to go on to the end of their task."""
    wrong: list[int] = []
    end_with = parts.Parts.end_with

    def noted(self: parts.Parts, number: int) -> None:
        wrong.append(number)
        end_with(self, number)

    monkeypatch.setattr(parts.Parts, "end_with", noted)
    return wrong


def _crafted(root: Path) -> stores.StoreBuilder:
    """Bodies hold whole units, at just the offsets where they lie."""
    store = stores.StoreBuilder(root, segment_size=1 << 16)
    for i in range(150):
        body = b"honest %d" % i
        if i % 5 == 4:
            at, body = store.end + 88, b""
            for _ in range(8):
                body += reference.encode_unit(physical_offset=at + len(body), body=b"crafted", topic="T")
        store.append(topic="T", body=body)
    store.close()
    return store


@pytest.mark.parametrize("size", [300, 1000, 3001, 9000])
def test_bodies_that_hold_units(tmp_path: Path, in_parts: Reads, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A guess that such a body fools is found out by the part before."""
    _crafted(tmp_path)
    wrong = _guesses(monkeypatch)
    rows = reference.read_store(tmp_path)
    found, error = in_parts(tmp_path, size)
    assert error is None
    assert [row["commitLogOffset"] for row in found] == [row["commitLogOffset"] for row in rows]
    assert [row["body"] for row in found] == [row["body"] for row in rows]
    assert wrong, "no guess was wrong: the test proves nothing"


def test_honest_guesses_are_right(tmp_path: Path, in_parts: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all would be read by one thread."""
    store = stores.StoreBuilder(tmp_path, segment_size=1 << 16)
    for i in range(300):
        store.append(body=b"x" * (i % 300))
    store.close()
    wrong = _guesses(monkeypatch)
    assert in_parts(tmp_path, 1000) == (read(tmp_path, columns=ALL_COLUMNS), None)
    assert wrong == []


@pytest.mark.parametrize("mode", MODES)
def test_damage(tmp_path: Path, rng: random.Random, in_parts: Reads, mode: str) -> None:
    """Anything anywhere: flipped bytes, zeros, noise, a file cut short."""
    for number in range(12):
        root = tmp_path / str(number)
        store = _crafted(root)
        random_stores.append_random(store, rng)
        store.close()
        for path in reference.segment_files(root):
            data = bytearray(path.read_bytes())
            for _ in range(rng.choice((0, 1, 1, 4))):
                at, length = rng.randrange(len(data)), rng.choice((1, 1, 40, 700, 5000))
                noise = rng.choice((bytes(length), rng.randbytes(length)))
                data[at : at + length] = noise[: len(data) - at]
            path.write_bytes(data if rng.random() < 0.8 else data[: rng.randrange(len(data))])
        wanted = _wanted(root, mode)
        for size in (200, 1500, 20_000):
            assert in_parts(root, size, mode=mode) == wanted, (number, size)


def test_a_copy_has_what_is_damaged(tmp_path: Path, in_parts: Reads) -> None:
    _crafted(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    wanted = reference.read_store(tmp_path / "a")
    path = reference.segment_files(tmp_path / "a")[0]
    data = bytearray(path.read_bytes())
    data[20_000:20_400] = bytes(400)
    path.write_bytes(data)
    found, error = in_parts([tmp_path / "a", tmp_path / "b"], 1500, deduplicate=True)
    assert error is None
    assert [(row["commitLogOffset"], row["body"]) for row in found] == [
        (row["commitLogOffset"], row["body"]) for row in wanted
    ]
    assert {row["file"] for row in found} > {str(path)}


def test_one_message_longer_than_many_parts(tmp_path: Path, in_parts: Reads) -> None:
    store = stores.StoreBuilder(tmp_path, segment_size=1 << 18)
    for size in (10, 100_000, 10, 90_000, 10):
        store.append(body=b"x" * size)
    store.close()
    assert in_parts(tmp_path, 4000) == (read(tmp_path, columns=ALL_COLUMNS), None)


def test_progress_comes_to_its_end(tmp_path: Path, in_parts: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever parts were void."""
    _crafted(tmp_path)
    wrong = _guesses(monkeypatch)
    monkeypatch.setattr(progress, "_SHOW_SECONDS", 0)
    seen: list[tuple[int, int]] = []
    with progress.shown(lambda told: seen.append((told.done, told.total)) if told.what == "messages" else None):
        in_parts(tmp_path, 700)
    assert wrong
    (total,) = {total for _, total in seen}
    assert seen[-1] == (total, total)
    assert max(done for done, _ in seen) == total


def test_holes_behind_a_closing_blank_are_not_read(
    tmp_path: Path, in_parts: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.StoreBuilder(tmp_path, segment_size=16 << 20)
    bodies = [b"x" * (1 << 20), b"y" * (15 << 20)]  # the second one does not fit into the first segment
    for body in bodies:
        store.append(body=body)
    store.close()
    searched: list[int] = []
    find = SegmentReader.find

    def noted(self: SegmentReader, start: int, stop: int) -> int | None:
        searched.append(stop - start)
        return find(self, start, stop)

    monkeypatch.setattr(SegmentReader, "find", noted)
    rows, error = in_parts(tmp_path, 1 << 20)
    assert ([row["body"] for row in rows], error) == (bodies, None)
    assert sum(searched) < 18 << 20
