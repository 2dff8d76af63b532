"""What is fetched ahead is what will be read, in that order and no more; over the borders of files and of tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from oracle.stores import StoreBuilder
from support.s3_server import Server

import rmqstore_spark
from rmqstore_spark.read import scan
from rmqstore_spark.store.io import read_ahead
from rmqstore_spark.store.io.read_ahead import AT_ONCE, ReadAhead

SIZE = 10
BLOCKS = 6  # of a file


class Coming(Future[memoryview]):
    """A block that comes as soon as somebody waits for it."""

    def result(self, timeout: float | None = None) -> memoryview:
        return memoryview(bytes(SIZE))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BLOCK", "_FIRST_BLOCK", "_SMALL_BLOCK"):
        monkeypatch.setattr(read_ahead, name, SIZE)


@pytest.fixture
def asked() -> list[tuple[str, int]]:
    return []


def lined_up(asked: list[tuple[str, int]], files: str = "abcdefgh") -> ReadAhead:
    def fetch(path: str, start: int) -> Coming:
        asked.append((path, start))
        return Coming()

    ahead = ReadAhead()
    for path in files:
        ahead.add(path, 0, BLOCKS * SIZE, lambda start, stop, path=path: fetch(path, start))  # type: ignore[misc]
    return ahead


def read(ahead: ReadAhead, path: str, blocks: int = BLOCKS) -> None:
    stretch = ahead.claim(path, 0, BLOCKS * SIZE)
    assert stretch is not None
    for number in range(blocks):
        assert stretch.view(number * SIZE, (number + 1) * SIZE) is not None
    if blocks == BLOCKS:
        stretch.clear()


@pytest.mark.usefixtures("small")
def test_who_looks_at_the_beginning_alone_fetches_little(asked: list[tuple[str, int]]) -> None:
    ahead = lined_up(asked)
    assert asked == []  # nobody reads yet
    read(ahead, "a", 1)
    assert len(asked) == read_ahead._AT_FIRST


@pytest.mark.usefixtures("small")
def test_who_waits_has_enough_under_way_over_the_borders_of_files(asked: list[tuple[str, int]]) -> None:
    ahead = lined_up(asked)
    read(ahead, "a", 2)
    everything = [(path, number * SIZE) for path in "abcdefgh" for number in range(BLOCKS)]
    assert asked == everything[: 1 + read_ahead._MOST]  # one is read and forgotten
    for path in "bcdefgh":
        before = len(asked)
        read(ahead, path)
        assert len(asked) >= min(before + BLOCKS - 1, len(everything))
    assert sorted(asked) == everything  # each once
    assert ahead.claim("b", 0, BLOCKS * SIZE) is None


@pytest.mark.usefixtures("small")
def test_nothing_is_fetched_for_a_reader_that_ends(asked: list[tuple[str, int]]) -> None:
    ahead = lined_up(asked)
    stretch = ahead.claim("a", 0, BLOCKS * SIZE)
    assert stretch is not None
    stretch.view(0, 2 * SIZE)
    before = len(asked)
    stretch.clear()
    assert len(asked) == before
    assert not stretch.has(0)


@pytest.mark.usefixtures("small")
def test_a_reader_that_is_ahead_of_its_turn_does_not_wait_for_others(asked: list[tuple[str, int]]) -> None:
    ahead = lined_up(asked)
    read(ahead, "h")
    assert [each for each in asked if each[0] == "h"] == [("h", number * SIZE) for number in range(BLOCKS)]
    read(ahead, "a")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path) as running:
        yield running


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("decoders", [0.5, 2])
def test_a_scan_has_all_connections_busy_from_task_to_task(
    server: Server, monkeypatch: pytest.MonkeyPatch, decoders: float
) -> None:
    """Tasks of a few segments, each of two blocks: none but the first one is answered before as many as can be are
    under way."""
    block = 150_000
    for name, size in {"BLOCK": block, "_FIRST_BLOCK": block, "_SMALL_BLOCK": 1}.items():
        monkeypatch.setattr(read_ahead, name, size)
    monkeypatch.setattr(scan, "TASK_BYTES_WHERE_SLOW", 1_000_000)
    monkeypatch.setattr(scan, "DECODING_WHERE_SLOW", decoders)
    store = StoreBuilder(server.root / "broker", segment_size=2 * block + 10_000)
    for _ in range(300):
        store.append("T", bytes(25_000), 0)
    store.flush()
    store.close()
    there = rmqstore_spark.Store("s3://stores/broker", **server.options)  # type: ignore[arg-type]
    enough = threading.Event()

    def hold(number: int, key: str) -> None:
        start, _, stop = (server.asked[number][2] or "bytes=0-0")[6:].partition("-")
        if int(stop) + 1 - int(start) == block and not (key.endswith("/" + "0" * 20) and start == "0"):
            end = time.monotonic() + 20
            while server.under_way < AT_ONCE and not enough.is_set() and time.monotonic() < end:
                time.sleep(0.001)
            enough.set()

    server.fault = hold
    assert there.messages(columns=["queueOffset"]).read_all().num_rows == 300
    assert server.most_under_way >= AT_ONCE
