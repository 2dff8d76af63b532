"""The declarative pipeline of docs/streams.md, run by Spark's own command: a stream, a view and a sink."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.pages import blocks, make_kitchen
from support.patience import HANG

from rmqstore_spark import Store


def run(home: Path) -> None:
    """Bring the pipeline up to date. The command starts a server of Spark Connect for itself."""
    here = Path(sys.executable).parent
    command = [str(here / "spark-pipelines"), "run"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    environment["PATH"] = f"{here}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=HANG, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_table_view_and_sink(tmp_path: Path) -> None:
    pytest.importorskip("pyspark.pipelines.cli", reason="declarative pipelines came with Spark 4.1")
    make_kitchen(tmp_path)
    (definitions,), (spec,) = blocks("streams.md", "python pipeline"), blocks("streams.md", "yaml")
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "orders.py").write_text(definitions.text.replace("/data/", f"{tmp_path}/"))
    (tmp_path / "spark-pipeline.yml").write_text(spec.text.replace("/data/", f"{tmp_path}/"))

    run(tmp_path)
    sample = Store(tmp_path / "sample_store")
    plain = sorted(sample.messages(["body"], subscribe="Plain").read_all()["body"].to_pylist())
    written = tmp_path / "spark-warehouse"
    assert sorted(pq.read_table(written / "orders")["body"].to_pylist()) == plain
    assert sorted(pq.read_table(written / "lag")["lag"].to_pylist()) == sorted(sample.offsets()["lag"].to_pylist())
    assert sorted(Store(tmp_path / "kept_store").messages(["body"]).read_all()["body"].to_pylist()) == plain
