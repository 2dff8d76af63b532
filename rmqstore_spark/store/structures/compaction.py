"""compaction/: the logs of compaction topics, which a consumer of such a topic is served from.

    <root>/compaction/compactionLog/<topic>/<queueId>/<20 digits>  units as in the commitlog, whose physicalOffset is
                                                                   the position in this log; the name is the first one
    <root>/compaction/compactionCq/<topic>/<queueId>/<same name>   46-byte units of them, as of a BatchCQ
    <root>/compaction/position-checkpoint                          JSON: the last queueOffset that a pass has seen

A pass rewrites all files but the last: they become one file or more that keep the name of the first, so names have
gaps. A file that a pass has written ends with zeros, one that was full with a blank. Directories of work in progress
(compacting/, replicating/) and files to be deleted do not count.

A pass writes its files into compacting/, in both directories. Then it replaces: it renames the log's old files to
*.delete, moves the new ones up, and does the same for the queue. No broker starts on what one leaves that was killed
meanwhile, for it demands a queue file for each file of the log and the reverse.
Source: org.apache.rocketmq.store.kv.CompactionStore, CompactionLog.
"""

import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rmqstore_spark.errors import DeletedMeanwhileError, RmqStoreError
from rmqstore_spark.store.io.files import Files, seconds_since_change
from rmqstore_spark.store.structures.config import topic_entries
from rmqstore_spark.store.structures.consumequeue import queue_directories
from rmqstore_spark.store.structures.layout import Layout, names_there, queue_log, queue_path, start_in

CHECKPOINT = os.path.join("compaction", "position-checkpoint")
UNIT = np.dtype(
    [
        ("position", ">i8"),
        ("size", ">i4"),
        ("tagsCode", ">i8"),
        ("store time", ">i8"),
        ("queueOffset", ">i8"),
        ("messages", ">i2"),
        ("reserved", ">i8"),
    ]
)
_SOME_UNITS = 1024
_WORK = "compacting"
_REPLACED_WITHIN = 3.0  # seconds from one rename of a replacement to the next, many times what a broker needs
_LOOK_AGAIN_AFTER = 0.05  # seconds
_LARGEST_CHECKPOINT = 64 * 1024 * 1024  # bytes
_LOGS, _QUEUES = os.path.join("compaction", "compactionLog"), os.path.join("compaction", "compactionCq")


def compaction_topics(root: str, files: Files) -> set[str]:
    """The topics that a broker compacts, or has compacted: by the configuration, or by their directories."""
    configured = {topic for topic, entry in topic_entries(root, files).items() if _is_compacted(entry)}
    return configured | {topic for topic in names_there(os.path.join(root, _LOGS), files) if queue_path(topic, 0)}


def _is_compacted(entry: dict[str, object]) -> bool:
    attributes = entry.get("attributes")
    return isinstance(attributes, dict) and attributes.get("cleanup.policy") == "COMPACTION"


class QueueUnit(NamedTuple):
    """What a unit of compactionCq/ says of a message."""

    position: int
    size: int
    queue_offset: int


class LostFile(NamedTuple):
    """A file of a compaction log that is not there, and the last message that its queue has a unit for."""

    path: str
    start: int
    unit: QueueUnit


def compaction_logs(root: str, files: Files) -> Iterator[tuple[Layout, Sequence[LostFile]]]:
    """The compaction logs of a store, by topic and queueId, each as the layout of a log of its own, also where only its
    queue is there; and which of its files are not there. A broker that replaces files now is waited for."""
    above = (os.path.join(root, _LOGS), os.path.join(root, _QUEUES))
    queues = {each[:2] for directory in above for each in queue_directories(directory, files, names_there)}
    for queue in sorted(queues):
        directory, now = os.path.join(above[0], queue[0], str(queue[1])), files
        found = _look(root, queue, directory, now)
        while found[1] and _seconds_since_rename(directory, files) < _REPLACED_WITHIN:
            time.sleep(_LOOK_AGAIN_AFTER)
            now = files.fresh()
            found = _look(root, queue, directory, now)
        yield found


def _look(root: str, queue: tuple[str, int], directory: str, files: Files) -> tuple[Layout, Sequence[LostFile]]:
    # First the queue: a broker makes a file of the log before that of its queue.
    of_queue = os.path.dirname(compaction_queue_file(root, queue, ""))
    known = _numbered(of_queue, files)
    layout = queue_log(root, queue, directory, files)
    missing = sorted(known - {os.path.basename(segment.path) for segment in layout.segments})
    waiting = (_numbered(os.path.join(each, _WORK), files) for each in (directory, of_queue) if missing)
    if [bool(names) for names in waiting] == [False, True]:
        return layout, []  # the log's files are new and all there, the queue's are still the old ones
    lost = ((name, last_unit(root, queue, name, files)) for name in missing)
    return layout, [LostFile(os.path.join(directory, name), int(name), unit) for name, unit in lost if unit is not None]


def _seconds_since_rename(directory: str, files: Files) -> float:
    """How long ago something in a directory was renamed; infinite where directories have no times."""
    try:
        return seconds_since_change(files.fresh().status(directory))
    except OSError:
        return math.inf


def _numbered(directory: str, files: Files) -> set[str]:
    return {name for name in names_there(directory, files) if start_in(name) is not None}


def last_compacted(root: str, files: Files) -> dict[str, int]:
    """The last queue offset that a pass has seen, by <topic>_<queueId>; nothing where that cannot be read, as a pass
    then begins anew."""
    path = os.path.join(root, CHECKPOINT)
    try:
        with files.file(path) as file:
            found = json.loads(file.read(0, min(file.size, _LARGEST_CHECKPOINT)))
        table = found.get("queueOffsetMap", {}).items()
        return {name: offset for name, offset in table if type(offset) is int and 0 <= offset < 1 << 63}
    except (OSError, ValueError, AttributeError, RecursionError, RmqStoreError):
        return {}


def last_unit(root: str, queue: tuple[str, int], name: str, files: Files) -> QueueUnit | None:
    """The last unit of a file of compactionCq/ that is of a message; None where there is none, or no such file."""
    try:
        with files.file(compaction_queue_file(root, queue, name)) as file:
            stop = file.size // UNIT.itemsize
            while stop:
                start = max(0, stop - _SOME_UNITS)
                data = file.read(start * UNIT.itemsize, (stop - start) * UNIT.itemsize)
                units = np.frombuffer(data[: len(data) // UNIT.itemsize * UNIT.itemsize], UNIT)
                used = np.flatnonzero((units["size"] > 0) & (units["position"] >= 0))
                if len(used):
                    unit = units[used[-1]]
                    return QueueUnit(int(unit["position"]), int(unit["size"]), int(unit["queueOffset"]))
                stop = start
    except (OSError, DeletedMeanwhileError):
        pass
    return None


def compaction_queue_file(root: str, queue: tuple[str, int], name: str) -> str:
    """The path of the file with the units of a compaction log's file of this name."""
    topic, queue_id = queue
    return os.path.join(root, _QUEUES, topic, str(queue_id), name)
