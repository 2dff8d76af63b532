"""Every block of docs/cookbook.md runs, in a directory with a copy of sample_store, and finds something."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.command import run

from rmqstore_spark import Store, write_store

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "cookbook.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    assert len(found) > 5
    return found


@pytest.fixture(autouse=True)
def kitchen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("sample_store", "copy_of_sample_store"):
        shutil.copytree(ROOT / "sample_store", tmp_path / name)
    write_store(tmp_path / "other_store", pa.table({"topic": ["Plain"] * 5, "body": ["x"] * 5}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_spark(kitchen: Path) -> None:
    names: dict[str, object] = {}
    for block in blocks("python"):
        exec(block, names)
    assert pq.read_table(kitchen / "plain.parquet").num_rows == 60


@pytest.mark.slow
def test_at_a_terminal(kitchen: Path) -> None:
    for block in blocks("shell"):
        for line in block.splitlines():
            command, *arguments = shlex.split(line)
            assert command == "rmqstore"
            ran = run(*arguments)
            assert (ran.code, "nothing found" in ran.err) == (0, False), line
    assert pq.read_table(kitchen / "plain.parquet").num_rows == 60


@pytest.mark.spark
def test_with_spark(spark: SparkSession, kitchen: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # Spark's JVM has another current directory than this process.
    for block in blocks("python spark"):
        exec(re.sub(r'"(\w+_store|lake/\w+)"', rf'"{kitchen}/\1"', block), {"spark": spark})
    assert pq.read_table(kitchen / "lake" / "plain").num_rows == 60
    assert pq.read_table(kitchen / "lake" / "live").num_rows == Store("sample_store").messages().read_all().num_rows
    assert Store(kitchen / "salvaged_store").messages(columns=["topic"]).read_all().num_rows == 305
    assert Store(kitchen / "merged_store").messages(columns=["topic"]).read_all().num_rows == 65
    assert Store(kitchen / "test_store").messages(columns=["keys"]).read_all().num_rows == 100
