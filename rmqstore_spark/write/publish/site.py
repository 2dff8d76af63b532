"""Where a change to a store takes place: the directories that it works in (change.py)."""

import os
import stat
from dataclasses import dataclass

from rmqstore_spark.write.fs.disk import Tree
from rmqstore_spark.write.fs.workshop import workshop


@dataclass(frozen=True)
class Site:
    """A store, and in its workshop the directories of a change.

    Attributes:
        tree: the store.
    """

    tree: Tree

    @property
    def root(self) -> str:
        """The store's directory."""
        return self.tree.path

    @property
    def home(self) -> str:
        """The directory of a change; it exists only while a change is under way or was left half done."""
        return os.path.join(workshop(self.root), "commit")

    @property
    def new(self) -> str:
        """The directory in which the store's new files are made, in a tree like the store's."""
        return os.path.join(self.home, "new")

    @property
    def old(self) -> str:
        """The directory in which files that were moved away are kept until nothing can be undone any more."""
        return os.path.join(self.home, "old")

    @property
    def journal(self) -> str:
        """The path of the journal (journal.py)."""
        return os.path.join(self.home, "journal")

    def in_root(self, *names: str) -> str:
        """A path in the store."""
        return os.path.join(self.root, *names)

    def in_new(self, *names: str) -> str:
        """The path at which the new version of a file is made."""
        return os.path.join(self.new, *names)

    def in_old(self, *names: str) -> str:
        """The path at which the old version of a file is kept."""
        return os.path.join(self.old, names[-1])

    def has(self, path: str) -> bool:
        """Is there anything at a path?"""
        return self.tree.find(path) is not None

    def put(self, source: str, target: str) -> None:
        """Rename a file, if it is there."""
        if self.has(source):
            self.tree.rename(source, target)
            self.tree.sync_directory(os.path.dirname(target))

    def refuse_other_than_file(self, *paths: str) -> None:
        """See that each path is a file or free, so that later failures are the disk's.

        Raises:
            RmqStoreError: naming the first path that is something else.
        """
        for path in paths:
            self.tree.refuse_other_than(path, stat.S_ISREG, "a file")

    def refuse_other_than_directory(self, *paths: str) -> None:
        """See that each path is a directory whose names can be changed, or free; errors as of
        refuse_other_than_file()."""
        for path in paths:
            self.tree.refuse_other_than(path, stat.S_ISDIR, "a directory")
            if self.tree.is_directory(path):
                self.tree.refuse_unwritable(path)
