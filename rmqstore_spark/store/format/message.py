"""Message units in Python: the numbers of the format, and what a failed check means.

The wire layout stands in native_io/unit.h, where it is executed; native_io.FORMAT has its numbers.
Source: org.apache.rocketmq.store.MessageExtEncoder, CommitLog.checkMessageAndReturnSize.
"""

import re
import socket
import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from native_io import FORMAT, Status

# MessageSysFlag: two bits for the transaction, an enum and not two flags.
TRANSACTION_TYPE = 0xC
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
INNER_BATCH = 0x80  # a unit holds several messages
BATCH = 0x40 | INNER_BATCH  # NEED_UNWRAP or INNER_BATCH

SMALLEST_UNIT = FORMAT["SMALLEST_UNIT"]  # bytes

_MOST = (1 << 63) - 1
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")

_HOST = re.compile(r"(?:\[([^\]]+)\]|([0-9.]+)):(-?[0-9]{1,10})")

# sysFlag bits 8-10, meaningful only with SYSFLAG_COMPRESSED. 0 is from before 4.9.4, when there was zlib only.
COMPRESSION_TYPE = 0x700
COMPRESSION_TYPES = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}


def compression_type(sys_flag: int) -> int:
    """The number in COMPRESSION_TYPES that a compressed body's sysFlag names."""
    return sys_flag >> 8 & 0x7


def _spread(*fields: tuple[int, str]) -> struct.Struct:
    """A Struct for fields that are not side by side, each given by its offset and type."""
    layout, at = ">", 0
    for begin, code in fields:
        layout += f"{begin - at}x{code}"
        at = begin + struct.calcsize(">" + code)
    return struct.Struct(layout)


_HEAD = _spread(
    *((0, "i"), (4, "i"), (FORMAT["AT_QUEUE_ID"], "i"), (FORMAT["AT_QUEUE_OFFSET"], "q")),
    *((FORMAT["AT_PHYSICAL_OFFSET"], "q"), (FORMAT["AT_SYSFLAG"], "i")),  # as class Head has them
)


_BORN_V6, _STORE_V6 = FORMAT["SYSFLAG_BORNHOST_V6"], FORMAT["SYSFLAG_STOREHOST_V6"]
_V6 = _BORN_V6 | _STORE_V6
_MAGIC_V2 = FORMAT["MAGIC_V2"]


def _host_size(is_v6: int) -> int:
    """Bytes of a host in a unit: its address and port."""
    return (16 if is_v6 else 4) + 4


# The offset of a unit's storeTimestamp, by the flag of its bornHost; and the end of the storeHost after it, by both
# flags.
_STORE_TIMESTAMP_AT = {born: FORMAT["AT_BORN_HOST"] + _host_size(born) for born in (0, _BORN_V6)}
_STORE_HOST_END = {
    born | store: at + _I64.size + _host_size(store)
    for born, at in _STORE_TIMESTAMP_AT.items()
    for store in (0, _STORE_V6)
}


def store_timestamp_at(sys_flag: int) -> int:
    """The offset of the storeTimestamp in a unit."""
    return _STORE_TIMESTAMP_AT[sys_flag & _BORN_V6]


def _store_host_in(sys_flag: int) -> tuple[int, int]:
    """The offsets in a unit where its storeHost begins and ends."""
    return store_timestamp_at(sys_flag) + _I64.size, _STORE_HOST_END[sys_flag & _V6]


LONGEST_HEAD = max(_STORE_HOST_END.values()) + _I32.size + _I64.size + _I32.size  # all that can stand before a body


def body_in(head: memoryview) -> tuple[int, int]:
    """The offsets in a unit where its body begins and ends; `head` has all bytes that can stand before a body."""
    (sys_flag,) = _I32.unpack_from(head, FORMAT["AT_SYSFLAG"])
    # After storeHost: reconsumeTimes, preparedTransactionOffset, bodyLength.
    body_length_at = _STORE_HOST_END[sys_flag & _V6] + _I32.size + _I64.size
    begin = body_length_at + _I32.size
    return begin, begin + int(_I32.unpack_from(head, body_length_at)[0])


def body_end(head: memoryview) -> int:
    """The offset in a unit where its body ends, see body_in()."""
    return body_in(head)[1]


def body_crc(head: memoryview) -> int:
    """A unit's bodyCRC."""
    return int(_I32.unpack_from(head, FORMAT["AT_BODY_CRC"])[0])


def size_of_parts(read: Callable[[int, int], bytes], position: int) -> int | None:
    """The size of a unit by the lengths of its parts, whatever its totalSize says; None where the lengths make no
    sense.

    Args:
        read: gives a number of bytes at a physical offset; fewer where a file ends.
        position: where the unit begins.
    """
    head = read(position, LONGEST_HEAD)
    if len(head) < LONGEST_HEAD:
        head = head.ljust(LONGEST_HEAD, b"\0")
    at = body_end(memoryview(head))
    width = 2 if Head.of(head).magic == _MAGIC_V2 else 1
    for size in (width, 2):  # the lengths of topic and properties
        length = read(position + at, size) if at > 0 else b""
        if len(length) < size:
            return None
        at += size + max(0, int.from_bytes(length, "big", signed=True))
    return at


class Head(NamedTuple):
    """The first fixed fields of a unit, as stored: any of them may be damaged."""

    size: int  # totalSize
    magic: int
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int

    @staticmethod
    def of(data: bytes | memoryview, at: int = 0) -> "Head":
        """The head that begins at `at`; zeros stand for fields after the end of the bytes."""
        if len(data) - at < _HEAD.size:
            data, at = bytes(data[at:]).ljust(_HEAD.size, b"\0"), 0
        return Head(*_HEAD.unpack_from(data, at))


HEAD_SIZE = _HEAD.size


def store_time_in(unit: bytes, sys_flag: int | None = None) -> int | None:
    """The storeTimestamp (ms) of a unit; None where the bytes are too few.

    Args:
        unit: the bytes it begins with.
        sys_flag: used instead of the unit's own sysFlag.
    """
    time_at = store_timestamp_at(Head.of(unit).sys_flag if sys_flag is None else sys_flag)
    return int(_I64.unpack_from(unit, time_at)[0]) if time_at + _I64.size <= len(unit) else None


FIXED_SIZE = _store_host_in(_V6)[1]  # bytes: the most


class Fixed(NamedTuple):
    """The fields of a unit before reconsumeTimes. Two units with equal fields are of one message.

    Attributes:
        fields: the bytes without physicalOffset.
        store_host: the storeHost among these bytes.
    """

    fields: bytes
    store_host: bytes

    @staticmethod
    def of(unit: bytes) -> "Fixed":
        """The fields of a unit, given its first FIXED_SIZE bytes, or all of a shorter one."""
        start, end = _store_host_in(Head.of(unit).sys_flag)
        at = FORMAT["AT_PHYSICAL_OFFSET"]
        return Fixed(unit[:at] + unit[at + _I64.size : end], unit[start:end])


class Mark(NamedTuple):
    """Fields that tell a message from any other in its place: a log that was truncated and rewritten has another
    message there."""

    position: int  # physical offset
    store_timestamp: int  # milliseconds
    body_crc: int


MARK_SIZE = store_timestamp_at(_BORN_V6) + _I64.size  # bytes of a unit that hold its mark


def mark_of(unit: bytes, position: int) -> Mark | None:
    """The mark of a unit; None where there is no unit.

    Args:
        unit: the first bytes of the unit, MARK_SIZE at least.
        position: its physical offset.
    """
    head, store_timestamp = Head.of(unit), store_time_in(unit)
    is_one = head.magic in (FORMAT["MAGIC_V1"], FORMAT["MAGIC_V2"]) and head.physical_offset == position
    if not is_one or store_timestamp is None:
        return None
    return Mark(position, store_timestamp, int(_I32.unpack_from(unit, FORMAT["AT_BODY_CRC"])[0]))


class Header(NamedTuple):
    """The fields of a unit that planning needs. `store_timestamp` is in microseconds; None where they do not fit an
    int64."""

    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int | None
    position: int
    size: int

    @property
    def is_queued(self) -> bool:
        """False for half and rolled-back messages of old brokers: their queueOffset is 0, and no queue holds them."""
        return is_queued(self.sys_flag)


def is_batch(sys_flag: int) -> bool:
    """Does a unit hold several messages, by its sysFlag?"""
    return sys_flag & BATCH == BATCH


def is_queued(sys_flag: int) -> bool:
    """False for a half or rolled-back message of old brokers, by its sysFlag (Header.is_queued)."""
    return sys_flag & TRANSACTION_TYPE not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


def are_queued(sys_flags: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """is_queued() for an array of sysFlags."""
    return np.isin(sys_flags & TRANSACTION_TYPE, (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK), invert=True)


def microseconds(milliseconds: int) -> int | None:
    """A time in microseconds, as columns hold it; None where the value does not fit."""
    return 1000 * milliseconds if -_MOST - 1 <= 1000 * milliseconds <= _MOST else None


def header_in(window: memoryview, at: int, position: int) -> Header:
    """The header of a unit that the kernel has found whole.

    Args:
        window: bytes of a log; the unit's body is not read.
        at: the position of the unit in `window`.
        position: its physical offset.
    """
    size, magic, queue_id, queue_offset, _, sys_flag = _HEAD.unpack_from(window, at)
    (milliseconds,) = _I64.unpack_from(window, at + store_timestamp_at(sys_flag))
    length_at = at + body_end(window[at:])
    topic_at = length_at + (2 if magic == _MAGIC_V2 else 1)
    topic_end = topic_at + int.from_bytes(window[length_at:topic_at], "big")
    return Header(
        topic=bytes(window[topic_at:topic_end]).decode("utf-8", "replace"),
        queue_id=queue_id,
        queue_offset=queue_offset,
        sys_flag=sys_flag,
        store_timestamp=microseconds(milliseconds),
        position=position,
        size=size,
    )


def host_bytes(text: str) -> bytes | None:
    """The bytes of `ip:port` or `[ipv6]:port` in a unit: 4 or 16 bytes and an i32. None for any other text."""
    match = _HOST.fullmatch(text)
    if match is None:
        return None
    family, address = (socket.AF_INET6, match[1]) if match[1] else (socket.AF_INET, match[2])
    try:
        return socket.inet_pton(family, address) + _I32.pack(int(match[3]))
    except (OSError, struct.error):
        return None


def failed_check(status: Status, expected: int, found: int) -> str:
    """A failed check as text: the field, the expected value, and the value found."""
    match status:
        case Status.BAD_MAGIC:
            return f"no message here: expected magic 0xDAA320A7 or 0xDAA320AB, found 0x{found & 0xFFFFFFFF:08X}"
        case Status.BAD_BLANK:
            return f"a blank that does not reach the segment's end: expected {expected} bytes, found {found}"
        case Status.NO_BLANK:
            return f"the segment ends without a blank: expected {expected} bytes or more after a message, found {found}"
        case Status.BAD_TOTAL_SIZE if found < expected:
            return f"totalSize is too small: expected at least {expected}, found {found}"
        case Status.BAD_TOTAL_SIZE:
            return f"totalSize reaches past the segment's end: expected at most {expected}, found {found}"
        case Status.BAD_PHYSICAL_OFFSET:
            return f"physicalOffset differs from the position: expected {expected}, found {found}"
        case Status.BAD_BODY_LENGTH:
            return f"bodyLength is impossible: expected 0 to {expected}, found {found}"
        case Status.BAD_TOPIC_LENGTH:
            return f"topicLength is impossible: expected 0 to {expected}, found {found}"
        case Status.BAD_PROPERTIES_LENGTH:
            return f"propertiesLength is impossible: expected 0 to {expected}, found {found}"
        case Status.BAD_LENGTH_SUM:
            return f"the parts do not add up to totalSize: expected {expected}, found {found}"
        case Status.BAD_BODY_CRC:
            return f"bodyCRC differs from the body: expected {expected}, computed {found}"
        case Status.NOT_A_BATCH:
            return (
                "the body is no batch, as sysFlag 0xC0 says: expected a message of at most "
                f"{expected} bytes, found {found}"
            )
        case Status.BAD_QUEUE_OFFSET:
            return f"a batch whose queueOffset differs from its property INNER_BASE: expected {expected}, found {found}"
        case Status.BAD_SYSFLAG:
            return (
                "a copy of the batch before it, by its queueOffset, but not by its sysFlag: expected the bits "
                f"0x{expected:X}, found 0x{found & 0xFFFFFFFF:X}"
            )
        case Status.CROSSES_STOP:
            return f"a message reaches over where one should begin: expected its end at {expected}, found {found}"
        case Status.BLANK:
            return f"a blank of {found} bytes, but messages should follow"
        case Status.NO_ENTRY if found == expected:
            return f"no entry here: position {found} is right, but its size, index or term cannot follow what is before"
        case Status.NO_ENTRY:
            return f"no entry here: expected one that says its position, {expected}, found {found}"
        case Status.BAD_ENTRY:
            return f"an entry's size is not that of its message and 48 bytes: expected {expected}, found {found}"
        case Status.MORE:
            return f"the file ends inside a message: expected {expected} bytes, found {found}"
    raise AssertionError(f"{status!r} is not a failed check")
