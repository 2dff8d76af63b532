"""The unit of a commitlog: one field after the other, as the wire layout says.

Every integer on disk is big-endian and signed.
"""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa  # for its LZ4 frame and zstd codecs only

MAGIC_V1 = 0xDAA320A7 - (1 << 32)
MAGIC_V2 = 0xDAA320AB - (1 << 32)
MAGIC_BLANK = 0xCBD43194 - (1 << 32)
BLANK_SIZE = 8  # every segment keeps room for i32 bytes left, i32 magic

COMPRESSED = 0x1
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC  # a two-bit enum, not two flags
TRANSACTION_BITS = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
# Bits 8..10, if COMPRESSED. 0 is a body from before there were types.
COMPRESSION_TYPES = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}

COLUMNS = (
    "topic",
    "queueId",
    "queueOffset",
    "tags",
    "keys",
    "msgId",
    "offsetMsgId",
    "body",
    "properties",
    "flag",
    "sysFlag",
    "bornTimestamp",
    "bornHost",
    "storeTimestamp",
    "storeHost",
    "reconsumeTimes",
    "preparedTransactionOffset",
    "commitLogOffset",
    "storeSize",
    "bodyCRC",
)

Text = str | bytes
Buffer = bytes | bytearray | memoryview
Properties = Mapping[Any, Any] | bytes


class Corrupt(Exception):
    """Bytes that are not the unit they should be: why, and the physical offset of the unit."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"{reason} at {position}")
        self.reason = reason
        self.position = position


class Unit(NamedTuple):
    """The fields of a unit as stored, nothing interpreted."""

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: bytes
    properties: bytes
    length: int  # what the parts add up to; a sound unit has total_size == length


class _Cursor:
    """Takes fields off the front of a unit; running out of bytes, or a negative length, is corruption."""

    def __init__(self, data: Buffer, position: int) -> None:
        self.data = data
        self.position = position
        self.at = 0

    def take(self, size: int, what: str) -> bytes:
        if size < 0:
            raise Corrupt(f"{what} length is negative: {size}", self.position)
        if self.at + size > len(self.data):
            raise Corrupt(f"{what} runs past the end: needs {size}, {len(self.data) - self.at} left", self.position)
        taken = bytes(self.data[self.at : self.at + size])
        self.at += size
        return taken

    def integer(self, size: int, what: str) -> int:
        return int.from_bytes(self.take(size, what), "big", signed=True)


# | size  | field                                      |
# |-------|--------------------------------------------|
# | 4     | totalSize, the whole unit                  |
# | 4     | magic V1 DAA320A7, V2 DAA320AB             |
# | 4     | bodyCRC                                    |
# | 4     | queueId                                    |
# | 4     | flag                                       |
# | 8     | queueOffset                                |
# | 8     | physicalOffset                             |
# | 4     | sysFlag                                    |
# | 8     | bornTimestamp, ms                          |
# | 8, 20 | bornHost: address, i32 port; 20 if 0x10    |
# | 8     | storeTimestamp, ms                         |
# | 8, 20 | storeHost; 20 if 0x20                      |
# | 4     | reconsumeTimes                             |
# | 8     | preparedTransactionOffset                  |
# | 4, n  | bodyLength, body                           |
# | 1, t  | topicLength, topic; V2: a 2-byte length    |
# | 2, p  | propertiesLength, properties               |
@lru_cache(maxsize=4096)
def _parse_unit(data: bytes, position: int) -> Unit:
    cursor = _Cursor(data, position)
    total_size = cursor.integer(4, "totalSize")
    magic = cursor.integer(4, "magic")
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise Corrupt(f"magic is {magic & 0xFFFFFFFF:08X}", position)
    body_crc = cursor.integer(4, "bodyCRC")
    queue_id = cursor.integer(4, "queueId")
    flag = cursor.integer(4, "flag")
    queue_offset = cursor.integer(8, "queueOffset")
    physical_offset = cursor.integer(8, "physicalOffset")
    sys_flag = cursor.integer(4, "sysFlag")
    born_timestamp = cursor.integer(8, "bornTimestamp")
    born_host = cursor.take(20 if sys_flag & BORN_HOST_V6 else 8, "bornHost")
    store_timestamp = cursor.integer(8, "storeTimestamp")
    store_host = cursor.take(20 if sys_flag & STORE_HOST_V6 else 8, "storeHost")
    reconsume_times = cursor.integer(4, "reconsumeTimes")
    prepared_transaction_offset = cursor.integer(8, "preparedTransactionOffset")
    body = cursor.take(cursor.integer(4, "bodyLength"), "body")
    topic = cursor.take(cursor.integer(1 if magic == MAGIC_V1 else 2, "topicLength"), "topic")
    properties = cursor.take(cursor.integer(2, "propertiesLength"), "properties")
    return Unit(
        total_size,
        magic,
        body_crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        body,
        topic,
        properties,
        length=cursor.at,
    )


def parse_unit(data: Buffer, position: int) -> Unit:
    """The same bytes make the same unit: tests ask thousands of times, and where there are many they are small."""
    parse = _parse_unit if len(data) < 4096 else _parse_unit.__wrapped__
    return parse(bytes(data), position)


# Bytes of a V1 unit with IPv4 hosts that nothing protects: a bit flipped there is a changed row.
UNPROTECTED = {
    "queueId": range(12, 16),
    "flag": range(16, 20),
    "queueOffset": range(20, 28),
    "sysFlag": range(36, 40),  # but for the host bits
    "bornTimestamp": range(40, 48),
    "bornHost": range(48, 56),
    "storeTimestamp": range(56, 64),
    "storeHost": range(64, 72),
    "reconsumeTimes": range(72, 76),
    "preparedTransactionOffset": range(76, 84),
    "topic": range(93, 99),
    "properties": range(101, 105),
}


def check_unit(data: Buffer, position: int, left: int, verify_crc: bool = True) -> int:
    """The size of the sound unit that `data` starts with. `left`: bytes from `position` to the end of the segment."""
    if len(data) < 8:
        raise Corrupt(f"only {len(data)} bytes", position)
    total_size, magic = struct.unpack(">ii", data[:8])
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise Corrupt(f"magic is {magic & 0xFFFFFFFF:08X}", position)
    if total_size <= 0:
        raise Corrupt(f"totalSize is {total_size}", position)
    if total_size > left:
        raise Corrupt(f"totalSize is {total_size}, the segment has {left} left", position)
    if total_size + BLANK_SIZE > left:  # a broker always keeps room for the blank
        raise Corrupt(f"totalSize is {total_size}, which leaves no room for the blank: {left} left", position)
    if total_size > len(data):
        raise Corrupt(f"totalSize is {total_size}, only {len(data)} bytes there", position)
    unit = parse_unit(data[:total_size], position)
    if unit.length != total_size:
        raise Corrupt(f"totalSize is {total_size}, the parts add up to {unit.length}", position)
    if unit.physical_offset != position:
        raise Corrupt(f"physicalOffset is {unit.physical_offset}", position)
    if verify_crc and unit.body and unit.body_crc != body_crc(unit.body):
        raise Corrupt(f"bodyCRC is {unit.body_crc}, the body has {body_crc(unit.body)}", position)
    return int(total_size)


def decode_unit(data: Buffer, position: int, decompress: bool = True) -> dict[str, Any]:
    """One row of `messages`. Checks nothing that check_unit checks; raises Corrupt where no row can be made."""
    unit = parse_unit(data, position)
    properties = parse_properties(unit.properties)
    body = unit.body
    if decompress:
        try:
            body = decompress_body(body, unit.sys_flag)
        except ValueError as error:
            raise Corrupt(str(error), position) from error
    return {
        "topic": unit.topic.decode("utf-8", "replace"),
        "queueId": unit.queue_id,
        "queueOffset": unit.queue_offset,
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "msgId": properties.get("UNIQ_KEY"),
        "offsetMsgId": (unit.store_host + struct.pack(">q", unit.physical_offset)).hex().upper(),
        "body": body,
        "properties": properties,
        "flag": unit.flag,
        "sysFlag": unit.sys_flag,
        "bornTimestamp": microseconds(unit.born_timestamp),
        "bornHost": host_text(unit.born_host),
        "storeTimestamp": microseconds(unit.store_timestamp),
        "storeHost": host_text(unit.store_host),
        "reconsumeTimes": unit.reconsume_times,
        "preparedTransactionOffset": unit.prepared_transaction_offset,
        "commitLogOffset": unit.physical_offset,
        "storeSize": unit.total_size,
        "bodyCRC": unit.body_crc,
    }


def microseconds(milliseconds: int) -> int | None:
    """None where Spark's timestamp, an i64 of microseconds, cannot hold the time."""
    value = milliseconds * 1000
    return value if -(1 << 63) <= value < 1 << 63 else None


# name 0x01 value 0x02, repeated; the last 0x02 may be missing. The rules of 4.9.1+: the first 0x01 ends the name, so a
# value may hold more of them; a pair without a name or without a value is dropped; the last of equal names wins.
def parse_properties(data: bytes) -> dict[str, str]:
    properties = {}
    for segment in data.split(b"\x02"):
        name, separator, value = segment.partition(b"\x01")
        if name and separator and value:
            properties[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return properties


def body_crc(body: bytes) -> int:
    return zlib.crc32(body) & 0x7FFFFFFF


def decompress_body(body: bytes, sys_flag: int) -> bytes:
    """The body its producer sent. An empty one stays empty whatever the flags say, as in RocketMQ's decoder."""
    if not sys_flag & COMPRESSED or not body:
        return body
    number = sys_flag >> 8 & 0x7
    if number not in COMPRESSION_TYPES:
        raise ValueError(f"compression type {number} is undefined")
    name = COMPRESSION_TYPES[number]
    if name == "zlib":
        stream = zlib.decompressobj()
        try:
            plain = stream.decompress(body)
        except zlib.error as error:
            raise ValueError(f"the body is no zlib stream: {error}") from error
        if not stream.eof:
            raise ValueError("the zlib stream of the body is cut short")
        return plain  # what follows the stream is ignored
    try:
        return bytes(pa.CompressedInputStream(pa.BufferReader(body), name).read())
    except OSError as error:
        raise ValueError(f"the body is no {name} stream: {error}") from error


def compress_body(body: bytes, sys_flag: int) -> bytes:
    """As clients do: LZ4 with independent blocks (here only if the body is below 64 KiB), zstd without content size."""
    name = COMPRESSION_TYPES[sys_flag >> 8 & 0x7]
    if name == "zlib":
        return zlib.compress(body, 5)
    if name == "lz4":
        return bytes(pa.compress(body, codec=name, asbytes=True))
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, name) as stream:
        stream.write(body)
    return bytes(sink.getvalue())


def host_text(host: bytes) -> str:
    port = int.from_bytes(host[-4:], "big", signed=True)
    if len(host) == 8:
        return f"{socket.inet_ntop(socket.AF_INET, host[:4])}:{port}"
    return f"[{socket.inet_ntop(socket.AF_INET6, host[:16])}]:{port}"


@lru_cache(maxsize=1024)
def host_bytes(text: str) -> bytes:
    """`ip:port` or `[ipv6]:port` as stored: 8 or 20 bytes."""
    address, _, port = text.rpartition(":")
    if address.startswith("["):
        return socket.inet_pton(socket.AF_INET6, address[1:-1]) + struct.pack(">i", int(port))
    return socket.inet_pton(socket.AF_INET, address) + struct.pack(">i", int(port))


# ---- writing

# The runs of fixed size in a unit: totalSize .. bornTimestamp, and reconsumeTimes .. bodyLength.
_HEAD = struct.Struct(">iiiiiqqiq")
_TAIL = struct.Struct(">iqi")
_I64 = struct.Struct(">q")
_V1_TOPIC = struct.Struct(">b")
_I16 = struct.Struct(">h")


def encode_unit(
    *,
    topic: Text = "TopicA",
    body: bytes = b"",
    properties: Properties | None = None,
    queue_id: int = 0,
    queue_offset: int = 0,
    physical_offset: int = 0,
    flag: int = 0,
    sys_flag: int = 0,
    born_timestamp: int = 1_700_000_000_000,
    born_host: Text | None = None,
    store_timestamp: int = 1_700_000_000_001,
    store_host: Text | None = None,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    version: int | None = None,
    trailing_separator: bool = True,
    property_crc: bool = False,
    magic: int | None = None,
    total_size: int | None = None,
    body_crc: int | None = None,
    body_length: int | None = None,
    topic_length: int | None = None,
    properties_length: int | None = None,
) -> bytes:
    """A unit as a broker stores it; timestamps are milliseconds, the body is written as it is.

    The bits 0x10 and 0x20 of `sys_flag` choose between an IPv4 and an IPv6 host; a host given as text must agree with
    them. The arguments after `property_crc` are for lies: they replace what is otherwise derived. A host given as bytes
    is written as it is.
    """
    if isinstance(topic, str):
        topic = topic.encode()
    if properties is None:
        properties = b""
    elif not isinstance(properties, bytes):
        properties = encode_properties(properties, trailing_separator)
    if property_crc:
        if properties and not properties.endswith(b"\x02"):
            properties += b"\x02"
        properties += bytes(PROPERTY_CRC_SIZE)  # filled in at the end
    if not isinstance(born_host, bytes):
        born_host = _stored_host(born_host, sys_flag & BORN_HOST_V6, "10.0.0.1:50000", "[fd00::1]:50000")
    if not isinstance(store_host, bytes):
        store_host = _stored_host(store_host, sys_flag & STORE_HOST_V6, "10.0.0.2:10911", "[fd00::2]:10911")
    v2 = version == 2 if version is not None else len(topic) > 127
    if magic is None:
        magic = MAGIC_V2 if v2 else MAGIC_V1
    if body_crc is None:
        body_crc = zlib.crc32(body) & 0x7FFFFFFF
    if total_size is None:
        fixed = 48 + 8 + 16 + (2 if v2 else 1) + 2  # head, storeTimestamp, tail, topicLength, propertiesLength
        total_size = fixed + len(born_host) + len(store_host) + len(body) + len(topic) + len(properties)
    unit = b"".join(
        (
            _HEAD.pack(
                total_size,
                magic,
                body_crc,
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_timestamp,
            ),
            born_host,
            _I64.pack(store_timestamp),
            store_host,
            _TAIL.pack(
                reconsume_times,
                prepared_transaction_offset,
                len(body) if body_length is None else body_length,
            ),
            body,
            (_I16 if v2 else _V1_TOPIC).pack(len(topic) if topic_length is None else topic_length),
            topic,
            _I16.pack(len(properties) if properties_length is None else properties_length),
            properties,
        )
    )
    if property_crc:
        return unit[:-PROPERTY_CRC_SIZE] + _property_crc(unit[:-PROPERTY_CRC_SIZE])
    return unit


def _stored_host(text: str | None, v6: int, default_v4: str, default_v6: str) -> bytes:
    if text is None:
        text = default_v6 if v6 else default_v4
    host = host_bytes(text)
    if len(host) != (20 if v6 else 8):
        raise ValueError(f"{text} does not go with the host bits of sys_flag")
    return host


def encode_properties(properties: Mapping[Any, Any], trailing_separator: bool = True) -> bytes:
    """Of text or bytes; empty values are written, as brokers do. 4.9.1 .. 5.1.4 leave the trailing separator out."""
    pairs = [_utf8(name) + b"\x01" + _utf8(value) for name, value in properties.items()]
    return b"\x02".join(pairs) + (b"\x02" if pairs and trailing_separator else b"")


def _utf8(text: Text) -> bytes:
    return text.encode() if isinstance(text, str) else text


# | 8 __CRC32# | 1 01 | 10 decimal digits, the lowest first, '0' filled | 1 02 |
# The last bytes of the unit, over all that is before them.
PROPERTY_CRC_SIZE = 20


def _property_crc(covered: bytes) -> bytes:
    digits = str(zlib.crc32(covered) & 0x7FFFFFFF)
    return b"__CRC32#\x01" + digits[::-1].ljust(10, "0").encode() + b"\x02"
