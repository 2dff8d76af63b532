"""How long somebody waits for requests that each take the same time, however many are under way."""

from __future__ import annotations

from collections.abc import Iterable


def rounds(begun: Iterable[float], seconds: float) -> int:
    """The longest row of requests of which each began when the one before it had ended.

    Args:
        begun: when each began.
        seconds: that each took.
    """
    count, end = 0, float("-inf")
    for at in sorted(begun):
        if at >= end:
            count, end = count + 1, at + seconds
    return count
