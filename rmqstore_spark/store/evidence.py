"""How sure it is that a message named by a queue or an index file exists and belongs to the live log.

The values are ordered: callers name the weakest value that they accept (`found >= Evidence.LIVE`). Whatever a store
holds, the evidence is never stronger than the truth.
"""

import enum


class Evidence(enum.IntEnum):
    """What the log says of a message, weakest first."""

    EXPIRED = 0  # the log begins after the message; or the unit pads the beginning of a queue's file
    ABSENT = 1  # no message is named, or the log has no such message there
    DAMAGED = 2  # no message can be read there, but one may have been there
    LEFT_OVER = 3  # the message is of a log that was truncated since: still on disk, or overwritten by another message
    UNSURE = 4  # the message is there; a proof that it is live would take a long walk
    LIVE = 5
