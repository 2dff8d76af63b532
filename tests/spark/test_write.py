"""`df.write.format("rmqstore")` writes each row once, or nothing and an error."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from oracle import golden, reference
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from support import writing
from support.writing import kept, plain

import rmqstore_spark
from rmqstore_spark import OptionError
from rmqstore_spark.spark.datasource import RmqStoreDataSource
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.write.fs.disk import Tree
from rmqstore_spark.write.fs.lock import StoreLock

pytestmark = pytest.mark.spark

SIZES: dict[str, Any] = {
    "mappedFileSizeCommitLog": 8192,
    "mappedFileSizeConsumeQueue": 200,
    "maxHashSlotNum": 20,
    "maxIndexNum": 50,
}


def save(df: DataFrame, path: Path, mode: str = "append", **options: Any) -> None:
    df.write.format("rmqstore").mode(mode).options(**options).save(str(path))


def refusal(df: DataFrame, path: Path, mode: str = "append", **options: Any) -> str:
    """The line that the user sees."""
    with pytest.raises(PySparkException) as error:
        save(df, path, mode, **options)
    lines = [line for line in str(error.value).splitlines() if "rmqstore_spark." in line]
    assert len(lines) == 1, error.value
    return lines[0].partition("rmqstore_spark.")[2].partition(": ")[2].strip()


def test_a_body_and_a_topic_are_enough(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(0, 1000, numPartitions=3).select(F.concat(F.lit("body "), "id").alias("body"))
    before = int(time.time() * 1000)
    save(df, tmp_path / "store", topic="T", **SIZES)
    rows = writing.assert_whole(tmp_path / "store")
    assert [row["body"] for row in rows] == [f"body {i}".encode() for i in range(1000)]
    assert {row["topic"] for row in rows} == {"T"}
    counts = [sum(row["queueId"] == i for row in rows) for i in range(4)]
    assert sum(counts) == 1000
    assert max(counts) - min(counts) <= 3
    times = [row["storeTimestamp"] // 1000 for row in rows]
    assert before <= times[0]
    assert times == sorted(times)
    assert all(row["bornTimestamp"] <= row["storeTimestamp"] for row in rows)
    assert {(row["storeHost"], row["bornHost"]) for row in rows} == {("127.0.0.1:10911", "127.0.0.1:0")}


def test_queues_by_key(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(200).select(
        F.lit("b").alias("body"), F.lit("T").alias("topic"), F.concat(F.lit("k"), F.col("id") % 20).alias("keys")
    )
    save(df, tmp_path / "store", queues=7, **SIZES)
    for row in writing.assert_whole(tmp_path / "store"):
        assert row["queueId"] == abs(reference.java_hash(row["keys"])) % 7


@pytest.mark.parametrize("version", [golden.VERSIONS[0], golden.VERSIONS[-1]])
def test_copy_of_a_store_with_a_filter(spark: SparkSession, tmp_path: Path, version: str) -> None:
    source = golden.unpack(version, tmp_path / "source")
    df = spark.read.format("rmqstore").option("minPartitions", 5).load(str(source)).where("topic != 'Sizes'")
    save(df, tmp_path / "copy", mappedFileSizeCommitLog="4m", autoMessageVersionOnTopicLen=True)
    wanted = [row for row in reference.read_store(source) if row["topic"] != "Sizes"]
    sizes = Sizes(1 << 22, 6_000_000, 5_000_000, 20_000_000)
    assert kept(writing.assert_whole(tmp_path / "copy", sizes, index=False)) == plain(kept(wanted))


def test_groups_go_on_where_they_were(tmp_path: Path) -> None:
    """The writer as Spark calls it, sent to two tasks; this needs no Spark. A stream is not for that."""
    source, target = tmp_path / "source", tmp_path / "target"
    rows = [{"topic": "T", "queueId": n % 2, "msgId": f"m{n}", "body": b"%d" % n} for n in range(200)]
    writing.write(source, rows)
    (source / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@G":{0:60,1:7}}}')
    table = rmqstore_spark.Store(source).messages().read_all()
    options = {"path": str(target), "configFrom": str(source)}
    data_source = RmqStoreDataSource(options)
    writer = data_source.writer(from_arrow_schema(table.schema), False)
    parts = [table.slice(0, 80).to_batches(), table.slice(80).to_batches()]
    told = [pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(writer)).write(iter(part)))) for part in parts]
    writer.commit(told)
    left = rmqstore_spark.Store(target).messages(["msgId"], startingOffsets="group:G").read_all()
    assert left.column("msgId").to_pylist() == [f"m{n}" for n in range(200) if n // 2 >= (60, 7)[n % 2]]
    with pytest.raises(OptionError, match="'configFrom' is for a new store, and a stream continues one"):
        data_source.streamWriter(from_arrow_schema(table.schema), False)


def test_a_pattern_is_no_place_to_write(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(1).select(F.lit("b").alias("body"), F.lit("T").alias("topic"))
    for mode in ("append", "overwrite"):
        assert refusal(df, tmp_path / "w*", mode).startswith(f"{tmp_path}/w*: only one store can be written to")
    assert list(tmp_path.iterdir()) == []


def test_append_then_overwrite(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    for first in (0, 300, 600):
        save(spark.range(first, first + 300).selectExpr("string(id) body"), root, topic="T", **SIZES)
    assert [int(row["body"]) for row in writing.assert_whole(root)] == list(range(900))
    save(spark.range(5).selectExpr("string(id) body"), root, "overwrite", topic="Other", mappedFileSizeCommitLog=4096)
    assert [row["topic"] for row in reference.read_store(root)] == ["Other"] * 5
    assert {path.stat().st_size for path in (root / "commitlog").iterdir()} == {4096}
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_nothing_to_write(spark: SparkSession, tmp_path: Path) -> None:
    save(spark.range(0).selectExpr("string(id) body"), tmp_path / "store", topic="T")
    assert spark.read.format("rmqstore").load(str(tmp_path / "store")).count() == 0


@pytest.mark.parametrize(
    ("select", "options", "expected"),
    [
        ("id", {"topic": "T"}, "unknown column 'id'"),
        ("'x' topic", {}, "column 'body': expected one of type binary or string, found none"),
        ("string(id) body", {}, "column 'topic': expected one of type string, or option 'topic', found neither"),
        ("id body", {"topic": "T"}, "column 'body': expected type binary, found bigint; cast it"),
        ("'x' body, 'x' queueId", {"topic": "T"}, "column 'queueId': expected type int, found string; cast it"),
        ("'x' body", {"topic": "T", "queue": 3}, "unknown option 'queue'. Did you mean 'queues'?"),
        ("'x' body", {"topic": "T", "storeHost": "nowhere"}, "option 'storeHost': expected ip:port or [ipv6]:port"),
        ("'x' body", {"topic": "a b"}, "row 0: column 'topic': expected"),
        ("if(id = 7, null, 'x') body", {"topic": "T"}, "row 7: column 'body': expected a binary, found null"),
        ("'x' body, if(id = 7, null, 'T') topic", {}, "row 7: column 'topic': expected a string, found null"),
        ("'x' body, int(3 - id) queueId", {"topic": "T"}, "row 4: column 'queueId': expected"),
        ("repeat('x', 4194305) body", {"topic": "T"}, "row 0: column 'body': expected 4194304 bytes"),
        ("'x' body, if(id = 7, 'x', '1.2.3.4:5') bornHost", {"topic": "T"}, "row 7: column 'bornHost': expected ip"),
        ("'x' body, map('a', 'b\\u0002') properties", {"topic": "T"}, "row 0: column 'properties': expected"),
        ("'x' body", {"topic": "t" * 128}, "row 0: column 'topic': expected 1 to 127 bytes, found 128"),
        ("'x' body", {"topic": "T", "mappedFileSizeCommitLog": 64}, "does not fit into a segment of 64 bytes"),
    ],
)
def test_refusals(spark: SparkSession, tmp_path: Path, select: str, options: dict[str, Any], expected: str) -> None:
    """One line, and nothing is written: not even a directory."""
    spark.range(0, 10, numPartitions=1).createOrReplaceTempView("numbers")
    df = spark.sql(f"SELECT {select} FROM numbers")
    assert expected in refusal(df, tmp_path / "store", **options)
    assert not (tmp_path / "store" / "commitlog").exists()
    assert not (tmp_path / "store" / ".rmqstore-spark").exists()


def test_a_running_broker_and_a_crashed_one(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(10).selectExpr("string(id) body")
    save(df, tmp_path, topic="T", **SIZES)
    with Tree(str(tmp_path)) as tree, StoreLock(tree):
        for mode in ("append", "overwrite"):
            assert "locked: expected a store that nobody uses" in refusal(df, tmp_path, mode, topic="T")
    (tmp_path / "abort").touch()
    for mode in ("append", "overwrite"):
        assert "the broker runs or did not stop cleanly" in refusal(df, tmp_path, mode, topic="T")
    (tmp_path / "abort").unlink()
    assert len(writing.assert_whole(tmp_path)) == 10


def test_retried_and_failed_tasks_leave_nothing_twice(spark: SparkSession, tmp_path: Path) -> None:
    """local[2] gives a task one chance only; so the write as a whole fails, and another one succeeds."""
    root = tmp_path / "store"
    save(spark.range(20).selectExpr("string(id) body"), root, topic="T", **SIZES)
    failing = spark.range(0, 4000, numPartitions=4).selectExpr("if(id = 3999, null, string(id)) body")
    assert "column 'body': expected a binary, found null" in refusal(failing, root, topic="T")
    assert len(writing.assert_whole(root)) == 20
    save(spark.range(20).selectExpr("string(id) body"), root, topic="T")
    assert len(writing.assert_whole(root)) == 40


def test_a_task_that_outlives_its_job_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """One task fails at once; the other has still to write when the job has been given up."""

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.column("id")[0].as_py() == 0:
                time.sleep(3)
            yield batch

    numbers = spark.range(0, 2, numPartitions=2).mapInArrow(wait, "id bigint")
    assert "found null" in refusal(numbers.selectExpr("if(id = 1, null, 'x') body"), tmp_path / "store", topic="T")
    time.sleep(4)
    assert not (tmp_path / "store").exists()


def test_rebuild(spark: SparkSession, tmp_path: Path) -> None:
    save(spark.range(100).selectExpr("string(id) body", "concat('k', id) keys"), tmp_path, topic="T", **SIZES)
    assert rmqstore_spark.rebuild(tmp_path) == 100
    assert len(writing.assert_whole(tmp_path)) == 100


def test_numbers_of_any_width_and_times_without_a_zone(spark: SparkSession, tmp_path: Path) -> None:
    """As createDataFrame makes them of Python's; a time without a zone is one in UTC, whatever the session's is."""
    rows = "'T' topic, 'x' body, id queueId, timestamp_ntz'2026-05-06 07:08:09' storeTimestamp"
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        save(spark.range(3).selectExpr(*rows.split(", ")), tmp_path / "store", **SIZES)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = rmqstore_spark.Store(tmp_path / "store").messages(["queueId", "storeTimestamp"]).read_all().to_pylist()
    assert [row["queueId"] for row in found] == [0, 1, 2]
    assert {row["storeTimestamp"].isoformat() for row in found} == {"2026-05-06T07:08:09+00:00"}
    far = spark.range(3_000_000_000, 3_000_000_001).selectExpr("'T' topic", "'x' body", "id queueId")
    expected = "column 'queueId': expected a value of type int32, found 3000000000; nothing was written"
    assert expected in refusal(far, tmp_path / "store")


def test_other_save_modes_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(1).selectExpr("'T' topic", "'x' body")
    for mode in ("error", "ignore", None):
        writer = df.write.format("rmqstore")
        with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
            (writer.mode(mode) if mode else writer).save(str(tmp_path / "store"))
    assert not (tmp_path / "store").exists()
