"""The README says what is: its tables are the code's, its example runs and prints what it shows.

`python tests/repo/test_readme.py` writes the tables anew.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.command import run

import rmqstore_spark
from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.options import OPTIONS, STREAM_OPTIONS, WRITE_OPTIONS, Option
from rmqstore_spark.store.storage import STORAGE_OPTIONS

README = Path(__file__).resolve().parents[2] / "README.md"


def options_table(options: dict[str, Option] = OPTIONS) -> str:
    rows = [f"| `{option.name}` | {option.default or ''} | {option.help} |" for option in options.values()]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])


def columns_table() -> str:
    by_name = [column.name for column in COLUMNS.values() if not column.default]
    rows = [
        f"| `{column.name}` | `{column.spark}` | {column.meaning}{' *' if column.name in by_name else ''} |"
        for column in COLUMNS.values()
    ]
    return "\n".join(["| column | type | what it is |", "|---|---|---|", *rows, "", "\\* only when asked for by name."])


def storage_table() -> str:
    rows = [
        f"| `{option.name}` | {', '.join(f'`{alias}`' for alias in option.aliases)} | {option.help} |"
        for option in STORAGE_OPTIONS.values()
    ]
    return "\n".join(["| option | also | meaning |", "|---|---|---|", *rows])


TABLES = {
    "storage-options": storage_table,
    "options": options_table,
    "stream-options": lambda: options_table(STREAM_OPTIONS),
    "write-options": lambda: options_table(WRITE_OPTIONS),
    "columns": columns_table,
}


def block(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name}: [^>]*-->\n)(.*?)(<!-- end -->)", re.DOTALL)


def filled(text: str, name: str, table: str) -> str:
    return block(name).sub(lambda found: f"{found[1]}{table}\n{found[3]}", text)


@pytest.mark.parametrize("name", TABLES)
def test_table_is_the_codes(name: str) -> None:
    found = block(name).search(README.read_text())
    assert found
    assert found[2] == TABLES[name]() + "\n"


@pytest.mark.spark
def test_example_prints_what_it_shows(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(README.parent)
    assert_prints_what_it_shows("df = ", {"spark": spark})


def test_example_without_spark_prints_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(README.parent)
    assert_prints_what_it_shows("store = ", {"rmqstore_spark": rmqstore_spark})


def test_command_prints_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(README.parent)
    shown = re.search(
        r"\nrmqstore (history .*)\n```\n<!-- output:[^>]*-->\n```\n(.*?)```", README.read_text(), re.DOTALL
    )
    assert shown
    ran = run(*shlex.split(shown[1]))
    assert (ran.code, ran.out.strip()) == (0, shown[2].strip())


def assert_prints_what_it_shows(begin: str, names: dict[str, object]) -> None:
    """Runs the one example that begins so and has an output."""
    pattern = rf"```python\n({begin}(?:(?!```).)*)```\n<!-- output:[^>]*-->\n```\n(.*?)```"
    example = re.search(pattern, README.read_text(), re.DOTALL)
    assert example
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(example[1], names)
    assert printed.getvalue().strip() == example[2].strip()


if __name__ == "__main__":
    text = README.read_text()
    for name, table in TABLES.items():
        text = filled(text, name, table())
    README.write_text(text)
