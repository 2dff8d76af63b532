"""The next steps of a change to a store (change.py), in a file that outlives a killed writer.

The file may be a trap: the owner of the store can write one. So a journal names only the directories of `PUT`, and a
journal that does not fit is treated as not ours.
"""

import json
import os
from dataclasses import asdict, dataclass
from typing import Any

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.io.files import ReadFile
from rmqstore_spark.write.build.stretch import InPlaceAppend
from rmqstore_spark.write.fs.disk import Tree

_VERSION = 1
_MOST_BYTES = 64 * 1024
# The directories that a change exchanges, the first one at the commit point; and those into which files are put after.
APPENDED, REBUILT, REBUILT_WITHOUT_INDEX = ("commitlog",), ("consumequeue", "index"), ("consumequeue",)
BATCHES_REBUILT = ("consumequeue", "batchconsumequeue", "index")  # where there are BatchCQ topics
BATCHES_REBUILT_WITHOUT_INDEX = ("consumequeue", "batchconsumequeue")
STRETCHED = ()  # the log grows in its last segment
PUT = {
    APPENDED: ("consumequeue", "index"),
    STRETCHED: ("consumequeue", "index"),
    REBUILT: (),
    REBUILT_WITHOUT_INDEX: (),
    BATCHES_REBUILT: (),
    BATCHES_REBUILT_WITHOUT_INDEX: (),
}


@dataclass(frozen=True)
class Journal:
    """The steps that a change is about to do.

    Attributes:
        made: the inode of each directory to be exchanged, in order.
        had_topics, has_topics: whether the store had a topics.json, and whether the change brings one.
        stretch: the append behind the end of the log; None where directories are exchanged.
    """

    made: dict[str, int]
    had_topics: bool
    has_topics: bool
    stretch: InPlaceAppend | None = None
    version: int = _VERSION

    @property
    def exchanged(self) -> tuple[str, ...]:
        """The directories."""
        return tuple(self.made)

    @property
    def first(self) -> str | None:
        """The directory whose exchange is the commit point; None where a stretch is published."""
        return next(iter(self.made), None)


class UnfitError(Exception):
    """A journal that no writer of ours has made."""


class NewerError(RmqStoreError):
    """A journal written by a later version of this package."""


def write(tree: Tree, path: str, journal: Journal) -> None:
    """Write a journal. When this returns, the file is on disk, but the entry of its directory may not be."""
    said = {name: value for name, value in asdict(journal).items() if value is not None}
    tree.write_file(path + ".part", json.dumps(said).encode())
    tree.rename(path + ".part", path)
    tree.sync_directory(os.path.dirname(path))


def read(tree: Tree, path: str) -> Journal:
    """The journal in a file.

    Raises:
        UnfitError: no version of this package writes such a journal.
        NewerError: a later version does.
    """
    with ReadFile(path, tree.files) as file:
        data = file.read(0, _MOST_BYTES + 1)
    try:
        found = json.loads(data) if len(data) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        found = None
    version = found.get("version") if isinstance(found, dict) else None
    version = version if type(version) is int else 0  # True is an int, too
    if version > _VERSION:
        raise NewerError(
            f"{path}: written by a newer rmqstore-spark: expected version {_VERSION}, found {version}; let that "
            f"version finish the write, or delete {os.path.dirname(path)} and call rmqstore_spark.rebuild(store)"
        )
    journal = _understood(found) if version == _VERSION else None
    if journal is None:
        raise UnfitError(f"expected a journal of version {_VERSION}, found something else")
    return journal


def _understood(found: Any) -> Journal | None:
    """A journal of this version; None where it does not fit."""
    if not isinstance(found, dict) or set(found) | {"stretch"} != set(Journal.__dataclass_fields__):
        return None
    made, flags = found["made"], (found["had_topics"], found["has_topics"])
    if not isinstance(made, dict) or tuple(made) not in PUT or not all(type(flag) is bool for flag in flags):
        return None
    if not all(type(inode) is int and 0 <= inode < 1 << 64 for inode in made.values()):
        return None
    stretch = InPlaceAppend.understood(found["stretch"]) if "stretch" in found else None
    if (stretch is None) == (tuple(made) == STRETCHED):
        return None
    return Journal(made, *flags, stretch)
