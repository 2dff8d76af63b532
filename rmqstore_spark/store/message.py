"""Message units in words: the numbers of the format, and what a failed check means.

The wire layout stands in native_io/unit.h, where it is executed. FORMAT below is the same facts once more for Python;
tests hold the two equal. Source: org.apache.rocketmq.store.MessageExtEncoder, CommitLog.checkMessageAndReturnSize.
"""

import re
import socket
import struct

from native_io import Status

FORMAT = {
    "MAGIC_V1": -626843481,  # 0xDAA320A7
    "MAGIC_V2": -626843477,  # 0xDAA320AB, since 5.1.0, for topics of more than 127 characters
    "MAGIC_BLANK": -875286124,  # 0xCBD43194
    "BLANK_SIZE": 8,
    "FIXED_SIZE": 90,  # without topicLength, body, topic and properties; IPv4 hosts
    "SMALLEST_UNIT": 91,
    "SYSFLAG_COMPRESSED": 0x1,
    "SYSFLAG_BORNHOST_V6": 0x10,
    "SYSFLAG_STOREHOST_V6": 0x20,
    "AT_BODY_CRC": 8,
    "AT_QUEUE_ID": 12,
    "AT_FLAG": 16,
    "AT_QUEUE_OFFSET": 20,
    "AT_PHYSICAL_OFFSET": 28,
    "AT_SYSFLAG": 36,
    "AT_BORN_TIMESTAMP": 40,
    "AT_BORN_HOST": 48,
}

# Where brokers park delayed messages; the tagsCode of its queues is a time (TopicValidator.RMQ_SYS_SCHEDULE_TOPIC).
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

# MessageSysFlag: two bits for the transaction, an enum and not two flags.
TRANSACTION_TYPE = 0xC
TRANSACTION_PREPARED = 0x4
TRANSACTION_ROLLBACK = 0xC

_HOST = re.compile(r"(?:\[([^\]]+)\]|([0-9.]+)):(-?[0-9]{1,10})")

# sysFlag bits 8-10, meaningful only with SYSFLAG_COMPRESSED. 0 is from before 4.9.4, when there was zlib only.
COMPRESSION_TYPE = 0x700
COMPRESSION_TYPES = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}


def compression_type(sys_flag: int) -> int:
    """The number in COMPRESSION_TYPES that a compressed body's sysFlag names."""
    return sys_flag >> 8 & 0x7


def store_timestamp_at(sys_flag: int) -> int:
    """Where a unit's storeTimestamp is."""
    return FORMAT["AT_BORN_HOST"] + (20 if sys_flag & FORMAT["SYSFLAG_BORNHOST_V6"] else 8)


def behind_body(head: memoryview) -> int:
    """Where a unit's body ends, by what its head says; `head` is all that can stand before a body."""
    (sys_flag,) = struct.unpack_from(">i", head, FORMAT["AT_SYSFLAG"])
    hosts = sum(20 if sys_flag & FORMAT[bit] else 8 for bit in ("SYSFLAG_BORNHOST_V6", "SYSFLAG_STOREHOST_V6"))
    numbers = 8 + 4 + 8 + 4  # storeTimestamp, reconsumeTimes, preparedTransactionOffset, bodyLength
    at_body = FORMAT["AT_BORN_HOST"] + hosts + numbers
    return at_body + int(struct.unpack_from(">i", head, at_body - 4)[0])


def host_bytes(text: str) -> bytes | None:
    """`ip:port` or `[ipv6]:port` as a unit has it: 4 or 16 bytes and an i32. None where it is neither."""
    match = _HOST.fullmatch(text)
    if match is None:
        return None
    family, address = (socket.AF_INET6, match[1]) if match[1] else (socket.AF_INET, match[2])
    try:
        return socket.inet_pton(family, address) + struct.pack(">i", int(match[3]))
    except (OSError, struct.error):
        return None


def explain(status: Status, expected: int, found: int) -> str:
    """A failed check in words: the field, what it should be, and what is there."""
    match status:
        case Status.BAD_MAGIC:
            return f"no message here: expected magic 0xDAA320A7 or 0xDAA320AB, found 0x{found & 0xFFFFFFFF:08X}"
        case Status.BAD_BLANK:
            return f"a blank that does not reach the segment's end: expected {expected} bytes, found {found}"
        case Status.NO_BLANK:
            return (
                f"the segment ends without a blank: expected {expected} bytes or more behind a message, found {found}"
            )
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
        case Status.CROSSES_STOP:
            return f"a message reaches over a place where one should begin: expected its end at {expected}, not {found}"
        case Status.BLANK:
            return f"a blank of {found} bytes, but messages should follow"
        case Status.MORE:
            return f"the file ends inside a message: expected {expected} bytes, found {found}"
    raise AssertionError(f"{status!r} is not a failed check")
