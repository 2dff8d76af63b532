"""Covering reads: six columns that ConsumeQueues have, with `trust=queues`, of a store four times as large."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from generate import Store
from lookups import larger
from measure import Row, Stores, batches_of, in_turns, noop, reader_of, scan_store
from null_source import save_batch
from pyspark.sql import SparkSession

COLUMNS = ("topic", "queueId", "queueOffset", "commitLogOffset", "storeSize", "store")


def covering_rows(stores: Stores, repeat: int, spark: SparkSession, scratch: Path) -> Iterator[Row]:
    """Against all columns in this process, and in Spark against the null source with the same rows."""
    store = larger(stores)
    size = f"{store.end / 1e9:.1f} GB, 1 KiB bodies"
    best = in_turns(repeat, {"all": lambda: scan_store(store, verify_crc=True), "covering": lambda: drained(store)})
    million = store.units / 1e6
    what = f"{size}: covering read of six columns, in process / all columns"
    yield Row(what, million / best["covering"], "M messages/s", best["all"] / best["covering"], ">= 15")
    read = bytes_read(store)
    yield Row(f"{size}: bytes that it reads / the log's", read / 1e6, "MB", read / store.end, "<= 0.03")

    reader, schema = reader_of(store, names=COLUMNS, trust="queues")
    partitions = reader.partitions()
    batch = max(reader.read(partitions[0]), key=lambda found: found.num_rows)
    batch_file = scratch / "covering.arrow"
    save_batch(pa.Table.from_batches([batch]).combine_chunks().to_batches()[0], batch_file)
    null = spark.read.format("nullsource").schema(schema)
    null = null.options(batch=str(batch_file), rows=store.units, partitions=len(partitions))
    covering = spark.read.format("rmqstore").schema(schema).options(trust="queues").load(str(store.root))
    cases = {"null": noop(null.load()), "covering": noop(covering)}
    in_turns(2, cases)  # the JVM compiles, the workers import
    best = in_turns(3 * repeat, cases)
    what = f"{size}: covering read of six columns, local[2] / null source"
    yield Row(what, million / best["covering"], "M messages/s", best["null"] / best["covering"], ">= 0.8")


def drained(store: Store) -> None:
    rows = sum(batch.num_rows for batch in batches_of(store, names=COLUMNS, trust="queues"))
    assert rows == store.units, f"{store.root}: {rows} rows, {store.units} units were written"


def bytes_read(store: Store) -> int:
    """What the tasks read, planning left out."""
    reader, _ = reader_of(store, names=COLUMNS, trust="queues")
    partitions = reader.partitions()
    files = {id(piece.store.files): piece.store.files for p in partitions for piece in p.value.ranges}.values()
    before: int = sum(each.bytes for each in files)
    for partition in partitions:
        for _ in reader.read(partition):
            pass
    after: int = sum(each.bytes for each in files)
    return after - before
