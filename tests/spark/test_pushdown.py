"""`filter()` on a stock session gives the right rows whatever Spark's switch and `pushdown` say, and with `on` less is
read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from rmqstore_spark.columns import COLUMNS

pytestmark = pytest.mark.spark

SWITCH = "spark.sql.python.filterPushdown.enabled"
WITHOUT_CORRUPT = [name for name in COLUMNS if name != "corrupt"]
SAMPLE = Path(__file__).resolve().parents[2] / "sample_store"

Set = Callable[[bool], None]


@pytest.fixture
def switch(spark: SparkSession) -> Iterator[Set]:
    """Sets Spark's switch, which is as before after the test."""
    before = spark.conf.get(SWITCH, "false")
    assert before
    yield lambda on: spark.conf.set(SWITCH, str(on).lower())
    spark.conf.set(SWITCH, before)


def load(spark: SparkSession, store: Path, pushdown: str, **options: str) -> DataFrame:
    return spark.read.format("rmqstore").options(pushdown=pushdown, **options).load(str(store))


def queues(df: DataFrame) -> list[int]:
    return sorted(row.queueId for row in df.select("queueId").collect())


# ---- scans of one DataFrame: where Spark 4.1 to 4.3 give the filters of one to the others


@pytest.mark.parametrize("pushdown", ["auto", "off"])
@pytest.mark.parametrize("on", [True, False], ids=["switch on", "switch off"])
def test_scans_that_share_a_dataframe(
    spark: SparkSession, small_store: Path, switch: Set, on: bool, pushdown: str
) -> None:
    """small_store: 30 messages in each of the queues 0 and 1."""
    switch(on)
    df = load(spark, small_store, pushdown)
    zero, one = df.filter("queueId = 0"), df.filter("queueId = 1")
    assert queues(one) == [1] * 30
    assert df.count() == 60
    assert queues(zero.union(one)) == [0] * 30 + [1] * 30
    assert queues(one.union(df)) == [0] * 30 + [1] * 60
    first = "queueOffset = 0 and queueId = "
    pairs = df.filter(first + "0").select("queueId").crossJoin(df.filter(first + "1").select("queueId"))
    assert [tuple(row) for row in pairs.collect()] == [(0, 1)]
    assert zero.join(one, "queueOffset").count() == 30

    df.createOrReplaceTempView("pushed")
    assert spark.sql("select count(*) from pushed where queueId = 1").collect() == [(30,)]
    assert spark.sql("select count(*) from pushed").collect() == [(60,)]
    options = f"path '{small_store}', pushdown '{pushdown}'"
    spark.sql(f"create or replace temporary view pushed using rmqstore options ({options})")
    assert spark.sql("select count(*) from pushed where queueId = 1").collect() == [(30,)]
    assert spark.sql("select count(*) from pushed").collect() == [(60,)]


@pytest.mark.parametrize("pushdown", ["auto", "on", "off"])
@pytest.mark.parametrize("on", [True, False], ids=["switch on", "switch off"])
def test_scans_of_their_own(spark: SparkSession, small_store: Path, switch: Set, on: bool, pushdown: str) -> None:
    switch(on)
    zero, one = (load(spark, small_store, pushdown).filter(f"queueId = {n}") for n in (0, 1))
    assert queues(zero.union(one)) == [0] * 30 + [1] * 30
    assert load(spark, small_store, pushdown).count() == 60


# ---- single scans


@pytest.fixture(scope="module")
def scanned(spark: SparkSession) -> Iterator[DataFrame]:
    """All of sample_store, in Spark's memory: what is filtered here, Spark filters."""
    df = load(spark, SAMPLE, "off", columns=",".join(WITHOUT_CORRUPT)).cache()
    yield df
    df.unpersist()


@pytest.fixture(scope="module")
def message(scanned: DataFrame) -> Row:
    """A message that has tags, keys and ids, with other queues, offsets and times beside its own."""
    found = scanned.filter("tags is not null and keys is not null and msgId is not null")
    first = found.filter("queueOffset = 2 and queueId = 1").orderBy("commitLogOffset").first()
    assert first
    return first


PREDICATES = [
    "topic = '{topic}'",
    "topic <=> '{topic}' and queueId = {queueId} and queueOffset = {queueOffset}",
    "topic in ('{topic}', 'NoSuchTopic', null)",
    "topic like 'O%'",
    "topic like 'O%' and queueId in (0, 2)",
    "queueId = 1L and queueOffset >= 1 and queueOffset < 5",
    "queueOffset between 2 and 3",
    "tags = '{tags}'",
    "tags <=> '{tags}' and tags <=> null",
    "tags in ('{tags}', null)",
    "tags <=> null",
    "tags is null and keys is null",
    "tags like 'T%'",
    "keys = '{keys}'",
    "msgId = '{msgId}'",
    "msgId in ('{msgId}', 'x')",
    "msgId = lower('{msgId}')",
    "offsetMsgId = '{offsetMsgId}'",
    "offsetMsgId = lower('{offsetMsgId}')",
    "commitLogOffset = {commitLogOffset}",
    "commitLogOffset in ({commitLogOffset}, {commitLogOffset} + 1, 0)",
    "commitLogOffset > {commitLogOffset} and commitLogOffset <= {commitLogOffset} + 5000",
    "commitLogOffset < 0",
    "storeTimestamp = timestamp'{storeTimestamp}'",
    "storeTimestamp in (timestamp'{storeTimestamp}', timestamp'2001-02-03')",
    "storeTimestamp > timestamp'{storeTimestamp}'",
    "storeTimestamp >= timestamp'{storeTimestamp}' - interval 1 microsecond",
    "storeTimestamp < timestamp'{storeTimestamp}' + interval 1 microsecond",
    "storeTimestamp <= timestamp'{storeTimestamp}'",
    "to_date(storeTimestamp) = date'1999-01-01'",
    "storeTimestamp = timestamp'{storeTimestamp}' + interval 1 microsecond",
    # What no Selection can say.
    "topic = '{topic}' or queueId = 1",
    "topic <> '{topic}' and not (queueId = 1) and not (tags <=> '{tags}')",
    "topic > '{topic}' and properties['KEYS'] = keys and length(body) > 3",
    "queueOffset + 1 = 3 and queueId = queueOffset",
    "flag = 0 and sysFlag = 0 and bornTimestamp <= storeTimestamp",
]


@pytest.fixture(scope="module")
def selected(scanned: DataFrame, message: Row) -> dict[str, list[Any]]:
    """By predicate, the rows of which Spark says that it is true."""
    predicates = [predicate.format(**message.asDict()) for predicate in PREDICATES]
    rows = [tuple(row) for row in scanned.selectExpr("*", *predicates).orderBy("commitLogOffset").collect()]
    count = len(scanned.columns)
    return {each: [row[:count] for row in rows if row[count + n]] for n, each in enumerate(PREDICATES)}


@pytest.mark.parametrize("predicate", PREDICATES)
def test_single_scans(
    spark: SparkSession, switch: Set, message: Row, selected: dict[str, list[Any]], predicate: str
) -> None:
    switch(True)
    pushed = load(spark, SAMPLE, "on", columns=",".join(WITHOUT_CORRUPT))
    rows = pushed.filter(predicate.format(**message.asDict())).orderBy("commitLogOffset").collect()
    assert [tuple(row) for row in rows] == selected[predicate]


def test_the_predicates_select_some_rows_and_not_all(scanned: DataFrame, selected: dict[str, list[Any]]) -> None:
    counts = [len(rows) for rows in selected.values()]
    assert sum(count == 0 for count in counts) == 6  # as these are meant: `... and tags <=> null`, `lower(...)`, ...
    assert max(counts) < scanned.count()


def test_options_and_filters_together(spark: SparkSession, small_store: Path, switch: Set) -> None:
    switch(True)
    offsets = {"startingOffsets": '{"TopicA": {"0": 10, "1": 20}}'}
    df = load(spark, small_store, "on", **offsets).filter("queueOffset < 25 and queueId = 1")
    assert sorted(row.queueOffset for row in df.collect()) == [20, 21, 22, 23, 24]
    assert load(spark, SAMPLE, "on", subscribe="Ordered").filter("topic = 'Compressed'").collect() == []


def test_pushed_filters_prune(spark: SparkSession, small_store: Path, switch: Set) -> None:
    """With `on` and only with `on` fewer partitions are planned (as long as Spark is not mended)."""

    def partitions(on: bool, pushdown: str, predicate: str) -> int:
        switch(on)
        df = load(spark, small_store, pushdown, maxPartitionBytes="1000")
        return df.filter(predicate).rdd.getNumPartitions()

    everything = partitions(False, "off", "true")
    assert everything > 10
    for predicate in ("commitLogOffset = 289", "storeTimestamp < timestamp'2001-01-01'"):
        assert partitions(True, "on", predicate) == 1, predicate
        assert partitions(False, "on", predicate) == everything
        assert partitions(True, "off", predicate) == everything
    assert partitions(True, "on", "length(body) = 1") == everything
