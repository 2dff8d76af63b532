"""`lag`: sums of offsets, however they come, in no more memory where they are many."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from rmqstore_spark.jobs.lag import BY, COLUMNS, NEEDED, lag
from rmqstore_spark.tables.registry import table

SCHEMA = pa.schema([table("offsets").schema.field(name) for name in NEEDED])
TIME = COLUMNS.index("lastConsumedTimestamp")
Row = dict[str, Any]


def of_stores(rng: random.Random, stores: int) -> list[Row]:
    """Offsets of the same groups in some stores, in the order in which each store has them."""
    return [
        offset(rng, group, topic, queue_id)
        for _ in range(stores)
        for group in sorted(rng.sample("abcdefgh", rng.randrange(6)))
        for topic in sorted(rng.sample("TUV", rng.randrange(1, 4)))
        for queue_id in range(rng.randrange(1, 5))
    ]


def offset(rng: random.Random, group: str, topic: str, queue_id: int) -> Row:
    is_known = rng.random() < 0.8
    told = [rng.randrange(-3, 9), rng.choice([None, 5, 7]), rng.choice([None, 1, 1 << 40]), rng.random() < 0.5]
    return dict(zip(NEEDED, [group, topic, queue_id, *(told if is_known else [None] * 4)], strict=True))


def expected(rows: list[Row], by: str) -> list[list[Any]]:
    parts: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        parts.setdefault(tuple(row[name] for name in BY[by]), []).append(row)

    def known(some: list[Row], name: str) -> list[int]:
        return [row[name] for row in some if row[name] is not None]

    found = []
    for name, some in parts.items():
        lags = [max(0, each) for each in known(some, "lag")]
        behind, total = (sum(each > 0 for each in lags), sum(lags)) if lags else (None, None)
        longest, latest = (max(known(some, each), default=None) for each in ("lagMillis", "lastConsumedTimestamp"))
        expired = any(known(some, "expired")) if known(some, "expired") else None
        found.append([*name, len(some), behind, total, longest, latest, expired])
    names = len(BY[by])

    def worst_first(row: list[Any]) -> list[Any]:
        return [*((row[at] is None, -(row[at] or 0)) for at in (names + 2, names + 3)), *row[:names]]

    return sorted(found, key=worst_first)


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("stores", [1, 2, 4])
def test_however_they_come(by: str, stores: int, rng: random.Random) -> None:
    for _ in range(8):
        rows = of_stores(rng, stores)
        offsets = pa.Table.from_pylist(rows, SCHEMA)
        schema, found = lag(iter(offsets.to_batches(max_chunksize=rng.randrange(1, 30))), SCHEMA, by)
        as_numbers = pa.schema([(f.name, "int64" if f.name == COLUMNS[TIME] else f.type) for f in schema])
        columns = pa.Table.from_batches(found, schema).cast(as_numbers).to_pydict().values()
        assert [list(row) for row in zip(*columns, strict=True)] == expected(rows, by)


def test_sums_too_large_for_a_column() -> None:
    """Queues of a damaged store may end anywhere: their sum is the largest number then, and other groups' are right."""
    lags: dict[str, list[int | None]] = {"a": [1 << 62] * 9, "b": [5, 6, None], "c": [(1 << 63) - 1], "d": [None]}
    rows = [
        dict(zip(NEEDED, [group, "T", queue_id, lag, None, None, None], strict=True))
        for group, some in lags.items()
        for queue_id, lag in enumerate(some)
    ]
    for size in (3, 100):
        schema, found = lag(iter(pa.Table.from_pylist(rows, SCHEMA).to_batches(max_chunksize=size)), SCHEMA)
        sums = dict(
            zip(*pa.Table.from_batches(found, schema).select(["group", "lag"]).to_pydict().values(), strict=True)
        )
        assert sums == {"a": (1 << 63) - 1, "b": 11, "c": (1 << 63) - 1, "d": None}


@pytest.mark.slow
def test_memory() -> None:
    """Arrow's memory stays the same where rows are many, and no row but the last ones is held while they come."""
    most = [0]

    def noted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            most[0] = max(most[0], pa.total_allocated_bytes())
            yield batch

    def of_group(number: int) -> pa.RecordBatch:
        rows = 4096
        values = [[f"group-{number:06}"] * rows, ["topic"] * rows, range(rows), [number % 7] * rows, [None] * rows]
        return pa.RecordBatch.from_arrays(
            [*map(pa.array, values[:2], [pa.string()] * 2)]
            + [pa.array(each, field.type) for each, field in zip(values[2:], list(SCHEMA)[2:5], strict=True)]
            + [pa.nulls(rows, field.type) for field in list(SCHEMA)[5:]],
            schema=SCHEMA,
        )

    before = pa.total_allocated_bytes()
    _, found = lag(noted(map(of_group, range(300))), SCHEMA, "queue")
    assert sum(map(len, noted(found))) == 300 * 4096  # 80 MB
    assert most[0] - before < 32 << 20
