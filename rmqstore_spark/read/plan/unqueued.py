"""Can the log have messages of a topic that has no ConsumeQueue?

Messages of a deleted topic stay in the log for as long as their segments do. But a broker puts every message into a
queue: where the remaining queues know all of the log, there are no such messages.
"""

from rmqstore_spark.store.queue_coverage import QueueEnd, coverage, liars
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
    queues = store.queues.without_light()
    if len(queues) * len(store.log.extents) > _MOST_STRETCHES:
        return False
    mapped = store.files.schedule.mapped
    if sum(mapped(lambda queue: queue.end - queue.first, queues)) > _MOST_UNITS:
        return False
    known = coverage(store, store.log.extents, lambda queue: True)
    if not all(found.gaps == [] and found.count for found in known):
        return False
    of_queues = mapped(lambda queue: _outer_units(store, queue), queues)
    return not liars(store, [end for ends in of_queues for end in ends])


def _outer_units(store: Snapshot, queue: Queue) -> list[QueueEnd]:
    """A queue's first and last unit in each segment."""
    found: list[QueueEnd] = []
    number = queue.first
    for extent in store.log.extents:
        units, number = queue.units(number, extent.stop)
        units = units.only(units.positions >= extent.start)
        outer = (units[0], units[-1]) if len(units) else ()
        found += [(queue, (unit.position, unit.size, unit.queue_offset)) for unit in outer]
    return found
