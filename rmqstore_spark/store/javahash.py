"""java.lang.String.hashCode, which brokers put into ConsumeQueues (of tags) and IndexFiles (of keys)."""

import struct


def java_hash(text: str) -> int:
    """Over the UTF-16 code units, as a signed 32-bit integer."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(data) // 2}H", data):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def tags_code(tag: str) -> int:
    """What a ConsumeQueue unit has for a tag; '' for none (MessageExtBrokerInner.tagsString2tagsCode)."""
    return java_hash(tag)
