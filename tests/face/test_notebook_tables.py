"""Tables in a notebook (`%load_ext rmqstore_spark`) have few rows, are right for people, and are safe to look at."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from IPython.core.interactiveshell import InteractiveShell

from rmqstore_spark import Store
from rmqstore_spark.notebook.tables import ROWS, table_html

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "<script>alert(1)</script>\x1b[31m\n'\" onload=x"


class _Page(HTMLParser):
    """The tags of a page, and the texts of its cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.names: set[str] = set()
        self.cells: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "td":
            self.cells[-1] += data


def cells(column: pa.Array, name: str = "any") -> list[str]:
    return _Page(table_html(pa.table({name: column}))).cells


def test_values_are_for_people() -> None:
    assert cells(pa.array([1_048_576, None]), "storeSize") == ["1.0 MiB", ""]
    assert cells(pa.array([12_000_000]), "lagMillis") == ["3 h 20 min"]
    assert cells(pa.array([1_048_576]), "queueOffset") == ["1048576"]
    time = pa.array([datetime(2026, 11, 21, 0, 45, 55, 814_000, UTC), None], pa.timestamp("us", "UTC"))
    assert cells(time) == ["2026-11-21 00:45:55.814", ""]
    assert cells(pa.array([10**18], pa.timestamp("us", "UTC"))) == ["33658-09-27 01:46:40.000"]
    assert cells(pa.array(["é".encode(), b"\xff\x00", bytes(1000)], pa.binary())) == [
        "é",
        "ff 00 (2 bytes)",
        "\\x00" * 200 + "…",
    ]
    assert cells(pa.array([b"\xff" * 100], pa.binary())) == ["ff " * 49 + "ff … (100 bytes)"]
    maps = pa.array([[("a", "1"), ("b", None)], [(str(n), "x") for n in range(12)]], pa.map_(pa.string(), pa.string()))
    assert cells(maps)[0] == "a=1, b=None"
    assert cells(maps)[1].endswith("9=x, and 2 more")
    assert cells(pa.array([["x", "y"], []], pa.list_(pa.string()))) == ["x, y", ""]


def test_a_page_is_bounded() -> None:
    rows = pa.table({"body": ["x" * 10_000_000] * 3 + ["y"] * 100_000, "n": range(100_003)})
    page = table_html(rows)
    assert len(page) < 30_000
    assert len(_Page(page).cells) == 2 * ROWS
    assert f"the first {ROWS} of 100,003 rows, 2 columns" in page
    assert "1 row, 1 column<" in table_html(pa.table({"n": [1]}))
    assert table_html(pa.table({})).count("<td") == 0


def test_hostile_texts_stay_texts() -> None:
    history = Store(ROOT / "sample_store").history("retried-0")
    odd = pa.table({name: pa.array([HOSTILE] * 2) for name in (HOSTILE, "topic")})
    for name in ("topic", "event", "group", "details"):
        at = history.column_names.index(name)
        history = history.set_column(at, name, pa.array([HOSTILE] * history.num_rows))
    for page in (table_html(odd), table_html(history)):
        assert not {"script", "style", "img", "a", "link"} & set(_Page(page).tags)
        assert not any(name.startswith("on") or name == "href" for name in _Page(page).names)
        assert "\x1b" not in page
        assert "&lt;script&gt;" in page


def test_a_history_is_drawn() -> None:
    history = Store(ROOT / "sample_store").history("retried-0")
    page = table_html(history)
    (drawn,) = re.findall(r"<svg.*?</svg>", page)
    assert drawn.count("<circle") == history.num_rows
    heights = [int(y) for y in re.findall(r"cy='(\d+)'", drawn)]
    assert heights == sorted(set(heights))
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert texts[:3] == ["2026-11-21 00:45:55.814", "produced  Retried", "+ 2.3 s"]
    assert "<svg" not in table_html(history.slice(0, 0))
    assert "<svg" not in table_html(history.drop_columns(["event"]))


@pytest.mark.filterwarnings("ignore")  # of IPython's own
def test_the_extension() -> None:
    shell: Any = InteractiveShell()  # type: ignore[no-untyped-call]
    rows = pa.table({"bytes": [2048]})

    def shown() -> Any:
        return shell.display_formatter.format(rows)[0].get("text/html")

    assert shown() is None
    shell.run_line_magic("load_ext", "rmqstore_spark")
    assert "2.0 KiB" in str(shown())
    shell.run_line_magic("unload_ext", "rmqstore_spark")
    assert shown() is None
