"""Of a window's damaged messages the queues, asked once, tell the sizes that a search tells."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from oracle.stores import StoreBuilder
from oracle.worn_stores import worn_store
from support import reading

from rmqstore_spark.store.structures import queue_sizes
from rmqstore_spark.store.structures.queue_cursor import QueueCursor
from rmqstore_spark.store.structures.queue_sizes import QueueSizes
from rmqstore_spark.store.structures.queues import ConsumeQueues


def _searched(queues: ConsumeQueues, position: int) -> set[int]:
    """What each queue says when it is searched for a position alone."""
    units = (queue.unit(QueueCursor(queue).seek(position)) for queue in queues)
    return {unit.size for unit in units if unit is not None and unit.position == position}


def test_as_a_search_for_each(tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where queues are lost, cut, or have old units, and whatever the windows."""
    found = 0
    for _ in range(12):
        shutil.rmtree(tmp_path / "store", ignore_errors=True)
        worn = worn_store(tmp_path / "store", rng)
        monkeypatch.setattr(queue_sizes, "WINDOW", rng.choice((256, 1024, 4096, 1 << 24)))
        queues = ConsumeQueues(str(tmp_path / "store" / "consumequeue"), reading.new_files())
        sizes = QueueSizes(queues)
        places = [message.position for message in worn.store.messages]
        for position in [*rng.sample(places, min(12, len(places))), 0, 1, worn.store.end, 1 << 40]:
            told = set(sizes.at(position))
            # Old units are behind the queue's end: a search may end among them, and sees one end only.
            if worn.was_cut:
                assert QueueSizes(queues).at(position) == sizes.at(position)
            else:
                assert told == _searched(queues, position)
            found += bool(told)
    assert found


def _searches(root: Path, damages: int, topics: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many searches of queues a read makes where nothing but a queue says how long damaged messages were."""
    store = StoreBuilder(root, segment_size=1 << 20, queue_file_size=20_000)
    for number in range(damages + topics):
        store.append(topic=f"T{number % topics}", body=b"b" * 30)
        store.append(topic="Gone", body=b"b" * 30)
    store.close()
    shutil.rmtree(root / "consumequeue" / "Gone")
    with store.segment(0).open("r+b") as file:
        for message in store.messages[: 2 * damages : 2]:
            file.seek(message.position)
            file.write(b"\xff" * message.size)
    count = 0
    seek = QueueCursor.seek

    def counted(cursor: QueueCursor, position: int) -> int:
        nonlocal count
        count += 1
        return seek(cursor, position)

    with monkeypatch.context() as patched:
        patched.setattr(QueueCursor, "seek", counted)
        rows = reading.read(root, mode="DROPMALFORMED")
    assert len(rows) == damages + 2 * topics
    return count


def test_searches_do_not_grow_with_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few, damaged, wide = (
        _searches(tmp_path / f"{damages}-{topics}", damages, topics, monkeypatch)
        for damages, topics in ((20, 10), (80, 10), (20, 40))
    )
    assert damaged <= few + 10
    assert wide <= 4 * few + 10
