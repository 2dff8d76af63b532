"""What the planner hands to a task: pieces of the log, and how to find the selected messages in each."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.store.segments import Damage, Extent


@dataclass(frozen=True)
class Range(Extent):
    """An extent of a store's log."""

    store: OpenStore


@dataclass(frozen=True)
class Scan(Range):
    """To be read from end to end."""


@dataclass(frozen=True)
class Queued(Range):
    """The ConsumeQueues say where its selected messages are.

    Attributes:
        live_end: the physical offset in it from which on they are not trusted (LiveLog.live_end).
    """

    live_end: int


@dataclass(frozen=True, eq=False)
class Indexed(Range):
    """An index says that selected messages are at these physical offsets only, which ascend.

    Attributes:
        live_end: the physical offset in it from which on the index is not trusted (LiveLog.live_end).
    """

    live_end: int
    positions: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """What one partition reads: ranges in log order, and damage that planning met already."""

    ranges: tuple[Range, ...] = ()
    faults: tuple[tuple[str, Damage], ...] = ()  # (store, damage)
