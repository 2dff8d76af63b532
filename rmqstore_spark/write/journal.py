"""How a store is changed: all at once, or not at all, whenever the writer is killed.

Everything is made ready in `<store>/.rmqstore-spark/commit/new/`, a tree like the store's, and brought to disk; nobody
looks there. A broker ignores names in the store directory that it does not know. Then, step by step:

    1  `journal` says that it begins, and which directories are exchanged
    2  `checkpoint` is moved away, and `abort` is made: from this state a broker rebuilds ConsumeQueue and IndexFile
       from the whole commitlog; 5.5.0 only from its last ten files, unless commitLogRecoverMaxNum says otherwise
    3  config/topics.json knows the new topics
    4  new/commitlog and commitlog swap their names: one system call. Before it there is nothing of the new messages,
       after it all of them. (new/commitlog has hard links to the segments that stay as they are, and a copy of the one
       that goes on: nothing is written into a file that a reader or a broker knows.)
    5  ConsumeQueue and index files are renamed to their places. Readers do without them, a broker makes them anew
    6  `abort` is removed, the new `checkpoint` takes its place, and the rest is thrown away

Killed before 4, the next writer undoes what was done; after it, it does the rest. Both can be killed and done again. A
broker that was started in between has recovered the store by itself, and it has made a `checkpoint`: there never is one
between 2 and 6. What it found then is whole, and so all that is ours is only thrown away.

A checkpoint is away as long as an `abort` of ours is there, never the other way: one that stands beside a checkpoint is
a broker's.

A journal may be a trap: who owns the store can write one. So it names none but the directories above, and it moves
nothing but these, `checkpoint`, `abort` and config/topics.json. The commitlog is exchanged only by the writer that made
it, never because a journal says so. One that does not fit is set aside.
"""

import json
import logging
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from rmqstore_spark.errors import RmqStoreError, one_line
from rmqstore_spark.store.files import ReadFile
from rmqstore_spark.store.indexfile import FILE_NAME
from rmqstore_spark.store.layout import queue_id_of, start_in
from rmqstore_spark.write.disk import Tree, closed_if_it_fails

log = logging.getLogger(__name__)

WORKSHOP = ".rmqstore-spark"
_ABORT = b"rmqstore-spark"
_ABANDONED_SECONDS = 7 * 24 * 3600
_STAGING = "staging-"
_ASIDE = "aside-"
GONE = "-gone"  # at the end of the name of a staging directory that is being deleted

_VERSION = 1
_MOST_BYTES = 64 * 1024
# What a change exchanges, the directory that counts first; and in which directories it then puts single files.
APPENDED, REBUILT, REBUILT_WITHOUT_INDEX = ("commitlog",), ("consumequeue", "index"), ("consumequeue",)
_PUT = {APPENDED: ("consumequeue", "index"), REBUILT: (), REBUILT_WITHOUT_INDEX: ()}


@dataclass(frozen=True)
class _Journal:
    """What a change is about to do.

    Attributes:
        made: the inode of each directory to be exchanged, in their order.
        had_topics, has_topics: whether the store had a topics.json, and whether the change brings one.
    """

    made: dict[str, int]
    had_topics: bool
    has_topics: bool
    version: int = _VERSION

    @property
    def exchanged(self) -> tuple[str, ...]:
        """The directories, the one that counts first."""
        return tuple(self.made)


def workshop(root: str) -> str:
    """Where the writer's own files are, in a store."""
    return os.path.join(root, WORKSHOP)


def staging(root: str, job: str) -> str:
    """Where the tasks of a job put what they encode."""
    return os.path.join(workshop(root), _STAGING + job)


class Commit:
    """A change to a store that is being made ready. The store's lock is held from begin() to its end.

    Attributes:
        new: where the store's new files are made, in a tree like the store's.
        is_published: whether all of the change counts, and nothing of it can be undone any more.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.root = tree.path
        self.is_published = False
        self._workshop = workshop(self.root)
        self._home = os.path.join(self._workshop, "commit")
        self.new = os.path.join(self._home, "new")
        self._old = os.path.join(self._home, "old")
        self._path = os.path.join(self._home, "journal")
        self._abort = self._in_root("abort")
        self._new_abort = os.path.join(self._home, "abort")
        self._checkpoint = self._in_root("checkpoint")
        self._old_checkpoint = os.path.join(self._old, "checkpoint")
        self._new_checkpoint = os.path.join(self.new, "checkpoint")
        self._topics = self._in_root("config", "topics.json")
        self._old_topics = os.path.join(self._old, "topics.json")
        self._new_topics = os.path.join(self.new, "config", "topics.json")

    def begin(self) -> None:
        """Finish or undo what a killed writer left, and make room for a new change."""
        self.recover()
        self._tree.make_directory(self.new)
        self._tree.make_directory(self._old)

    def publish(self, exchanged: tuple[str, ...]) -> None:
        """Bring what is in `new` into place.

        Args:
            exchanged: APPENDED, REBUILT or REBUILT_WITHOUT_INDEX.

        Raises:
            RmqStoreError: nothing was changed, but for what give_up() undoes; or, where the text says so, all is
                written, and only what follows from it is not tidy.
        """
        tree = self._tree
        journal = _Journal(
            {name: tree.status(os.path.join(self.new, name)).st_ino for name in exchanged},
            self._has(self._topics),
            self._has(self._new_topics),
        )
        self._check_ways(journal)
        tree.sync_directories(self.new)
        tree.write_file(self._path + ".part", json.dumps(asdict(journal)).encode())
        tree.rename(self._path + ".part", self._path)
        tree.sync_directory(self._home)
        tree.sync_directory(self._workshop)

        if self._has(self._checkpoint):
            tree.rename(self._checkpoint, self._old_checkpoint)
            tree.sync_directory(self._old)
            tree.sync_directory(self.root)
        if not self._has(self._abort):
            tree.write_file(self._new_abort, _ABORT)  # with one without content nobody would know whose it is
            tree.rename(self._new_abort, self._abort)
            tree.sync_directory(self.root)
        if journal.has_topics:
            tree.make_directory(os.path.dirname(self._topics))
            if journal.had_topics:  # a copy: a file that root has edited, its owner must not link
                with ReadFile(self._topics, tree) as file:
                    tree.write_file(self._old_topics + ".part", file.read(0, file.size))
                tree.rename(self._old_topics + ".part", self._old_topics)
                tree.sync_directory(self._old)
            tree.rename(self._new_topics, self._topics)
            tree.sync_directory(os.path.dirname(self._topics))
        if self._has(self._checkpoint):
            raise RmqStoreError(
                f"{self.root}: a broker was started on the store while it was written to: nothing was written; "
                "stop the broker and write again"
            )
        self._exchange(exchanged[0])
        self.is_published = True
        try:
            tree.sync_directory(self.root)
            self._finish(journal)
        except Exception as why:
            log.warning("%s; trying once more", one_line(why))
            self._finish_again(why)

    def _finish_again(self, why: Exception) -> None:
        try:
            self.recover()
        except Exception:
            raise RmqStoreError(
                f"{why}: the messages are all written, do not write them again; but the store is not tidy: "
                "call rmqstore_spark.rebuild(store), or let a broker recover it"
            ) from None

    def give_up(self) -> None:
        """Undo what was done so far, if that is still to be; what stands in the way of it is left to the next write."""
        if not self.is_published:
            try:
                self.recover()
            except Exception as why:
                log.warning("%s: not tidied up, the next write will try again: %s", self.root, one_line(why))

    def recover(self) -> None:
        """Finish what a killed or failed writer left where it was through with what counts, else undo it.

        Raises:
            RmqStoreError: it cannot be done; or a newer version than this one has left it.
        """
        if not self._has(self._home):
            return
        try:
            journal = self._read() if self.is_pending else None
            # A broker makes a checkpoint when it loads a store. There is none while a change is published.
            obeyed = journal is not None and not self._has(self._checkpoint)
            if journal is not None and obeyed:
                self._check_ways(journal)
        except (_UnfitError, OSError, RmqStoreError) as why:
            self._set_aside(why)
            return
        if journal is not None and obeyed:
            if self._is_made(journal.exchanged[0], journal):
                log.warning("%s: finishing a write that was killed", one_line(self.root))
                self._finish(journal)
            else:
                log.warning("%s: undoing a write that was killed", one_line(self.root))
                self._undo(journal)
        self._tree.remove(self._path)
        self._tree.remove_tree(self._home)

    @property
    def is_pending(self) -> bool:
        """Has a killed writer left something to finish or to undo?"""
        return self._has(self._path)

    def sweep(self) -> None:
        """Throw away what a killed overwrite has left, and jobs that ended long ago."""
        Replacement.sweep(self._tree)
        for name in self._tree.names(self._workshop) if self._has(self._workshop) else []:
            path = os.path.join(self._workshop, name)
            found = self._tree.find(path)
            is_old = found is not None and time.time() - found.st_mtime > _ABANDONED_SECONDS
            if is_old and name.startswith((_STAGING, _ASIDE)):
                self._tree.remove_tree(path)

    def _in_root(self, *names: str) -> str:
        return os.path.join(self.root, *names)

    def _has(self, path: str) -> bool:
        return self._tree.find(path) is not None

    def _read(self) -> _Journal:
        """What the journal says.

        Raises:
            _UnfitError: no writer of ours writes such a one.
            _NewerError: a later version of ours does.
        """
        with ReadFile(self._path, self._tree) as file:
            data = file.read(0, _MOST_BYTES + 1)
        try:
            found = json.loads(data) if len(data) <= _MOST_BYTES else None
        except (ValueError, RecursionError):
            found = None
        version = found.get("version") if isinstance(found, dict) else None
        version = version if type(version) is int else 0  # True is an int, too
        if version > _VERSION:
            raise _NewerError(
                f"{self._path}: written by a newer rmqstore-spark: expected version {_VERSION}, found {version}; let "
                f"that one finish the write, or delete {self._home} and call rmqstore_spark.rebuild(store)"
            )
        journal = _understood(found) if version == _VERSION else None
        if journal is None:
            raise _UnfitError(f"expected a journal of version {_VERSION}, found something else")
        return journal

    def _set_aside(self, why: Exception) -> None:
        if isinstance(why, _NewerError):
            raise RmqStoreError(str(why)) from None
        aside = os.path.join(self._workshop, f"{_ASIDE}{time.time_ns():x}")
        log.warning("%s: not followed, and moved to %s: %s", one_line(self._path), one_line(aside), one_line(why))
        self._tree.rename(self._home, aside)

    def _check_ways(self, journal: _Journal) -> None:
        """See that nothing stands in the way of what is to be done: what fails then is the disk.

        Raises:
            RmqStoreError: naming it.
        """
        tree = self._tree
        directories = [self.new, self._old, os.path.dirname(self._topics)]
        for name in journal.exchanged:
            directories += [self._in_root(name), os.path.join(self.new, name)]
        for name in _PUT[journal.exchanged]:
            directories += [self._in_root(name), os.path.join(self.new, name)]
        files = [self._abort, self._checkpoint, self._old_checkpoint, self._new_checkpoint]
        files += [self._topics, self._old_topics, self._new_topics]
        for path in directories:
            tree.refuse_other_than(path, stat.S_ISDIR, "a directory")
            if tree.is_directory(path):
                tree.refuse_unwritable(path)
        for path in files:
            tree.refuse_other_than(path, stat.S_ISREG, "a file")
        for name in journal.exchanged:
            if not self._is_made(name, journal) and not self._has(os.path.join(self.new, name)):
                raise RmqStoreError(f"{os.path.join(self.new, name)}: expected the new directory, found none")
        for move in self._moves(journal):
            if move.is_directory:
                tree.refuse_other_than(move.target, stat.S_ISDIR, "a directory")
            else:
                tree.refuse_other_than(move.target, stat.S_ISREG, "a file")
            if move.is_directory and tree.is_directory(move.target):
                tree.refuse_unwritable(move.target)
                for stale in self._stale(move):
                    tree.refuse_other_than(stale, stat.S_ISREG, "a file")

    def _is_made(self, name: str, journal: _Journal) -> bool:
        found = self._tree.find(self._in_root(name))
        return found is not None and found.st_ino == journal.made[name]

    def _exchange(self, name: str) -> None:
        new, target = os.path.join(self.new, name), self._in_root(name)
        if self._has(target):
            self._tree.exchange(new, target)
        else:
            self._tree.rename(new, target)

    def _finish(self, journal: _Journal) -> None:
        tree = self._tree
        for name in journal.exchanged:
            if not self._is_made(name, journal):
                self._exchange(name)
        self._put(journal)
        tree.sync_directory(self.root)
        if journal.exchanged != APPENDED or self._abort_is_ours():  # a broker's is for rebuild() to settle
            tree.remove(self._abort)
        tree.sync_directory(self.root)
        if self._has(self._new_checkpoint):
            tree.rename(self._new_checkpoint, self._checkpoint)
            tree.sync_directory(self.root)
        tree.remove(self._path)
        tree.sync_directory(self._home)
        tree.remove_tree(self._home)

    def _put(self, journal: _Journal) -> None:
        """Rename files to their places, those of a directory in the order of their names."""
        tree = self._tree
        changed: set[str] = set()
        for move in list(self._moves(journal)):
            if move.is_directory and self._has(move.target):
                for stale in sorted(self._stale(move), reverse=True):
                    tree.remove(stale)
            else:
                tree.rename(move.source, move.target)
                changed.add(os.path.dirname(move.target))
        for directory in sorted(changed, reverse=True):
            tree.sync_directory(directory)

    def _moves(self, journal: _Journal) -> "Iterator[_Move]":
        """What goes where, in the order to do it in: what is new as a whole directory, else file by file. A directory
        that is there already comes before its files."""
        for top in _PUT[journal.exchanged]:
            if self._tree.is_directory(os.path.join(self.new, top)):
                yield from self._moves_of((top,))

    def _moves_of(self, names: tuple[str, ...]) -> "Iterator[_Move]":
        move = _Move(os.path.join(self.new, *names), self._in_root(*names), names, True)
        yield move
        if self._has(move.target):
            for name in sorted(self._tree.names(move.source)):
                inner = (*names, name)
                source = os.path.join(move.source, name)
                if not _belongs(inner, self._tree.is_directory(source)):
                    continue
                if self._tree.is_directory(source):
                    yield from self._moves_of(inner)
                else:
                    yield _Move(source, os.path.join(move.target, name), inner, False)

    def _stale(self, move: "_Move") -> list[str]:
        """Files of a queue after the last new one: the remains of a log that was cut."""
        if len(move.names) != len(("consumequeue", "topic", "queueId")):
            return []
        last = max((name for name in self._tree.names(move.source) if start_in(name) is not None), default=None)
        names = self._tree.names(move.target) if last is not None else []
        return [os.path.join(move.target, name) for name in names if start_in(name) is not None and name > str(last)]

    def _undo(self, journal: _Journal) -> None:
        tree = self._tree
        if self._has(self._old_topics):
            tree.rename(self._old_topics, self._topics)
        elif journal.has_topics and not journal.had_topics and not self._has(self._new_topics):
            tree.remove(self._topics)
        if self._abort_is_ours():
            tree.remove(self._abort)
            tree.sync_directory(self.root)
        if self._has(self._old_checkpoint):
            tree.rename(self._old_checkpoint, self._checkpoint)
            tree.sync_directory(self.root)

    def _abort_is_ours(self) -> bool:
        if not self._has(self._abort):
            return False
        with ReadFile(self._abort, self._tree) as file:
            return file.read(0, len(_ABORT) + 1) == _ABORT


class _Move(NamedTuple):
    """A file or a whole directory that is put in its place, and what it is: the names of its path in a store."""

    source: str
    target: str
    names: tuple[str, ...]
    is_directory: bool


class _UnfitError(Exception):
    """A journal that no writer of ours has made."""


class _NewerError(_UnfitError):
    """One of a later version of ours."""


def _understood(found: Any) -> _Journal | None:
    """A journal of this version; None where it does not fit."""
    if not isinstance(found, dict) or set(found) != set(_Journal.__dataclass_fields__):
        return None
    made, flags = found["made"], (found["had_topics"], found["has_topics"])
    if not isinstance(made, dict) or tuple(made) not in _PUT or not all(type(flag) is bool for flag in flags):
        return None
    if not all(type(inode) is int and 0 <= inode < 1 << 64 for inode in made.values()):
        return None
    return _Journal(made, *flags)


def _belongs(names: tuple[str, ...], is_directory: bool) -> bool:
    """May a change have made this, in one of the directories into which it puts files?"""
    match names:
        case ("consumequeue", _):
            return is_directory
        case ("consumequeue", _, queue_id):
            return is_directory and queue_id_of(queue_id) is not None
        case ("consumequeue", _, _, name):
            return not is_directory and start_in(name) is not None
        case ("index", name):
            return not is_directory and FILE_NAME.fullmatch(name) is not None
    return False


class Replacement:
    """A whole store that is made beside another, and takes its name in one step. A context manager.

    The other's lock is held. What is left of a killed one is thrown away by the next write (Commit.sweep).

    Attributes:
        tree: the directory that becomes the store.

    Raises:
        RmqStoreError: the store is a mount point.
    """

    def __init__(self, tree: Tree) -> None:
        self._old = tree
        self._root = os.path.realpath(tree.path)  # the store itself takes part, not a link to it
        self._new = _beside(self._root)

    def __enter__(self) -> "Replacement":
        self._above = Tree(os.path.dirname(self._root), like=self._old)
        with closed_if_it_fails(self._above):
            self._above.refuse_other_than(self._root, stat.S_ISDIR, "a directory")
            self._above.remove_tree(self._new)
            self._above.make_directory(self._new)
            self.tree = Tree(self._new, like=self._old)
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        with self._above, self.tree:
            if failed is None or issubclass(failed, Exception):
                found = self._above.find(self._new)
                if found is not None and found.st_ino in (self._old.itself.st_ino, self.tree.itself.st_ino):
                    self._above.remove_tree(self._new)

    def publish(self) -> None:
        """Let the two swap their names; the old store is then deleted."""
        self.tree.set_mode(stat.S_IMODE(self._old.itself.st_mode))
        self.tree.sync_directories(self._new)
        self._above.exchange(self._new, self._root)
        self._above.sync_directory(self._above.path)

    @staticmethod
    def sweep(tree: Tree) -> None:
        """Throw away what a killed replacement of a store has left beside it."""
        new = _beside(os.path.realpath(tree.path))
        if os.path.lexists(new):
            with Tree(os.path.dirname(new), like=tree) as above:
                found = above.find(new)
                if found is not None and found.st_uid in (os.geteuid(), tree.itself.st_uid):
                    above.remove_tree(new)


def _beside(root: str) -> str:
    return os.path.join(os.path.dirname(root), f".{os.path.basename(root)}{WORKSHOP}-new")
