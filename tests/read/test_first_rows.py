"""The first rows of a read cost no more in a store of many segments."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle.stores import StoreBuilder
from support.reading import read

from rmqstore_spark import Store
from rmqstore_spark.read import scan
from rmqstore_spark.store.io.files import Files, OpenFile, Pin


def built(root: Path, segments: int) -> int:
    """A store with so many segments: the number of its messages."""
    store = StoreBuilder(root, segment_size=16 * 1024)
    while store.end < segments * store.segment_size:
        store.append("T", b"x" * 200, queue_id=len(store.messages) % 2, tags="TagA")
    store.close()
    return len(store.messages)


@pytest.mark.parametrize("columns", [["queueOffset"], ["queueOffset", "body"]], ids=str)
def test_segments_are_opened_when_their_turn_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: list[str]
) -> None:
    """Those of the first jobs, and a few at the log's end."""
    monkeypatch.setattr(scan, "workers", lambda: 2)
    opened: set[str] = set()
    file = Files.file

    def noted(self: Files, path: str, is_log: bool = False, pin: Pin | None = None) -> OpenFile:
        if is_log:
            opened.add(path)
        return file(self, path, is_log, pin)

    monkeypatch.setattr(Files, "file", noted)
    found = {}
    for segments in (40, 120):
        root = tmp_path / str(segments)
        count = built(root, segments)
        opened.clear()
        batches = Store(root).messages(columns, maxPartitionBytes=8192)
        rows = batches.read_next_batch().num_rows
        found[segments] = len(opened)
        rows += batches.read_all().num_rows
        assert rows == count == len(read(root))
        assert len(opened) >= segments
    assert found[120] <= found[40] <= 25
