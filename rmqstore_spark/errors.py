"""The errors of this package. Each text is one line: what, where, expected, found, and what to do.

The classes give rmqstore_spark as their module, where users import them from: Spark prints that name before the text.
"""

import re
from collections.abc import Sequence
from itertools import takewhile
from operator import eq

# Characters that move a terminal's cursor, break a line or turn the reading direction; and halves of characters.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_MOST_COMPARED = 500  # names
_NEAR = 0.65  # the share of two texts that is equal: a smaller share would be a guess
_MOST_QUOTED = 200  # characters
_MOST_NAMED = 5  # names that an error lists


def one_line(text: object) -> str:
    """The text with its control characters escaped as in Python: names from a store may contain them."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


def quoted(text: str) -> str:
    """A user's text as an error shows it: in quotes, and cut if it is long."""
    if len(text) <= _MOST_QUOTED:
        return repr(text)
    return f"{text[:_MOST_QUOTED]!r}... ({len(text):,} characters)"


def counted(number: int, noun: str) -> str:
    """A number and its noun: `1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class RmqStoreError(Exception):
    """Base of all errors that this package raises on purpose. The text is one line, complete without a traceback."""

    __module__ = "rmqstore_spark"

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


class OptionError(RmqStoreError):
    """An option, a column or an argument is unknown, has a wrong value, or does not fit the call or the store."""

    __module__ = "rmqstore_spark"


class NotAStoreError(RmqStoreError):
    """The path is not a store directory, or a kind of store that this call cannot read or write."""

    __module__ = "rmqstore_spark"


class DamagedStoreError(RmqStoreError):
    """The store is damaged: bytes or files of it contradict the format."""

    __module__ = "rmqstore_spark"

    def __init__(self, what: str, advice: str = "") -> None:
        """`advice`: what to do, where that depends on the call; a call inside another one has its own taken off."""
        super().__init__(f"{what}; {advice}" if advice else what)
        self.what = one_line(what)
        self.advice = advice


class DeletedMeanwhileError(RmqStoreError):
    """A file was deleted while it was read, as brokers do with expired segments; or somebody began to write a store
    while it was checked. This is no damage: read again.

    Calls that have not returned any row yet start again by themselves, with the files that are left.
    """

    __module__ = "rmqstore_spark"


class StorageError(RmqStoreError):
    """The storage of a remote store refuses or does not answer, or a disk fails; or the store, also a local one, is not
    the one that the read was planned on."""

    __module__ = "rmqstore_spark"


class DataLossError(RmqStoreError):
    """Messages that a stream has yet to read, or has read, are no longer in the store."""

    __module__ = "rmqstore_spark"


class BadRowError(RmqStoreError):
    """A row cannot become a message."""

    __module__ = "rmqstore_spark"


def nearest(name: str, known: list[str]) -> str:
    """' Did you mean ...?', or '' when nothing known is near.

    Comparing with a similar name takes a third of a millisecond, and a store may have 100,000 topics. So only the names
    that share most letters with `name` at its beginning and end are compared: a typo spares at least one of the two.
    """
    import difflib
    import heapq

    lower = {candidate.lower(): candidate for candidate in known}
    wanted = name.lower()
    likely = heapq.nlargest(_MOST_COMPARED, lower, key=lambda candidate: _same_ends(candidate, wanted))
    close = difflib.get_close_matches(wanted, likely, n=1, cutoff=_NEAR)
    return f" Did you mean {lower[close[0]]!r}?" if close else ""


def some_of(known: Sequence[str]) -> str:
    """The first names of those that are known, for the end of an error."""
    return (", ".join(map(quoted, known[:_MOST_NAMED])) or "none") + ", ..." * (len(known) > _MOST_NAMED)


def _same_ends(one: str, other: str) -> int:
    """The number of letters that two texts share at their beginning plus at their end."""
    begin, end = map(eq, one, other), map(eq, reversed(one), reversed(other))
    return len([*takewhile(bool, begin), *takewhile(bool, end)])
