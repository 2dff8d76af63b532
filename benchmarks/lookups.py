"""What a selection costs: against a query that reads nothing, against the full scan, and as the store grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from generate import Store
from measure import MIB, Row, Stores, batches_of, in_turns, noop
from null_source import save_batch
from pyspark.sql import DataFrame, SparkSession

TOPICS = 100  # of equal size, so that one of them is 1 % of a store
LARGE_FACTOR = 4  # the full scan is to take long enough to be compared with


def lookup_rows(stores: Stores, repeat: int, spark: SparkSession, scratch: Path) -> Iterator[Row]:
    """One message by its id: load, plan, read, collect."""
    one, many = stores.large, stores.segmented
    batch_file = scratch / "unread.arrow"
    save_batch(next(batches_of(one)), batch_file)
    schema = spark.read.format("rmqstore").load(str(one.root)).schema
    null = spark.read.format("nullsource").schema(schema).options(batch=str(batch_file), rows=0, partitions=1)
    ids = {"one segment": message_id(one), "segments of 32 MiB": message_id(many)}

    def by_id(store: Store, name: str) -> Callable[[], object]:
        return lambda: found_one(read(spark, store, msgId=ids[name]))

    cases: dict[str, Callable[[], object]] = {
        "nothing": lambda: null.load().collect(),
        "one segment": by_id(one, "one segment"),
        "segments of 32 MiB": by_id(many, "segments of 32 MiB"),
    }
    in_turns(5, cases)  # the JVM compiles, the workers import
    best = in_turns(5 * repeat, cases)
    for name, store in (("one segment", one), ("segments of 32 MiB", many)):
        yield Row(
            f"msgId in {store.segments} segments, load to collect / a query that reads nothing",
            best[name] * 1e3,
            "ms",
            best[name] / best["nothing"],
            "<= 1.3",
        )
    yield Row(
        f"msgId in {many.segments} segments / in {one.segments}",
        best["segments of 32 MiB"] * 1e3,
        "ms",
        best["segments of 32 MiB"] / best["one segment"],
        "<= 1.2",
    )


def selection_rows(stores: Stores, repeat: int, spark: SparkSession) -> Iterator[Row]:
    """A topic and a tag of a larger store, against the full scan and Spark's filter on it."""
    store = larger(stores)
    everything = read(spark, store)
    topic = min((store.root / "consumequeue").iterdir()).name
    by_topic = read(spark, store, subscribe=topic)
    narrow = "queueOffset bigint, tags string"
    tagged = read(spark, store, narrow, subscribe=topic, tags="TagA")
    filtered = read(spark, store, narrow + ", topic string").filter(f"topic = '{topic}' and tags = 'TagA'")
    counts = tagged.count(), filtered.count()
    if counts[0] != counts[1]:
        raise RuntimeError(f"{counts[0]} messages selected, {counts[1]} filtered")
    cases: dict[str, Callable[[], object]] = {
        "full scan": noop(everything),
        "topic": noop(by_topic),
        "tag": lambda: tagged.count(),
        "filter": lambda: filtered.count(),
    }
    in_turns(1, cases)
    best = in_turns(repeat, cases)
    size = f"{store.end / 1e9:.1f} GB, 1 KiB bodies"
    yield Row(
        f"{size}: a topic of 1 %, all columns, full scan / subscribe",
        best["topic"] * 1e3,
        "ms",
        best["full scan"] / best["topic"],
        ">= 20",
    )
    yield Row(
        f"{size}: count by topic and tag, filter on the full scan / options",
        best["tag"] * 1e3,
        "ms",
        best["filter"] / best["tag"],
    )


def larger(stores: Stores) -> Store:
    """A store four times as large, of many topics."""
    return stores.of(1024, total_bytes=LARGE_FACTOR * stores.total_bytes, topics=TOPICS, queues=1)


def read(spark: SparkSession, store: Store, schema: str = "", **options: str) -> DataFrame:
    """A DataFrame, planned anew."""
    reader = spark.read.format("rmqstore").options(**options)
    return (reader.schema(schema) if schema else reader).load(str(store.root))


def message_id(store: Store) -> str:
    """The msgId of some message in the middle of what a first task reads."""
    seen = 0
    for batch in batches_of(store):
        seen += batch.nbytes
        if seen > 16 * MIB:
            return str(batch.column("msgId")[0].as_py())
    raise RuntimeError(f"{store.root} holds less than 16 MiB")


def found_one(frame: DataFrame) -> None:
    rows = frame.collect()
    if len(rows) != 1:
        raise RuntimeError(f"expected one message, found {len(rows)}")
