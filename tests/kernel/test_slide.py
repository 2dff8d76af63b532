"""Decoder.read(), window after window of a file, equals a scan of all its bytes at once."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import random_stores, reference
from oracle.stores import StoreBuilder
from support.kernels import rows_of

from native_io import COLUMNS, Filter, Slide, Status, Walked
from rmqstore_spark.store.format.units import BatchBuilder

PLENTY = 1 << 40
ANY_FLAG = os.RWF_HIPRI  # which says nothing to the page cache; but the slide takes reads with flags for passing by


class Reading:
    """A segment's file, read by a decoder through a window of `size` bytes."""

    def __init__(self, path: Path, start: int, size: int, ahead: int | None = None) -> None:
        self.builder = BatchBuilder(list(COLUMNS))
        self.decoder = self.builder.decoder
        self.start, self.size = start, path.stat().st_size
        self.window = bytearray(size)
        self.slide = Slide(self.window, base=start, shown=0, ahead=ahead or size)
        self._fd = os.open(path, os.O_RDONLY)

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def read(self, position: int, stop: int, **more: Any) -> Walked:
        here: dict[str, Any] = {"start": self.start, "end": self.start + self.size, "verify_crc": True}
        here |= {"segment_end": self.start + self.size, "most": PLENTY, "enough": PLENTY}
        return self.slide.decode(self.decoder, self._fd, position=position, stop=stop, **(here | more))


class Asking:
    """Of some queues these offsets are wanted, of the others nothing; notes of which it was asked."""

    def __init__(self, wanted: dict[tuple[str, int], tuple[int, int]]) -> None:
        self.wanted = wanted
        self.asked: list[tuple[str, int]] = []

    def judge(self, topic: bytes, queue_id: int) -> tuple[int, int] | None:
        self.asked.append((topic.decode(), queue_id))
        return self.wanted.get(self.asked[-1])


@pytest.fixture
def store(tmp_path: Path, rng: random.Random) -> StoreBuilder:
    return random_stores.random_store(tmp_path, rng, 400, segment_size=4 << 20)


def longest(store: StoreBuilder) -> int:
    positions = [message.position for message in store.messages] + [store.end]
    return max(np.diff(positions).tolist())


def test_any_window_any_room(store: StoreBuilder, rng: random.Random) -> None:
    whole = BatchBuilder(list(COLUMNS))
    log = store.segment(0).read_bytes()
    place: dict[str, Any] = {"base": 0, "position": 0, "stop": store.end, "segment_end": len(log)}
    count, *_ = whole.decoder.scan(memoryview(log), **place, verify_crc=True, most=PLENTY)
    expected = rows_of(whole.finish())
    assert count == len(store.messages) == len(expected)
    for _ in range(30):
        size = longest(store) + rng.choice((0, 1, 1000, 1 << 20))
        flags = rng.choice((0, ANY_FLAG))
        with Reading(store.segment(0), 0, size, ahead=rng.randint(1, size)) as reading:
            rows, at, status = [], 0, Status.FULL
            while status is Status.FULL:
                most, enough = rng.choice((1, 7, PLENTY)), rng.choice((1, 10_000, PLENTY))
                before = at
                count, at, status, _, _ = reading.read(at, store.end, most=most, enough=enough, flags=flags)
                assert reading.decoder.rows == count <= most
                assert count or status is not Status.FULL
                assert (at > before) == (count > 0)
                rows += rows_of(reading.builder.finish())
            assert (at, status) == (store.end, Status.LIMIT)
            assert rows == expected


def test_only_what_a_filter_chooses(store: StoreBuilder, rng: random.Random) -> None:
    """The rows of all that the filter would leave in, whatever the windows; and each queue is asked for once."""
    with Reading(store.segment(0), 0, 1 << 20) as reading:
        reading.read(0, store.end)
        everything = rows_of(reading.builder.finish())
    queues = sorted({(row["topic"], row["queueId"]) for row in everything})
    for _ in range(30):
        asking = Asking({queue: (rng.randint(0, 3), rng.randint(0, 60)) for queue in queues if rng.random() < 0.5})
        tags = [None, ["TagA", "a||b"]][rng.randrange(2)]
        chosen = Filter(judge=asking.judge, conditions=[] if tags is None else [{"tags": tags}])
        with Reading(store.segment(0), 0, longest(store) + rng.choice((0, 1, 1000, 1 << 20))) as reading:
            rows, at, status = [], 0, Status.FULL
            while status is Status.FULL:
                most, enough = rng.choice((1, 7, PLENTY)), rng.choice((1, 10_000, PLENTY))
                count, at, status, _, _ = reading.read(at, store.end, most=most, enough=enough, chosen=chosen)
                assert reading.decoder.rows == count <= most
                rows += rows_of(reading.builder.finish())
        assert (at, status) == (store.end, Status.LIMIT)
        assert rows == [
            row
            for row in everything
            for least, past in [asking.wanted.get((row["topic"], row["queueId"]), (0, -1))]
            if least <= row["queueOffset"] <= past and (tags is None or row["tags"] in tags)
        ]
        assert sorted(asking.asked) == queues


def test_of_what_is_not_chosen_the_body_is_not_looked_at(store: StoreBuilder, rng: random.Random) -> None:
    log = store.segment(0).read_bytes()
    bodies = [reference.parse_unit(log[at : at + size], at).body for at, size, *_ in store.messages]
    number = rng.choice([number for number, body in enumerate(bodies) if body])
    at, body = store.messages[number].position, bodies[number]
    with store.segment(0).open("r+b") as file:
        file.seek(log.index(body, at))
        file.write(bytes([body[0] ^ 1]))
    for bounds, expected in [
        ((0, at - 1), (number, store.end, Status.LIMIT)),
        ((at + 1, store.end), (len(store.messages) - number - 1, store.end, Status.LIMIT)),
        ((0, at), (number, at, Status.BAD_BODY_CRC)),
    ]:
        with Reading(store.segment(0), 0, longest(store)) as reading:
            assert reading.read(0, store.end, chosen=Filter(commit_log_offset=bounds))[:3] == expected


def test_it_comes_back_where_nothing_is_chosen(tmp_path: Path) -> None:
    """After 32 MiB, as whoever waits may want to stop."""
    store = StoreBuilder(tmp_path, segment_size=48 << 20)
    for _ in range(40):
        store.append("Orders", body=bytes(1 << 20))
    store.close()
    with Reading(store.segment(0), 0, 2 << 20) as reading:
        count, at, status, _, _ = reading.read(0, store.end, chosen=Filter(store_timestamp=(0, -1)))
        assert (count, status) == (0, Status.FULL)
        assert 32 << 20 <= at < 36 << 20
        count, at, status, _, _ = reading.read(at, store.end, chosen=Filter(store_timestamp=(0, -1)))
        assert (count, at, status) == (0, store.end, Status.LIMIT)


def test_a_judge_that_fails(store: StoreBuilder) -> None:
    """The error comes through, the window is known as it is, and the decoder stays shut."""

    def judge(topic: bytes, queue_id: int) -> None:
        raise KeyError(topic)

    with Reading(store.segment(0), 0, 1 << 20) as reading:
        reading.slide = Slide(reading.window, base=17, shown=0, ahead=1 << 20)
        with pytest.raises(KeyError):
            reading.read(0, store.end, start=0, chosen=Filter(judge=judge))
        assert reading.slide.base == 0
        assert bytes(reading.window[: reading.slide.shown]) == store.segment(0).read_bytes()[: reading.slide.shown]
        with pytest.raises(RuntimeError, match="in use by another thread, or failed earlier"):
            reading.read(0, store.end)


def test_what_is_read_is_counted(store: StoreBuilder) -> None:
    """Whole windows, each from the first byte that is not passed: nothing after the stop, little twice."""
    size = longest(store)
    with Reading(store.segment(0), 0, size) as reading:
        reading.read(0, store.end)
        assert store.end <= reading.slide.bytes <= 2 * store.end
        assert store.end / size <= reading.slide.requests <= 2 * store.end / size + 1
        reading.read(store.end, store.end)
        assert reading.slide.requests == 0
    with Reading(store.segment(0), 0, size) as reading:
        reading.read(0, store.end, flags=ANY_FLAG)
        assert reading.slide.bytes == store.end


def test_reads_that_pass_by_end_where_pages_do(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path, segment_size=16 << 20)
    for _ in range(15):
        store.append("Orders", body=bytes(1 << 20))
    store.close()
    with Reading(store.segment(0), 0, 3 << 20) as reading:
        assert reading.read(0, store.end, flags=ANY_FLAG)[0] == 15
        assert reading.slide.requests == -(-store.end // (2 << 20))
        assert (reading.slide.base + reading.slide.shown, reading.slide.bytes) == (store.end, store.end)


def test_it_ends_after_the_window_that_makes_enough(store: StoreBuilder) -> None:
    size = longest(store)
    with Reading(store.segment(0), 0, size) as reading:
        reading.read(0, store.end, enough=1)
        assert reading.slide.requests == 1
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
    ("base", "shown", "ahead"),
    [(0, 0, 0), (0, 0, 101), (0, 101, 100), (0, -1, 100), (-1, 0, 100), ((1 << 63) - 1, 1, 100), (0, 0, -1)],
)
def test_windows_that_there_are_not(base: int, shown: int, ahead: int) -> None:
    with pytest.raises(ValueError, match="to fit into a window of 100 bytes"):
        Slide(bytearray(100), base=base, shown=shown, ahead=ahead)
    with pytest.raises(ValueError, match="to fit into a window of 0 bytes"):
        Slide(bytearray(), base=0, shown=0, ahead=1)


@pytest.mark.parametrize("more", [{"start": -1}, {"start": 1}, {"end": -1}, {"segment_end": -1}])
def test_places_that_there_are_not(store: StoreBuilder, more: dict[str, int]) -> None:
    refused = pytest.raises(ValueError, match=r"lies before|offsets reach")
    with Reading(store.segment(0), 0, 100) as reading, refused:
        reading.read(0, store.end, **more)
