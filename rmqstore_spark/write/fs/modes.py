"""The permissions of new files and directories: those of the entry that the new one replaces.

If there is no entry of that name in the store, the permissions are those of its neighbours there, else of the directory
above: a store of modes 0700 and 0600 stays one. Only where nothing but a directory above says it, the process's umask
applies, too.
"""

import os
import stat
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple, Protocol

_MOST_KNOWN = 1000  # directories for which the modes of new entries are remembered
_MOST_LOOKED_AT = 8  # names in a directory, the last ones
_OWNERS = {True: 0o700, False: 0o600}  # by whether it is a directory: without these bits no write could go on with it


class Mode(NamedTuple):
    """The permissions of a new file or directory.

    Attributes:
        bits: as of chmod.
        is_exact: whether the bits hold regardless of the umask.
    """

    bits: int
    is_exact: bool


class Looks(Protocol):
    """A store's directory, as a disk.Tree."""

    path: str
    itself: os.stat_result

    def find(self, path: str) -> os.stat_result | None:
        """The status of a path, of a link itself; None where there is nothing."""

    def names(self, path: str) -> Sequence[str]:
        """The names in a directory."""


class Modes:
    """The modes of new entries in a directory.

    Args:
        store: the tree whose entries the modes are taken from.
        made: the directory of the new entries, which need not be the store's own.
    """

    def __init__(self, store: Looks, made: str) -> None:
        self._store = store
        self._made, self._place = made, store.path
        self._known: OrderedDict[str, dict[bool, Mode]] = OrderedDict()

    def stand_for(self, made: str, place: str) -> None:
        """Entries made in the directory `made` will take their places in `place`, a directory of the store."""
        self._made, self._place = made, place

    def of(self, path: str, is_directory: bool) -> Mode:
        """The mode of a new file or directory."""
        if path.startswith(self._made + os.sep):
            path = self._place + path[len(self._made) :]
        found = self._store.find(path)
        if found is not None and _is(found, is_directory):
            return _mode_of(found, is_directory)
        return self._of_new(os.path.dirname(path))[is_directory]

    def _of_new(self, directory: str) -> dict[bool, Mode]:
        """The modes of new entries in a directory of the store that replace nothing, by whether they are
        directories."""
        known = self._known.pop(directory, None) or self._look(directory)
        self._known[directory] = known
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        return known

    def _look(self, directory: str) -> dict[bool, Mode]:
        is_top = directory == self._store.path
        found = self._store.itself if is_top else self._store.find(directory)
        if found is None or not stat.S_ISDIR(found.st_mode):
            return self._of_new(os.path.dirname(directory))
        bits = stat.S_IMODE(found.st_mode) & 0o777 | _OWNERS[True]
        above = Mode(bits & 0o666, False) if is_top else self._of_new(os.path.dirname(directory))[False]
        modes = {True: Mode(bits, False), False: above._replace(bits=above.bits & bits)}
        names = (name for name in self._store.names(directory) if not name.startswith("."))
        for name in sorted(names)[-_MOST_LOOKED_AT:]:
            beside = self._store.find(os.path.join(directory, name))
            for is_directory in modes:
                if beside is not None and _is(beside, is_directory):
                    modes[is_directory] = _mode_of(beside, is_directory)
        return modes


def _is(found: os.stat_result, is_directory: bool) -> bool:
    return stat.S_ISDIR(found.st_mode) if is_directory else stat.S_ISREG(found.st_mode)


def _mode_of(found: os.stat_result, is_directory: bool) -> Mode:
    most = 0o7777 if is_directory else 0o777
    return Mode(stat.S_IMODE(found.st_mode) & most | _OWNERS[is_directory], True)
