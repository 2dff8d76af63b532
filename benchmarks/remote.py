"""Reading a store in object storage: against the library that fetches it, through a delay, and how often it asks.

The server is the tests' own (tests/support/s3_server.py), in a process of its own: it is no measure of a real one. So
what is compared is the CPU time of our process. The kernel paces its connections (SO_MAX_PACING_RATE) and sends the
files (sendfile), which leaves the cores to who reads.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from generate import Store
from measure import MIB, Row, Stores, in_turns

from rmqstore_spark import Store as RmqStore
from rmqstore_spark import rebuild
from rmqstore_spark.columns import arrow_schema
from rmqstore_spark.query.options import parse_options
from rmqstore_spark.read.plan.planner import plan
from rmqstore_spark.read.plan.stores import files_of
from rmqstore_spark.read.run.batches import ReadSettings, read_task
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.io.read_ahead import AT_ONCE, BLOCK
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.indexfile import IndexReader, key_hash

TESTS = Path(__file__).resolve().parents[1] / "tests"
DELAY = 0.03  # seconds before each answer
LOOK_UP = 9  # rounds of requests, those of the listing with them, and one more for each link of the longest chain
INDEX_ITEMS = 40_000  # of each file of a store that has many
PACE = 80e6  # bytes a second of a connection
# A line of its input has it tell how many requests for large blocks it answered at a time, at most.
SERVE = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from support.s3_server import Server
with Server(Path(sys.argv[2])) as server:
    server.fault = lambda number, key: time.sleep(float(sys.argv[3]))
    server.pace = float(sys.argv[4])
    print(json.dumps(server.options), flush=True)
    while sys.stdin.readline():
        print(server.most_under_way, flush=True)
        server.most_under_way = 0
"""


@dataclass(frozen=True)
class Served:
    """A server of a directory.

    Attributes:
        options: how it is reached.
        seen: since this was asked last, how many requests for large blocks it answered at a time, at most.
    """

    options: dict[str, str]
    seen: Callable[[], int]


@contextmanager
def served(root: Path, delay: float = 0, pace: float = math.inf) -> Iterator[Served]:
    """A server of a directory, while it runs."""
    command = [sys.executable, "-c", SERVE, str(TESTS), str(root), str(delay), str(pace)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        stdin, stdout = server.stdin, server.stdout
        assert stdin is not None
        assert stdout is not None

        def seen() -> int:
            stdin.write("\n")
            stdin.flush()
            return int(stdout.readline())

        yield Served(json.loads(stdout.readline()), seen)
        server.communicate()


def remote_rows(stores: Stores, repeat: int) -> Iterator[Row]:
    """Rows of the table."""
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    sys.path.insert(0, str(TESTS))
    from support.remote import InRounds

    store = stores.segmented
    uri = f"s3://stores/{store.root.name}"
    with served(store.root.parent) as server:
        there = RmqStore(uri, **server.options)  # type: ignore[arg-type]
        costs = best_costs(
            repeat,
            {
                "remote": lambda: scan(there),
                "local": lambda: scan(RmqStore(store.root)),
                "fetch": lambda: fetch(store, server.options),
            },
        )
        ratio = costs["remote"] / (costs["fetch"] + costs["local"])
        yield Row("remote scan, CPU / (obstore's fetch + local scan)", costs["remote"], "CPU s", ratio, "<= 1.15")
        direct = store.end / in_turns(repeat, {"": lambda: scan(there)})[""]
    with served(store.root.parent, DELAY, PACE) as server:
        there = RmqStore(uri, **server.options)  # type: ignore[arg-type]
        server.seen()
        rate = store.end / in_turns(repeat, {"": lambda: scan(there)})[""]
        connections = server.seen()
        ideal = min(connections * BLOCK / (DELAY + BLOCK / PACE), direct)
        counted = {"MB/s direct": direct / 1e6, "connections": float(connections)}
        what = "remote scan at 30 ms and 80 MB/s a connection, / what those allow"
        yield Row(what, rate / 1e6, "MB/s", rate / ideal, ">= 0.8", counted)
    word = RmqStore(store.root).messages(columns=["keys"]).read_next_batch().to_pylist()[7]["keys"].split()[0]
    many = with_small_index_files(store.root)
    files_there = len(list((many / "index").iterdir()))
    for what, root in (("", store.root), (f" in {files_there} index files", many)):
        with InRounds() as storage:
            there = RmqStore(storage.uri(root))
            assert there.messages(columns=["keys"], key=word).read_all()
        counted = {"requests": float(len(storage.asked)), "MB": storage.nbytes / 1e6}
        goal = f"<= {LOOK_UP + longest_chain(root, word)}"
        yield Row(f"remote key looked up{what}", float(storage.rounds), "rounds", None, goal, counted)
    with served(store.root.parent, DELAY) as server:
        for what, root, given in (
            ("full scan planned", store.root, {}),
            ("key looked up", store.root, {"key": word}),
            (f"key looked up in {files_there} index files", many, {"key": word}),
        ):
            path = f"s3://stores/{root.name}"
            understood = parse_options({"path": path, **server.options, **given})
            files = files_of(understood)
            begun = time.perf_counter()
            files.list_tree(path)
            listed = time.perf_counter()
            planned = plan(understood, files)
            if given:
                settings = ReadSettings(arrow_schema(["keys"]), selection=understood.selection)
                assert sum(batch.num_rows for task in planned.tasks for batch in read_task(task, settings))
            counted = {"listing": (listed - begun) / DELAY}
            counted |= {"requests": float(files.requests), "MB": files.bytes / 1e6}
            took = (time.perf_counter() - listed) / DELAY
            yield Row(f"remote {what} at 30 ms, after listing", took, "times 30 ms", None, "", counted)
        begun = time.perf_counter()
        rows = RmqStore(uri, **server.options).queues().num_rows  # type: ignore[arg-type]
        took = (time.perf_counter() - begun) / DELAY
        yield Row("remote table queues at 30 ms", took, "times 30 ms", None, "", {"queues": float(rows)})


def with_small_index_files(root: Path) -> Path:
    """The same store with a few dozen index files. Its log is the same one, by hard links."""
    target = root.with_name(f"{root.name}-small-index-files")
    if not target.exists():
        shutil.copytree(root, target, copy_function=os.link)
        rebuild(target, maxHashSlotNum=INDEX_ITEMS // 4, maxIndexNum=INDEX_ITEMS)
    return target


def longest_chain(root: Path, word: str) -> int:
    """Of those that a look-up of a key in all topics follows."""
    store = Snapshot.find(str(root), Files())
    longest = 0
    for path in (root / "index").iterdir():
        with IndexReader(str(path), store.files) as reader:
            file = reader.check()
            hashes = [np.array([key_hash(topic, word)], np.int32) for topic in store.known_topics]
            found = [reader.lookup(file, each) for each in hashes]
            longest = max(longest, *(len(each) for each in found if each is not None))
    return longest


def best_costs(repeat: int, cases: dict[str, Callable[[], object]]) -> dict[str, float]:
    """CPU seconds of this process, the least of `repeat` runs of each."""
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(repeat):
        for name, run in cases.items():
            begun = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - begun)
    return best


def scan(store: RmqStore) -> int:
    """Every row."""
    return sum(batch.num_rows for batch in store.messages())


def fetch(store: Store, options: dict[str, str]) -> None:
    """The bytes of the log, by the library alone: as many at a time, as large."""
    from concurrent.futures import ThreadPoolExecutor

    import obstore
    from obstore.store import S3Store

    bucket = S3Store("stores", config={**options}, client_options={"allow_http": True})  # type: ignore[arg-type]

    def one(place: tuple[str, int, int]) -> int:
        key, start, stop = place
        return len(obstore.get(bucket, key, options={"range": (start, stop)}).bytes())

    places = [
        (str(path.relative_to(store.root.parent)), start, min(start + BLOCK, path.stat().st_size))
        for path in sorted((store.root / "commitlog").iterdir())
        for start in range(0, path.stat().st_size, BLOCK)
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert sum(pool.map(one, places)) > MIB
