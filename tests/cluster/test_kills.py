"""Each row comes exactly once, and is written exactly once, though executors, their Python and whole workers die in the
middle of a job, executors come and go, and memory is short."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support import replacing
from support.machines import Machines
from support.patience import HANG
from support.spark_cluster import HOSTS, Cluster, children
from support.spark_driver import Driver, JobFailedError

from rmqstore_spark import Store, write_store

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

COUNT = 3000


@pytest.fixture(scope="module")
def store(machines: Machines) -> Path:
    return replacing.built(machines.home / "shared" / "larger", COUNT)


@pytest.fixture(scope="module")
def driver(machines: Machines) -> Iterator[Driver]:
    with machines.driver({"spark.task.maxFailures": "8"}) as found:
        yield found


# ---- what runs meanwhile: `notes` is a directory in which tasks say that they have begun, and 8 of them take a while


def slowly(notes: str) -> Callable[[Any], Iterator[Any]]:
    def slow(batches: Any) -> Iterator[Any]:
        import time
        from pathlib import Path

        yield from batches
        Path(notes, f"{time.time_ns()}").touch()
        time.sleep(0.6)

    return slow


def loaded(spark: Any, path: str, notes: str) -> Any:
    rows = spark.read.format("rmqstore").options(columns="keys", minPartitions=8).load(path)
    return rows.mapInArrow(slowly(notes), rows.schema)


def read(spark: Any, path: str, notes: str) -> list[str]:
    return [row[0] for row in loaded(spark, path, notes).collect()]


def shuffle(spark: Any, path: str, notes: str) -> list[str]:
    rows = spark.read.format("rmqstore").options(columns="keys", minPartitions=8).load(path).repartition(8, "keys")
    return [row[0] for row in rows.mapInArrow(slowly(notes), rows.schema).collect()]


def write(spark: Any, path: str, notes: str) -> list[str]:
    rows = loaded(spark, path, notes).selectExpr("keys", "'T' AS topic", "CAST(keys AS BINARY) AS body")
    rows.write.format("rmqstore").mode("append").save(f"{notes}-store")
    return [row[0] for row in spark.read.format("rmqstore").load(f"{notes}-store").select("keys").collect()]


def stream(spark: Any, path: str, notes: str) -> list[str]:
    options = {"startingOffsets": "earliest", "columns": "keys", "minPartitions": "4"}
    if spark.version >= "4.2":
        options["maxOffsetsPerTrigger"] = "1000"
    rows = spark.readStream.format("rmqstore").options(**options).load(path)
    rows = rows.mapInArrow(slowly(notes), rows.schema)
    rows = rows.selectExpr("keys", "'T' AS topic", "CAST(keys AS BINARY) AS body")
    query = (
        rows.writeStream.format("rmqstore")
        .option("checkpointLocation", f"{notes}-checkpoint")
        .trigger(availableNow=True)
        .start(f"{notes}-store")
    )
    assert query.awaitTermination(3000)
    return [row[0] for row in spark.read.format("rmqstore").load(f"{notes}-store").select("keys").collect()]


# ---- what is killed


def with_executor(cluster: Cluster) -> str:
    """A host that has one: after a kill both may be on one host."""
    return next(host for host in reversed(HOSTS) if cluster.executors(host))


def an_executor(cluster: Cluster) -> None:
    os.kill(cluster.executors(with_executor(cluster))[-1], signal.SIGKILL)


def its_python(cluster: Cluster) -> None:
    """The workers that tasks run in, and what starts them."""
    daemons = children(cluster.executors(with_executor(cluster))[-1])
    for process in [worker for daemon in daemons for worker in children(daemon)] + daemons:
        os.kill(process, signal.SIGKILL)


def a_worker(cluster: Cluster) -> None:
    """With its executors, as of a machine that is switched off; it comes again."""
    host = with_executor(cluster)
    worker = cluster.workers[host]
    for process in [worker.pid, *cluster.executors(host)]:
        os.kill(process, signal.SIGKILL)
    worker.wait()
    cluster.start_worker(host)


def is_at_work(driver: Driver, job: Callable[..., Any], store: Path, notes: Path) -> bool:
    """Start a job, and wait until two of its tasks have begun. False: Spark has given up waiting for a new Python, as
    it does after ten seconds, on however busy a machine."""
    driver.start(job, str(store), str(notes))
    since = time.monotonic()
    while len(list(notes.iterdir())) < 2:
        assert time.monotonic() < since + HANG
        if driver.has_answered:
            with pytest.raises(JobFailedError, match="Python worker failed to connect back"):
                driver.result()
            return False
        time.sleep(0.02)
    return True


# Each kill, and each job but the stream, whose drivers tests/spark/test_stream.py kills; all pairs at night.
PAIRS = [(read, an_executor), (shuffle, a_worker), (write, its_python)]


@pytest.mark.parametrize(
    ("job", "kill"),
    [
        pytest.param(job, kill, marks=() if (job, kill) in PAIRS else pytest.mark.nightly)
        for job in (read, shuffle, write, stream)
        for kill in (an_executor, its_python, a_worker)
    ],
)
def test_a_kill(
    machines: Machines, driver: Driver, store: Path, job: Callable[..., Any], kill: Callable[[Cluster], None]
) -> None:
    machines.cluster.wait_for_executors(2)
    home = machines.home / "shared"
    while not is_at_work(driver, job, store, Path(tempfile.mkdtemp(prefix=f"{job.__name__}-", dir=home))):
        pass
    kill(machines.cluster)
    keys = driver.result()
    assert len(keys) == COUNT
    assert sorted(keys) == sorted(f"k{number}" for number in range(COUNT))


# ---- what Spark does by itself


@pytest.mark.nightly
def test_dynamic_allocation(machines: Machines, store: Path) -> None:
    """Executors that have nothing to do go away, and others come."""
    settings = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
        "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
        "spark.scheduler.minRegisteredResourcesRatio": "0",
    }
    cluster = machines.cluster
    before = {executor for host in HOSTS for executor in cluster.executors(host)}  # of other drivers
    with machines.driver(settings) as driver:
        for job in (read, write):
            notes = machines.home / "shared" / f"{job.__name__}-dynamic"
            notes.mkdir()
            assert sorted(driver(job, str(store), str(notes))) == sorted(f"k{number}" for number in range(COUNT))
            since = time.monotonic()
            while any(set(cluster.executors(host)) - before for host in HOSTS):
                assert time.monotonic() < since + HANG
                time.sleep(0.1)


def body_bytes(spark: Any, path: str) -> int:
    rows = spark.read.format("rmqstore").load(path)
    return int(rows.selectExpr("sum(length(body))").first()[0])


def copy(spark: Any, path: str, into: str) -> None:
    spark.read.format("rmqstore").load(path).write.format("rmqstore").mode("append").save(into)


@pytest.mark.nightly
@pytest.mark.parametrize(("memory", "is_written"), [("512m", False), ("1g", True)])
def test_little_memory(machines: Machines, tmp_path: Path, memory: str, is_written: bool) -> None:
    """Bodies of 4 MB, as large as a broker takes. Python's modules take 380 MB of what it may have."""
    bodies = [bytes([number]) * (4_000_000 + number) for number in range(40)]
    path, into = tmp_path / "large", tmp_path / "copy"
    write_store(path, pa.table({"topic": ["T"] * len(bodies), "body": bodies}), mappedFileSizeCommitLog=64 << 20)
    settings = {"spark.executor.pyspark.memory": memory, "spark.sql.execution.arrow.maxRecordsPerBatch": "4"}
    with machines.driver(settings) as driver:
        if not is_written:
            assert driver(body_bytes, str(path)) == sum(map(len, bodies))
            return
        driver(copy, str(path), str(into))
    found = Store(into).messages(["body"]).read_all()["body"].to_pylist()
    assert sorted(found) == sorted(bodies)
