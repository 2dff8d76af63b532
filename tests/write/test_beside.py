"""Of writers that work on one store at a time, each writes all its rows or says that the store is locked, wherever the
others are meanwhile: also while they make, sweep or delete their directories."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.writing import ROWS, SIZES

import rmqstore_spark
from rmqstore_spark import RmqStoreError, Store
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
