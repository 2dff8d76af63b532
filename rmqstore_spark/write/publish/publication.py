"""How messages, or rebuilt files, come to count: the commit point of a change (change.py), of which there are two."""

import os
from collections.abc import Iterator, Mapping
from typing import Protocol

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.structures.indexfile import FILE_NAME
from rmqstore_spark.write.build import patch
from rmqstore_spark.write.build.stretch import InPlaceAppend, Laying
from rmqstore_spark.write.publish.journal import APPENDED, PUT, STRETCHED, Journal
from rmqstore_spark.write.publish.site import Site
from rmqstore_spark.write.publish.steps import Step


class Publication(Step, Protocol):
    """do() and undo() are called before the commit point, complete() after it; all of them can be repeated.

    Attributes:
        puts: the directories into which files are put after the commit point.
        is_rebuild: whether the change brings no new messages, so that the store is as after a clean stop.
    """

    puts: tuple[str, ...]
    is_rebuild: bool

    def refuse_obstacles(self) -> None:
        """See that nothing stands in the way.

        Raises:
            RmqStoreError: naming the obstacle.
        """

    @property
    def is_published(self) -> bool:
        """Has the change passed the commit point?"""

    def publish(self) -> None:
        """The commit point: before it nothing counts, after it everything."""

    def sync(self) -> None:
        """Wait until the publication is on disk, except for the store's own directory."""

    def complete(self) -> None:
        """Change the remaining files that are changed where they are."""


def publication_of(site: Site, journal: Journal, units: memoryview | None = None) -> Publication:
    """The publication that a journal describes.

    Args:
        units: the units to write behind the end of the log, where that is still to be done.
    """
    if journal.stretch is not None:
        return AppendInPlace(site, journal.stretch, units)
    return ExchangeDirectories(site, journal.made)


class ExchangeDirectories:
    """New directories swap names with the store's; the exchange of the first one is the commit point.

    Args:
        made: the inodes of the new directories, by name.
    """

    def __init__(self, site: Site, made: Mapping[str, int]) -> None:
        self._site = site
        self._made = made
        self._first = next(iter(made))
        self.puts = PUT[tuple(made)]
        self.is_rebuild = tuple(made) != APPENDED

    def refuse_obstacles(self) -> None:
        """See that the directories exist in the store and among the new files."""
        for name in self._made:
            self._site.refuse_other_than_directory(self._site.in_root(name), self._site.in_new(name))
            if not self._is_exchanged(name) and not self._site.has(self._site.in_new(name)):
                raise RmqStoreError(f"{self._site.in_new(name)}: expected the new directory, found none")

    def do(self) -> None:
        """Nothing: everything is ready."""

    def undo(self) -> None:
        """Nothing."""

    @property
    def is_published(self) -> bool:
        """Is the store's directory the new one?"""
        return self._is_exchanged(self._first)

    def publish(self) -> None:
        """Exchange the first directory."""
        self._exchange(self._first)

    def sync(self) -> None:
        """Nothing: the names are in the store's directory."""

    def complete(self) -> None:
        """Exchange the directories that a rebuild has beside the first one."""
        for name in self._made:
            if not self._is_exchanged(name):
                self._exchange(name)

    def _exchange(self, name: str) -> None:
        here, new = self._site.in_root(name), self._site.in_new(name)
        if self._site.has(here):
            self._site.tree.exchange(new, here)
        else:
            self._site.tree.rename(new, here)

    def _is_exchanged(self, name: str) -> bool:
        found = self._site.tree.find(self._site.in_root(name))
        return found is not None and found.st_ino == self._made[name]


class AppendInPlace:
    """A few messages behind the end of the log, which count with one small write (stretch.py), and the changes to the
    last index file, which is changed in place (patch.py)."""

    puts = PUT[STRETCHED]
    is_rebuild = False

    def __init__(self, site: Site, stretch: InPlaceAppend, units: memoryview | None) -> None:
        self._site = site
        self._units = units
        self._laying = Laying(site.tree, site.in_root("commitlog"), site.home, stretch)

    def refuse_obstacles(self) -> None:
        """See that the segment and the index files exist, and that the patches fit."""
        self._site.refuse_other_than_directory(self._site.in_root("commitlog"))
        self._site.refuse_other_than_file(self._laying.path)
        for changes, path in self._patches():
            self._site.refuse_other_than_file(path)
            patch.parts(self._site.tree, changes, path)

    def do(self) -> None:
        """Write the messages, hidden."""
        if self._units is not None:
            self._laying.lay(self._units)

    def undo(self) -> None:
        """Wipe the messages out."""
        self._laying.take_back()

    @property
    def is_published(self) -> bool:
        """Do the messages count?"""
        return self._laying.is_published

    def publish(self) -> None:
        """Let the messages count."""
        self._laying.publish()

    def sync(self) -> None:
        """Wait until the messages are on disk."""
        self._laying.sync()

    def complete(self) -> None:
        """Change the last index file."""
        for changes, path in self._patches():
            patch.apply(self._site.tree, changes, path, os.path.join(self._site.home, "index"))

    def _patches(self) -> Iterator[tuple[str, str]]:
        """The patches, each with the index file that it changes."""
        patches = self._site.in_new(patch.PATCHES)
        if self._site.tree.is_directory(patches):
            for name in self._site.tree.names(patches):
                path = self._site.in_root("index", name)
                if FILE_NAME.fullmatch(name) and self._site.has(path):
                    yield os.path.join(patches, name), path
