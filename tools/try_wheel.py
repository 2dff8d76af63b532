"""Install the wheel in dist/ where there is no compiler, as a user would, and use all sides of it: `make try-wheel`.

    python3.13 tools/try_wheel.py --pyspark "4.1.*"

A new virtual environment of the Python that runs this gets the wheel from dist/ and PySpark from PyPI. There `rmqstore`
shows sample_store, and Spark reads it, writes some of it as a store, and follows that one. What is said where an
extra is missing is looked at, too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "sample_store"
# Where the shell's own tools and Java are, but no compiler: pip cannot build a kernel by accident.
TOOLS = ("sh", "bash", "env", "cat", "dirname", "basename", "uname", "ps", "chmod", "mkdir", "rm", "readlink", "java")

OPEN = """
import sys

import rmqstore_spark

try:
    rmqstore_spark.Store(sys.argv[1]).topics()
except rmqstore_spark.RmqStoreError as why:
    sys.exit(str(why))
"""

IN_SPARK = """
import sys
from pathlib import Path

import native_io._common
from pyspark.sql import SparkSession

source, directory = sys.argv[1], Path(sys.argv[2])
assert Path(native_io._common.__file__).is_relative_to(sys.prefix), native_io._common.__file__
settings = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()


def count(path):
    return spark.read.format("rmqstore").load(str(path)).count()


read = count(source)
# Not the broker's own topics: what is sent to users' topics can be written again.
orders = spark.read.format("rmqstore").option("subscribe", "Ordered,Plain,Compressed").load(source)
sent = orders.count()
orders.write.format("rmqstore").mode("append").save(str(directory / "written"))
written = count(directory / "written")
stream = spark.readStream.format("rmqstore").option("startingOffsets", "earliest").load(str(directory / "written"))
query = (
    stream.writeStream.format("parquet")
    .option("checkpointLocation", str(directory / "checkpoint"))
    .trigger(availableNow=True)
    .start(str(directory / "streamed"))
)
assert query.awaitTermination(300), "the stream did not end"
streamed = spark.read.parquet(str(directory / "streamed")).count()
spark.stop()
assert read > sent == written == streamed > 0, (read, sent, written, streamed)
print(f"Spark read {read} messages, wrote {written} and streamed {streamed}")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pyspark", default=">=4.1", help="which one, as in 4.1.* or >=4.1 (default: the newest)")
    parser.add_argument("--wheel", type=Path, help="default: the only one in dist/")
    arguments = parser.parse_args()
    version = arguments.pyspark if arguments.pyspark[0] in "<>=~!" else f"=={arguments.pyspark}"
    with tempfile.TemporaryDirectory(prefix="try-wheel-") as directory:
        try_wheel((arguments.wheel or only_wheel()).resolve(), f"pyspark{version}", Path(directory))


def only_wheel() -> Path:
    wheels = sorted((ROOT / "dist").glob("*.whl"))
    if len(wheels) != 1:
        sys.exit(f"dist/ has {len(wheels)} wheels; `make wheel` makes one, --wheel names one")
    return wheels[0]


def try_wheel(wheel: Path, pyspark: str, directory: Path) -> None:
    """Ends the process with what went wrong."""
    environment = environment_without_compiler(directory)
    python = directory / "venv" / "bin" / "python"
    empty = directory / "empty"
    empty.mkdir()

    def run(*command: str | Path, expected: int = 0) -> str:
        done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != expected:
            shown = " ".join(map(str, command[:4]))
            sys.exit(f"{shown}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout + done.stderr

    def one_line_naming(pip: str, *command: str | Path, expected: int) -> None:
        said = run(*command, expected=expected).strip()
        if "\n" in said or pip not in said:
            sys.exit(f"not one line that names `{pip}`: {said}")
        print(said)

    with step(f"{wheel.name} and {pyspark} on Python {sys.version.split()[0]}"):
        venv.create(directory / "venv", with_pip=True)
        install: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        run(*install, wheel, pyspark)
    with step("without the extras"):
        rmqstore = python.with_name("rmqstore")
        one_line_naming("pip install 'rmqstore-spark[cli]'", rmqstore, "show", SAMPLE, expected=2)
        for extra, uri in (("remote", "s3://bucket/store"), ("hdfs", "hdfs://namenode/store")):
            pip = f"pip install 'rmqstore-spark[{extra}]'"
            one_line_naming(pip, python, "-c", OPEN, uri, expected=1)
    with step("the extras, and rmqstore show"):
        run(*install, f"{wheel}[cli,hdfs,remote]", pyspark)
        shown = run(rmqstore, "show", SAMPLE)
        print(next(line.strip() for line in shown.splitlines() if " queues of " in line))
        run(python, "-c", "import hdfs_native, obstore")
    with step("Spark"):
        said = run(python, ROOT / "tools" / "with_spark.py", "-c", IN_SPARK, SAMPLE, directory)
        print(next(line for line in said.splitlines() if line.startswith("Spark read ")))


def environment_without_compiler(directory: Path) -> dict[str, str]:
    """What `env` would print there: of the PATH only TOOLS are left, and a build that names its compiler fails."""
    tools = directory / "tools"
    tools.mkdir()
    for name in TOOLS:
        for place in os.environ["PATH"].split(os.pathsep):
            found = Path(place, name)
            if found.is_file() and os.access(found, os.X_OK):
                (tools / name).symlink_to(found.resolve())
                break
    kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME", "LANG") if name in os.environ}
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.endswith("_proxy")}
    return kept | pip | {"PATH": str(tools), "CC": "/bin/false", "CXX": "/bin/false"}


@contextmanager
def step(what: str) -> Iterator[None]:
    print(f"== {what}", flush=True)
    since = time.monotonic()
    yield
    print(f"   {time.monotonic() - since:.0f} s", flush=True)


if __name__ == "__main__":
    main()
