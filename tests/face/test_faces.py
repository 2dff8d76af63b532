"""Store, Spark and the command line take the same options and give the same types, and say it with the same words."""

# mypy: disable-error-code="misc"

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from oracle import stores
from pyspark.sql import types as sql
from support import reading

import rmqstore_spark
from rmqstore_spark import BadRowError, OptionError, RmqStoreError
from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.query.options import parse_options, parse_write_options
from rmqstore_spark.query.stream_options import parse_stream_options
from rmqstore_spark.read.plan.planner import plan
from rmqstore_spark.read.run.batches import ReadSettings, read_task
from rmqstore_spark.spark.datasource import RmqStoreDataSource
from rmqstore_spark.spark.writer import arrow_types
from rmqstore_spark.tables.registry import TABLES, plan_table, read_part, table, table_of
from rmqstore_spark.write.stage.incoming import check_incoming

SIZES: dict[str, Any] = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 200}
SAMPLE = Path(__file__).parents[2] / "sample_store"
MOMENT = datetime(2026, 5, 6, 7, 8, 9, 123_000, tzinfo=UTC)


def said_of(call: Callable[[], Any]) -> str:
    with pytest.raises(RmqStoreError) as why:
        call()
    return str(why.value)


# ---- types of what is written


def spark_says(type: sql.DataType, column: str) -> None:
    """What Spark's side says of a DataFrame with a column of a type."""
    types = {"body": sql.BinaryType(), column: type}
    schema = sql.StructType([sql.StructField(name, each) for name, each in types.items()])
    found, names = arrow_types(schema)
    check_incoming(found, parse_write_options({"path": "/store", "topic": "T"}), names)


TEXT = pa.string()
# As Spark and Arrow have them, and the columns' types that each can be written to.
TYPES: tuple[tuple[sql.DataType, pa.DataType, set[str]], ...] = (
    (sql.ByteType(), pa.int8(), {"int", "bigint"}),
    (sql.ShortType(), pa.int16(), {"int", "bigint"}),
    (sql.IntegerType(), pa.int32(), {"int", "bigint"}),
    (sql.LongType(), pa.int64(), {"int", "bigint"}),
    (sql.FloatType(), pa.float32(), set()),
    (sql.DoubleType(), pa.float64(), set()),
    (sql.DecimalType(10, 0), pa.decimal128(10, 0), set()),
    (sql.BooleanType(), pa.bool_(), set()),
    (sql.StringType(), TEXT, {"string", "binary"}),
    (sql.BinaryType(), pa.binary(), {"binary"}),
    (sql.DateType(), pa.date32(), set()),
    (sql.TimestampType(), pa.timestamp("us", "UTC"), {"timestamp"}),
    (sql.TimestampNTZType(), pa.timestamp("us"), {"timestamp"}),
    (sql.MapType(sql.StringType(), sql.StringType()), pa.map_(TEXT, TEXT), {"map<string,string>"}),
    (sql.MapType(sql.IntegerType(), sql.StringType()), pa.map_(pa.int32(), TEXT), set()),
    (sql.MapType(sql.StringType(), sql.BinaryType()), pa.map_(TEXT, pa.binary()), set()),
    (sql.ArrayType(sql.StringType()), pa.list_(TEXT), set()),
    (sql.StructType([sql.StructField("a", sql.IntegerType())]), pa.struct([("a", pa.int32())]), set()),
    (sql.DayTimeIntervalType(), pa.duration("us"), set()),
    (sql.YearMonthIntervalType(), pa.month_day_nano_interval(), set()),
)


@pytest.mark.parametrize(
    ("type", "arrow", "wanted"), TYPES, ids=lambda each: "" if isinstance(each, set) else str(each)
)
def test_what_is_written_has_the_same_types_everywhere(
    tmp_path: Path, type: sql.DataType, arrow: pa.DataType, wanted: set[str]
) -> None:
    options = parse_write_options({"path": str(tmp_path / "s"), "topic": "T"})
    for name, column in COLUMNS.items():
        schema = pa.schema({"body": pa.binary(), name: arrow})
        for call in (functools.partial(check_incoming, schema, options), functools.partial(spark_says, type, name)):
            if column.derived or column.spark in wanted:
                call()
            else:
                assert said_of(call).startswith(f"column {name!r}: expected type "), (name, type)


@pytest.mark.parametrize("type", [pa.int64(), pa.uint64(), pa.uint32()])
def test_a_number_without_a_place_is_told_with_its_row(tmp_path: Path, type: pa.DataType) -> None:
    rows = pa.array([*range(1000), 2**31, 5, 2**31 + 1], type)
    data = pa.table({"topic": ["T"] * len(rows), "body": ["x"] * len(rows), "flag": rows})
    with pytest.raises(
        BadRowError, match="row 1000: column 'flag': expected a value of type int32, found 2147483648; nothing was"
    ):
        rmqstore_spark.write_store(tmp_path / "store", data, **SIZES)
    assert not (tmp_path / "store").exists()
    rmqstore_spark.write_store(tmp_path / "store", data.slice(0, 10), **SIZES)
    found = rmqstore_spark.Store(tmp_path / "store").messages("flag").read_all()
    assert found["flag"].to_pylist() == list(range(10))


def test_a_time_without_a_zone_is_one_in_utc(tmp_path: Path) -> None:
    for number, type in enumerate(
        (pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns", "Asia/Tokyo"))
    ):
        times = pa.array([MOMENT.replace(tzinfo=None) if type.tz is None else MOMENT], type)
        data = pa.table({"topic": ["T"], "body": ["x"], "storeTimestamp": times})
        rmqstore_spark.write_store(tmp_path / str(number), data, **SIZES)
        found = rmqstore_spark.Store(tmp_path / str(number)).messages("storeTimestamp").read_all()
        assert found["storeTimestamp"].to_pylist() == [MOMENT]


def test_dictionaries_that_arrow_cannot_cast(tmp_path: Path) -> None:
    pairs: list[list[tuple[str, str]] | None] = [[("a", "b")], None]
    values: dict[str, pa.Array] = {
        "body": pa.array([b"x", b"y"], pa.binary_view()),
        "keys": pa.array(["k", None], pa.string_view()),
        "properties": pa.array(pairs, pa.map_(pa.string(), pa.string())),
    }
    columns = {name: pa.DictionaryArray.from_arrays([1, 0], found) for name, found in values.items()}
    rmqstore_spark.write_store(tmp_path / "store", pa.table({"topic": ["T"] * 2, **columns}), queues=1, **SIZES)
    found = rmqstore_spark.Store(tmp_path / "store").messages("body,keys,properties").read_all().to_pylist()
    assert [(row["body"], row["keys"]) for row in found] == [(b"y", None), (b"x", "k")]
    assert dict(found[1]["properties"])["a"] == "b"


@pytest.mark.parametrize("is_dictionary", [False, True])
def test_a_time_beyond_ours_and_pythons(tmp_path: Path, is_dictionary: bool) -> None:
    times = pa.array([0, 1 << 60], pa.timestamp("s", "UTC"))
    data = pa.table(
        {"topic": ["T"] * 2, "body": ["x"] * 2, "bornTimestamp": times.dictionary_encode() if is_dictionary else times}
    )
    with pytest.raises(BadRowError, match=r"row 1: column 'bornTimestamp': .*, found 1152921504606846976 of type time"):
        rmqstore_spark.write_store(tmp_path / "store", data, **SIZES)


def test_batches_that_are_not_alike(tmp_path: Path) -> None:
    """The second has no keys: they would be null without a word."""
    whole = pa.record_batch({"topic": ["T"], "body": ["x"], "keys": ["k"]})
    for other in (whole.select(["topic", "body"]), whole.set_column(2, "keys", pa.array([1])), "text"):
        with pytest.raises(OptionError, match="data: expected record batches that all have the columns of the first"):
            rmqstore_spark.write_store(tmp_path / "store", [whole, other])
    assert not (tmp_path / "store").exists()


# ---- NOT NULL


def test_a_schemas_not_null_is_no_damage(tmp_path: Path) -> None:
    builder = stores.StoreBuilder(tmp_path)
    builder.append("T", b"1", tags="A")
    builder.append("T", b"2")
    builder.close()
    told = "column 'tags': the schema declares it NOT NULL, but a row has none; remove NOT NULL"
    for mode in reading.MODES:
        options = parse_options({"path": str(tmp_path), "mode": mode})
        settings = ReadSettings.of(options, pa.schema([pa.field("tags", pa.string(), nullable=False)]))
        tasks = plan(options, columns=["tags"]).tasks
        with pytest.raises(OptionError, match=told):
            [list(read_task(task, settings)) for task in tasks]
    topics = rmqstore_spark.Store(SAMPLE).topics()
    null = next(name for name in topics.schema.names if topics[name].null_count)
    options = parse_options({"path": str(SAMPLE), "table": "topics"})
    schema = pa.schema([topics.schema.field(null).with_nullable(False)])
    (part,) = plan_table(table_of(options), options)
    with pytest.raises(OptionError, match=f"column '{null}': the schema declares it NOT NULL, but a row has none"):
        list(read_part(table_of(options), part, options, schema))


# ---- words


def batch_says(**options: str) -> str:
    return said_of(lambda: parse_options({"path": "/store", **options}))


def stream_says(**options: str) -> str:
    return said_of(lambda: parse_stream_options({"path": "/store", **options}))


def schema_says(**options: str) -> str:
    """What Spark asks first, for a read and for a stream, without telling which."""
    return said_of(lambda: RmqStoreDataSource({"path": "/store", **options}).schema())


def test_a_stream_is_not_told_a_reads_words() -> None:
    # What both say alike is said once, and what only one of them says is left to that one.
    for options in ({"mode": "x"}, {"startingOffsets": "x"}, {"startingTimestamp": "x"}, {"subscribe": ","}):
        assert batch_says(**options) == stream_says(**options) == schema_says(**options)
    for options in (
        {"startingOffsets": "latest"},
        {"key": "x"},
        {"endingOffsets": "latest"},
        {"failOnDataLoss": "true"},
    ):
        RmqStoreDataSource({"path": "/store", **options}).schema()
    for options in ({"key": ""}, {"endingOffsets": "x"}, {"subscrib": "A"}):
        assert batch_says(**options) in schema_says(**options)
        assert f"as a stream: {stream_says(**options)}" in schema_says(**options)
    assert schema_says(GROUPoffset="G=earliest").startswith(
        "option 'groupOffset' is not for reads, but for copies: Store.copy"
    )
    assert batch_says(queues="4").startswith("option 'queues' is not for reads, but for writes: df.write")
    # Of another table than messages there is no stream.
    assert batch_says(table="usage", by="topci") == schema_says(table="usage", by="topci")
    assert schema_says(failOnDataLoss="x", mode="x") == stream_says(failOnDataLoss="x", mode="x")


def test_of_two_wrong_options_all_faces_tell_the_same(rng: random.Random) -> None:
    wrong = {"subscribe": ",", "tags": "||", "mode": "x", "verifyCrc": "x", "startingTimestamp": "x", "table": ""}
    for _ in range(100):
        names = rng.sample(sorted(wrong), 3)
        options = {name: wrong[name] for name in names}
        assert batch_says(**options) == stream_says(**options) == schema_says(**options), names
        if "table" not in names:
            assert batch_says(**options) == said_of(lambda: rmqstore_spark.Store(SAMPLE).messages(**options))  # type: ignore[arg-type] # noqa: B023
    refused = ["key", "trust", "endingTimestamp", "pushdown"]
    for order in itertools.permutations(refused):
        assert "'key'" in stream_says(**dict.fromkeys(order, "x"))


@pytest.mark.parametrize("name", TABLES)
def test_an_unknown_topic_is_told_in_one_way(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Of subscribe and assign in the log, as it may come yet, or as an error where rows are made of selected
    messages; of offsets as an error; a pattern is just a filter."""
    store: Any = rmqstore_spark.Store(SAMPLE)
    taken = table(name).options
    topic, queue = "unknown topic 'Plane'. Did you mean 'Plain'?", "topic 'Plain' has no queue 99; it has 0, 1, 2, 3"
    for option, value, told in (
        ("subscribe", "Plane", topic),
        ("subscribe", ["Plane", "Zero"], topic),
        ("assign", {"Plane": [0]}, topic),
        ("assign", {"Plain": [99]}, queue),
        ("subscribePattern", "Plane.*", None),
    ):
        if option in taken:
            caplog.clear()
            given: Any = {option: value}
            if "bodyContains" in taken and told:
                assert said_of(lambda given=given: store.table(name, **given)).startswith(told)
                continue
            assert store.table(name, **given).num_rows == 0
            assert any(record.getMessage().startswith(told or "") for record in caplog.records) == (told is not None)
    if "startingOffsets" in taken:
        for option in ("startingOffsets", "endingOffsets"):
            assert said_of(lambda option=option: store.table(name, **{option: {"Plane": {0: 1}}})).startswith(topic)
            assert said_of(lambda option=option: store.table(name, **{option: {"Plain": {99: 1}}})) == queue
