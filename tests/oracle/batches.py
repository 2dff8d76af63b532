"""Batches of messages in one unit (sysFlag 0xC0), taken apart as RocketMQ's client does (MessageDecoder)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from oracle.unit import Buffer, Corrupt, decode_unit, parse_properties, parse_unit

BATCH = 0xC0  # NEED_UNWRAP and INNER_BATCH
COMPRESSED = 0x1


class Inner(NamedTuple):
    """A message of a batch. `size`: what its totalSize says, if that is a lie."""

    body: bytes
    properties: bytes
    flag: int = 0
    size: int | None = None


def encode_batch(messages: Iterable[Inner]) -> bytes:
    """The body of a batch."""
    parts = []
    for message in messages:
        size = 22 + len(message.body) + len(message.properties)
        parts.append(
            struct.pack(">iiiii", size if message.size is None else message.size, 0, 0, message.flag, len(message.body))
        )
        parts.append(message.body + struct.pack(">h", len(message.properties)) + message.properties)
    return b"".join(parts)


def is_batch(sys_flag: int) -> bool:
    return sys_flag & BATCH == BATCH and not sys_flag & COMPRESSED


def rows_of_unit(data: Buffer, position: int, decompress: bool = True) -> list[dict[str, Any]]:
    """A row for each message of the unit, with its batchIndex: None where the unit is one message."""
    row = decode_unit(data, position, decompress)
    if not is_batch(row["sysFlag"]):
        return [row | {"batchIndex": None}]
    body, at = parse_unit(data, position).body, 0
    rows: list[dict[str, Any]] = []
    while at < len(body):
        # | 4 totalSize | 4 magic | 4 bodyCRC | 4 flag | 4 bodyLength | body | 2 propertiesLength | properties |
        try:
            flag, size = struct.unpack_from(">ii", body, at + 12)
            (properties_size,) = struct.unpack_from(">h", body, at + 20 + size) if size >= 0 else (-1,)
        except struct.error:
            raise Corrupt("a message of a batch runs past its end", position) from None
        end = at + 22 + size + properties_size
        if properties_size < 0 or end > len(body):
            raise Corrupt("a message of a batch has a wrong length", position)
        properties = parse_properties(body[at + 22 + size : end])
        rows.append(
            {
                **row,
                "queueOffset": (row["queueOffset"] + len(rows) + (1 << 63)) % (1 << 64) - (1 << 63),
                "tags": properties.get("TAGS"),
                "keys": properties.get("KEYS"),
                "msgId": properties.get("UNIQ_KEY"),
                "body": body[at + 20 : at + 20 + size],
                "properties": properties,
                "flag": flag,
                "reconsumeTimes": 0,
                "preparedTransactionOffset": 0,
                "bodyCRC": 0,
                "batchIndex": len(rows),
            }
        )
        at = end
    return rows
