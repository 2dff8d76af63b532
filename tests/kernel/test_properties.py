"""The kernel's property parser finds what the oracle's finds: in every short text, at every border, with doubles and
limits."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from oracle import reference
from support.kernels import decode, encode_log

from native_io import Decoder

MOST = 32767
COLUMNS = ("properties", "tags", "keys", "msgId")


def _check(texts: Iterable[bytes], columns: Iterable[str] = COLUMNS) -> None:
    """The kernel parses these as the oracle does, all in one batch."""
    texts, columns = list(texts), tuple(columns)
    log, positions = encode_log({"topic": "", "properties": text} for text in texts)
    for text, row in zip(texts, decode(log, positions, columns), strict=True):
        parsed = reference.parse_properties(text)
        expected = {
            "properties": parsed,
            "tags": parsed.get("TAGS"),
            "keys": parsed.get("KEYS"),
            "msgId": parsed.get("UNIQ_KEY"),
        }
        assert row == {name: expected[name] for name in columns}, text


def _words(alphabet: bytes, longest: int) -> Iterator[bytes]:
    for size in range(longest + 1):
        yield from map(bytes, itertools.product(alphabet, repeat=size))


def test_every_text_of_up_to_8_bytes() -> None:
    _check(_words(b"a\1\2", 8), ["properties"])


@pytest.mark.parametrize("filler", [b"\0", b"a", b"\1", b"\2", b"\x7f", b"a\1", b"a\1b\2", b"\xc3\xa9", b"\x03\x82"])
def test_every_text_of_up_to_5_bytes_across_the_border_of_a_block(filler: bytes) -> None:
    _check(
        (filler * 130)[:before] + word
        for before in (*range(59, 66), *range(123, 130), 191, 255)
        for word in _words(b"b\1\2", 5)
    )


@pytest.mark.parametrize("size", [*range(1, 10), 30, 31, 32, 33, 62, 63, 64, 65, 66, 127, 128, 129, 191, 192, 200, 300])
def test_nothing_behind_the_end_is_seen(size: int, rng: random.Random) -> None:
    """Windows that end right behind the properties, or a few bytes later, with separators and letters there."""
    for _ in range(6):
        text = bytes(rng.choices(b"ab\1\2", (5, 5, 2, 1), k=size))
        unit = reference.encode_unit(topic="", properties=text)
        expected = [{"properties": reference.parse_properties(text)}]
        for behind in (b"", b"\1", b"\2", b"x\2", b"\xff" * 31, b"\1\2" * 16, b"\2\1" * 32, b"\xff\1x\2" * 16):
            window = np.frombuffer(unit + behind, np.uint8).copy()
            decoder = Decoder(["properties"])
            decoder.append(window, np.zeros(1, np.int64), base=0)
            assert not decoder.non_ascii
            assert decode(window, np.zeros(1, np.int64), ["properties"]) == expected


@pytest.mark.parametrize("size", range(1, 140))
def test_one_letter_beyond_ascii_anywhere(size: int) -> None:
    for at in {0, 1, size // 2, size - 1, *range(60, 68)} & set(range(size)):
        decoder = Decoder(["tags"])
        text = b"a" * at + b"\x80" + b"a" * (size - at - 1)
        decoder.append(reference.encode_unit(properties=text), np.zeros(1, np.int64), base=0)
        assert decoder.non_ascii


def test_random_texts(rng: random.Random) -> None:
    def text() -> bytes:
        letters = rng.choice((b"a\1\2", b"abcdefgh\1\2", b"ab\1\2\xff\xc3\xa9", bytes(range(256))))
        return bytes(rng.choices(letters, k=rng.choice((rng.randrange(50), rng.randrange(400), rng.randrange(5000)))))

    _check(text() for _ in range(600))


def test_named_columns() -> None:
    names = (b"TAGS", b"KEYS", b"UNIQ_KEY")
    near = [name[:-1] for name in names] + [name + b"x" for name in names] + [b"x" + name for name in names]
    near += [name.lower() for name in names] + [b"UNIQ_KEX", b"TAGT", b"KEYT", b"__STARTDELIVERTIME"]
    pairs = [b"%s\1%d" % (name, i) for i, name in enumerate([*names, *near])]
    texts = [b"\2".join(some) for some in itertools.permutations(pairs[:4], 3)] + pairs
    texts += [b"%s\1\2%s\1x" % (name, name) for name in names] + [b"%s\1x\2%s\1" % (name, name) for name in names]
    texts += [b"%s\1a\1b\2" % name for name in names] + [b"%s\2%s\1x" % (name, name) for name in names]
    _check([*texts, b"\2".join(pairs), b"\2".join(reversed(pairs))])
    for some in [("tags",), ("keys",), ("msgId",), ("msgId", "tags")]:
        _check(texts, some)


# ---- a name twice


def test_doubles_of_a_few(rng: random.Random) -> None:
    names = (b"a", b"b", b"ab", b"ba", b"aa", b"TAGS", b"KEYS", b"UNIQ_KEY", b"SGAT")
    texts = []
    for count in range(1, 20):  # the parser changes its way behind 16
        for _ in range(80):
            chosen = rng.choices(names, k=count)
            texts.append(b"\2".join(b"%s\1%d" % (name, i) for i, name in enumerate(chosen)))
    _check(texts)


@pytest.mark.parametrize("count", [15, 16, 17, 18, 100])
def test_one_double_anywhere(count: int) -> None:
    pairs = [b"name%d\1%d" % (i, i) for i in range(count)]
    texts = []
    for one, other in itertools.combinations(range(count), 2) if count < 20 else [(0, 99), (0, 1), (98, 99), (40, 60)]:
        changed = list(pairs)
        changed[other] = b"name%d\1again" % one
        texts.append(b"\2".join(changed))
    _check([b"\2".join(pairs), *texts])


def test_names_of_the_same_first_and_last_letter_and_length_are_different() -> None:
    for count in (2, 16, 17, 500):
        _check([b"\2".join(b"a%05dz\1%d" % (i, i) for i in range(count))])


def _names_in_one_bucket() -> list[bytes]:
    """All of 4 letters, by the hash of rmq_drop_doubles (FNV-1a): as many as fit into a unit with one-letter values."""
    letters = np.arange(0x21, 0x7F, dtype=np.uint32)
    names: list[bytes] = []
    for first in letters:
        name: list[Any] = [first, *(grid.ravel() for grid in np.meshgrid(letters, letters, letters))]
        value: Any = np.uint32(2166136261)
        for letter in name:
            value = (value ^ letter) * np.uint32(16777619)
        hits = np.flatnonzero((value ^ value >> np.uint32(16)) % np.uint32(4096) == 7)
        names += [bytes((int(first), *(int(part[hit]) for part in name[1:]))) for hit in hits]
        if len(names) >= MOST // 7:
            break
    return names[: MOST // 7]


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_names_in_one_bucket(rng: random.Random) -> None:
    """Names that all hash alike take longer (some 20 ms a unit), and are right."""
    pairs = [name + b"\1x" for name in _names_in_one_bucket()]
    assert len(pairs) == 4681
    again = [pair[:4] + b"\1y" for pair in rng.choices(pairs, k=500)]
    _check([b"\2".join(pairs), b"\2".join(pairs[500:] + again), b"\2".join(again + pairs[500:])])


# ---- limits


def test_as_many_properties_as_there_can_be() -> None:
    """8192 pairs: the smallest takes 4 bytes, the last one 3. One-byte names are soon used up, so most are doubles."""
    names = [bytes((byte,)) for byte in range(3, 256)]
    text = b"".join(name + b"\1v\2" for name in (names * 33)[:8192])[:MOST]
    assert len(text) == MOST
    _check([text, text[:-1], text[1:], text[:-4]])


@pytest.mark.parametrize("letter", [b"\1", b"\2", b"a", b"\1\2", b"a\1", b"\2a", b"a\2\1", b"a\1\2", b"\xff"])
def test_the_longest_properties_of_one_kind(letter: bytes) -> None:
    text = (letter * MOST)[:MOST]
    _check([text, text[:-1] + b"\2", b"a\1" + text[2:], b"\1" + text[1:], text[:-3] + b"a\1b", b"a\1b\2" + text[4:]])


def test_the_longest_properties_of_different_names() -> None:
    text = b"".join(b"%x\1v\2" % i for i in range(MOST))[:MOST]
    _check([text, text[:-1], text + b""])
    # ... and at the end of a window, without a byte behind it
    unit = np.frombuffer(reference.encode_unit(properties=text), np.uint8).copy()
    assert decode(unit, np.zeros(1, np.int64), ["properties"]) == [{"properties": reference.parse_properties(text)}]


# ---- text that is not UTF-8


def test_names_that_become_equal_only_when_they_are_replaced() -> None:
    _check(
        [
            b"\xff\1first\2\xfe\1second\2",
            b"\xff\1first\2\xef\xbf\xbd\1second\2",  # that is U+FFFD itself
            b"\xef\xbf\xbd\1first\2\xff\1second\2other\1x",
            b"a\1b\2x\xff\1first\2c\1d\2x\xfe\1second\2x\xfd\1third",
            b"",
            b"\xff\1first\2\xfe\1",  # an empty value does not count
            b"\xff\1\xff\2\xfe\1\xfe",
        ]
    )


def test_every_byte_alone_as_name_and_value() -> None:
    _check(part for i in range(256) for byte in [bytes((i,))] for part in (byte, byte + b"\1x", b"x\1" + byte))


def test_every_two_bytes_as_a_value() -> None:
    _check((b"TAGS\1" + bytes(pair) for pair in itertools.product(range(0, 256, 3), range(256))), ["tags"])
