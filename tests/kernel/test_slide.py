"""Decoder.read(): a file window after window, equal to a scan of all its bytes at once."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import random_stores
from oracle.stores import StoreBuilder
from support.kernels import rows_of

from native_io import COLUMNS, SLIDE, Status
from rmqstore_spark.store.units import BatchBuilder

PLENTY = 1 << 40
_, _, _, BYTES, REQUESTS = range(len(SLIDE))


class Reading:
    """A segment's file, read by a decoder through a window of `size` bytes."""

    def __init__(self, path: Path, start: int, size: int, ahead: int | None = None) -> None:
        self.builder = BatchBuilder(list(COLUMNS))
        self.decoder = self.builder.decoder
        self.start, self.size = start, path.stat().st_size
        self.window = bytearray(size)
        self.state = np.array([start, 0, ahead or size, 0, 0], np.int64)
        self._fd = os.open(path, os.O_RDONLY)

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self, position: int, stop: int, **more: int) -> tuple[int, int, Status, int, int]:
        here: dict[str, Any] = {"start": self.start, "end": self.start + self.size, "verify_crc": True}
        here |= {"segment_end": self.start + self.size, "most": PLENTY, "enough": PLENTY}
        return self.decoder.read(self._fd, self.window, self.state, position=position, stop=stop, **(here | more))


@pytest.fixture
def store(tmp_path: Path, rng: random.Random) -> StoreBuilder:
    return random_stores.random_store(tmp_path, rng, 400, segment_size=4 << 20)


def longest(store: StoreBuilder) -> int:
    positions = [message.position for message in store.messages] + [store.end]
    return max(np.diff(positions).tolist())


def test_any_window_any_room(store: StoreBuilder, rng: random.Random) -> None:
    whole = BatchBuilder(list(COLUMNS))
    log = store.segment(0).read_bytes()
    place = {"base": 0, "position": 0, "stop": store.end, "segment_end": len(log)}
    count, *_ = whole.decoder.scan(memoryview(log), **place, verify_crc=True, most=PLENTY)
    expected = rows_of(whole.finish())
    assert count == len(store.messages) == len(expected)
    for _ in range(30):
        size = longest(store) + rng.choice((0, 1, 1000, 1 << 20))
        with Reading(store.segment(0), 0, size, ahead=rng.randint(1, size)) as reading:
            rows, at, status = [], 0, Status.FULL
            while status is Status.FULL:
                most, enough = rng.choice((1, 7, PLENTY)), rng.choice((1, 10_000, PLENTY))
                before = at
                count, at, status, _, _ = reading.read(at, store.end, most=most, enough=enough)
                assert reading.decoder.rows == count <= most
                assert count or status is not Status.FULL
                assert (at > before) == (count > 0)
                rows += rows_of(reading.builder.finish())
            assert (at, status) == (store.end, Status.LIMIT)
            assert rows == expected


def test_what_is_read_is_counted(store: StoreBuilder) -> None:
    """Whole windows, each from the first byte that is not passed: nothing after the stop, little twice."""
    size = longest(store)
    with Reading(store.segment(0), 0, size) as reading:
        reading.read(0, store.end)
        assert store.end <= reading.state[BYTES] <= 2 * store.end
        assert store.end / size <= reading.state[REQUESTS] <= 2 * store.end / size + 1
        reading.read(store.end, store.end)
        assert reading.state[REQUESTS] == 0


def test_it_ends_after_the_window_that_makes_enough(store: StoreBuilder) -> None:
    size = longest(store)
    with Reading(store.segment(0), 0, size) as reading:
        reading.read(0, store.end, enough=1)
        assert reading.state[REQUESTS] == 1
        assert reading.decoder.nbytes >= 1


def test_a_unit_that_is_longer_than_the_window(store: StoreBuilder) -> None:
    size = longest(store) - 1
    positions = [message.position for message in store.messages]
    with Reading(store.segment(0), 0, size) as reading:
        count, at, status, _, _ = reading.read(0, store.end)
        while status is Status.FULL:
            more, at, status, expected, _ = reading.read(at, store.end)
            count += more
        assert status is Status.MORE
        assert expected > size
        assert positions[count] == at


def test_a_file_that_ends_inside_a_unit(store: StoreBuilder) -> None:
    last = store.messages[-1].position
    os.truncate(store.segment(0), store.end - 1)
    with Reading(store.segment(0), 0, 1 << 20) as reading:
        assert reading.read(0, store.end, segment_end=4 << 20)[2] is Status.FULL
        count, at, status, _, _ = reading.read(last, store.end, segment_end=4 << 20)
        assert (count, at, status) == (0, last, Status.MORE)
        # It became shorter after its size was asked for.
        count, at, status, _, _ = reading.read(last, store.end, segment_end=4 << 20, end=4 << 20)
        assert (count, at, status) == (0, last, Status.MORE)


def test_damage_ends_it(store: StoreBuilder, rng: random.Random) -> None:
    number = rng.randrange(1, len(store.messages))
    at = store.messages[number].position
    with store.segment(0).open("r+b") as file:
        file.seek(at + 4)
        file.write(b"\0\0\0\1")
    with Reading(store.segment(0), 0, longest(store)) as reading:
        count, position, status, _, found = reading.read(0, store.end)
        assert (count, position, status, found) == (number, at, Status.BAD_MAGIC, 1)


def test_what_cannot_be_read(store: StoreBuilder) -> None:
    with Reading(store.segment(0), 0, 1 << 20) as reading:
        reading._fd, kept = os.open(store.root, os.O_RDONLY), reading._fd
        with pytest.raises(IsADirectoryError):
            reading.read(0, store.end)
        os.close(reading._fd)
        reading._fd = kept
        assert reading.read(0, store.end)[0] == len(store.messages)  # the decoder is as it was


@pytest.mark.parametrize(
    ("state", "more"),
    [
        ([0, 0, 0, 0, 0], {}),
        ([0, 0, 101, 0, 0], {}),
        ([0, 101, 100, 0, 0], {}),
        ([0, -1, 100, 0, 0], {}),
        ([-1, 0, 100, 0, 0], {}),
        ([(1 << 63) - 1, 1, 100, 0, 0], {}),
        ([0, 0, 100, 0], {}),
        ([0, 0, 100, 0, 0], {"start": -1}),
        ([0, 0, 100, 0, 0], {"start": 1}),
        ([0, 0, 100, 0, 0], {"end": -1}),
        ([0, 0, 100, 0, 0], {"segment_end": -1}),
    ],
)
def test_states_that_there_are_not(store: StoreBuilder, state: list[int], more: dict[str, int]) -> None:
    with Reading(store.segment(0), 0, 100) as reading:
        reading.state = np.array(state, np.int64)
        with pytest.raises(ValueError, match=r"expected a state|lies before|offsets reach"):
            reading.read(0, store.end, **more)
