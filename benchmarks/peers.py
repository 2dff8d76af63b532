"""Section `peers`: RocketMQ's decoder and consumers, Spark's Parquet scan, and what one writes without us, on the same
stores.

Before anything is timed, each peer has to find the same as we do.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import naive
import pyarrow.compute as pc
from generate import CQ_FILE_UNITS, CQ_UNIT, ITEMS, SLOTS, Store, write_topics
from measure import HERE, MIB, Row, Stores, batches_of, in_turns, noop, reader_of, scan_store
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rmqstore_spark.columns import DEFAULT_COLUMNS

WARM_UP_PASSES = 5  # of a JVM, through a whole store
# C2, and no thread but ours that collects garbage. All of it dies young; 64 MiB for it were as fast as any other size.
JVM = ("-Xms128m", "-Xmx128m", "-Xmn64m", "-XX:+UseSerialGC", "-XX:-UsePerfData")
CONSUMERS = 2  # one for each core of local[2]
CONSUMER_JVM = ("-Xms768m", "-Xmx768m", "-Xmn512m", "-XX:+UseSerialGC", "-XX:-UsePerfData")
BROKER_JVM = ("-XX:TieredStopAtLevel=4", "-Xms512m", "-Xmx512m")
WARM_UP_DRAINS = 1
OF_CONSUMERS = 2  # properties that a consumer adds to each message: MIN_OFFSET, MAX_OFFSET
QUEUE_FILE = CQ_FILE_UNITS * CQ_UNIT.itemsize
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


class JavaPeer:
    """A program of java/ that answers each line with a line of JSON.

    Args:
        source: its file's name.
        arguments: of the program.
        home: a directory for RocketMQ's own files.
    """

    def __init__(
        self, rocketmq: RocketMq, jvm: Sequence[str], source: str, arguments: Sequence[str], home: str
    ) -> None:
        command = [rocketmq.java, *jvm, f"-Duser.home={home}", "-cp", rocketmq.class_path]
        command += [str(HERE / "java" / source), *arguments]
        self._source = source
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line: str) -> tuple[float, dict[str, int]]:
        """One pass: seconds, and what it has found."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self._source} ended with {self._process.wait()}")
        found: dict[str, int] = json.loads(answer)
        return found.pop("nanoseconds") / 1e9, found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.__exit__(kind, value, trace)  # closes its input, which ends it


class DecodeLog(JavaPeer):
    """java/DecodeLog.java on the segments of a store, for as many passes as one likes."""

    def __init__(self, rocketmq: RocketMq, store: Store, home: str) -> None:
        segments = map(str, sorted((store.root / "commitlog").iterdir()))
        super().__init__(rocketmq, JVM, "DecodeLog.java", [*segments], home)

    def run(self, check_crc: bool) -> dict[str, int]:
        """One pass."""
        return self.ask("on" if check_crc else "off")[1]

    def decompress(self) -> dict[str, int]:
        """One pass that decompresses bodies and checks CRCs."""
        return self.ask("decompress")[1]


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
# RocketMQ's consumers


class Consumers:
    """A broker on a copy of a store, and java/ConsumeLog.java with a consumer for each of CONSUMERS cores.

    Args:
        directory: for the copy, which a broker changes, and for RocketMQ's own files.
    """

    def __init__(self, rocketmq: RocketMq, store: Store, directory: Path) -> None:
        self._rocketmq = rocketmq
        self._store = store
        self._directory = directory
        self._topics = sorted(path.name for path in (store.root / "consumequeue").iterdir())
        self._processes = contextlib.ExitStack()

    def __enter__(self) -> Consumers:
        bench, spec = self._rocketmq.bench, self._store.spec
        root = bench.copy_store(self._store.root, self._directory / "store")
        write_topics(root, self._topics, spec.queues)
        sizes = bench.Sizes(spec.segment_size, QUEUE_FILE, SLOTS, ITEMS)
        with self._processes as processes:
            broker = processes.enter_context(_production(bench)(bench.NEWEST, root, self._directory / "home", sizes))
            home = str(self._directory / "home")
            arguments = [broker.namesrv_address, str(CONSUMERS), *self._topics]
            peer = JavaPeer(self._rocketmq, CONSUMER_JVM, "ConsumeLog.java", arguments, home)
            self._peer = processes.enter_context(peer)
            self._processes = processes.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processes.__exit__(kind, value, trace)

    def drain(self, expected: dict[str, int]) -> float:
        """Seconds of one pass, which has to find what we find."""
        seconds, found = self._peer.ask(str(self._store.units))
        assert found == expected, f"{self._store.root}: consumers find {found}, we find {expected}"
        return seconds


def _production(bench: Any) -> Any:
    """The broker of the tests, with a JVM as in production: that of the tests wants quick starts."""

    class Production(bench.Broker):  # type: ignore[misc]
        def _spawn(self, name: str, class_path: str, *arguments: str, pipes: bool = False) -> Any:
            jvm = BROKER_JVM if name == "broker" else ()
            return super()._spawn(name, class_path, *jvm, *arguments, pipes=pipes)

    return Production


def consumer_rows(stores: Stores, repeat: int, spark: SparkSession) -> Iterator[Row]:
    """A consumer for each core drains a store from its broker; we read it in this process, and in Spark."""
    try:
        rocketmq = RocketMq()
    except Unavailable as why:
        yield Row("RocketMQ's DefaultLitePullConsumer", None, f"not measured: {' '.join(str(why).split())}")
        return
    for text, store in (("1 KiB", stores.large), ("100 B", stores.small)):
        read = noop(spark.read.format("rmqstore").load(str(store.root)))
        read()  # the JVM compiles, the workers import
        ours: dict[str, Callable[[], object]] = {
            "in one process": partial(scan_store, store, verify_crc=True),
            "local[2]": read,
        }
        best = consumer_turns(rocketmq, store, repeat, ours)
        speed = {name: store.units / seconds / 1e6 for name, seconds in best.items()}
        consumers = f"{CONSUMERS} consumers of RocketMQ {rocketmq.version}"
        yield Row(f"{text} bodies, {consumers} from a broker", speed["consumers"], "M messages/s")
        for name in ours:
            what = f"{text} bodies, {name}, all columns with properties / {consumers}"
            yield Row(what, speed[name], "M messages/s", speed[name] / speed["consumers"], ">= 5")


def consumer_turns(
    rocketmq: RocketMq, store: Store, repeat: int, ours: dict[str, Callable[[], object]]
) -> dict[str, float]:
    """Seconds of the best of `repeat` runs of "consumers", without their start, and of each of `ours`."""
    expected = totals(store)
    del expected["idChars"]  # consumers have another msgId
    expected["properties"] += OF_CONSUMERS * store.units
    best = dict.fromkeys(["consumers", *ours], float("inf"))
    with (
        tempfile.TemporaryDirectory(prefix="rmqstore-bench-", dir=store.root.parent) as scratch,
        Consumers(rocketmq, store, Path(scratch)) as theirs,
    ):
        for _ in range(WARM_UP_DRAINS):
            theirs.drain(expected)
        for _ in range(repeat):
            best["consumers"] = min(best["consumers"], theirs.drain(expected))
            for name, seconds in in_turns(1, ours).items():
                best[name] = min(best[name], seconds)
    return best


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
