"""What goes wrong, in one line each: what, where, expected, found, and what to do.

The classes call themselves rmqstore_spark's, where users import them from: Spark prints that name before the text.
"""

import re
from itertools import takewhile
from operator import eq

# What moves a terminal's cursor, breaks a line or turns the reading direction; and halves of characters.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_MOST_COMPARED = 500  # names
_NEAR = 0.65  # of two texts, how much of them is the same: less is a guess
_MOST_QUOTED = 200  # characters


def one_line(text: object) -> str:
    """A text that may have names from a store in it, fit to be shown: control characters are escaped as in Python."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def quoted(text: str) -> str:
    """A text that a user gave, as an error shows it: in quotes, and of a long one the beginning."""
    if len(text) <= _MOST_QUOTED:
        return repr(text)
    return f"{text[:_MOST_QUOTED]!r}... ({len(text):,} characters)"


def counted(number: int, noun: str) -> str:
    """A number of things in words."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class RmqStoreError(Exception):
    """Base of every error this package raises on purpose; its text is one line, complete without a traceback."""

    __module__ = "rmqstore_spark"

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


class OptionError(RmqStoreError):
    """An option, a column or a path that was asked for cannot be understood."""

    __module__ = "rmqstore_spark"


class NotAStoreError(RmqStoreError):
    """The path is not a store directory that can be read."""

    __module__ = "rmqstore_spark"


class DamagedStoreError(RmqStoreError):
    """The store's bytes are not what the format demands."""

    __module__ = "rmqstore_spark"


class DeletedMeanwhileError(RmqStoreError):
    """A file that was there when a read began has been deleted since, as a broker does with what has expired.

    That is no damage. What has not given any row yet begins again by itself, with what is left; who gets this error has
    had some of the rows, or was to have those of that file, and reads again.
    """

    __module__ = "rmqstore_spark"


class StorageError(RmqStoreError):
    """The storage of a remote store refuses, or does not answer; or the store is another one than a read was planned
    with, on a disk as well."""

    __module__ = "rmqstore_spark"


class DataLossError(RmqStoreError):
    """What a stream has still to read, or has read already, is no longer in the store."""

    __module__ = "rmqstore_spark"


class BadRowError(RmqStoreError):
    """A row that no message can be made of."""

    __module__ = "rmqstore_spark"


def nearest(name: str, known: list[str]) -> str:
    """' Did you mean ...?', or '' when nothing known is near.

    To compare with one that is near takes a third of a millisecond, and a store may have 100,000 topics. So of many
    only those are compared that begin and end most like the name: a typo leaves both as they are, or one of them.
    """
    import difflib
    import heapq

    lower = {candidate.lower(): candidate for candidate in known}
    wanted = name.lower()
    likely = heapq.nlargest(_MOST_COMPARED, lower, key=lambda candidate: _same_ends(candidate, wanted))
    close = difflib.get_close_matches(wanted, likely, n=1, cutoff=_NEAR)
    return f" Did you mean {lower[close[0]]!r}?" if close else ""


def _same_ends(one: str, other: str) -> int:
    """How many letters two texts have in common at their beginning and at their end."""
    begin, end = map(eq, one, other), map(eq, reversed(one), reversed(other))
    return len([*takewhile(bool, begin), *takewhile(bool, end)])
