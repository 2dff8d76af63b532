"""A query of Spark's own that copies a store to Parquet, in a driver process that can be killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from support import reading
from support.patience import HANG

_PATIENCE = HANG  # seconds: a driver that is slower than that does not answer
_DRIVER = """
import json, sys
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

root, directory = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.driver.memory", "2g")
         .config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC").getOrCreate())
import rmqstore_spark
rmqstore_spark.register(spark)

def start(directory, **trigger):
    stream = spark.readStream.format("rmqstore").option("startingOffsets", "earliest").load(root)
    writer = stream.writeStream.format("parquet").option("checkpointLocation", directory + "/checkpoint")
    return writer.trigger(**trigger).start(directory + "/out")

def run(directory):
    while True:
        try:
            return start(directory, availableNow=True).awaitTermination()
        except StreamingQueryException as why:
            if not is_late(why):
                return why

def is_late(why):
    return "Python worker failed to connect back" in str(why)  # Spark gives it ten seconds, on however busy a machine

query = start(directory, processingTime="0 seconds")
print(json.dumps([]), flush=True)  # it has started
for line in sys.stdin:
    answer = []
    why = query.exception()
    if why and not is_late(why):
        raise why
    if line == "restart\\n" or why:
        query.stop()
        query = start(directory, processingTime="0 seconds")
    if line == "finish\\n":
        query.stop()
        if why := run(directory):
            raise why
        answer = spark.read.parquet(directory + "/out").inputFiles()
    if line == "late\\n":
        answer = [str(run(directory + "/late"))]
    print(json.dumps(answer), flush=True)
"""


class StreamCopy:
    """Copies all of a store, each message once, and goes on where it was. As a context it leaves no process behind.

    Args:
        root: of the store.
        directory: for the checkpoint, the copy and the driver's log.
    """

    def __init__(self, root: Path, directory: Path) -> None:
        self.root = root
        self._directory = directory
        self._checkpoint = directory / "checkpoint"
        self._driver: subprocess.Popen[str] | None = None

    def __enter__(self) -> StreamCopy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._driver:
            self.kill()

    def start(self) -> None:
        """In a new process."""
        self._directory.mkdir(exist_ok=True)
        with (self._directory / "driver.log").open("ab") as log:
            self._driver = subprocess.Popen(
                [sys.executable, "-c", _DRIVER, str(self.root), str(self._directory)],
                stdin=subprocess.PIPE,  # when it ends, as this process has, so does the driver
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._answer()

    def kill(self) -> None:
        """SIGKILL, for the driver and all that is below it."""
        assert self._driver
        os.killpg(self._driver.pid, signal.SIGKILL)
        with self._driver:
            self._driver = None
        if not list(self._checkpoint.glob("offsets/[0-9]*")):
            # Spark refuses a checkpoint whose first offset is half written, and asks for another one
            # (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY). By then no batch has begun.
            shutil.rmtree(self._checkpoint, ignore_errors=True)

    def restart(self) -> None:
        """Stops the query and starts it again, in the same process."""
        self._ask("restart")

    def check(self) -> None:
        """That it runs."""
        self._ask("check")

    def finish(self) -> list[Path]:
        """The files of the copy, when all that is in the store now is there. The query has ended then."""
        return [Path(unquote(urlsplit(uri).path)) for uri in self._ask("finish")]

    def fall_behind(self) -> int:
        """Keep where the query was after its first batch, for late(); that is up to there in the log."""
        for name in ("metadata", "offsets/0", "commits/0"):
            kept = self._directory / "late" / "checkpoint" / name
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self._checkpoint / name, kept)
        return self._offset(0)

    def late(self) -> str:
        """Why a query ends that stopped after the first batch and is started only now."""
        return self._ask("late")[0]

    def commits(self) -> int:
        """How many batches are there for good."""
        return 1 + max((int(path.name) for path in self._checkpoint.glob("commits/[0-9]*")), default=-1)

    def position(self) -> int:
        """Up to where in the log."""
        count = self.commits()
        return self._offset(count - 1) if count else 0

    def _offset(self, batch: int) -> int:
        offset = (self._checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1]
        stores = json.loads(offset)["stores"]
        return int(stores[str(self.root)]["commitLogOffset"]) if stores else 0

    def _ask(self, word: str) -> list[str]:
        assert self._driver
        assert self._driver.stdin
        self._driver.stdin.write(word + "\n")
        self._driver.stdin.flush()
        return self._answer()

    def _answer(self) -> list[str]:
        assert self._driver
        assert self._driver.stdout
        limit = threading.Timer(_PATIENCE, os.killpg, (self._driver.pid, signal.SIGKILL))
        limit.start()
        line = self._driver.stdout.readline()
        limit.cancel()
        assert line, (self._directory / "driver.log").read_text(errors="replace")[-4000:]
        return list(json.loads(line))


def rows_of(files: list[Path]) -> Iterator[reading.Row]:
    """The rows of a copy in the order of the log, a few at a time in memory. A file has what one task read."""
    firsts: dict[int, Path] = {}
    for path in files:
        first = next(_batches(path, 1, ["commitLogOffset"]), None)
        if first is not None:
            assert first[0][0].as_py() not in firsts
            firsts[first[0][0].as_py()] = path
    for _, path in sorted(firsts.items()):
        for batch in _batches(path, 1000):
            yield from reading.rows_of(batch)


def _batches(path: Path, size: int, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        yield from file.iter_batches(size, columns=columns)
