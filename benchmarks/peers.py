"""Section `peers`: RocketMQ's decoder, Spark's Parquet scan, and what one writes without us, on the same stores.

Before anything is timed, each peer has to find the same as we do.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import naive
import pyarrow.compute as pc
from generate import Store
from measure import HERE, MIB, Row, Stores, batches_of, in_turns, noop, reader_of, scan_store
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rmqstore_spark.columns import DEFAULT_COLUMNS

WARM_UP_PASSES = 5  # of a JVM, through a whole store
# C2, and no thread but ours that collects garbage. All of it dies young; 64 MiB for it were as fast as any other size.
JVM = ("-Xms128m", "-Xmx128m", "-Xmn64m", "-XX:+UseSerialGC", "-XX:-UsePerfData")
INTEROP = HERE.parent / "tests" / "interop"
MANIFEST = "_made_of.json"  # Spark does not look at names that begin so


# ---------------------------------------------------------------------------------------------------------------------
# RocketMQ's MessageDecoder


class Unavailable(Exception):
    """Why there is no RocketMQ to measure."""


class RocketMq:
    """The newest RocketMQ of the interop tests: its jars come from Maven the first time, then from their cache."""

    def __init__(self) -> None:
        sys.path.append(str(INTEROP.parent))
        try:
            self.bench = importlib.import_module("interop.rocketmq")
            found = self.bench.runtime(self.bench.NEWEST)
        except subprocess.CalledProcessError as why:
            raise Unavailable(f"the Java of tests/interop does not compile: {why}") from why
        except (ImportError, OSError) as why:
            raise Unavailable(f"tests/interop cannot be used: {why}") from why
        except Exception as why:
            if type(why).__name__ != "Unavailable":
                raise
            raise Unavailable(str(why)) from why
        self.version: str = found.version
        self.java: str = found.java
        self.class_path: str = found.broker


class DecodeLog:
    """java/DecodeLog.java on the segments of a store, for as many passes as one likes."""

    def __init__(self, rocketmq: RocketMq, store: Store, home: str) -> None:
        command = [rocketmq.java, *JVM, f"-Duser.home={home}", "-cp", rocketmq.class_path]
        command += [str(HERE / "java" / "DecodeLog.java"), *map(str, sorted((store.root / "commitlog").iterdir()))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, check_crc: bool) -> dict[str, int]:
        """One pass."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("on\n" if check_crc else "off\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"DecodeLog ended with {self._process.wait()}")
        found: dict[str, int] = json.loads(answer)
        del found["nanoseconds"]
        return found

    def __enter__(self) -> DecodeLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.__exit__(kind, value, trace)  # closes its input, which ends it


def decoder_rows(stores: Stores, repeat: int) -> Iterator[Row]:
    try:
        rocketmq = RocketMq()
    except Unavailable as why:
        yield Row("RocketMQ's MessageDecoder", None, f"not measured: {' '.join(str(why).split())}")
        return
    for text, store in (("1 KiB", stores.large), ("100 B", stores.small)):
        with tempfile.TemporaryDirectory(prefix="rmqstore-bench-") as home, DecodeLog(rocketmq, store, home) as theirs:
            ours = totals(store)
            for check_crc in (True, False) * WARM_UP_PASSES:
                found = theirs.run(check_crc)
                assert found == ours, f"{store.root}: RocketMQ finds {found}, we find {ours}"
            cases: dict[str, Callable[[], object]] = {
                "off": partial(theirs.run, False),
                "ours": partial(scan_store, store, verify_crc=True),
                "on": partial(theirs.run, True),
            }
            best = in_turns(repeat, cases)
        speed = {name: store.units / seconds / 1e6 for name, seconds in best.items()}
        decoder = f"MessageDecoder of RocketMQ {rocketmq.version}"
        for crc in ("off", "on"):
            yield Row(f"{decoder}, {text} bodies, CRC {crc}, one core", speed[crc], "M messages/s")
        for crc in ("off", "on"):
            yield Row(
                f"kernel, {text} bodies, CRC on, file to Arrow / MessageDecoder, CRC {crc}",
                speed["ours"],
                "M messages/s",
                speed["ours"] / speed[crc],
                ">= 5",
            )


def totals(store: Store) -> dict[str, int]:
    """What DecodeLog adds up."""
    found = dict.fromkeys(("messages", "bodyBytes", "properties", "queueOffsets", "storeTimes", "idChars"), 0)
    for batch in batches_of(store):
        times = batch["storeTimestamp"].cast("int64")
        found["messages"] += batch.num_rows
        found["bodyBytes"] += pc.sum(pc.binary_length(batch["body"])).as_py()
        found["properties"] += len(batch["properties"].keys)
        found["queueOffsets"] += pc.sum(batch["queueOffset"]).as_py()
        found["storeTimes"] += pc.sum(times).as_py() // 1000
        found["idChars"] += pc.sum(pc.utf8_length(batch["offsetMsgId"])).as_py()
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Spark's Parquet


def parquet_rows(stores: Stores, repeat: int, spark: SparkSession) -> Iterator[Row]:
    for text, store in (("1 KiB", stores.large), ("100 B", stores.small)):
        path = parquet_of(store, spark)
        cases: dict[str, Callable[[], object]] = {}
        for columns, without in (("but properties", ("properties",)), ("with properties", ())):
            _, schema = reader_of(store, without=without)
            theirs = spark.read.schema(schema).parquet(str(path))
            ours = spark.read.format("rmqstore").schema(schema).load(str(store.root))
            expect_same(ours, theirs, store)
            cases[f"Parquet, {columns}"] = noop(theirs)
            cases[columns] = noop(ours)
        in_turns(1, cases)
        best = in_turns(repeat, cases)
        speed = {name: store.units / seconds / 1e6 for name, seconds in best.items()}
        for columns in ("but properties", "with properties"):
            parquet = speed[f"Parquet, {columns}"]
            yield Row(f"{text} bodies, local[2], all columns {columns}, Parquet", parquet, "M messages/s")
            yield Row(
                f"{text} bodies, local[2], all columns {columns} / Parquet",
                speed[columns],
                "M messages/s",
                speed[columns] / parquet,
                ">= 1.0",
            )


def parquet_of(store: Store, spark: SparkSession) -> Path:
    """The same rows and columns as uncompressed Parquet beside the store, written by Spark when it is not there yet."""
    path = store.root.with_name(store.root.name + ".parquet")
    made_of = {"store": asdict(store.spec), "columns": DEFAULT_COLUMNS, "spark": spark.version}
    with contextlib.suppress(OSError, ValueError):
        if json.loads((path / MANIFEST).read_text()) == made_of:
            return path
    types = "spark.sql.parquet.outputTimestampType"
    spark.conf.set(types, "TIMESTAMP_MICROS")  # INT96, where that is the default, is slower to read
    rows = spark.read.format("rmqstore").load(str(store.root))
    rows.write.mode("overwrite").option("compression", "none").parquet(str(path))
    spark.conf.unset(types)
    (path / MANIFEST).write_text(json.dumps(made_of))
    return path


def expect_same(ours: DataFrame, theirs: DataFrame, store: Store) -> None:
    """Raises AssertionError where the two do not hold the same rows, in whatever order."""

    def digest(frame: DataFrame) -> Any:
        columns = [F.map_entries(c) if t.startswith("map") else F.col(c) for c, t in frame.dtypes]
        return frame.select(F.xxhash64(*columns).alias("h")).agg(F.count("*"), F.bit_xor("h")).first()

    we, they = digest(ours), digest(theirs)
    assert we == they, f"{store.root}: we find {we}, the other {they}"
    assert we[0] == store.units, f"{store.root}: {we[0]} rows, {store.units} units were written"


# ---------------------------------------------------------------------------------------------------------------------
# The naive way


def naive_rows(stores: Stores, repeat: int, spark: SparkSession) -> Iterator[Row]:
    for text, store in (("1 KiB", stores.segmented), ("100 B", stores.small_segmented)):
        theirs = naive.read(spark, [str(path) for path in sorted((store.root / "commitlog").iterdir())])
        ours = spark.read.format("rmqstore").schema(naive.SCHEMA).load(str(store.root))
        expect_same(ours, theirs, store)
        best = in_turns(repeat, {"naive": noop(theirs), "ours": noop(ours)})
        speed = {name: store.units / seconds / 1e6 for name, seconds in best.items()}
        size = f"{round(store.end / MIB)} MiB in segments of {store.spec.segment_size // MIB} MiB"
        what = f"{text} bodies, local[2], six columns"
        yield Row(f"{what}, naive mapInPandas, {size}", speed["naive"], "M messages/s")
        yield Row(f"{what} / naive mapInPandas", speed["ours"], "M messages/s", speed["ours"] / speed["naive"])
