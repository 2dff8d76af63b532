"""Faces: Store, the command line and Spark's reader give the rows that the plain truth has."""

from __future__ import annotations

import io
import json
import random
from contextlib import redirect_stderr, redirect_stdout

from pyspark.sql.pandas.types import from_arrow_schema
from support.reading import rows_of

import rmqstore_spark
from machine.compare_rows import compare_rows
from machine.expected import Truth
from machine.past import Difference, Past, Row
from machine.selections import wanted
from rmqstore_spark.cli.commands import Rmqstore
from rmqstore_spark.columns import DEFAULT_COLUMNS, arrow_schema
from rmqstore_spark.errors import OptionError, RmqStoreError
from rmqstore_spark.spark.datasource import RmqStoreDataSource


def messages(past: Past, truth: Truth, rng: random.Random) -> None:
    """The same selection by all of them."""
    wish = wanted(past, rng)
    mode = "DROPMALFORMED" if truth.may_fail else "FAILFAST"
    options = {"mode": mode, **wish.options, "maxPartitionBytes": str(rng.choice((500, 5000, 1 << 30)))}
    for name, read in (("Store", _by_store), ("Spark", _by_spark)):
        try:
            found = read(past, options)
        except OptionError as why:
            if name != "Store":
                raise Difference(f"faces: {name} refuses what Store does", f"{options}: {why}") from None
            return
        except RmqStoreError as why:
            raise Difference(f"faces: {name} ends with an error", f"{options}: {why}") from None
        try:
            compare_rows(truth, found, f"{name} {options}", wish)
        except Difference as why:
            raise Difference(f"faces: {name}: {why.kind}", why.text) from None
    if not any(wish.may_miss(m.row) for m in truth.must):
        _command_line(past, truth, options, [m.row for m in truth.must if wish.has(m.row)])


def _by_store(past: Past, options: dict[str, str]) -> list[Row]:
    reader = rmqstore_spark.Store(past.root).messages(**options)  # type: ignore[arg-type]
    return [row for batch in reader for row in rows_of(batch)]


def _by_spark(past: Past, options: dict[str, str]) -> list[Row]:
    """As Spark's workers do it, without a JVM."""
    source = RmqStoreDataSource({"path": str(past.root), **options})
    reader = source.reader(from_arrow_schema(arrow_schema(DEFAULT_COLUMNS)))
    found: list[Row] = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            found += rows_of(batch)
    return found


_SHOWN = ("topic", "queueId", "queueOffset", "commitLogOffset", "storeSize")


def _command_line(past: Past, truth: Truth, options: dict[str, str], rows: list[Row]) -> None:
    if truth.may:
        return
    arguments = [
        text for name, value in options.items() if name != "maxPartitionBytes" for text in (f"--{name}", value)
    ]
    out = run(["messages", str(past.root), *arguments, "--columns", ",".join(_SHOWN), "--format", "json"])
    found = [json.loads(line) for line in out.splitlines()]
    expected = [{name: row[name] for name in _SHOWN} for row in rows]
    if found != expected:
        raise Difference("faces: the command line gives other rows", f"{arguments}: {len(found)} for {len(expected)}")


def tail(past: Past, truth: Truth, rng: random.Random) -> None:
    """The last messages: those of a group's that it has not consumed."""
    if truth.may or truth.may_fail or not past.groups:
        return
    group = rng.choice(sorted(past.groups))[0]
    places = {(t, q): at for (g, t), some in past.groups.items() if g == group for q, at in some.items()}
    topics = {topic for topic, _ in places}
    rows = [m.row for m in truth.must if m.topic in topics and m.queue_offset >= places.get(m.queue, 0)]
    count = rng.choice((3, 1000))
    arguments = ["--startingOffsets", f"group:{group}", "--limit", str(count), "--columns", "commitLogOffset"]
    out = run(["tail", str(past.root), *arguments, "--format", "json"])
    found = [json.loads(line)["commitLogOffset"] for line in out.splitlines()]
    if found != [row["commitLogOffset"] for row in rows][-count:]:
        raise Difference("faces: tail gives other rows", f"{arguments}: {len(found)} for {min(count, len(rows))}")


def tables(past: Past, truth: Truth, rng: random.Random) -> None:
    """A table by the command line is that of Store."""
    name = rng.choice(("queues", "topics", "offsets", "groups", "segments", "index"))
    rows = rmqstore_spark.Store(past.root).table(name).to_pylist()
    out = run([name, str(past.root), "--format", "json"])
    if len(out.splitlines()) != len(rows):
        raise Difference(f"faces: table {name} has other rows", f"{len(out.splitlines())} for {len(rows)}")


def run(arguments: list[str]) -> str:
    """The command line in this process: what it prints."""
    sink = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(sink), redirect_stderr(io.StringIO()):
        command = Rmqstore()
        with command.make_context("rmqstore", arguments) as context:
            command.invoke(context)
        sink.flush()
    return sink.buffer.getvalue().decode()


STEPS = (messages, messages, tail, tables)
