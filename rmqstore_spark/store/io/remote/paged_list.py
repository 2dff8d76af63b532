"""Lists of very many keys: which of their pages can be asked for side by side.

Each page of a list tells where the next one begins, so they wait for each other. But a list can also be asked for from
any text on. So what is left after a page is cut into parts, each of which is asked for at once: at the directories of a
store, and where a later key may differ from the page's last one. A bad guess costs a page that has no keys, and never a
key: parts follow each other without a gap, and what is left of one is cut again.
"""

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

PAGE = 1000  # objects in a page of a list
_DIRECTORIES = ("config", "consumequeue", "index")  # of a store, in which, or before which, there are most objects
_LONGEST = 32  # characters that are varied, up to the first one in which keys of a page differ
_DIGITS = 4  # of a number that are varied before that character, too
_ALIKE = ("0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_AFTER_SLASH = "0"


class Part(NamedTuple):
    """A part of a list: the keys after a text, up to another one, which may be the key of an object. None: no bound."""

    after: str | None
    last: str | None


class UnorderedError(Exception):
    """A server does not list keys in order, or not from the text on that was asked for."""


class PagedList:
    """A list that is asked for in rounds.

    Attributes:
        parts: of each the first page is asked for next. None are left at the end.

    Args:
        directory: the key of the directory; '' is the whole bucket.
        after: only keys after this text are listed.
    """

    def __init__(self, directory: str, after: str | None = None) -> None:
        self.parts = [Part(after, None)]
        self._above = f"{directory}/" if directory else ""

    def take(self, pages: Sequence[Sequence[str]]) -> list[int]:
        """How many keys of the first page of each part are in that part. What is left of these are the next parts.

        Raises:
            UnorderedError: such pages cannot be the parts'.
        """
        counts, left = [], []
        for part, keys in zip(self.parts, pages, strict=True):
            if not _are_ordered([*([] if part.after is None else [part.after]), *keys]):
                raise UnorderedError
            counts.append(len(keys) if part.last is None else bisect_right(keys, part.last))
            if len(keys) >= PAGE and (part.last is None or keys[-1] < part.last):
                left += _cut(part, keys, self._above)
        self.parts = left
        return counts


def _are_ordered(keys: Sequence[str]) -> bool:
    return all(one < other for one, other in itertools.pairwise(keys))


def _cut(part: Part, keys: Sequence[str], above: str) -> list[Part]:
    """The parts in which the rest of a part is, of which some keys are known.

    Args:
        above: begins all keys.
    """
    at = keys[-1]
    base = at.find("/", len(above)) + 1 or len(above)
    first = next(key for key in keys if key.startswith(at[:base]))
    varied = _alike(first, at)
    texts = {at[: base - 1] + _AFTER_SLASH, *(above + name for name in _DIRECTORIES)}
    begin = max(base, _alike(part.after or "", part.last or ""))
    for index in range(max(base, varied - _LONGEST), min(varied + 1, len(at))):
        is_number = at[index].isdecimal() and index >= varied - _DIGITS
        # Elsewhere whatever is later is one part: guesses of all characters there would mostly find nothing.
        others = _later(at[index]) if is_number or index in (begin, varied) else _next(at[index])
        texts |= {at[:index] + other for other in others}
    bounds = sorted(text for text in texts if at < text and (part.last is None or text < part.last))
    return [Part(after, last) for after, last in itertools.pairwise([at, *bounds, part.last])]


def _alike(one: str, other: str) -> int:
    """The number of characters with which both texts begin."""
    return next(
        (at for at, (here, there) in enumerate(zip(one, other, strict=False)) if here != there),
        min(len(one), len(other)),
    )


def _next(character: str) -> str:
    """The character after one that a path can end with; '' where that is no plain one."""
    if character >= "~":
        return ""
    return "0" if character in "-./" else chr(ord(character) + 1)


def _later(character: str) -> str:
    """The characters after one that are like it, and the first ones of other kinds."""
    return "".join(
        other for alike in _ALIKE for other in (alike if character in alike else alike[:1]) if other > character
    )
