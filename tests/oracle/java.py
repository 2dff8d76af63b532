"""Texts and numbers as Java has them."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """java.lang.String.hashCode: over UTF-16 code units, signed 32 bits."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def java_text(data: bytes) -> str:
    """`new String(data, UTF_8)` of Java: bytes that are no character become U+FFFD. Python's decoder differs only in a
    surrogate written as UTF-8, or the beginning of one, which to Java is one U+FFFD."""
    return re.sub(rb"\xed[\xa0-\xbf][\x80-\xbf]?", "\ufffd".encode(), data).decode("utf-8", "replace")


def java_properties(data: bytes) -> dict[str, str]:
    """As parse_properties, with text as a broker gets it."""
    pairs = (segment.partition(b"\x01") for segment in data.split(b"\x02"))
    return {java_text(name): java_text(value) for name, separator, value in pairs if name and separator and value}


def wrap(number: int) -> int:
    """To 64 bits, as Java's sums and differences are."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
