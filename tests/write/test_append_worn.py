"""Appends to stores that were cut, damaged and robbed of queue files: what is whole stays, no offset is given twice."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oracle import reference
from oracle.worn_stores import TOPICS, Worn, worn_store
from support.writing import files, write

import rmqstore_spark
from rmqstore_spark import Store
from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.store.format.sizes import Sizes

Key = tuple[Any, ...]
SAMPLE = Path(__file__).parents[2] / "sample_store"


def _units_from(root: Path, end: int) -> Iterator[reference.Unit]:
    """The messages of a log from a physical offset on, at which one begins."""
    for path in reference.segment_files(root):
        start, data = int(path.name), path.read_bytes()
        at = max(0, end - start)
        while at < len(data):
            try:
                size = reference.check_unit(data[at:], start + at, len(data) - at)
            except reference.Corrupt:
                break
            yield reference.parse_unit(data[at : at + size], start + at)
            at += size


def _errors(root: Path) -> set[Key]:
    columns = ["severity", "problem", "topic", "queueId", "queueOffset", "commitLogOffset"]
    rows = Store(str(root)).check(columns=columns).to_pylist()
    return {tuple(row.values()) for row in rows if row["severity"] == "error"}


def _append(worn: Worn, rng: random.Random) -> None:
    rows = [
        {"topic": rng.choice((*TOPICS, "New")), "queueId": rng.randrange(3), "body": b"new" * rng.randrange(40)}
        for _ in range(rng.choice((1, 1, 5, 30)))
    ]
    write(worn.store.root, rows, sizes=Sizes(slots=20, items=50))


def _assert_appended(worn: Worn, before: dict[tuple[str, int, int], reference.QueueUnit]) -> None:
    root, after = worn.store.root, worn.units()
    new = list(_units_from(root, worn.store.end))
    assert new
    given = {(m.topic, m.queue_id): m.queue_offset for m in sorted(worn.whole, key=lambda m: m.queue_offset)}
    for message in (m for topic in TOPICS for queue_id in range(2) for m in worn.known((topic, queue_id))):
        queue = message.topic, message.queue_id
        assert after[*queue, message.queue_offset] == before[*queue, message.queue_offset]
        given[queue] = max(given.get(queue, -1), message.queue_offset)  # damaged ones keep their places
    for unit in new:
        queue = unit.topic.decode(), unit.queue_id
        assert unit.queue_offset > given.get(queue, -1), queue
        given[queue] = unit.queue_offset
        found = after[*queue, unit.queue_offset]
        assert (found.physical_offset, found.size) == (unit.physical_offset, unit.total_size)


def _assert_rebuilt(worn: Worn) -> None:
    """Each message has its unit, whatever was lost, and twice is once."""
    root = worn.store.root
    expected = {
        (unit.topic.decode(), unit.queue_id, unit.queue_offset): unit.physical_offset
        for unit in _units_from(root, worn.store.start)
        if unit.sys_flag & reference.TRANSACTION_BITS in (0, reference.COMMIT)
    }
    count = rmqstore_spark.rebuild(str(root))
    assert count == len(expected)
    once = files(root / "consumequeue", "*/*/*")
    found = worn.units()
    assert {key: found[key].physical_offset for key in expected} == expected
    rmqstore_spark.rebuild(str(root))
    assert files(root / "consumequeue", "*/*/*") == once


def append_to_worn(root: Path, rng: random.Random, check: bool = False) -> str:
    """What came of it."""
    worn = worn_store(root, rng)
    before = worn.units()
    errors = _errors(root) if check else set()
    everything = {name: data for name, data in files(root, "**/*").items() if not name.startswith(".rmqstore")}
    refused = None
    try:
        _append(worn, rng)
    except DamagedStoreError as why:
        refused = str(why)
    if refused is not None:
        assert {n: d for n, d in files(root, "**/*").items() if not n.startswith(".rmqstore")} == everything
        if worn.damaged:
            return "refused, damaged"
        assert "rebuild" in refused
        _assert_rebuilt(worn)
        before = worn.units()
        _append(worn, rng)
    _assert_appended(worn, before)
    if check and refused is None:
        # What a queue has left over of places after the log's end is no more than a warning, until the log is so long.
        new = _errors(root) - errors
        assert not [each for each in new if each[1] != "extraQueueUnit" or each[-1] < worn.store.end], new
    if not worn.damaged:
        _assert_rebuilt(worn)
        before = worn.units()
        _append(worn, rng)
        _append(worn, rng)
        _assert_appended(worn, before)
    return "appended" if refused is None else "refused"


def test_appends_to_worn_stores(tmp_path: Path, rng: random.Random) -> None:
    outcomes: Counter[str] = Counter()
    for number in range(25):
        outcomes[append_to_worn(tmp_path / str(number), rng, check=number % 5 == 0)] += 1
        shutil.rmtree(tmp_path / str(number))
    assert outcomes["appended"] > 5, outcomes


@pytest.mark.parametrize("damaged", [[7], [14], [7, 14], [3, 6], list(range(15)), [0]])
def test_a_damaged_message_keeps_its_place(tmp_path: Path, damaged: list[int]) -> None:
    root = tmp_path / "store"
    shutil.copytree(SAMPLE, root)
    units = {n: unit for t, q, n, unit in reference.read_queues(root) if (t, q) == ("Plain", 0)}
    assert max(units) == 14
    for number in damaged:
        start, path = max((int(p.name), p) for p in reference.segment_files(root) if int(p.name) <= units[number][0])
        data = bytearray(path.read_bytes())
        data[units[number].physical_offset - start + 4] ^= 1
        path.write_bytes(data)
    row = next(r for r in Store(str(root)).queues().to_pylist() if (r["topic"], r["queueId"]) == ("Plain", 0))
    assert row["maxOffset"] == 15
    write(root, [{"topic": "Plain", "queueId": 0, "body": b"x"}], sizes=Sizes())
    after = {n: unit for t, q, n, unit in reference.read_queues(root) if (t, q) == ("Plain", 0)}
    assert {n: unit for n, unit in after.items() if n < 15} == units
    assert max(after) == 15
