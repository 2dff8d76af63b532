"""The examples with Spark in README and docs/ run, and print what they show. tests/repo/test_docs.py has the others."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.pages import blocks, bucket, make_kitchen, pages_with, run_block

import rmqstore_spark
from rmqstore_spark import Store

pytestmark = pytest.mark.spark

# The stores that a page's blocks write, with the number of their messages.
WRITES = {
    "cookbook.md": {"salvaged_store": 305, "merged_store": 65, "test_store": 100, "copy_of_sample_store": 307},
    "writing.md": {"new_store": 62, "streamed_store": 5},
}


@pytest.fixture(autouse=True)
def kitchen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_kitchen(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def with_paths(text: str, kitchen: Path) -> str:
    """A block whose paths are whole: Spark's JVM has another current directory than this process."""
    return re.sub(r"([\"'])(\w+_store|lake/\w+)\1", rf"\1{kitchen}/\2\1", text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=() if page == "README.md" else pytest.mark.long) for page in pages_with("python spark")],
)
def test_every_example_runs(page: str, spark: SparkSession, kitchen: Path) -> None:
    names: dict[str, object] = {"spark": spark, "rmqstore_spark": rmqstore_spark}
    for block in blocks(page, "python spark"):
        run_block(replace(block, text=with_paths(block.text, kitchen)), names)
    for store, count in WRITES.get(page, {}).items():
        assert Store(kitchen / store).messages(columns=["topic"]).read_all().num_rows == count, store
    if page == "cookbook.md":
        assert pq.read_table(kitchen / "lake" / "plain").num_rows == 60
        orders = pq.read_table(kitchen / "lake" / "orders").to_pylist()
        assert sorted(row["order"]["state"] for row in orders) == ["paid", "shipped"]
        assert pq.read_table(kitchen / "lake" / "live").num_rows == Store("sample_store").messages().read_all().num_rows
    if page == "lakes.md":
        from deltalake import DeltaTable

        whole = Store("sample_store").messages().read_all().num_rows
        assert pq.read_table(kitchen / "lake" / "daily").num_rows == whole
        assert DeltaTable(kitchen / "lake" / "stream").to_pyarrow_table(columns=["topic"]).num_rows == whole
        # As after a crash between a commit to the lake and that to the checkpoint: the batch is handed over again.
        for name, commits in (("daily", "daily_checkpoint"), ("stream", "stream_checkpoint")):
            (committed,) = (kitchen / "lake" / commits / "commits").glob("[0-9]*")
            for file in (committed, committed.with_name(f".{committed.name}.crc")):
                file.unlink()
            (block,) = [each for each in blocks(page, "python spark") if f"lake/{commits}" in each.text]
            run_block(replace(block, text=with_paths(block.text, kitchen)), names)
            assert committed.exists(), name
        assert pq.read_table(kitchen / "lake" / "daily").num_rows == whole
        assert DeltaTable(kitchen / "lake" / "stream").to_pyarrow_table(columns=["topic"]).num_rows == whole


def test_examples_with_a_bucket(spark: SparkSession, kitchen: Path) -> None:
    pages = pages_with("python spark needs-s3")
    assert pages == ["api.md", "remote.md"]
    configuration = spark._jsc.hadoopConfiguration()
    with bucket(kitchen) as server:
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
            names = {"spark": spark, "rmqstore_spark": rmqstore_spark}
            for block in [block for page in pages for block in blocks(page, "python spark needs-s3")]:
                run_block(block, names)
        finally:
            for name, value in before.items():
                configuration.unset(name) if value is None else configuration.set(name, value)
        assert any("broker" in asked for _, asked, _ in server.asked)
