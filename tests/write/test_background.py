"""Many files are brought to disk several at a time: all of them, or an error."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from support import writing
from support.reading import read

import rmqstore_spark
from rmqstore_spark.store.sizes import Sizes
from rmqstore_spark.write import disk
from rmqstore_spark.write.background import for_each

MANY = 2000


@pytest.mark.parametrize("count", [0, 1, 500, MANY])
def test_each_is_done_once(count: int) -> None:
    done: list[int] = []
    for_each(range(count), done.append)
    assert sorted(done) == list(range(count))


def test_many_are_done_by_several_threads() -> None:
    threads = set()
    meeting = threading.Barrier(2, timeout=10)

    def work(item: int) -> None:
        threads.add(threading.get_ident())
        if item in (0, MANY - 1):
            meeting.wait()  # the first and the last at the same time

    for_each(range(MANY), work)
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_error_no_other_is_begun(error: type[BaseException]) -> None:
    begun: list[int] = []

    def work(item: int) -> None:
        begun.append(item)
        if item == 100:
            raise error("that one")

    with pytest.raises(error, match="that one"):
        for_each(range(100 * MANY), work)
    assert len(begun) < 50 * MANY


def test_all_of_many_queues_come_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More queues than are brought to disk one by one: each file and directory is, before the commit point."""
    synced: set[str] = set()
    was_published = False
    do = disk._do

    def recorded(call: Any, path: str, *arguments: Any) -> Any:
        nonlocal was_published
        name = getattr(call, "__name__", "")
        was_published = was_published or "exchange" in name
        if name == "fsync" and not was_published:
            synced.add(path)
        return do(call, path, *arguments)

    queues = 700
    rows = [{"topic": f"T{n // 7}", "queueId": n % 7, "body": b"%d" % n} for n in range(queues)]
    writing.write(tmp_path, rows[:1], sizes=Sizes(slots=1000, items=5000))
    monkeypatch.setattr(disk, "_do", recorded)
    writing.write(tmp_path, rows, sizes=Sizes())
    monkeypatch.undo()
    assert was_published
    files = {path for path in synced if "/new/consumequeue/" in path and path.endswith("0" * 20)}
    assert len(files) == queues
    assert {path.rpartition("/")[0] for path in files} <= synced
    before = read(tmp_path)
    assert len(before) == queues + 1
    assert rmqstore_spark.rebuild(tmp_path) == queues + 1
    assert read(tmp_path) == before
