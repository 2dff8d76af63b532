"""Sail: Spark Connect's protocol without a JVM. It hands Arrow schemas to data sources, and takes only PySpark 4.1."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from support.pages import blocks, make_kitchen
from support.patience import HANG

from rmqstore_spark import Store
from rmqstore_spark.columns import DEFAULT_COLUMNS, arrow_schema
from rmqstore_spark.errors import OptionError
from rmqstore_spark.spark.datasource import RmqStoreDataSource
from rmqstore_spark.spark.reader import PushdownReader, RmqStoreReader

ROOT = Path(__file__).resolve().parents[2]
IS_INSTALLED = importlib.util.find_spec("pysail") is not None and version("pyspark").startswith("4.1.")

PROGRAM = """
import sys
from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession
import rmqstore_spark
from rmqstore_spark import Store

path, new = sys.argv[1:]
server = SparkConnectServer("127.0.0.1", 0)
server.start(background=True)
spark = SparkSession.builder.remote("sc://%s:%s" % server.listening_address).getOrCreate()
rmqstore_spark.register(spark)
store = Store(path)

def load(**options):
    return spark.read.format("rmqstore").options(**options).load(path)

def rows(table):
    return sorted(map(str, table.to_pylist()))

everything = load()
assert rows(everything.toArrow().cast(store.messages().schema)) == rows(store.messages().read_all())
columns = ["keys", "queueId", "properties"]
plain = store.messages(columns, subscribe="Plain").read_all()
assert rows(everything.where("topic = 'Plain'").select(*columns).toArrow().cast(plain.schema)) == rows(plain)
assert rows(load(subscribe="Plain", columns=",".join(columns)).toArrow().cast(plain.schema)) == rows(plain)
both = everything.where("topic = 'Plain'").union(everything.where("topic = 'Ordered'")).groupBy("topic").count()
assert {(row.topic, row["count"]) for row in both.collect()} == {("Plain", 60), ("Ordered", 24)}
since = store.messages(["storeTimestamp"]).read_all()["storeTimestamp"][100].as_py()
late = sum(time >= since for time in store.messages(["storeTimestamp"]).read_all()["storeTimestamp"].to_pylist())
assert everything.where(f"storeTimestamp >= timestamp '{since:%Y-%m-%d %H:%M:%S.%f}'").count() == late
offsets = load(table="offsets", columns="group,topic,lag").toArrow()
assert rows(offsets) == rows(store.offsets(columns=["group", "topic", "lag"]))
story = spark.sql(f"select event from rmqstore_history('{path}', 'retried-0')").toArrow()
assert rows(story) == rows(store.history("retried-0").select(["event"]))

# coalesce: Sail 0.7 gives a sink's commit the results of more partitions than it says, after any filter.
kept = everything.where("topic = 'Plain'").select("topic", "keys", "body", "properties").coalesce(1)
kept.write.format("rmqstore").mode("append").save(new)
written = Store(new).messages(["keys", "body"]).read_all()
assert rows(written) == rows(store.messages(["keys", "body"], subscribe="Plain").read_all())
try:
    wrong = spark.createDataFrame([("x" * 300, b"y")], "topic string, body binary")
    wrong.write.format("rmqstore").mode("append").save(new)
except Exception as error:
    assert "column 'topic': expected 1 to 127 bytes, found 300; nothing was written" in str(error)
else:
    raise AssertionError
assert Store(new).messages(["keys"]).read_all().num_rows == 60
print("same rows")
"""


def run(program: str, home: Path) -> str:
    """What a program prints, given two directories: a store, and one that is not there."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, str(ROOT / "sample_store"), str(home / "new")]
    ran = subprocess.run(command, cwd=home, capture_output=True, text=True, env=environment, timeout=HANG, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.spark  # of those that `make test-spark41` runs
@pytest.mark.skipif(not IS_INSTALLED, reason="Sail is not installed beside PySpark 4.1, the newest it takes")
def test_reads_and_writes_with_sail(tmp_path: Path) -> None:
    assert run(PROGRAM, tmp_path).endswith("same rows\n")
    make_kitchen(tmp_path)
    (example,) = blocks("cookbook.md", "python sail")
    assert "|      0|   15|" in run(example.text, tmp_path)
    assert Store(tmp_path / "sail_store").messages(["keys"]).read_all().num_rows == 60


# ---- without Sail: what it is known to do differently


def source(**options: object) -> RmqStoreDataSource:
    return RmqStoreDataSource({name: str(value) for name, value in options.items()})


def test_an_arrow_schema_is_one(small_store: Path) -> None:
    """Also one that is not null where the columns are."""
    assert source(path=small_store).schema() == from_arrow_schema(arrow_schema(DEFAULT_COLUMNS))
    fields = [field.with_nullable(field.name != "topic") for field in arrow_schema(["topic", "properties"])]
    schema = pa.schema(fields)
    made = source(path=small_store).reader(schema)
    found = [batch for part in made.partitions() for batch in made.read(part)]
    assert {batch.schema for batch in found} == {schema}
    assert sum(batch.num_rows for batch in found) == 60
    table = source(path=small_store, table="queues").reader(pa.schema([("topic", pa.string())]))
    (batch,) = [batch for part in table.partitions() for batch in table.read(part)]
    assert batch.to_pylist() == [{"topic": "TopicA"}] * 2


@pytest.mark.parametrize(("pushdown", "takes"), [("auto", True), ("on", True), ("off", False)])
def test_filters_are_taken_from_sail(small_store: Path, pushdown: str, takes: bool) -> None:
    schema = arrow_schema(["topic"])
    made = source(path=small_store, pushdown=pushdown).reader(schema)
    assert isinstance(made, PushdownReader) == takes
    assert isinstance(made, RmqStoreReader)
    assert not isinstance(source(path=small_store, pushdown=pushdown).reader(from_arrow_schema(schema)), PushdownReader)


def test_wrong_arrow_schemas(small_store: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="column 'queueId' is of type int, not bigint"):
        source(path=small_store).reader(pa.schema([("queueId", pa.int64())]))
    with pytest.raises(OptionError, match="column 'topic': expected type string, found bigint"):
        source(path=tmp_path / "new").writer(pa.schema([("topic", pa.int64()), ("body", pa.binary())]), False)
