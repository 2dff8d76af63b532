"""What the planner hands to a task: pieces of the log, and how to find the selected messages in each."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqstore_spark.selection import Selection
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
        gaps: the parts that are to be read in the log itself, as physical offsets [start, stop), ascending: queues do
            not know what is in them, or are not trusted.
        expected: how many units the asked queues have in it, and the fingerprint of where they begin, as the planner
            has found them; None where queues are trusted without a proof.
    """

    gaps: tuple[tuple[int, int], ...]
    expected: tuple[int, int] | None


@dataclass(frozen=True)
class Covered(Range):
    """The ConsumeQueues alone answer: nothing of the log is read. It may go on in the segments after its own.

    Attributes:
        first, last: the physical offsets between which the whole log is.
    """

    first: int
    last: int


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
    """What one partition reads.

    Attributes:
        ranges: in log order.
        faults: damage that planning met already: (store, damage).
        selection: which messages, where each store has an answer of its own; None where it is that of the whole read.
    """

    ranges: tuple[Range, ...] = ()
    faults: tuple[tuple[str, Damage], ...] = ()
    selection: Selection | None = None
