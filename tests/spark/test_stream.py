"""`spark.readStream.format("rmqstore")` gives each row once, over restarts and kills; what a batch reads
tests/read/test_follow.py has."""

from __future__ import annotations

import json
import math
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from oracle import reference
from oracle.dledger import DLedgerStoreBuilder
from oracle.stores import StoreBuilder
from oracle.tiered import GrowingQueue
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from support import flavours
from support.patience import HANG
from support.stream_copy import StreamCopy

from rmqstore_spark.spark import stream_reader

pytestmark = pytest.mark.spark
admits = pytest.mark.skipif(not stream_reader.GETS_START, reason="Spark before 4.2 has no admission control")
KILLS = int(os.environ.get("RMQ_KILLS", "5"))  # more in a long run
STORE_COLUMNS = "topic, queueId, queueOffset, commitLogOffset, body"


def add(store: StoreBuilder, count: int) -> None:
    for _ in range(count):
        i = len(store.messages)
        store.append(topic=f"T{i % 3}", queue_id=i % 2, body=b"%d " % i * (i % 40))
    store.flush()


def stream(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.readStream.format("rmqstore").options(**given).load(str(path))


def start(df: DataFrame, directory: Path, **trigger: Any) -> StreamingQuery:
    """Into Parquet, which has each batch once."""
    return (
        df.writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(**trigger)
        .start(str(directory / "out"))
    )


def rows(spark: SparkSession, directory: Path) -> list[tuple[Any, ...]]:
    found = spark.read.parquet(str(directory / "out")).selectExpr(*STORE_COLUMNS.split(", "))
    return sorted(tuple(row) for row in found.collect())


def expected(root: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in STORE_COLUMNS.split(", ")) for row in reference.read_store(root))


def reached(query: StreamingQuery, root: Path) -> int:
    """The physical offset up to which a query has read a store."""
    progress = query.lastProgress
    if progress is None:
        return 0
    offset = json.loads(str(progress["sources"][0]["endOffset"]).replace("'", '"').replace("None", "null"))
    return int(offset["stores"][str(root)]["commitLogOffset"])


def process_all(query: StreamingQuery, store: StoreBuilder) -> None:
    """All that is in the store now. One call is not enough: the answer of a look holds for 25 times as long as the look
    took, on a busy machine for more than one call."""
    deadline = time.monotonic() + HANG
    while reached(query, store.root) < store.end and time.monotonic() < deadline:
        query.processAllAvailable()


def test_runs_and_restarts(spark: SparkSession, tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store", segment_size=8192)
    add(store, 100)
    df = stream(spark, store.root, startingOffsets="earliest")
    assert df.isStreaming
    for _ in range(2):
        start(df, tmp_path, availableNow=True).awaitTermination()
        assert rows(spark, tmp_path) == expected(store.root)
        add(store, 50)
    query = start(df, tmp_path, processingTime="0 seconds")
    process_all(query, store)
    add(store, 20)
    process_all(query, store)
    query.stop()
    assert rows(spark, tmp_path) == expected(store.root)
    assert reached(query, store.root) == store.end


@pytest.mark.slow
@pytest.mark.long
def test_a_time_before_now_is_that_of_the_first_run(spark: SparkSession, tmp_path: Path) -> None:
    """`-1h` is resolved once: the query has the messages of that hour and all after, each once."""
    now = time.time_ns() // 10**6
    store = StoreBuilder(tmp_path / "store", segment_size=8192)
    for minutes in (300, 61, 59, 1):
        store.append(body=b"%d" % minutes, store_timestamp=now - minutes * 60_000)
    store.flush()
    df = stream(spark, store.root, startingTimestamp="-1h")
    start(df, tmp_path, availableNow=True).awaitTermination()
    assert [row[-1] for row in rows(spark, tmp_path)] == [b"59", b"1"]
    store.append(body=b"later", store_timestamp=now)
    store.flush()
    start(df, tmp_path, availableNow=True).awaitTermination()
    assert [row[-1] for row in rows(spark, tmp_path)] == [b"59", b"1", b"later"]


@pytest.mark.slow
@pytest.mark.long  # two queries; tests/store/test_dledger.py follows one without Spark
def test_a_log_of_dledger(spark: SparkSession, tmp_path: Path) -> None:
    """Entries are unwrapped batch by batch, over files; each message comes once."""
    store = DLedgerStoreBuilder(tmp_path / "store", 4096)
    df = stream(spark, store.root, startingOffsets="earliest", columns="commitLogOffset,body")
    for _ in range(2):
        for _ in range(40):
            store.append("A", b"%d" % len(store.messages))
        store.flush()
        start(df, tmp_path, availableNow=True).awaitTermination()
        found = spark.read.parquet(str(tmp_path / "out")).collect()
        assert sorted(map(tuple, found)) == [(m.position, b"%d" % n) for n, m in enumerate(store.messages)]
    assert store.messages[-1].position > 2 * 4096


@pytest.mark.slow
@pytest.mark.long  # two queries for each
@pytest.mark.parametrize(("name", "topic"), [("batchcq", "Bq"), ("dledger", "Dl")])
def test_stores_of_real_brokers(name: str, topic: str, spark: SparkSession, tmp_path: Path) -> None:
    """A log of DLedger, and batches: each message once, as a consumer got it, also over a restart and in micro-batches
    that are smaller than a batch."""
    root, seen = flavours.unpack(name, tmp_path)
    consumed = [event for event in seen if event["event"] == "consumed" and event["topic"] == topic]
    limits = {"maxOffsetsPerTrigger": 3} if stream_reader.GETS_START else {}
    df = stream(spark, root, startingOffsets="earliest", subscribe=topic, **limits)
    query = start(df, tmp_path, processingTime="0 seconds")
    while query.lastProgress is None:
        assert query.exception() is None
        time.sleep(0.05)
    query.stop()
    start(df, tmp_path, availableNow=True).awaitTermination()
    found = spark.read.parquet(str(tmp_path / "out")).select("queueId", "queueOffset", "msgId").collect()
    assert sorted(map(tuple, found)) == sorted((m["queueId"], m["queueOffset"], m["msgId"]) for m in consumed)


@pytest.mark.slow
@pytest.mark.long
def test_a_tiered_store(spark: SparkSession, tmp_path: Path) -> None:
    """Queries that are begun anew, as if they were killed in between."""
    queues = [GrowingQueue(tmp_path / "tier", "A", number) for number in range(2)]
    for number in range(3):
        for queue in queues:
            queue.bring(b"%d" % number)
            queue.roll()
        df = stream(spark, tmp_path / "tier", startingOffsets="earliest")
        start(df, tmp_path, availableNow=True).awaitTermination()
        queues.append(GrowingQueue(tmp_path / "tier", "A", 2 + number))
    found = spark.read.parquet(str(tmp_path / "out")).select("queueId", "queueOffset", "body").collect()
    assert sorted((row[0], row[1], bytes(row[2])) for row in found) == sorted(
        (queue.queue_id, offset, body) for queue in queues for offset, body in queue.bodies.items()
    )
    beside = stream(spark, tmp_path / "store", tiered=str(tmp_path / "tier"))
    with pytest.raises(PySparkException, match="option 'tiered' is not for streams"):
        start(beside, tmp_path / "beside", availableNow=True).awaitTermination()


@admits
def test_limits_and_columns(spark: SparkSession, tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store", segment_size=8192)
    add(store, 50)
    df = stream(
        spark, store.root, startingOffsets='{"T1": {"0": 3}}', maxOffsetsPerTrigger=7, columns="topic,queueOffset"
    )
    assert df.columns == ["topic", "queueOffset"]
    query = start(df, tmp_path, availableNow=True)
    query.awaitTermination()
    sizes = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert max(sizes) <= 7
    wanted = [m for m in store.messages if (m.topic, m.queue_id) != ("T1", 0) or m.queue_offset >= 3]
    assert sum(sizes) == len(wanted)
    add(store, 30)
    query = start(df, tmp_path, once=True)
    query.awaitTermination()
    assert [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]] == [30]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"endingOffsets": "latest"}, "option 'endingOffsets' is not for streams: a stream has no end; remove it"),
        ({"maxBytesPerTriger": "1m"}, "Did you mean 'maxBytesPerTrigger'"),
        ({"table": "topics"}, "option 'table': only messages can be read as a stream"),
    ],
)
def test_wrong_options(spark: SparkSession, tmp_path: Path, options: dict[str, str], match: str) -> None:
    store = StoreBuilder(tmp_path / "store")
    add(store, 1)
    with pytest.raises(PySparkException) as error:
        start(stream(spark, store.root, **options), tmp_path, availableNow=True).awaitTermination()
    assert match in str(error.value)
    assert "Traceback" not in str(error.value)


def test_options_of_a_stream_in_a_batch_read(spark: SparkSession, tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store")
    add(store, 1)
    with pytest.raises(PySparkException, match="option 'failOnDataLoss' is for streams"):
        spark.read.format("rmqstore").option("failOnDataLoss", "false").load(str(store.root)).collect()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kills", [2, pytest.param(KILLS, marks=pytest.mark.nightly)])
def test_killed_drivers(spark: SparkSession, tmp_path: Path, rng: random.Random, kills: int) -> None:
    """SIGKILL at random moments while the store grows: each message is there once. Every other driver has committed a
    batch by then, as otherwise a slow machine would kill all of them before."""
    store = StoreBuilder(tmp_path / "store", segment_size=1 << 16)
    add(store, 100)

    def grow(seconds: float, least_commits: float = math.inf) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and copy.commits() < least_commits:
            add(store, rng.randrange(1, 10))
            time.sleep(0.05)

    with StreamCopy(store.root, tmp_path) as copy:
        for number in range(kills):
            copy.start()
            if number % 2:
                before = copy.commits()
                grow(120, before + 1)
                assert copy.commits() > before
            grow(rng.uniform(0, 4))
            copy.check()
            copy.kill()
        copy.start()
        copy.finish()
    assert rows(spark, tmp_path) == expected(store.root)
