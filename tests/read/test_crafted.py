"""A search takes as long as its bytes are many, whatever they are: also where they look like units at every turn."""

from __future__ import annotations

import itertools
import math
import shutil
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from oracle.stores import StoreBuilder
from support import crafted

from native_io import Status, find_unit
from rmqstore_spark import Store

MIB = 1024 * 1024
GROWTH = 1.5  # time is proportional to size to the power of 1, or of 2 where the same is done again and again


def _growth(sizes: list[int], spent: Callable[[int], float]) -> float:
    """The exponent with which time grows: from the smallest size to the largest."""
    times = [min(spent(size) for _ in range(2)) for size in (sizes[0], sizes[-1])]
    return math.log(times[1] / times[0]) / math.log(sizes[-1] / sizes[0])


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def test_the_kernels_search_is_linear() -> None:
    made = {size: crafted.nested(0, size, 88) for size in (MIB, 16 * MIB)}

    def search(size: int) -> None:
        data = made[size]
        end = len(data) + 8
        walked = find_unit(data, base=0, position=0, stop=len(data), segment_end=end, verify_crc=True)
        assert walked.status is Status.LIMIT

    assert _growth(list(made), lambda size: _seconds(lambda: search(size))) < GROWTH


@pytest.mark.parametrize("number", [0, 1, 2, 700, 5_000, 11_900])
def test_the_right_one_is_found_among_many(number: int) -> None:
    """Also where sums are kept already: of a body that begins and ends anywhere."""
    data, at = bytearray(crafted.nested(0, MIB + 7, 88)), 88 * number
    body = int.from_bytes(data[at + 84 : at + 88])
    data[at + 8 : at + 12] = (zlib.crc32(data[at + 88 : at + 88 + body]) & 0x7FFFFFFF).to_bytes(4)
    found = find_unit(data, base=0, position=0, stop=len(data), segment_end=len(data) + 8, verify_crc=True)
    assert found[:3] == (1, at, Status.OK)


def _store(root: Path, size: int, kind: str) -> Path:
    """A store of five messages, and crafted bytes in the place of a sixth, which has a queue of its own."""
    builder = StoreBuilder(root, segment_size=size + 8192, queue_file_size=20_000)
    for body in (b"x", b"xx", b"xxx"):
        builder.append(body=body)
    at = builder.end
    builder.append(topic="Crafted", body=bytes(size))
    for body in (b"y", b"yy"):
        builder.append(body=body)
    builder.close()
    skip = 0 if kind == "headless" else crafted.HEADER
    data = bytes(skip) + crafted.KINDS[kind](at + skip, size, 8192)
    with builder.segment(0).open("r+b") as file:
        file.seek(at)
        file.write(data)
    return root


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kind", sorted(crafted.KINDS))
def test_reading_past_crafted_bytes_is_linear(kind: str, tmp_path: Path) -> None:
    # Up to 8 MiB a store is looked at in one piece, which is quicker.
    made = {size: _store(tmp_path / str(size), size, kind) for size in (8 * MIB, 32 * MIB)}

    def read(size: int) -> float:
        store = Store(made[size])
        return _seconds(lambda: store.messages(mode="DROPMALFORMED").read_all().num_rows >= 5)

    for lost in ("consumequeue/Crafted/0", "consumequeue"):  # the queue that knows of it; all of them
        for root in made.values():
            shutil.rmtree(root / lost)
        assert _growth([*made], read) < GROWTH, lost


@pytest.mark.slow
@pytest.mark.long
def test_the_history_of_a_key_that_many_messages_have_is_linear(tmp_path: Path) -> None:
    numbers = itertools.count()

    def read(messages: int) -> float:
        root = tmp_path / str(next(numbers))
        builder = StoreBuilder(root, segment_size=8 * MIB, queue_file_size=200_000, index=True, index_items=20_000)
        for number in range(messages):
            builder.append(keys="K", msg_id=f"M{number:08}")
        builder.close()
        store = Store(root)

        def look() -> None:
            assert store.history("K").num_rows == messages

        return _seconds(look)

    assert _growth([2_000, 16_000], read) < GROWTH
