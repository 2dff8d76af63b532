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
import sys
from collections.abc import Callable, Iterator
from typing import Any

import rmqstore_spark
from rmqstore_spark import RmqStoreError, Store
from rmqstore_spark.tables.registry import TABLES

MODES = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")
FAILS, IS_SHORT = 0, 1  # as in faulty_calls.c
FAULTS = ((FAILS, errno.EIO), (IS_SHORT, 0))
COLUMNS = ["topic", "queueId", "queueOffset", "commitLogOffset", "msgId", "keys", "body"]

Read = Callable[[], Any]


def reads(root: str) -> Iterator[tuple[str, Read]]:
    """The ways to the store's messages, and its tables."""

    def messages(mode: str = "FAILFAST", trust: str = "log", **options: Any) -> Read:
        store = Store(root, mode=mode, trust=trust)  # type: ignore[arg-type]
        return lambda: store.messages(COLUMNS, **options).read_all().to_pylist()

    some = Store(root).messages(COLUMNS).read_all().to_pylist()
    one = next((row for row in some if row["keys"]), some[len(some) // 2])
    for mode in MODES:
        yield f"all messages, {mode}", messages(mode)
        yield f"a topic, {mode}", messages(mode, subscribe=one["topic"])
    yield "a topic, trust=queues", messages(trust="queues", subscribe=one["topic"])
    yield "a queue", messages(assign=json.dumps({one["topic"]: [one["queueId"]]}))
    offsets = json.dumps({one["topic"]: {str(one["queueId"]): one["queueOffset"]}})
    yield "from an offset", messages(assign=json.dumps({one["topic"]: [one["queueId"]]}), startingOffsets=offsets)
    yield "a message id", messages(msgId=one["msgId"])
    if one["keys"]:
        yield "a key", messages(key=one["keys"])
    yield "a time", messages(startingTimestamp="2026-01-01")
    for name in TABLES:
        yield f"table {name}", _table(root, name)
    yield "offsets_at", lambda: Store(root).offsets_at("2026-01-01")
    yield "history", lambda: Store(root).history(one["msgId"]).to_pylist()


def _table(root: str, name: str) -> Read:
    return lambda: Store(root).dataset(name).to_table().to_pylist()


def main(root: str, step: int, rng: random.Random) -> None:
    """Let every `step`-th call of each read fail."""
    calls = ctypes.CDLL(os.environ["LD_PRELOAD"])
    calls.faulty_path.restype = ctypes.c_char_p
    logging.disable()
    tried = told = 0
    for name, read in reads(root):
        try:
            expected = read()
        except rmqstore_spark.OptionError:  # there is no such table of this kind of store
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
