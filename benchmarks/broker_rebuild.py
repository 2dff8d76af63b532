"""Rows of section `peers`: a real broker makes ConsumeQueue and index anew when it starts; so does rebuild().

Of both, queues and index have to be those that the store had, before the time counts.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from generate import CQ_FILE_UNITS, CQ_UNIT, INDEX_HEADER, ITEMS, SLOTS, Store, write_topics
from measure import MIB, Row, Stores
from peers import QUEUE_FILE, RocketMq, Unavailable

import rmqstore_spark

TINY = 64 << 10  # bytes of a log that costs a broker its start alone
POLL_SECONDS = 0.005
SETTLE_SECONDS = 0.2  # when a message's first key is in the index, others may not be
LIMIT_SECONDS = 60
# By default 5.5 begins with the tenth file from the end, and leaves what is before it without queues.
ALL_SEGMENTS = {"commitLogRecoverMaxNum": 1_000_000}
# C2 and a heap in which nothing is short, as a production broker has them: the bench of the tests wants quick starts.
JVM = ("-XX:TieredStopAtLevel=4", "-Xms1g", "-Xmx1g", "-Xmn512m")


def rebuild_rows(stores: Stores, repeat: int) -> Iterator[Row]:
    try:
        rocketmq = RocketMq()
    except Unavailable as why:
        yield Row("RocketMQ's own rebuild", None, f"not measured: {' '.join(str(why).split())}")
        return
    for segment in (1 << 30, 64 * MIB):
        large, tiny = (stores.of(1024, total_bytes=n, segment=segment) for n in (stores.total_bytes, TINY))
        with tempfile.TemporaryDirectory(prefix="rmqstore-bench-", dir=large.root.parent) as scratch:
            start, whole = (Job(rocketmq.bench, s, Path(scratch, s.root.name)) for s in (tiny, large))
            cases = {"start": start.broker, "broker": whole.broker}
            cases |= {"same": partial(whole.ours, again=True), "ours": whole.ours}
            best = dict.fromkeys(cases, float("inf"))
            for _ in range(repeat):
                for name, run in cases.items():
                    best[name] = min(best[name], run())
        theirs = best["broker"] - best["start"]
        what = f"{round(large.end / MIB)} MiB in segments of {segment // MIB} MiB"
        broker = f"broker {rocketmq.version}"
        yield Row(f"{broker}, start and rebuild of {TINY >> 10} KiB of log", best["start"], "s")
        yield Row(f"{broker}, rebuild of {what}, start not counted", large.end / theirs / 1e9, "GB/s")
        for name, index in (("ours", "no tags in the index"), ("same", "tags in the index like the broker's")):
            speed = large.end / best[name] / 1e9
            yield Row(f"rebuild, {what}, {index} / {broker}", speed, "GB/s", theirs / best[name], ">= 5")


class Job:
    """A copy of a store, of which all but the commitlog is made anew again and again."""

    def __init__(self, bench: Any, store: Store, directory: Path) -> None:
        self._bench = bench
        self._root, self._home, self._spec = directory / "store", directory / "home", store.spec
        bench.copy_store(store.root / "commitlog", self._root / "commitlog")  # a broker maps it to write
        self._queues, self._index = queues_of(store.root), index_of(store.root)

    def broker(self) -> float:
        """Seconds from the start of its JVM until queues and index cover the log."""
        self._strip()
        os.sync()
        sizes = self._bench.Sizes(self._spec.segment_size, QUEUE_FILE, SLOTS, ITEMS)
        broker = self._bench.Broker(self._bench.NEWEST, self._root, self._home, sizes, ALL_SEGMENTS)
        arguments = (*JVM, "org.apache.rocketmq.broker.BrokerStartup", "-c", str(broker.configure()))
        begin = time.perf_counter()
        process = broker._spawn("broker", broker.runtime.broker, *arguments)
        try:
            while not self._is_covered():
                seconds = time.perf_counter() - begin
                if process.popen.poll() is not None or seconds > LIMIT_SECONDS:
                    raise RuntimeError(f"{self._root}: no broker's rebuild in {seconds:.0f} s: {process.tail(500)}")
                time.sleep(POLL_SECONDS)
            seconds = time.perf_counter() - begin
            time.sleep(SETTLE_SECONDS)
        finally:
            process.kill()
        self._theirs = index_of(self._root)
        self._expect_same_units("the broker")
        return seconds

    def ours(self, again: bool = False) -> float:
        """Seconds of rebuild(): of the store that the broker was given, or `again` of what it has just left.

        Only where an index with tags is there does rebuild() put tags into the new one, as this broker always does.
        """
        if not again:
            self._strip()
        os.sync()  # what the one before has written is not to slow this one down
        begin = time.perf_counter()
        rmqstore_spark.rebuild(self._root)
        seconds = time.perf_counter() - begin
        self._expect_same_units("rebuild()")
        expected, found = self._theirs if again else self._index, index_of(self._root)
        assert found == expected, f"rebuild() has indexed {found}, not {expected}"
        return seconds

    def _strip(self) -> None:
        """As after a crash, with no file that says how far the queues got."""
        for path in self._root.iterdir():
            if path.name != "commitlog":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        (self._root / "abort").touch()
        write_topics(self._root, sorted({queue.split("/")[0] for queue in self._queues}), self._spec.queues)

    def _is_covered(self) -> bool:
        """Log order is the order of both, so what covers the last message covers all."""
        if [header[:4] for header in index_of(self._root)] != [header[:4] for header in self._index]:
            return False
        for queue, units in self._queues.items():
            number, unit = divmod(len(units) - 1, CQ_FILE_UNITS)
            with (self._root / "consumequeue" / queue / f"{number * QUEUE_FILE:020d}").open("rb") as file:
                if os.pread(file.fileno(), CQ_UNIT.itemsize, unit * CQ_UNIT.itemsize) != units[-1].tobytes():
                    return False
        return True

    def _expect_same_units(self, who: str) -> None:
        found = queues_of(self._root)
        assert found.keys() == self._queues.keys(), f"{who} finds the queues {sorted(found)}"
        for queue, units in self._queues.items():
            assert np.array_equal(found[queue], units), f"{who} finds other units in {self._root}: {queue}"


def queues_of(root: Path) -> dict[str, npt.NDArray[Any]]:
    """topic/queueId to its units."""
    found = {}
    for queue in (root / "consumequeue").glob("*/*"):
        units = np.frombuffer(b"".join(f.read_bytes() for f in sorted(queue.iterdir())), CQ_UNIT)
        if len(units := units[units["size"] > 0]):
            found[f"{queue.parent.name}/{queue.name}"] = units
    return found


def index_of(root: Path) -> list[tuple[int, ...]]:
    """The headers of the index files but for indexCount, for a broker may index its last message twice."""
    headers = []
    for path in sorted((root / "index").glob("*")):
        with path.open("rb") as file:
            headers.append(INDEX_HEADER.unpack(file.read(INDEX_HEADER.size).ljust(INDEX_HEADER.size, b"\0"))[:5])
    return headers
