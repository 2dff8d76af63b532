"""Queue offsets that messages keep: gaps where messages of a queue are lost, and offsets that cannot be kept."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.store.format.by_queue import Integers, by_queue
from rmqstore_spark.write.build.gaps import Gap, Gaps
from rmqstore_spark.write.build.tails import Queue


@dataclass(frozen=True)
class Lost:
    """Missing messages of a queue: `count` of them, from a queue offset on.

    Attributes:
        is_reused: whether the queue's next messages get these offsets.
        known: the source that knows of the messages, where it is not the queue.
    """

    queue: Queue
    queue_offset: int
    count: int
    is_reused: bool = False
    known: str = ""


class KeptOffsets:
    """Looks at messages in the order of a new log, and says before which messages a segment must end, so that
    all messages before some lost ones are in earlier segments than the next message after these.

    Args:
        source: where the messages come from, for error texts.
        span: bytes that the old logs had space for: no more messages can be lost than fit in there.

    Attributes:
        lost: the missing messages.
    """

    def __init__(self, source: str, span: int) -> None:
        self._source = source
        self._gaps = Gaps(span)
        self._count = 0  # messages
        self._ended = -1  # number of the message at the start of the last segment that was begun for a gap
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
        self,
        topics: list[str],
        codes: Integers,
        queue_ids: Integers,
        offsets: Integers,
        begin: int | None = None,
        counts: Integers | None = None,
    ) -> list[int]:
        """Look at the next messages, each of which is in a queue.

        Args:
            topics: names.
            codes: the topic of each message, as an index of `topics`.
            begin: the index of a message with which a segment must begin in any case.
            counts: how many queue offsets each message has: more than one if it is a batch, and none if it has no place
                in its queue. None: each has one.

        Returns:
            The indexes of messages with which a segment must begin, ascending.

        Raises:
            DamagedStoreError: a queue offset comes a second time, or is so high that no log can have lost the messages
                before it.
        """
        counts = np.ones(len(offsets), np.int64) if counts is None else counts
        found = self._find(topics, codes, queue_ids, offsets, counts) if len(offsets) else {}
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

    def _find(
        self, topics: list[str], codes: Integers, queue_ids: Integers, offsets: Integers, counts: Integers
    ) -> dict[int, Gap]:
        """The gaps, by the index of the message after each."""
        rows = by_queue(topics, codes, queue_ids)
        numbers, offsets, counts = rows.numbers, offsets[rows.order], counts[rows.order]
        is_next = (numbers[1:] == numbers[:-1]) & (offsets[1:] == offsets[:-1] + counts[:-1])
        cuts = [0, *(np.flatnonzero(~is_next) + 1).tolist(), len(offsets)]
        found = {}
        for first, stop in itertools.pairwise(cuts):
            queue, last = rows.queues[numbers[first]], self._count + int(rows.order[stop - 1])
            if (gap := self._gaps.follow(queue, int(offsets[first]), int(counts[first:stop].sum()), last)) is not None:
                found[int(rows.order[first])] = gap
        return found

    def _take_gap(self, gap: Gap) -> None:
        where = f"{self._source}: queue {gap.queue[1]} of topic {gap.queue[0]!r}"
        if gap.count < 0:
            raise DamagedStoreError(
                f"{where}: expected queueOffset {gap.expected} or a later one, found {gap.found}: its topic was "
                "deleted and created again, or a DLedger node of 5.2.0 lost a part of the queue; omit the older "
                "messages (--from), or this topic (--topic)"
            )
        if not self._gaps.has_space(gap):
            raise DamagedStoreError(
                f"{where}: expected queueOffset {gap.expected}, found {gap.found}: there was no space in the log for "
                "so many messages; omit this topic (--topic)"
            )
        self.lost.append(Lost(gap.queue, gap.expected, gap.count))
