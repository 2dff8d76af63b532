"""In index files that anything may have been written into, a chain leads to what it names and never out of the file."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from native_io import follow_chains

HEADER, SLOT, ITEM = 40, struct.Struct(">i"), struct.Struct(">iqii")


def plainly(
    data: bytes, hashes: list[int], slots: int, items: int, count: int, bounds: tuple[int, int]
) -> list[int] | None:
    found = []
    first = HEADER + 4 * slots
    for slot in sorted({wanted % slots for wanted in hashes}):
        at = data[HEADER + 4 * slot : HEADER + 4 * slot + 4]
        if len(at) < 4:
            return None
        (number,), before, latest = SLOT.unpack(at), items, (1 << 63) - 1
        while number:
            item = data[first + 20 * number : first + 20 * number + 20] if 0 < number < before else b""
            if len(item) < 20:
                return None
            key_hash, offset, seconds, previous = ITEM.unpack(item)
            known = number < count
            latest = min(latest, bounds[1]) if known else latest
            if not (bounds[0] if known else bounds[1]) <= offset <= latest or key_hash < 0 or key_hash % slots != slot:
                return None
            if (key_hash, offset, seconds, previous) == (0, 0, 0, 0):
                return None
            if known and key_hash in hashes:
                found.append(offset)
            number, before, latest = previous, number, offset
    return found


def test_whatever_a_file_holds(tmp_path: Path, rng: random.Random) -> None:
    answers = {True: 0, False: 0}
    for _ in range(400):
        slots, items = rng.randrange(1, 9), rng.randrange(2, 30)
        data = bytearray(HEADER + 4 * slots + 20 * items)
        heads = [0] * slots
        for number in range(1, rng.randrange(1, items)):
            key_hash = rng.randrange(40)
            item = ITEM.pack(key_hash, 1000 + 10 * number, 1, heads[key_hash % slots])
            at = HEADER + 4 * slots + 20 * number
            data[at : at + 20] = item
            heads[key_hash % slots] = number
        for slot, number in enumerate(heads):
            SLOT.pack_into(data, HEADER + 4 * slot, number)
        for _ in range(rng.choice((0, 0, 1, 4))):
            data[rng.randrange(HEADER, len(data))] = rng.choice((0, 1, 127, 255))
        data = data[: rng.choice((len(data), len(data), rng.randrange(len(data))))]
        count, bounds = rng.randrange(1, items + 1), (1000, rng.choice((1000 + 10 * items, 1100)))
        path = tmp_path / "index"
        path.write_bytes(data)
        hashes = sorted(rng.sample(range(40), rng.randrange(1, 30)), key=lambda wanted: (wanted % slots, wanted))
        fd = os.open(path, os.O_RDONLY)
        try:
            found, nbytes, requests = follow_chains(
                fd,
                bytes(data[: rng.choice((0, len(data), rng.randrange(len(data) + 1)))]),
                np.array(hashes, np.int32),
                slots=slots,
                items=items,
                count=count,
                begin_offset=bounds[0],
                end_offset=bounds[1],
            )
        finally:
            os.close(fd)
        expected = plainly(bytes(data), hashes, slots, items, count, bounds)
        answers[expected is None] += 1
        assert (None if found is None else found.tolist()) == expected
        assert nbytes <= 20 * requests
    assert min(answers.values()) > 50


def test_wrong_arguments() -> None:
    given = {"items": 9, "count": 1, "begin_offset": 0, "end_offset": 0}
    with pytest.raises(ValueError, match="not negative, found -3"):
        follow_chains(0, b"", np.array([-3], np.int32), slots=5, **given)
    for slots in (0, -1, 1 << 31):
        with pytest.raises(ValueError, match="slots and 9 items"):
            follow_chains(0, b"", np.array([3], np.int32), slots=slots, **given)
    with pytest.raises(OSError, match="Bad file descriptor"):
        follow_chains(-1, b"", np.array([3], np.int32), slots=5, **given)
