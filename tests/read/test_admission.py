"""A stream's limit counts messages, also those of batches; a batch is read as a whole."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from oracle import aged_stores, reference
from support import reading
from support.following import Query

from rmqstore_spark.read.follow import admission

COLUMNS = ["commitLogOffset", "queueOffset", "topic", "queueId", "batchIndex"]


def _limited(units: list[list[dict[str, Any]]], most: int) -> list[list[dict[str, Any]]]:
    """The rows of each micro-batch: as many units as have no more messages than that, and at least one."""
    found: list[list[dict[str, Any]]] = []
    for unit in units:
        if found and len(found[-1]) + len(unit) <= most:
            found[-1] += unit
        else:
            found.append(list(unit))
    return found


@pytest.mark.parametrize("at_once", [1, 3, 16 * 1024])
def test_batches_are_counted(tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """However many rows are decoded at once."""
    monkeypatch.setattr(admission, "_ROWS_AT_ONCE", at_once)
    seen = 0
    for number in range(40):
        root = tmp_path / str(number)
        _, is_cut = aged_stores.aged_store(root, rng, batches=True)
        if is_cut or not reference.read_store(root):
            continue
        options: dict[str, Any] = rng.choice(({}, {"subscribe": aged_stores.BATCHES}, {"tags": "Aa || TagC"}))
        if options.get("subscribe", "") not in {"", *(row["topic"] for row in reading.read(root))}:
            continue
        units: dict[int, list[dict[str, Any]]] = {}
        for row in reading.read(root, **options):
            units.setdefault(row["commitLogOffset"], []).append(row)
        most = rng.choice((1, 2, 5, 9, 40))
        query = Query(root, startingOffsets="earliest", maxOffsetsPerTrigger=most, **options)
        batches = []
        while (batch := query.trigger()) is not None:
            if batch:
                batches.append([row["commitLogOffset"] for row in batch])
        limited = _limited(list(units.values()), most)
        assert batches == [[row["commitLogOffset"] for row in each] for each in limited]
        seen += sum(len(unit) > 1 for unit in units.values())
        if seen > 5:
            break
    assert seen > 5
