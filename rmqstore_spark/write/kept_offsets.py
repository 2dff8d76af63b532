"""Queue offsets that messages keep: where one or more between two of a queue are lost, and where that cannot be."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from native_io import FORMAT
from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.write.queuefiles import Queue

Integers = npt.NDArray[np.int64]
_ID_BITS = 32


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
        ends: the offset after the last message of each queue.
        starts: the offset of the first one.
    """

    def __init__(self, source: str, span: int) -> None:
        self._source = source
        self._most = span // FORMAT["SMALLEST_UNIT"]
        self.starts: dict[Queue, int] = {}
        self.ends: dict[Queue, int] = {}
        self._last: dict[Queue, int] = {}  # number of its last message, of all
        self._count = 0  # messages
        self._ended = -1  # number of the message that the last segment begins with which was made for a gap
        self.lost: list[Lost] = []

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
        count = len(offsets)
        if count == 0:
            return []
        keys = (codes << _ID_BITS) + queue_ids
        order = np.argsort(keys, kind="stable")
        keys, found = keys[order], offsets[order]
        is_first = np.concatenate([[True], keys[1:] != keys[:-1]])
        firsts = np.flatnonzero(is_first)
        lasts = np.append(firsts[1:], count) - 1
        expected, before = np.empty(count, np.int64), np.empty(count, np.int64)
        expected[1:], before[1:] = found[:-1] + 1, order[:-1] + self._count
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            queue = topics[int(keys[first]) >> _ID_BITS], int(keys[first]) & ((1 << _ID_BITS) - 1)
            self.starts.setdefault(queue, int(found[first]))
            expected[first] = self.ends.get(queue, found[first])
            before[first] = self._last.get(queue, -1)
            self.ends[queue] = int(found[last]) + 1
            self._last[queue] = self._count + int(order[last])
        begins = []
        wrong = {int(order[i]): int(i) for i in np.flatnonzero(found != expected)}
        for row in sorted(wrong.keys() | ({begin} if begin is not None else set())):
            is_needed = row == begin
            if (i := wrong.get(row, -1)) >= 0:
                queue = topics[int(codes[row])], int(queue_ids[row])
                self._take_gap(queue, int(expected[i]), int(found[i]))
                is_needed = is_needed or bool(self._ended <= before[i])
            if is_needed:
                self._ended = self._count + row
                begins.append(row)
        self._count += count
        return begins

    def _take_gap(self, queue: Queue, expected: int, found: int) -> None:
        where = f"{self._source}: queue {queue[1]} of topic {queue[0]!r}"
        if found < expected:
            raise DamagedStoreError(
                f"{where}: expected queueOffset {expected} or a later one, found {found}: its topic was deleted and "
                "made anew; leave the older messages away (--from), or this topic (--topic)"
            )
        self._most -= found - expected
        if self._most < 0:
            raise DamagedStoreError(
                f"{where}: expected queueOffset {expected}, found {found}: there was no space in the log for so many "
                "messages; leave this topic away (--topic)"
            )
        self.lost.append(Lost(queue, expected, found - expected))
