"""What the planner hands to a task: pieces of the log, and how to find the wanted messages in each."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqstore_spark.store.commitlog import Damage, Segment


@dataclass(frozen=True)
class Home:
    """The store that a piece is of.

    Attributes:
        root: its path.
        consumequeue, batchconsumequeue: these directories, or None.
    """

    root: str
    consumequeue: str | None
    batchconsumequeue: str | None


@dataclass(frozen=True)
class Range:
    """The units of a segment that begin at the physical offsets [start, stop)."""

    home: Home
    segment: Segment
    start: int
    stop: int


@dataclass(frozen=True)
class Scan(Range):
    """To be read from end to end."""


@dataclass(frozen=True)
class Queued(Range):
    """The ConsumeQueues say where its wanted messages are.

    Attributes:
        live_end: the physical offset in it from which on they are not trusted (Log.live_end).
    """

    live_end: int


@dataclass(frozen=True, eq=False)
class Indexed(Range):
    """An index says that wanted messages are at these physical offsets only, which grow.

    Attributes:
        live_end: the physical offset in it from which on the index is not trusted (Log.live_end).
    """

    live_end: int
    positions: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """What one partition reads: ranges in log order, and damage that planning met already."""

    ranges: tuple[Range, ...] = ()
    faults: tuple[tuple[str, Damage], ...] = ()  # (store, damage)
