"""The directory that a write works in, and all changes of names in it.

An entry that a reader or a broker may see comes into place by one rename or one exchange of two directories, whole and
on disk already. Visible files are never changed in place, except by a small append (stretch.py, patch.py).

A store may be hostile: its owner can put links into it, also while we work. So the writer holds the store's directory
by a descriptor (Tree) and goes down from there name by name, never through a link. An existing file is never cut or
given away, and written to only if it belongs to the store's owner and has no other name: the file may be a hard link to
somebody else's. Cutting and giving away are for files that we made ourselves.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.io.files import Files, cannot_read, kind_of, open_file
from rmqstore_spark.write.fs import calls
from rmqstore_spark.write.fs.background import for_each, threads_for
from rmqstore_spark.write.fs.calls import cannot_write
from rmqstore_spark.write.fs.modes import Mode, Modes
from rmqstore_spark.write.fs.new_file import NewFile, closed_if_it_fails
from rmqstore_spark.write.fs.remove_tree import remove_tree
from rmqstore_spark.write.fs.walk import MOST_OPEN, Walk, WalkedFiles

PROBE = "exchange-"  # begins the name of the directories with which can_exchange() tries an exchange
_PASSING = 8  # descriptors that a thread has besides for a moment: the file it works on, and those that a call opens
_PRIVATE = Mode(0o700, is_exact=False)
# One syncfs() costs less than so many fsync(), though syncfs() waits for the writes of other processes, too.
_MANY_TO_SYNC = 1024


def kind_at(path: str) -> str | None:
    """The kind of entry at the path of a store that is not opened yet, links followed; None where there is nothing."""
    try:
        return kind_of(os.stat(path))
    except OSError:
        return "a link to nothing" if os.path.islink(path) else None


def remove_empty(path: str) -> None:
    """Delete the directory that a store was to be in, if the directory is empty and no link."""
    with contextlib.suppress(RmqStoreError):
        calls.do(os.rmdir, path, path)


def make_directories(path: str, mode: int) -> None:
    """Make the directory that a store is to be in, with a mode, and the missing directories above it."""
    calls.do(os.makedirs, path, path, mode, True)


class _Owner(NamedTuple):
    """The owner of the files that we make."""

    uid: int
    gid: int


class Tree:
    """A store's directory, or another one that a write works in, with everything below it. A context manager.

    Paths are absolute and begin with the tree's own. Nothing after that part of a path may be a link: a directory that
    is swapped for a link leads nowhere. When root writes, a new file belongs to the directory's owner from the first
    moment, so that a broker of that user can go on with it.

    Large because each call of the system that a write needs is a method, and each goes from the tree's directory
    down without following a link.

    Args:
        path: an existing directory. It may be a link itself, and the part of the path above it is the user's choice.
        like: a tree from which the owner and the permissions of files made in this one are taken; by default this one.
        inside: a tree that the directory is in. Then the directory may not be a link.

    Attributes:
        itself: the status of the directory.
        files: access to the tree's files for the reading code on behalf of a write: without following links.

    Raises:
        RmqStoreError: there is no such directory.
    """

    _walk: Walk

    def __init__(self, path: str, like: "Tree | None" = None, inside: "Tree | None" = None) -> None:
        self.path = path
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            if inside is None:
                fd = os.open(path, flags)
            else:
                above, name = inside._walk.parent(path)
                fd = os.open(name, flags | os.O_NOFOLLOW, dir_fd=above)
            with contextlib.ExitStack() as if_it_fails:
                if_it_fails.callback(os.close, fd)
                self._walk = Walk(path, fd)
                if_it_fails.pop_all()
        except OSError as why:
            raise cannot_write(path, why) from None
        self.files: Files = WalkedFiles(self._walk)
        self.itself = self._walk.itself
        owner = (like or self).itself
        self._owner = _Owner(owner.st_uid, owner.st_gid) if os.geteuid() == 0 and owner.st_uid != 0 else None
        self._modes = Modes(like or self, path)
        self._made = 0  # directories

    def __enter__(self) -> "Tree":
        return self

    def __exit__(self, failed: type[BaseException] | None = None, why: object = None, *_: object) -> None:
        self._walk.close()
        if isinstance(why, OSError):  # somebody has changed the store between two looks at it
            name = why.filename if isinstance(why.filename, str) else ""
            raise cannot_write(os.path.join(self.path, name), why) from None

    # ---- looking

    def names(self, path: str) -> list[str]:
        """The names in a directory; errors as of os.listdir."""
        return self._walk.names(path)

    def status(self, path: str) -> os.stat_result:
        """The status of a path, of a link itself; errors as of os.lstat."""
        return self._walk.status(path)

    def open(self, path: str) -> int:
        """A descriptor to read a regular file with; errors are ours."""
        return self._walk.open(path)

    def is_directory(self, path: str) -> bool:
        """Is there a directory at a path, and not a link to one?"""
        return self.files.is_directory(path)

    def find(self, path: str) -> os.stat_result | None:
        """status(), or None where there is nothing."""
        try:
            return self.status(path)
        except OSError as why:
            if why.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise cannot_read(path, why) from None

    def refuse_other_than(self, path: str, is_right: Callable[[int], bool], what: str) -> None:
        """See that a path is free, or an entry of a certain kind on the tree's own file system.

        Args:
            is_right: stat.S_ISDIR or stat.S_ISREG.
            what: the kind in words.

        Raises:
            RmqStoreError: there is a link, a mount point or an entry of another kind.
        """
        found = self.find(path)
        if found is None:
            return
        if not is_right(found.st_mode):
            raise RmqStoreError(
                f"{path}: expected {what} of the store's own, found {kind_of(found)}; "
                "put the real one in its place, or write to another store"
            )
        if stat.S_ISDIR(found.st_mode):
            self._walk.refuse_mount_point(self._walk.directory_for_write(path), path, what)

    def refuse_unwritable(self, path: str) -> None:
        """See that names in a directory can be changed.

        Raises:
            RmqStoreError: they cannot.
        """
        fd = self._walk.directory_for_write(path)
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=fd, effective_ids=True):
            raise cannot_write(path, PermissionError())

    def kinds(self, path: str) -> Iterator[tuple[str, bool, bool]]:
        """The names in a directory, whether each is a link, and whether a directory; nothing where the path is no
        directory."""
        try:
            with os.scandir(self._walk.directory(path)) as entries:
                found = [(e.name, e.is_symlink(), e.is_dir(follow_symlinks=False)) for e in entries]
        except OSError:
            return
        yield from found

    def free_bytes(self) -> int:
        """The free bytes of the file system, as far as it tells."""
        found = os.fstatvfs(self._walk.fd)
        return found.f_bavail * found.f_frsize

    # ---- changing

    def stand_for(self, made: str, place: str) -> None:
        """Files made in one directory of the tree will take their places in another; as Modes.stand_for()."""
        self._modes.stand_for(made, place)

    def new_file(self, path: str, size: int = 0, place: str | None = None) -> NewFile:
        """Make a file of `size` bytes, all zeros and sparse.

        Args:
            place: the path that the file will be renamed to, where it does not follow from the directory (stand_for).
        """
        above, name = self._walk.parent_for_write(path)
        mode = self._modes.of(place or path, is_directory=False)
        fd: int = calls.do(calls.open_at, path, above, name, calls.NEW, mode.bits)
        file = NewFile(path, fd)
        with closed_if_it_fails(file):
            self._set_up(fd, path, mode)
            if size:
                calls.do(os.ftruncate, path, fd, size)
        return file

    def reopen(self, path: str, identity: tuple[int, int]) -> NewFile:
        """Open a file that new_file() has made once more."""
        above, name = self._walk.parent_for_write(path)
        fd = open_file(name, path, os.O_RDWR, above, follow=False, refused=cannot_write)
        file = NewFile(path, fd)
        with closed_if_it_fails(file):
            if file.identity != identity or os.fstat(fd).st_nlink != 1:
                raise RmqStoreError(
                    f"{path}: expected the file that was just made, found another one: another process interferes"
                )
        return file

    def may_be_changed(self, path: str) -> bool:
        """Is there a regular file that belongs to the tree's owner and has no other name?"""
        found = self.find(path)
        return found is not None and self._is_own(found)

    def _is_own(self, found: os.stat_result) -> bool:
        return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == self.itself.st_uid

    def open_to_change(self, path: str) -> NewFile:
        """Open a file that may_be_changed().

        Raises:
            RmqStoreError: the file may not be changed.
        """
        above, name = self._walk.parent_for_write(path)
        fd = open_file(name, path, os.O_RDWR, above, follow=False, refused=cannot_write)
        file = NewFile(path, fd)
        with closed_if_it_fails(file):
            if not self._is_own(os.fstat(fd)):
                raise RmqStoreError(
                    f"{path}: expected a file of the store's owner, user {self.itself.st_uid}, with one name, found "
                    "another one, or one with more names"
                )
            self._walk.refuse_mount_point(fd, path, "a file")
        return file

    def write_file(self, path: str, data: bytes | Iterable[bytes], place: str | None = None) -> None:
        """Make a file of these bytes, which may come in parts, on disk; see new_file()."""
        with self.new_file(path, place=place) as file:
            at = 0
            for part in [data] if isinstance(data, bytes) else data:
                file.write(part, at)
                at += len(part)
            file.sync()

    def make_lock(self, path: str, content: bytes) -> None:
        """Make a lock file, unless another process has just made it."""
        above, name = self._walk.parent_for_write(path)
        mode = self._modes.of(path, is_directory=False)
        fd: int | None = calls.do(calls.open_new_at, path, above, name, mode.bits)
        if fd is not None:
            with NewFile(path, fd) as file:
                self._set_up(fd, path, mode)
                file.write(content, 0)

    def lock(self, path: str) -> int | None:
        """Lock a file's first byte (F_OFD_SETLK). Returns the descriptor that holds the lock; None where it is
        locked."""
        above, name = self._walk.parent_for_write(path)
        fd = open_file(name, path, os.O_RDWR, above, follow=False, refused=cannot_write)
        with contextlib.ExitStack() as if_not_locked:
            if_not_locked.callback(os.close, fd)
            if not calls.do(calls.lock, path, fd):
                return None
            if_not_locked.pop_all()
        return fd

    def make_directory(self, path: str) -> None:
        """Make a directory, and the missing directories above it in the tree."""
        if path == self.path or self._walk.is_open(path):
            return
        self.make_directory(os.path.dirname(path))
        self._make_directory(path, self._modes.of(path, is_directory=True))

    def make_private(self, path: str) -> None:
        """make_directory(), but only the owner has access, as long as the directory has this name."""
        self.make_directory(os.path.dirname(path))
        self._make_directory(path, _PRIVATE)

    def _make_directory(self, path: str, mode: Mode) -> None:
        above, name = self._walk.parent_for_write(path)
        if not calls.do(calls.make_directory_at, path, above, name, mode.bits):
            self.refuse_other_than(path, stat.S_ISDIR, "a directory")
            return
        self._made += 1
        fd = self._walk.directory_for_write(path)
        self._walk.refuse_mount_point(fd, path)
        if os.fstat(fd).st_uid == os.geteuid() and not os.listdir(fd):
            # No call makes a directory and opens it. To give away an empty directory that was put in place of ours does
            # no harm: the owner that it gets could have removed it before.
            self._set_up(fd, path, mode)

    def _set_up(self, fd: int, path: str, mode: Mode) -> None:
        """Set the permissions and the owner of a new entry."""
        if mode.is_exact and stat.S_IMODE(os.fstat(fd).st_mode) != mode.bits:
            calls.do(os.fchmod, path, fd, mode.bits)
        if self._owner is not None:
            calls.do(os.fchown, path, fd, *self._owner)

    def set_mode(self, mode: int) -> None:
        """Set the mode of the tree's own directory."""
        calls.do(os.fchmod, self.path, self._walk.fd, mode)

    def rename(self, source: str, target: str) -> None:
        """Move an entry, replacing the one that has the new name."""
        self._walk.forget(source, target)
        above, name = self._walk.parent_for_write(source)
        other_above, other = self._walk.parent_for_write(target)
        calls.do(calls.rename_at, target, above, name, other_above, other)

    def link(self, source: str, target: str) -> None:
        """Give a regular file one more name."""
        above, name = self._walk.parent_for_write(source)
        other_above, other = self._walk.parent_for_write(target)
        calls.do(calls.link_at, target, above, name, other_above, other)
        found = calls.status_at(other_above, other)
        if found is None or not stat.S_ISREG(found.st_mode):
            raise RmqStoreError(f"{source}: expected a regular file, found another thing; move it away")

    def remove(self, path: str) -> None:
        """Delete a file, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            calls.do(calls.unlink_at, path, *self._walk.parent(path))

    def remove_empty(self, path: str) -> None:
        """Delete a directory if it is empty."""
        self._walk.forget(path)
        with contextlib.suppress(RmqStoreError, OSError):
            calls.do(calls.remove_directory_at, path, *self._walk.parent(path))

    def remove_tree(self, path: str) -> None:
        """Delete a directory with its contents, if it exists; file by file, so that a kill can come at any of them.

        An entry that is not on the tree's own mount stays, and is an error. Depth does not matter: directories within
        are moved up to the top before they are emptied.
        """
        found = self.find(path)
        if found is not None and not stat.S_ISDIR(found.st_mode):
            self.remove(path)
        elif found is not None:
            remove_tree(self._walk, path)

    def sync_directory(self, path: str) -> None:
        """Wait until the names in a directory are on disk."""
        fd = self._walk.directory_for_write(path)
        calls.do(os.fsync, path, fd)

    def sync_directories(self, top: str) -> None:
        """sync_directory() for a directory and all directories in it."""
        if self.sync_all(self._made):
            return
        found = [top]
        for directory in found:  # the list grows meanwhile
            paths = (os.path.join(directory, name) for name in self.names(directory))
            found += [path for path in paths if self.is_directory(path)]
        self.for_each(found[1:], self.sync_directory)
        self.sync_directory(top)

    def for_each(self, items: Sequence[str], work: Callable[[str], None]) -> None:
        """Call a function with each item, in any order, in several threads where there are more than a few items
        (background.py). However many items there are, few descriptors are open at a time."""
        for_each(items, work, self._walk.let_go)

    @contextlib.contextmanager
    def kept_free(self, count: int) -> Iterator[Callable[[], None]]:
        """Reserve descriptors for the next steps: as many as for_each() may need for so many items, and for this
        thread.

        Yields:
            A function that releases the descriptors; they are released at the end in any case.

        Raises:
            RmqStoreError: so many descriptors are not available (ulimit -n).
        """
        with contextlib.ExitStack() as kept:
            for _ in range((1 + threads_for(count)) * (MOST_OPEN + _PASSING)):
                try:
                    kept.callback(os.close, os.dup(self._walk.fd))
                except OSError as why:
                    raise cannot_write(self.path, why) from None
            yield kept.close

    def sync_all(self, count: int) -> bool:
        """Wait until all changes in the tree are on disk, where that is quicker than to wait for each file.

        Any failure to write since the tree was opened is an error, whichever process wrote. So no failure is missed,
        not even where a file was closed and forgotten by the system before anybody waited for it.

        Args:
            count: the number of files and directories that are to come to disk.

        Returns:
            Whether this was done. If not, the caller must sync each of them.
        """
        if count < _MANY_TO_SYNC or not calls.syncfs_tells_errors(self._walk.fd):
            return False
        if not calls.do(calls.sync_all, self.path, self._walk.fd):
            return False
        # Before Linux 5.17, syncfs() is silent about a journal that was given up.
        calls.do(os.fsync, self.path, self._walk.fd)
        return True

    def exchange(self, one: str, other: str) -> None:
        """Swap the names of two directories in one step.

        Raises:
            RmqStoreError: the file system cannot exchange, or one of the directories is a mount point.
        """
        self._walk.forget(one, other)
        above, name = self._walk.parent_for_write(one)
        other_above, other_name = self._walk.parent_for_write(other)
        calls.do(calls.exchange, other, above, name, other_above, other_name)

    def can_exchange(self, directory: str) -> bool:
        """Can the file system of a directory exchange? Remains of the trial after a kill have names that begin with
        PROBE."""
        probe = os.path.join(directory, f"{PROBE}{secrets.token_hex(8)}")
        one, other = os.path.join(probe, "one"), os.path.join(probe, "other")
        try:
            for path in (probe, one, other):
                self.make_private(path)
            above = self._walk.parent_for_write(one)[0]
            can = calls.do(calls.try_exchange, probe, above, "one", above, "other")
            self.remove_tree(probe)
        except RmqStoreError:
            with contextlib.suppress(RmqStoreError):
                self.remove_tree(probe)
            raise
        return can
