"""What a stream costs in Spark: how fast it catches up, what it takes while nothing comes, and how soon a message is
there."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from kafka import Kafka, Unavailable
from measure import Row, Stores, in_turns, noop
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import rmqstore_spark

IDLE_SECONDS = 10
FRESH_SECONDS = 20
WARM_SECONDS = 5  # of them, until the JVM has compiled
RATE = 20  # messages a second
TRIGGER = "200 milliseconds"
_BODY = b"x" * 100
_TICKS = os.sysconf("SC_CLK_TCK")


def stream_rows(stores: Stores, repeat: int, spark: SparkSession, scratch: Path) -> Iterator[Row]:
    """All of them; scratch is where checkpoints are."""
    yield from _catching_up(stores, repeat, spark, scratch)
    yield from _idle(stores, spark, scratch)
    yield from _freshness(repeat, spark, scratch)


def _catching_up(stores: Stores, repeat: int, spark: SparkSession, scratch: Path) -> Iterator[Row]:
    store = stores.large
    root = str(store.root)
    numbers = iter(range(1000))
    triggers: list[float] = []

    def catch_up() -> None:
        frame = spark.readStream.format("rmqstore").option("startingOffsets", "earliest").load(root)
        query = _started(frame, scratch / f"catching-up-{next(numbers)}", availableNow=True)
        query.awaitTermination()
        triggers.append(sum(progress.durationMs["triggerExecution"] for progress in query.recentProgress) / 1000)

    cases: dict[str, Callable[[], object]] = {
        "batch": noop(spark.read.format("rmqstore").load(root)),
        "stream": catch_up,
    }
    in_turns(1, cases)
    triggers.clear()
    best = in_turns(repeat, cases)
    for what, seconds, goal in (("its batches", min(triggers), ">= 0.8"), ("from start to end", best["stream"], "")):
        rate, ratio = store.units / seconds / 1e6, best["batch"] / seconds
        yield Row(f"a stream that catches up, {what} / batch scan", rate, "M messages/s", ratio, goal)


def _idle(stores: Stores, spark: SparkSession, scratch: Path) -> Iterator[Row]:
    frame = spark.readStream.format("rmqstore").load(str(stores.large.root))
    query = _started(frame, scratch / "idle")
    try:
        time.sleep(WARM_SECONDS)
        before, began = _python_seconds(), time.monotonic()
        time.sleep(IDLE_SECONDS)
        used = (_python_seconds() - before) / (time.monotonic() - began)
        _check(query)
    finally:
        query.stop()
    yield Row("an idle stream, default trigger: CPU of our processes", 100 * used, "% of a core", None, "<= 10")


class _Source(NamedTuple):
    """What a query reads, and how it is fed.

    Attributes:
        stream: makes it.
        column: of it, what tells which row this is.
        send: a message with such a key, until it is acknowledged; None where rows come by themselves, and tell when.
    """

    stream: Callable[[], DataFrame]
    column: str
    send: Callable[[str], object] | None


def _freshness(repeat: int, spark: SparkSession, scratch: Path) -> Iterator[Row]:
    """From when a message is acknowledged, or the time in a row of Spark's rate source, until a batch's rows are here:
    of all turns together."""
    root = scratch / "fresh"

    def write(key: str) -> None:
        rows = {"topic": ["Fresh"], "queueId": [0], "keys": [key], "body": [_BODY]}
        rmqstore_spark.write_store(root, pa.table(rows))

    write("")
    sources = {
        "a write": _Source(lambda: spark.readStream.format("rmqstore").load(str(root)), "keys", write),
        "rate": _Source(
            lambda: spark.readStream.format("rate").option("rowsPerSecond", RATE).load(),
            "cast(timestamp as double)",
            None,
        ),
    }
    with contextlib.ExitStack() as running:
        try:
            kafka = running.enter_context(Kafka(spark, scratch / "kafka"))
        except Unavailable as why:
            yield Row("Spark's Kafka source", None, f"not measured: {' '.join(str(why).split())}")
        else:
            send = partial(kafka.send, body=_BODY.decode())
            sources["a Kafka broker's answer"] = _Source(kafka.stream, "cast(key as string)", send)
        delays: dict[str, list[float]] = {name: [] for name in sources}
        for turn in range(repeat):
            for name, source in sources.items():
                delays[name] += _delays(source, scratch / f"fresh-{name}-{turn}")
    for percent in (50, 99):
        of = {name: float(np.percentile(found, percent)) for name, found in delays.items()}
        rate = of.pop("rate")
        for name, found in of.items():
            goal = "<= 2" if name == "a write" and percent == 99 else ""
            what = f"from {name} to the sink, trigger of {TRIGGER}, p{percent} / Spark's rate source"
            yield Row(what, found * 1e3, "ms", found / rate, goal)


def _delays(source: _Source, checkpoint: Path) -> list[float]:
    """Seconds of each row, but for those of the first ones."""
    sent: dict[str, float] = {}
    found: list[tuple[Any, float]] = []

    def take(batch: DataFrame, _: int) -> None:
        values = [row[0] for row in batch.selectExpr(source.column).collect()]
        now = time.time()
        found.extend((value, now) for value in values)

    writer = source.stream().writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(processingTime=TRIGGER).start()
    try:
        while not query.recentProgress:
            _check(query)
            time.sleep(0.1)
        begin = time.monotonic()
        for number in range(RATE * FRESH_SECONDS):
            if source.send:
                source.send(str(number))
                sent[str(number)] = time.time()
            time.sleep(max(0.0, begin + (number + 1) / RATE - time.monotonic()))
        query.processAllAvailable()
    finally:
        query.stop()
    times = [(sent[value] if source.send else value, at) for value, at in found]
    assert len(times) >= len(sent)
    least = min(born for born, _ in times) + WARM_SECONDS
    return [at - born for born, at in times if born >= least]


def _started(frame: DataFrame, checkpoint: Path, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def _check(query: StreamingQuery) -> None:
    """What has ended a query, ends the measurement."""
    if (why := query.exception()) is not None:
        raise why


def _python_seconds() -> float:
    """CPU seconds that all Python processes below this one have used."""
    stats: dict[int, list[str]] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                text = (entry / "stat").read_text()
            except OSError:  # it has ended
                continue
            name, _, rest = text.rpartition(")")
            names[int(entry.name)], stats[int(entry.name)] = name.partition("(")[2], rest.split()
    mine = {os.getpid()}
    while more := {pid for pid, stat in stats.items() if int(stat[1]) in mine} - mine:
        mine |= more
    mine.remove(os.getpid())
    return sum((int(stats[pid][11]) + int(stats[pid][12])) / _TICKS for pid in mine if names[pid].startswith("python"))
