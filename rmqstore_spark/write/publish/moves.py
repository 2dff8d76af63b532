"""How ConsumeQueue and index files that were made come into a store: which names move, and which files go."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from rmqstore_spark.store.structures.indexfile import FILE_NAME
from rmqstore_spark.store.structures.layout import queue_id_of, start_in
from rmqstore_spark.write.fs.disk import Tree

Names = tuple[str, ...]  # a path below the store's directory, or below the directory of new files


class Move(NamedTuple):
    """The change to one name in the store.

    Attributes:
        names: the name, after the names of its directories.
        comes: whether a new file or directory is renamed to it. If not: a file is deleted; a directory stays, and the
            moves into it come next.
        is_directory: whether the name is a directory; else it is a file.
    """

    names: Names
    comes: bool
    is_directory: bool


class Listing(Protocol):
    """The contents of a directory, at any depth."""

    def has(self, names: Names) -> bool:
        """Is there anything under a name?"""

    def is_directory(self, names: Names) -> bool:
        """Is a name a directory?"""

    def names(self, names: Names) -> Sequence[str]:
        """The names in a directory."""


class Below:
    """The contents of a directory of a tree."""

    def __init__(self, tree: Tree, top: str) -> None:
        self._tree = tree
        self._top = top

    def has(self, names: Names) -> bool:
        """Is there anything under a name?"""
        return self._tree.find(os.path.join(self._top, *names)) is not None

    def is_directory(self, names: Names) -> bool:
        """Is a name a directory?"""
        return self._tree.is_directory(os.path.join(self._top, *names))

    def names(self, names: Names) -> Sequence[str]:
        """The names in a directory."""
        return self._tree.names(os.path.join(self._top, *names))


def moves(new: Listing, store: Listing, tops: Iterable[str]) -> Iterator[Move]:
    """The moves in the order to do them in, without those that have been done already.

    Args:
        new: the files that were made, in a tree like the store's.
        store: the files of the store.
        tops: the directories that files are put into.
    """
    for top in tops:
        if new.is_directory((top,)):
            yield from _moves_of(new, store, (top,))


def _moves_of(new: Listing, store: Listing, names: Names) -> Iterator[Move]:
    """A new directory moves as a whole; where the store has the directory, file by file in the order of the names."""
    if not store.has(names):
        yield Move(names, comes=True, is_directory=True)
        return
    yield Move(names, comes=False, is_directory=True)
    found = [((*names, name), new.is_directory((*names, name))) for name in sorted(new.names(names))]
    found = [(inner, is_directory) for inner, is_directory in found if _belongs(inner, is_directory)]
    if found and len(names) == len(("consumequeue", "topic", "queueId")):
        for stale in _after(found[-1][0][-1], store.names(names)):
            yield Move((*names, stale), comes=False, is_directory=False)
    for inner, is_directory in found:
        if is_directory:
            yield from _moves_of(new, store, inner)
        else:
            yield Move(inner, comes=True, is_directory=False)


def _after(last: str, there: Sequence[str]) -> list[str]:
    """Files of a queue after the last new one: remains of a log that was cut. The last file comes first."""
    return sorted((name for name in there if start_in(name) is not None and name > last), reverse=True)


def _belongs(names: Names, is_directory: bool) -> bool:
    """May a change have made this name, in one of the directories into which it puts files?"""
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
