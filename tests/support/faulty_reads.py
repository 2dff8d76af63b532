"""Reads of a store, again and again, with another one of their system calls failing each time: a program of its own, as
the calls are those of faulty_calls.c, which is preloaded.

It prints a line for each read that gave other rows than the sound one, or raised what is none of our errors.
"""

from __future__ import annotations

import ctypes
import errno
import json
import logging
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import rmqstore_spark
from rmqstore_spark import RmqStoreError, Store
from rmqstore_spark.tables.registry import TABLES
from support import reading
from support.following import Query

MODES = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")
FAILS, IS_SHORT = 0, 1  # as in faulty_calls.c
FAULTS = ((FAILS, errno.EIO), (IS_SHORT, 0))
COVERED = ["topic", "queueId", "commitLogOffset"]  # what units of queues say themselves
COPIED = ["topic", "queueId", "queueOffset", "msgId", "keys", "body"]  # what a copy has unchanged
COLUMNS = ["topic", "queueId", "queueOffset", "commitLogOffset", "msgId", "keys", "body"]

Read = Callable[[], Any]


def reads(root: str) -> Iterator[tuple[str, Read]]:
    """The ways to the store's messages, its tables, and what else a store is asked for."""
    some = Store(root).messages([*COLUMNS, "tags"]).read_all().to_pylist()
    one = next((row for row in some if row["keys"]), some[len(some) // 2])
    topic = {"subscribe": one["topic"]}
    for mode in MODES:
        yield f"all messages, {mode}", _messages(root, mode)
        yield f"a topic, {mode}", _messages(root, mode, **topic)
    yield "a topic, trust=queues", _messages(root, trust="queues", **topic)
    yield "what queues have", _messages(root, columns=COVERED, **topic)
    yield "what queues have, trust=queues", _messages(root, columns=COVERED, trust="queues", **topic)
    yield "a queue", _messages(root, assign=json.dumps({one["topic"]: [one["queueId"]]}))
    offsets = json.dumps({one["topic"]: {str(one["queueId"]): one["queueOffset"]}})
    yield (
        "from an offset",
        _messages(root, assign=json.dumps({one["topic"]: [one["queueId"]]}), startingOffsets=offsets),
    )
    yield "a message id", _messages(root, msgId=one["msgId"])
    if one["keys"]:
        yield "a key", _messages(root, key=one["keys"])
    for row in [row for row in some if row["tags"]][:1]:
        yield "a tag", _messages(root, subscribe=row["topic"], tags=row["tags"])
    yield "a time", _messages(root, startingTimestamp="2026-01-01")
    yield "up to a time", _messages(root, endingTimestamp="2100-01-01")
    yield "an expression", _messages(root, sql92="TAGS IS NOT NULL OR TAGS IS NULL")
    yield "bodies as they are stored", _messages(root, decompress=False, explodeBatches=False)
    yield "the last of each key", _messages(root, compacted=True, **topic)
    yield "what is committed", _messages(root, committed=True)
    if any(name.startswith("%LMQ%") for name in os.listdir(f"{root}/consumequeue")):
        yield "a light queue", _messages(root, columns=[*COLUMNS, "multiDispatch"], subscribe="%LMQ%a")
        yield "a light queue, trust=queues", _messages(root, trust="queues", subscribe="%LMQ%a")
    yield "places in static topics", _messages(root, columns=["commitLogOffset", "logicQueueId", "logicOffset"])
    for name in TABLES:
        yield f"table {name}", _table(root, name)
    yield "get", lambda: Store(root).get(one["msgId"]).to_pylist()
    yield "tasks", lambda: [row for task in Store(root).tasks() for batch in task.read() for row in batch.to_pylist()]
    yield "offsets_at", lambda: Store(root).offsets_at("2026-01-01")
    groups = {row["group"] for row in Store(root).table("offsets").to_pylist()} if _has(root, "offsets") else ()
    if groups:
        yield "offsets_of", lambda: Store(root).offsets_of(min(groups))
    yield "history", lambda: Store(root).history(one["msgId"]).to_pylist()
    yield "a stream", lambda: _stream(root)
    yield "copy", lambda: _copied(root, lambda target: Store(root).copy(target))
    yield "salvage", lambda: _copied(root, lambda target: Store(root).salvage(target))


def _messages(
    root: str, mode: str = "FAILFAST", trust: str = "log", columns: Sequence[str] = COLUMNS, **options: Any
) -> Read:
    store = Store(root, mode=mode, trust=trust)  # type: ignore[arg-type]
    return lambda: store.messages(columns, **options).read_all().to_pylist()


def _table(root: str, name: str) -> Read:
    return lambda: Store(root).dataset(name).to_table().to_pylist()


def _has(root: str, table: str) -> bool:
    try:
        Store(root).table(table)
    except RmqStoreError:
        return False
    return True


def _stream(root: str) -> list[Any]:
    """A query that goes on after an error, as Spark starts it once more, has each row once."""
    query, told = Query(root, startingOffsets="earliest"), None
    try:
        query.run()
    except RmqStoreError as why:
        told = why
        query.restart()
        if len(query.offsets) > 1:  # a batch was planned, but did not come to its end
            query.rows = query.rows_between(-2, -1)
        query.run()
    expected = reading.read(root)
    assert query.rows == expected, f"a stream: {len(query.rows)} rows, not {len(expected)}"
    if told is not None:
        raise told
    return query.rows


def _copied(root: str, make: Callable[[Path], Any]) -> list[Any]:
    """The rows of a copy, which is whole, or not there at all; an error says which."""
    target, told = Path(root).with_name("copied"), None
    try:
        try:
            make(target)
        except RmqStoreError as why:
            told = why
        assert target.exists() == (told is None or "is whole" in str(told)), f"a part of a copy: {told}"
        if target.exists():
            rows: list[Any] = Store(target).messages(COPIED).read_all().to_pylist()
            assert [row for row in Store(target).check().to_pylist() if row["severity"] == "error"] == []
    finally:
        shutil.rmtree(target, ignore_errors=True)
    if told is not None:
        raise told
    return rows


def main(root: str, step: int, rng: random.Random) -> None:
    """Let every `step`-th call of each read fail."""
    calls = ctypes.CDLL(os.environ["LD_PRELOAD"])
    calls.faulty_path.restype = ctypes.c_char_p
    logging.disable()
    tried = told = 0
    for name, read in reads(root):
        try:
            expected = read()
        except (rmqstore_spark.OptionError, rmqstore_spark.NotAStoreError):  # this kind of store has no such rows
            continue
        calls.faulty_begin(root.encode(), 0, FAILS, 0)
        assert read() == expected, name
        count = calls.faulty_end()
        for how, error in FAULTS:
            for n in range(1 + rng.randrange(step), count + 1, step):
                calls.faulty_begin(root.encode(), n, how, error)
                try:
                    is_right, found = (got := read()) == expected, f"{len(got)} of {len(expected)} rows, or other ones"
                except RmqStoreError as why:
                    is_right, found = how == FAILS, f"{type(why).__name__}: {why}"
                    told += 1
                except Exception as why:
                    is_right, found = False, f"{type(why).__name__}: {why}"
                finally:
                    calls.faulty_end()
                tried += 1
                if not is_right:
                    print(f"{name}, call {n} of {count} at {calls.faulty_path().decode()}, fault {how}: {found}")
    print(f"{tried} faults, {told} told")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), random.Random(sys.argv[3]))
