"""Rows in order, most of them in temporary files, are in the order of Python's sort; rows that wait come back."""

from __future__ import annotations

import operator
import random
import tempfile
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rmqstore_spark import StorageError, sorting, temporary, waiting_numbers

SCHEMA = pa.schema([("a", pa.string()), ("b", pa.int64()), ("n", pa.int64()), ("m", pa.map_(pa.string(), pa.string()))])

Row = dict[str, Any]


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some hundred rows are a run, and three runs are merged into one."""
    monkeypatch.setattr(temporary, "IN_MEMORY", 20_000)
    monkeypatch.setattr(sorting, "_MOST_PIECE", 700)
    monkeypatch.setattr(sorting, "_RUNS", 3)


def batches(rows: list[Row], size: int) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(rows[at : at + size], SCHEMA)


def random_rows(rng: random.Random, count: int) -> list[Row]:
    most = rng.choice([2, 1000])
    texts = [None, "x", *("y" * size for size in range(5)), *map(str, range(50)), "é", "\U0001f600", "￿"]
    rows: list[Row] = [{"a": rng.choice(texts), "b": rng.choice([None, *range(most)])} for _ in range(count)]
    if rng.random() < 0.3:
        rows.sort(key=lambda row: row["b"] or 0)
    return [row | {"n": number, "m": [("k", str(number))]} for number, row in enumerate(rows)]


def in_pythons_order(rows: list[Row], keys: list[tuple[str, str]]) -> list[Row]:
    for name, direction in reversed(keys):
        known = [row for row in rows if row[name] is not None]
        known.sort(key=operator.itemgetter(name), reverse=direction == "descending")
        rows = known + [row for row in rows if row[name] is None]
    return rows


@pytest.mark.parametrize("count", [0, 1, 30, 1500])
@pytest.mark.parametrize("most", [None, 3, 400])
def test_in_order(little_memory: None, rng: random.Random, count: int, most: int | None) -> None:
    for _ in range(6):
        rows = random_rows(rng, count)
        keys = rng.choice([[("a", "ascending")], [("b", "descending")], [("a", "descending"), ("b", "ascending")]])
        found = list(sorting.in_order(SCHEMA, batches(rows, rng.choice([3, 100, 1000])), keys, most))
        assert [row for batch in found for row in batch.to_pylist()] == in_pythons_order(rows, keys)[:most], keys


def test_rows_that_wait(little_memory: None, rng: random.Random) -> None:
    rows = random_rows(rng, 300)
    waiting = sorting.WaitingRows(SCHEMA, batches(rows, 7))
    for _ in range(2):
        assert [row for batch in waiting for row in batch.to_pylist()] == rows


def test_no_room(little_memory: None, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what to do; what fits into memory needs no room."""
    monkeypatch.setattr(tempfile, "tempdir", "/dev/null/nowhere")
    few = sorting.in_order(SCHEMA, batches(random_rows(rng, 30), 10), [("b", "ascending")])
    assert sum(map(len, few)) == 30
    with pytest.raises(StorageError, match=r"no room for temporary files: .*set TMPDIR to a directory that has room"):
        list(sorting.in_order(SCHEMA, batches(random_rows(rng, 1500), 10), [("b", "ascending")]))
    with pytest.raises(StorageError, match="no room for temporary files"):
        sorting.WaitingRows(SCHEMA, batches(random_rows(rng, 1500), 10))
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: open("/dev/full", "r+b"))  # noqa: SIM115
    with pytest.raises(StorageError, match="No space left on device"):
        list(sorting.in_order(SCHEMA, batches(random_rows(rng, 1500), 10), [("b", "ascending")]))


def test_pairs(little_memory: None, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_numbers, "_PAIRS", 5)
    monkeypatch.setattr(waiting_numbers, "_BLOCKS", 2)
    for _ in range(20):
        waiting, known = waiting_numbers.WaitingPairs(), dict[int, int]()
        firsts = sorted(rng.sample(range(-3000, 3000), rng.choice([0, 1, 5, 5000])))
        while firsts:
            some = firsts[: rng.choice([1, 3, 40, 2000])]
            del firsts[: len(some)]
            pairs = {first: rng.randrange(-(1 << 60), 1 << 60) for first in some}
            waiting.add(np.array([*pairs], np.int64), np.array([*pairs.values()], np.int64))
            known |= pairs
            if rng.random() < 0.2 or not firsts:
                asked = [rng.randrange(-3100, 3100) for _ in range(rng.choice([0, 1, 200]))]
                assert waiting.seconds(np.array(asked, np.int64)).tolist() == [known.get(each, each) for each in asked]


@pytest.mark.parametrize("count", [0, 1, 40, 6000])
def test_numbers(little_memory: None, rng: random.Random, count: int) -> None:
    """As Python's sets tell it, in memory and in a file, and with sets that begin in the middle of a batch."""
    schema = pa.schema([("topic", pa.string()), ("queueId", pa.int32()), ("offset", pa.int64())])
    names = [(topic, queue_id) for topic in ("", "a", "é") for queue_id in (-1, 0, 7)][: rng.choice([1, 9])]
    rows = [(*rng.choice(names), rng.choice([-(1 << 63), (1 << 63) - 1, *range(3000)])) for _ in range(count)]
    cut = rng.choice([3, 100, 1000])
    parts = (rows[at : at + cut] for at in range(0, len(rows), cut))
    found = waiting_numbers.WaitingNumbers(
        schema,
        (pa.record_batch([*map(pa.array, zip(*some, strict=True))], names=schema.names).cast(schema) for some in parts),
    )
    expected: dict[tuple[str, int], set[int]] = {}
    for topic, queue_id, offset in rows:
        expected.setdefault((topic, queue_id), set()).add(offset)
    assert len(found) == sum(map(len, expected.values()))
    asked = np.array([-(1 << 63), (1 << 63) - 1, -1, *rng.choices(range(3100), k=300)], np.int64)
    for name in [*names, ("other", 0)]:
        there = expected.get(name, set())
        assert found.of(*name).tolist() == sorted(there)
        assert found.are_in(asked, *name).tolist() == [number in there for number in asked.tolist()]


def test_numbers_are_in_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What of numbers in a file stays in memory does not grow with them."""
    monkeypatch.setattr(temporary, "IN_MEMORY", 100_000)
    schema = pa.schema([("offset", pa.int64())])
    held = []
    for count in (1 << 15, 1 << 18):
        batches = (pa.record_batch([np.arange(at, at + 4096)], schema=schema) for at in range(0, count, 4096))
        tracemalloc.start()
        found = waiting_numbers.WaitingNumbers(schema, batches)
        assert found.are_in(np.array([0, count - 1, count])).tolist() == [True, True, False]
        held.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert held[1] < held[0] + (1 << 18), held  # all of them are 2 MiB
