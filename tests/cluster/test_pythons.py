"""Each set-up of docs/cluster.md works, and each wrong one fails with the error that is named there: a wheel, an
archive, PYSPARK_DRIVER_PYTHON, --py-files, Spark Connect, and the lines in the driver's log."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
import pytest
from support import installed, replacing
from support.machines import Machines
from support.patience import HANG
from support.spark_driver import Driver, JobFailedError

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]


class Pythons(NamedTuple):
    """Attributes:
    bare: one without the package, as all machines have it.
    archive: the one with the package, for `spark.archives`.
    """

    bare: Path
    archive: Path


@pytest.fixture(scope="module")
def pythons(machines: Machines) -> Pythons:
    return Pythons(installed.environment(machines.home / "bare"), installed.archived(machines.python, machines.home))


@pytest.fixture(scope="module")
def store(machines: Machines) -> Path:
    """On a network disk."""
    return replacing.built(machines.home / "shared" / "store")


def count(spark: Any, path: str, is_registered: bool = False) -> int:
    if is_registered:
        import rmqstore_spark

        rmqstore_spark.register(spark)
    return int(spark.read.format("rmqstore").option("minPartitions", 4).load(path).count())


def packages(spark: Any) -> set[str]:
    """Where the executors have the package."""

    def found(batches: Any) -> Iterator[Any]:
        import pyarrow as pa

        import rmqstore_spark

        for batch in batches:
            yield pa.RecordBatch.from_arrays([pa.array([rmqstore_spark.__file__] * len(batch))], names=["package"])

    return {row[0] for row in spark.range(4, numPartitions=4).mapInArrow(found, "package string").collect()}


def write_and_read(spark: Any, path: str) -> int:
    rows = spark.range(100).selectExpr("'T' AS topic", "BINARY(STRING(id)) AS body")
    rows.write.format("rmqstore").mode("append").save(path)
    return count(spark, path)


def stream(spark: Any, path: str, into: str) -> int:
    """A stream of one store into another one, in two runs."""
    for _ in range(2):
        rows = spark.readStream.format("rmqstore").options(startingOffsets="earliest", subscribe="T0,T1").load(path)
        written = rows.writeStream.format("rmqstore").option("checkpointLocation", f"{into}-checkpoint")
        query = written.trigger(availableNow=True).start(into)
        assert query.awaitTermination(600)
    return count(spark, into)


def table(spark: Any, path: str) -> int:
    return int(spark.read.format("rmqstore").option("table", "queues").load(path).count())


def test_the_drivers_python_is_nowhere_else(machines: Machines, store: Path) -> None:
    """It runs in the tasks, too, where Spark has found the format by itself."""
    python = installed.environment(machines.stores / "own", is_copied=True)
    installed.environment(machines.disks["127.0.0.1"] / "own")
    installed.environment(machines.disks["127.0.0.2"] / "own")
    environment = {"PYSPARK_DRIVER_PYTHON": str(python), "PYSPARK_PYTHON": str(machines.python)}
    with machines.driver(environment=environment, python=python) as driver:
        with pytest.raises(JobFailedError, match="ModuleNotFoundError: No module named 'rmqstore_spark'"):
            driver(count, str(store))
        assert driver(count, str(store), is_registered=True) == 600
        assert driver(packages) == {str(next(machines.python.parents[1].rglob("rmqstore_spark/__init__.py")))}


def unpacked(archive: Path) -> Callable[[Path], None]:
    """The archive beside the driver, as docs/cluster.md has it; executors unpack it themselves."""

    def unpack(home: Path) -> None:
        with tarfile.open(archive) as tar:
            tar.extractall(home / "environment", filter="tar")

    return unpack


@pytest.mark.nightly
def test_an_archive(machines: Machines, pythons: Pythons, store: Path) -> None:
    """With a relative PYSPARK_PYTHON. What goes quickly is not told in the driver's log."""
    settings = {"spark.archives": f"{pythons.archive}#environment"}
    environment = {"PYSPARK_PYTHON": "./environment/bin/python"}
    with machines.driver(settings, environment, prepare=unpacked(pythons.archive)) as driver:
        read_and_write(driver, machines, store, "by_archive")
        unpacked_there = rf"{machines.home}/127\.0\.0\.[12]/app-.*/environment/lib/.*"
        assert all(re.fullmatch(unpacked_there, package) for package in driver(packages))
        said = driver.said()
    assert [line for line in told_lines(machines, store) if re.search(line, said)] == []


@pytest.mark.nightly
def test_the_drivers_python_has_no_package(machines: Machines, pythons: Pythons, store: Path) -> None:
    """Spark does not find the format then: the driver's program alone has PYSPARK_PYTHON's package, here an
    archive's."""
    settings = {"spark.archives": f"{pythons.archive}#environment"}
    environment = {"PYSPARK_PYTHON": "./environment/bin/python", "PYSPARK_DRIVER_PYTHON": str(pythons.bare)}
    with machines.driver(settings, environment, prepare=unpacked(pythons.archive)) as driver:
        with pytest.raises(JobFailedError, match="DATA_SOURCE_NOT_FOUND"):
            driver(count, str(store))
        assert driver(count, str(store), is_registered=True) == 600


def read_and_write(driver: Driver, machines: Machines, store: Path, name: str) -> None:
    """A read, a table, a write and a stream."""
    shared = machines.home / "shared"
    assert driver(count, str(store)) == 600
    assert driver(table, str(store)) == 6
    assert driver(write_and_read, str(shared / name)) == 100
    assert driver(stream, str(store), str(shared / f"{name}_stream")) == 400


def told_lines(machines: Machines, store: Path) -> list[str]:
    """Patterns of what the log says of each of these where it says anything."""
    return [
        rf"planning a read: \d+ tasks?, {store} by scan: about .* of .*, in ",
        rf"planning a read of table queues: 1 task, {store}, in ",
        rf"planning a batch: \d+ tasks?, {store} to commitLogOffset \d+: .* of the log, in ",
        rf"committing to {machines.home}/shared/\w+ 100 messages of [\d,]+ bytes: 100 messages written, in ",
        rf"batch 0: committing to {machines.home}/shared/\w+ 400 messages of [\d,]+ bytes: 400 messages written, in ",
    ]


JOB = """
import sys
import rmqstore_spark
from pyspark.sql import SparkSession

print(rmqstore_spark.explain(sys.argv[1]))
print("COUNT", SparkSession.builder.getOrCreate().read.format("rmqstore").load(sys.argv[1]).count())
"""


@pytest.mark.nightly
def test_py_files(machines: Machines, wheel: Path, store: Path) -> None:
    """A wheel that is only put on the path goes before what is installed, and a program that imports it stops."""
    (machines.home / "job.py").write_text(JOB)
    environment = {**os.environ, "PYSPARK_PYTHON": str(machines.python)}
    del environment["PYSPARK_DRIVER_PYTHON"]
    given = ["--master", machines.cluster.address, "--executor-memory", "512m", "--total-executor-cores", "2"]

    def submitted(*more: str) -> str:
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), *given, *more, "job.py", str(store)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=machines.home, timeout=HANG, check=False
        )
        return done.stdout + done.stderr

    assert "COUNT 600\n" in submitted()
    said = submitted("--py-files", str(wheel))
    assert "COUNT" not in said
    assert "Python cannot load a compiled module from an archive" in said


CONNECT = {"spark.api.mode": "connect"}


def test_connect(machines: Machines, store: Path) -> None:
    """With an absolute PYSPARK_PYTHON and absolute paths: read, write, stream, tables. Relative ones are refused."""
    with machines.driver(CONNECT) as driver:
        assert driver(lambda spark: type(spark).__module__.startswith("pyspark.sql.connect"))
        read_and_write(driver, machines, store, "by_connect")
        calls: list[Callable[..., Any]] = [count, table, write_and_read]
        for call in calls:
            with pytest.raises(JobFailedError, match="a relative path: expected an absolute one"):
                driver(call, "some/store")


@pytest.mark.nightly
def test_connect_with_a_relative_python(machines: Machines, pythons: Pythons, store: Path) -> None:
    """Each session has a directory of its own, in which it is not."""
    settings = {**CONNECT, "spark.archives": f"{pythons.archive}#environment"}
    with (
        machines.driver(settings, {"PYSPARK_PYTHON": "./environment/bin/python"}) as driver,
        pytest.raises(JobFailedError, match=r"No such file or directory|Cannot run program|NOT_FOUND"),
    ):
        driver(count, str(store))


@pytest.mark.nightly
def test_the_log_tells_of_plans_and_commits(machines: Machines, store: Path) -> None:
    """With the sitecustomize.py of docs/cluster.md; test_an_archive() does the same without it."""
    python = installed.environment(machines.home / "telling", is_copied=True)
    (site,) = python.parents[1].glob("lib/*/site-packages")
    (site / "sitecustomize.py").write_text("import logging; logging.basicConfig(level=logging.INFO)\n")
    with machines.driver(python=python) as driver:
        read_and_write(driver, machines, store, "told")
        said = driver.said()
    assert [line for line in told_lines(machines, store) if not re.search(line, said)] == []
