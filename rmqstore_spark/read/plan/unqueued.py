"""Can the log have messages of a topic that has no ConsumeQueue?

Messages of a deleted topic stay in the log for as long as their segments do. But a broker puts every message into a
queue: where the remaining queues know all of the log, there are no such messages.
"""

from rmqstore_spark.store.queue_coverage import coverage
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue

# More units than these take a planner more than about a second.
_MOST_UNITS = 10_000_000
_MOST_STRETCHES = 5000  # of a queue in a segment, with some requests each


def queues_know_all(store: Snapshot) -> bool:
    """Is it sure, without a scan, that the log has only messages of its ConsumeQueues?

    This is sure when the units cover the log without a gap or an overlap, and the first and last unit of each queue in
    each segment is of a message of that queue. False also when there is too much to look at.
    """
    if store.is_of_known_queues:
        return True
    queues = store.queues.with_batch
    if len(queues) * len(store.log.extents) > _MOST_STRETCHES or sum(q.end - q.first for q in queues) > _MOST_UNITS:
        return False
    known = coverage(store, store.log.extents, lambda queue: True)
    return all(found.gaps == [] and found.count for found in known) and all(_are_held(store, queue) for queue in queues)


def _are_held(store: Snapshot, queue: Queue) -> bool:
    """Are a queue's first and last unit in each segment units of its messages? Units of light queues are of other
    queues."""
    if queue.is_lmq:
        return True
    number = queue.first
    for extent in store.log.extents:
        units, number = queue.units(number, extent.stop)
        units = units.only(units.positions >= extent.start)
        if len(units) and not all(
            store.log.has_message(queue, unit.queue_offset, unit) for unit in (units[0], units[-1])
        ):
            return False
    return True
