"""Gaps in a queue: messages that are missing between two others, as the queue offsets show."""

from dataclasses import dataclass

from native_io import FORMAT
from rmqstore_spark.write.build.tails import Queue


@dataclass(frozen=True)
class Gap:
    """A queue goes on at another queue offset than expected: at a higher one where messages are missing.

    Attributes:
        found: the queue offset at which the queue goes on.
        place: the place of the last message before the gap, as follow() was told.
    """

    queue: Queue
    expected: int
    found: int
    place: int

    @property
    def count(self) -> int:
        """The number of missing messages; below 0 where offsets come once more."""
        return self.found - self.expected


class Gaps:
    """Follows all queues of a log.

    Args:
        span: bytes of the log in which messages can be missing: no more can be missing than have space there.

    Attributes:
        starts: the queue offset of the first message of each queue.
        ends: the queue offset after the last message of each queue.
    """

    def __init__(self, span: int) -> None:
        self._most = span // FORMAT["SMALLEST_UNIT"]
        self.starts: dict[Queue, int] = {}
        self.ends: dict[Queue, int] = {}
        self._places: dict[Queue, int] = {}  # the place of the last message of each queue

    def follow(self, queue: Queue, queue_offset: int, count: int, place: int) -> Gap | None:
        """Follow the next messages of a queue, whose queue offsets have no gap among themselves.

        Args:
            queue_offset: of the first message.
            count: the number of messages.
            place: where in the log the last message is, in any measure that grows with the log.

        Returns:
            The gap before them; None where there is none.
        """
        expected, before = self.ends.get(queue, queue_offset), self._places.get(queue, -1)
        self.starts.setdefault(queue, queue_offset)
        self.ends[queue] = queue_offset + count
        self._places[queue] = place
        return Gap(queue, expected, queue_offset, before) if expected != queue_offset else None

    def has_space(self, gap: Gap) -> bool:
        """Is there space left for the missing messages of a gap? If so, the space is taken."""
        if gap.count > self._most:
            return False
        self._most -= gap.count
        return True
