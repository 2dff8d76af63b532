"""The data source works under Spark Connect, where the session lives in another process than the program."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.patience import HANG

from rmqstore_spark import Store

SAMPLE = Path(__file__).resolve().parents[2] / "sample_store"
pytestmark = pytest.mark.spark

# A process of its own: a program has either a classic session or a Connect one.
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession

store, absent, sample = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
result = {"session": type(spark).__module__}

result["autoloaded"] = spark.read.format("rmqstore").load(store).count()
narrow = spark.read.format("rmqstore").schema("queueOffset bigint, topic string").load(store)
result["columns"] = narrow.columns
result["rows"] = sorted(map(list, narrow.collect()))
try:
    spark.read.format("rmqstore").load(absent).count()
except Exception as error:
    result["error"] = str(error)

rows = spark.sql("select 'T' topic, cast('x' as binary) body")
relative = {
    "load": lambda: spark.read.format("rmqstore").load("some/store").count(),
    "file": lambda: spark.read.format("rmqstore").option("storePathCommitLog", "log").load(store).count(),
    "save": lambda: rows.write.format("rmqstore").mode("append").save("some/store"),
    "stream": lambda: spark.readStream.format("rmqstore").load("some/store").schema,
}
result["relative"] = {}
for name, call in relative.items():
    try:
        call()
    except Exception as error:
        result["relative"][name] = str(error)

import rmqstore_spark
rmqstore_spark.register(spark)
result["registered"] = spark.read.format("rmqstore").load(store).count()

names = "TABLE(SELECT * FROM VALUES ('retried-0'), ('level-2') AS failed(key))"
history = spark.sql(f"SELECT asked, event, msgId FROM rmqstore_history('{sample}', {names})")
result["history"] = sorted(map(list, history.collect()))
got = spark.sql(f"SELECT topic, queueOffset FROM rmqstore_get('{sample}', '{result['history'][0][2]}')")
result["got"] = sorted(map(list, got.collect()))
try:
    spark.sql("SELECT * FROM rmqstore_history('some/store', 'x')").collect()
except Exception as error:
    result["relative"]["function"] = str(error)

spark.stop()
print("RESULT", json.dumps(result))
"""


@pytest.fixture(scope="session")
def connect(tmp_path_factory: pytest.TempPathFactory, small_store: Path) -> dict[str, Any]:
    """What PROGRAM saw. It runs in an empty directory, so that the package can only be found where it is installed."""
    cwd = tmp_path_factory.mktemp("connect")
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, small_store, cwd / "absent", SAMPLE],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    last = ran.stdout.splitlines()[-1]
    assert last.startswith("RESULT "), ran.stdout
    result: dict[str, Any] = json.loads(last.removeprefix("RESULT "))
    return result


def test_the_session_is_a_connect_session(connect: dict[str, Any]) -> None:
    assert connect["session"].startswith("pyspark.sql.connect")


def test_reads_without_and_with_register(connect: dict[str, Any]) -> None:
    assert connect["autoloaded"] == 60
    assert connect["registered"] == 60


def test_history_and_get_in_sql(connect: dict[str, Any]) -> None:
    store, names = Store(SAMPLE), ("retried-0", "level-2")
    told = [[name, row["event"], row["msgId"]] for name in names for row in store.history(name).to_pylist()]
    assert connect["history"] == sorted(told)
    rows = store.get(connect["history"][0][2]).to_pylist()
    assert connect["got"] == sorted([row["topic"], row["queueOffset"]] for row in rows) != []


def test_projection_by_schema(connect: dict[str, Any]) -> None:
    assert connect["columns"] == ["queueOffset", "topic"]
    assert connect["rows"] == sorted([offset, "TopicA"] for offset in range(30) for _queue in range(2))


def test_a_bad_path_gives_one_line_of_ours(connect: dict[str, Any]) -> None:
    # Spark puts its own words before ours, and after them its SQLSTATE and the JVM's stack.
    python_part = connect["error"].split("JVM stacktrace:")[0]
    (line,) = [line for line in python_part.splitlines() if "absent" in line]
    assert re.search(r"\b\w+Error: .*absent", line)
    assert "Traceback" not in python_part
    assert ".py" not in python_part


def test_relative_paths_are_refused(connect: dict[str, Any]) -> None:
    """The server's workers run in a directory of the session's, which is deleted with it: so would be what is saved."""
    assert list(connect["relative"]) == ["load", "file", "save", "stream", "function"]
    for name, error in connect["relative"].items():
        assert "a relative path: expected an absolute one" in error, name
