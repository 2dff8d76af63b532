"""Random stores of everything the format allows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from oracle import reference
from oracle.stores import StoreBuilder

# Not UTF-8: no start byte, sequences of 2, 3 and 4 cut short, a surrogate, an overlong '/', a code beyond U+10FFFF.
BAD_UTF8 = (b"\x80\xff", b"\xc3(", b"\xe2\x82", b"\xf0\x9f\x98x", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80")
WORDS = ("a", "order", "Zürich", "中文", "\U0001f600", "x y", " ", "null", "e\u0301", "\0", "=", "\t\n", "long" * 20)
TAGS = ("TagA", "TagB", "a||b", "中文", "\U0001f600", "polygenelubricants")
TOPICS = ("TopicA", "Topic_B", "%RETRY%group", "RMQ_SYS_TRANS_HALF_TOPIC", "L" * 128, "long-topic_" * 18)
HOSTS_V6 = (
    *("[::]:0", "[::1]:10911", "[::ffff:10.1.2.3]:1", "[::10.1.2.3]:65535", "[::1:2]:2", "[fe80::1]:-1"),
    *("[2001:db8::1:0:0:1]:3", "[1:0:2:0:3:0:4:0]:4", "[1:2:3:4:5:6:7:8]:5", "[1:2:3:4:5:6:7::]:6"),
)
COMPRESSED_FLAGS = (0x1, 0x301, 0x101, 0x201)  # zlib as of old and of today, LZ4, zstd
LATEST = (1 << 63) // 1000  # the last millisecond that an i64 of microseconds can hold
UNUSUAL_TIMES = (0, -1, LATEST, LATEST + 1, -LATEST, -LATEST - 1, (1 << 63) - 1, -(1 << 63))


def random_store(
    root: str | Path,
    rng: random.Random,
    messages: int = 200,
    clean: bool = True,
    unusual_times: bool = True,
    **builder: Any,
) -> StoreBuilder:
    """A closed store of everything the format allows; `builder`: more arguments of StoreBuilder.

    With `unusual_times` a few bornTimestamps are in no year that Python's datetime knows.
    """
    store = StoreBuilder(root, **builder)
    for _ in range(messages):
        append_random(store, rng, unusual_times)
    store.close(clean)
    return store


def append_random(store: StoreBuilder, rng: random.Random, unusual_times: bool = True) -> int:
    sys_flag = rng.choice((0, 0, 0, 0, 0, 0, reference.PREPARED, reference.COMMIT, reference.ROLLBACK, 0x2))
    body = rng.choice((b"", rng.randbytes(rng.randrange(300)), b"hello " * rng.randrange(100)))
    if rng.random() < 0.3:
        compressed = rng.choice(COMPRESSED_FLAGS)
        sys_flag |= compressed
        body = reference.compress_body(body, compressed)
        if reference.COMPRESSION_TYPES[compressed >> 8] == "zlib" and rng.random() < 0.2:
            body += b"what follows the stream is ignored"
    elif rng.random() < 0.05:
        sys_flag |= rng.choice((0x300, 0x700))  # the type bits mean nothing without bit 0
    born_timestamp = store.now - rng.randrange(1000)
    if unusual_times and rng.random() < 0.05:
        born_timestamp = rng.choice(UNUSUAL_TIMES)
    return store.append(
        topic=rng.choice(TOPICS),
        body=body,
        queue_id=rng.randrange(3),
        properties=random_properties(rng),
        store_timestamp=store.now + rng.choice((0, 0, 1, 1, 7, 1000)),
        sys_flag=sys_flag,
        flag=rng.choice((0, 0, rng.randint(-(1 << 31), (1 << 31) - 1))),
        born_timestamp=born_timestamp,
        born_host=_random_host(rng),
        store_host=_random_host(rng),
        reconsume_times=rng.choice((0, 0, 1, 16)),
        prepared_transaction_offset=rng.choice((0, 0, rng.randrange(store.end + 1))),
        version=rng.choice((None, None, None, 2)),
        property_crc=rng.random() < 0.05,
    )


def _random_host(rng: random.Random) -> str:
    if rng.random() < 0.7:
        return f"10.{rng.randrange(256)}.0.{rng.randrange(256)}:{rng.choice((10911, 0, 65535, -1))}"
    return rng.choice(HOSTS_V6)


def random_properties(rng: random.Random) -> bytes:
    """The stored bytes: anything from none at all to duplicates, empty names and values, and text that is not UTF-8."""
    if rng.random() < 0.1:
        return b""
    pairs = [(b"UNIQ_KEY", rng.randbytes(16).hex().upper().encode())] if rng.random() < 0.8 else []
    if rng.random() < 0.6:
        pairs.append((b"TAGS", rng.choice(TAGS).encode()))
    if rng.random() < 0.6:
        pairs.append((b"KEYS", " ".join(rng.choices(WORDS, k=rng.randrange(4))).encode()))
    pairs += [(_random_text(rng), _random_text(rng)) for _ in range(rng.randrange(6))]
    if pairs and rng.random() < 0.2:
        pairs.append((rng.choice(pairs)[0], _random_text(rng)))  # a name twice
    rng.shuffle(pairs)
    segments = [name + b"\x01" + value for name, value in pairs]
    if rng.random() < 0.1:
        segments.insert(rng.randrange(len(segments) + 1), rng.choice((b"", b"no separator", b"\x01nameless\x01x")))
    return b"\x02".join(segments) + rng.choice((b"\x02", b""))


def _random_text(rng: random.Random) -> bytes:
    parts = [rng.choice(WORDS).encode() for _ in range(rng.randrange(4))]
    if rng.random() < 0.2:
        parts.append(rng.choice(BAD_UTF8))
    if rng.random() < 0.1:
        parts.append(b"\x01")
    rng.shuffle(parts)
    return b"".join(parts)
