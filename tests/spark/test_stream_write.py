"""`df.writeStream.format("rmqstore")`: each micro-batch is written once."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from oracle import reference
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.query.options import parse_write_options
from rmqstore_spark.spark.stream_writer import RmqStoreStreamWriter

pytestmark = pytest.mark.spark

OPTIONS: dict[str, Any] = {
    "topic": "T",
    "mappedFileSizeCommitLog": 8192,
    "mappedFileSizeConsumeQueue": 200,
    "maxHashSlotNum": 20,
    "maxIndexNum": 50,
}


class Home:
    """A directory of text files, of which each is a batch of a query that writes to a store."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark = spark
        self.store = path / "store"
        self.checkpoint = path / "checkpoint"
        self.source = path / "source"
        self.source.mkdir()
        self.time = time.time() - 1000

    def arrive(self, *names: str) -> None:
        for name in names:
            (self.source / name).write_text("".join(f"{name}{i}\n" for i in range(20)))
            # Spark takes the oldest first, and files of the same millisecond in any order.
            self.time += 1
            os.utime(self.source / name, (self.time, self.time))

    @property
    def lines(self) -> DataFrame:
        reader = self.spark.readStream.option("maxFilesPerTrigger", 1)
        return reader.text(str(self.source)).selectExpr("value body")

    def run(self, lines: DataFrame | None = None, mode: str = "append", **options: Any) -> None:
        writer = (self.lines if lines is None else lines).writeStream.format("rmqstore").outputMode(mode)
        writer = writer.options(**{**OPTIONS, **options}).option("checkpointLocation", str(self.checkpoint))
        query = writer.queryName("writes").trigger(availableNow=True).start(str(self.store))
        query.awaitTermination()

    def bodies(self) -> list[str]:
        return sorted(row["body"].decode() for row in reference.read_store(self.store))

    def transactions(self) -> dict[str, int]:
        path = self.store / ".rmqstore-spark" / "transactions.json"
        found: dict[str, int] = json.loads(path.read_text())["transactions"]
        return found

    def query(self) -> str:
        found: str = json.loads((self.checkpoint / "metadata").read_text())["id"]
        return found


@pytest.fixture
def home(spark: SparkSession, tmp_path: Path) -> Home:
    return Home(spark, tmp_path)


def expected(*names: str) -> list[str]:
    return sorted(f"{name}{i}" for name in names for i in range(20))


def test_each_batch_once(home: Home) -> None:
    home.arrive("a", "b", "c")
    home.run()
    assert home.bodies() == expected("a", "b", "c")
    assert home.transactions() == {home.query(): 2}
    # Killed after the commit of the last batch, before Spark has noted it: the batch comes again.
    for path in (home.checkpoint / "commits").glob("*2*"):
        path.unlink()
    home.arrive("d")
    home.run()
    assert home.bodies() == expected("a", "b", "c", "d")
    assert home.transactions() == {home.query(): 3}
    assert (home.checkpoint / "commits" / "2").exists()
    left = {path.name for path in (home.store / ".rmqstore-spark").iterdir()}
    assert left - {"checked.json"} == {"times.json", "transactions.json"}  # the first is of small appends


def refusal(error: PySparkException) -> str:
    found = re.search(r"rmqstore_spark\.\w+: (.*)", str(error))
    assert found, error
    return found[1]


def test_refusals(home: Home) -> None:
    home.arrive("a")
    with pytest.raises(StreamingQueryException) as error:
        home.run(home.lines.groupBy("body").count().select("body"), mode="complete")
    assert refusal(error.value).startswith("outputMode complete: expected append")
    with pytest.raises(StreamingQueryException) as error:
        home.run(txnAppId="me", txnVersion=1)
    assert refusal(error.value).startswith("options 'txnAppId' and 'txnVersion' are not for streams")
    assert not home.store.exists()


def test_a_batch_that_fails_leaves_nothing(home: Home) -> None:
    home.arrive("a", "b")
    (home.source / "b").write_text("bad\n")
    wrong = home.lines.selectExpr("if(body = 'bad', null, body) body")
    with pytest.raises(StreamingQueryException) as error:
        home.run(wrong)
    assert "column 'body': expected a binary, found null" in refusal(error.value)
    assert home.bodies() == expected("a")


def test_no_batch_without_its_query(tmp_path: Path) -> None:
    """A task outside of a stream knows no query: then nothing would be remembered, so nothing is written."""
    writer = RmqStoreStreamWriter(parse_write_options({"path": str(tmp_path / "store"), "topic": "T"}), overwrite=False)
    writer.prepare(StructType().add("body", "binary"))
    message = writer.write(iter([pa.record_batch({"body": pa.array([b"x"])})]))
    with pytest.raises(RmqStoreError, match="expected Spark to tell each task the query's id"):
        writer.commit([message], 0)
    writer.abort([message, None], 0)
    assert not (tmp_path / "store").exists()


def test_for_each_batch(home: Home) -> None:
    """The same with options, in a query of any sink."""

    def write(batch: DataFrame, number: int) -> None:
        for _ in range(2):
            options = {**OPTIONS, "txnAppId": "mine", "txnVersion": number}
            batch.write.format("rmqstore").mode("append").options(**options).save(str(home.store))

    home.arrive("a", "b")
    query = home.lines.writeStream.foreachBatch(write).option("checkpointLocation", str(home.checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    assert home.bodies() == expected("a", "b")
    assert home.transactions() == {"mine": 1}
