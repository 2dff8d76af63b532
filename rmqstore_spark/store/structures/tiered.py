"""A tiered store on a file system: each queue's messages in a log of its own (PosixFileSegment).

    <tiered>/<8 hex digits>_<cluster>/<broker>/<topic>/<queueId>/COMMIT_LOG/<8 hex digits><20 digits>
                                                           .../CONSUME_QUEUE/<the same>
                              .../<broker>/rmq_sys_INDEX/0/INDEX/<the same>
The 20 digits are the flat offset of a file's first byte, the hex digits before them the beginning of its MD5. Files
have their real length, and the next one begins where a file ends. A unit is as in the commitlog, but its physicalOffset
is the flat offset. Older versions close a file with a coda: i32 16, the magic of a blank, i64 the last store time.
Which files there are, and how long, is asked of the directories: config/tieredStoreMetadata.json lags behind them.
Source: org.apache.rocketmq.tieredstore.provider.PosixFileSegment, file.FlatAppendFile, util.MessageFormatUtil.
"""

import hashlib
import itertools
import math
import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from rmqstore_spark.kept import kept
from rmqstore_spark.store.io.files import Files, seconds_since_change, status_of
from rmqstore_spark.store.structures.consumequeue import Queue, names_in, queue_directories
from rmqstore_spark.store.structures.layout import Layout, names_there, queue_id_of, queue_log, start_in
from rmqstore_spark.store.structures.queues import ConsumeQueues

MESSAGES, QUEUES = "COMMIT_LOG", "CONSUME_QUEUE"
_PARTS = {MESSAGES, QUEUES}
_NAME = re.compile(r"([0-9a-f]{8})([0-9]{20})")
CODA = struct.Struct(">iiq")  # of a file: its size, the magic of a blank, the last store time
UNIT = np.dtype([("position", ">i8"), ("size", ">i4"), ("tagsCode", ">i8")])
_FEW_UNITS = 256
_SOME_UNITS = 4096
_ENOUGH_UNITS = 64 * 1024  # near the end of a queue, many times what a broker has under way when it is killed
_MANY_UNITS = 128 * 1024
Numbers: TypeAlias = npt.NDArray[np.int64]
_LEVELS = 2  # above a broker's directory: the tier, and the cluster in it


def flat_start(name: str) -> int | None:
    """The flat offset that a file begins with, by its name; None for a name that no broker gives."""
    match = _NAME.fullmatch(name)
    start = None if match is None else start_in(match[2])
    if match is None or start is None:
        return None
    return start if hashlib.md5(str(start).encode(), usedforsecurity=False).hexdigest()[:8] == match[1] else None


def tiered_logs(
    root: str, files: Files, is_wanted: Callable[[str, int], bool] = lambda topic, queue_id: True
) -> Iterator[Layout]:
    """The queues' logs below a directory, by broker, topic and queueId, each as the layout of a log of its own; none
    where the directory is no tiered store.

    Args:
        root: the directory of the tier, of a cluster in it, or of a broker.
        is_wanted: whether the log of a topic and queueId is.

    Raises:
        DamagedStoreError: an entry with the name of a file is none.
        StorageError: a directory of the tiered store cannot be listed.
    """
    for queue, directory in queues_of_tier(root, files, is_wanted):
        yield tiered_log(root, queue, directory, files)


def queues_of_tier(
    root: str, files: Files, is_wanted: Callable[[str, int], bool] = lambda topic, queue_id: True
) -> Iterator[tuple[tuple[str, int], str]]:
    """The queues with a log, each with its directory. Arguments, order and errors as of tiered_logs()."""
    if next(_brokers(root, files, _LEVELS, names_in), None) is None:
        return
    for broker in _brokers(root, files, _LEVELS, names_there):
        for topic, queue_id, directory in queue_directories(broker, files, names_there):
            if is_wanted(topic, queue_id) and _PARTS & {*names_there(directory, files)}:
                yield (topic, queue_id), directory


def tiered_log(root: str, queue: tuple[str, int], directory: str, files: Files) -> Layout:
    """The log of a queue, as it is in the queue's directory now.

    Raises:
        DamagedStoreError: an entry with the name of a file is none.
        StorageError: the directory cannot be listed.
    """
    log = queue_log(root, queue, os.path.join(directory, MESSAGES), files, flat_start)
    return replace(log, units=os.path.join(directory, QUEUES))


def _brokers(directory: str, files: Files, levels: int, names_of: Callable[[str, Files], list[str]]) -> Iterator[str]:
    names = [name for name in names_of(directory, files) if files.is_directory(os.path.join(directory, name))]
    topics = [os.path.join(directory, name) for name in names]
    queues = (os.path.join(topic, name) for topic in topics for name in names_of(topic, files) if _is_queue(name))
    if any(_PARTS & {*names_of(queue, files)} for queue in queues):
        yield directory
    elif levels:
        for name in names:
            yield from _brokers(os.path.join(directory, name), files, levels - 1, names_of)


def _is_queue(name: str) -> bool:
    return queue_id_of(name) is not None


class TieredQueue(Queue):
    """The units of a queue in a tiered store: those of a simple queue, in files with other names. Their positions are
    those in the queue's own log."""

    is_plain: ClassVar[bool] = False

    def _named_files(self) -> list[tuple[int, str]]:
        names = names_in(self.directory, self.files)
        return sorted((start, name) for name in names if (start := flat_start(name)) is not None)


class QueuesOfTier(ConsumeQueues):
    """The queue beside a log of a tiered store."""

    def __init__(self, queue: TieredQueue) -> None:
        super().__init__(None, queue.files)
        self._queue = queue

    @kept
    def _simple(self) -> list[Queue]:
        return [self._queue]

    @kept
    def topics(self) -> set[str]:
        """The queue's topic."""
        return {self._queue.topic}

    def of_topic(self, topic: str) -> list[Queue]:
        """The queue, if it is of the topic."""
        return [self._queue] if topic == self._queue.topic else []

    def queue(self, topic: str, queue_id: int) -> Queue | None:
        """The queue, if that is its name."""
        return self._queue if (topic, queue_id) == (self._queue.topic, self._queue.queue_id) else None


def tiered_queue_files(layout: Layout, files: Files) -> list[tuple[str, int]]:
    """The files with the 20-byte units of a queue's log, each with the flat offset that it begins with, in order."""
    return [] if not layout.segments or layout.units is None else unit_files(layout.units, files)


def unit_files(directory: str, files: Files) -> list[tuple[str, int]]:
    """The files of units in a queue's directory of them; as of tiered_queue_files()."""
    found = [(start, name) for name in names_there(directory, files) if (start := flat_start(name)) is not None]
    return [(os.path.join(directory, name), start) for start, name in sorted(found)]


def tiered_unit_at(layout: Layout, files: Files, position: int) -> int | None:
    """The queue offset of the message at this flat offset, if the queue has a unit for it. The cost is small near
    the end of the queue."""
    for number, units in _backwards(layout, files, _SOME_UNITS):
        if len(units) and units["position"][0] <= position:
            found = np.flatnonzero(units["position"] == position)
            return number + int(found[0]) if len(found) else None
    return None


def last_tiered_units(layout: Layout, files: Files) -> list[tuple[int, int, int]]:
    """The last two units of a queue, or fewer: the queue offset, flat offset and size of each message."""
    number, units = next(_backwards(layout, files, 2), (0, np.empty(0, UNIT)))
    return list(zip(itertools.count(number), units["position"].tolist(), units["size"].tolist(), strict=False))


def units_from(
    unit_files: Sequence[tuple[str, int]], files: Files, number: int, stop: int
) -> Iterator[tuple[int, Numbers, Numbers]]:
    """The units from a number on: the number of the first of some, and where the messages of these begin and end, as
    they say.

    Args:
        unit_files: as of unit_files().
        stop: the number after the last unit.
    """
    some = _FEW_UNITS
    for path, begin in unit_files:
        first = begin // UNIT.itemsize
        if first >= stop:
            return
        with files.file(path) as file:
            end = min(first + file.size // UNIT.itemsize, stop)
            at = max(number, first)
            while at < end:
                data = file.read((at - first) * UNIT.itemsize, min(some, end - at) * UNIT.itemsize)
                units = np.frombuffer(data[: len(data) // UNIT.itemsize * UNIT.itemsize], UNIT)
                if not len(units):
                    break
                starts = units["position"].astype(np.int64)
                yield at, starts, starts + units["size"]
                at, some = at + len(units), min(4 * some, _MANY_UNITS)


def tiled_to(layout: Layout, files: Files, number: int, start: int) -> tuple[int, int]:
    """How far the messages of units in a row follow each other in the log, as the units claim: the number of the last
    such unit, and where its message ends. Where none does, one less than `number`, and `start`.

    Args:
        number: of the first unit.
        start: the flat offset of its message.
    """
    last, end = number - 1, start
    for path, begin in tiered_queue_files(layout, files):
        with files.file(path) as file:
            first, count = begin // UNIT.itemsize, file.size // UNIT.itemsize
            for at in range(max(0, number - first), count, _MANY_UNITS):
                if first + at != last + 1:
                    return last, end
                data = file.read(at * UNIT.itemsize, min(_MANY_UNITS, count - at) * UNIT.itemsize)
                units = np.frombuffer(data[: len(data) // UNIT.itemsize * UNIT.itemsize], UNIT)
                ends = units["position"].astype(np.int64) + units["size"]
                are_next = units["position"] == np.concatenate([[end], ends[:-1]])
                good = len(units) if are_next.all() else int(np.argmin(are_next))
                last, end = last + good, int(ends[good - 1]) if good else end
                if good < len(units):
                    return last, end
    return last, end


def between_last_units(layout: Layout, files: Files, least: int) -> list[tuple[int, int]]:
    """The parts of the log between the messages of units that do not follow each other, as the units claim, from
    `least` on; of very many units only among the last ones."""
    found: list[tuple[int, int]] = []
    next_start, looked = -1, 0
    for _, units in _backwards(layout, files, _SOME_UNITS):
        if not len(units):
            continue
        starts = units["position"].astype(np.int64)
        ends = starts + units["size"]
        nexts = np.append(starts[1:], next_start if looked else ends[-1])
        at = np.flatnonzero((ends < nexts) & (nexts > least))
        found += zip(np.maximum(ends[at], least).tolist(), nexts[at].tolist(), strict=True)
        next_start, looked = int(starts[0]), looked + len(units)
        if looked >= _ENOUGH_UNITS or next_start <= least:
            return found
    return [*found, (least, next_start)] if looked else found


def seconds_since_unit(layout: Layout, files: Files) -> float:
    """How long ago the last file of a queue's units was written; infinite where there is none, or no time is known."""
    ages = [seconds_since_change(status_of(path, files.fresh())) for path, _ in tiered_queue_files(layout, files)[-1:]]
    return ages[0] if ages else math.inf


def _backwards(layout: Layout, files: Files, some: int) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
    """The units of a queue, the last ones first, some at once, and then more: the queue offset of the first of them,
    and the units."""
    for path, begin in reversed(tiered_queue_files(layout, files)):
        with files.file(path) as file:
            stop = file.size // UNIT.itemsize
            while stop:
                start = max(0, stop - some)
                data = file.read(start * UNIT.itemsize, (stop - start) * UNIT.itemsize)
                yield (
                    begin // UNIT.itemsize + start,
                    np.frombuffer(data[: len(data) // UNIT.itemsize * UNIT.itemsize], UNIT),
                )
                stop, some = start, min(4 * some, _MANY_UNITS)
