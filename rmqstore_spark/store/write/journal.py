"""How a store is changed: all at once, or not at all, whenever the writer is killed.

Everything is made ready in `<store>/.rmqstore-spark/commit/new/`, a tree like the store's, and brought to disk; nobody
looks there. A broker ignores names in the store directory that it does not know. Then, step by step:

    1  `journal` says that it begins, and which directories are exchanged
    2  `checkpoint` is moved away, and `abort` is made: from this state a broker rebuilds ConsumeQueue and IndexFile
       from the whole commitlog; 5.5.0 only from its last ten files, unless commitLogRecoverMaxNum says otherwise
    3  config/topics.json knows the new topics
    4  new/commitlog and commitlog swap their names: one system call. Before it there is nothing of the new messages,
       behind it all of them. (new/commitlog has hard links to the segments that stay as they are, and a copy of the one
       that goes on: nothing is written into a file that a reader or a broker knows.)
    5  ConsumeQueue and index files are renamed to their places. Readers do without them, a broker makes them anew
    6  `abort` is removed, the new `checkpoint` takes its place, and the rest is thrown away

Killed before 4, the next writer undoes what was done; behind it, it does the rest. Both can be killed and done again. A
broker that was started in between has recovered the store by itself, and it has made a `checkpoint`: there never is one
between 2 and 6. What it found then is whole, and so all that is ours is only thrown away.

A checkpoint is away as long as an `abort` of ours is there, never the other way: one that stands beside a checkpoint is
a broker's.
"""

import contextlib
import json
import logging
import os
import time
from typing import Any

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.write import disk

log = logging.getLogger(__name__)

WORKSHOP = ".rmqstore-spark"
_ABORT = b"rmqstore-spark"
_ABANDONED_SECONDS = 7 * 24 * 3600
_STAGING = "staging-"
GONE = "-gone"  # behind the name of a staging directory that is being deleted

Journal = dict[str, Any]  # made: inode of each exchanged directory, in their order; had_topics, has_topics: bool


def workshop(root: str) -> str:
    """Where the writer's own files are, in a store."""
    return os.path.join(root, WORKSHOP)


def staging(root: str, job: str) -> str:
    """Where the tasks of a job put what they encode."""
    return os.path.join(workshop(root), _STAGING + job)


class Commit:
    """A change to a store that is being made ready. The store's lock is held from making it to its end.

    Attributes:
        new: where the store's new files are made, in a tree like the store's.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._home = os.path.join(workshop(root), "commit")
        self.new = os.path.join(self._home, "new")
        self._old = os.path.join(self._home, "old")
        self._journal = os.path.join(self._home, "journal")
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
        disk.make_directory(self.new)
        disk.make_directory(self._old)

    def publish(self, exchanged: tuple[str, ...]) -> None:
        """Bring what is in `new` into place.

        Args:
            exchanged: directories in `new` that swap names with the store's; the first is the one that counts. Every
                other file takes the place of the one with its path.
        """
        disk.adopt(self.new, self.root)
        disk.sync_directories(self.new)
        journal = {
            "made": {name: os.stat(os.path.join(self.new, name)).st_ino for name in exchanged},
            "had_topics": os.path.exists(self._topics),
            "has_topics": os.path.exists(self._new_topics),
        }
        disk.write_file(self._journal + ".part", json.dumps(journal).encode())
        disk.rename(self._journal + ".part", self._journal)
        disk.sync_directory(self._home)
        disk.sync_directory(workshop(self.root))

        if os.path.exists(self._checkpoint):
            disk.rename(self._checkpoint, self._old_checkpoint)
            disk.sync_directory(self._old)
            disk.sync_directory(self.root)
        if not os.path.exists(self._abort):
            disk.write_file(self._new_abort, _ABORT)  # with one without content nobody would know whose it is
            disk.rename(self._new_abort, self._abort)
            disk.sync_directory(self.root)
        if journal["has_topics"]:
            disk.make_directory(os.path.dirname(self._topics))
            if journal["had_topics"]:
                disk.link(self._topics, self._old_topics)
            disk.rename(self._new_topics, self._topics)
            disk.sync_directory(os.path.dirname(self._topics))
        if os.path.exists(self._checkpoint):
            raise RmqStoreError(
                f"{self.root}: a broker was started on the store while it was written to: nothing was written; "
                "stop the broker and write again"
            )
        self._exchange(exchanged[0])
        try:
            disk.sync_directory(self.root)
            self._finish(journal)
        except Exception as why:
            log.warning("%s; trying once more", why)
            self._finish_again(why)

    def _finish_again(self, why: Exception) -> None:
        try:
            self.recover()
        except Exception:
            raise RmqStoreError(
                f"{why}: the messages are all written, do not write them again; but the store is not tidy: "
                "call rmqstore_spark.rebuild(store), or let a broker recover it"
            ) from None

    def recover(self) -> None:
        """Finish what a killed or failed writer left where it was through with what counts, else undo it."""
        journal = self._read_journal()
        # There is none while a change is published. A broker makes one when it loads a store.
        if journal is not None and not os.path.exists(self._checkpoint):
            if self._is_made(next(iter(journal["made"])), journal):
                log.warning("%s: finishing a write that was killed", self.root)
                self._finish(journal)
            else:
                log.warning("%s: undoing a write that was killed", self.root)
                self._undo(journal)
        disk.remove(self._journal)
        if os.path.exists(self._home):
            disk.remove_tree(self._home)

    @property
    def is_pending(self) -> bool:
        """Has a killed writer left something to finish or to undo?"""
        return os.path.exists(self._journal)

    def sweep(self) -> None:
        """Throw away what a killed overwrite has left, and jobs that ended long ago."""
        disk.remove_tree(_beside(self.root) + "new")
        with contextlib.suppress(FileNotFoundError):
            for entry in list(os.scandir(workshop(self.root))):
                if entry.name.startswith(_STAGING) and time.time() - entry.stat().st_mtime > _ABANDONED_SECONDS:
                    disk.remove_tree(entry.path)

    def _in_root(self, *names: str) -> str:
        return os.path.join(self.root, *names)

    def _read_journal(self) -> Journal | None:
        try:
            with open(self._journal, "rb") as file:
                journal: Journal = json.loads(file.read())
                return journal
        except FileNotFoundError:
            return None

    def _is_made(self, name: str, journal: Journal) -> bool:
        try:
            return bool(os.stat(self._in_root(name)).st_ino == journal["made"][name])
        except FileNotFoundError:
            return False

    def _exchange(self, name: str) -> None:
        new, target = os.path.join(self.new, name), self._in_root(name)
        if os.path.exists(target):
            disk.exchange(new, target)
        else:
            disk.rename(new, target)

    def _finish(self, journal: Journal) -> None:
        for name in journal["made"]:
            if not self._is_made(name, journal):
                self._exchange(name)
        for entry in sorted(os.listdir(self.new)):
            if entry not in journal["made"] and os.path.isdir(os.path.join(self.new, entry)):
                self._put_files(entry)
        disk.sync_directory(self.root)
        disk.remove(self._abort)
        disk.sync_directory(self.root)
        if os.path.exists(self._new_checkpoint):
            disk.rename(self._new_checkpoint, self._checkpoint)
            disk.sync_directory(self.root)
        disk.remove(self._journal)
        disk.sync_directory(self._home)
        disk.remove_tree(self._home)

    def _put_files(self, top: str) -> None:
        """Rename the files in new/<top> to their places, those of a directory in the order of their names."""
        changed: set[str] = set()
        for directory, _, names in os.walk(os.path.join(self.new, top)):
            if not names:
                continue
            target = self._in_root(os.path.relpath(directory, self.new))
            disk.make_directory(target)
            if top == "consumequeue":  # files behind the last one are the remains of a log that was cut
                for stale in sorted(os.listdir(target), reverse=True):
                    if stale > max(names):
                        disk.remove(os.path.join(target, stale))
            for name in sorted(names):
                disk.rename(os.path.join(directory, name), os.path.join(target, name))
            changed.add(target)
        for target in sorted({above for path in changed for above in self._up_to_root(path)}, reverse=True):
            disk.sync_directory(target)

    def _up_to_root(self, path: str) -> list[str]:
        found = []
        while path != self.root:
            found.append(path)
            path = os.path.dirname(path)
        return found

    def _undo(self, journal: Journal) -> None:
        if os.path.exists(self._old_topics):
            disk.rename(self._old_topics, self._topics)
        elif journal["has_topics"] and not journal["had_topics"] and not os.path.exists(self._new_topics):
            disk.remove(self._topics)
        with contextlib.suppress(FileNotFoundError), open(self._abort, "rb") as file:
            if file.read() == _ABORT:
                disk.remove(self._abort)
                disk.sync_directory(self.root)
        if os.path.exists(self._old_checkpoint):
            disk.rename(self._old_checkpoint, self._checkpoint)
            disk.sync_directory(self.root)


class Replacement:
    """A whole store that is made beside another, and takes its name in one step. A context manager.

    The other's lock is held. What is left of a killed one is thrown away by the next write (Commit.sweep).

    Attributes:
        new: the directory that becomes the store.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self.new = _beside(root) + "new"

    def __enter__(self) -> "Replacement":
        disk.remove_tree(self.new)
        disk.make_directory(self.new)
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is None or issubclass(failed, Exception):
            disk.remove_tree(self.new)

    def publish(self) -> None:
        """Let the two swap their names; the old store is then deleted."""
        disk.adopt(self.new, self._root)
        disk.sync_directories(self.new)
        disk.exchange(self.new, self._root)
        disk.sync_directory(os.path.dirname(self._root))


def _beside(root: str) -> str:
    return os.path.join(os.path.dirname(root), f".{os.path.basename(root)}{WORKSHOP}-")
