"""The steps before the commit point of a change, and how each is undone (change.py). Doing, undoing and finishing a
step can be killed anywhere, and done again."""

import os
from typing import Protocol

from rmqstore_spark.store.io.files import ReadFile
from rmqstore_spark.write.publish.site import Site

_ABORT = b"rmqstore-spark"


class Step(Protocol):
    """A step before the commit point."""

    def do(self) -> None:
        """Do the step."""

    def undo(self) -> None:
        """Bring the store back to its former state, however much of the step was done."""


class Checkpoint:
    """`checkpoint` is moved away, and a new one takes its place in the end."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.here, self._old, self._new = (
            site.in_root("checkpoint"),
            site.in_old("checkpoint"),
            site.in_new("checkpoint"),
        )
        self.paths = (self.here, self._old, self._new)

    @property
    def is_there(self) -> bool:
        """Does the store have a checkpoint? While ours is away, such a checkpoint is made by a broker that has
        recovered it."""
        return self._site.has(self.here)

    def do(self) -> None:
        """Move the checkpoint away."""
        if self.is_there:
            self._site.tree.rename(self.here, self._old)
            self._site.tree.sync_directory(self._site.old)
            self._site.tree.sync_directory(self._site.root)

    def undo(self) -> None:
        """Bring the checkpoint back."""
        self._site.put(self._old, self.here)

    def finish(self) -> None:
        """Put the new checkpoint in its place."""
        self._site.put(self._new, self.here)


class Abort:
    """`abort` is there as long as a broker would have to recover the store."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.path = site.in_root("abort")

    def do(self) -> None:
        """Make `abort`, if there is none."""
        tree = self._site.tree
        if not self._site.has(self.path):
            new = os.path.join(self._site.home, "abort")
            tree.write_file(new, _ABORT, self.path)  # an empty file would not tell whose it is
            tree.rename(new, self.path)
            tree.sync_directory(self._site.root)

    def undo(self) -> None:
        """Remove `abort`, if it is ours."""
        if self._is_ours:
            self._site.tree.remove(self.path)
            self._site.tree.sync_directory(self._site.root)

    def finish(self, with_a_brokers: bool) -> None:
        """Remove `abort`.

        Args:
            with_a_brokers: whether an `abort` left by a broker is removed, too.
        """
        if with_a_brokers or self._is_ours:
            self._site.tree.remove(self.path)
        self._site.tree.sync_directory(self._site.root)

    @property
    def _is_ours(self) -> bool:
        if not self._site.has(self.path):
            return False
        with ReadFile(self.path, self._site.tree.files) as file:
            return file.read(0, len(_ABORT) + 1) == _ABORT


class Topics:
    """config/topics.json knows the new topics.

    Args:
        had: whether the store had one.
        has: whether the change brings one.
    """

    def __init__(self, site: Site, had: bool, has: bool) -> None:
        self._site = site
        self._had, self._has = had, has
        names = ("config", "topics.json")
        self._here, self._old, self._new = site.in_root(*names), site.in_old(*names), site.in_new(*names)
        self.paths = (self._here, self._old, self._new)

    def do(self) -> None:
        """Put the new file in the place of the old one, of which a copy is kept."""
        tree, config = self._site.tree, os.path.dirname(self._here)
        if not self._has:
            return
        tree.make_directory(config)
        if self._had:  # a copy, as the owner of the store must not get a link to a file that root has edited
            with ReadFile(self._here, tree.files) as file:
                tree.write_file(self._old + ".part", file.read(0, file.size), self._here)
            tree.rename(self._old + ".part", self._old)
            tree.sync_directory(self._site.old)
        tree.rename(self._new, self._here)
        tree.sync_directory(config)

    def undo(self) -> None:
        """Bring the old file back, or remove the new one if the store had none."""
        self._site.put(self._old, self._here)
        if self._has and not self._had and not self._site.has(self._new) and self._site.has(self._here):
            self._site.tree.remove(self._here)
            self._site.tree.sync_directory(os.path.dirname(self._here))
