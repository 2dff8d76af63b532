"""`rmqstore sql`: all tables by name, in the formats of the other commands, and what is wrong in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.command import run

from rmqstore_spark import Store
from rmqstore_spark.columns import COLUMNS, DEFAULT_COLUMNS
from rmqstore_spark.tables.registry import TABLES

MAGIC = bytes.fromhex("daa320a7")
SAMPLE = Path(__file__).resolve().parents[2] / "sample_store"


def rows(query: str, *arguments: str, store: Path = SAMPLE) -> list[dict[str, object]]:
    ran = run("sql", str(store), query, "--format", "json", *arguments)
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def test_all_tables_by_name() -> None:
    counts = ", ".join(f'(select count(*) from "{name}") {name}_' for name in TABLES)
    (found,) = rows(f"select (select count(*) from messages) messages_, {counts}")
    store = Store(SAMPLE)
    assert found == {"messages_": 305} | {f"{name}_": store.table(name).num_rows for name in TABLES}


def test_no_progress_among_the_rows() -> None:
    """DuckDB shows it after two seconds, where it takes a process for an interactive one: __main__ has no file."""
    assert rows("select current_setting('enable_progress_bar') shown") == [{"shown": False}]


def test_rows_and_columns(tmp_path: Path) -> None:
    assert rows("select topic, count(*) n, sum(storeSize) s from messages where topic = 'Plain' group by all") == [
        {"topic": "Plain", "n": 60, "s": 28927}
    ]
    (row,) = rows("from messages limit 1")
    assert [name for name in row if name in COLUMNS] == DEFAULT_COLUMNS
    assert rows("select distinct store from messages where realTopic = 'Plain'") == [{"store": str(SAMPLE)}]
    assert rows("select m.queueId q, lag from messages m join offsets o using (topic, queueId) limit 0") == []
    target = tmp_path / "out.parquet"
    assert run("sql", str(SAMPLE), "select * from messages", "-o", str(target)).code == 0
    assert pq.read_table(target).equals(Store(SAMPLE).messages().read_all())


@pytest.mark.parametrize("more", [(), ("--format", "json"), ("--limit", "0")])
def test_no_rows(more: tuple[str, ...]) -> None:
    ran = run("sql", str(SAMPLE), "from topics where topic = 'Nowhere'", *more)
    assert (ran.code, ran.out, ran.err) == (0, "", f"nothing found in {SAMPLE}: the query has no rows\n")


def test_types_that_formats_lack() -> None:
    query = (
        "select 1.25 a, 7::hugeint b, date '2026-01-02' c, [1, 2] d, null e, {'x': 1} f, "
        "timestamp_ns '2026-01-02 03:04:05' g, max(storeTimestamp) h from messages"
    )
    (row,) = rows(query)
    newest = max(Store(SAMPLE).messages("storeTimestamp").read_all()["storeTimestamp"].to_pylist())
    assert row == {
        "a": 1.25,
        "b": 7,
        "c": "2026-01-02",
        "d": "[1, 2]",
        "e": None,
        "f": "{'x': 1}",
        "g": "2026-01-02 03:04:05",
        "h": newest.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z",
    }


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("select x from topic", "unknown table 'topic'. Did you mean 'topics'? The tables are messages, topics"),
        ("select x from history", "unknown table 'history'. The tables are messages, topics"),
        ("select x from pg_catalog.messages", "Table with name messages does not exist"),
        ("select topik from topics", "topik"),
        ("selec 1", 'syntax error at or near "selec"'),
        ("select * from check", 'check is written "check", in quotes'),
        ("select group, lag from offsets", 'group is written "group", in quotes'),
        ("select lag from offsets where GROUP = 'x' group by lag", 'GROUP is written "GROUP", in quotes'),
        ("select topic, order from topics", 'order is written "order", in quotes'),
        ("select 1; select 2", "expected one query, such as 'select count(*) from messages', found"),
        ("copy messages to '/tmp/none.parquet'", "expected one query"),
        ("", "expected one query"),
        ("select topic, topic from queues", "two columns of the query have the name 'topic'"),
        ("select sum(9223372036854775807) from messages", "range"),
    ],
)
def test_wrong_queries(query: str, told: str) -> None:
    ran = run("sql", str(SAMPLE), query, "--format", "json")
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    "query", ["select x,, y from topics group by 1", "selec 'check' as \"group\"", "selec o.group"]
)
def test_a_word_of_sql_is_blamed_only_as_a_name(query: str) -> None:
    assert "in quotes" not in run("sql", str(SAMPLE), query).err


def test_damage(tmp_path: Path) -> None:
    """For programs it is an error with its place; people get the rest, and are told."""
    store = shutil.copytree(SAMPLE, tmp_path / "store")
    path = next((store / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[data.index(MAGIC, 5000)] ^= 0xFF
    path.write_bytes(data)
    query = "select count(keys) n from messages"
    ran = run("sql", str(store), query, "--format", "json")
    assert (ran.code, ran.out) == (1, "")
    assert str(path) in ran.err
    assert "DuckDB" not in ran.err
    assert len(ran.err.splitlines()) == 1
    assert rows(query, "--mode", "DROPMALFORMED", store=store) != []
    ran = run("sql", str(store), query)
    assert ran.code == 3
    assert "what is damaged was left out" in ran.err
