"""A stream as Spark drives it, without Spark: a checkpoint, batches, restarts."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from oracle.stores import StoreBuilder

from rmqstore_spark.columns import DEFAULT_COLUMNS
from rmqstore_spark.query.stream_options import StreamOptions, parse_stream_options
from rmqstore_spark.read.follow.follow import Follower
from rmqstore_spark.read.follow.stream_offset import StreamOffset, stream_offset
from rmqstore_spark.read.follow.tier import follower_of
from support import reading
from support.reading import Row


def stream_options(*roots: str | Path, **options: Any) -> StreamOptions:
    given = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    paths = {"paths": json.dumps([str(root) for root in roots])} if len(roots) != 1 else {"path": str(roots[0])}
    return parse_stream_options({**paths, **given})


class Clock:
    """Passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float = 0.1) -> None:
        self.now += seconds


class RealClock(Clock):
    """Passes by itself."""

    def __call__(self) -> float:
        return time.monotonic()

    def pass_(self, seconds: float = 0.01) -> None:
        time.sleep(seconds)


def assert_followed(
    options: StreamOptions, store: StoreBuilder, counts: Sequence[int], copy: Callable[[], object] = lambda: None
) -> None:
    """A stream has each message once, and knows when none has come.

    Args:
        counts: of messages that are appended, before each look.
        copy: brings the store to where the stream is, each time.
    """
    clock = Clock()
    follower = Follower(options, clock=clock)
    place, read = None, []
    for count in counts:
        for number in range(count):
            store.append(body=b"b" * number)
        store.flush()
        copy()
        place = follower.initial() if place is None else place
        clock.pass_(60)
        end = follower.latest(place, is_limited=False)
        assert (end == place) == (count == 0)
        tasks = [] if end == place else follower.plan(place, end)
        read += [row["commitLogOffset"] for task in tasks for row in reading.read_one(task, options.read)]
        assert read == [message.position for message in store.messages]
        place = end


class Query:
    """A query with its checkpoint: each offset is a text between two batches, as in Spark's.

    Attributes:
        rows: of all batches.
        offsets: the text of each, the initial one first.
    """

    def __init__(
        self, *roots: str | Path, columns: list[str] | None = None, clock: Clock | None = None, **options: Any
    ) -> None:
        self._arguments = roots, options
        self._columns = columns or DEFAULT_COLUMNS
        self.rows: list[Row] = []
        self.offsets: list[str] = []
        self.clock = clock or Clock()
        self.files = reading.new_files()
        self.follower = self._follower()

    def _follower(self) -> Follower:
        roots, options = self._arguments
        self._options = stream_options(*roots, **options)
        return follower_of(self._options, self.files, clock=self.clock)

    def start(self) -> None:
        """Takes its first offset, if it has none yet."""
        if not self.offsets:
            self.offsets.append(json.dumps(self.follower.initial().as_json()))

    def restart(self, **options: Any) -> None:
        """A new process, with more options; it knows the checkpoint only."""
        self._arguments[1].update(options)
        self.follower = self._follower()

    @property
    def at(self) -> StreamOffset:
        """Where it is."""
        return stream_offset(json.loads(self.offsets[-1]))

    def trigger(
        self,
        is_limited: bool = True,
        before_reading: Callable[[], object] | None = None,
        after_planning: Callable[[], object] | None = None,
    ) -> list[Row] | None:
        """One micro-batch; None where there is nothing new."""
        self.start()
        self.clock.pass_()
        start = self.at
        end = self.follower.latest(start, is_limited)
        text = json.dumps(end.as_json())
        if text == self.offsets[-1]:
            return None
        assert end != start
        self.offsets.append(text)
        if before_reading:
            before_reading()
        rows = self.rows_between(-2, -1, after_planning)
        self.rows += rows
        return rows

    def run(self, is_limited: bool = True) -> list[Row]:
        """Micro-batches until there is nothing new."""
        rows: list[Row] = []
        while (some := self.trigger(is_limited)) is not None:
            rows += some
        return rows

    def rows_between(self, first: int, second: int, after_planning: Callable[[], object] | None = None) -> list[Row]:
        """The rows of a batch between two offsets of the checkpoint, planned anew."""
        start, end = (stream_offset(json.loads(self.offsets[number])) for number in (first, second))
        tasks = pickle.loads(pickle.dumps(self.follower.plan(start, end, self._columns)))
        if after_planning:
            after_planning()
        return [row for task in tasks for row in reading.read_one(task, self._options.read, self._columns)]
