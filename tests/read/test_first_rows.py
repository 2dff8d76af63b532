"""The first rows of a read cost no more in a store of many segments."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from oracle.stores import StoreBuilder
from support.reading import read

from rmqstore_spark import Store
from rmqstore_spark.read import scan
from rmqstore_spark.read.plan import deferred
from rmqstore_spark.store.io.files import Files, OpenFile, Pin


def built(root: Path, segments: int) -> int:
    """A store with so many segments: the number of its messages."""
    store = StoreBuilder(root, segment_size=16 * 1024)
    while store.end < segments * store.segment_size:
        store.append("T", b"x" * 200, queue_id=len(store.messages) % 2, tags="TagA")
    store.close()
    return len(store.messages)


@pytest.mark.parametrize(
    ("columns", "task_bytes"),
    [(["queueOffset"], 8192), (["queueOffset", "body"], 8192), (["queueOffset", "body"], 1 << 30)],
    ids=["narrow", "with bodies", "in one task"],
)
def test_segments_are_opened_when_their_turn_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: list[str], task_bytes: int
) -> None:
    """Those of the first jobs, and a few at the log's end."""
    monkeypatch.setattr(scan, "workers", lambda: 2)
    monkeypatch.setattr(deferred, "_SEGMENTS_AT_ONCE", 1)
    opened: set[str] = set()
    file = Files.file

    def noted(self: Files, path: str, is_log: bool = False, pin: Pin | None = None) -> OpenFile:
        if is_log:
            opened.add(path)
        return file(self, path, is_log, pin)

    monkeypatch.setattr(Files, "file", noted)
    for segments in (40, 120):
        root = tmp_path / str(segments)
        count = built(root, segments)
        opened.clear()
        batches = Store(root).messages(columns, maxPartitionBytes=task_bytes)
        rows = batches.read_next_batch().num_rows
        # Threads may begin 16 jobs before their turn: how many of them they began is a matter of their timing.
        assert len(opened) <= 25
        rows += batches.read_all().num_rows
        assert rows == count == len(read(root))
        assert len(opened) >= segments


def test_a_store_is_named_without_a_look_at_its_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That they are files, and how large, is asked by the first call."""
    looked_at: list[str] = []
    status = Files.status

    def noted(self: Files, path: str) -> os.stat_result:
        looked_at.append(path)
        return status(self, path)

    monkeypatch.setattr(Files, "status", noted)
    for number in range(3):
        (tmp_path / "commitlog" / f"{number * 1024:020d}").mkdir(parents=True)
    Store(tmp_path)
    assert not [path for path in looked_at if "commitlog/" in path]
    assert Store(tmp_path).messages().read_all().num_rows == 0
    assert len([path for path in looked_at if "commitlog/" in path]) >= 3
