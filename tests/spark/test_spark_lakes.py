"""The streams of docs/lakes.md into Delta's and Iceberg's own sinks, whose jars go up to PySpark 4.1.

`make test-nightly` runs this there; it takes some 100 MB from Maven Central the first time.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from interop.jars import Unavailable, class_path, directory_of
from support.pages import blocks, make_kitchen
from support.patience import HANG

from rmqstore_spark import Store

ROOT = Path(__file__).resolve().parents[2]
HAS_JARS = version("pyspark").startswith("4.1.")
DEPENDENCY = """<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version><exclusions><exclusion>
<groupId>*</groupId><artifactId>{}</artifactId></exclusion></exclusions></dependency>"""
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>rmq</groupId>
<artifactId>lakes</artifactId><version>1</version><dependencies>{}</dependencies></project>"""

# Runs the page's streams, which then find nothing new; and again as after a crash between a commit to the lake and that
# to the checkpoint, when Spark hands over the batch once more.
PROGRAM = """
from pathlib import Path
for run in ("first", "second", "crashed"):
    if run == "crashed":
        for sink in ("delta", "iceberg"):
            (committed,) = Path(f"lake/{{sink}}_checkpoint/commits").glob("[0-9]*")
            for file in (committed, committed.with_name(f".{{committed.name}}.crc")):
                file.unlink()
{block}
    for table in (spark.read.format("delta").load("lake/delta"), spark.table("lake.mq.messages")):
        print(run, table.count(), table.select("commitLogOffset").distinct().count())
"""


def jars(home: Path, packages: str) -> str:
    """The packages that the page names and what they need, without what Spark has."""
    named = [DEPENDENCY.format(*package.split(":"), "spark-*") for package in packages.split(",")]
    (home / "pom.xml").write_text(POM.format("".join(named)))
    try:
        kept = directory_of(home / "pom.xml", "lakes") / "classpath"
        return class_path(kept, "Delta and Iceberg", home / "pom.xml").replace(os.pathsep, ",")
    except Unavailable as why:
        pytest.skip(str(why))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.skipif(not HAS_JARS, reason="Delta and Iceberg have no jar for this Spark")
def test_streams_into_delta_and_iceberg(tmp_path: Path) -> None:
    make_kitchen(tmp_path)
    (block,) = blocks("lakes.md", "python spark41")
    (packages,) = re.findall(r'packages = "(.*)"', block.text)
    text = block.text.replace('.config("spark.jars.packages", packages)', "")  # Maven brings them here, not Ivy
    program = PROGRAM.format(block="".join(f"    {line}" for line in text.splitlines(keepends=True)))
    submitted = f"--master local[1] --conf spark.ui.enabled=false --jars {jars(tmp_path, packages)} pyspark-shell"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_SUBMIT_ARGS": submitted}
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    count = Store(tmp_path / "sample_store").messages(["topic"]).read_all().num_rows
    wanted = [f"{run} {count} {count}" for run in ("first", "second", "crashed") for _ in range(2)]
    assert ran.stdout.strip().splitlines() == wanted
