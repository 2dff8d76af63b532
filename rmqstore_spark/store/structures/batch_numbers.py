"""The unit of a BatchCQ that has a queue offset: the number of a simple queue's unit is its queue offset, that of a
BatchCQ's is searched for. Units of queues are hints: to be right, ask the log for that unit and the next one.
"""

import numpy as np

from rmqstore_spark.store.structures.consumequeue import FEW_UNITS, Queue


def number_with(queue: Queue, queue_offset: int) -> int:
    """The number of the last unit that begins at a queue offset or before it; one less than the first number where
    there is none."""
    least, most = queue.first, queue.end
    while most - least > FEW_UNITS:
        middle = (least + most) // 2
        unit = queue.unit(middle)
        if unit is not None and unit.queue_offset <= queue_offset:
            least = middle
        else:
            most = middle
    block = queue.block(least, most - least)
    found = np.flatnonzero(block.are_messages & (block.queue_offsets <= queue_offset))
    return least + int(found[-1]) if len(found) else least - 1
