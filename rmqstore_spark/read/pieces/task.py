"""What the planner hands to a task: pieces of the log, and how to find the selected messages in each."""

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rmqstore_spark.query.selection import Selection
from rmqstore_spark.store.snapshot import StoreRef
from rmqstore_spark.store.structures.segments import Damage, Extent

_UNITS_OF_A_VISIT = 8192  # to open a queue and search in it costs a task as much as so many of its units


@dataclass(frozen=True)
class Range(Extent):
    """An extent of a store's log.

    Attributes:
        spares: what copies of the store have of its segment, to be read where it is damaged.
    """

    store: StoreRef
    spares: tuple["Range", ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class Scanned(Range):
    """To be read from end to end."""


@dataclass(frozen=True)
class Queued(Range):
    """The ConsumeQueues say where its selected messages are.

    Attributes:
        gaps: the parts that are to be read in the log itself, as physical offsets [start, stop), ascending: queues do
            not know what is in them, or are not trusted.
        expected: how many units the asked queues have in it, and the fingerprint of where they begin, as the planner
            has found them; None where queues are trusted without a proof.
        ascends: whether store times do, as far as a broker's clock can be trusted.
    """

    gaps: tuple[tuple[int, int], ...]
    expected: tuple[int, int] | None
    ascends: bool = True


@dataclass(frozen=True)
class Covered(Range):
    """The ConsumeQueues alone answer: nothing of the log is read. It may go on in the segments after its own.

    Attributes:
        first, last: the physical offsets between which the whole log is.
        queues, units: about how many of them are asked, and how many units they have in it.
        share: (number, count): only each count-th of the queues from this number on.
    """

    first: int
    last: int
    queues: int
    units: int
    share: tuple[int, int] = (0, 1)

    def cut(self, parts: int) -> "list[Covered]":
        """The same in at least so many parts of about one size. Each is of another extent, so that it does not matter
        which queues are large; but where that leaves a queue few units in each, it is of other queues."""
        worth = self.units // (self.queues * _UNITS_OF_A_VISIT)
        extents = min(parts, max(worth, -(-parts // self.queues)))
        shares = -(-parts // extents)
        size = self.stop - self.start
        cuts = [self.start + size * part // extents for part in range(extents + 1)]
        return [
            replace(self, start=start, stop=stop, units=self.units // (extents * shares), share=(number, shares))
            for start, stop in pairwise(cuts)
            for number in range(shares)
        ]


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

    @property
    def nbytes(self) -> int:
        """How many bytes of the log it is about."""
        return sum(piece.stop - piece.start for piece in self.ranges)
