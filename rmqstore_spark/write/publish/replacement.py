"""A whole store in the place of another: the way of mode overwrite, and of a copy into an empty directory."""

import logging
import os
import stat

from rmqstore_spark.errors import RmqStoreError, one_line
from rmqstore_spark.store.structures.written import WORKSHOP
from rmqstore_spark.write.fs.disk import Tree, kind_at
from rmqstore_spark.write.fs.new_file import closed_if_it_fails

logger = logging.getLogger(__name__)


class Replacement:
    """A whole store that is made beside another, and takes its name in one step. A context manager.

    The lock of the store to be replaced is held. The remains of a killed replacement are thrown away by the next write
    (sweep_beside).

    Attributes:
        tree: the directory that becomes the store.
        is_published: whether the directory has become the store.

    Raises:
        RmqStoreError: the store is a mount point.
    """

    def __init__(self, tree: Tree) -> None:
        self._old = tree
        self._root = os.path.realpath(tree.path)  # the store itself is exchanged, not a link to it
        self._new = _beside(self._root)
        self.is_published = False

    def __enter__(self) -> "Replacement":
        self._above = Tree(os.path.dirname(self._root), like=self._old)
        with closed_if_it_fails(self._above):
            self._above.refuse_other_than(self._root, stat.S_ISDIR, "a directory")
            self._above.remove_tree(self._new)
            self._above.make_private(self._new)
            self.tree = Tree(self._new, like=self._old, inside=self._above)
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        with self._above, self.tree:
            if failed is None or issubclass(failed, Exception):
                try:
                    self._remove_other()
                except (OSError, RmqStoreError) as why:
                    what = "the old store is not deleted" if self.is_published else "not cleaned up"
                    logger.warning("%s: %s, the next write will try again: %s", *map(one_line, (self._new, what, why)))

    def _remove_other(self) -> None:
        """Delete the directory that is not the store now."""
        found = self._above.find(self._new)
        if found is not None and found.st_ino in (self._old.itself.st_ino, self.tree.itself.st_ino):
            self._above.remove_tree(self._new)

    def publish(self) -> None:
        """Swap the names of the two stores; the old store is then deleted.

        Raises:
            RmqStoreError: something else has been put in the new store's place, and the old store stays; or, where the
                text says so, everything is written.
        """
        self.tree.sync_directories(self._new)
        self.tree.set_mode(stat.S_IMODE(self._old.itself.st_mode))  # readable for the same users as the old store
        self.tree.sync_directory(self._new)
        self._above.exchange(self._new, self._root)
        found = self._above.find(self._root)
        if found is None or found.st_ino != self.tree.itself.st_ino:
            self._above.exchange(self._new, self._root)
            raise RmqStoreError(
                f"{self._new}: expected the new store, which was made there, found something else that another process "
                "has put there; find out who works in this directory, and write again"
            )
        self.is_published = True
        try:
            self._above.sync_directory(self._above.path)
        except (OSError, RmqStoreError) as why:
            raise RmqStoreError(
                f"{why}: all messages are written, do not write them again; but a power failure may still lose them: "
                "find out what is wrong with the disk"
            ) from None


def sweep_beside(tree: Tree) -> None:
    """Throw away the remains of a killed replacement beside a store."""
    new = _beside(os.path.realpath(tree.path))
    if kind_at(new) is not None:
        with Tree(os.path.dirname(new), like=tree) as above:
            found = above.find(new)
            if found is not None and found.st_uid in (os.geteuid(), tree.itself.st_uid):
                above.remove_tree(new)


def _beside(root: str) -> str:
    return os.path.join(os.path.dirname(root), f".{os.path.basename(root)}{WORKSHOP}-new")
