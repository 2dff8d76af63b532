"""rmqstore_spark.write_store and Store.write make of Arrow data the store that Spark's writer makes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from oracle import reference
from support import writing
from support.writing import assert_whole

import rmqstore_spark
from rmqstore_spark import BadRowError, OptionError, Store

SIZES: dict[str, Any] = {
    "mappedFileSizeCommitLog": 8192,
    "mappedFileSizeConsumeQueue": 200,
    "maxHashSlotNum": 20,
    "maxIndexNum": 50,
}


def table_of(rows: list[writing.Row]) -> pa.Table:
    return pa.Table.from_batches([writing.batch_of(rows)])


@pytest.mark.parametrize(
    "form",
    [
        lambda table: table,
        lambda table: table.to_reader(max_chunksize=7),
        lambda table: table.to_batches(max_chunksize=50),
        lambda table: iter(table.to_batches(max_chunksize=50)),
        lambda table: table.combine_chunks().to_batches()[0],
    ],
    ids=["table", "reader", "batches", "iterator", "batch"],
)
def test_all_forms_of_data(tmp_path: Path, rng: random.Random, form: Callable[[pa.Table], Any]) -> None:
    """The store is the one that Spark's writer makes."""
    rows = writing.some_rows(rng, 200)
    assert rmqstore_spark.write_store(tmp_path / "store", form(table_of(rows)), **SIZES) == 200
    writing.write(tmp_path / "expected", rows)
    found, expected = assert_whole(tmp_path / "store"), assert_whole(tmp_path / "expected")
    for row in found + expected:
        del row["bornTimestamp"]  # the clock, where a row has none
    assert found == expected


def test_what_was_written_before_counts_as_nothing(tmp_path: Path, rng: random.Random) -> None:
    rows = table_of(writing.some_rows(rng, 20))
    version: dict[str, Any] = {"txnAppId": "a", "txnVersion": 3}
    assert rmqstore_spark.write_store(tmp_path / "store", rows, **SIZES, **version) == 20
    for mode in ("append", "overwrite"):
        assert Store(tmp_path / "store").write(rows, mode=mode, **version) == 0
    assert Store(tmp_path / "store").messages().read_all().num_rows == 20


def test_append_and_overwrite(tmp_path: Path, rng: random.Random) -> None:
    path = tmp_path / "store"
    first, second = table_of(writing.some_rows(rng, 50)), table_of(writing.some_rows(rng, 30, 50))
    rmqstore_spark.write_store(path, first, **SIZES)
    store = Store(path)
    assert store.write(second) == 30
    assert len(assert_whole(path)) == 80
    rmqstore_spark.write_store(path, second, mode="overwrite", **SIZES)
    assert len(assert_whole(path)) == 30


def test_what_a_store_gives_can_be_written(tmp_path: Path, rng: random.Random) -> None:
    rmqstore_spark.write_store(tmp_path / "a", table_of(writing.some_rows(rng, 100)), **SIZES)
    rmqstore_spark.write_store(
        tmp_path / "b", Store(tmp_path / "a").messages(decompress=False), decompress=False, **SIZES
    )
    a, b = reference.read_store(tmp_path / "a"), reference.read_store(tmp_path / "b")
    assert writing.kept(a) == writing.kept(b)


def test_types_that_can_be_cast(tmp_path: Path) -> None:
    topic = pa.array(["T", "T"]).dictionary_encode()
    data = {"topic": topic, "body": pa.array(["a", "b"], pa.large_string()), "queueId": pa.array([1, 0], pa.int64())}
    rmqstore_spark.write_store(tmp_path / "store", pa.table({**data, "keys": pa.nulls(2)}), **SIZES)
    rows = assert_whole(tmp_path / "store")
    assert [(row["topic"], row["queueId"], row["body"], row["keys"]) for row in rows] == [
        ("T", 1, b"a", None),
        ("T", 0, b"b", None),
    ]


@pytest.mark.parametrize(
    ("data", "options", "error", "why"),
    [
        ({"body": ["x"]}, {}, OptionError, "column 'topic': expected one of type string, or option 'topic'"),
        ({"topic": ["x"]}, {}, OptionError, "column 'body': expected one of type binary or string, found none"),
        ({"topic": ["x"], "body": [1]}, {}, OptionError, "column 'body': expected type binary, found int64"),
        ({"topic": ["x"], "bodi": [b""]}, {}, OptionError, "unknown column 'bodi'"),
        (
            {"topic": ["x"], "body": [b""], "queueId": [1 << 40]},
            {},
            BadRowError,
            "row 0: column 'queueId': expected a value of type int32, found 1099511627776",
        ),
        ({"topic": ["x"], "body": [b""]}, {"mode": "ignore"}, OptionError, "mode: expected append or overwrite"),
        ({"topic": ["x"], "body": [b""]}, {"queue": 1}, OptionError, "unknown option 'queue'"),
        ({"topic": ["a b"], "body": [b""]}, {}, BadRowError, "row 0: column 'topic'"),
    ],
)
def test_refused(
    tmp_path: Path, data: dict[str, list[Any]], options: dict[str, Any], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        rmqstore_spark.write_store(tmp_path / "store", pa.table(data), **options)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("data", [5, [1, 2], "text", None])
def test_no_arrow_data(tmp_path: Path, data: object) -> None:
    with pytest.raises(OptionError, match="data: expected an Arrow table"):
        rmqstore_spark.write_store(tmp_path / "store", data)
