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
import os
import re
from collections.abc import Iterator

import numpy as np

from rmqstore_spark.store.io.files import Files, cannot_read
from rmqstore_spark.store.structures.consumequeue import names_in, queue_directories
from rmqstore_spark.store.structures.layout import Layout, SegmentFile, queue_id_of, start_in

MESSAGES, QUEUES = "COMMIT_LOG", "CONSUME_QUEUE"
_PARTS = {MESSAGES, QUEUES}
_NAME = re.compile(r"([0-9a-f]{8})([0-9]{20})")
UNIT = np.dtype([("position", ">i8"), ("size", ">i4"), ("tagsCode", ">i8")])
_SOME_UNITS = 4096
_LEVELS = 2  # above a broker's directory: the tier, and the cluster in it


def flat_start(name: str) -> int | None:
    """The flat offset that a file begins with, by its name; None for a name that no broker gives."""
    match = _NAME.fullmatch(name)
    start = None if match is None else start_in(match[2])
    if match is None or start is None:
        return None
    return start if hashlib.md5(str(start).encode(), usedforsecurity=False).hexdigest()[:8] == match[1] else None


def tiered_logs(root: str, files: Files) -> list[Layout]:
    """The queues' logs below a directory, by broker, topic and queueId, each as the layout of a log of its own; none
    where the directory is no tiered store.

    Args:
        root: the directory of the tier, of a cluster in it, or of a broker.
    """
    return [layout for broker in _brokers(root, files, _LEVELS) for layout in _of_broker(root, broker, files)]


def is_tiered(root: str, files: Files) -> bool:
    """Is a directory a tiered store?"""
    return next(_brokers(root, files, _LEVELS), None) is not None


def _brokers(directory: str, files: Files, levels: int) -> Iterator[str]:
    names = [name for name in names_in(directory, files) if files.is_directory(os.path.join(directory, name))]
    topics = [os.path.join(directory, name) for name in names]
    queues = (os.path.join(topic, name) for topic in topics for name in names_in(topic, files) if _is_queue(name))
    if any(_PARTS & {*names_in(queue, files)} for queue in queues):
        yield directory
    elif levels:
        for name in names:
            yield from _brokers(os.path.join(directory, name), files, levels - 1)


def _is_queue(name: str) -> bool:
    return queue_id_of(name) is not None


def _of_broker(root: str, broker: str, files: Files) -> Iterator[Layout]:
    for topic, queue_id, queue in queue_directories(broker, files):
        if _PARTS & {*names_in(queue, files)}:
            yield _layout(root, topic, queue_id, os.path.join(queue, MESSAGES), files)


def _layout(root: str, topic: str, queue_id: int, directory: str, files: Files) -> Layout:
    segments: list[SegmentFile] = []
    strays: list[str] = []
    for name in names_in(directory, files):
        path, start = os.path.join(directory, name), flat_start(name)
        if start is None:
            strays.append(path)
            continue
        try:
            found = files.status(path)
        except OSError as why:
            raise cannot_read(path, why) from None
        segments.append(SegmentFile(path, start, found.st_size, files.pin(path)))
    segments.sort(key=lambda segment: segment.start)
    return Layout(root, tuple(segments), tuple(strays), None, None, None, abort=False, queue=(topic, queue_id))


def tiered_queue_files(layout: Layout, files: Files) -> list[tuple[str, int]]:
    """The files with the 20-byte units of a queue's log, each with the flat offset that it begins with, in order."""
    if not layout.segments:
        return []
    directory = os.path.join(os.path.dirname(os.path.dirname(layout.segments[0].path)), QUEUES)
    found = [(start, name) for name in names_in(directory, files) if (start := flat_start(name)) is not None]
    return [(os.path.join(directory, name), start) for start, name in sorted(found)]


def has_tiered_unit(layout: Layout, files: Files, position: int) -> bool:
    """Does a queue have a unit for a message at this flat offset? A broker writes the unit once the message is there.
    The cost is small near the end of the queue."""
    for path, _ in reversed(tiered_queue_files(layout, files)):
        with files.file(path) as file:
            stop = file.size // UNIT.itemsize
            while stop:
                start = max(0, stop - _SOME_UNITS)
                data = file.read(start * UNIT.itemsize, (stop - start) * UNIT.itemsize)
                found = np.frombuffer(data[: len(data) // UNIT.itemsize * UNIT.itemsize], UNIT)["position"]
                if len(found) and found[0] <= position:
                    return bool(np.any(found == position))
                stop = start
    return False
