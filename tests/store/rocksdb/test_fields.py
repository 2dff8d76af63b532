"""The fields of a record: what is whole is read, and what ends too early, or is too large, is told with its place."""

from __future__ import annotations

import random

import pytest

from native_io import NotSoundError
from rmqstore_spark.store.rocksdb.fields import Fields


def _varint(number: int) -> bytes:
    """The oracle: seven bits a byte, the lowest first."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_numbers(number: int) -> None:
    data = _varint(number)
    fields = Fields(data + b"\1")
    assert (fields.varint(), fields.position) == (number, len(data))
    for cut in range(len(data)):
        with pytest.raises(NotSoundError):
            Fields(data[:cut]).varint()


@pytest.mark.parametrize("data", [_varint(1 << 64), b"\x80" * 10 + b"\1", b"\xff" * 20])
def test_numbers_that_are_too_large(data: bytes) -> None:
    with pytest.raises(NotSoundError):
        Fields(data).varint()


def test_texts_one_after_the_other(rng: random.Random) -> None:
    texts = [rng.randbytes(rng.choice((0, 1, 127, 128, 300))) for _ in range(20)]
    data = b"".join(_varint(len(text)) + text for text in texts)
    fields = Fields(data)
    assert [fields.text() for _ in texts] == texts
    assert fields.position == len(data)
    assert fields.take(0) == b""
    with pytest.raises(NotSoundError):
        fields.take(1)
    fields = Fields(b"abc")
    assert fields.take(2) == b"ab"
    with pytest.raises(NotSoundError):
        fields.take(2)
    assert fields.take(1) == b"c"
