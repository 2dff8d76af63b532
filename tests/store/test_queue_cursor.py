"""Where in a queue a physical offset comes: the cursor against all units looked at one by one, in queues of either kind
that are pre-blanked, cut, holed, salvaged, or have old units; and what a search costs."""

from __future__ import annotations

import bisect
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from oracle import reference
from support import remote

from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.io.remote.files import PRICES
from rmqstore_spark.store.structures.batch_queue import BatchQueue
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.queue_cursor import QueueCursor


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
        if rng.random() < 0.5:
            cursor.look_at_ends()
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
    assert max(costs) <= 3
    assert costs[1] <= costs[0] + 0.5


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
            elif pair[0] % 2:
                cursor.look_at_ends()
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


def test_a_search_between_both_ends_costs_few_requests(tmp_path: Path, rng: random.Random) -> None:
    """Where a queue goes on evenly."""
    files = remote.remote_files(PRICES)
    queue = _queue(tmp_path, list(range(100, 100 + 100 * 250_000, 100)), 300_000, files=files)
    queue.end  # noqa: B018
    files.requests = 0
    cursor, number = QueueCursor(queue), rng.randrange(10_000, 240_000)
    cursor.look_at_ends()
    assert cursor.seek(100 + 100 * number) == number
    assert files.requests <= 3


@dataclass
class Worn:
    """A queue, and all units that its files have, by number.

    Attributes:
        first: what its first file's name says.
        is_ordered: whether all that are before an offset come before all that are not.
    """

    queue: Queue
    first: int
    units: dict[int, reference.ReadUnit]
    is_ordered: bool

    def is_before(self, number: int, position: int) -> bool:
        unit = self.units[number]
        return unit.kind == "pre-blank" or (unit.kind != "nothing" and unit.physical_offset < position)

    def answer(self, position: int, stop: int | None = None) -> int:
        """The number after the last unit before an offset."""
        before = [n for n in self.units if (stop is None or n < stop) and self.is_before(n, position)]
        return max(before) + 1 if before else self.first


def _worn_queue(root: Path, rng: random.Random, files: Files, is_batch: bool) -> Worn:
    per_file = rng.choice((1, 7, 130, 1000))
    count, at = rng.choice((0, 1, 5, 100, 1500)), rng.choice((0, 0, 900))
    blanks = 0 if is_batch else rng.choice((0, 0, 3)) % per_file
    raw = [(0, 0x7FFFFFFF)] * blanks
    for _ in range(count):
        raw.append((at, rng.randrange(100, 200)))
        at += rng.choice((200, 200, 5000))
    if (
        len(raw) > blanks and not is_batch and rng.random() < 0.3
    ):  # a salvage has put units there for messages that it has not found
        where = rng.randrange(blanks, len(raw))
        before = raw[where - 1][0] if where else 0
        raw[where:where] = [(max(before, raw[where][0] - 8), 9)] * rng.choice((1, 200))
    is_ordered = True
    if raw and rng.random() < 0.3:  # left over from a truncated log
        where = rng.randrange(len(raw))
        raw[where:] = [(max(0, position - 3000), size) for position, size in raw[where:]]
        is_ordered = False
    if raw and rng.random() < 0.3:  # a block of the disk is lost
        where, count = rng.randrange(len(raw)), rng.choice((1, 50))
        raw[where : where + count] = [(0, 0)] * len(raw[where : where + count])
        is_ordered = False
    if raw and rng.random() < 0.2:
        raw[rng.randrange(len(raw))] = rng.choice([(-5, 100), (1, -1), ((1 << 63) - 1, 100), (0, 0x7FFFFFFF)])
        is_ordered = False
    size = reference.BATCH_UNIT_SIZE if is_batch else reference.QUEUE_UNIT_SIZE
    if is_batch:
        data = [reference.encode_batch_unit(*unit, 0, 5, 3 * n, 2) for n, unit in enumerate(raw)]
    else:
        data = [reference.encode_queue_unit(*unit, 0) for unit in raw]
    first, units = rng.choice((0, 2)) * per_file, {}
    for begin in range(0, len(data), per_file):
        here = b"".join(data[begin : begin + per_file]).ljust(per_file * size, b"\0")
        if rng.random() < 0.1:
            here = here[: rng.randrange(len(here))]  # cut short
        if rng.random() < 0.9:  # else the file is missing
            (root / f"{(first + begin) * size:020d}").write_bytes(here)
            for n in range(len(here) // size):
                unit = reference.read_queue_unit(here[n * size :][:size], first + begin + n)
                units[first + begin + n] = unit
    names = [int(path.name) // size for path in root.iterdir()]
    return Worn((BatchQueue if is_batch else Queue)(str(root), "T", 0, files), min(names, default=0), units, is_ordered)


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize("is_remote", [False, True])
def test_as_all_units_looked_at(tmp_path: Path, rng: random.Random, is_batch: bool, is_remote: bool) -> None:
    """Whatever was sought before. Where units are not in order, the answer is one of the borders."""
    files = remote.remote_files(PRICES) if is_remote else Files()
    ordered = borders = 0
    for number in range(60):
        root = tmp_path / str(number)
        root.mkdir()
        worn = _worn_queue(root, rng, files, is_batch)
        at = [unit.physical_offset for unit in worn.units.values()] or [0]
        numbers = sorted(worn.units) or [0]
        stop = rng.choice((None, None, rng.choice(numbers), numbers[-1] + 5))
        cursor = QueueCursor(worn.queue, stop)
        places = [max(0, rng.choice(at) + rng.choice((-1, 0, 1, 150))) for _ in range(25)] + [0, 1, 1 << 62]
        rng.shuffle(places)
        if rng.random() < 0.5:
            places.sort()
        for place in places:
            found = cursor.seek(place)
            if worn.is_ordered:
                assert found == worn.answer(place, stop), (place, stop)
                ordered += 1
                continue
            inside = [n for n in numbers if stop is None or n < stop] if worn.units else []
            before, after = [n for n in inside if n < found], [n for n in inside if n >= found]
            assert not before or worn.is_before(before[-1], place), (place, found)
            assert not after or not worn.is_before(after[0], place), (place, found)
            borders += 1
            unit = cursor.unit(found)
            there = worn.units.get(found)
            is_message = there is not None and there.kind == "message"
            assert (unit is not None and unit.fields) == (is_message and there is not None and there[:3])
    assert ordered > 300
    assert borders > 300
