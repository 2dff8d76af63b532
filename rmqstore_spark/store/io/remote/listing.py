"""The contents of remote storage: directories, and objects with their pins. Listings are kept."""

import errno
import os
from collections.abc import Callable

from rmqstore_spark.store.io.files import Pin, candidates
from rmqstore_spark.store.io.remote.buckets import Buckets
from rmqstore_spark.store.io.storage import plain_uri

_FIRST_LOOK = 100_000  # objects of a directory that are listed before a check that it is a store
_PER_REQUEST = 1000  # objects in one request of a list

# The entries of a directory: sub-directories by name with None, objects with their pins.
_Directory = dict[str, Pin | None]


class Listing:
    """Directories and objects, as they were when they were first seen.

    Args:
        count: called with the requests, and with bytes of objects, which are 0.
    """

    def __init__(self, buckets: Buckets, count: Callable[[int, int], None]) -> None:
        self._buckets = buckets
        self._count = count
        self._directories: dict[str, _Directory] = {}
        self._whole: set[str] = set()  # directories with everything below them known
        self._alone: dict[str, Pin | None] = {}  # paths that were looked up singly

    def list_tree(self, path: str) -> None:
        """List everything below a directory, if the directory may be a store."""
        path = plain_uri(path)
        if self._is_known_whole(path):
            return
        objects, key = self._buckets.of(path)
        entries = list(objects.below(key, _FIRST_LOOK))
        self._count(1 + len(entries) // _PER_REQUEST, 0)
        if len(entries) == _FIRST_LOOK:
            # Perhaps no store, but a directory with a million other entries: a whole bucket, say.
            if "commitlog" not in self.names(path):
                return
            entries = list(objects.below(key))
            self._count(1 + len(entries) // _PER_REQUEST, 0)
        found: dict[str, _Directory] = {}
        for entry in entries:
            _add(found, path, entry.key[len(key) :].strip("/") if key else entry.key, entry.pin)
        self._directories.update(found)
        if found:
            self._whole.add(path)

    def names(self, path: str) -> list[str]:
        """The names in a directory, with the errors of os.listdir."""
        directory = self._inside(path)
        if directory is not None:
            return list(directory)
        pin = self.look(path)
        if pin is not None and pin.size == 0:  # some tools mark an empty directory with such an object
            return []
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)

    def look(self, path: str) -> Pin | None:
        """The pin of the object at a path; None for a directory.

        Raises:
            FileNotFoundError: there is neither.
        """
        path = plain_uri(path)
        if path in self._directories:
            return None
        above, name = os.path.split(path)
        if any(path.startswith(f"{known}/") for known in self._directories):
            self._inside(above)  # a path's neighbours in a store are mostly looked up next
        if self._is_known_whole(above) or above in self._directories:
            directory = self._inside(above)
            if directory is None or name not in directory:
                raise _nothing(path)
            return directory[name]
        if path not in self._alone:
            objects, key = self._buckets.of(path)
            self._count(1, 0)
            self._alone[path] = objects.look(key) if key else None
        pin = self._alone[path]
        if pin is None and self._inside(path) is None:
            raise _nothing(path)
        return pin

    def matching(self, pattern: str) -> list[str]:
        """The paths that a glob matches, in order."""
        scheme, _, rest = plain_uri(pattern).partition("://")
        bucket, *parts = rest.split("/")
        paths = candidates(f"{scheme}://{bucket}", parts, lambda path: self._inside(path) or ())
        return sorted(filter(self._exists, paths))

    def _exists(self, path: str) -> bool:
        try:
            self.look(path)
        except FileNotFoundError:
            return False
        return True

    def _is_known_whole(self, path: str) -> bool:
        return any(path == root or path.startswith(f"{root}/") for root in self._whole)

    def _inside(self, path: str) -> _Directory | None:
        """The entries of a directory; None where there is no directory."""
        path = plain_uri(path)
        if path not in self._directories and not self._is_known_whole(path):
            objects, key = self._buckets.of(path)
            directories, entries = objects.inside(key)
            self._count(1, 0)
            children: _Directory = {os.path.basename(each): None for each in directories}
            for entry in entries:
                name = os.path.basename(entry.key)
                if entry.key != key and not _is_mark(name):
                    children.setdefault(name, entry.pin)
            if children or not key:
                self._directories[path] = children
        return self._directories.get(path)


def _add(found: dict[str, _Directory], root: str, below: str, pin: Pin | None) -> None:
    """Add an object, or without a pin a directory, and the directories above it."""
    if not below or _is_mark(below):
        return
    *above, name = below.split("/")
    path = root
    for directory in above:
        found.setdefault(path, {})[directory] = None
        path = f"{path}/{directory}"
    if pin is None:
        found.setdefault(f"{path}/{name}", {})
    # A name that is both a directory and a tool's mark object counts as a directory.
    found.setdefault(path, {}).setdefault(name, pin)


def _is_mark(name: str) -> bool:
    """Is a name Hadoop's mark of a directory?"""
    return name.endswith("_$folder$")


def _nothing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
