"""The timer's state, as far as it is needed to tell which of its messages are delivered: config/timercheck.

    0  i64 up to which time (ms) the wheel is done with   8  more that is not needed here
A broker writes the file about every second.
Source: org.apache.rocketmq.store.timer.TimerCheckpoint.
"""

import os
import struct

from rmqstore_spark.store.io.files import Files, ignore_unreadable

_TIME = struct.Struct(">q")


def timer_time(root: str, files: Files) -> int:
    """The time (ms) up to which timed messages are delivered; 0 if unknown.

    Args:
        root: the store directory.
        files: how to reach files, and where requests and bytes are counted.
    """
    with ignore_unreadable(), files.file(os.path.join(root, "config", "timercheck")) as file:
        data = file.read(0, _TIME.size)
        if len(data) == _TIME.size:
            return max(0, int(_TIME.unpack(data)[0]))
    return 0
