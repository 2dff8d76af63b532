"""`.rmqstore-spark/checked.json`: the last segment as a small append has left it, every message of it read and right.

As long as it is untouched since then, the next append need not read a gigabyte again to see that no broker would cut
the log off there. A hint: if it is missing, wrong or old, the segment is read.
"""

import contextlib
import json
import os

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store import config
from rmqstore_spark.store.segments import Segment
from rmqstore_spark.write.disk import Tree
from rmqstore_spark.write.workshop import workshop

_NAME = "checked.json"


def remember(tree: Tree, segment: Segment, end: int) -> None:
    """After an append: the log is right from the segment's start up to its end, a physical offset."""
    path = os.path.join(workshop(tree.path), _NAME)
    with contextlib.suppress(OSError, RmqStoreError):  # the messages are written, whatever becomes of this
        tree.remove(path + ".part")
        with tree.new_file(path + ".part") as file:
            file.write(json.dumps(_state(tree, segment, end)).encode(), 0)
        tree.rename(path + ".part", path)


def is_untouched(tree: Tree, segment: Segment, end: int) -> bool:
    """Is that so still?"""
    path = os.path.join(workshop(tree.path), _NAME)
    try:
        return config.parse(config.read_text(path, tree, "strict")) == _state(tree, segment, end)
    except (OSError, ValueError, RmqStoreError):
        return False


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
