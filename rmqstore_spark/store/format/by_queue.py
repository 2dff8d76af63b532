"""Rows of messages sorted by the queue that each is in."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
QueueName = tuple[str, int]  # topic, queueId

_ID_BITS = 32  # bits of a queueId


@dataclass(frozen=True)
class ByQueue:
    """Rows grouped by queue, in their own order within a queue.

    Attributes:
        order: the rows' numbers, as rows were given.
        firsts: the index in `order` at which each queue begins, and at the end the length of `order`.
        queues: the queue that begins at each of `firsts`.
    """

    order: Integers
    firsts: Integers
    queues: Sequence[QueueName]

    @property
    def numbers(self) -> Integers:
        """For each row of `order` the number of its queue."""
        return np.repeat(np.arange(len(self.queues)), np.diff(self.firsts))

    def runs(self) -> Iterator[tuple[QueueName, Integers]]:
        """Each queue, and the numbers of its rows."""
        for number, queue in enumerate(self.queues):
            yield queue, self.order[self.firsts[number] : self.firsts[number + 1]]


def by_queue(topics: Sequence[str], codes: Integers, queue_ids: Integers) -> ByQueue:
    """Sort rows by their queues.

    Args:
        topics: names.
        codes: the topic of each row, as an index into `topics`.
        queue_ids: the queueId of each row, which may be below 0.
    """
    keys = (codes << _ID_BITS) + (queue_ids & ((1 << _ID_BITS) - 1))
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    firsts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else np.zeros(0, np.int64)
    rows = order[firsts]
    names = [
        (topics[code], number) for code, number in zip(codes[rows].tolist(), queue_ids[rows].tolist(), strict=True)
    ]
    return ByQueue(order, np.append(firsts, len(order)), names)
