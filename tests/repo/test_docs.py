"""Every example in README and docs/ runs, in a directory with copies of sample_store, and prints what it shows.

A block is Python, Python that has a session of Spark, or commands. Where `<!-- output -->` and a block follow, it
prints just that. Nothing is left out: what wants an S3 server gets one on loopback.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from support.s3_server import Server

import rmqstore_spark
from rmqstore_spark import Store, write_store
from rmqstore_spark.cli.commands import Rmqstore

ROOT = Path(__file__).resolve().parents[2]
PAGES = {path.name: path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}
# What a block may be. Of one without a language nothing runs: layouts, output, and `make` or `pip` at a terminal.
KINDS = {"", "python", "python spark", "python needs-s3", "python spark needs-s3", "shell"}
NOT_RUN = re.compile(r"(make|pip) \w+")


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    output: str | None


def blocks(page: str) -> list[Block]:
    pattern = r"^```([^\n]*)\n(.*?)^```$(?:\n<!-- output -->\n```\n(.*?)^```$)?"
    return [Block(*found.groups()) for found in re.finditer(pattern, page, re.DOTALL | re.MULTILINE)]


def pages_with(kind: str) -> list[str]:
    found = [name for name, text in PAGES.items() if any(block.kind == kind for block in blocks(text))]
    assert found
    return found


@pytest.fixture(autouse=True)
def kitchen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("sample_store", "copy_of_sample_store"):
        shutil.copytree(ROOT / "sample_store", tmp_path / name)
    write_store(tmp_path / "other_store", pa.table({"topic": ["Plain"] * 5, "body": ["x"] * 5}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def server(kitchen: Path) -> Iterator[Server]:
    (kitchen / "bucket").mkdir()
    shutil.copytree(ROOT / "sample_store", kitchen / "bucket" / "broker")
    with Server(kitchen / "bucket") as running:
        yield running


def ran(block: Block, names: dict[str, object], text: str | None = None) -> None:
    """Run a block of Python; it prints what the page shows, if that shows anything."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(block.text if text is None else text, names)
    if block.output is not None:
        assert printed.getvalue().strip() == block.output.strip()


def test_every_block_is_of_a_known_kind() -> None:
    for name, text in PAGES.items():
        assert text.count("```") == 2 * sum(2 if block.output is not None else 1 for block in blocks(text)), name
        for block in blocks(text):
            assert block.kind in KINDS, (name, block.kind)
            if not block.kind and "rmqstore " in block.text:
                assert all(NOT_RUN.match(line) for line in block.text.splitlines()), (name, block.text)


@pytest.mark.parametrize("page", pages_with("python"))
def test_without_spark(page: str, kitchen: Path) -> None:
    names: dict[str, object] = {}
    for block in blocks(PAGES[page]):
        if block.kind == "python":
            ran(block, names)
    if page == "cookbook.md":
        assert pq.read_table(kitchen / "plain.parquet").num_rows == 60
    if page == "writing.md":
        assert Store("arrow_store").topics(columns=["messages"]).to_pylist() == [{"messages": 3}]


@pytest.mark.parametrize("page", pages_with("shell"))
def test_at_a_terminal(page: str, kitchen: Path) -> None:
    for block in blocks(PAGES[page]):
        if block.kind != "shell":
            continue
        for line in block.text.splitlines():
            command, *arguments = shlex.split(line, comments=True)
            assert command == "rmqstore"
            found = CliRunner().invoke(Rmqstore(), arguments, standalone_mode=False)
            assert found.exception is None, (line, found.exception)
            assert (found.return_value or 0, "nothing found" in found.stderr) == (0, False), line
        if block.output is not None:
            assert found.stdout.strip() == block.output.strip()
    if page == "cookbook.md":
        assert pq.read_table(kitchen / "plain.parquet").num_rows == 60


def with_paths(text: str, kitchen: Path) -> str:
    """A block whose paths are whole: Spark's JVM has another current directory than this process."""
    return re.sub(r"([\"'])(\w+_store|lake/\w+)\1", rf"\1{kitchen}/\2\1", text)


@pytest.mark.spark
@pytest.mark.parametrize("page", pages_with("python spark"))
def test_with_spark(page: str, spark: SparkSession, kitchen: Path) -> None:
    names: dict[str, object] = {"spark": spark}
    for block in blocks(PAGES[page]):
        if block.kind == "python spark":
            ran(block, names, with_paths(block.text, kitchen))
    for store, count in WRITES.get(page, {}).items():
        assert Store(kitchen / store).messages(columns=["topic"]).read_all().num_rows == count, store
    if page == "cookbook.md":
        assert pq.read_table(kitchen / "lake" / "plain").num_rows == 60
        assert pq.read_table(kitchen / "lake" / "live").num_rows == Store("sample_store").messages().read_all().num_rows


# The stores that a page's blocks for Spark write, with the number of their messages.
WRITES = {
    "README.md": {"orders_store": 1},
    "cookbook.md": {"salvaged_store": 305, "merged_store": 65, "test_store": 100},
    "writing.md": {"new_store": 62, "streamed_store": 5},
}


def test_against_a_bucket(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.options.items():
        monkeypatch.setenv(name.upper(), value)
    found = [block for text in PAGES.values() for block in blocks(text) if block.kind == "python needs-s3"]
    assert len(found) == 1
    names: dict[str, object] = {"rmqstore_spark": rmqstore_spark}
    ran(found[0], names)
    assert isinstance(names["store"], Store)
    assert names["store"].topics().num_rows == Store("sample_store").topics().num_rows


@pytest.mark.spark
def test_against_a_bucket_with_spark(spark: SparkSession, server: Server) -> None:
    found = [block for text in PAGES.values() for block in blocks(text) if block.kind == "python spark needs-s3"]
    assert len(found) == 1
    configuration = spark._jsc.hadoopConfiguration()
    said = {
        "fs.s3a.endpoint": server.options["aws_endpoint_url"],
        "fs.s3a.access.key": server.options["aws_access_key_id"],
        "fs.s3a.secret.key": server.options["aws_secret_access_key"],
        "fs.s3a.endpoint.region": server.options["aws_region"],
        "fs.s3a.path.style.access": "true",
    }
    before = {name: configuration.get(name) for name in said}
    try:
        for name, value in said.items():
            configuration.set(name, value)
        names: dict[str, object] = {"spark": spark, "rmqstore_spark": rmqstore_spark}
        ran(found[0], names)
    finally:
        for name, value in before.items():
            configuration.unset(name) if value is None else configuration.set(name, value)
    assert "broker" in "".join(asked for _, asked, _ in server.asked)
