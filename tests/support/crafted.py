"""Bytes made to be slow: what looks like a unit at every turn, so that whoever searches may do the same work again."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

from oracle.unit import MAGIC_V1, encode_unit

from native_io import crc32_between

HEADER = 88  # bytes before a body
_TAIL = b"\x06TopicA\0\0"  # after the body: topic, no properties
SMALLEST = 91


def _header(position: int, body: int, queue_offset: int, crc: int = 7) -> bytes:
    total = HEADER + body + len(_TAIL)
    now = 1_700_000_000_500
    fixed = struct.pack(">iiiiiqqiq", total, MAGIC_V1, crc, 0, 0, queue_offset, position, 0, now)
    return fixed + struct.pack(">8sq8siqi", bytes(8), now, bytes(8), 0, 0, body)


def nested(base: int, size: int, spacing: int) -> bytes:
    """Units that share one end, each in the body of the one before it, all with a wrong bodyCRC."""
    out = bytearray(size)
    end = size - len(_TAIL)
    for at in range(0, end - HEADER, spacing):
        out[at : at + HEADER] = _header(base + at, end - at - HEADER, at)
    out[end:] = _TAIL
    return bytes(out)


def nested_whole(base: int, size: int, spacing: int) -> bytes:
    """The same with right bodyCRCs; their queue has other messages at their queue offset."""
    out = bytearray(size)
    end = size - len(_TAIL)
    out[end:] = _TAIL
    crc, known = 0, end  # of what comes after `known`
    for at in reversed(range(0, end - HEADER, spacing)):
        crc = crc32_between(zlib.crc32(out[at + HEADER : known]), crc, end - known)
        known = at + HEADER
        out[at : at + HEADER] = _header(base + at, end - known, 0, crc & 0x7FFFFFFF)
    return bytes(out)


def staggered(base: int, size: int, spacing: int) -> bytes:
    """Units that overlap, each with an end of its own: half of all further on."""
    out = bytearray(size)
    for at in range(0, size // 2 - HEADER, spacing):
        out[at : at + HEADER] = _header(base + at, size // 2 - HEADER - len(_TAIL), at)
    return bytes(out)


def headless(base: int, size: int, spacing: int) -> bytes:
    """Messages one after the other, each damaged so that it can be recognized and says where it ends."""
    out = bytearray()
    for at in range(0, size - 2 * spacing, spacing):
        unit = encode_unit(topic="T", body=bytes(spacing - 92), physical_offset=base + at)
        out += unit[:4] + b"\1\2\3\4" + unit[8:]
    return bytes(out).ljust(size, b"\0")


def overlapping_rows(base: int, size: int, spacing: int) -> bytes:
    """Whole units in rows that run beside each other, too short to prove themselves: their ends lead nowhere."""
    out = bytearray(size)
    step = 64 * spacing
    for start in range(0, size - 100 * step, 64 * step):
        for number in range(60):
            at = start + number * step
            unit = encode_unit(topic="TopicA", body=bytes(step - SMALLEST - 6), physical_offset=base + at)
            out[at : at + len(unit)] = unit
    return bytes(out)


KINDS: dict[str, Callable[[int, int, int], bytes]] = {
    "nested": nested,
    "nested and whole": nested_whole,
    "staggered": staggered,
    "headless": headless,
    "rows": overlapping_rows,
}
