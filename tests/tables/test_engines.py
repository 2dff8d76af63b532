"""The examples for Ray Data and Daft, and ClickHouse in a pipe, run where these libraries are installed. They are
large, so they are no part of the extra `test`: `make test-engines` has an environment with them, and runs every night.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.patience import HANG

from rmqstore_spark import Store

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str) -> str:
    """What Python prints, which knows both examples."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}"}
    ran = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, cwd=ROOT, timeout=HANG
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("name", ["ray_data", "daft_source"])
def test_examples_are_short(name: str) -> None:
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) < 60


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'ray[data]'")
def test_ray() -> None:
    out = run(
        "-c",
        """
import ray, pyarrow.compute as pc
from ray_data import RmqStoreDatasource
from rmqstore_spark import Store
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
store = Store("sample_store")
def read(**wanted):
    source = RmqStoreDatasource(store, **wanted)
    return sorted(map(str, ray.data.read_datasource(source, override_num_blocks=2).take_all()))
def rows(table):
    return sorted(map(str, table.to_pylist()))
plain = store.messages(["keys", "queueId"], subscribe="Plain").read_all()
assert read(columns=["keys", "queueId"], filter=pc.field("topic") == "Plain") == rows(plain)
assert read(columns=["keys", "queueId"], subscribe="Plain") == rows(plain)
assert read(name="offsets", columns=["group", "topic", "lag"]) == rows(store.offsets(columns=["group", "topic", "lag"]))
print("same rows")
""",
    )
    assert out.endswith("same rows\n")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ray_data", "daft_source"])
def test_examples_run(name: str) -> None:
    """As the page says to; Ray by itself would cut so few rows into 200 parts, which took minutes."""
    pytest.importorskip(name.partition("_")[0])
    out = run(f"examples/{name}.py", "sample_store", "Plain")
    assert re.findall(r"(\d+)(?:\s*┆|, 'count\(\)':)\s*(\d+)", out) == [(str(queue), "15") for queue in range(4)]


@pytest.mark.skipif(importlib.util.find_spec("daft") is None, reason="Daft is not installed: pip install daft")
def test_daft() -> None:
    out = run(
        "-c",
        """
import daft
from daft_source import RmqStoreSource
from rmqstore_spark import Store
asked = []
class Told(Store):
    def tasks(self, **wanted):
        asked.append(wanted)
        return super().tasks(**wanted)
store = Told("sample_store")
messages = RmqStoreSource(store).read()
plain = messages.where((daft.col("topic") == "Plain") & (daft.col("queueId") < 2)).select("keys", "storeTimestamp")
wanted = store.messages(["keys", "storeTimestamp"], assign={"Plain": [0, 1]}).read_all()
assert plain.to_arrow().to_pylist() == wanted.to_pylist()
assert {*asked[-1]["columns"]} == {"topic", "queueId", "keys", "storeTimestamp"}
assert "Plain" in str(asked[-1]["filter"])
long = messages.where(daft.col("keys").length() > 8).select("keys").to_arrow()
assert long.num_rows == sum(len(keys or "") > 8 for keys in store.messages("keys").read_all()["keys"].to_pylist())
assert messages.count_rows() == 305
assert RmqStoreSource(store, name="offsets").read().select("lag").to_arrow().num_rows == store.offsets().num_rows
topics = set(store.messages("topic").read_all()["topic"].to_pylist())
assert {*messages.select("topic").distinct().to_arrow()["topic"].to_pylist()} == topics
print("same rows")
""",
    )
    assert out.endswith("same rows\n")


@pytest.mark.parametrize("library", ["duckdb", "nanoarrow", "chdb"])
def test_pipes(library: str) -> None:
    """The page's own command, behind the stream that `--format arrow` writes to a pipe."""
    pytest.importorskip(library)
    page = (ROOT / "docs" / "cookbook.md").read_text().split("The same stream goes into other programs")[1]
    blocks = page.split("```")[1].strip().split("\n\n")
    (command,) = [block for block in blocks if f"import {library}" in block.replace("sys, ", "")]
    python = f"cd {shlex.quote(str(ROOT))}; {shlex.quote(sys.executable)}"
    source = f"({python} -m rmqstore_spark messages sample_store --format arrow)"
    piped = f"set -o pipefail; {source} | {command.replace('python', shlex.quote(sys.executable), 1)}"
    ran = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, cwd=ROOT, timeout=HANG)
    assert ran.returncode == 0, ran.stderr
    topics = Counter(Store(ROOT / "sample_store").messages("topic").read_all()["topic"].to_pylist())
    said = {"nanoarrow": [str(topics.total())], "chdb": [f'"{topic}",{count}' for topic, count in topics.items()]}
    if library in said:
        assert sorted(ran.stdout.split("\n")[: len(said[library])]) == sorted(said[library])
    else:
        assert all(topic in ran.stdout for topic in topics if len(topic) < 20)
