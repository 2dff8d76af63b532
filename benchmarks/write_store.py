"""What writing costs beside the kernel: `df.write`, the commit, and rebuild, each against what it cannot beat."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from generate import Store
from measure import Row, Stores, batches_of, claim_memory, in_turns
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import rmqstore_spark
from rmqstore_spark.query.options import parse_write_options
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.write.build.staging import Staged
from rmqstore_spark.write.commit import Settings, commit
from rmqstore_spark.write.stage.job_directory import forget, prepare
from rmqstore_spark.write.stage.rows import stage

_JOB = "bench"
_TASKS = 8
_OVERHEAD = 170  # bytes of a message beside its body, about


class NullSink(DataSource):
    """Takes record batches and throws them away: what Spark's own side of an Arrow writer costs."""

    @classmethod
    def name(cls) -> str:
        return "nullsink"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return NullWriter()


class NullWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        pass


def commit_rows(stores: Stores, repeat: int, scratch: Path) -> Iterator[Row]:
    """Without Spark: staged files to a store, and the store's derived files anew."""
    store = stores.large
    root = scratch / "written"
    staged = _stage(store, root)
    size = sum(part.nbytes for part in staged)
    files = [part.path for part in staged]
    for path in files:
        for name in (path, path + ".sizes"):
            os.link(name, f"{name}-kept")
            os.unlink(name)

    target = scratch / "copied"

    def clear() -> None:
        shutil.rmtree(target, ignore_errors=True)
        for name in os.listdir(root):
            if name != ".rmqstore-spark":
                left = root / name
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        for path in files:  # a commit deletes them
            for name in (path, path + ".sizes"):
                if not os.path.exists(name):
                    os.link(f"{name}-kept", name)
        claim_memory(2 * stores.total_bytes)

    def copy() -> None:
        target.mkdir()
        subprocess.run(["cp", *(f"{path}-kept" for path in files), str(target)], check=True)
        _sync(target.iterdir())

    def write() -> None:
        commit(str(root), staged, Settings(Sizes()))

    best = in_turns(repeat, {"cp": copy, "commit": write}, clear)
    yield Row("cp and fsync of staged units", size / best["cp"] / 1e9, "GB/s")
    yield Row(
        "commit, 1 KiB bodies, ConsumeQueue and index included / cp and fsync",
        size / best["commit"] / 1e9,
        "GB/s",
        best["cp"] / best["commit"],
        ">= 0.5",
    )
    best = in_turns(repeat, {"rebuild": lambda: rmqstore_spark.rebuild(root)})
    yield Row("rebuild, 1 KiB bodies, of log", size / best["rebuild"] / 1e9, "GB/s", None, ">= 1.5")
    forget(str(root), _JOB)
    yield from _copy_rows(root, target, size, repeat, stores.total_bytes)
    shutil.rmtree(root)


def _copy_rows(root: Path, target: Path, size: int, repeat: int, total_bytes: int) -> Iterator[Row]:
    """A whole store to a new one, without Spark."""

    def clear() -> None:
        shutil.rmtree(target, ignore_errors=True)
        claim_memory(2 * total_bytes)

    def copy() -> None:
        subprocess.run(["cp", "-r", "--sparse=always", str(root), str(target)], check=True)
        _sync(filter(Path.is_file, target.rglob("*")))

    store = rmqstore_spark.Store(root)
    cases: dict[str, Callable[[], object]] = {
        "cp": copy,
        "copy": lambda: store.copy(target),
        "salvage": lambda: store.salvage(target),
    }
    best = in_turns(repeat, cases, clear)
    for what in ("copy", "salvage"):
        rate, ratio = size / best[what] / 1e9, best["cp"] / best[what]
        yield Row(f"{what} of a store, 1 KiB bodies / cp and fsync", rate, "GB/s", ratio, ">= 0.4")
    shutil.rmtree(target, ignore_errors=True)


def _stage(store: Store, root: Path) -> list[Staged]:
    prepare(str(root), _JOB)
    options = parse_write_options({"path": str(root)})
    batches = list(batches_of(store))
    share = -(-len(batches) // _TASKS)
    return [
        stage(batches[i : i + share], options, str(root), _JOB, f"part-{i}", i) for i in range(0, len(batches), share)
    ]


def write_rows(stores: Stores, repeat: int, spark: SparkSession, scratch: Path) -> Iterator[Row]:
    """`df.write` end to end. Spark makes the rows up as it goes, which costs all sides the same and little."""
    spark.dataSource.register(NullSink)
    store, parquet = scratch / "store", scratch / "parquet"

    def clear() -> None:
        shutil.rmtree(store, ignore_errors=True)
        shutil.rmtree(parquet, ignore_errors=True)
        claim_memory(2 * stores.total_bytes)

    for text, size in (("1 KiB", 1024), ("100 B", 100)):
        count = stores.total_bytes // (size + _OVERHEAD)
        frame = _rows(spark, count, size)
        cases: dict[str, Callable[[], object]] = {
            "null": _into(frame, None, "nullsink"),
            "ours": _into(frame, store, "rmqstore"),
            "parquet": _into(frame, parquet, "parquet"),
            "durable": lambda frame=frame: _durably(frame, parquet),  # type: ignore[misc]
        }
        in_turns(1, cases, clear)
        best = in_turns(3 * repeat, cases, clear)
        rate = count / best["ours"] / 1e6
        what = f"df.write, {text} bodies, local[2]"
        yield Row(f"{what} / null writer", rate, "M messages/s", best["null"] / best["ours"])
        yield Row(f"{what} / Parquet", rate, "M messages/s", best["parquet"] / best["ours"], ">= 1")
        durable = f"{what} / Parquet, its files fsynced"
        yield Row(durable, rate, "M messages/s", best["durable"] / best["ours"], ">= 1.0")


def spark_copy_rows(stores: Stores, repeat: int, spark: SparkSession, scratch: Path) -> Iterator[Row]:
    """A whole store to a new one: Spark reads it and writes it."""
    source, target, copied = stores.large, scratch / "spark-copied", scratch / "copied"

    def clear() -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.rmtree(copied, ignore_errors=True)
        claim_memory(2 * stores.total_bytes)

    def copy() -> None:
        subprocess.run(["cp", "-r", "--sparse=always", str(source.root), str(copied)], check=True)
        for path in filter(Path.is_file, copied.rglob("*")):
            with path.open("rb") as file:
                os.fsync(file.fileno())

    def write() -> None:
        spark.read.format("rmqstore").load(str(source.root)).write.format("rmqstore").mode("append").save(str(target))

    best = in_turns(repeat, {"cp": copy, "write": write}, clear)
    yield Row(
        "copy of a store with Spark, 1 KiB bodies / cp and fsync",
        source.end / best["write"] / 1e9,
        "GB/s",
        best["cp"] / best["write"],
    )
    clear()


def _rows(spark: SparkSession, count: int, size: int) -> DataFrame:
    number = F.col("id").cast("string")
    return spark.range(0, count, numPartitions=_TASKS).select(
        F.lit("Topic").alias("topic"),
        (F.col("id") % 8).cast("int").alias("queueId"),
        F.lit("TagA").alias("tags"),
        F.concat(F.lit("key-"), number).alias("keys"),
        F.lpad(number, 32, "0").alias("msgId"),
        F.concat(F.lit("x" * (size - 20)), F.lpad(number, 20, "0")).cast("binary").alias("body"),
    )


def _durably(frame: DataFrame, path: Path) -> None:
    """As Parquet that is on disk when this returns, as what `df.write` has written into a store is."""
    _into(frame, path, "parquet")()
    _sync((*path.iterdir(), path, path.parent))


def _sync(paths: Iterable[Path]) -> None:
    """Puts these files and directories on disk."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def _into(frame: DataFrame, path: Path | None, format_name: str) -> Callable[[], None]:
    def write() -> None:
        writer = frame.write.format(format_name).mode("append")
        if format_name == "parquet":
            writer = writer.option("compression", "none")
        writer.save(str(path) if path else None)

    return write
