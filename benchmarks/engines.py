"""What `Store.dataset()` saves an engine, and what it costs beside `Store.messages()`."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
from generate import Store
from measure import Row, Stores, in_turns

import rmqstore_spark

_COUNT = "select count(*) from messages where topic = ?"


def engine_rows(stores: Stores, repeat: int) -> Iterator[Row]:
    """A count of one topic in DuckDB, with the filter handed over and without; and all rows by a dataset's reader."""
    store = rmqstore_spark.Store(stores.large.root)
    topic = store.topics(columns=["topic"])["topic"][0].as_py()
    best = in_turns(
        repeat,
        {
            "scan": lambda: _count(store.messages(), topic),
            "pruned": lambda: _count(store.dataset(), topic),
            "trusted": lambda: _count(store.dataset(trust="queues"), topic),
            "messages": lambda: _read(stores.large, store.messages()),
            "dataset": lambda: _read(stores.large, store.dataset().scanner().to_reader()),
        },
    )
    what = f"DuckDB, count(*) of one topic of {store.topics().num_rows}"
    yield Row(f"{what}: Store.dataset() / Store.messages()", best["pruned"] * 1e3, "ms", best["scan"] / best["pruned"])
    yield Row(
        f"{what}: the same with trust=queues", best["trusted"] * 1e3, "ms", best["scan"] / best["trusted"], ">= 20"
    )
    speed = stores.large.end / best["dataset"] / 1e9
    yield Row(
        "all rows: Store.dataset() / Store.messages()", speed, "GB/s", best["messages"] / best["dataset"], ">= 0.9"
    )


def _count(messages: object, topic: str) -> None:
    with duckdb.connect() as connection:
        connection.register("messages", messages)
        assert connection.execute(_COUNT, [topic]).fetchone() != (0,)


def _read(store: Store, reader: Iterator[object]) -> None:
    assert sum(batch.num_rows for batch in reader) == store.units  # type: ignore[attr-defined]
