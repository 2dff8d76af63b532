"""Stretches of consecutive numbers, such as physical offsets or the numbers of a queue's units."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

_Longs = npt.NDArray[np.int64]


def joined(stretches: Iterable[tuple[int, int]], near: int = 0) -> Iterator[tuple[int, int]]:
    """The same stretches [start, stop), in order of their starts, as one where the next begins at most `near` behind
    the one before."""
    following = iter(stretches)
    if (first := next(following, None)) is None:
        return
    start, stop = first
    for begin, end in following:
        if begin > stop + near:
            yield start, stop
            start, stop = begin, end
        stop = max(stop, end)
    yield start, stop


def numbers_in(firsts: _Longs, counts: _Longs) -> _Longs:
    """The numbers in some stretches, one after the other: in each so many, from its first one on."""
    ends = np.cumsum(counts)
    numbers: _Longs = np.arange(ends[-1] if len(ends) else 0) + np.repeat(firsts - ends + counts, counts)
    return numbers
