"""Rows between queue offsets are those of the full scan, and what is read for them is what the queue names."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from oracle import reference, stores
from support import reading

from rmqstore_spark.query.selection import Numbers
from rmqstore_spark.read.pieces.task import Queued, Range
from rmqstore_spark.read.plan.prune import in_time, ranges_of
from rmqstore_spark.read.plan.stores import open_stores
from rmqstore_spark.store import queue_coverage
from rmqstore_spark.store.io.files import Files

KIB = 1 << 10


def _store(root: Path) -> stores.StoreBuilder:
    """One message in 25 is of queue 1 of topic Rare, so that two of them are further apart than a request is worth."""
    store = stores.StoreBuilder(root, segment_size=256 * KIB, queue_file_size=200, index=False)
    for number in range(500):
        topic, queue_id = ("Rare", 1) if number % 25 == 12 else (f"T{number % 3}", 0)
        store.append(topic=topic, queue_id=queue_id, body=b"x" * 2000)
    store.close()
    return store


def _asked(least: int, most: int) -> dict[str, Any]:
    """Options for the queue offsets [least, most]."""
    return {
        "assign": json.dumps({"Rare": [1]}),
        "startingOffsets": json.dumps({"Rare": {"1": least}}),
        "endingOffsets": json.dumps({"Rare": {"1": most + 1}}),
    }


def _expected(root: Path, least: int, most: int) -> list[int]:
    return [
        row["commitLogOffset"]
        for row in reading.read(root)
        if (row["topic"], row["queueId"]) == ("Rare", 1) and least <= row["queueOffset"] <= most
    ]


def _found(root: Path, least: int, most: int) -> list[int]:
    rows = reading.read(root, columns=["commitLogOffset"], **_asked(least, most))
    return [row["commitLogOffset"] for row in rows]


def _ranges(root: Path, least: int, most: int) -> list[Range]:
    return [r for task in reading.make_plan(root, **_asked(least, most)).tasks for r in task.ranges]


@pytest.mark.parametrize(("least", "most"), [(1, 1), (1, 3), (7, 7), (7, 9), (3, 18), (19, 19)])
def test_each_message_is_a_piece(tmp_path: Path, least: int, most: int) -> None:
    store = _store(tmp_path)
    mine = [m for m in store.messages if m.topic == "Rare" and least <= m.queue_offset <= most]
    assert [(r.start, r.stop) for r in _ranges(tmp_path, least, most)] == [(m.position, m.end) for m in mine]
    assert _found(tmp_path, least, most) == [m.position for m in mine] == _expected(tmp_path, least, most)


def test_before_a_queues_first_message_all_is_read(tmp_path: Path) -> None:
    """A topic may have been deleted and made anew: the log has older messages with these offsets."""
    store = _store(tmp_path)
    first = next(m for m in store.messages if m.topic == "Rare")
    assert [(r.start, r.stop) for r in _ranges(tmp_path, 0, 0)] == [(0, first.end)]


def test_close_ones_are_read_with_what_is_between_them(tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path, index=False)
    for number in range(200):
        store.append(topic=("Rare", "Other")[number % 2], queue_id=1)
    store.close()
    mine = [m for m in store.messages if m.topic == "Rare" and 10 <= m.queue_offset <= 20]
    (only,) = _ranges(tmp_path, 10, 20)
    assert (only.start, only.stop) == (mine[0].position, mine[-1].end)
    assert _found(tmp_path, 10, 20) == _expected(tmp_path, 10, 20)


def _rewrite(store: stores.StoreBuilder, number: int, unit: bytes) -> None:
    """Another unit at a queue offset."""
    start, at = divmod(number * reference.QUEUE_UNIT_SIZE, store.queue_file_size)
    path = store.queue_directory("Rare", 1) / f"{start * store.queue_file_size:020d}"
    data = bytearray(path.read_bytes())
    data[at : at + len(unit)] = unit
    path.write_bytes(data)


def _unit_of(message: stores.Stored) -> bytes:
    return reference.encode_queue_unit(message.position, message.size, 0)


@pytest.mark.parametrize("lie", ["another message", "the next one", "not used", "no unit", "beyond the log"])
def test_a_queue_that_lies_costs_no_row(tmp_path: Path, lie: str) -> None:
    store = _store(tmp_path)
    mine = [m for m in store.messages if m.topic == "Rare"]
    lies = {
        "another message": _unit_of(store.messages[3]),
        "the next one": _unit_of(mine[9]),
        "not used": bytes(20),
        "no unit": reference.encode_queue_unit(mine[8].position + 4, mine[8].size, 0),
        "beyond the log": reference.encode_queue_unit(1 << 40, mine[8].size, 0),
    }
    _rewrite(store, 8, lies[lie])
    for least, most in ((8, 8), (7, 9), (6, 8), (8, 11)):
        assert _found(tmp_path, least, most) == _expected(tmp_path, least, most) != []


def test_what_is_left_of_a_truncated_log_is_not_found(tmp_path: Path, rng: random.Random) -> None:
    """The old unit of a queue, and the message that it points to, may both still stand there."""
    is_left = 0
    for number in range(4):
        root = tmp_path / str(number)
        store = _store(root)
        store.forget_last(rng.randrange(30, 75))
        store.append(
            topic="T0", queue_id=0, body=b"x" * 200 * KIB
        )  # it goes into the next segment, where there is no room
        for _ in range(rng.choice((0, 40))):
            store.append(topic="T1", queue_id=0, body=b"x" * 900)
        store.close()
        for asked in range(15, 20):
            assert _found(root, asked, asked) == _expected(root, asked, asked)
            is_left += not _expected(root, asked, asked)
    assert is_left > 0


@pytest.mark.parametrize("size", [100, 1024])
def test_a_time_range_costs_a_request_for_each_segment(size: int, tmp_path: Path) -> None:
    store = stores.StoreBuilder(tmp_path, segment_size=16 * KIB, index=False)
    for _ in range(60 * 16 * KIB // (size + 130)):
        store.append(body=b"x" * size)
    store.close()
    files = Files()
    (opened,) = open_stores(reading.options_of(tmp_path), files)
    segments = len(opened.log.extents)
    assert segments > 50
    before = files.requests
    middle = store.messages[len(store.messages) // 2].store_timestamp
    assert in_time(opened, ranges_of(opened), Numbers(middle, middle))
    assert files.requests - before <= segments + 1  # and the end of the checkpoint


@pytest.mark.parametrize("often", [False, True], ids=["once", "each time"])
def test_units_that_come_between_two_walks_contradict_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, often: bool
) -> None:
    """Of a broker that runs. The queues are walked along once more then; a read that never finds them at rest scans,
    and has its rows."""
    store = stores.StoreBuilder(tmp_path, 256 * KIB, queue_file_size=20_000)
    for number in range(100):
        store.append(topic=("Rare", "T0")[number % 2], queue_id=number % 2 ^ 1, body=b"x" * 2000)
    store.flush()
    for number in range(40):
        store.append(topic=("Rare", "T0")[number % 2], queue_id=number % 2 ^ 1, body=b"x" * 2000)
    late = store._queues["T0", 0]  # does not know its messages yet, unlike the other
    units = bytes(late.pending)
    late.pending.clear()
    store.flush()
    walks, real = list[int](), queue_coverage._sorted_out

    def sorted_out(*given: Any) -> Any:
        walks.append(len(walks))
        if often or len(walks) == 1:
            late.pending += units[len(walks) * 20 - 20 : len(walks) * 20]
            store.flush()
        return real(*given)

    monkeypatch.setattr(queue_coverage, "_sorted_out", sorted_out)
    expected = [row["commitLogOffset"] for row in reading.read(tmp_path) if row["topic"] == "Rare"]
    plan = reading.make_plan(tmp_path, subscribe="Rare", prices=reading.FREE)
    assert len(walks) == 2
    found = [row["commitLogOffset"] for row in reading.read(tmp_path, subscribe="Rare", prices=reading.FREE)]
    assert found == expected
    assert caplog.messages == []
    assert any(isinstance(piece, Queued) for task in plan.tasks for piece in task.ranges)
