"""`make bench`: what reading costs, as ratios of things measured in the same run.

    python benchmarks/bench.py [--dir DIR] [--bytes 1GiB] [--repeat 3] [--only SECTION] [--json FILE]

Machines differ and are noisy, so no row is judged by an absolute number where a ratio will do. What is compared runs in
turns (A B C, A B C, ...) and the best of each counts: a slow spell then hits every side alike.
The stores are written once and kept (see generate.py).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
from all_cores import all_cores_rows
from bodies import body_rows
from broker_rebuild import rebuild_rows
from commands import command_rows
from covering import covering_rows
from dledger import dledger_rows
from drop_cache import drop_cache_rows
from engines import engine_rows
from generate import Store, size_of
from kinds import kinds_rows
from lookups import lookup_rows, selection_rows
from many import many_rows
from measure import (
    MIB,
    Row,
    Stores,
    Window,
    batches_of,
    busy_cores,
    cells_of,
    in_turns,
    noop,
    reader_of,
    scan_store,
    show,
    spark_session,
)
from null_source import save_batch
from peers import consumer_rows, decoder_rows, naive_rows, parquet_rows
from pyspark.sql import SparkSession
from remote import remote_rows
from remote_rounds import rounds_rows
from rocksdb_queues import rocksdb_rows
from scale import QUEUES, SEGMENTS, scale_rows
from stream import stream_rows
from write_kernel import write_kernel_rows
from write_store import commit_rows, spark_copy_rows, write_rows

SECTIONS = (
    "kernel",
    "bodies",
    "write-kernel",
    "commit",
    "spark",
    "write",
    "plan",
    "select",
    "memory",
    "peers",
    "scale",
    "remote",
    "command",
    "all-cores",
    "engines",
    "stream",
    "dledger",
    "kinds",
    "rocksdb",
    "many",
    "drop-cache",
)
WITH_SPARK = {"spark", "select", "write", "memory", "peers", "stream"}
MEMCPY_BYTES = 256 * MIB
NULL_BATCH_BYTES = MIB
PARTITION_SIZES = ("128m", "512m")  # the default; and one that makes a task for each core, so that Spark's 20-30 ms for
# each do not hide how long the reading takes
WORKER_LIMIT_MB = 300
BUSY = 0.2  # cores; above it a warning is given


def kernel_rows(stores: Stores, repeat: int) -> Iterator[Row]:
    large, small = stores.large, stores.small
    source = np.ones(MEMCPY_BYTES, np.uint8)
    target = np.ones_like(source)  # written once, so no page fault is timed
    schema = next(batches_of(large)).schema
    windows = {"1 KiB": Window(large, schema), "100 B": Window(small, schema)}
    best = in_turns(
        repeat,
        {
            "memcpy": lambda: np.copyto(target, source),
            "1 KiB, off, file": lambda: scan_store(large, verify_crc=False),
            "1 KiB, off, memory": lambda: windows["1 KiB"].decode(verify_crc=False),
            "1 KiB, on, file": lambda: scan_store(large, verify_crc=True),
            "1 KiB, on, memory": lambda: windows["1 KiB"].decode(verify_crc=True),
            "memcpy again": lambda: np.copyto(target, source),
            "100 B, on, file": lambda: scan_store(small, verify_crc=True),
            "100 B, on, memory": lambda: windows["100 B"].decode(verify_crc=True),
        },
        clock=time.process_time,
    )
    memcpy = MEMCPY_BYTES / min(best["memcpy"], best["memcpy again"])
    yield Row("memcpy, one core", memcpy / 1e9, "GB/s")
    for crc in ("off", "on"):
        for origin, size in (("file", large.end), ("memory", windows["1 KiB"].end)):
            speed = size / best[f"1 KiB, {crc}, {origin}"]
            what = f"kernel, 1 KiB bodies, CRC {crc}, {origin} to Arrow / memcpy"
            yield Row(what, speed / 1e9, "GB/s", speed / memcpy, ">= 0.35")
    for origin, one, other in (("file", small, large), ("memory", windows["100 B"], windows["1 KiB"])):
        each = best[f"100 B, on, {origin}"]
        ratio = one.end / each / (other.end / best[f"1 KiB, on, {origin}"])
        what = f"kernel, 100 B bodies, CRC on, {origin} to Arrow / as many bytes with 1 KiB bodies"
        yield Row(what, each / one.units * 1e9, "ns/message", ratio, ">= 0.5")


def contains_rows(stores: Stores, repeat: int) -> Iterator[Row]:
    """Messages whose body contains a text that none has, or nearly all have, against all messages, same columns."""
    for text, store in (("1 KiB", stores.large), ("100 B", stores.small)):
        cases: dict[str, Callable[[], object]] = {
            "scan": functools.partial(scan_store, store, verify_crc=True),
            "none": functools.partial(containing, store, "no body has this"),
            "all": functools.partial(containing, store, "r"),
        }
        best = in_turns(repeat, cases)
        for name in ("none", "all"):
            what = f"kernel, {text} bodies, bodyContains that {name} have / the plain scan"
            yield Row(what, store.end / best[name] / 1e9, "GB/s", best["scan"] / best[name], ">= 0.8")


def containing(store: Store, text: str) -> int:
    return sum(batch.num_rows for batch in batches_of(store, bodyContains=text))


def spark_rows(stores: Stores, repeat: int, spark: SparkSession, scratch: Path) -> Iterator[Row]:
    goals = {("1 KiB", "but properties"): ">= 0.7", ("100 B", "but properties"): ">= 0.8"}
    for text, store in (("1 KiB", stores.large), ("100 B", stores.small)):
        cases: dict[str, Callable[[], object]] = {}
        for columns, without in (("but properties", ("properties",)), ("with properties", ())):
            reader, schema = reader_of(store, without=without)
            batch_file = scratch / f"{store.root.name}-{len(schema)}.arrow"
            save_batch(ready_made(store, without), batch_file)
            null = spark.read.format("nullsource").schema(schema)
            null = null.options(batch=str(batch_file), rows=store.units, partitions=len(reader.partitions()))
            cases[f"null, {columns}"] = noop(null.load())
            cases[columns] = noop(spark.read.format("rmqstore").schema(schema).load(str(store.root)))
        if text == "1 KiB":
            for size in PARTITION_SIZES:
                read = spark.read.format("rmqstore").option("maxPartitionBytes", size)
                cases[f"all, {size}"] = noop(read.load(str(store.root)))
                cases[f"narrow, {size}"] = noop(read.schema("queueOffset bigint").load(str(store.root)))
        in_turns(1, cases)  # the JVM compiles, the workers import
        best = in_turns(repeat, cases)
        for columns in ("but properties", "with properties"):
            yield Row(
                f"{text} bodies, local[2], all columns {columns} / null source",
                store.units / best[columns] / 1e6,
                "M messages/s",
                best[f"null, {columns}"] / best[columns],
                goals.get((text, columns), ""),
            )
        for size in PARTITION_SIZES if text == "1 KiB" else ():
            yield Row(
                f"{text} bodies, local[2], queueOffset alone / all columns, maxPartitionBytes={size}",
                store.units / best[f"narrow, {size}"] / 1e6,
                "M messages/s",
                best[f"all, {size}"] / best[f"narrow, {size}"],
                ">= 5",
            )


def ready_made(store: Store, without: tuple[str, ...]) -> pa.RecordBatch:
    """About 1 MB: the first rows of the real scan, in one batch."""
    first: list[pa.RecordBatch] = []
    for batch in batches_of(store, without=without):
        first.append(batch)
        if sum(b.nbytes for b in first) >= NULL_BATCH_BYTES:
            break
    table = pa.Table.from_batches(first)
    rows = max(1, min(table.num_rows, table.num_rows * NULL_BATCH_BYTES // table.nbytes))
    return table.slice(0, rows).combine_chunks().to_batches()[0]


def plan_rows(stores: Stores, repeat: int) -> Iterator[Row]:
    def plan(store: Store) -> Callable[[], object]:
        return lambda: reader_of(store)[0].partitions()

    cases = {"1 KiB": plan(stores.large), "100 B": plan(stores.small), "empty": plan(stores.nearly_empty)}
    best = in_turns(5 * repeat, cases)
    yield Row("planning, nearly empty store", best["empty"] * 1e3, "ms")
    yield Row("planning, 1 KiB bodies / nearly empty", best["1 KiB"] * 1e3, "ms", best["1 KiB"] / best["empty"])
    ratio = best["100 B"] / best["1 KiB"]
    yield Row("planning, 100 B bodies / 1 KiB (3.7 times the messages)", best["100 B"] * 1e3, "ms", ratio, "<= 1.5")


def memory_rows(stores: Stores, spark: SparkSession) -> Iterator[Row]:
    for text, store in (
        ("1 KiB bodies, 1 GiB segments", stores.large),
        ("1 KiB bodies, 32 MiB segments", stores.segmented),
        ("100 B bodies, 1 GiB segments", stores.small),
    ):
        with WorkerPeak() as peak:
            noop(spark.read.format("rmqstore").load(str(store.root)))()
        goal = f"<= {WORKER_LIMIT_MB}"
        yield Row(f"peak memory of a worker so far, {text}", peak.kilobytes * 1024 / 1e6, "MB", None, goal)


class WorkerPeak:
    """VmHWM, the highest resident size ever, of the Python task workers below this process.

    A worker is what a `pyspark.daemon pyspark.worker` has forked; it keeps that command line.
    """

    kilobytes = 0

    def __enter__(self) -> WorkerPeak:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if not self.kilobytes:
            raise RuntimeError("no Python worker of Spark was seen")

    def _watch(self) -> None:
        while True:
            for pid in self._workers():
                with contextlib.suppress(OSError):
                    status = Path(f"/proc/{pid}/status").read_text()
                    high = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
                    self.kilobytes = max([self.kilobytes, *map(int, high)])
            if self._done.wait(0.05):
                return

    @staticmethod
    def _workers() -> list[int]:
        parents: dict[int, int] = {}
        daemons: set[int] = set()  # and their children
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):
                    parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    command = (entry / "cmdline").read_bytes().split(b"\0")
                    if command[-3:-1] == [b"pyspark.daemon", b"pyspark.worker"]:
                        daemons.add(int(entry.name))

        def is_mine(pid: int) -> bool:
            while pid > 1 and pid != os.getpid():
                pid = parents.get(pid, 0)
            return pid == os.getpid()

        return [pid for pid in daemons if parents[pid] in daemons and is_mine(pid)]


def measured(args: argparse.Namespace, stores: Stores) -> Iterator[Row]:
    """The rows of all sections that are asked for, each as soon as it is measured."""
    directory, repeat = args.dir.resolve(), args.repeat
    alone: dict[str, Callable[[Path], Iterable[Row]]] = {
        "kernel": lambda _: itertools.chain(kernel_rows(stores, repeat), contains_rows(stores, repeat)),
        "bodies": lambda _: body_rows(stores, repeat),
        "write-kernel": lambda _: write_kernel_rows(stores, repeat),
        "commit": lambda scratch: commit_rows(stores, repeat, scratch),
        "plan": lambda _: plan_rows(stores, repeat),
        "scale": lambda _: scale_rows(directory, repeat, args.most_queues, args.most_segments),
        "remote": lambda _: itertools.chain(remote_rows(stores, repeat), rounds_rows(stores)),
        "command": lambda scratch: command_rows(stores, repeat, directory, scratch),
        "all-cores": lambda _: all_cores_rows(stores, repeat),
        "engines": lambda _: engine_rows(stores, repeat),
        "dledger": lambda _: dledger_rows(stores, repeat),
        "kinds": lambda _: kinds_rows(stores, directory, repeat),
        "rocksdb": lambda _: rocksdb_rows(directory, repeat, args.most_queues),
        "many": lambda _: many_rows(directory, repeat),
        "drop-cache": lambda _: drop_cache_rows(stores, repeat),
        "peers": lambda _: itertools.chain(decoder_rows(stores, repeat), rebuild_rows(stores, repeat)),
    }
    asked = args.only or SECTIONS
    for rows in (alone[name] for name in alone if name in asked):
        with tempfile.TemporaryDirectory(prefix="rmqstore-bench-") as scratch:
            yield from rows(Path(scratch))
    if WITH_SPARK & set(asked):
        with tempfile.TemporaryDirectory(prefix="rmqstore-bench-") as scratch, spark_session(Path(scratch)) as spark:
            yield from measured_with_spark(asked, stores, repeat, spark, Path(scratch))


def measured_with_spark(
    asked: Collection[str], stores: Stores, repeat: int, spark: SparkSession, scratch: Path
) -> Iterator[Row]:
    sections: dict[str, Callable[[], Iterable[Row]]] = {
        "memory": lambda: memory_rows(stores, spark),  # before the workers have met other sources
        "spark": lambda: spark_rows(stores, repeat, spark, scratch),
        "select": lambda: itertools.chain(
            lookup_rows(stores, repeat, spark, scratch),
            selection_rows(stores, repeat, spark),
            covering_rows(stores, repeat, spark, scratch),
        ),
        "write": lambda: itertools.chain(
            write_rows(stores, repeat, spark, scratch), spark_copy_rows(stores, repeat, spark, scratch)
        ),
        "stream": lambda: stream_rows(stores, repeat, spark, scratch),
        "peers": lambda: itertools.chain(
            consumer_rows(stores, repeat, spark), parquet_rows(stores, repeat, spark), naive_rows(stores, repeat, spark)
        ),
    }
    for rows in (sections[name] for name in sections if name in asked):
        yield from rows()


def main() -> None:
    default = Path(tempfile.gettempdir()) / "rmqstore-bench"
    parser = argparse.ArgumentParser(description="Speed and memory of reading, as ratios measured in one run.")
    parser.add_argument("--dir", type=Path, default=default, help="where the stores are kept (default: below $TMPDIR)")
    parser.add_argument(
        "--bytes", type=size_of, default=1 << 30, help="of commitlog in each large store (default 1GiB)"
    )
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many counts (default 3)")
    parser.add_argument("--only", choices=SECTIONS, action="append", help="may be given more than once")
    parser.add_argument(
        "--most-queues", type=int, default=QUEUES[-1], help="leave out larger stores of section scale (default 100000)"
    )
    parser.add_argument("--most-segments", type=int, default=SEGMENTS[-1], help="the same of segments (default 5000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there too")
    args = parser.parse_args()
    stores = Stores(args.dir.resolve(), args.bytes)
    print(f"Stores in {args.dir}: kept for the next run, delete them at will.", file=sys.stderr)

    busy = busy_cores()
    rows: list[Row] = []
    for row in measured(args, stores):
        print("  ".join(("", *filter(None, cells_of(row)))), file=sys.stderr)  # the whole takes an hour
        rows.append(row)
    busy = max(busy, busy_cores())
    show(rows)
    if busy > BUSY:
        print(f"Other processes kept {busy:.1f} cores busy: do not trust these numbers.", file=sys.stderr)
    if args.json:
        about = {"python": platform.python_version(), "pyarrow": pa.__version__, "machine": platform.machine()}
        about |= {"bytes": args.bytes, "repeat": args.repeat, "busy_cores": busy}
        args.json.write_text(
            json.dumps({"about": about, "rows": [{**asdict(r), "verdict": r.verdict} for r in rows]}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
