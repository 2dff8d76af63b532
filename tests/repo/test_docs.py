"""Every example in README and docs/ runs, in a directory with copies of sample_store, and prints what it shows.

Those with Spark are in tests/spark/test_docs.py. Nothing is left out.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from support.pages import PAGES, blocks, bucket, make_kitchen, pages_with, run_block

import rmqstore_spark
from rmqstore_spark import Store
from rmqstore_spark.cli.commands import Rmqstore

# What a block may be. Of one without a language nothing runs: layouts, output, and `make` or `pip` at a terminal.
KINDS = {"", "python", "python spark", "python needs-s3", "python spark needs-s3", "shell"}
NOT_RUN = re.compile(r"(make|pip) \w+")


@pytest.fixture
def kitchen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_kitchen(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_of_a_known_kind(page: str) -> None:
    found = blocks(page)
    assert PAGES[page].count("```") == 2 * sum(1 if block.output is None else 2 for block in found)
    assert {block.kind for block in found} <= KINDS
    for block in found:
        if not block.kind and "rmqstore " in block.text:
            assert all(NOT_RUN.match(line) for line in block.text.splitlines()), block.text


@pytest.mark.parametrize("page", pages_with("python"))
def test_without_spark(page: str, kitchen: Path) -> None:
    names: dict[str, object] = {}
    for block in blocks(page, "python"):
        run_block(block, names)
    if page == "cookbook.md":
        assert pq.read_table(kitchen / "plain.parquet").num_rows == 60
        hourly = pq.read_table(kitchen / "lake" / "hourly").to_pylist()
        assert sorted((row["number"], row["state"]) for row in hourly) == [(1, "paid"), (2, "shipped")]
        retried = Store("copy_of_sample_store").messages(["keys"], subscribe="Retried").read_all()
        assert [retried["keys"].to_pylist().count(key) for key in ("retried-0", "retried-3")] == [2, 2]
    if page == "writing.md":
        assert Store("arrow_store").topics(columns=["messages"]).to_pylist() == [{"messages": 6}]


@pytest.mark.parametrize("page", pages_with("shell"))
def test_at_a_terminal(page: str, kitchen: Path) -> None:
    for block in blocks(page, "shell"):
        for line in block.text.splitlines():
            words = shlex.split(line, comments=True)
            if not words:
                continue
            assert words[0] == "rmqstore"
            found = CliRunner().invoke(Rmqstore(), words[1:], standalone_mode=False)
            assert found.exception is None, (line, found.exception)
            assert (found.return_value or 0, "nothing found" in found.stderr) == (0, False), line
        if block.output is not None:
            assert found.stdout.strip() == block.output.strip()
    if page == "cookbook.md":
        assert pq.read_table(kitchen / "plain.parquet").num_rows == 60
        orders = map(json.loads, (kitchen / "orders.jsonl").read_text().splitlines())
        assert [order["body"]["state"] for order in orders] == ["paid", "shipped"]


def test_against_a_bucket(kitchen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pages_with("python needs-s3") == ["remote.md"]
    names: dict[str, object] = {"rmqstore_spark": rmqstore_spark}
    with bucket(kitchen) as server:
        for name, value in server.options.items():
            monkeypatch.setenv(name.upper(), value)
        for block in blocks("remote.md", "python needs-s3"):
            run_block(block, names)
        assert isinstance(names["store"], Store)
        assert names["store"].topics().num_rows == Store("sample_store").topics().num_rows
