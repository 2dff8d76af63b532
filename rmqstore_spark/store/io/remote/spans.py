"""Which requests serve scattered reads in a file. Nothing is read here."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Span(NamedTuple):
    """Stretches that one request serves: those with the indices [first, last), within the bytes [start, stop)."""

    first: int
    last: int
    start: int
    stop: int


def how_many_fit(offsets: npt.NDArray[np.int64], sizes: npt.NDArray[np.int32], capacity: int) -> int:
    """The number of these stretches that fit into `capacity` bytes, one after the other, up to the first stretch that
    cannot be in a file."""
    wrong = np.flatnonzero((offsets < 0) | (sizes <= 0))
    ends = np.cumsum(sizes[: wrong[0]] if len(wrong) else sizes, dtype=np.int64)
    return int(np.searchsorted(ends, capacity, "right"))


def spans(
    starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], needed: Iterable[int], gap: int, most: int
) -> list[Span]:
    """The requests for some stretches. Neighbours share a request where that is cheaper, unless a stretch between them
    is left out.

    Args:
        starts, counts: the offset and the bytes of each stretch.
        needed: the indices of the stretches to request, ascending. None of these stretches is empty.
        gap: reading this many unneeded bytes is cheaper than a request.
        most: the most bytes of a request for several stretches.
    """
    found: list[Span] = []
    for number in needed:
        start, stop = int(starts[number]), int(starts[number] + counts[number])
        if found and found[-1].last == number:
            before = found[-1]
            last_start, last_stop = int(starts[number - 1]), int(starts[number - 1] + counts[number - 1])
            if start >= last_start and start - last_stop <= gap and stop - before.start <= most:
                found[-1] = Span(before.first, number + 1, before.start, max(before.stop, stop))
                continue
        found.append(Span(number, number + 1, start, stop))
    return found
