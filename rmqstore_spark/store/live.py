"""Old units of a truncated log, told from live ones.

They stay on disk behind the blank of a segment that was written anew, and so do those of queues and index files: they
confirm each other. In a queue all of them lie behind its live units. So what comes in a queue before one of the first
units of a later segment, which are live, is live, and so is all of the log before it.
"""

import itertools

from rmqstore_spark.store.commitlog import Segment, SegmentReader, headers
from rmqstore_spark.store.consumequeue import ConsumeQueues
from rmqstore_spark.store.files import Files
from rmqstore_spark.store.message import Header

_QUEUES_TO_ASK = 16


def live_end(reader: SegmentReader, later: Segment, queues: ConsumeQueues, files: Files) -> int:
    """A physical offset in the reader's segment: all units before it are live, and there one begins or the blank does.

    Args:
        reader: reads a segment that is not the last one.
        later: the next segment that has messages.
        queues: the store's ConsumeQueues.
        files: how to reach files, and where requests and bytes are counted.
    """
    with SegmentReader(later, False, queues, files) as following:
        run = following.run_at(later.start, later.end)
        first = headers(run) if run is not None else []
    by_queue = {(header.topic, header.queue_id): header for header in reversed(first)}
    asked = itertools.islice(by_queue.values(), _QUEUES_TO_ASK)
    ends = (_end_before(header, queues, reader) for header in asked)
    return max((end for end in ends if end is not None), default=reader.segment.start)


def _end_before(header: Header, queues: ConsumeQueues, reader: SegmentReader) -> int | None:
    """Where the message ends that comes before this one in its queue, if it is in the reader's segment."""
    queue = queues.queue(header.topic, header.queue_id)
    unit = None if queue is None else queue.unit(header.queue_offset - 1)
    if queue is None or unit is None or not reader.segment.start <= unit.position < reader.segment.end:
        return None
    here = queue.unit(header.queue_offset)
    is_known = here is not None and (here.position, here.size) == (header.position, header.size)
    return unit.position + unit.size if is_known and reader.holds(queue, header.queue_offset - 1, unit) else None
