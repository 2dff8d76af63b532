"""Holds benchmarks/wide.py to the oracle: what is measured on its stores counts only if brokers could leave such."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import pytest
from oracle import index, log, queue, unit

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SEGMENT_SIZE = 64 << 10
QUEUES, SEGMENTS = 10, 4


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """benchmarks/wide.py, which is in no package."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("wide")
    for name in {"wide", "generate"} - before:
        del sys.modules[name]


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 2])
def test_wide_store(wide: ModuleType, tmp_path: Path, every: int) -> None:
    shape = wide.Shape(QUEUES, SEGMENTS, every, segment_size=SEGMENT_SIZE)
    store = wide.wide_store(tmp_path / "store", shape)

    units = [(at, unit.parse_unit(data, at)) for at, data in log.read_units(store.root)]
    rows = {row["commitLogOffset"]: row for row in log.read_store(store.root)}
    assert len(list((store.root / "commitlog").iterdir())) == SEGMENTS
    counts = Counter(row["topic"] for row in rows.values())
    large = wide.LARGE_OF_SEGMENT * (SEGMENTS - 1) + wide.LARGE_OF_LAST
    assert (counts.pop(wide.SMALL_TOPIC), counts.pop(wide.LARGE_TOPIC)) == (wide.SMALL_COUNT, large)
    in_each = wide.QUEUES_OF_TOPIC * SEGMENTS
    assert counts == {"Topic00000": in_each, "Topic00001": in_each // every}

    files = {
        str(file.relative_to(store.root / "consumequeue")): file.read_bytes()
        for file in (store.root / "consumequeue").glob("*/*/*")
    }
    assert files == queue.expected_queues(units, wide.CQ_FILE_UNITS * wide.CQ_UNIT.itemsize)

    entries = [
        (index.index_hash(topic, key), at, each.store_timestamp)
        for at, each in units
        for topic, key in index.unit_index_keys(each)
    ]
    (expected,) = index.build_index(entries, len(entries) // wide.ITEMS_OF_SLOT, len(entries) + 1)
    (found,) = (store.root / "index").iterdir()
    assert found.read_bytes() == expected.encode()

    message = asdict(store.message)
    row = rows[message["commitLogOffset"]]
    assert message.pop("key") == row["keys"]
    assert message == {name: row[name] for name in message}


def test_index_files_are_filled_up(wide: ModuleType, tmp_path: Path) -> None:
    """Made-up keys point to messages too, in log order, and the real ones are all there."""
    files, items = 3, 500
    shape = wide.Shape(QUEUES, SEGMENTS, index_files=files, index_items=items, segment_size=SEGMENT_SIZE)
    store = wide.wide_store(tmp_path / "store", shape)
    units = [(at, unit.parse_unit(data, at)) for at, data in log.read_units(store.root)]
    positions = [at for at, _ in units]
    wanted = {(index.index_hash(*key), at) for at, each in units for key in index.unit_index_keys(each)}

    entries = []
    for path in sorted((store.root / "index").iterdir()):
        found = index.read_index(path.read_bytes(), items // wide.ITEMS_OF_SLOT)
        assert len(found) == items
        entries += [(item.key_hash, item.physical_offset) for item in found]
    assert len(entries) == files * items
    assert wanted <= set(entries)
    assert [at for _, at in entries] == sorted(at for _, at in entries)
    assert {at for _, at in entries} == set(positions)
