"""Can the log have messages of a topic of which there is no ConsumeQueue?

Those of a deleted topic stay in the log for as long as their segments do. But a broker puts every message into a queue:
where the queues that are left know all of the log, there are none.
"""

from native_io import Status
from rmqstore_spark.store.commitlog import SegmentReader
from rmqstore_spark.store.consumequeue import Queue, QueueUnit, QueueUnits
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.store.queue_coverage import QueueCursors
from rmqstore_spark.store.segments import Extent

# More than these take a planner more than about a second.
_MOST_UNITS = 10_000_000
_MOST_STRETCHES = 5000  # of a queue in a segment, with some requests each


def queues_know_all(store: OpenStore) -> bool:
    """Is it sure, without a scan, that there is no message in the log but those of its ConsumeQueues?

    It is when their units cover the log without a gap or an overlap, and the first and last unit of each queue in each
    segment is of a live message of that queue. False also when there is too much to look at.
    """
    queues = store.queues.with_batch
    if len(queues) * len(store.log.extents) > _MOST_STRETCHES or sum(q.end - q.first for q in queues) > _MOST_UNITS:
        return False
    cursors = QueueCursors(queues)
    return all(_know(store, extent, cursors) for extent in store.log.extents)


def _know(store: OpenStore, extent: Extent, cursors: QueueCursors) -> bool:
    coverage = cursors.cover(extent.start, extent.stop, set(range(len(cursors.queues))))
    if coverage is None or not coverage.firsts:
        return False
    stretches = [(cursors.queues[number], coverage.units[number]) for number in coverage.firsts]
    with store.reader(extent.segment) as reader:
        return (
            all(_holds(reader, queue, units, at) for queue, units in stretches for at in (0, -1))
            and store.log.is_live(max(int(units.positions[-1]) for _, units in stretches))
            # A segment ends with a blank.
            and all(reader.walk(start, stop) == (None, start, Status.BLANK) for start, stop in coverage.gaps)
        )


def _holds(reader: SegmentReader, queue: Queue, units: QueueUnits, at: int) -> bool:
    unit = QueueUnit(int(units.positions[at]), int(units.sizes[at]), int(units.tags_codes[at]))
    return reader.holds(queue, int(units.queue_offsets[at]), unit)
