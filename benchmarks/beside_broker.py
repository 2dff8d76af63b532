"""A scan beside a broker: which pages of memory it leaves behind, and what the broker's consumers notice.

    python benchmarks/beside_broker.py DIR [--bytes 1GiB]

A broker on one store hands old messages to a consumer, again and again, while another store, on the same disk, is
scanned in this process: first without `dropCache`, then with it, then at a limited rate too. DIR is on the disk to be
measured; on a file system in memory the numbers mean nothing.
"""

from __future__ import annotations

import argparse
import mmap
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from drop_cache import forget
from generate import CQ_FILE_UNITS, CQ_UNIT, ITEMS, SLOTS, Store, generate, size_of
from measure import MIB
from peers import RocketMq

from native_io import resident
from rmqstore_spark.columns import DEFAULT_COLUMNS, arrow_schema
from rmqstore_spark.query.options import parse_options
from rmqstore_spark.read.plan.planner import plan
from rmqstore_spark.read.run.batches import ReadSettings, read_task

SEGMENT = 64 * MIB
BROKERS = 256 * MIB  # bytes of its log
PULLED = 320  # messages each time
CASES: tuple[dict[str, str], ...] = ({}, {"dropCache": "true"}, {"dropCache": "true", "maxTaskBytesPerSecond": "100m"})


def in_memory(store: Path) -> float:
    """MiB of a commitlog."""
    pages = 0
    for path in (store / "commitlog").iterdir():
        found = np.zeros(-(-path.stat().st_size // mmap.PAGESIZE), np.uint8)
        fd = os.open(path, os.O_RDONLY)
        resident(fd, 0, found)
        os.close(fd)
        pages += int(found.sum())
    return pages * mmap.PAGESIZE / MIB


def scan(store: Path, given: dict[str, str]) -> float:
    """MB/s, one task after the other."""
    begin = time.perf_counter()
    options = parse_options({"path": str(store), **given})
    planned = plan(options)
    settings = ReadSettings.of(options, arrow_schema(DEFAULT_COLUMNS))
    for task in planned.tasks:
        for _ in read_task(task, settings):
            pass
    return sum(r.stop - r.start for task in planned.tasks for r in task.ranges) / (time.perf_counter() - begin) / 1e6


class Consumer(threading.Thread):
    """Pulls the same old messages of each queue in turn, until it is told to stop."""

    def __init__(self, client: Any, queues: list[tuple[str, str]]) -> None:
        super().__init__()
        self._client, self._queues = client, queues
        self._end = threading.Event()
        self.seconds: list[float] = []

    def round(self) -> None:
        for topic, queue in self._queues:
            begin = time.perf_counter()
            found = self._client.run("pull", topic, queue, 0, PULLED)
            self.seconds.append(time.perf_counter() - begin)
            assert len(found) == PULLED, found[-1]

    def run(self) -> None:
        while not self._end.is_set():
            self.round()

    def stop(self) -> None:
        self._end.set()
        self.join()


def major_faults(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[9])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--bytes", type=size_of, default=size_of("1GiB"), help="of commitlog to scan (default 1GiB)")
    args = parser.parse_args()
    bench = RocketMq().bench
    scanned: Store = generate(args.dir / f"scanned-{args.bytes}", args.bytes, 1024, SEGMENT)
    brokers: Store = generate(args.dir / "broker", BROKERS, 1024, SEGMENT)
    with tempfile.TemporaryDirectory(dir=args.dir) as scratch:
        root = bench.copy_store(brokers.root, Path(scratch, "store"))
        sizes = bench.Sizes(SEGMENT, CQ_FILE_UNITS * CQ_UNIT.itemsize, SLOTS, ITEMS)
        queues = [(path.parent.name, path.name) for path in sorted((root / "consumequeue").glob("*/*"))]
        with bench.Broker(bench.NEWEST, root, Path(scratch, "home"), sizes) as broker:
            client = broker.client()
            for topic in {topic for topic, _ in queues}:
                client.run("create", topic, sum(name == topic for name, _ in queues))
            pid = broker._broker.popen.pid
            Consumer(client, queues).round()  # compiled, and in memory
            for given in (None, *CASES):
                forget(scanned)
                held, faults = in_memory(root), major_faults(pid)
                consumer = Consumer(client, queues)
                consumer.start()
                try:
                    speed = 0.0
                    if given is None:
                        time.sleep(5)
                    else:
                        speed = scan(scanned.root, given)
                finally:
                    consumer.stop()
                times = sorted(consumer.seconds)
                print(
                    f"{'no scan' if given is None else given or 'no option'}: {speed:.0f} MB/s; of the scanned "
                    f"{scanned.end / MIB:.0f} MiB are in memory {in_memory(scanned.root):.1f}; the broker's: "
                    f"{held:.1f} before, {in_memory(root):.1f} after, {major_faults(pid) - faults} major faults; "
                    f"{PULLED} messages in {statistics.median(times) * 1e3:.0f} ms (median of {len(times)}), "
                    f"{times[-1 - len(times) // 20] * 1e3:.0f} ms (19 of 20)"
                )


if __name__ == "__main__":
    main()
