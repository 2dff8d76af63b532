"""Tables other than messages, as Spark's users meet them: the rows are those of Store. Three of them go through a JVM;
all of them are held to the same in test_table_readers.py, without one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rmqstore_spark import Store

pytestmark = pytest.mark.spark

SAMPLE = Path(__file__).parents[2] / "sample_store"


def load(spark: SparkSession, path: object = SAMPLE, **options: str) -> Any:
    return spark.read.format("rmqstore").options(**options).load(str(path))


# One of few rows and maps, one of every type of number, one that is read in several parts.
@pytest.mark.parametrize("name", ["topics", "offsets", "check"])
def test_a_table(spark: SparkSession, name: str) -> None:
    expected = Store(SAMPLE).table(name)
    small = {"maxPartitionBytes": "2000"} if name == "check" else {}
    found = load(spark, table=name, **small).toArrow()
    assert found.schema.names == expected.schema.names
    assert found.schema.types == expected.schema.types
    assert found.to_pylist() == expected.to_pylist()


def test_columns_and_several_stores(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(SAMPLE, tmp_path / name)
    found = load(spark, tmp_path / "*", table="queues", columns="store,topic,messages", subscribe="Plain,Ordered")
    sums = found.groupBy("store", "topic").sum("messages").orderBy("store", "topic").collect()
    assert [tuple(row) for row in sums] == [
        (str(tmp_path / name), topic, count) for name in ("a", "b") for topic, count in (("Ordered", 24), ("Plain", 60))
    ]
    schema = "messages bigint, topic string NOT NULL"
    rows = spark.read.format("rmqstore").schema(schema).option("table", "queues").load(str(SAMPLE))
    assert rows.schema.names == ["messages", "topic"]
    assert rows.filter("topic = 'Plain'").agg({"messages": "sum"}).collect()[0][0] == 60


@pytest.mark.parametrize(
    ("options", "schema", "said"),
    [
        ({"table": "topcs"}, None, "unknown table 'topcs'. Did you mean 'topics'?"),
        ({"table": "groups", "key": "x"}, None, "option 'key' does not go with table 'groups'"),
        ({"table": "groups", "columns": "lag"}, None, "unknown column 'lag'"),
        ({"table": "queues"}, "queueId bigint", "column 'queueId' is of type int, not bigint; cast it in the query"),
        (
            {"table": "queues", "columns": "topic"},
            "queueId int",
            "option 'columns' names topic, but the schema queueId",
        ),
    ],
)
def test_errors(spark: SparkSession, options: dict[str, str], schema: str | None, said: str) -> None:
    reader = spark.read.format("rmqstore").options(**options)
    with pytest.raises(PySparkException) as error:
        (reader.schema(schema) if schema else reader).load(str(SAMPLE)).collect()
    assert said in str(error.value)


def test_what_a_group_has_not_consumed(spark: SparkSession) -> None:
    rows = load(spark, startingOffsets="group:partial-group", subscribe="Plain").groupBy("queueId").count().collect()
    lag = {row["queueId"]: row["lag"] for row in Store(SAMPLE).offsets(subscribe="Plain").to_pylist()}
    assert {row["queueId"]: row["count"] for row in rows} == {queue: count for queue, count in lag.items() if count}
