"""`rmqstore_get` and `rmqstore_history`: Store.get and Store.history as table functions of SQL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import rmqstore_spark
from rmqstore_spark import NotAStoreError, OptionError, Store
from rmqstore_spark.spark.functions import GET_SCHEMA, HISTORY_SCHEMA, Get, History

SAMPLE = Path(__file__).resolve().parents[2] / "sample_store"


def rows(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.Table.from_batches(batches, schema).to_pylist()
    return found


def history(names: pa.Array | pa.RecordBatch, path: object = str(SAMPLE), **options: object) -> list[dict[str, Any]]:
    """The rows that Spark gets for these names; the other arguments have the same value in each row."""
    count = max(len(names) if isinstance(names, pa.Array) else names.num_rows, 1)
    others = {name: pa.array([value] * count) for name, value in options.items()}
    return rows(History().eval(pa.array([path] * count), names, **others), HISTORY_SCHEMA)


def told(name: str, path: Path = SAMPLE) -> list[dict[str, Any]]:
    return [{**row, "store": str(path), "asked": name} for row in Store(path).history(name).to_pylist()]


def test_history_is_that_of_a_store() -> None:
    assert history(pa.array(["retried-0"])) == told("retried-0")
    assert history(pa.array(["no-such"])) == history(pa.array([None], pa.string())) == []


def test_many_names_and_stores(tmp_path: Path) -> None:
    names = ["retried-0", "level-2"]
    wanted = [row for name in names for row in told(name)]
    assert history(pa.array([["retried-0", None, "level-2"]])) == wanted
    assert history(pa.record_batch({"key": names})) == wanted
    assert history(pa.record_batch({"key": pa.array([], pa.string())})) == []
    copy = Path(shutil.copytree(SAMPLE, tmp_path / "copy"))
    both = history(pa.array(["level-2"]), [str(SAMPLE), str(copy)])
    assert both == told("level-2") + told("level-2", copy)


def test_get_is_that_of_a_store() -> None:
    store = Store(SAMPLE)
    id = store.messages(["msgId"], key="retried-0").read_all()["msgId"].to_pylist()[0]
    found = rows(Get().eval(pa.array([str(SAMPLE)]), pa.array([id])), GET_SCHEMA)
    assert len(found) > 1
    assert found == [{**row, "store": str(SAMPLE), "asked": id} for row in store.get(id).to_pylist()]
    few = rows(Get().eval(pa.array([str(SAMPLE)]), pa.array([id]), subscribe=pa.array(["Retried"])), GET_SCHEMA)
    assert few == [row for row in found if row["topic"] == "Retried"] != found


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        (pa.array(["x"]), {"mod": "FAILFAST"}, "unknown option 'mod'. Did you mean 'mode'?"),
        (pa.array(["x"]), {"subscribe": "Plain"}, "option 'subscribe' is not for this call"),  # all topics are
        (pa.array(["x"]), {"path": None}, "path: expected a path, or a list of paths"),
        (pa.array(["x"]), {"AWS_Secret_Access_Key": "hidden"}, "set the environment variable of that name"),
        (pa.array([5]), {}, "name: expected a text, found another value"),
        (pa.array([""]), {}, "name: expected a text that is not empty"),
        (pa.record_batch({"k": ["x"], "l": [1]}), {}, "expected one column, of what is asked for, found k, l"),
    ],
    ids=str,
)
def test_wrong_arguments(names: pa.Array, options: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=said.replace("?", r"\?").replace("(", r"\(")) as error:
        history(names, **options)
    assert "hidden" not in str(error.value)


def test_a_table_is_no_path() -> None:
    with pytest.raises(OptionError, match="expected a value, found TABLE"):
        rows(History().eval(pa.record_batch({"p": ["x"]}), pa.array(["x"])), HISTORY_SCHEMA)
    with pytest.raises(NotAStoreError, match="no such directory"):
        history(pa.array(["x"]), "/no/such/store")


@pytest.mark.spark
def test_in_sql(spark: SparkSession) -> None:
    rmqstore_spark.register(spark)
    names = "SELECT * FROM VALUES ('retried-0'), ('level-2'), (NULL) AS failed(key)"
    asked = f"FROM rmqstore_history('{SAMPLE}', TABLE({names}))"
    wanted = sorted((name, row["event"], row["msgId"]) for name in ("retried-0", "level-2") for row in told(name))
    assert sorted(map(tuple, spark.sql(f"SELECT asked, event, msgId {asked}").collect())) == wanted
    named = f"id => '{wanted[0][2]}', subscribe => 'Delayed', path => array('{SAMPLE}')"
    (found,) = spark.sql(f"SELECT topic, properties, storeTimestamp FROM rmqstore_get({named})").collect()
    assert (found.topic, found.properties["KEYS"]) == ("Delayed", "level-2")
    with pytest.raises(Exception, match="Did you mean 'mode'") as error:
        spark.sql(f"SELECT * FROM rmqstore_history('{SAMPLE}', 'x', mod => 'FAILFAST')").collect()
    assert "Traceback" not in str(error.value)
