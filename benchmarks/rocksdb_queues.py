"""Section `rocksdb`: what queues in RocksDB cost, beside the same queues in files.

Each number is of a process of its own (probe.py); what the stores hold is in the page cache.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measure import HERE, Row
from rocksdb_store import ManyQueues, many_queues

ROUNDS = 200  # messages of each queue
FEW_QUEUES = 100
TOPIC = "Topic00007"
PROOF, ONE_TOPIC, QUEUES, OFFSETS = (
    "proof that queues cover the log",
    "queues of a topic",
    "table queues",
    "table offsets",
)
WORK: dict[str, dict[str, Any]] = {
    PROOF: {"proof": True},
    ONE_TOPIC: {"table": "queues", "options": {"subscribe": TOPIC}, "rows": 5},
    "messages of a topic": {"options": {"subscribe": TOPIC}, "rows": 5 * ROUNDS},
    QUEUES: {"table": "queues"},
    OFFSETS: {"table": "offsets"},
}
GOALS = {PROOF: "<= 3"}
# Of RocksDB alone, in CPU seconds. Messages of a topic have no goal: they are read by whatever way is the cheapest,
# which in this store, whose messages have no body, is a scan.
SECONDS = {ONE_TOPIC: "<= 0.5", OFFSETS: "<= 10"}


def rocksdb_rows(directory: Path, repeat: int, queues: int) -> Iterator[Row]:
    """The rows of both stores, in turns.

    Args:
        queues: a multiple of 5.
    """
    tiny, stores = _stores(directory, FEW_QUEUES), _stores(directory, queues)
    for name, work in WORK.items():
        best: dict[bool, tuple[float, float]] = {}
        for _ in range(repeat):
            for kind, root in stores.items():
                best[kind] = min(best.get(kind, (float("inf"), 0.0)), _cost(tiny[kind], root, work))
        (cpu, peak), (other, _) = best[True], best[False]
        what = f"{name}, {queues * ROUNDS:,} units in {queues:,} queues, in RocksDB / in files"
        yield Row(what, cpu, "CPU s", cpu / other, GOALS.get(name, ""), {"MB peak": peak / 1e6})
        if name in SECONDS:
            yield Row(f"{name}, {queues:,} queues in RocksDB", cpu, "CPU s", None, SECONDS[name])


def _stores(directory: Path, queues: int) -> dict[bool, Path]:
    """The stores with queues in files (False) and in RocksDB (True)."""
    files = many_queues(directory / f"queues{queues}-files", ManyQueues(queues, ROUNDS, in_rocksdb=False))
    shape = ManyQueues(queues, ROUNDS, in_rocksdb=True)
    return {False: files, True: many_queues(directory / f"queues{queues}-rocksdb", shape, files)}


def _cost(tiny: Path, root: Path, work: dict[str, Any]) -> tuple[float, float]:
    """CPU seconds, and the most memory of the process in bytes."""
    given = json.dumps({"warm_up": {"root": str(tiny), **work}, "measured": {"root": str(root), **work}})
    done = subprocess.run(
        [sys.executable, str(HERE / "probe.py"), given], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    tasks: dict[str, float] = found.get("tasks", {"cpu": 0.0})
    return found["planning"]["cpu"] + tasks["cpu"], found["peak"]
