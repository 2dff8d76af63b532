"""What test_on_a_cluster.py runs where there is no network: a bucket with a store, and a cluster that has it nowhere
else.

    python -m interop.inside_cluster HOME     # the store is HOME/store; writes HOME/seen/found.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from oracle import golden
from support import alone, spark_cluster

from interop import buckets

# What a cluster's users do. It says what it read, and of each task that read where it ran.
JOB = """
import json, os, socket, sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import rmqstore_spark

master, out = sys.argv[1], Path(sys.argv[2])
given = json.load(sys.stdin)
settings = {
    "spark.driver.memory": "1g",
    "spark.executor.memory": "500m",
    "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],
    "spark.ui.enabled": "false",
    # Both are there before the first task is given to one of them.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    "spark.cores.max": "2",
}
spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()
rmqstore_spark.register(spark)
hidden = given["hidden"]


def where():
    seen = [path for path in hidden if os.path.exists(path) and os.listdir(path)]
    names = [name for _, name in socket.if_nameindex()]
    return {"disk": os.readlink("/proc/self/ns/mnt"), "seen": seen, "networks": names}


def with_place(batches):
    import pyarrow as pa

    place = json.dumps(where())
    for batch in batches:
        columns = [*batch.columns, pa.array([place] * len(batch))]
        yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, "place"])


def load(**options):
    return spark.read.format("rmqstore").options(**given["options"], **options).load(given["uri"])


rows = load(minPartitions=4).select(*given["columns"])
schema = StructType([*rows.schema.fields]).add("place", "string")
placed = rows.mapInArrow(with_place, schema).toArrow().to_pylist()
found = {
    "places": [json.loads(place) for place in {row.pop("place") for row in placed}],
    "driver": where(),
    "scan": placed,
    "key": load(key=given["key"]).select(*given["columns"]).toArrow().to_pylist(),
    "table": load(table="queues").select("topic", "queueId", "minOffset", "maxOffset").toArrow().to_pylist(),
}
(out / "found.json").write_text(json.dumps(found, default=bytes.hex))
spark.stop()
"""


def main(home: Path, key: str, columns: list[str]) -> None:
    root = home / "store"
    for name in ("bucket", "seen", "cluster"):
        (home / name).mkdir()
    # All that has the store, here and in the repository.
    hidden = [root, home / "bucket", golden.DIRECTORY]
    with (
        buckets.s3(home / "bucket") as bucket,
        spark_cluster.master(home / "cluster", lambda command: alone.blind(command, hidden)) as master,
    ):
        uri = bucket.upload(root, "broker")
        assert all(any(directory.iterdir()) for directory in hidden)  # for all others they are full
        given = {"uri": uri, "options": bucket.options, "key": key, "columns": columns}
        command = [sys.executable, "-c", JOB, master, str(home / "seen")]
        subprocess.run(
            alone.blind(command, hidden),
            input=json.dumps({**given, "hidden": [str(path) for path in hidden]}),
            text=True,
            check=True,
            cwd=home / "seen",
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
