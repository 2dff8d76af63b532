"""How far the order of the commitlog can be trusted to be the order of store times.

Brokers write the log in the order of their clocks, and clocks are set back: by NTP, or when another machine becomes the
master. Small steps are allowed for everywhere, and larger ones where they are seen.
"""

import time

CLOCK_SLACK = 60_000  # milliseconds: messages may be older by this much than one before them


def milliseconds_now() -> int:
    """The current time in ms since the epoch, as RocketMQ counts."""
    return time.time_ns() // 1_000_000


def went_back(first: int, later: int) -> bool:
    """Has the clock been set back between two messages with these store times (ms), by more than a little?"""
    return later < first - CLOCK_SLACK


def widened(least: int, most: int) -> tuple[int, int]:
    """The store times (ms) between which a log is searched for those in [least, most]."""
    return least - CLOCK_SLACK, most + CLOCK_SLACK


def may_hold(first: int | None, following: int | None, least: int, most: int) -> bool:
    """May a piece of the log hold messages with store times (ms) in [least, most]?

    Args:
        first: store time of its first message.
        following: store time of the first message after it, or of its last one. None if unknown, for both.
        least, most: the bounds of the wanted store times.
    """
    if first is not None and following is not None and went_back(first, following):
        return True
    earliest, latest = widened(least, most)
    too_new = first is not None and first > latest
    too_old = following is not None and following < earliest
    return not (too_new or too_old)
