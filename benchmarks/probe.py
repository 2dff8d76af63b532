"""One measurement of section `scale`, in a process of its own: python probe.py JSON. Answers with JSON.

The argument holds `warm_up` and `measured`, of which each says how one piece of work is done; the first is done before
anything is timed, so that all code is imported by then. Either

* {"root": ..., "options": ..., "commitLogOffset": ..., "rows": ...}: plans a read of a store with these options, and of
  one physical offset if that is given; where `rows` is given, reads the tasks as well, which have to find so many; or
* {"root": ..., "append": [topic, queueId]}: writes one message into a store; or
* {"root": ..., "first": options}: takes the first batch of Store.messages(); or
* {"root": ..., "table": name, "columns": [...], "options": {...}, "rows": ...}: reads a table, which has so
  many rows, if that is given; `show` is the summary of `rmqstore show`; or
* {"root": ..., "proof": true}: lets the ConsumeQueues prove what they know of the log; or
* {"root": ..., "history": key}: the history of the messages with a key.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))  # as in measure.py

import pyarrow as pa

from rmqstore_spark import Store
from rmqstore_spark.columns import DEFAULT_COLUMNS, arrow_schema
from rmqstore_spark.jobs.summary import summarize
from rmqstore_spark.query.options import parse_options, parse_write_options
from rmqstore_spark.query.selection import EVERYTHING, Numbers
from rmqstore_spark.read.plan.planner import plan
from rmqstore_spark.read.run.batches import ReadSettings, read_task
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.queue_coverage import coverage
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.write.commit import Settings, commit
from rmqstore_spark.write.stage.job_directory import prepare
from rmqstore_spark.write.stage.rows import stage

_JOB = "bench"


class Meter:
    """CPU seconds, seconds, and what all Files together were asked for, since the one before."""

    files: list[Files]  # all that were ever made

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()
        self._requests, self._bytes = self._asked()

    def read(self) -> dict[str, float]:
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        requests, nbytes = self._asked()
        return {"cpu": cpu, "wall": wall, "requests": requests - self._requests, "bytes": nbytes - self._bytes}

    @classmethod
    def _asked(cls) -> tuple[int, int]:
        return sum(files.requests for files in cls.files), sum(files.bytes for files in cls.files)

    @classmethod
    def install(cls) -> None:
        """A task and a writer make Files of their own."""
        made: list[Files] = []
        cls.files = made
        init = Files.__init__

        def init_and_note(self: Files, *args: Any, **named: Any) -> None:
            init(self, *args, **named)
            made.append(self)

        Files.__init__ = init_and_note  # type: ignore[method-assign]


def read(given: dict[str, Any]) -> dict[str, Any]:
    options = parse_options({"path": given["root"], **given["options"]})
    if (offset := given.get("commitLogOffset")) is not None:  # only a pushed filter says that
        selected = replace(EVERYTHING, commit_log_offset=Numbers.of(offset))
        options = replace(options, selection=options.selection.narrowed(selected))
    meter = Meter()
    planned = plan(options)
    found: dict[str, Any] = {"planning": meter.read(), "partitions": len(planned.tasks)}
    found["log_bytes"] = sum(size for _, access in planned.accesses for _, size in access.pieces)
    if given.get("rows") is not None:
        settings = ReadSettings.of(options, arrow_schema(list(DEFAULT_COLUMNS)))
        rows = 0
        meter = Meter()
        for task in planned.tasks:
            rows += sum(batch.num_rows for batch in read_task(pickle.loads(pickle.dumps(task)), settings))
        found["tasks"] = meter.read()
        assert rows == given["rows"], f"{given}: {rows} rows"
    return found


def append(given: dict[str, Any]) -> dict[str, Any]:
    root, (topic, queue_id) = given["root"], given["append"]
    options = parse_write_options({"path": root})
    prepare(root, _JOB)
    row = pa.record_batch({"topic": [topic], "queueId": pa.array([queue_id], pa.int32()), "body": [b"x" * 100]})
    staged = [stage([row], options, root, _JOB, "part-0", 0)]
    meter = Meter()
    commit(root, staged, Settings(Sizes()))
    return {"planning": meter.read()}


def first(given: dict[str, Any]) -> dict[str, Any]:
    """`planning` is until the first batch is there: to plan is a part of that."""
    meter = Meter()
    batches = Store(given["root"]).messages(**given["first"])
    assert batches.read_next_batch().num_rows
    found = {"planning": meter.read()}
    batches.close()
    return found


def table(given: dict[str, Any]) -> dict[str, Any]:
    meter = Meter()
    if given["table"] == "show":
        assert summarize(Snapshot.find(given["root"], Files())).groups
    else:
        found = Store(given["root"]).table(given["table"], given.get("columns"), **given.get("options", {})).num_rows
        assert found == given.get("rows", found) > 0
    return {"planning": meter.read()}


def proof(given: dict[str, Any]) -> dict[str, Any]:
    meter = Meter()
    store = Snapshot.find(given["root"], Files())
    assert all(each.gaps == [] for each in coverage(store, store.log.extents, lambda queue: True))
    return {"planning": meter.read()}


def history(given: dict[str, Any]) -> dict[str, Any]:
    meter = Meter()
    assert Store(given["root"]).history(given["history"]).num_rows
    return {"planning": meter.read()}


WORK = {"append": append, "first": first, "table": table, "proof": proof, "history": history}


def peak() -> int:
    """VmHWM, the most memory that this process ever had, in bytes."""
    status = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def main() -> None:
    Meter.install()
    given = json.loads(sys.argv[1])
    for what in (given["warm_up"], given["measured"]):
        found = next((WORK[name] for name in WORK if name in what), read)(what)
    print(json.dumps({**found, "peak": peak()}))


if __name__ == "__main__":
    main()
