"""Units of many queues that are read together are those of each queue, read by itself: also of long queues, with holes
and zeros, several files, and what is no file."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.structures.consumequeue import FEW_UNITS, Queue
from rmqstore_spark.store.structures.queue_heads import count_units, many_places, places_in, queue_ends

UNIT = 20


def _queue(directory: Path, rng: random.Random) -> None:
    directory.mkdir(parents=True)
    first = UNIT * rng.choice((0, 0, 600, 70_000))
    for number in range(rng.choice((1, 1, 1, 1, 0, 2))):
        capacity = rng.choice((900, 3000))
        data = bytearray(capacity * UNIT)
        for index in range(rng.choice((0, 3, 127, 128, 129, 204, 205, 206, 210, 700, capacity)) % (capacity + 1)):
            unit = (index * 100).to_bytes(8, "big") + (100).to_bytes(4, "big") + rng.randbytes(8)
            data[index * UNIT : (index + 1) * UNIT] = unit if rng.random() < 0.97 else bytes(UNIT)
        with (directory / f"{first + number * capacity * UNIT:020d}").open("wb") as file:
            for page in range(0, len(data), 4096):  # as a broker's mapped file: pages of zeros were never written
                if any(data[page : page + 4096]):
                    file.seek(page)
                    file.write(data[page : page + 4096])
            file.truncate(len(data) - rng.choice((0, 0, 7)))
        if rng.random() < 0.1:
            with (directory / f"{first + number * capacity * UNIT:020d}").open("r+b") as file:
                file.seek(rng.randrange(3) * 4096)
                file.write(bytes(4096))
    if rng.random() < 0.05:
        (directory / f"{first + (1 << 30):020d}").mkdir()


def _last(queue: Queue) -> int | None:
    """The number of the last unit in use. Where the first ones end in zeros, no later one counts, but in a file that
    takes more space than they need."""
    shown = queue.block(queue.first, FEW_UNITS)
    used, file = np.flatnonzero(shown.are_used), queue.in_files[0]
    has_space = len(shown) * UNIT + 4096 < file.allocated < file.size
    if len(used) and not shown.are_used[-1] and not has_space:
        return int(shown.numbers[used[-1]])
    return queue.end - 1 if queue.end > queue.first else None


def test_of_each_queue(tmp_path: Path, rng: random.Random) -> None:
    for number in range(120):
        _queue(tmp_path / "T" / str(number), rng)
    made = [[Queue(str(tmp_path / "T" / str(number)), "T", number, Files()) for number in range(120)] for _ in range(2)]
    together, each = made
    asked = [
        sorted(rng.randrange(each[row].first - 2, each[row].stop + 2) for _ in range(row % 4)) for row in range(120)
    ]
    numbers = [np.array(some, np.int64) for some in asked]
    starts = np.cumsum([0, *map(len, asked)])
    ends = queue_ends(together, 0, Files(), starts, np.concatenate(numbers))
    found, are_others = many_places(together, starts, np.concatenate(numbers), Files())
    for row, some in enumerate(numbers):
        here = slice(starts[row], starts[row + 1])
        if ends.are_known[row]:
            assert together[row].in_files == each[row].in_files
            last = _last(each[row])
            assert ends.last[row].number == (-1 if last is None else last)
            assert last is None or ends.last[row] == each[row].any_unit(last)
        if len(some) and not are_others[starts[row]]:
            assert (found[:, here] == places_in(each[row], some)).all()
            assert not ends.are_known[row] or (ends.places[:, here] == found[:, here]).all()
    assert ends.are_known.sum() > 30
    assert (~are_others).sum() > 40


def test_how_many_there_are(tmp_path: Path, rng: random.Random) -> None:
    for number in range(60):
        _queue(tmp_path / "T" / str(number), rng)

    def queues() -> list[Queue]:
        return [Queue(str(tmp_path / "T" / str(number)), "T", number, Files()) for number in range(60)]

    counts = [count_units([queue], Files()) for queue in queues()]
    assert count_units(queues(), Files()) == sum(counts)
    for queue, count in zip(queues(), counts, strict=True):
        last = _last(queue) if len(queue.in_files) == 1 else None
        assert count in {queue.end - queue.first, last + 1 - queue.first if last is not None else 0}
