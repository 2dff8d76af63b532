"""The values that the planner hands to a task: pieces of the log, and the way to the selected messages in each."""

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rmqstore_spark.query.selection import Selection
from rmqstore_spark.store.snapshot import StoreRef
from rmqstore_spark.store.structures.segments import Damage, Extent

_UNITS_OF_A_VISIT = 8192  # opening a queue and searching in it costs a task as much as so many units


@dataclass(frozen=True)
class Range(Extent):
    """An extent of a store's log.

    Attributes:
        spares: the copies of its segment in other copies of the store, to be read where this one is damaged.
    """

    store: StoreRef
    spares: tuple["Range", ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class Scanned(Range):
    """A range to be read from end to end."""


@dataclass(frozen=True)
class Queued(Range):
    """A range in which the ConsumeQueues say where the selected messages are.

    Attributes:
        gaps: the parts that must be read in the log itself, as physical offsets [start, stop), ascending: the queues do
            not know the messages there, or are not trusted.
        expected: the number of units that the asked queues have in the range, and the fingerprint of their positions,
            as of planning; None where queues are trusted without a proof.
        ascends: whether store times ascend, as far as a broker's clock can be trusted.
    """

    gaps: tuple[tuple[int, int], ...]
    expected: tuple[int, int] | None
    ascends: bool = True


@dataclass(frozen=True)
class Covered(Range):
    """A range that the ConsumeQueues alone answer: the log is not read. It may reach into segments after its own.

    Attributes:
        first, last: the physical offsets at which the whole log begins and ends.
        queues, units: about how many queues are asked, and how many units they have in the range.
        share: (number, count): only each count-th of the queues, from queue `number` on.
    """

    first: int
    last: int
    queues: int
    units: int
    share: tuple[int, int] = (0, 1)

    def cut(self, parts: int) -> "list[Covered]":
        """The range in at least `parts` parts of about one size. Each part is another extent, so that large queues do
        not matter; but where a queue would have few units in each extent, parts have other queues instead."""
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
    """A range for which an index names the physical offsets of selected messages, in ascending order.

    Attributes:
        live_end: the physical offset in the range from which on the index is not trusted (LiveLog.live_end).
        batches: the same range with the BatchCQ queues, as an index does not know the messages of batches; None where
            no such message can be selected.
    """

    live_end: int
    positions: npt.NDArray[np.int64]
    batches: Queued | None = None


@dataclass(frozen=True, eq=False)
class Chosen(Indexed):
    """A range of which only the messages at these physical offsets are read, as the plan has read all of them and chose
    these. There is no other way to them: where one is not there any more, the store is not that of the plan."""


@dataclass(frozen=True)
class Task:
    """The work of one partition.

    Attributes:
        ranges: in log order.
        faults: damage found while planning: (store, damage).
        selection: the selected messages, where each store has a selection of its own; None: the selection of the read.
    """

    ranges: tuple[Range, ...] = ()
    faults: tuple[tuple[str, Damage], ...] = ()
    selection: Selection | None = None

    @property
    def nbytes(self) -> int:
        """About how many bytes of the log the task covers."""
        return sum(piece.stop - piece.start for piece in self.ranges)
