"""Where each queue of a store goes on, as its log confirms it."""

import bisect
from collections.abc import Iterable

from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.store.consumequeue import Queue
from rmqstore_spark.store.layout import queue_path
from rmqstore_spark.store.message import Header
from rmqstore_spark.store.opened import OpenStore


def queue_ends(store: OpenStore, topics: Iterable[str]) -> dict[tuple[str, int], int]:
    """The next queue offset of each queue of some topics: after its last unit that the log confirms. What comes after
    that may be left over from a truncated log.

    A queue that is not in here, but has files, is none that the log confirms.

    Raises:
        DamagedStoreError: the ConsumeQueues lag, so that some would go on with wrong offsets.
    """
    next_offsets = {}
    for queue in (queue for topic in topics for queue in store.queues.of_topic(topic)):
        live = _LiveUnits(store, queue)
        offsets = range(queue.search(store.end))
        end = bisect.bisect_left(offsets, True, lo=queue.first, key=lambda offset: not live.has(offset))
        if live.may_go_on(end):
            next_offsets[queue.topic, queue.queue_id] = end
    _refuse_unqueued(store)
    return next_offsets


def _begin(store: OpenStore) -> int:
    return store.log.extents[0].start if store.log.extents else store.end


class _LiveUnits:
    """Which units of a queue are of the live log."""

    def __init__(self, store: OpenStore, queue: Queue) -> None:
        self._log = store.log
        self._queue = queue
        self._begin = _begin(store)

    def has(self, queue_offset: int) -> bool:
        """Does the log confirm a unit, or has its message expired?"""
        unit = self._queue.unit(queue_offset)
        if unit is None or unit.position < self._begin:  # None: pre-blank
            return True
        return self._log.holds(self._queue, queue_offset, unit, however_far=True)

    def may_go_on(self, end: int) -> bool:
        """Is what comes after `end` left over from a truncated log, and no more? A live message of this queue with a
        greater queueOffset means that a broker has lost count; and LMQ queues have messages of other ones."""
        if self._queue.is_lmq:
            return False
        unit = self._queue.unit(end)
        header = self._log.header(unit.position) if unit is not None else None
        is_mine = header is not None and (header.topic, header.queue_id) == (self._queue.topic, self._queue.queue_id)
        return header is None or not is_mine or header.queue_offset <= end


def _refuse_unqueued(store: OpenStore) -> None:
    """Refuse a log whose last message its queue does not know. A broker fills the queues in the order of the log, so
    where they know that one, none lags."""
    last = _last_queued(store)
    if last is not None and not store.queues.vouch_for(last):
        raise DamagedStoreError(
            f"{store.root}: the ConsumeQueues lag the commitlog: expected a unit for the message of queue "
            f"{last.queue_id} of {last.topic} at commitLogOffset {last.position}, found none; "
            "call rmqstore_spark.rebuild(store) first"
        )


def _last_queued(store: OpenStore) -> Header | None:
    """The last message of the log that is to be in a queue."""
    if store.last_message is not None and _is_queued(store.last_message):
        return store.last_message
    for extent in reversed(store.log.extents):
        found = None
        with store.reader(extent.segment) as reader:
            for header in reader.headers(extent.start, extent.stop):
                found = header if _is_queued(header) else found
        if found is not None:
            return found
    return None


def _is_queued(header: Header) -> bool:
    return header.is_queued and queue_path(header.topic, header.queue_id) is not None
