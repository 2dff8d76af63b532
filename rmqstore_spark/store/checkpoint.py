"""`checkpoint`: how far the broker knew its files to be written (org.apache.rocketmq.store.StoreCheckpoint).

0  i64 physicMsgTimestamp   8  i64 logicsMsgTimestamp   16  i64 indexMsgTimestamp   (ms; any may be 0)
"""

import struct

from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.files import Counters, ReadFile

_LAYOUT = struct.Struct(">qqq")


def logics_timestamp(path: str, counters: Counters) -> int:
    """Store time (ms) of the last message put into a ConsumeQueue, as of the last flush; 0 when that is not known."""
    try:
        with ReadFile(path, counters) as file:
            data = file.read(0, _LAYOUT.size)
    except RmqStoreError:  # a hint: a missing or unreadable one is no error
        return 0
    return int(_LAYOUT.unpack(data)[1]) if len(data) == _LAYOUT.size else 0
