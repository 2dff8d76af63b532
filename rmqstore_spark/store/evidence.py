"""How sure it is that a message, which a queue or an index file names, is there and of today's log.

The values are ordered: callers say the least that they need (`found >= Evidence.LIVE`). Whatever a store holds, the
evidence is never stronger than the truth.
"""

import enum


class Evidence(enum.IntEnum):
    """What the log says of a message, weakest first."""

    EXPIRED = 0  # the log begins after it; or its unit fills up the beginning of a queue's file
    ABSENT = 1  # nothing is named, or no such message stands there
    DAMAGED = 2  # no message can be read there, but one may have been there
    LEFT_OVER = 3  # of a log that was truncated since: it still stands there, or the live log has another one there
    UNSURE = 4  # it stands there; whether it is live would take a long walk
    LIVE = 5
