"""What the sections of bench.py have in common: rows of the table, stores, turns, a Spark session, reading."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from generate import Store, generate
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))  # behind site-packages: what is installed is what is measured

from null_source import NullSource  # noqa: E402

import rmqstore_spark  # noqa: E402
from native_io import Decoder  # noqa: E402
from rmqstore_spark.columns import DEFAULT_COLUMNS, arrow_schema  # noqa: E402
from rmqstore_spark.read.run.batch_maker import BATCH_BYTES, BATCH_ROWS  # noqa: E402
from rmqstore_spark.spark.datasource import RmqStoreDataSource  # noqa: E402
from rmqstore_spark.store.structures.dledger import DLEDGER  # noqa: E402

MIB = 1 << 20
WINDOW_BYTES = 256 * MIB  # far more than any cache holds
RUN_BYTES = MIB // 2


@dataclass(frozen=True)
class Row:
    """One line of the table. `value` is in `unit`; `goal` is about `ratio` where there is one, else about `value`.

    Where there is no value, `unit` says why. `costs` are further numbers, by what they count.
    """

    what: str
    value: float | None
    unit: str
    ratio: float | None = None
    goal: str = ""  # such as ">= 0.28"
    costs: dict[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        if not self.goal or self.value is None:
            return ""
        sign, bound = self.goal.split()
        found = self.value if self.ratio is None else self.ratio
        return "ok" if (found >= float(bound) if sign == ">=" else found <= float(bound)) else "MISS"


def in_turns(
    repeat: int,
    cases: dict[str, Callable[[], object]],
    before: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Seconds of the best of `repeat` runs of each. `before` each of them something may have to be done."""
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(repeat):
        for name, run in cases.items():
            before()
            begin = clock()
            run()
            best[name] = min(best[name], clock() - begin)
    return best


def claim_memory(nbytes: int) -> None:
    """Take so much memory once, and leave it to the system.

    A virtual machine may have given memory that is free back to its host. To get it again can take seconds a GiB, which
    would be counted for whoever is the first to write files.
    """
    mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


# ---------------------------------------------------------------------------------------------------------------------
# What is known here of rmqstore_spark.


def reader_of(
    store: Store, *, names: Sequence[str] = DEFAULT_COLUMNS, without: tuple[str, ...] = (), **options: str
) -> tuple[Any, StructType]:
    """The data source's batch reader, in this process, and the schema it was asked for."""
    source = RmqStoreDataSource(CaseInsensitiveDict({"path": str(store.root), **options}))
    schema = from_arrow_schema(arrow_schema([name for name in names if name not in without]))
    return source.reader(schema), schema


def batches_of(
    store: Store, *, names: Sequence[str] = DEFAULT_COLUMNS, without: tuple[str, ...] = (), **options: str
) -> Iterator[pa.RecordBatch]:
    """The production loop: plan, pread, scan, decode. All of a task but Spark."""
    reader, _ = reader_of(store, names=names, without=without, **options)
    for partition in reader.partitions():
        yield from reader.read(partition)


def key_of(message: dict[str, Any]) -> dict[str, str]:
    """The options of a look-up of a message by its topic and key."""
    return {"subscribe": message["topic"], "key": message["keys"].split()[0]}


def offsets_of(message: dict[str, Any]) -> dict[str, str]:
    """The options of a look-up of a message and the one after it by their queue offsets."""
    topic, queue, first = message["topic"], message["queueId"], message["queueOffset"]
    return {
        "assign": json.dumps({topic: [queue]}),
        "startingOffsets": json.dumps({topic: {str(queue): first}}),
        "endingOffsets": json.dumps({topic: {str(queue): first + 2}}),
    }


class Window:
    """The kernel alone: units that already lie in memory to Arrow, as many at a time as stay in a second-level cache.

    They come from main memory here; in production a read has just put them into the cache.
    """

    def __init__(self, store: Store, schema: pa.Schema) -> None:
        first = min((store.root / store.spec.log).iterdir())
        self._bytes = np.fromfile(first, np.uint8, WINDOW_BYTES).data
        self._segment_size = store.spec.segment_size
        self._schema = schema
        self._wrapping = DLEDGER.wrapping if store.spec.dledger else None
        self.units, self.end = self.decode(verify_crc=True)

    def decode(self, verify_crc: bool) -> tuple[int, int]:
        """(units, bytes) done."""
        decoder = Decoder(self._schema.names)
        units, position, count = 0, 0, 1
        while count:
            count, position, *_ = decoder.scan(
                self._bytes[position : position + RUN_BYTES],
                base=position,
                position=position,
                stop=self._segment_size,
                segment_end=self._segment_size,
                verify_crc=verify_crc,
                most=BATCH_ROWS,
                wrapping=self._wrapping,
            )
            units += count
            if decoder.nbytes >= BATCH_BYTES or not count:
                pa.RecordBatch._import_from_c_capsule(self._schema.__arrow_c_schema__(), decoder.finish())
        return units, position


def scan_store(store: Store, verify_crc: bool) -> None:
    rows = sum(batch.num_rows for batch in batches_of(store, verifyCrc=str(verify_crc).lower()))
    assert rows == store.units, f"{store.root}: {rows} rows, {store.units} units were written"


# ---------------------------------------------------------------------------------------------------------------------


class Stores:
    """The stores under the data directory, each written when first asked for."""

    def __init__(self, directory: Path, total_bytes: int) -> None:
        self._directory = directory
        self.total_bytes = total_bytes

    def of(
        self,
        body: int,
        *,
        total_bytes: int | None = None,
        segment: int = 1 << 30,
        topics: int = 4,
        queues: int = 8,
        dledger: bool = False,
        batch: int = 0,
        batch_topics: int = 0,
        compression: str = "",
    ) -> Store:
        total = self.total_bytes if total_bytes is None else total_bytes
        name = f"body{body}-total{total}-segment{segment}-topics{topics}x{queues}{'-dledger' if dledger else ''}"
        name += f"-batch{batch}in{batch_topics}" if batch else ""
        name += f"-{compression}" if compression else ""
        begin = time.perf_counter()
        kind: dict[str, Any] = {"dledger": dledger, "batch": batch, "batch_topics": batch_topics}
        kind["compression"] = compression
        store = generate(self._directory / name, total, body, segment, topics, queues, **kind)
        if (seconds := time.perf_counter() - begin) > 0.1:
            print(f"  wrote {name}: {store.units:,} messages ({seconds:.1f} s)", file=sys.stderr)
        for path in sorted((store.root / store.spec.log).iterdir()):  # into the page cache
            with path.open("rb", buffering=0) as file:
                buffer = bytearray(8 * MIB)
                while file.readinto(buffer):
                    pass
        return store

    @property
    def large(self) -> Store:
        return self.of(1024)

    @property
    def small(self) -> Store:
        return self.of(100)

    @property
    def segmented(self) -> Store:
        return self.of(1024, segment=32 * MIB)

    @property
    def small_segmented(self) -> Store:
        return self.of(100, total_bytes=self.total_bytes // 4, segment=32 * MIB)

    @property
    def nearly_empty(self) -> Store:
        return self.of(100, total_bytes=64 << 10)


def noop(frame: DataFrame) -> Callable[[], object]:
    return lambda: frame.write.format("noop").mode("overwrite").save()


@contextlib.contextmanager
def spark_session(scratch: Path) -> Iterator[SparkSession]:
    """local[2]; the JVM and its Python workers are gone when the block is left."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    package = Path(rmqstore_spark.__file__).resolve().parent.parent
    path = [str(package), str(HERE), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    os.environ.pop("SPARK_REMOTE", None)
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    with contextlib.chdir(scratch):  # workers import from the directory the JVM was started in before all else
        spark = SparkSession.builder.master("local[2]").appName("rmqstore-bench").config(map=settings).getOrCreate()
    gateway: Any = spark.sparkContext._gateway
    try:
        spark.sparkContext.setLogLevel("ERROR")
        spark.dataSource.register(NullSource)
        rmqstore_spark.register(spark)
        yield spark
    finally:
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=60)


def busy_cores() -> float:
    """How many cores other processes keep busy just now: while this one sleeps, all that runs is not ours."""

    def busy() -> int:
        user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = map(
            int, Path("/proc/stat").read_text().splitlines()[0].split()[1:]
        )
        return user + nice + system + irq + softirq + steal

    before = busy()
    time.sleep(1)
    return (busy() - before) / os.sysconf("SC_CLK_TCK")


def cells_of(row: Row) -> tuple[str, ...]:
    """What is shown of a row: what was measured, how much, ratio, goal, verdict, costs."""
    if row.value is None:
        return row.what, row.unit
    digits = 0 if row.value >= 100 else 1 if row.value >= 20 else 2 if row.value >= 0.1 or not row.costs else 4
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    costs = "; ".join(
        f"{cost:,.{0 if cost >= 100 or cost == int(cost) else 2}f} {of}" for of, cost in row.costs.items()
    )
    return row.what, f"{row.value:.{digits}f} {row.unit}", ratio, row.goal, row.verdict, costs


def show(rows: list[Row]) -> None:
    cells = [("what", "measured", "ratio", "goal", "", ""), *(cells_of(row) for row in rows if row.value is not None)]
    widths = [max(len(line[i]) for line in cells) for i in range(6)]
    for line in cells:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
    for row in rows:
        if row.value is None:
            print(f"{row.what}: {row.unit}")
