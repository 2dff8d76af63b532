"""Units of ConsumeQueues: what the bytes of a queue's files say, and what each unit stands for.

    0  i64 physical offset of the message unit
    8  i32 its totalSize
   12  i64 tagsCode: hash of the tag; in SCHEDULE_TOPIC_XXXX a time; below -2147483648 an address in consumequeue_ext/
A simple queue (consumequeue/) has 20-byte units, and the queue offset of a unit is its number: (file name + position in
the file) / 20. A BatchCQ (batchconsumequeue/, for topics with queue.type=BatchCQ) has 46-byte units that go on with
   20  i64 storeTimestamp   28  i64 queue offset of the first message   36  i16 messages   38  i32 -1   42  i32 0
Units are numbered from the beginning of a queue. The kernel alone says what a unit stands for (UnitKind, in
native_io/queue_units.h): zeros are not used, PRE_BLANK ones stand before a queue's first message, lost_unit() for a
message that a salvage has not found.
Source: org.apache.rocketmq.store.ConsumeQueue, queue.BatchConsumeQueue.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native_io import QUEUE_FORMAT, UnitKind, first_unit_from, queue_unit, queue_units

UNIT = struct.Struct(">qiq")
UNIT_SIZE, BATCH_UNIT_SIZE = QUEUE_FORMAT["UNIT_SIZE"], QUEUE_FORMAT["BATCH_UNIT_SIZE"]
assert UNIT.size == UNIT_SIZE
_BATCH = struct.Struct(">qqhii")  # the rest of a unit of a BatchCQ
assert UNIT.size + _BATCH.size == BATCH_UNIT_SIZE
MOST_IN_BATCH = (1 << 15) - 1  # messages
MOST_OFFSETS = (1 << 62) // UNIT_SIZE  # queue offsets that a simple queue's files can have names for

# For each queue offset before a queue's first message, in the first message's file.
PRE_BLANK = UNIT.pack(0, QUEUE_FORMAT["PRE_BLANK"], 0)
# No message is as small; and lost_unit() leaves one byte less than this of its segment.
_LOST_SIZE = QUEUE_FORMAT["LOST"]

# Arrays are compared with these ten times as fast as with members of an enum.
_NOTHING, _MESSAGE = map(np.uint8, (UnitKind.NOTHING, UnitKind.MESSAGE))

_KINDS = tuple(UnitKind)

_Longs = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


def lost_unit(segment_end: int) -> bytes:
    """The unit for a queue offset whose message is lost: the last bytes of a segment and one more, which no broker can
    read. A broker then goes on in the next segment, as after an expired message (DefaultMessageStore.getMessage,
    rollNextFile). So the queue's next message has to be there, and the message before the lost ones in this segment or
    an earlier one."""
    return UNIT.pack(segment_end - _LOST_SIZE + 1, _LOST_SIZE, 0)


def batch_unit(unit: bytes, store_time: int, queue_offset: int, messages: int) -> bytes:
    """The unit of a BatchCQ.

    Args:
        unit: its position, size and tagsCode, as in a simple queue.
        store_time: in ms.
        queue_offset: of the first message.
    """
    return unit + _BATCH.pack(store_time, queue_offset, messages, -1, 0)


class QueueUnit(NamedTuple):
    """A unit of a queue.

    Attributes:
        number: the unit's number in the queue.
        position: physical offset of the message.
        size: bytes of the message in the log.
        queue_offset: the queue offset of the first message, also of a lost one; the unit's number where it stands for
            no message.
        messages: the number of messages: more than one only in a BatchCQ.
    """

    number: int
    position: int
    size: int
    tags_code: int
    queue_offset: int
    messages: int
    kind: UnitKind = UnitKind.MESSAGE

    @classmethod
    def of(cls, data: bytes | bytearray, number: int, unit_size: int) -> "QueueUnit | None":
        """One unit as it stands in a queue's file; None where it is cut off."""
        fields = queue_unit(data, number, unit_size=unit_size)
        return None if fields is None else cls(*fields[:-1], _KINDS[fields[-1]])

    @property
    def is_message(self) -> bool:
        """Does the unit point to a message?"""
        return self.kind is UnitKind.MESSAGE

    @property
    def end(self) -> int:
        """The queue offset after the unit's messages."""
        return self.queue_offset + self.messages

    @property
    def text(self) -> str:
        """What it says, in words."""
        if self.size <= 0:
            return "none"
        if self.kind is UnitKind.PRE_BLANK:
            return "none, as before a queue's first message"
        return f"commitLogOffset {self.position}, size {self.size}, tagsCode {self.tags_code}"

    @property
    def fields(self) -> tuple[int, int, int]:
        """Position, size and tagsCode."""
        return self.position, self.size, self.tags_code


# Not frozen, as making one would take five times as long, and there is one for each look at a queue.
@dataclass(eq=False, slots=True)
class QueueBlock:
    """Units of a queue: arrays of one length, with the fields of QueueUnit.

    Attributes:
        store_times: store time (ms) of the first message in a BatchCQ; else 0.
        kinds: the UnitKind of each unit.
    """

    numbers: _Longs
    positions: _Longs
    sizes: _Longs
    tags_codes: _Longs
    queue_offsets: _Longs
    messages: _Longs
    store_times: _Longs
    kinds: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview, number: int = 0, is_batch: bool = False) -> "QueueBlock":
        """Units as they stand in a queue's file.

        Args:
            number: the number of the first unit.
        """
        (numbers, positions, sizes, tags_codes, queue_offsets, messages, store_times), kinds = queue_units(
            data, number, unit_size=BATCH_UNIT_SIZE if is_batch else UNIT_SIZE
        )
        return cls(numbers, positions, sizes, tags_codes, queue_offsets, messages, store_times, kinds)

    @classmethod
    def joined(cls, blocks: Sequence["QueueBlock"]) -> "QueueBlock":
        """The units of some blocks, one after the other."""
        if len(blocks) == 1:
            return blocks[0]
        blocks = blocks or [cls.of(b"")]
        return cls(*(np.concatenate([getattr(block, name) for block in blocks]) for name in cls.__slots__))

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> QueueUnit:
        """One of the units."""
        return QueueUnit(
            int(self.numbers[index]),
            int(self.positions[index]),
            int(self.sizes[index]),
            int(self.tags_codes[index]),
            int(self.queue_offsets[index]),
            int(self.messages[index]),
            UnitKind(self.kinds[index]),
        )

    def __iter__(self) -> Iterator[QueueUnit]:
        return map(self.__getitem__, range(len(self)))

    def only(self, which: "_Flags | _Longs | slice") -> "QueueBlock":
        """Some of the units."""
        return QueueBlock(
            self.numbers[which],
            self.positions[which],
            self.sizes[which],
            self.tags_codes[which],
            self.queue_offsets[which],
            self.messages[which],
            self.store_times[which],
            self.kinds[which],
        )

    def number(self, numbers: _Longs, are_offsets: bool) -> None:
        """Give the units other numbers. `are_offsets`: these are their queue offsets, too, as in all but BatchCQs."""
        self.numbers = numbers
        if are_offsets:
            self.queue_offsets = numbers

    def fill(self, here: "slice | _Longs", other: "QueueBlock") -> None:
        """Put as many other units in the place of some."""
        for name in self.__slots__:
            getattr(self, name)[here] = getattr(other, name)

    def put(self, index: int, unit: QueueUnit | None) -> None:
        """Put another unit, without a store time, in the place of one; None: one that is not in use."""
        self.kinds[index] = UnitKind.NOTHING if unit is None else unit.kind
        if unit is not None:
            self.numbers[index], self.positions[index], self.sizes[index] = unit.number, unit.position, unit.size
            self.tags_codes[index], self.queue_offsets[index] = unit.tags_code, unit.queue_offset
            self.messages[index] = unit.messages

    @property
    def are_messages(self) -> _Flags:
        """Which of the units stand for messages."""
        are_messages: _Flags = self.kinds == _MESSAGE
        return are_messages

    @property
    def are_used(self) -> _Flags:
        """Which of the units stand for anything."""
        are_used: _Flags = self.kinds != _NOTHING
        return are_used

    def first_from(self, position: int, index: int = 0) -> int:
        """The first index, from `index` on, of a unit that does not come before a physical offset; else the number of
        units."""
        return first_unit_from(self.positions, self.kinds, position, index=index)

    def ascending(self) -> "QueueBlock":
        """The units up to the first whose message begins before the previous one ends: units from there on are left
        over from a truncated log, or noise."""
        ends = self.positions + self.sizes
        wrong = np.flatnonzero(self.positions[1:] < ends[:-1])
        return self.only(slice(int(wrong[0]) + 1)) if len(wrong) else self
