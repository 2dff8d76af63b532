"""A store of any number of queues is written and read with few descriptors, and none is missing after the messages
count. Each test but the last has a process of its own, which has a limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.patience import HANG

from rmqstore_spark import Store, rebuild, write_store

LIMIT = 256
LONG = [pytest.mark.slow, pytest.mark.long]
NIGHTLY = [*LONG, pytest.mark.nightly]

COMMON = """
import json, os, resource, shutil, sys
import pyarrow as pa
import rmqstore_spark
from rmqstore_spark import Store
from rmqstore_spark.errors import RmqStoreError

SIZES = {"mappedFileSizeCommitLog": "8m", "mappedFileSizeConsumeQueue": 400, "maxHashSlotNum": 50, "maxIndexNum": 200}
home = sys.argv[1]
arguments = [int(text) for text in sys.argv[2:]]

def rows(queues, body):
    topics = [f"T{n % 7}" for n in range(queues)]
    ids = pa.array([n // 7 for n in range(queues)], pa.int32())
    return pa.table({"topic": topics, "queueId": ids, "body": [body] * queues, "keys": topics})

def limit(count):
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

def write(root, queues, body, **options):
    return rmqstore_spark.write_store(root, rows(queues, body), **options)
"""

ALL = (
    COMMON
    + """
root, queues, found = os.path.join(home, "store"), arguments[1], {}
limit(arguments[0])
found["new"] = write(root, queues, b"new", **SIZES)
found["append"] = write(root, queues, b"append")
large = pa.concat_tables([rows(queues, b"x" * 40)] * 25)  # units in more files than one of each queue
found["large"] = rmqstore_spark.write_store(root, large)
found["rebuild"] = rmqstore_spark.rebuild(root)
store = Store(root)
found["copy"] = store.copy(os.path.join(home, "copy")).messages
found["salvage"] = store.salvage(os.path.join(home, "salvaged")).messages
found["messages"] = store.messages().read_all().num_rows
found["one"] = store.messages(subscribe="T0").read_all().num_rows
for table in ("queues", "consumequeue", "topics", "offsets", "index", "segments", "check"):
    found[table] = getattr(store, table)().num_rows
found["check of the copy"] = Store(os.path.join(home, "copy")).check().num_rows
found["overwrite"] = write(root, queues, b"over", mode="overwrite", **SIZES)
print(json.dumps(found))
"""
)

# A store with so many queues that threads help, or few; then an append with a few descriptors more each time.
FEWER_AND_FEWER = (
    COMMON
    + """
before, queues = os.path.join(home, "before"), arguments[0]
write(before, queues, b"old", **SIZES)
Store(before).messages().read_all()  # what is imported only when it is needed
options = {"mode": "overwrite", **SIZES} if arguments[1] else {}
for left in range(2, arguments[2], arguments[3]):
    root = os.path.join(home, "store")
    shutil.copytree(before, root)
    child = os.fork()
    if child == 0:
        limit(len(os.listdir("/proc/self/fd")) + left)
        try:
            told = str(write(root, queues, b"new", **options))
        except BaseException as why:
            told = f"{type(why).__name__}: {why}"
        limit(1024)
        os.write(1, json.dumps([told, Store(root).messages().read_all().num_rows]).encode() + b"\\n")
        os._exit(0)
    os.waitpid(child, 0)
    shutil.rmtree(root)
"""
)


def run(script: str, *arguments: object) -> list[Any]:
    """What a program prints: JSON, line by line."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    "queues",
    [
        1,
        pytest.param(600, marks=LONG),
        pytest.param(512, marks=NIGHTLY),
        pytest.param(1000, marks=NIGHTLY),
        pytest.param(3000, marks=NIGHTLY),
    ],
)
def test_of_any_number_of_queues(home: Path, queues: int) -> None:
    """512 to 1,023 are worked on by several threads, one by one; more are synced at once."""
    (found,) = run(ALL, home, LIMIT, queues)
    each = dict.fromkeys(("new", "append", "overwrite", "queues"), queues)
    all_ = dict.fromkeys(("rebuild", "copy", "salvage", "messages", "consumequeue", "index"), 27 * queues)
    others = {"large": 25 * queues, "one": 27 * len(range(0, queues, 7)), "topics": min(queues, 7), "offsets": 0}
    assert found == each | all_ | others | {"segments": found["segments"], "check": 0, "check of the copy": 0}


@pytest.mark.parametrize(
    ("queues", "most", "step", "overwrite"),
    [
        (3, 80, 3, False),
        (3, 80, 3, True),
        pytest.param(600, 300, 9, False, marks=NIGHTLY),
        pytest.param(600, 300, 9, True, marks=NIGHTLY),
    ],
)
def test_all_or_nothing_with_any_limit(home: Path, queues: int, most: int, step: int, overwrite: bool) -> None:
    """What is missing is missed before the messages count."""
    outcomes = set()
    for told, count in run(FEWER_AND_FEWER, home, queues, int(overwrite), most, step):
        if told == str(queues):
            assert count == queues * (1 if overwrite else 2)
        else:
            assert count == queues, told
            assert told.startswith(("RmqStoreError: ", "StorageError: "))
            assert "Too many open files" in told
        outcomes.add(told == str(queues))
    assert outcomes == {False, True}


def test_none_is_left_open(home: Path) -> None:
    """Neither a file nor a part of memory that shows one, whatever was done to a store."""

    def left() -> list[str]:
        """Files below the home that this process holds."""
        files = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        shown = [line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
        return [path for path in files + shown if path.startswith(str(home))]

    root, rows = home / "store", pa.table({"topic": ["T"] * 60, "body": ["x" * 90] * 60, "keys": ["k"] * 60})
    sizes: dict[str, Any] = {"mappedFileSizeCommitLog": 8192, "mappedFileSizeConsumeQueue": 400, "maxHashSlotNum": 50}
    steps: list[Callable[[], object]] = [
        lambda: write_store(root, rows, **sizes),
        lambda: write_store(root, rows),
        lambda: rebuild(root),
        lambda: write_store(root, rows, mode="overwrite", **sizes),
        lambda: Store(root).copy(home / "copy"),
        lambda: Store(root).salvage(home / "salvaged"),
        lambda: Store(root).messages(key="k").read_all(),
        lambda: Store(root).messages().read_next_batch(),
        lambda: [getattr(Store(root), table)() for table in ("queues", "topics", "index", "segments", "check")],
    ]
    for number, step in enumerate(steps):
        step()
        assert left() == [], number
