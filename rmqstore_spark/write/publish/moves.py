"""How ConsumeQueue and index files that were made come into a store: which names move, and which files go."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from rmqstore_spark.store.structures.indexfile import FILE_NAME
from rmqstore_spark.store.structures.layout import queue_id_of, start_in
from rmqstore_spark.write.fs.disk import Tree

Names = tuple[str, ...]  # a path below the store's directory, or that of what is made


class Move(NamedTuple):
    """What happens to one name in the store.

    Attributes:
        names: the name, with those of the directories that it is in.
        comes: whether the new one is renamed to it. Else a file is deleted; a directory stays, and what moves into it
            comes next.
        is_directory: whether it is one; else it is a file.
    """

    names: Names
    comes: bool
    is_directory: bool


class Listing(Protocol):
    """What is in a directory, at any depth."""

    def has(self, names: Names) -> bool:
        """Is there anything?"""

    def is_directory(self, names: Names) -> bool:
        """Is it a directory?"""

    def names(self, names: Names) -> Sequence[str]:
        """What is in it."""


class Below:
    """What is in a directory of a tree."""

    def __init__(self, tree: Tree, top: str) -> None:
        self._tree = tree
        self._top = top

    def has(self, names: Names) -> bool:
        """Is there anything?"""
        return self._tree.find(os.path.join(self._top, *names)) is not None

    def is_directory(self, names: Names) -> bool:
        """Is it a directory?"""
        return self._tree.is_directory(os.path.join(self._top, *names))

    def names(self, names: Names) -> Sequence[str]:
        """What is in it."""
        return self._tree.names(os.path.join(self._top, *names))


def moves(new: Listing, store: Listing, tops: Iterable[str]) -> Iterator[Move]:
    """What goes where, in the order to do it in. What has been done already is not among it.

    Args:
        new: what was made, in a tree like the store's.
        store: what is there.
        tops: the directories that files are put into.
    """
    for top in tops:
        if new.is_directory((top,)):
            yield from _moves_of(new, store, (top,))


def _moves_of(new: Listing, store: Listing, names: Names) -> Iterator[Move]:
    """A new directory goes as a whole; where the store has one, file by file, in the order of their names."""
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
    """Files of a queue after the last new one, which are the remains of a log that was cut; the last one first."""
    return sorted((name for name in there if start_in(name) is not None and name > last), reverse=True)


def _belongs(names: Names, is_directory: bool) -> bool:
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
