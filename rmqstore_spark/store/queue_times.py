"""Store times along queues: of the message at a queue offset, and the first offset from a time on."""

import bisect

from rmqstore_spark.store.consumequeue import Queue
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.store.queue_bounds import QueueBounds, unit_of


class QueueTimes:
    """Store times of messages, in microseconds of the epoch."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._queues: dict[tuple[str, int], Queue] = {}

    def at(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Of the message at a queue offset of a simple queue; None where the log has none there."""
        if (topic, queue_id) not in self._queues:
            queue = self._store.queues.queue(topic, queue_id)
            if queue is None:
                return None
            self._queues[topic, queue_id] = queue
        return self._of_unit(self._queues[topic, queue_id], offset)

    def first_from(self, bounds: QueueBounds, time: int) -> int:
        """The first queue offset whose message has a store time of `time` or later; else the end of the queue.

        A binary search, as a broker does it since 5.1.1: it relies on store times that do not go back along the queue.
        """
        queue = bounds.queue
        if bounds.first is None or bounds.last is None or _is_before(bounds.last.store_timestamp, time):
            return bounds.end
        least, most = queue.search(max(bounds.first.position, 1)), queue.search(bounds.last.position)
        if bounds.first.position == 0 and queue.unit(least - 1) is not None:
            least -= 1
        least, most = self._narrowed(queue, least, most, time)
        number = bisect.bisect_left(
            range(most), True, lo=least, key=lambda number: not _is_before(self._of_unit(queue, number), time)
        )
        unit = unit_of(queue, number)
        return bounds.end if unit is None else unit.offset

    def _narrowed(self, queue: Queue, least: int, most: int, time: int) -> tuple[int, int]:
        """The same search, where it can only be in one segment: by the store times that segments begin with."""
        log = self._store.log
        starts = [extent.start for extent in log.extents]
        milliseconds = -(-time // 1000)

        def is_late(start: int) -> bool:
            found = log.timestamp(start)
            return found is not None and found >= milliseconds

        index = bisect.bisect_left(starts, True, key=is_late)
        if index > 0:
            least = max(least, min(most, queue.search(starts[index - 1])))
        if index < len(starts):
            most = min(most, max(least, queue.search(starts[index])))
        return least, most

    def _of_unit(self, queue: Queue, number: int) -> int | None:
        unit = queue.unit(number)
        header = None if unit is None else self._store.log.header(unit.position)
        return None if header is None else header.store_timestamp


def _is_before(found: int | None, time: int) -> bool:
    return found is not None and found < time
