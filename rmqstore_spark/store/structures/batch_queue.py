"""BatchCQ: the queue of a topic with queue.type=BatchCQ, which has one unit for each batch of messages.

The number of a simple queue's unit is its queue offset; a BatchCQ's unit with a queue offset is searched for. Units of
queues are hints: to be right, ask the log for that unit and the next one.
Source: org.apache.rocketmq.store.queue.BatchConsumeQueue.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from rmqstore_spark.kept import kept
from rmqstore_spark.store.format.message import Header, is_batch
from rmqstore_spark.store.format.queue_block import BATCH_UNIT_SIZE, QueueBlock, QueueUnit
from rmqstore_spark.store.structures.consumequeue import FEW_UNITS, Queue
from rmqstore_spark.store.structures.queue_cursor import QueueCursor

_FEW_BYTES = 32 * 1024  # of units that are read rather than searched, where two requests more cost as much
_SMALLEST_INNER = 22  # bytes of a message in a batch


class BatchQueue(Queue):
    """The BatchCQ of one topic and queue."""

    form: ClassVar[str] = "batch"
    unit_size: ClassVar[int] = BATCH_UNIT_SIZE
    is_plain: ClassVar[bool] = False
    is_by_offset: ClassVar[bool] = False
    directory_name: ClassVar[str] = "batchconsumequeue"
    is_indexed: ClassVar[bool] = False
    has_ext: ClassVar[bool] = False

    @property
    def kind(self) -> str:
        """What kind of queue it is, as table `queues` shows it."""
        return self.form

    def parsed(self, data: bytes | bytearray | memoryview, number: int = 0) -> QueueBlock:
        """Units as they stand in the queue's files; the argument as in Queue."""
        return QueueBlock.of(data, number, is_batch=True)

    def text_of(self, units: QueueBlock, index: int) -> str:
        """As of any queue, with what only a BatchCQ says."""
        unit, time = units[index], int(units.store_times[index])
        rest = f"messages {unit.messages}, storeTimestamp {time}"
        return f"queueOffset {unit.queue_offset}, {unit.text}, {rest}"

    def unit_of(self, header: Header) -> QueueUnit | None:
        """As of any queue. Units are found by where they point, as nothing else links them to messages."""
        unit = self.unit(QueueCursor(self).seek(header.position))
        return unit if unit is not None and unit.position == header.position else None

    def in_places_of(self, expected: Iterable[QueueBlock]) -> Iterator[tuple[QueueBlock, QueueBlock]]:
        """As of any queue, in one part; -1 is the number in the places of units that the queue does not have."""
        units = QueueBlock.joined(list(expected))
        units = units.only(units.are_messages)  # a broker takes no message whose number of messages it cannot read
        positions, first = np.unique(units.positions, return_index=True)
        units = units.only(first)
        there = self._near(positions)
        missing = ~np.isin(positions, there.positions)
        if missing.any():  # the search fails in a queue that is not in order; and a broker may have written meanwhile
            there = BatchQueue(self.directory, self.topic, self.queue_id, self.files)._every_unit
            missing = ~np.isin(positions, there.positions)
        there = there.only(np.isin(there.positions, positions))
        lacking = self.parsed(bytes(int(missing.sum()) * self.unit_size))
        lacking.numbers[:] = -1
        right = QueueBlock.joined([units.only(missing), units.only(np.searchsorted(positions, there.positions))])
        order = np.argsort(right.positions, kind="stable")
        yield right.only(order), QueueBlock.joined([lacking, there]).only(order)

    def are_after_end(self, units: QueueBlock, is_left: bool) -> npt.NDArray[np.bool_]:
        """As of any queue: those of messages after all that the queue knows."""
        return units.positions > int(self._every_unit.positions.max(initial=-1))

    def _near(self, positions: npt.NDArray[np.int64]) -> QueueBlock:
        """The units that point to some ascending physical offsets or between them, if the queue is in order."""
        if not len(positions):
            return self.parsed(b"")
        cursor = QueueCursor(self)
        first, after = cursor.seek(int(positions[0])), cursor.seek(int(positions[-1]) + 1)
        units = self.block(first, max(0, after - first))
        return units.only(units.are_messages)

    @kept
    def _every_unit(self) -> QueueBlock:
        units = QueueBlock.joined(list(self.blocks(self.first, over_gaps=True)))
        return units.only(units.are_messages)

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

    def offset_at(self, number: int) -> int | None:
        """None: a number tells nothing."""
        return None

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
            ends[-1] = firsts[-1] + (max(last.size // _SMALLEST_INNER, 1) if is_batch(last.sys_flag) else 1)
        return firsts, ends - 1

    def has_hashes_of_rows(self, explodes: bool) -> bool:
        """As of any queue: the tagsCode is the batch's, and says nothing of its messages."""
        return not explodes and super().has_hashes_of_rows(explodes)
