"""The directory that a write works in, and all changes of names in it.

Whatever a reader or a broker may see comes into place by one rename or one exchange of two directories, whole and on
disk already. Nothing that they see is changed in place, but by a small append (stretch.py, patch.py).

A store may be hostile: who owns it can put links into it, also while we work. So the writer holds the store's directory
by a descriptor (Tree) and goes down from there name by name, never through a link. What is there already is never
cut or given away, and written to only if it belongs to the store's owner and has no other name: it may be a hard link
to a file of somebody else. That is for what we made ourselves.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
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

PROBE = "exchange-"  # what can_exchange() tries it with
_PASSING = 8  # descriptors besides, that a thread has for a moment: the file it works on, and what a call opens
_PRIVATE = Mode(0o700, is_exact=False)
# One syncfs() costs less than so many fsync(), though it waits for what others wrote to the file system, too.
_MANY_TO_SYNC = 1024


def kind_at(path: str) -> str | None:
    """What is at the path of a store that is not opened yet, a link followed; None where there is nothing."""
    try:
        return kind_of(os.stat(path))
    except OSError:
        return "a link to nothing" if os.path.islink(path) else None


def remove_empty(path: str) -> None:
    """Delete the directory that a store was to be in, if nothing is in it and it is no link."""
    with contextlib.suppress(RmqStoreError):
        calls.do(os.rmdir, path, path)


def make_directories(path: str, mode: int) -> None:
    """Make the directory that a store is to be in, of a mode, and those above it, where they are missing."""
    calls.do(os.makedirs, path, path, mode, True)


class _Owner(NamedTuple):
    """To whom what we make belongs."""

    uid: int
    gid: int


class Tree:
    """A store's directory, or another that a write works in, and all below it. A context manager.

    Paths are absolute and begin with the tree's own. Of what comes after that, nothing may be a link: whoever swaps a
    directory for one leads us nowhere. Where root writes, what is made belongs to the directory's owner from the first
    moment, so that a broker of that user can go on with it.

    Large because each call of the system that a write needs is a method, and each goes from the tree's directory
    down without following a link.

    Args:
        path: an existing directory. It may be a link itself, and what is above it is the user's word.
        like: a tree to whose owner belongs what is made in this one, and who may read it there, may here; else its own.
        inside: a tree that the directory is in. Then it may not be a link.

    Attributes:
        itself: the directory.
        files: how the reading code reaches what is in it on behalf of a write: without following links.

    Raises:
        RmqStoreError: there is none.
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
        except OSError as why:
            raise cannot_write(path, why) from None
        self._walk = Walk(path, fd)
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
        """What a path is, be it a link; errors as of os.lstat."""
        return self._walk.status(path)

    def open(self, path: str) -> int:
        """A descriptor to read a regular file with; errors are ours."""
        return self._walk.open(path)

    def is_directory(self, path: str) -> bool:
        """Is there a directory at a path, and no link?"""
        return self.files.is_directory(path)

    def find(self, path: str) -> os.stat_result | None:
        """status(), or None where nothing is."""
        try:
            return self.status(path)
        except OSError as why:
            if why.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise cannot_read(path, why) from None

    def refuse_other_than(self, path: str, is_right: Callable[[int], bool], what: str) -> None:
        """See that a path is free, or of a certain kind, and on the tree's own file system.

        Args:
            is_right: stat.S_ISDIR or stat.S_ISREG.
            what: it in words.

        Raises:
            RmqStoreError: there is a link, a mount point or something else.
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
        """What is in a directory: names, which of them are links, and which directories; nothing where it is none."""
        try:
            with os.scandir(self._walk.directory(path)) as entries:
                found = [(e.name, e.is_symlink(), e.is_dir(follow_symlinks=False)) for e in entries]
        except OSError:
            return
        yield from found

    def free_bytes(self) -> int:
        """How much the file system takes, as far as it tells."""
        found = os.fstatvfs(self._walk.fd)
        return found.f_bavail * found.f_frsize

    # ---- changing

    def stand_for(self, made: str, place: str) -> None:
        """What is made in one directory of the tree takes its place in another: as modes.Modes."""
        self._modes.stand_for(made, place)

    def new_file(self, path: str, size: int = 0, place: str | None = None) -> NewFile:
        """Make a file of `size` bytes, all zeros and sparse.

        Args:
            place: what it will be renamed to, where that is not what its directory says (stand_for).
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
        """A file that new_file() has made, once more."""
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
        """Is there a regular file that belongs to whom the tree does, and that has no other name?"""
        found = self.find(path)
        return found is not None and self._is_own(found)

    def _is_own(self, found: os.stat_result) -> bool:
        return stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == self.itself.st_uid

    def open_to_change(self, path: str) -> NewFile:
        """A file that may_be_changed().

        Raises:
            RmqStoreError: it may not.
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

    def write_file(self, path: str, data: bytes, place: str | None = None) -> None:
        """A new file of these bytes, on disk; see new_file()."""
        with self.new_file(path, place=place) as file:
            file.write(data, 0)
            file.sync()

    def make_lock(self, path: str, content: bytes) -> None:
        """A file to be locked, unless somebody has just made it."""
        above, name = self._walk.parent_for_write(path)
        mode = self._modes.of(path, is_directory=False)
        fd: int | None = calls.do(calls.open_new_at, path, above, name, mode.bits)
        if fd is not None:
            with NewFile(path, fd) as file:
                self._set_up(fd, path, mode)
                file.write(content, 0)

    def lock(self, path: str) -> int | None:
        """Lock a file's first byte for its descriptor (F_OFD_SETLK), which is the answer; None where it is locked."""
        above, name = self._walk.parent_for_write(path)
        fd = open_file(name, path, os.O_RDWR, above, follow=False, refused=cannot_write)
        with contextlib.ExitStack() as if_not_locked:
            if_not_locked.callback(os.close, fd)
            if not calls.do(calls.lock, path, fd):
                return None
            if_not_locked.pop_all()
        return fd

    def make_directory(self, path: str) -> None:
        """Make a directory, and those above it in the tree, where they are missing."""
        if path == self.path or self._walk.is_open(path):
            return
        self.make_directory(os.path.dirname(path))
        self._make_directory(path, self._modes.of(path, is_directory=True))

    def make_private(self, path: str) -> None:
        """make_directory() of one that is only for whom it belongs to, as long as it has this name."""
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
            # There is no call that makes a directory and opens it. One that was put in place of ours, and that is
            # empty, its new owner could have removed before.
            self._set_up(fd, path, mode)

    def _set_up(self, fd: int, path: str, mode: Mode) -> None:
        """Of something that was just made: who may do what with it, and to whom it belongs."""
        if mode.is_exact and stat.S_IMODE(os.fstat(fd).st_mode) != mode.bits:
            calls.do(os.fchmod, path, fd, mode.bits)
        if self._owner is not None:
            calls.do(os.fchown, path, fd, *self._owner)

    def set_mode(self, mode: int) -> None:
        """Who may do what with the tree's own directory."""
        calls.do(os.fchmod, self.path, self._walk.fd, mode)

    def rename(self, source: str, target: str) -> None:
        """Move, in place of what has the name."""
        self._walk.forget(source, target)
        above, name = self._walk.parent_for_write(source)
        other_above, other = self._walk.parent_for_write(target)
        calls.do(calls.rename_at, target, above, name, other_above, other)

    def link(self, source: str, target: str) -> None:
        """One more name for a regular file."""
        above, name = self._walk.parent_for_write(source)
        other_above, other = self._walk.parent_for_write(target)
        calls.do(calls.link_at, target, above, name, other_above, other)
        found = calls.status_at(other_above, other)
        if found is None or not stat.S_ISREG(found.st_mode):
            raise RmqStoreError(f"{source}: expected a regular file, found another thing; move it away")

    def remove(self, path: str) -> None:
        """Delete a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            calls.do(calls.unlink_at, path, *self._walk.parent(path))

    def remove_empty(self, path: str) -> None:
        """Delete a directory if nothing is in it."""
        self._walk.forget(path)
        with contextlib.suppress(RmqStoreError, OSError):
            calls.do(calls.remove_directory_at, path, *self._walk.parent(path))

    def remove_tree(self, path: str) -> None:
        """Delete a directory and all in it, if it is there; file by file, so that it can be stopped at any of them.

        What is not on the tree's own mount stays, and is an error. Depth does not matter: directories within are moved
        up to the top before they are emptied.
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
        """sync_directory for a directory and all in it."""
        if self.sync_all(self._made):
            return
        found = [top]
        for directory in found:  # it gets longer meanwhile
            paths = (os.path.join(directory, name) for name in self.names(directory))
            found += [path for path in paths if self.is_directory(path)]
        self.for_each(found[1:], self.sync_directory)
        self.sync_directory(top)

    def for_each(self, items: Sequence[str], work: Callable[[str], None]) -> None:
        """Do something in the tree with each of them, in any order, several at once where they are more than a few
        (background.py). However many they are, few descriptors are open at a time."""
        for_each(items, work, self._walk.let_go)

    @contextlib.contextmanager
    def kept_free(self, count: int) -> Iterator[Callable[[], None]]:
        """Descriptors are kept for what comes: as many as for_each() may need for so many items, and this thread.

        Yields:
            what gives them free, at the latest at the end.

        Raises:
            RmqStoreError: so many are not to be had (ulimit -n).
        """
        with contextlib.ExitStack() as kept:
            for _ in range((1 + threads_for(count)) * (MOST_OPEN + _PASSING)):
                try:
                    kept.callback(os.close, os.dup(self._walk.fd))
                except OSError as why:
                    raise cannot_write(self.path, why) from None
            yield kept.close

    def sync_all(self, count: int) -> bool:
        """Wait until all that was changed in the tree is on disk, where that is quicker than to wait for each.

        What could not be written since the tree was opened is an error, whoever wrote it. So nothing is missed, not
        even where a file was closed and forgotten by the system before anybody waited for it.

        Args:
            count: of files and directories that are to come to disk.

        Returns:
            whether it was done. If not, each is to be synced.
        """
        if count < _MANY_TO_SYNC or not calls.syncfs_tells_errors(self._walk.fd):
            return False
        if not calls.do(calls.sync_all, self.path, self._walk.fd):
            return False
        # Before Linux 5.17, syncfs() is silent about a journal that was given up.
        calls.do(os.fsync, self.path, self._walk.fd)
        return True

    def exchange(self, one: str, other: str) -> None:
        """Let two directories swap their names in one step.

        Raises:
            RmqStoreError: the file system cannot, or one of them is a mount point.
        """
        self._walk.forget(one, other)
        above, name = self._walk.parent_for_write(one)
        other_above, other_name = self._walk.parent_for_write(other)
        calls.do(calls.exchange, other, above, name, other_above, other_name)

    def can_exchange(self, directory: str) -> bool:
        """Does the file system of a directory know how to exchange? What a kill leaves of the try begins with PROBE."""
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
