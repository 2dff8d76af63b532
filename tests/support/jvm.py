"""Java that starts quickly: it lives for a minute in a test, and would spend half of it on getting ready."""

from __future__ import annotations

import fcntl
import functools
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
# What Java says of an archive that it cannot use would come on stdout.
_QUIET = "-Xlog:disable"
# Enough of Spark that a session has all its usual classes.
_SESSION = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(10).selectExpr("id % 2 AS k", "CAST(id AS STRING) AS s").groupBy("k").count().collect()
spark.stop()
"""


def _archive() -> Path:
    """Where the archive of Spark's classes is; it fits one Java and one list of jars."""
    java = Path(os.environ.get("JAVA_HOME", "java")).name
    return ROOT / "build" / f"spark-{metadata.version('pyspark')}-{java}.jsa"


def quick_spark() -> None:
    """Let each Java of Spark that is started from now on start quickly: with an archive of Spark's classes, where there
    is one, it takes half of the processor's time."""
    options = QUICK if " " in str(ROOT) else f"{QUICK} {_QUIET} -XX:SharedArchiveFile={_archive()}"
    os.environ.setdefault("SPARK_SUBMIT_OPTS", options)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK)


@functools.cache
def archive_spark() -> None:
    """Make that archive, once for all test runs in this tree. Where it does not work out, tests take longer."""
    archive = _archive()
    if archive.exists() or str(archive) not in os.environ["SPARK_SUBMIT_OPTS"]:
        return
    archive.parent.mkdir(exist_ok=True)
    with (
        (archive.parent / "archive.lock").open("w") as lock,
        tempfile.TemporaryDirectory(dir=archive.parent) as directory,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several workers one makes it
        if archive.exists():
            return
        made = Path(directory) / archive.name
        environment = {**os.environ, "SPARK_SUBMIT_OPTS": f"{QUICK} {_QUIET} -XX:ArchiveClassesAtExit={made}"}
        command = [sys.executable, "-c", _SESSION]
        done = subprocess.run(command, env=environment, capture_output=True, cwd=directory, check=False)
        if done.returncode == 0 and made.exists():
            made.replace(archive)
