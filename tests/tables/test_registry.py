"""Every table has its name, columns with meanings, the options that it says, and the same rows from tasks that are read
elsewhere, of several stores and of a bucket."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle import stores
from support import reading
from support.s3_server import Server

from rmqstore_spark import OptionError, Store
from rmqstore_spark.query.options import MESSAGES, OPTIONS
from rmqstore_spark.tables.methods import TableMethods
from rmqstore_spark.tables.registry import TABLES, plan_table, read_part, read_table, schema_of, table

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_store"


@pytest.mark.parametrize("name", TABLES)
def test_a_table(name: str) -> None:
    found = table(name)
    assert found.name == name
    assert found.row
    assert "store" not in found.schema.names
    assert [column.name for column in found.columns if not column.meaning or not column.default] == []
    assert found.options <= set(OPTIONS)
    rows = read_table(reading.options_of(SAMPLE, table=name))
    rows.validate(full=True)
    assert rows.schema.equals(found.schema)


@pytest.mark.parametrize("name", TABLES)
def test_a_method_for_each(name: str) -> None:
    assert hasattr(TableMethods, name), "call `make reference`"
    found, told = table(name), " ".join(str(getattr(TableMethods, name).__doc__).split())
    assert found.row in told, "call `make reference`"
    assert found.note in told, "call `make reference`"
    for column in found.columns:
        assert f"{column.name} ({column.meaning})" in told, "call `make reference`"
    assert getattr(Store(SAMPLE), name)().equals(Store(SAMPLE).table(name))


def test_no_method_for_what_is_no_table() -> None:
    assert {name for name in vars(TableMethods) if name[0] != "_"} == {"table", *TABLES}, "call `make reference`"


def test_unknown_table() -> None:
    with pytest.raises(
        OptionError, match=r"unknown table 'ofsets'\. Did you mean 'offsets'\? The tables are messages, "
    ):
        read_table(reading.options_of(SAMPLE, table="ofsets"))
    assert MESSAGES not in TABLES


def test_columns_in_their_order_and_store_by_name() -> None:
    rows = read_table(reading.options_of(SAMPLE, table="queues", columns="store,queueId,topic")).to_pylist()
    assert list(rows[0]) == ["store", "queueId", "topic"]
    assert {row["store"] for row in rows} == {str(SAMPLE)}
    with pytest.raises(OptionError, match=r"unknown column 'topc'\. Did you mean 'topic'\? The columns are .*, store"):
        read_table(reading.options_of(SAMPLE, table="queues", columns="topc"))
    with pytest.raises(OptionError, match="column 'topic' is asked for twice"):
        read_table(reading.options_of(SAMPLE, table="queues", columns="topic,topic"))


@pytest.mark.parametrize(
    ("name", "option", "fit"),
    [
        ("groups", {"subscribe": "T"}, "none"),
        ("queues", {"tags": "*"}, "assign, subscribe, subscribePattern"),
        ("segments", {"mode": "PERMISSIVE"}, "endingTimestamp, startingTimestamp"),
        ("topics", {"assign": '{"T": [0]}'}, "subscribe, subscribePattern"),
    ],
)
def test_an_option_that_makes_no_sense(name: str, option: dict[str, str], fit: str) -> None:
    expected = (
        f"option '{next(iter(option))}' does not go with table '{name}', .*; those that select its rows are: {fit}"
    )
    with pytest.raises(OptionError, match=expected):
        read_table(reading.options_of(SAMPLE, table=name, **option))


def test_selections() -> None:
    def topics(name: str, **options: str) -> set[str]:
        return set(read_table(reading.options_of(SAMPLE, table=name, **options))["topic"].to_pylist())

    for name in ("topics", "queues", "offsets"):
        assert topics(name, subscribe="Plain,Popped") == {"Plain", "Popped"}
        assert topics(name, subscribePattern="P.*n") == {"Plain"}
    for name in ("queues", "offsets"):
        rows = read_table(reading.options_of(SAMPLE, table=name, assign='{"Plain": [1, 3]}'))
        assert set(zip(rows["topic"].to_pylist(), rows["queueId"].to_pylist(), strict=True)) == {
            ("Plain", 1),
            ("Plain", 3),
        }


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two stores in a bucket, which is a directory of this disk."""
    home = tmp_path_factory.mktemp("two")
    for name in ("a", "b"):
        shutil.copytree(SAMPLE, home / name)
        (home / name / "epochFileCheckpoint").write_text("1\n0\n1-0\n")
        mapping = {"bname": "here", "hostedQueues": {"5": [{"bname": "here", "queueId": 0, "logicOffset": 9}]}}
        whole = json.dumps({"topicQueueMappingInfoMap": {"Plain": mapping}})
        (home / name / "config" / "topicQueueMapping.json").write_text(whole)
    with Server(home) as server:
        yield server


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow, pytest.mark.long] if name == "check" else ()) for name in TABLES],
)
def test_tasks_of_several_stores_are_read_elsewhere(name: str, two: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickled, as Spark sends them, and by nothing but what they are and the options: on a disk, and in a bucket whose
    keys are options. Together they are what each store has by itself."""
    for variable in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(variable)
    found = table(name)
    given = {"table": name, "columns": ",".join([*found.schema.names, "store"])}
    if name == "traces":
        given["subscribe"] = "Plain"  # nobody traced there
    roots = [two.root / "a", two.root / "b"]
    expected = [_as_shown(row) for root in roots for row in read_table(reading.options_of(root, **given)).to_pylist()]
    assert {row["store"] for row in expected} == {str(root) for root in roots}
    for path, keys in ((two.root / "*", {}), ("s3://stores/*", two.options)):
        options = reading.options_of(path, **given, **keys)
        tasks = pickle.loads(pickle.dumps(plan_table(found, options)))
        schema = schema_of(found, options.columns)
        rows = [row for task in tasks for batch in read_part(found, task, options, schema) for row in batch.to_pylist()]
        assert [_as_shown(row, two.root) for row in rows] == expected, path


def _as_shown(row: dict[str, Any], bucket: Path | None = None) -> dict[str, Any]:
    """A row as a disk shows it, without what a bucket cannot know."""
    unknown = {"allocated", "sizeOnDisk", "locked"}
    return {
        column: value.replace("s3://stores", str(bucket)) if isinstance(value, str) else value
        for column, value in row.items()
        if column not in unknown
    }


def test_a_store_without_anything(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    for name in set(TABLES) - {"checkpoint"}:
        assert read_table(reading.options_of(tmp_path, table=name)).num_rows == 0, name


def test_other_tables_are_not_loaded(tmp_path: Path) -> None:
    stores.StoreBuilder(tmp_path).close()
    code = (
        "import sys\nfrom rmqstore_spark import Store\n"
        f"Store({str(tmp_path)!r}).checkpoint()\n"
        "print(sorted(name for name in sys.modules if name.startswith('rmqstore_spark.tables.')))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert told.strip() == str(
        [f"rmqstore_spark.tables.{n}" for n in ("checkpoint", "columns", "methods", "registry", "table")]
    )
