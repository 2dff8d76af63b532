"""The sizes of damaged messages as the queues give them; each queue is searched once for many that are near each other.

The queue of a damaged message is unknown, so all queues are searched for its physical offset. The time to search each
queue for each damage would grow with damages times queues. So the log is divided into windows: for a window, each
queue's units are found and read at once, and kept together, sorted by physical offset.

Windows are aligned: the answer is the same wherever reading begins.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native_io import FORMAT
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.queue_cursor import QueueCursor
from rmqstore_spark.store.structures.queues import ConsumeQueues

WINDOW = 16 * 1024 * 1024
_MOST_UNITS = WINDOW // FORMAT["SMALLEST_UNIT"]


class _Window(NamedTuple):
    """The units that point into a window.

    Attributes:
        number: the number of the window.
        positions: where messages begin, ascending.
        sizes: the size of each message in bytes.
        odd: the queues that have to be searched for each position, as their units are no ascending row of messages.
    """

    number: int
    positions: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    odd: list[Queue]


class QueueSizes:
    """The sizes of messages, as a store's simple queues tell them."""

    def __init__(self, queues: ConsumeQueues) -> None:
        self._queues = queues
        self._window: _Window | None = None

    def at(self, position: int) -> list[int]:
        """The sizes that the queues give for the message at a physical offset: one, or none; with several, some queues
        are wrong."""
        number = position // WINDOW
        window = self._window
        if window is None or window.number != number:
            window = self._window = self._looked_at(number)
        first, after = (int(np.searchsorted(window.positions, position, side)) for side in ("left", "right"))
        units = (queue.unit(QueueCursor(queue).seek(position)) for queue in window.odd)
        odd = (unit.size for unit in units if unit is not None and unit.position == position)
        return [*window.sizes[first:after].tolist(), *odd]

    def _looked_at(self, number: int) -> _Window:
        positions, sizes, odd = [np.empty(0, np.int64)], [np.empty(0, np.int64)], []
        for queue in self._queues:
            found = _units(queue, number * WINDOW, (number + 1) * WINDOW)
            if found is None:
                odd.append(queue)
            else:
                positions.append(found[0])
                sizes.append(found[1])
        at, size = np.concatenate(positions), np.concatenate(sizes)
        order = np.argsort(at, kind="stable")
        return _Window(number, at[order], size[order], odd)


def _units(queue: Queue, start: int, stop: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """The physical offsets of a queue's messages in [start, stop), and their sizes; None where the units there do not
    ascend, or some are missing: a search for a single position may then find units outside the range that the window's
    ends give."""
    cursor = QueueCursor(queue)
    first, after = cursor.seek(start), cursor.seek(stop)
    if not 0 <= after - first <= _MOST_UNITS:
        return None
    units = queue.block(first, after - first)
    at = units.positions
    if len(units) < after - first or not units.are_messages.all() or (at[1:] <= at[:-1]).any():
        return None
    return at, units.sizes
