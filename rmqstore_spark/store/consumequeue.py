"""ConsumeQueue: for each topic and queue, a row of units that point into the commitlog.

    0  i64 physical offset of the message unit
    8  i32 its totalSize
   12  i64 tagsCode: hash of the tag; in SCHEDULE_TOPIC_XXXX a time; below -2147483648 an address in consumequeue_ext/
A simple queue (consumequeue/) has 20-byte units, and the queue offset of a unit is its number: (file name + position in
the file) / 20. A BatchCQ (batchconsumequeue/, for topics with queue.type=BatchCQ) has 46-byte units that go on with
   20  i64 storeTimestamp   28  i64 queue offset of the first message   36  i16 messages   38  i32 -1   42  i32 0
All-zero units are not yet used; those before a queue's first message are PRE_BLANK, those of lost ones lost_unit(). A
truncated queue keeps its old units after the new end, so no unit is believed before the commitlog confirms it.
Source: org.apache.rocketmq.store.ConsumeQueue, queue.BatchConsumeQueue, ConsumeQueueExt.
"""

import bisect
import enum
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from native_io import read_short_queues
from rmqstore_spark.kept import kept
from rmqstore_spark.progress import Progress
from rmqstore_spark.store.files import Files, OpenFile, allocated, file_status, ignore_unreadable
from rmqstore_spark.store.layout import queue_id_of, queue_path, start_in
from rmqstore_spark.store.message import Header

# The fields of a unit, as struct and numpy both write them; those of a BatchCQ have more.
_FIELDS = {"position": "q", "size": "i", "tags_code": "q"}
_BATCH_FIELDS = {**_FIELDS, "store_timestamp": "q", "base": "q", "count": "h", "compacted": "i", "spare": "i"}
UNIT = struct.Struct(">" + "".join(_FIELDS.values()))
UNIT_SIZE = UNIT.size
_SIMPLE, _BATCH = (
    np.dtype([(name, ">" + code) for name, code in fields.items()]) for fields in (_FIELDS, _BATCH_FIELDS)
)

_CHUNK_UNITS = 16 * 1024  # read at once where all are read
_UNITS_AT_ONCE = 128  # so few are read in one request rather than searched
_LEAST_AT_ONCE, _MOST_AT_ONCE = 256, 64 * 1024  # in a walk along a queue: it begins small and gets larger
_QUEUES_AT_ONCE = 64  # short ones are read with one call of the kernel
_SHORT = 16 * 1024  # bytes of the units of a short one


class QueueUnit(NamedTuple):
    """A unit that points to a message: physical offset, size in bytes, tagsCode."""

    position: int
    size: int
    tags_code: int

    @property
    def is_used(self) -> bool:
        """Does it point to a message?"""
        return self.position >= 0 and self.size > 0 and self != PRE_BLANK and self.size != LOST_SIZE


PRE_BLANK = QueueUnit(0, 0x7FFFFFFF, 0)  # for each queue offset before a queue's first message, in that one's file
MOST_OFFSETS = (1 << 62) // UNIT_SIZE  # queue offsets that a simple queue's files can have names for
LOST_SIZE = 9  # no message is as small; and one byte more than is left in a segment after lost_unit()


def lost_unit(segment_end: int) -> QueueUnit:
    """For a queue offset whose message is lost: the last bytes of a segment and one more, which no broker can read. It
    then goes on in the next segment, as after an expired message (DefaultMessageStore.getMessage, rollNextFile). So the
    queue's next message has to be there, and the one before the lost ones in this segment or an earlier one."""
    return QueueUnit(segment_end - LOST_SIZE + 1, LOST_SIZE, 0)


class QueueFile(NamedTuple):
    """A file of a queue."""

    path: str
    first: int  # the number of its first unit
    capacity: int  # units
    size: int  # bytes
    allocated: int  # bytes that it takes on the disk: files are made at their full size, as a hole


def parsed(data: bytes, is_batch: bool = False) -> Any:
    """Units as they stand in a file: an array with the fields position, size and tags_code; in a BatchCQ also
    store_timestamp, base and count."""
    layout = _BATCH if is_batch else _SIMPLE
    return np.frombuffer(data, layout, len(data) // layout.itemsize)


class Kind(enum.IntEnum):
    """What a unit stands for."""

    NOTHING = 0  # zeros, or noise: it is not used
    PRE_BLANK = 1
    LOST = 2
    MESSAGE = 3


def kinds(units: Any) -> npt.NDArray[np.uint8]:
    """The Kind of each unit of parsed()."""
    counts = (units["position"] >= 0) & (units["size"] > 0)
    if units.dtype == _BATCH:
        counts &= (units["base"] >= 0) & (units["count"] > 0)
    found = np.where(counts, np.uint8(Kind.MESSAGE), np.uint8(Kind.NOTHING))
    found[counts & (units["size"] == LOST_SIZE)] = Kind.LOST
    found[counts & (units["position"] == PRE_BLANK.position) & (units["size"] == PRE_BLANK.size)] = Kind.PRE_BLANK
    return found


def is_used(units: Any) -> npt.NDArray[np.bool_]:
    """Which units of parsed() stand for a message: pre-blank and lost ones do not."""
    used: npt.NDArray[np.bool_] = kinds(units) == Kind.MESSAGE
    return used


class QueueUnits(NamedTuple):
    """Used units of a queue, as arrays of one length: what they point to, and the queue offsets of the messages."""

    positions: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int32]
    tags_codes: npt.NDArray[np.int64]
    queue_offsets: npt.NDArray[np.int64]

    def only(self, which: "npt.NDArray[np.bool_] | slice") -> "QueueUnits":
        """Some of the units."""
        return QueueUnits(self.positions[which], self.sizes[which], self.tags_codes[which], self.queue_offsets[which])

    def ascending(self) -> "QueueUnits":
        """Those before the first that begins before the one before it ends: what comes from there on is left over from
        a truncated log, or noise."""
        ends = self.positions + self.sizes
        wrong = np.flatnonzero(self.positions[1:] < ends[:-1])
        return self.only(slice(int(wrong[0]) + 1)) if len(wrong) else self


class Queue:
    """The ConsumeQueue of one topic and queue. Missing and unreadable files count as unused units: it is a hint.

    Units are numbered from the queue's beginning; in a simple queue that number is the queue offset. Its files are
    listed when they are first needed.

    Attributes:
        directory: where its files are.
        is_batch: whether it is a BatchCQ.
    """

    def __init__(self, directory: str, topic: str, queue_id: int, files: Files, is_batch: bool = False) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.is_batch = is_batch
        self.directory = directory
        self._files = files

    @kept
    def in_files(self) -> list[QueueFile]:
        """Its files, in their order."""
        found: list[QueueFile] = []
        size = self.unit_size
        for name in _children(self.directory, self._files):
            start = start_in(name)
            path = os.path.join(self.directory, name)
            status = None if start is None else file_status(path, self._files)
            if start is None or status is None:
                continue
            nbytes = status.st_size
            if found:  # one that is too long has the units of the next one not twice
                last = found[-1]
                found[-1] = last._replace(capacity=min(last.capacity, start // size - last.first))
            found.append(QueueFile(path, start // size, nbytes // size, nbytes, allocated(status)))
        return found

    @property
    def first(self) -> int:
        """The number of the unit that its first file begins with."""
        return self.in_files[0].first if self.in_files else 0

    @property
    def unit_size(self) -> int:
        """Bytes of a unit."""
        return (_BATCH if self.is_batch else _SIMPLE).itemsize

    @property
    def is_lmq(self) -> bool:
        """Is it a queue of messages that are in their own topics' queues as well (light message queue, MixAll)?"""
        return _is_lmq(self.topic)

    @property
    def sizes(self) -> list[tuple[str, int]]:
        """Its files, in their order, with their bytes."""
        return [(file.path, file.size) for file in self.in_files]

    def _read(self, file: OpenFile, index: int) -> QueueUnit:
        data = file.read(index * self.unit_size, UNIT_SIZE)
        return QueueUnit(*UNIT.unpack(data)) if len(data) == UNIT_SIZE else QueueUnit(0, 0, 0)

    def unit(self, number: int) -> QueueUnit | None:
        """The unit of this number, or None where there is none or it is not used."""
        for file in self.in_files:
            if file.first <= number < file.first + file.capacity:
                with ignore_unreadable(), self._files.file(file.path) as opened:
                    unit = self._read(opened, number - file.first)
                    return unit if unit.is_used else None
        return None

    def units(self, start: int, position: int) -> tuple[QueueUnits, int]:
        """The used units from number `start` up to the first that points to `position` or after it, or is not used;
        and the number of that one."""
        parts, count, number = [], _LEAST_AT_ONCE, start
        while True:
            data = self.read_units(number, count)
            found = parsed(data, self.is_batch)
            beyond = np.flatnonzero((found["position"] >= position) | (found["size"] <= 0))
            end = int(beyond[0]) if len(beyond) else len(found)
            parts.append(data[: end * self.unit_size])
            number += end
            if end < count:
                break
            count = min(2 * count, _MOST_AT_ONCE)
        units = parsed(b"".join(parts), self.is_batch)
        positions, sizes = units["position"].astype(np.int64), units["size"].astype(np.int32)
        numbers = np.arange(start, number)
        queue_offsets = units["base"].astype(np.int64) if self.is_batch else numbers
        result = QueueUnits(positions, sizes, units["tags_code"].astype(np.int64), queue_offsets)
        used = is_used(units)
        return (result if used.all() else result.only(used)), number

    def chunks(self, number: int, count: int = _CHUNK_UNITS) -> Iterator[bytes]:
        """Its units from a number on as they stand in its files, up to where there is no more data or a file is
        missing. What is not used is among them.

        Args:
            count: how many come first; then it is twice as many each time.
        """
        size = self.unit_size
        for file in self.in_files:
            if file.first + file.capacity <= number:
                continue
            if file.first > number:
                return
            with ignore_unreadable(), self._files.file(file.path) as opened:
                used = min(file.capacity, -(-opened.used_end() // size))
                while number - file.first < used:
                    data = opened.read((number - file.first) * size, min(count, file.first + used - number) * size)
                    if len(data) < size:
                        return
                    number += len(data) // size
                    count = min(2 * count, _CHUNK_UNITS)
                    yield data
            if number < file.first + file.capacity:
                return

    def between(self, start: int | None, stop: int | None, buffer: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Its units that point into the physical offsets [start, stop), as they stand in its files, up to where there
        is no more data or a file is missing: the number of the first, and bytes, which stand in `buffer` until the next
        are asked for. Some units before and after them come along, and what is not used.

        Args:
            start, stop: None where the queue has nothing before, or from there on, that is to be left out.
        """
        size = self.unit_size
        number: int | None = None  # of the next unit
        for file in self.in_files[self._at(start) if start is not None else 0 :]:
            if number not in (None, file.first):
                return
            with ignore_unreadable(), self._files.file(file.path) as opened:
                used = min(file.capacity, -(-opened.used_end() // size))
                at = 0 if number is not None or start is None else self._narrowed(opened, used, start)[0]
                after = used if stop is None else self._narrowed(opened, used, stop, at)[1]
                while at < after:
                    part = buffer[: min(after - at, len(buffer) // size) * size]
                    count = opened.read_into(part, at * size) // size
                    if count == 0:
                        return
                    yield file.first + at, part[: count * size]
                    at += count
                number = file.first + at
            if number != file.first + file.capacity:
                return

    def read_units(self, start: int, count: int) -> bytes:
        """The bytes of at most `count` units from number `start` on, as far as one file follows the other."""
        size = self.unit_size
        data = b""
        for file in self.in_files:
            if file.first <= start < file.first + file.capacity and count > 0:
                with ignore_unreadable(), self._files.file(file.path) as opened:
                    part = opened.read(
                        (start - file.first) * size, min(count, file.first + file.capacity - start) * size
                    )
                    data += part[: len(part) // size * size]
                    start, count = start + len(part) // size, count - len(part) // size
        return data

    def search(self, position: int, guess: int | None = None, stop: int | None = None) -> int:
        """The number of the first unit that points to `position` or after it, or is not used.

        A binary search: it relies on physical offsets that ascend along the queue. Where they do not the answer is only
        some number: in a damaged queue, and where units are left over from a truncated log, whose offsets begin anew.
        So whoever must be right searches the live part of the queue alone (store/queue_bounds.py says where it ends),
        or holds the answer against the log.

        Args:
            guess: a number that may be near it.
            stop: the answer where all units before this number point to before `position`.
        """
        if not self.in_files:
            return self.first
        file = self.in_files[self._at(position, guess, stop)]
        with ignore_unreadable(), self._files.file(file.path) as opened:
            size = self.unit_size
            used = min(file.capacity, -(-opened.data_end() // size))  # where there is no data no unit is used
            used = used if stop is None else max(0, min(used, stop - file.first))
            near = None if guess is None else guess - file.first
            least, most = self._narrowed(opened, used, position, guess=near)
            data = opened.read(least * size, (most - least) * size)
            units = range(len(data) // size)
            index = bisect.bisect_left(
                units, True, key=lambda i: not _is_before(QueueUnit(*UNIT.unpack_from(data, i * size)), position)
            )
            return file.first + least + index
        return file.first

    def _at(self, position: int, guess: int | None = None, stop: int | None = None) -> int:
        """Which of its files the first unit is in that points to `position` or after it, or is not used."""
        files = self.in_files if stop is None else [file for file in self.in_files if file.first < stop]
        near = None if guess is None else sum(file.first <= guess for file in self.in_files) - 1

        def begins_before(number: int) -> bool:
            file = self.in_files[number]
            with ignore_unreadable(), self._files.file(file.path) as opened:
                return _is_before(self._read(opened, 0), position)
            return False

        # The last file that begins before the position is the one; in the files after it every unit is too late.
        return self._files.schedule.partition_point(1, max(1, len(files)), begins_before, near) - 1

    def _narrowed(
        self, file: OpenFile, used: int, position: int, least: int = 0, guess: int | None = None
    ) -> tuple[int, int]:
        """Between which indexes of a file, both included, that unit is: so few that they are read at once.

        Args:
            used: how many units of the file may be used.
            least: the index of one that is not after it.
            guess: an index that may be near it.
        """
        at_once = max(_UNITS_AT_ONCE, self._files.prices.linear_below)
        if used - least <= at_once:
            return least, used
        # The unit is before the first stretch that begins with one that is not before the position.
        stretches = -(-(used - least) // at_once)
        after = self._files.schedule.partition_point(
            1,
            stretches,
            lambda number: _is_before(self._read(file, least + number * at_once), position),
            None if guess is None else (guess - least) // at_once,
        )
        return least + (after - 1) * at_once, min(least + after * at_once, used)

    @property
    def stop(self) -> int:
        """The number after the last unit that its files have space for."""
        return self.in_files[-1].first + self.in_files[-1].capacity if self.in_files else 0

    @kept
    def end(self) -> int:
        """The number after the last unit that is not all zeros, when it was first asked for. It may be left over from a
        truncated log."""
        # Where no hole can be seen, a search comes first. Zeros in the middle can fool it: where it finds no unit in
        # the last file, it is not believed.
        found = self.search(1 << 62) if self.in_files and not self._files.has_holes else 0
        return found if self.in_files and found > self.in_files[-1].first else self._read_end()

    def _read_end(self) -> int:
        """The same by reading backwards, so that no zeros are in the way."""
        for file in reversed(self.in_files):
            with ignore_unreadable(), self._files.file(file.path) as opened:
                stop, count = min(file.capacity, -(-opened.used_end() // self.unit_size)), _UNITS_AT_ONCE
                while stop > 0:
                    start = max(0, stop - count)
                    data = opened.read(start * self.unit_size, (stop - start) * self.unit_size)
                    found = np.flatnonzero(kinds(parsed(data, self.is_batch)))
                    if len(found):
                        return file.first + start + int(found[-1]) + 1
                    stop, count = start, min(2 * count, _CHUNK_UNITS)
        return self.first

    def last(self) -> QueueUnit | None:
        """The last used unit, or None."""
        return self.unit(self.end - 1) if self.end > self.first else None

    def last_place(self) -> tuple[str, int] | None:
        """The file that last() is in, and where in it; None where there is none."""
        number = self.end - 1
        inside = (file for file in reversed(self.in_files) if file.first <= number < file.first + file.capacity)
        return next(((file.path, (number - file.first) * self.unit_size) for file in inside), None)


def all_chunks(
    queues: Sequence[Queue], begin: int | None, files: Files
) -> Iterator[tuple[Queue, int, Iterable[bytes | memoryview]]]:
    """The units of queues, as they stand in their files: of each queue the number of the first one, and Queue.chunks()
    from there on, which are valid until the next queue is asked for. Short queues come from their beginning.

    Args:
        begin: units that point to before this physical offset need not come; None: all of them come.
    """
    buffer = memoryview(bytearray(_QUEUES_AT_ONCE * _SHORT))
    for first in range(0, len(queues), _QUEUES_AT_ONCE):
        some = queues[first : first + _QUEUES_AT_ONCE]
        for queue, known in zip(some, _short_queues(some, buffer, files), strict=True):
            if known is not None:
                yield queue, known[0], known[1:]
            elif begin is None:
                yield queue, queue.first, queue.chunks(queue.first)
            else:
                number = queue.search(begin)
                yield queue, number, queue.chunks(number, count=_LEAST_AT_ONCE)


def _short_queues(queues: Sequence[Queue], buffer: memoryview, files: Files) -> Sequence[tuple[int, memoryview] | None]:
    """The units of short queues, read with one call of the kernel.

    Args:
        buffer: where their units stand then, each queue's in an equal share.

    Returns:
        of each queue the number of the first unit, and the units up to one that is not used at least. None where the
        queue has to be looked at in another way.
    """
    if not files.are_paths_the_systems or any(queue.is_batch for queue in queues):
        return [None] * len(queues)
    numbers, sizes = np.empty((2, len(queues)), np.int64)
    paths = b"".join(os.fsencode(queue.directory) + b"\0" for queue in queues)
    nbytes, requests = read_short_queues(paths, numbers, sizes, buffer)
    files.count(requests, nbytes)
    share = len(buffer) // len(queues)
    return [
        None if size < 0 else (number, buffer[at * share : at * share + size])
        for at, (number, size) in enumerate(zip(numbers.tolist(), sizes.tolist(), strict=True))
    ]


class ConsumeQueues:
    """All queues of a store.

    Args:
        directory: `consumequeue/`, or None where a store has none.
        files: how to reach files, and where requests and bytes are counted.
        batch_directory: `batchconsumequeue/`, or None.
    """

    def __init__(self, directory: str | None, files: Files, batch_directory: str | None = None) -> None:
        self._directory = directory
        self._batch_directory = batch_directory
        self._files = files
        self._topics: dict[tuple[str, bool], list[Queue]] = {}

    def __iter__(self) -> Iterator[Queue]:
        """Every simple queue there is, by topic and queueId. The directories are listed once."""
        return iter(self._simple)

    @property
    def with_batch(self) -> list[Queue]:
        """The simple queues, and after them the batch queues."""
        return self._simple + self.batch

    def of_topic(self, topic: str, is_batch: bool = False) -> list[Queue]:
        """The simple queues of a topic, or its batch queues; no other directory is listed, and this one once."""
        path, above = queue_path(topic, 0), self._batch_directory if is_batch else self._directory
        if above is None or path is None:
            return []
        if (topic, is_batch) not in self._topics:
            directory = os.path.join(above, os.path.dirname(path))
            self._topics[topic, is_batch] = list(_queues_of(directory, topic, self._files, is_batch))
        return self._topics[topic, is_batch]

    def all_of_topic(self, topic: str) -> list[Queue]:
        """The simple queues of a topic, and after them its batch queues."""
        return self.of_topic(topic) + self.of_topic(topic, is_batch=True)

    def some(self) -> Iterator[Queue]:
        """The simple queues again, but listed as they are asked for: a few of many cost little."""
        return _queues(self._directory, self._files, is_batch=False)

    def queue(self, topic: str, queue_id: int, is_batch: bool = False) -> Queue | None:
        """A simple queue, or a BatchCQ, whether it has files or not; None where there can be none
        (layout.queue_path)."""
        path, above = queue_path(topic, queue_id), self._batch_directory if is_batch else self._directory
        if above is None or path is None:
            return None
        return Queue(os.path.join(above, path), topic, queue_id, self._files, is_batch)

    @kept
    def topics(self) -> set[str]:
        """What can be topics with a queue, light message queues left out. No topic's own directory is listed."""
        return {name for name in self._names if not _is_lmq(name)}

    @property
    def is_empty(self) -> bool:
        """Is there nothing that can be a topic's directory?"""
        return not self._names

    @kept
    def _names(self) -> set[str]:
        directories = (self._directory, self._batch_directory)
        return {name for directory in directories if directory for name in _children(directory, self._files)}

    @kept
    def in_use(self) -> bool:
        """Is there any simple queue with a unit in it?"""
        return any(queue.last() is not None for queue in self.some())

    @kept
    def _simple(self) -> list[Queue]:
        return list(_queues(self._directory, self._files, is_batch=False))

    @kept
    def batch(self) -> list[Queue]:
        """Every BatchCQ there is."""
        return list(_queues(self._batch_directory, self._files, is_batch=True))

    def vouch_for(self, header: Header) -> bool | None:
        """Do the queues know this message? True or False; None when there is nothing at its queue offset. A BatchCQ has
        one unit for a batch, so it is asked for the message's position."""
        queue = self.queue(header.topic, header.queue_id)
        unit = None if queue is None else queue.unit(header.queue_offset)
        found = None if unit is None else (unit.position, unit.size) == (header.position, header.size)
        batches = None if found else self.queue(header.topic, header.queue_id, is_batch=True)
        if batches is not None:
            unit = batches.unit(batches.search(header.position))
            if unit is not None and (unit.position, unit.size) == (header.position, header.size):
                return True
        return found


def _is_before(unit: QueueUnit, position: int) -> bool:
    return unit.size > 0 and unit.position < position


def _is_lmq(topic: str) -> bool:
    return topic.startswith("%LMQ%")


def _queues(directory: str | None, files: Files, is_batch: bool) -> Iterator[Queue]:
    """A directory's queues, by topic."""
    if directory is None:
        return
    topics = _children(directory, files)
    progress = Progress(f"listing queues in {directory}", len(topics), "topics")
    for topic in topics:
        yield from _queues_of(os.path.join(directory, topic), topic, files, is_batch)
        progress.add()


def _queues_of(directory: str, topic: str, files: Files, is_batch: bool) -> Iterator[Queue]:
    """The queues of a topic, in its directory."""
    for name in _children(directory, files):
        queue_id = queue_id_of(name)
        if queue_id is not None:
            yield Queue(os.path.join(directory, name), topic, queue_id, files, is_batch)


def _children(directory: str, files: Files) -> list[str]:
    try:
        return sorted(files.names(directory))
    except OSError:
        return []
