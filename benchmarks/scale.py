"""Section `scale`: what planning, look-ups and an append cost as a store gets more queues, segments and index files.

Each number is of a process of its own (probe.py). What the store's files hold is in the page cache, and its directories
were just listed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from generate import START_TIME
from measure import HERE, MIB, Row
from wide import QUEUES_OF_TOPIC, SMALL_COUNT, SMALL_TOPIC, Shape, WideStore, wide_store

QUEUES = (100, 1_000, 10_000, 100_000)
SEGMENTS = (10, 100, 1_000, 5_000)
FEW_QUEUES, FEW_SEGMENTS = 100, 4
SEGMENTS_OF_INDEX_FILE = 25  # 20,000,000 keys of messages with 1.3 KB
INDEX_ITEMS = 400_000  # of each file where it is index files that are many
LIMIT_SECONDS = 900
ENOUGH_SECONDS = 10  # what takes longer is measured once
FLAT = "<= 0.05"


@dataclass(frozen=True)
class Work:
    """What is measured.

    Attributes:
        read: for a store, what probe.py is to read; None: a message is appended.
        limits: CPU seconds that it may take in stores of so many queues or segments.
        flat: its requests may not grow with these.
        exponent: what the growth of its CPU seconds may be.
        chain: how many of its requests are for items of the index that are in the same slot by chance: what grows is
            the rest.
    """

    name: str
    read: Callable[[WideStore], dict[str, Any]] | None
    limits: dict[str, float] = field(default_factory=dict)
    flat: tuple[str, ...] = ()
    exponent: str = ""
    chain: Callable[[WideStore], int] = lambda store: 0


def _selecting(rows: int | None, **options: str) -> dict[str, Any]:
    return {"options": options, "rows": rows}


def _assign(store: WideStore) -> dict[str, Any]:
    topic, queue, first = store.message.topic, store.message.queueId, store.message.queueOffset
    return _selecting(
        2,
        assign=json.dumps({topic: [queue]}),
        startingOffsets=json.dumps({topic: {str(queue): first}}),
        endingOffsets=json.dumps({topic: {str(queue): first + 2}}),
    )


_POINT = {"100,000 queues": 0.3, "5,000 segments": 0.3, "200 index files": 0.3}
FULL_SCAN = Work(
    "plan of a full scan",
    lambda store: _selecting(None),
    {"1,000 segments": 1, "5,000 segments": 5, "100,000 queues": 2},
    exponent="<= 1.0",
)
COMMIT_LOG_OFFSET = Work(
    "commitLogOffset",
    lambda store: {**_selecting(1), "commitLogOffset": store.message.commitLogOffset},
    _POINT,
    ("queues", "segments"),
)
OFFSET_MSG_ID = Work(
    "offsetMsgId", lambda store: _selecting(1, offsetMsgId=store.message.offsetMsgId), _POINT, ("queues", "segments")
)
ASSIGN = Work("assign with offsets", _assign, _POINT, ("queues", "segments"))
KEY = Work(
    "key and topic",
    lambda store: _selecting(1, key=store.message.key, subscribe=store.message.topic),
    _POINT,
    ("queues",),
    chain=lambda store: store.chain(store.message.key),
)
MSG_ID = Work(
    "msgId and topic",
    lambda store: _selecting(1, msgId=store.message.msgId, subscribe=store.message.topic),
    _POINT,
    ("queues",),
    chain=lambda store: store.chain(store.message.msgId),
)
KEY_ALONE = Work("key without topic", lambda store: _selecting(1, key=store.message.key), {"200 index files": 3})
SMALL = Work(f"a topic of {SMALL_COUNT} messages", lambda store: _selecting(SMALL_COUNT, subscribe=SMALL_TOPIC))
APPEND = Work("append of 1 message", None, {"100,000 queues": 2})
FIRST = Work("first batch of Store.messages()", lambda store: {"first": {}}, {"5,000 segments": 0.3})
FIRST_TIMED = Work(
    "first batch from a time on",
    lambda store: {"first": {"startingTimestamp": START_TIME}},
    {"5,000 segments": 0.5},
)

QUEUES_OF_A_GROUP = 50  # of each of QUEUES_OF_GROUP queues ten groups have an offset
TABLES = (
    Work("table topics", lambda store: {"table": "topics"}, {"100,000 queues with groups": 3}),
    Work("table queues", lambda store: {"table": "queues"}, {"100,000 queues with groups": 3}),
    Work("table offsets", lambda store: {"table": "offsets"}, {"100,000 queues with groups": 8}),
    Work(
        "table offsets, without what needs the log",
        lambda store: {"table": "offsets", "columns": ["group", "topic", "queueId", "consumerOffset"]},
    ),
    Work("table consumequeue", lambda store: {"table": "consumequeue"}, {"100,000 queues with groups": 4}),
    Work("history of a message", lambda store: {"history": store.message.key}, {"100,000 queues with groups": 1}),
    Work("rmqstore show", lambda store: {"table": "show"}, {"100,000 queues with groups": 3}),
)

EVERY_WORK = (
    FULL_SCAN,
    FIRST,
    FIRST_TIMED,
    COMMIT_LOG_OFFSET,
    OFFSET_MSG_ID,
    ASSIGN,
    KEY,
    MSG_ID,
    KEY_ALONE,
    SMALL,
    APPEND,
)


def scale_rows(directory: Path, repeat: int, most_queues: int, most_segments: int) -> Iterator[Row]:
    """Growth with queues, with segments, and what many index files cost. Larger stores than these are left out."""
    tiny = _store(directory, Shape(QUEUES_OF_TOPIC, FEW_SEGMENTS, groups=1))
    scale = _Scale(tiny, directory, repeat)
    queues = {n: Shape(n, FEW_SEGMENTS) for n in QUEUES if n <= most_queues}
    yield from scale.growth("queues", queues)
    with_groups = {n: Shape(n, FEW_SEGMENTS, groups=max(1, n // QUEUES_OF_A_GROUP)) for n in queues}
    yield from scale.growth("queues with groups", with_groups, TABLES)
    segments = {
        n: Shape(FEW_QUEUES, n, index_files=max(1, n // SEGMENTS_OF_INDEX_FILE)) for n in SEGMENTS if n <= most_segments
    }
    yield from scale.growth("segments", segments)
    yield from scale.index_files(max(queues), segments[max(segments)].index_files)


class _Scale:
    def __init__(self, tiny: WideStore, directory: Path, repeat: int) -> None:
        self._tiny = tiny
        self._directory = directory
        self._repeat = repeat

    def growth(self, axis: str, shapes: dict[int, Shape], works: tuple[Work, ...] = EVERY_WORK) -> Iterator[Row]:
        """The rows of all work as the numbers of `shapes` grow, and how fast its costs grow with them."""
        found: dict[str, dict[int, dict[str, Any]]] = {work.name: {} for work in works}
        rows: dict[str, list[Row]] = {work.name: [] for work in works}
        for number, shape in shapes.items():
            store = _store(self._directory, shape)
            _touch(store.root)
            for work in works:
                row, cost = self._measured(work, store, f"{number:,} {axis}")
                rows[work.name].append(row)
                if cost is not None:
                    found[work.name][number] = cost
        for work in works:
            yield from rows[work.name]
            if len(found[work.name]) > 1:
                yield from _exponents(work, axis, found[work.name])

    def index_files(self, queues: int, files: int) -> Iterator[Row]:
        """Look-ups where index files are many and full, in a log so long that they are worth it."""
        segments = max(FEW_SEGMENTS, files)
        store = _store(self._directory, Shape(queues, segments, segments // FEW_SEGMENTS, files, INDEX_ITEMS))
        _touch(store.root)
        of = f"{len(store.shape.topics):,} topics"
        for work in (KEY, MSG_ID, KEY_ALONE):
            yield self._measured(work, store, f"{files:,} index files", f", {of}")[0]

    def _measured(self, work: Work, store: WideStore, size: str, more: str = "") -> tuple[Row, dict[str, Any] | None]:
        """The cheapest of some runs. None, if it takes too long."""
        what = f"{work.name}, {size}{more}"
        best: dict[str, Any] | None = None
        begin = time.perf_counter()
        try:
            for _ in range(self._repeat):
                cost = self._run(work, store)
                if best is None or cost["planning"]["cpu"] < best["planning"]["cpu"]:
                    best = cost
                if time.perf_counter() - begin > ENOUGH_SECONDS:
                    break
        except subprocess.TimeoutExpired:
            return Row(what, None, f"more than {LIMIT_SECONDS} s"), None
        assert best
        best["chain"] = work.chain(store)
        limit = work.limits.get(size)
        goal = f"<= {limit}" if limit is not None else ""
        print(f"  {what}: {best['planning']['cpu']:.3f} CPU s, {best['planning']['wall']:.3f} s", file=sys.stderr)
        return Row(what, best["planning"]["cpu"], "CPU s", None, goal, _costs(best)), best

    def _run(self, work: Work, store: WideStore) -> dict[str, Any]:
        if work.read:
            given = [{"root": str(each.root), **work.read(each)} for each in (self._tiny, store)]
            return probe(*given)
        with _copied(self._tiny) as tiny, _copied(store) as copy:
            return probe(
                {"root": str(tiny), "append": [SMALL_TOPIC, 0]},
                {"root": str(copy), "append": [store.message.topic, store.message.queueId]},
            )


def probe(warm_up: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, str(HERE / "probe.py"), json.dumps({"warm_up": warm_up, "measured": measured})]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=LIMIT_SECONDS, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _costs(cost: dict[str, Any]) -> dict[str, float]:
    planning = cost["planning"]
    costs = {"s": planning["wall"], "requests": planning["requests"]}
    if cost["chain"]:
        costs["of these for a chain"] = cost["chain"]
    costs |= {"MB": planning["bytes"] / 1e6, "MB peak": cost["peak"] / 1e6}
    if "partitions" in cost:
        costs |= {"partitions": cost["partitions"], "MB of log": cost["log_bytes"] / 1e6}
    if tasks := cost.get("tasks"):
        costs |= {"CPU s of tasks": tasks["cpu"], "their requests": tasks["requests"], "their MB": tasks["bytes"] / 1e6}
    return costs


def _exponents(work: Work, axis: str, found: dict[int, dict[str, Any]]) -> Iterator[Row]:
    def requests(cost: dict[str, Any]) -> float:
        return float(cost["planning"]["requests"] + cost.get("tasks", {}).get("requests", 0) - cost["chain"])

    goal = FLAT if axis in work.flat else ""
    for name, of, bound in (
        ("CPU s", lambda cost: cost["planning"]["cpu"], work.exponent),
        ("requests", requests, goal),
    ):
        points = [(number, of(cost)) for number, cost in found.items()]
        whole = {"over all": exponent(points)}
        yield Row(f"{work.name}, growth of {name} with {axis}", exponent(points[-2:]), "exponent", None, bound, whole)


def exponent(points: list[tuple[int, float]]) -> float:
    """The slope of the line through the logarithms of (number, cost); 1: the cost grows as the number does."""
    xs = [math.log(number) for number, _ in points]
    ys = [math.log(max(cost, 1e-9)) for _, cost in points]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


def _store(directory: Path, shape: Shape) -> WideStore:
    name = f"wide-queues{shape.queues}-segments{shape.segments}" + (f"-groups{shape.groups}" if shape.groups else "")
    with _told(name):
        return wide_store(directory / name, shape)


@contextlib.contextmanager
def _told(name: str) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    if (seconds := time.perf_counter() - begin) > 0.1:
        print(f"  wrote {name} ({seconds:.1f} s)", file=sys.stderr)


def _touch(root: Path) -> None:
    """List a store, look at each file, and bring what is in it into the page cache."""
    for directory, _, names in os.walk(root, followlinks=True):
        for name in names:
            with open(os.path.join(directory, name), "rb", buffering=0) as file:
                size, at = os.fstat(file.fileno()).st_size, 0
                while at < size:
                    try:
                        at = os.lseek(file.fileno(), at, os.SEEK_DATA)
                    except OSError:  # nothing but a hole comes
                        break
                    end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
                    while at < end:
                        at += len(os.pread(file.fileno(), min(end - at, MIB), at)) or size


@contextlib.contextmanager
def _copied(store: WideStore) -> Iterator[Path]:
    """A store that may be written to. Its files are links: a write never changes one that is there."""
    copy = store.root.with_name(f"{store.root.name}-copy")
    if copy.exists():
        shutil.rmtree(copy)
    subprocess.run(["cp", "-al", str(store.root), str(copy)], check=True)
    try:
        yield copy
    finally:
        shutil.rmtree(copy)
