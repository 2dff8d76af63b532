"""BatchCQ: the queue of a topic with queue.type=BatchCQ, which has one unit for each batch of messages.

The number of a simple queue's unit is its queue offset; a BatchCQ's unit with a queue offset is searched for. Units of
queues are hints: to be right, ask the log for that unit and the next one.
Source: org.apache.rocketmq.store.queue.BatchConsumeQueue.
"""

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from rmqstore_spark.store.format.message import BATCH, Header
from rmqstore_spark.store.format.queue_block import BATCH_UNIT_SIZE, QueueBlock
from rmqstore_spark.store.structures.consumequeue import FEW_UNITS, Queue

_FEW_BYTES = 32 * 1024  # of units that are read rather than searched, where two requests more cost as much
_SMALLEST_INNER = 22  # bytes of a message in a batch


class BatchQueue(Queue):
    """The BatchCQ of one topic and queue."""

    form: ClassVar[str] = "batch"
    unit_size: ClassVar[int] = BATCH_UNIT_SIZE
    is_plain: ClassVar[bool] = False
    is_by_offset: ClassVar[bool] = False

    @property
    def kind(self) -> str:
        """What kind of queue it is, as table `queues` shows it."""
        return self.form

    def parsed(self, data: bytes | bytearray | memoryview, number: int = 0) -> QueueBlock:
        """Units as they stand in the queue's files; the argument as in Queue."""
        return QueueBlock.of(data, number, is_batch=True)

    def number_with(self, queue_offset: int) -> int:
        """As of any queue; one less than the first number where there is none."""
        return self.units_from(queue_offset)[0]

    def units_from(self, queue_offset: int) -> tuple[int, QueueBlock]:
        """number_with(), and units that were read to find it: that unit, or the queue's first one, and some behind
        it."""
        least, most = self.first, self.end
        few = max(FEW_UNITS, min(2 * self.files.prices.request, _FEW_BYTES) // self.unit_size)
        while most - least > few:
            middle = (least + most) // 2
            unit = self.unit(middle)
            if unit is not None and unit.queue_offset <= queue_offset:
                least = middle
            else:
                most = middle
        block = self.block(least, most - least)
        found = np.flatnonzero(block.are_messages & (block.queue_offsets <= queue_offset))
        if not len(found):
            return least - 1, block.only(slice(0 if least > self.first else None))
        return least + int(found[-1]), block.only(slice(int(found[-1]), None))

    def numbers_of(self, least: int, most: int) -> tuple[int, int]:
        """All: units in wrong places count, too."""
        return 0, 1 << 62

    def count_of(self, least: int, most: int) -> int:
        """The number of units with these queue offsets, as far as units are right. Asking for all costs nothing."""
        begin = self.first if least <= 0 else max(self.first, self.number_with(least))
        end = self.end if most >= (1 << 63) - 1 else self.number_with(most) + 1
        return max(0, end - begin)

    def offsets_from(self, number: int) -> tuple[int, int]:
        """The queue offset of a unit, and the one after the last unit; (0, 0) where either is none."""
        outer = [self.any_unit(each) for each in (number, self.end - 1)]
        return (0, 0) if outer[0] is None or outer[1] is None else (outer[0].queue_offset, outer[1].end)

    def offsets_of_rows(
        self, units: QueueBlock, explodes: bool, asked: tuple[int, int], header: Callable[[int], Header | None]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
        """As of any queue. The next unit vouches for the number of messages that a unit says it has; of the last unit
        only its size limits that number."""
        if not explodes or not len(units):
            return super().offsets_of_rows(units, explodes, asked, header)
        firsts, ends = units.queue_offsets, units.queue_offsets + units.messages
        if not (firsts[1:] == ends[:-1]).all():
            return None
        if firsts[-1] <= asked[1] and ends[-1] <= asked[0]:
            last = header(int(units.positions[-1]))
            if last is None:
                return None
            ends[-1] = firsts[-1] + (max(last.size // _SMALLEST_INNER, 1) if last.sys_flag & BATCH == BATCH else 1)
        return firsts, ends - 1

    def has_hashes_of_rows(self, explodes: bool) -> bool:
        """As of any queue: the tagsCode is the batch's, and says nothing of its messages."""
        return not explodes and super().has_hashes_of_rows(explodes)
