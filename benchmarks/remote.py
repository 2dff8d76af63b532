"""Reading a store in object storage: against the library that fetches it, through a delay, and how often it asks.

The server is the tests' own (tests/support/s3_server.py), in a process of its own: it is no measure of a real one. So
what is compared is the CPU time of our process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from generate import Store
from measure import MIB, Row, Stores

from rmqstore_spark import Store as RmqStore
from rmqstore_spark.options import parse_options
from rmqstore_spark.read.planner import plan
from rmqstore_spark.read.stores import files_of
from rmqstore_spark.store.remote_files import BLOCK

TESTS = Path(__file__).resolve().parents[1] / "tests"
DELAY = 0.03  # seconds before each answer
SERVE = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from support.s3_server import Server
with Server(Path(sys.argv[2])) as server:
    server.fault = lambda number, key: time.sleep(float(sys.argv[3]))
    print(json.dumps(server.options), flush=True)
    sys.stdin.read()
"""


@contextmanager
def served(root: Path, delay: float) -> Iterator[dict[str, str]]:
    """A server of a directory; how it is reached."""
    import json

    command = [sys.executable, "-c", SERVE, str(TESTS), str(root), str(delay)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield json.loads(server.stdout.readline())
        server.communicate()


def remote_rows(stores: Stores, repeat: int) -> Iterator[Row]:
    """Rows of the table."""
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    store = stores.segmented
    uri = f"s3://stores/{store.root.name}"
    with served(store.root.parent, 0) as options:
        costs = best_costs(
            repeat,
            {
                "remote": lambda: scan(RmqStore(uri, **options)),  # type: ignore[arg-type]
                "local": lambda: scan(RmqStore(store.root)),
                "fetch": lambda: fetch(store, options),
            },
        )
        ratio = costs["remote"] / (costs["fetch"] + costs["local"])
        yield Row("remote scan, CPU / (obstore's fetch + local scan)", costs["remote"], "CPU s", ratio, "<= 1.15")
    word = RmqStore(store.root).messages(columns=["keys"]).read_next_batch().to_pylist()[7]["keys"]
    with served(store.root.parent, DELAY) as options:
        for what, given in (("full scan", {}), ("key", {"key": word})):
            begun = time.perf_counter()
            understood = parse_options({"path": uri, **options, **given})
            planned = plan(understood, files_of(understood))
            took = time.perf_counter() - begun
            counted = {"requests": float(planned.files.requests), "MB": planned.files.bytes / 1e6}
            yield Row(f"remote planning at 30 ms, {what}", took / DELAY, "rounds", None, "", counted)


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
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(one, places)) > MIB
