"""ConsumeQueue: for each topic and queue, a row of 20-byte units that point into the commitlog.

    0  i64 physical offset of the message unit
    8  i32 its totalSize
   12  i64 tagsCode
The queue offset of a unit is its place: (file name + position in the file) / 20. All-zero units are not yet used; units
before a queue's first message are (0, 0x7FFFFFFF, 0). A truncated queue keeps its old units behind the new end, so no
unit is believed before the commitlog confirms it. Source: org.apache.rocketmq.store.ConsumeQueue.
"""

import bisect
import contextlib
import os
import struct
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.files import Counters, ReadFile
from rmqstore_spark.store.layout import SEGMENT_NAME

_UNIT = struct.Struct(">qiq")
UNIT_SIZE = _UNIT.size


class QueueUnit(NamedTuple):
    """A unit that points to a message: physical offset, size in bytes, tagsCode."""

    position: int
    size: int
    tags_code: int


_PRE_BLANK = QueueUnit(0, 0x7FFFFFFF, 0)


class _QueueFile(NamedTuple):
    path: str
    first: int  # queue offset of its first unit
    room: int  # units


def _read(file: ReadFile, index: int) -> QueueUnit:
    data = file.read(index * UNIT_SIZE, UNIT_SIZE)
    return QueueUnit(*_UNIT.unpack(data)) if len(data) == UNIT_SIZE else QueueUnit(0, 0, 0)


class Queue:
    """The ConsumeQueue of one topic and queue. Missing and unreadable files count as unused units: it is a hint.

    Attributes:
        first: the queue offset that its first file begins with.
        room: how many units its files have room for.
    """

    def __init__(self, directory: str, topic: str, queue_id: int, counters: Counters) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._counters = counters
        self._files: list[_QueueFile] = []
        with contextlib.suppress(OSError):
            for name in sorted(name for name in os.listdir(directory) if SEGMENT_NAME.fullmatch(name)):
                path = os.path.join(directory, name)
                self._files.append(_QueueFile(path, int(name) // UNIT_SIZE, os.stat(path).st_size // UNIT_SIZE))
        self.first = self._files[0].first if self._files else 0
        self.room = sum(file.room for file in self._files)

    def unit(self, queue_offset: int) -> QueueUnit | None:
        """The unit at a queue offset, or None where there is none or it is not used."""
        for file in self._files:
            if file.first <= queue_offset < file.first + file.room:
                with contextlib.suppress(RmqStoreError), ReadFile(file.path, self._counters) as opened:
                    unit = _read(opened, queue_offset - file.first)
                    used = unit.position >= 0 and unit.size > 0 and unit != _PRE_BLANK
                    return unit if used else None
        return None

    def search(self, position: int) -> int:
        """The first queue offset whose unit points to `position` or behind it, or is not used.

        A binary search: it relies on physical offsets that grow along the queue. Where they do not (a damaged queue),
        the answer is only some queue offset.
        """

        def is_before(opened: ReadFile, index: int) -> bool:
            unit = _read(opened, index)
            return unit.size > 0 and unit.position < position

        def begins_before(file: _QueueFile) -> bool:
            with contextlib.suppress(RmqStoreError), ReadFile(file.path, self._counters) as opened:
                return is_before(opened, 0)
            return False

        # The last file that begins before the position is the one; in the files behind it every unit is too late.
        at = bisect.bisect_left(self._files, True, key=lambda file: not begins_before(file)) - 1
        if at < 0:
            return self.first
        file = self._files[at]
        with contextlib.suppress(RmqStoreError), ReadFile(file.path, self._counters) as opened:
            return file.first + bisect.bisect_left(
                range(file.room), True, key=lambda index: not is_before(opened, index)
            )
        return file.first

    @cached_property
    def end(self) -> int:
        """The queue offset behind the last used unit, when it was first asked for."""
        return self.search(1 << 62)

    def last(self) -> QueueUnit | None:
        """The last used unit, or None."""
        return self.unit(self.end - 1) if self.end > self.first else None


class ConsumeQueues:
    """All queues of a store.

    Args:
        directory: `consumequeue/`, or None where a store has none.
        counters: where to count requests and bytes.
    """

    def __init__(self, directory: str | None, counters: Counters) -> None:
        self._directory = directory
        self._counters = counters

    def __iter__(self) -> Iterator[Queue]:
        """Every queue there is, by topic and queueId. The directories are listed once."""
        return iter(self._all)

    def _children(self, below: str) -> list[str]:
        if self._directory is None:
            return []
        try:
            return sorted(os.listdir(os.path.join(self._directory, below)))
        except OSError:
            return []

    def _queue(self, topic: str, queue_id: int) -> Queue:
        assert self._directory is not None
        return Queue(os.path.join(self._directory, topic, str(queue_id)), topic, queue_id, self._counters)

    @cached_property
    def in_use(self) -> bool:
        """Is there any queue with a unit in it?"""
        return any(queue.last() is not None for queue in self._all)

    @cached_property
    def _all(self) -> list[Queue]:
        names = ((topic, name) for topic in self._children("") for name in self._children(topic))
        return [self._queue(topic, int(name)) for topic, name in names if name.isascii() and name.isdigit()]

    def sizes_at(self, position: int) -> list[int]:
        """The sizes that the queues give the message at a physical offset: one, or none; more are a lie of some."""
        units = (queue.unit(queue.search(position)) for queue in self._all)
        return [unit.size for unit in units if unit is not None and unit.position == position]

    def vouches(self, topic: str, queue_id: int, queue_offset: int, position: int, size: int) -> bool | None:
        """Does the ConsumeQueue know this message? True or False; None when it has nothing at that queue offset.

        Topic and queueId come from a commitlog that may be damaged, so they are no path before they are looked at.
        """
        if self._directory is None or queue_id < 0 or topic in ("", ".", "..") or "/" in topic or "\0" in topic:
            return None
        unit = self._queue(topic, queue_id).unit(queue_offset)
        return None if unit is None else (unit.position, unit.size) == (position, size)
