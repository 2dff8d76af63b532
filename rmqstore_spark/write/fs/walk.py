"""The way down from a directory, name by name, by descriptors and never through a link: a directory that is swapped for
a link leads nowhere."""

import os
import threading
from collections import OrderedDict

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.io.files import Files, asked, cannot_read, open_file
from rmqstore_spark.write.fs import calls
from rmqstore_spark.write.fs.calls import cannot_write

MOST_OPEN = 16  # directories that a thread keeps open: two of the longest ways down a store, and some
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Walk:
    """Directories below an open one. Paths are absolute and begin with the path of the open one. Threads may share a
    walk. Must be closed.

    Args:
        path: the path of the open directory.
        fd: its descriptor, which is closed with the walk.

    Attributes:
        itself: the status of the directory.
    """

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.itself = os.fstat(fd)
        self._mount = calls.mount_of(fd)
        self._local = threading.local()
        self._all_known: list[OrderedDict[str, int]] = []

    def close(self) -> None:
        for fd in (self.fd, *(fd for known in self._all_known for fd in known.values())):
            os.close(fd)

    def names(self, path: str) -> list[str]:
        """The names in a directory; errors as of os.listdir."""
        return os.listdir(self.directory(path))

    def status(self, path: str) -> os.stat_result:
        """The status of a path, of a link itself; errors as of os.lstat."""
        if path == self.path:
            return self.itself
        above, name = self.parent(path)
        return os.stat(name, dir_fd=above, follow_symlinks=False)

    def open(self, path: str) -> int:
        """A descriptor to read a regular file with.

        Raises:
            RmqStoreError: the path is no regular file, or cannot be opened.
        """
        try:
            above, name = self.parent(path)
            return open_file(name, path, dir_fd=above, follow=False)
        except OSError as why:
            raise cannot_read(path, why) from None

    def refuse_mount_point(self, fd: int, path: str, what: str = "a directory") -> None:
        """See that an open file or directory is on the same file system as the walk's own directory.

        Raises:
            RmqStoreError: it is on another one.
        """
        if calls.mount_of(fd) != self._mount:
            raise RmqStoreError(
                f"{path}: expected {what} on the file system of {self.path}, found a mount point; "
                "keep its files in the store itself, or write to another store"
            )

    def parent(self, path: str) -> tuple[int, str]:
        """The descriptor of the directory that a path is in, and the path's name in it; errors as of os.open."""
        directory, name = self._split(path)
        return self.directory(directory), name

    def parent_for_write(self, path: str) -> tuple[int, str]:
        """parent() for a change: an error on the way down becomes an error of ours."""
        directory, name = self._split(path)
        return self.directory_for_write(directory), name

    def directory_for_write(self, path: str) -> int:
        """A directory's descriptor; an error on the way down becomes an error of ours."""
        try:
            return self.directory(path)
        except OSError as why:
            raise cannot_write(path, why) from None

    def directory(self, path: str) -> int:
        """A directory's descriptor. Valid until this thread has asked for many others, or the directory is renamed."""
        if path == self.path:
            return self.fd
        known = self._known
        fd = known.get(path)
        if fd is not None:
            known.move_to_end(path)
            return fd
        above, name = self._split(path)
        known[path] = fd = os.open(name, DIRECTORY, dir_fd=self.directory(above))
        if len(known) > MOST_OPEN:
            os.close(known.popitem(last=False)[1])
        return fd

    def is_open(self, path: str) -> bool:
        """Does this thread have a directory open?"""
        return path in self._known

    def let_go(self) -> None:
        """Close the directories that this thread has opened."""
        known = self._known
        while known:
            os.close(known.popitem()[1])

    def forget(self, *paths: str) -> None:
        """Close this thread's descriptors of these directories and those below: their paths now mean something else."""
        known, below = self._known, tuple(path + os.sep for path in paths)
        for directory in [d for d in known if d in paths or d.startswith(below)]:
            os.close(known.pop(directory))

    def _split(self, path: str) -> tuple[str, str]:
        above, _, name = path.rpartition(os.sep)
        if len(above) < len(self.path) or name in ("", ".", ".."):
            raise RmqStoreError(f"{path}: expected a path in {self.path}")
        return above, name

    @property
    def _known(self) -> OrderedDict[str, int]:
        """The directories that this thread has opened, by path. Another thread might close its own while they are in
        use."""
        known: OrderedDict[str, int] | None = getattr(self._local, "known", None)
        if known is None:
            known = self._local.known = OrderedDict()
            self._all_known.append(known)
        return known


class WalkedFiles(Files):
    """Files that are reached by a walk, for the code that reads: opening or looking at a file never follows a link."""

    are_paths_the_systems = False  # every file is opened below a descriptor

    def __init__(self, walk: Walk) -> None:
        super().__init__()
        self._walk = walk

    def names(self, path: str) -> list[str]:
        return asked(self._walk.names, path)

    def status(self, path: str) -> os.stat_result:
        return asked(self._walk.status, path)

    def lstat(self, path: str) -> os.stat_result:
        return asked(self._walk.status, path)

    def open(self, path: str) -> int:
        return self._walk.open(path)

    def unlinked(self) -> Files:
        return self

    def is_locked(self, path: str) -> bool:
        """False: a writer holds the store's lock itself, so nobody else does."""
        return False

    def matching(self, pattern: str) -> list[str]:
        """Always refuses: no path of a write is a pattern."""
        raise NotImplementedError(pattern)
