"""Ranges of keys that were deleted in one go."""

import bisect
import heapq
import itertools
from collections.abc import Iterable
from typing import NamedTuple


class RangeDeletion(NamedTuple):
    """A deletion of all entries in [start, stop) that are older than a sequence number."""

    start: bytes
    stop: bytes
    newest: int


def fragments(ranges: Iterable[RangeDeletion]) -> list[RangeDeletion]:
    """Equivalent ranges, in order and disjoint: where some overlap, the newest counts."""
    ranges = sorted(one for one in ranges if one.start < one.stop)
    bounds = sorted({bound for one in ranges for bound in (one.start, one.stop)})
    found: list[RangeDeletion] = []
    open_ones: list[tuple[int, bytes]] = []  # (-newest, stop) of the ranges that begin before the bound
    taken = 0
    for start, stop in itertools.pairwise(bounds):
        while taken < len(ranges) and ranges[taken].start <= start:
            heapq.heappush(open_ones, (-ranges[taken].newest, ranges[taken].stop))
            taken += 1
        while open_ones and open_ones[0][1] <= start:
            heapq.heappop(open_ones)
        if open_ones:
            found.append(RangeDeletion(start, stop, -open_ones[0][0]))
    return found


def newest_over(deletions: list[RangeDeletion], key: bytes) -> int:
    """The sequence number before which a key is deleted by fragments(); 0: it is in none of them."""
    at = bisect.bisect_right(deletions, key, key=lambda one: one.start) - 1
    return deletions[at].newest if at >= 0 and key < deletions[at].stop else 0
