"""Queue offsets that messages keep: where one or more between two of a queue are lost, and where that cannot be."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.store.format.by_queue import Integers, by_queue
from rmqstore_spark.write.build.gaps import Gap, Gaps
from rmqstore_spark.write.build.queuefiles import Queue


@dataclass(frozen=True)
class Lost:
    """Messages of a queue that are missing: `count` of them, from a queue offset on.

    Attributes:
        is_reused: whether the queue's next messages get these offsets.
        known: what tells of them, where it is not the queue.
    """

    queue: Queue
    queue_offset: int
    count: int
    is_reused: bool = False
    known: str = ""


class KeptOffsets:
    """Looks at messages in the order of a new log, and says before which of them a segment has to end: so that all
    messages before some lost ones are in segments before that of the next one.

    Args:
        source: where they come from, for errors.
        span: how many bytes the old logs had space for: no more can be lost.

    Attributes:
        lost: what is missing.
    """

    def __init__(self, source: str, span: int) -> None:
        self._source = source
        self._gaps = Gaps(span)
        self._count = 0  # messages
        self._ended = -1  # number of the message that the last segment begins with which was made for a gap
        self.lost: list[Lost] = []

    @property
    def starts(self) -> Mapping[Queue, int]:
        """The queue offset of the first message of each queue."""
        return self._gaps.starts

    @property
    def ends(self) -> Mapping[Queue, int]:
        """The queue offset after the last message of each queue."""
        return self._gaps.ends

    def look(
        self, topics: list[str], codes: Integers, queue_ids: Integers, offsets: Integers, begin: int | None = None
    ) -> list[int]:
        """Look at the next messages, of which each is in a queue.

        Args:
            topics: names.
            codes: the topic of each message, as an index of `topics`.
            begin: the index of one with which a segment has to begin in any case.

        Returns:
            the indexes of messages with which a segment has to begin, ascending.

        Raises:
            DamagedStoreError: a queue offset comes a second time, or so late that no log can have lost the others.
        """
        found = self._find(topics, codes, queue_ids, offsets) if len(offsets) else {}
        begins = []
        for row in sorted(found.keys() | ({begin} if begin is not None else set())):
            gap = found.get(row)
            if gap is not None:
                self._take_gap(gap)
            if row == begin or (gap is not None and self._ended <= gap.place):
                self._ended = self._count + row
                begins.append(row)
        self._count += len(offsets)
        return begins

    def _find(self, topics: list[str], codes: Integers, queue_ids: Integers, offsets: Integers) -> dict[int, Gap]:
        """The gaps, by the index of the message after each."""
        rows = by_queue(topics, codes, queue_ids)
        numbers, offsets = rows.numbers, offsets[rows.order]
        is_next = (numbers[1:] == numbers[:-1]) & (offsets[1:] == offsets[:-1] + 1)
        cuts = [0, *(np.flatnonzero(~is_next) + 1).tolist(), len(offsets)]
        found = {}
        for first, stop in itertools.pairwise(cuts):
            queue, last = rows.queues[numbers[first]], self._count + int(rows.order[stop - 1])
            if (gap := self._gaps.follow(queue, int(offsets[first]), stop - first, last)) is not None:
                found[int(rows.order[first])] = gap
        return found

    def _take_gap(self, gap: Gap) -> None:
        where = f"{self._source}: queue {gap.queue[1]} of topic {gap.queue[0]!r}"
        if gap.count < 0:
            raise DamagedStoreError(
                f"{where}: expected queueOffset {gap.expected} or a later one, found {gap.found}: its topic was "
                "deleted and created again; omit the older messages (--from), or this topic (--topic)"
            )
        if not self._gaps.has_space(gap):
            raise DamagedStoreError(
                f"{where}: expected queueOffset {gap.expected}, found {gap.found}: there was no space in the log for "
                "so many messages; omit this topic (--topic)"
            )
        self.lost.append(Lost(gap.queue, gap.expected, gap.count))
