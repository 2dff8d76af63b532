"""Of writers that work on one store at a time, each writes all its rows or says that the store is locked, wherever the
others are meanwhile: also while they make, sweep or delete their directories. Readers beside one see all of its rows
or none."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.killing import ours, rows
from support.writing import ROWS, SIZES, SMALL, write

import rmqstore_spark
from rmqstore_spark import RmqStoreError, Store
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.write.fs import calls

WRITERS = 6
WRITES = 12  # of each writer


def test_writers_beside_each_other(
    home: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each change on disk may wait a little, so that the writers meet at all of them."""
    pauses = [rng.choice([0, 0, 0.0002, 0.001]) for _ in range(10_007)]
    told: list[str] = []
    real = calls.do

    def do(call: Any, path: str, *arguments: Any) -> Any:
        time.sleep(pauses.pop() if pauses else 0)
        return real(call, path, *arguments)

    def write(store: Path) -> None:
        for _ in range(WRITES):
            try:
                rmqstore_spark.write_store(store, [ROWS])
            except RmqStoreError as why:
                told.append(str(why))

    monkeypatch.setattr(calls, "do", do)
    written = 0
    for number in range(3):
        store = home / f"store{number}"
        rmqstore_spark.write_store(store, [ROWS], **SIZES)
        told.clear()
        with ThreadPoolExecutor(WRITERS) as threads:
            for done in [threads.submit(write, store) for _ in range(WRITERS)]:
                done.result()
        assert [text for text in told if "locked: expected a store that nobody uses" not in text] == []
        assert Store(store).messages("topic").read_all().num_rows == 10 * (1 + WRITERS * WRITES - len(told))
        assert not (store / ".rmqstore-spark").exists() or not list((store / ".rmqstore-spark").glob("staging-*"))
        written += WRITERS * WRITES - len(told)
    assert 0 < written < 3 * WRITERS * WRITES
    assert not caplog.records


@pytest.mark.parametrize("segment", [4096, 1 << 16], ids=["files", "in place"])
def test_a_reader_at_each_change_of_a_write(home: Path, monkeypatch: pytest.MonkeyPatch, segment: int) -> None:
    """Also between the moment when the messages come and that when queues know them: the writer holds the lock then, as
    a broker does that may be writing its last message just now."""
    root, sizes, real = home / "store", Sizes(segment, SMALL.queue_file, SMALL.slots, SMALL.items), calls.do
    write(root, rows(10, "Old"), sizes=sizes)
    none, found = ours(root), list[list[str]]()

    def do(call: Any, path: str, *arguments: Any) -> Any:
        answer = real(call, path, *arguments)
        if ".rmqstore-spark/" not in path and call.__name__ not in ("fsync", "unlink_at"):
            found.append(ours(root))
        return answer

    monkeypatch.setattr(calls, "do", do)
    write(root, rows(10, "New", 100), sizes=sizes)
    all_ = none + [f"New-{number}" for number in range(100, 110)]
    assert [each for each in found if each not in (none, all_)] == []
    assert found.count(none) > 2
    assert found.count(all_) > 5
