"""The timer's state, as far as it is needed to tell which of its messages are delivered, and when the others are due.

config/timercheck, which a broker writes about every second:
    0  i64 up to which time (ms) the wheel is done with   8  more that is not needed here
timerlog/, whose records follow each other in files of one size, each with a blank at its end:
    0  i32 size, 52          4  i64 the record before in its slot   12  i32 kind: bit 1 is to be put back, bit 2 cancels
   16  i64 time (ms) of the record   24  i32 ms from then on until it is due   28  i64 physical offset of the message
   36  i32 its size         40  i32 Java's hash of its topic        44  i64 reserved
Source: org.apache.rocketmq.store.timer.TimerCheckpoint, TimerLog, TimerMessageStore.doEnqueue.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqstore_spark.store.io.files import Files, ignore_unreadable
from rmqstore_spark.store.structures.consumequeue import names_in

_TIME = struct.Struct(">q")
_RECORD = np.dtype(
    [
        *(("size", ">i4"), ("before", ">i8"), ("kind", ">i4"), ("written", ">i8"), ("after", ">i4")),
        *(("position", ">i8"), ("message_size", ">i4"), ("topic_hash", ">i4"), ("reserved", ">i8")),
    ]
)
_PUT_BACK, _CANCELS = 2, 4
_AT_ONCE = 64 * 1024  # records


@dataclass(frozen=True)
class Timed:
    """What the timer's log says of a message.

    Attributes:
        due: the time (ms) at which the wheel hands it out: to its topic, or to be put back.
        is_put_back: whether it waits longer than the wheel turns, and is stored anew then.
        is_cancel: whether it cancels another one.
        topic_hash: Java's hash code of the topic to which it goes.
    """

    due: int
    is_put_back: bool
    is_cancel: bool
    topic_hash: int


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


def timed_at(root: str, positions: npt.NDArray[np.int64], files: Files) -> dict[int, Timed]:
    """What the timer's log says of the messages at some physical offsets; it may say nothing of a message, and a broker
    that keeps timers in RocksDB has none. Reads all of the log.

    Args:
        root: the store directory.
        files: how to reach files, and where requests and bytes are counted.
    """
    found: dict[int, Timed] = {}
    for records in _records(os.path.join(root, "timerlog"), files) if len(positions) else ():
        for each in records[np.isin(records["position"], positions)].tolist():
            _, _, kind, written, after, position, _, topic_hash, _ = each
            found[position] = Timed(written + after, bool(kind & _PUT_BACK), bool(kind & _CANCELS), topic_hash)
    return found


def _records(directory: str, files: Files) -> Iterator[np.ndarray]:
    for name in filter(str.isdecimal, names_in(directory, files)):
        with ignore_unreadable(), files.file(os.path.join(directory, name)) as file:
            for start in range(0, file.size, _AT_ONCE * _RECORD.itemsize):
                data = file.read(start, min(file.size - start, _AT_ONCE * _RECORD.itemsize))
                records = np.frombuffer(data, _RECORD, len(data) // _RECORD.itemsize)
                yield records[records["size"] == _RECORD.itemsize]
                if not records["size"].any():  # zeros, to the file's end
                    break
