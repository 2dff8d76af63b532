"""Writing on a cluster of two hosts, where Spark tries tasks again and runs slow ones twice: neither leaves a double.

`local[2]` does neither. The cluster is Spark's own standalone one; its hosts are two addresses of this machine.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import spark_cluster, writing
from support.patience import HANG

from rmqstore_spark.store.format.sizes import Sizes

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]

SIZES = Sizes(segment=64 * 1024, queue_file=2000, slots=50, items=500)

JOB = """
import os, sys, time
from pathlib import Path

from pyspark.sql import SparkSession

import rmqstore_spark

master, store, notes = sys.argv[1], sys.argv[2], Path(sys.argv[3])
settings = {
    "spark.driver.memory": "1g",
    "spark.executor.memory": "500m",
    "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],
    "spark.ui.enabled": "false",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "200ms",
}
spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()
rmqstore_spark.register(spark)


def fail_or_wait(batches):
    from pyspark import TaskContext

    task = TaskContext.get()
    partition, attempt = task.partitionId(), task.attemptNumber()
    for batch in batches:
        yield batch
    if partition == 1 and attempt == 0:
        raise RuntimeError("this attempt fails, behind its last row")
    if partition == 2 and attempt == 0:
        (notes / "slow").touch()
        time.sleep(8)
    if partition == 2 and attempt == 1:
        while not (notes / "slow").exists():  # on a busy machine this attempt may be the first to begin
            time.sleep(0.1)
        (notes / "twice").touch()


names = spark.range(0, 4000, numPartitions=4).selectExpr("CAST(id AS STRING) AS keys")
rows = names.selectExpr("keys", "binary(keys) AS body")
rows = rows.mapInArrow(fail_or_wait, rows.schema)
options = dict(option.split("=") for option in sys.argv[4:])
rows.write.format("rmqstore").mode("append").options(topic="T", queues=2, **options).save(store)
spark.stop()
"""


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    with spark_cluster.master(tmp_path) as address:
        yield address


def test_tasks_that_run_twice(master: str, tmp_path: Path) -> None:
    store, notes = tmp_path / "store", tmp_path / "notes"
    notes.mkdir()
    options = [
        f"mappedFileSizeCommitLog={SIZES.segment}",
        f"mappedFileSizeConsumeQueue={SIZES.queue_file}",
        f"maxHashSlotNum={SIZES.slots}",
        f"maxIndexNum={SIZES.items}",
    ]
    command = [sys.executable, "-c", JOB, master, str(store), str(notes), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "this attempt fails" in done.stderr  # and was tried again
    assert sorted(path.name for path in notes.iterdir()) == ["slow", "twice"]
    rows = writing.assert_whole(store, SIZES)
    assert [row["body"] for row in rows] == [b"%d" % i for i in range(4000)]
