"""A queue searched in the order of the log gives what a search from end to end gives."""

from __future__ import annotations

import bisect
import random
from pathlib import Path

import pytest
from oracle import reference
from support import remote

from rmqstore_spark.store.consumequeue import Queue
from rmqstore_spark.store.files import Files
from rmqstore_spark.store.queue_cursor import QueueCursor
from rmqstore_spark.store.remote_files import PRICES


def _queue(root: Path, positions: list[int], per_file: int, first: int = 0, files: Files | None = None) -> Queue:
    """A queue whose messages are at these physical offsets; its first `first` units are in files that are gone, or, in
    the file of the next one, pre-blank."""
    units = [reference.encode_queue_unit(*reference.PRE_BLANK)] * (first % per_file)
    units += [reference.encode_queue_unit(position, 100, 0) for position in positions]
    start = first - first % per_file
    for at in range(0, max(len(units), 1), per_file):
        file = root / f"{(start + at) * reference.QUEUE_UNIT_SIZE:020d}"
        file.write_bytes(b"".join(units[at : at + per_file]).ljust(per_file * reference.QUEUE_UNIT_SIZE, b"\0"))
    return Queue(str(root), "T", 0, files or Files())


@pytest.mark.parametrize("gaps", [(1,), (1, 1000), (1, 1, 1, 10_000_000)])
def test_it_finds_the_first_unit_from_a_place_on(tmp_path: Path, rng: random.Random, gaps: tuple[int, ...]) -> None:
    for number in range(15):
        root = tmp_path / str(number)
        root.mkdir()
        count, first = rng.choice((0, 1, 100, 3000)), rng.choice((0, 0, 3, 1000))
        at, positions = 500, []
        for _ in range(count):
            at += 100 * rng.choice(gaps)
            positions.append(at)
        queue = _queue(root, positions, rng.choice((7, 500, 10_000)), first)
        cursor = QueueCursor(queue)
        asked = sorted(rng.randrange(1, at + 300) for _ in range(rng.choice((1, 10, 200))))
        for place in [*asked, *rng.sample(asked, len(asked) // 2)]:  # in the order of the log, and then in any
            index = bisect.bisect_left(positions, place)
            found = cursor.seek(place)
            unit = cursor.unit(found)
            assert (found, unit and unit.position) == (first + index, [*positions, None][index])
            assert found == QueueCursor(queue).seek(place)


def test_going_on_costs_no_more_in_a_long_queue(tmp_path: Path, rng: random.Random) -> None:
    costs = []
    for count in (20_000, 80_000):
        root = tmp_path / str(count)
        root.mkdir()
        at, positions = 0, []
        for _ in range(count):
            at += rng.randrange(100, 10_000)
            positions.append(at)
        queue = _queue(root, positions, 1000)
        files = queue.files
        cursor = QueueCursor(queue)
        for number in range(1, 100):
            cursor.unit(cursor.seek(at * number // 100))
            if number == 2:
                files.requests = 0
        costs.append(files.requests / 97)
    assert costs[1] <= costs[0] + 0.5 <= 3


@pytest.mark.parametrize("per_file", [7, 5000, 100_000])
def test_where_a_search_begins_changes_no_answer(tmp_path: Path, rng: random.Random, per_file: int) -> None:
    files = remote.remote_files(PRICES)
    for number in range(5):
        root = tmp_path / str(number)
        root.mkdir()
        first, count = rng.choice((0, 3, 1000)), rng.choice((0, 1, 20, 40 * min(per_file, 1000)))
        positions = sorted(rng.sample(range(100, 10_000_000), count))
        queue = _queue(root, positions, per_file, first, files)
        places = [rng.choice([*positions[-3:], 1, rng.randrange(1, 10_000_100)]) for _ in range(30)]
        before = [rng.choice((None, 0, 1 << 62, rng.randrange(10_000_000), *positions[-1:])) for _ in places]

        def seek(pair: tuple[int, int | None]) -> int:
            cursor = QueueCursor(queue)  # noqa: B023
            if pair[1] is not None:
                cursor.seek(pair[1])
            return cursor.seek(pair[0])

        # Where many are searched at a time, each asks for little.
        found = files.schedule.mapped(seek, zip(places, before, strict=True))
        assert list(found) == [first + bisect.bisect_left(positions, place) for place in places]


def test_going_on_nearby_costs_few_requests(tmp_path: Path, rng: random.Random) -> None:
    """However long the queue is, in a file as large as RocketMQ makes it."""
    files = remote.remote_files(PRICES)
    ends = [rng.randrange(10_000, 299_000) for _ in range(8)]
    cursors = []
    for end in ends:
        root = tmp_path / str(end)
        root.mkdir()
        cursors.append(QueueCursor(_queue(root, list(range(100, 100 + 100 * end, 100)), 300_000, files=files)))
    starts = [rng.randrange(3000, end - 3000) for end in ends]
    for cursor, start in zip(cursors, starts, strict=True):
        cursor.seek(100 + 100 * start)
    files.requests = files.bytes = 0
    expected = [start + rng.randrange(-3000, 3000) for start in starts]
    assert list(files.schedule.mapped(lambda n: cursors[n].seek(100 + 100 * expected[n]), range(len(ends)))) == expected
    assert files.requests <= 5 * len(ends)
    assert files.bytes <= 5 * 64 * 1024 * len(ends)
