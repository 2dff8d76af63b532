"""`spark.read.format("rmqstore")` on a stock session keeps the contract of README: rows, columns, options, errors."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from oracle import reference
from oracle.random_stores import random_store
from oracle.stores import StoreBuilder
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import rmqstore_spark
from rmqstore_spark.columns import COLUMNS, DEFAULT_COLUMNS

pytestmark = pytest.mark.spark

DATA = Path(__file__).parents[1] / "data"
SAMPLE = DATA.parents[1] / "sample_store"
REAL_STORES = sorted(path.name for path in DATA.iterdir() if (path / "commitlog").is_dir())
DDL = ", ".join(f"{name} {COLUMNS[name].spark}" for name in DEFAULT_COLUMNS)
TIMES = ("bornTimestamp", "storeTimestamp")


def expected(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    """The reference's rows, by way of Spark's own conversion from Python (not Arrow)."""
    raw = spark.createDataFrame(
        [tuple(row[name] for name in DEFAULT_COLUMNS) for row in rows],
        ", ".join(f"{name} {'bigint' if name in TIMES else COLUMNS[name].spark}" for name in DEFAULT_COLUMNS),
    )
    return raw.select(*(F.timestamp_micros(name).alias(name) if name in TIMES else name for name in DEFAULT_COLUMNS))


def load(spark: SparkSession, path: Path | list[Path], **options: object) -> DataFrame:
    reader = spark.read.format("rmqstore").options(**{name: str(value) for name, value in options.items()})
    return reader.load([str(p) for p in path] if isinstance(path, list) else str(path))


def comparable(df: DataFrame) -> DataFrame:
    """Maps cannot be sorted or compared by Spark; as sorted entries they can."""
    return df.withColumn("properties", F.sort_array(F.map_entries("properties")))


def message(error: pytest.ExceptionInfo[PySparkException]) -> str:
    return str(error.value).replace("SQLSTATE: 38000", "").replace("Please see the stack trace below.", "").strip()


@pytest.mark.parametrize("name", REAL_STORES)
def test_real_stores_equal_the_reference(spark: SparkSession, name: str) -> None:
    actual = load(spark, DATA / name)
    wanted = expected(spark, reference.read_store(DATA / name))
    assert actual.schema.simpleString() == wanted.schema.simpleString()
    assert_df_equality(
        comparable(actual), comparable(wanted), ignore_row_order=True, ignore_nullable=True, ignore_metadata=True
    )


def test_random_store_equals_the_reference(spark: SparkSession, tmp_path: Path, rng: Any) -> None:
    random_store(tmp_path, rng, messages=300, unusual_times=False)
    actual = load(spark, tmp_path, maxPartitionBytes=4096)
    wanted = expected(spark, reference.read_store(tmp_path))
    assert_df_equality(
        comparable(actual), comparable(wanted), ignore_row_order=True, ignore_nullable=True, ignore_metadata=True
    )


def test_found_without_register_and_in_any_case(spark: SparkSession, small_store: Path) -> None:
    assert spark.read.format("RmqStore").load(str(small_store)).count() == 60


def test_register(spark: SparkSession, small_store: Path) -> None:
    other = spark.newSession()
    rmqstore_spark.register(other)
    assert other.read.format("rmqstore").load(str(small_store)).count() == 60


def test_schema_is_the_contract(spark: SparkSession, small_store: Path) -> None:
    assert load(spark, small_store).schema == spark.createDataFrame([], DDL).schema


@pytest.mark.parametrize(
    "names",
    [
        ["topic", "queueOffset", "storeTimestamp"],
        ["bodyCRC"],
        ["store", "file", "corrupt", "body", "topic"],
        ["properties", "sysFlag"],
        list(reversed(COLUMNS)),
    ],
    ids=lambda names: f"{len(names)} from {names[0]}",
)
def test_projection_gives_these_columns_in_this_order(spark: SparkSession, small_store: Path, names: list[str]) -> None:
    schema = ", ".join(f"{name} {COLUMNS[name].spark}" for name in names)
    by_schema = spark.read.format("rmqstore").schema(schema).load(str(small_store))
    by_option = load(spark, small_store, columns=", ".join(names))
    assert by_schema.columns == by_option.columns == names
    everything = load(spark, small_store, columns=",".join(COLUMNS)).orderBy("commitLogOffset")
    assert by_schema.count() == 60
    keys = [name for name in names if name != "properties"] or names
    assert sorted(map(str, by_schema.collect())) == sorted(map(str, everything.select(*names).collect()))
    assert sorted(map(str, by_option.select(*keys).collect())) == sorted(map(str, everything.select(*keys).collect()))


def test_not_null_schema(spark: SparkSession, small_store: Path) -> None:
    read = spark.read.format("rmqstore")
    df = read.schema("queueOffset bigint not null, topic string not null").load(str(small_store))
    assert [field.nullable for field in df.schema] == [False, False]
    assert df.agg(F.max("queueOffset")).collect() == [(29,)]
    with pytest.raises(PySparkException, match="OptionError: column 'tags': the schema declares it NOT NULL"):
        read.schema("tags string not null").load(str(small_store)).collect()


def test_no_columns_but_rows(spark: SparkSession, small_store: Path) -> None:
    assert spark.read.format("rmqstore").schema(StructType([])).load(str(small_store)).count() == 60


def test_columns_from_the_queues_alone(spark: SparkSession, small_store: Path) -> None:
    """With trust=queues: the same rows, and what else is asked for comes from the log."""
    names = ["topic", "queueId", "queueOffset", "commitLogOffset", "storeSize", "store"]
    scanned = load(spark, small_store, columns=",".join(names))
    covering = load(spark, small_store, columns=",".join(names), trust="queues")
    assert_df_equality(covering, scanned, ignore_row_order=True)
    rows = load(spark, small_store, trust="queues", subscribe="TopicA").select("body").collect()
    assert rows == load(spark, small_store).select("body").collect()


def test_properties_whose_names_spark_does_not_tell(spark: SparkSession, tmp_path: Path) -> None:
    """Spark makes the names of options lower case."""
    builder = StoreBuilder(tmp_path)
    for number in range(4):
        builder.append("T", b"%d" % number, properties={"orderColor": "Red" if number % 2 else "Blue"})
    builder.close()
    reader = spark.read.format("rmqstore").option("property.orderColor", "Red")
    assert [bytes(row.body) for row in reader.load(str(tmp_path)).select("body").collect()] == [b"1", b"3"]
    assert reader.option("bodyContains", "3").load(str(tmp_path)).count() == 1
    found = load(spark, tmp_path, sql92="orderColor in ('Blue', 'Green') and TAGS is null").select("body").collect()
    assert [bytes(row.body) for row in found] == [b"0", b"2"]
    assert load(spark, tmp_path, table="usage", by="queueId").select("messages").collect()[0].messages == 4


def test_messages_as_their_producer_sent_them(spark: SparkSession, tmp_path: Path) -> None:
    """Filters are about these, whatever is pushed; and they can be written as they are."""
    df = load(spark, SAMPLE, asOriginal=True, subscribePattern="%DLQ%.*|SCHEDULE_TOPIC_XXXX", pushdown="on")
    assert df.where("topic like '%DLQ%' or queueOffset >= 0").count() == 0
    found = df.where("topic = 'Retried'").selectExpr("keys", "properties['RETRY_TOPIC'] as added").collect()
    assert found
    assert all(row.added is None for row in found)
    df.where("topic = 'Retried'").write.format("rmqstore").mode("append").save(str(tmp_path / "new"))
    again = load(spark, tmp_path / "new").selectExpr("keys", "null as added").collect()
    assert sorted(again) == sorted(found)


def test_all_messages_of_an_application_s_topic(spark: SparkSession) -> None:
    """Half, delayed, retried and dead ones have it as their realTopic."""
    df = load(spark, SAMPLE, columns="topic,realTopic,consumerGroup,commitLogOffset")
    found = df.where("realTopic = 'Retried'").groupBy("topic", "consumerGroup").count().collect()
    assert {tuple(row) for row in found} == {
        ("Retried", None, 6),
        ("SCHEDULE_TOPIC_XXXX", "failing-group", 4),
        ("%RETRY%failing-group", "failing-group", 4),
        ("%DLQ%failing-group", "failing-group", 2),
    }
    offsets = [row.commitLogOffset for row in df.where("realTopic = 'Delayed' and topic != realTopic").collect()]
    waiting = load(spark, SAMPLE, subscribe="SCHEDULE_TOPIC_XXXX").where("properties['REAL_TOPIC'] = 'Delayed'")
    assert sorted(offsets) == sorted(row.commitLogOffset for row in waiting.collect())
    assert len(offsets) == 4


def test_several_stores_globs_and_file_uris(spark: SparkSession) -> None:
    both = [DATA / "rocketmq-4.9.4", DATA / "rocketmq-5.3.3"]
    df = load(spark, both, columns="store,file,commitLogOffset")
    assert {(Path(row.store).name, row["count"]) for row in df.groupBy("store").count().collect()} == {
        ("rocketmq-4.9.4", 60),
        ("rocketmq-5.3.3", 60),
    }
    assert all(Path(row.file).parent == Path(row.store, "commitlog") for row in df.collect())
    assert load(spark, DATA / "rocketmq-5.3.[03]").count() == 120
    assert spark.read.format("rmqstore").load((DATA / "rocketmq-5.3.0").as_uri()).count() == 60


def test_temporary_view(spark: SparkSession, small_store: Path) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW rmq USING rmqstore OPTIONS (path '{small_store}')")
    assert spark.sql("SELECT queueId, count(*) n FROM rmq GROUP BY queueId ORDER BY 1").collect() == [(0, 30), (1, 30)]


def test_limit_stops_early(spark: SparkSession, small_store: Path) -> None:
    assert len(load(spark, small_store).limit(3).collect()) == 3
    assert len(load(spark, small_store).take(7)) == 7


@pytest.mark.slow
@pytest.mark.long
def test_garbage_collection_between_tasks_leaves_modules_out(spark: SparkSession, small_store: Path) -> None:
    def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([[gc.get_freeze_count()]], ["objects"])

    load(spark, small_store).count()
    load(spark, small_store).count()
    workers = spark.range(4, numPartitions=4).mapInArrow(frozen, "objects bigint").collect()
    assert max(worker.objects for worker in workers) > 10_000


def test_empty_store(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    df = load(spark, tmp_path)
    assert df.collect() == []
    assert df.columns == DEFAULT_COLUMNS


def test_a_dataframe_is_a_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path)
    for i in range(5):
        store.append("T", b"x" * i)
    store.flush()
    df = load(spark, tmp_path)
    assert df.count() == 5
    store.append("T", b"later")
    store.flush()
    assert df.count() == 5
    assert load(spark, tmp_path).count() == 6


@pytest.fixture
def damaged(tmp_path: Path, small_store: Path) -> Path:
    """The sample store with a flipped bit in the body of its second message (at 289, the body at 289 + 88)."""
    store = tmp_path / "store"
    shutil.copytree(small_store, store)
    segment = store / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    data[289 + 90] ^= 1
    segment.write_bytes(data)
    return store


def test_failfast_is_one_line(spark: SparkSession, damaged: Path) -> None:
    with pytest.raises(PySparkException) as error:
        load(spark, damaged).collect()
    *head, last = message(error).splitlines()
    assert last.startswith("rmqstore_spark.DamagedStoreError: ")
    assert f"{damaged}/commitlog/{0:020d}: position 289 (commitLogOffset 289): bodyCRC differs" in last
    assert "mode=DROPMALFORMED" in last
    assert not any("Traceback" in line or "File " in line for line in head)


def test_dropmalformed_and_permissive(spark: SparkSession, damaged: Path) -> None:
    dropped = load(spark, damaged, mode="dropMalformed", columns="commitLogOffset")
    assert dropped.count() == 59
    rows = load(spark, damaged, mode="PERMISSIVE", columns="commitLogOffset,topic,corrupt,file").collect()
    (corrupt,) = [row for row in rows if row.corrupt]
    assert len(rows) == 60
    assert (corrupt.commitLogOffset, corrupt.topic) == (289, None)
    assert corrupt.corrupt.startswith("bodyCRC differs from the body")
    assert corrupt.file.endswith("/commitlog/00000000000000000000")


@pytest.mark.parametrize(
    ("options", "schema", "text"),
    [
        ({"colums": "topic"}, None, "unknown option 'colums'. Did you mean 'columns'?"),
        ({"columns": "topik"}, None, "unknown column 'topik'. Did you mean 'topic'?"),
        ({"columns": "topic,topic"}, None, "column 'topic' is asked for twice"),
        ({"mode": "LENIENT"}, None, "option 'mode': expected FAILFAST or DROPMALFORMED or PERMISSIVE, found 'LENIENT'"),
        ({"verifyCrc": "maybe"}, None, "option 'verifyCrc': expected true or false, found 'maybe'"),
        ({"maxPartitionBytes": "0"}, None, "option 'maxPartitionBytes': expected a number of bytes"),
        ({}, "topic string, offset bigint", "unknown column 'offset'"),
        ({}, "queueOffset int", "column 'queueOffset' is of type bigint, not int; cast it in the query"),
        ({"columns": "topic"}, "body binary", "option 'columns' names topic, but the schema body; give one of them"),
    ],
)
def test_mistakes_are_told_in_one_line(
    spark: SparkSession, small_store: Path, options: dict[str, str], schema: str | None, text: str
) -> None:
    reader = spark.read.format("rmqstore").options(**options)
    with pytest.raises(PySparkException) as error:
        (reader.schema(schema) if schema else reader).load(str(small_store)).collect()
    assert text in message(error)
    assert len(message(error).splitlines()) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("nowhere", "no such directory; give the broker's store directory"),
        ("file", "this is a file; give the broker's store directory"),
        (".", "not a RocketMQ store: expected a directory commitlog/ in it, found file"),
        ("no*where", "nothing matches this pattern"),
    ],
)
def test_wrong_paths(spark: SparkSession, tmp_path: Path, path: str, text: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PySparkException) as error:
        load(spark, tmp_path / path).collect()
    assert text in message(error)
    assert len(message(error).splitlines()) == 1


def test_no_path(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="no path is given; use load"):
        spark.read.format("rmqstore").load().collect()


def test_create_table_says_what_to_do(spark: SparkSession, small_store: Path) -> None:
    spark.sql(f"CREATE TABLE rmq_table USING rmqstore OPTIONS (path '{small_store}')")
    try:
        with pytest.raises(PySparkException, match="CREATE TEMPORARY VIEW"):
            spark.sql("SELECT count(*) FROM rmq_table").collect()
    finally:
        spark.sql("DROP TABLE rmq_table")
    with pytest.raises(PySparkException):
        spark.sql(f"SELECT count(*) FROM rmqstore.`{small_store}`").collect()


def test_a_file_deleted_between_planning_and_reading(spark: SparkSession, tmp_path: Path, small_store: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(small_store, store)
    df = load(spark, store, mode="DROPMALFORMED")
    assert df.rdd.getNumPartitions() >= 1  # plans
    (store / "commitlog" / f"{8192:020d}").unlink()
    with pytest.raises(PySparkException, match="the file is gone; a broker deletes expired segments"):
        df.collect()


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "DROPMALFORMED"},
        {"endingTimestamp": 1_700_000_000_100},
        {"trust": "queues", "columns": "topic,queueId"},
        {"table": "consumequeue"},
        {"table": "check"},
    ],
    ids=lambda options: "-".join(options),
)
def test_a_second_action_after_the_store_was_replaced(
    spark: SparkSession, tmp_path: Path, options: dict[str, object]
) -> None:
    """Its messages take as many bytes as those before, so that all of it could be read."""
    for name, letter in (("store", b"a"), ("other", b"b")):
        store = StoreBuilder(tmp_path / name)
        for number in range(60):
            store.append(body=letter * 300, queue_id=number % 2)
        store.close()
        store.now += 1
    df = load(spark, tmp_path / "store", **options)
    before = df.collect()
    assert before or "check" in options.values()
    assert df.collect() == before
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "other").rename(tmp_path / "store")
    with pytest.raises(
        PySparkException, match=r"this executor \(\S+\) sees another store under .* than the plan"
    ) as error:
        df.collect()
    assert "load it again if it was replaced" in message(error)
