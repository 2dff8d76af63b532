"""`.rmqstore-spark/checked.json`: a note on the last segment as a small append has left it, with every message read and
right, and on the next queue offsets of the topics that were looked at.

As long as the segment is untouched since then, the next append need not read a gigabyte again to see that no broker
would cut the log off there, and that every message of the log is known to its queue. The file is a hint: if it is
missing, wrong or old, the segment is read.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.structures import config
from rmqstore_spark.store.structures.segments import Segment
from rmqstore_spark.write.fs.disk import Tree
from rmqstore_spark.write.fs.workshop import PART, workshop

_NAME = "checked.json"
_MOST_QUEUES = 10_000  # queues that are noted down

Queues = dict[str, dict[int, int]]  # next queue offsets, by topic and queueId


def remember(tree: Tree, segment: Segment, end: int, queues: Mapping[tuple[str, int], int]) -> None:
    """Note after an append that the log is right from the segment's start up to `end`, a physical offset.

    Args:
        queues: the next queue offsets of all queues of some topics.
    """
    noted: dict[str, dict[str, int]] = {}
    for (topic, queue_id), offset in queues.items() if len(queues) <= _MOST_QUEUES else ():
        noted.setdefault(topic, {})[str(queue_id)] = offset
    path = os.path.join(workshop(tree.path), _NAME)
    with contextlib.suppress(OSError, RmqStoreError):  # a lost note does no harm: the messages are written
        tree.remove(path + PART)
        with tree.new_file(path + PART) as file:
            file.write(json.dumps({**_state(tree, segment, end), "queues": noted}).encode(), 0)
        tree.rename(path + PART, path)


def recall(tree: Tree, segment: Segment, end: int) -> Queues | None:
    """The next queue offsets that are noted down, if the note still holds; None where it does not."""
    path = os.path.join(workshop(tree.path), _NAME)
    try:
        found = config.parse(config.read_text(path, tree.files, "strict"))
        is_so = all(config.is_exactly(found.get(name), value) for name, value in _state(tree, segment, end).items())
        return _queues(found.get("queues", {})) if is_so else None
    except (OSError, ValueError, AttributeError, TypeError, RmqStoreError):
        return None


def _queues(noted: Mapping[str, Mapping[str, Any]]) -> Queues:
    """The noted queues; errors of any kind where the value is no such note."""
    known = {topic: config.offsets_by_number(of) for topic, of in noted.items()}
    if any(len(known[topic]) != len(of) for topic, of in noted.items()):
        raise ValueError("expected queue offsets by their queueId")
    return known


def _state(tree: Tree, segment: Segment, end: int) -> dict[str, int]:
    found = tree.status(segment.path)
    return {
        "segment": segment.start,
        "end": end,
        "inode": found.st_ino,
        "size": found.st_size,
        "modified": found.st_mtime_ns,
        "changed": found.st_ctime_ns,
    }
