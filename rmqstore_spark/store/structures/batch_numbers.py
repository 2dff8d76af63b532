"""The unit of a BatchCQ that has a queue offset: the number of a simple queue's unit is its queue offset, that of a
BatchCQ's is searched for. Units of queues are hints: to be right, ask the log for that unit and the next one.
"""

import numpy as np

from rmqstore_spark.store.format.queue_block import QueueBlock
from rmqstore_spark.store.structures.consumequeue import FEW_UNITS, Queue

_FEW_BYTES = 32 * 1024  # of units that are read rather than searched, where two requests more cost as much


def number_with(queue: Queue, queue_offset: int) -> int:
    """The number of the last unit that begins at a queue offset or before it; one less than the first number where
    there is none."""
    return units_from(queue, queue_offset)[0]


def units_from(queue: Queue, queue_offset: int) -> tuple[int, QueueBlock]:
    """number_with(), and units that were read to find it: that unit, or the queue's first one, and some behind it."""
    least, most = queue.first, queue.end
    few = max(FEW_UNITS, min(2 * queue.files.prices.request, _FEW_BYTES) // queue.unit_size)
    while most - least > few:
        middle = (least + most) // 2
        unit = queue.unit(middle)
        if unit is not None and unit.queue_offset <= queue_offset:
            least = middle
        else:
            most = middle
    block = queue.block(least, most - least)
    found = np.flatnonzero(block.are_messages & (block.queue_offsets <= queue_offset))
    if not len(found):
        return least - 1, block.only(slice(0 if least > queue.first else None))
    return least + int(found[-1]), block.only(slice(int(found[-1]), None))
