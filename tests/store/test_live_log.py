"""Which units are of today's log: never one too many, and without a walk where queues can tell."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from oracle import stores
from support import reading

from rmqstore_spark.store.files import Files
from rmqstore_spark.store.opened import OpenStore


def test_live_is_what_a_full_scan_gives(tmp_path: Path, rng: random.Random) -> None:
    """On logs that were cut within a segment and went on in the next one: of all that once was a message."""
    left_over = 0
    for number in range(30):
        root = tmp_path / str(number)
        once = _cut_store(root, rng)
        live = {row["commitLogOffset"] for row in reading.read(root, columns=["commitLogOffset"])}
        for position in rng.sample(sorted(live | once), min(40, len(live | once))):
            log = OpenStore.find(str(root), Files()).log
            if log.header(position) is not None:
                assert position in live or not log.is_live(position)
                assert log.is_live(position, however_far=True) == (position in live)
                left_over += position not in live
    assert left_over > 0


def _cut_store(root: Path, rng: random.Random) -> set[int]:
    """A store, and where its messages were before a part of them was forgotten."""
    store = stores.StoreBuilder(root, segment_size=8192, queue_file_size=rng.choice((200, 2000)), index=False)
    queues = rng.choice((1, 3, 10))

    def append(count: int) -> None:
        for _ in range(count):
            store.append(topic=f"T{rng.randrange(queues)}", queue_id=0, body=b"b" * rng.randrange(300))

    append(rng.randrange(60, 150))
    once = {message.position for message in store.messages}
    store.forget_last(rng.randrange(5, 30))
    store.append(topic="T0", queue_id=0, body=b"b" * 7000)  # it goes into a segment of its own
    append(rng.randrange(60))
    store.close()
    return once


@pytest.mark.parametrize("queues", [3, 40])
def test_no_walk_where_a_queue_goes_on(tmp_path: Path, queues: int) -> None:
    """However far before the end of its segment the first queues of the next one were last written."""
    store = stores.StoreBuilder(tmp_path, segment_size=1 << 22, queue_file_size=4000, index=False)
    for number in range(900):
        store.append(topic=f"T{number % queues}", queue_id=0, body=b"b" * 16_000)
    store.close()
    opened = OpenStore.find(str(tmp_path), Files())
    assert len(opened.log.extents) > 3
    positions = [row["commitLogOffset"] for row in reading.read(tmp_path, columns=["commitLogOffset"])]
    for extent in opened.log.extents[:-1]:
        last = max(position for position in positions if position < extent.stop)
        before = opened.files.bytes
        assert opened.log.is_live(last)
        assert opened.files.bytes - before < 700_000
