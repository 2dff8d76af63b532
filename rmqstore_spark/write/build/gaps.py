"""Where messages between two of a queue are missing, of which its queue offsets tell."""

from dataclasses import dataclass

from native_io import FORMAT
from rmqstore_spark.write.build.queuefiles import Queue


@dataclass(frozen=True)
class Gap:
    """A queue goes on at another queue offset than expected: behind it where messages are missing.

    Attributes:
        found: the queue offset with which it goes on.
        place: that of the last message before it, as follow() was told.
    """

    queue: Queue
    expected: int
    found: int
    place: int

    @property
    def count(self) -> int:
        """How many messages are missing; below 0 where offsets come once more."""
        return self.found - self.expected


class Gaps:
    """Follows all queues of a log.

    Args:
        span: bytes of the log that messages can be missing in: no more of them than it has space for.

    Attributes:
        starts: the queue offset of the first message of each queue.
        ends: the one after the last.
    """

    def __init__(self, span: int) -> None:
        self._most = span // FORMAT["SMALLEST_UNIT"]
        self.starts: dict[Queue, int] = {}
        self.ends: dict[Queue, int] = {}
        self._places: dict[Queue, int] = {}  # of the last message of each queue

    def follow(self, queue: Queue, queue_offset: int, count: int, place: int) -> Gap | None:
        """The next messages of a queue, whose queue offsets have no gap.

        Args:
            queue_offset: of the first.
            count: how many they are.
            place: where in the log the last one is, in any measure that grows with it.

        Returns:
            the gap before them; None where there is none.
        """
        expected, before = self.ends.get(queue, queue_offset), self._places.get(queue, -1)
        self.starts.setdefault(queue, queue_offset)
        self.ends[queue] = queue_offset + count
        self._places[queue] = place
        return Gap(queue, expected, queue_offset, before) if expected != queue_offset else None

    def has_space(self, gap: Gap) -> bool:
        """Was there space for what is missing? If so, it is taken."""
        if gap.count > self._most:
            return False
        self._most -= gap.count
        return True
