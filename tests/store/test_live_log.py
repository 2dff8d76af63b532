"""Units of today's log are told from those of an older one: never one too many, and without a walk where queues can
tell."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from oracle import stores
from support import reading

from rmqstore_spark.store.evidence import Evidence
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot


@pytest.mark.slow
@pytest.mark.parametrize("largest", [0, 1 << 24])
def test_live_is_what_a_full_scan_gives(
    largest: int, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On logs that were cut within a segment and went on in the next one: of all that once was a message. Also where
    only the size of the next segment's first message says how much of a segment can be left over."""
    monkeypatch.setattr("rmqstore_spark.store.live_log._LARGEST_SENT", largest)
    left_over = 0
    for number in range(30):
        root = tmp_path / str(number)
        once = _cut_store(root, rng)
        live = {row["commitLogOffset"] for row in reading.read(root, columns=["commitLogOffset"])}
        for position in rng.sample(sorted(live | once), min(40, len(live | once))):
            log = Snapshot.find(str(root), Files()).log
            if log.header(position) is not None:
                assert position in live or log.liveness(position) is not Evidence.LIVE
                assert (log.liveness(position, may_walk_far=True) is Evidence.LIVE) == (position in live)
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
    opened = Snapshot.find(str(tmp_path), Files())
    assert len(opened.log.extents) > 3
    positions = [row["commitLogOffset"] for row in reading.read(tmp_path, columns=["commitLogOffset"])]
    for extent in opened.log.extents[:-1]:
        last = max(position for position in positions if position < extent.stop)
        before = opened.files.bytes
        assert opened.log.liveness(last) is Evidence.LIVE
        assert opened.files.bytes - before < 700_000


@pytest.mark.parametrize("lost", [500, 3000])
def test_a_message_that_was_lost_when_it_closed_a_segment(
    lost: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full: the segment has its blank, and the next one begins with a smaller message."""
    monkeypatch.setattr("rmqstore_spark.store.live_log._LARGEST_SENT", 3000)
    store = stores.StoreBuilder(tmp_path, segment_size=8192, index=False)
    while store.end < 8192 - 200:
        store.append(topic="T0", body=b"b" * 20)
    once = list(store.messages)
    store.forget_last(lost // 120)
    store._roll(lost)
    for number in range(3):
        store.append(topic=f"T{number + 1}", body=b"b" * 10)
    store.close()
    live = {message.position for message in store.messages}
    log = Snapshot.find(str(tmp_path), Files()).log
    left_over = [message.position for message in once if message.position not in live]
    assert any(log.header(position) is not None for position in left_over)
    assert not any(
        log.liveness(position, may_walk_far=far) is Evidence.LIVE for position in left_over for far in (False, True)
    )
    early = [message.position for message in once if message.position < 8192 - 3100]
    assert all(log.liveness(position) is Evidence.LIVE for position in early)


def test_a_few_requests_say_that_a_unit_is_live(tmp_path: Path) -> None:
    """Its header, its queue from there on, and a message of that in a later segment, however many there are."""
    for count, queues in ((600, 3), (3000, 3), (3000, 50)):
        root = tmp_path / f"{count} {queues}"
        store = stores.StoreBuilder(root, segment_size=1 << 16, queue_file_size=20_000, index=False)
        for number in range(count):
            store.append(topic=f"T{number % queues}", body=b"b" * 900)
        store.close()
        for message in store.messages[: count - 200 : 97]:
            opened = Snapshot.find(str(root), Files())
            log, before = opened.log, opened.files.requests
            assert log.liveness(message.position) is Evidence.LIVE
            assert opened.files.requests - before <= 3


def test_neighbours_answer_for_a_queue_that_has_ended(tmp_path: Path) -> None:
    """Topics with a few messages each among others that go on: no walk, and no list of queues to be asked."""
    store = stores.StoreBuilder(tmp_path, segment_size=1 << 16, queue_file_size=4000, index=False)
    ended = []
    for number in range(600):
        if number % 3:
            store.append(topic=f"T{number % 7}", body=b"b" * 300)
        else:
            ended.append(store.append(topic=f"E{number // 30}", body=b"b" * 300))
    store.close()
    assert store.end > 3 << 16
    files = Files()
    for position in ended[:-60]:
        log = Snapshot.find(str(tmp_path), files).log
        before = files.requests, files.bytes
        assert log.liveness(position) is Evidence.LIVE
        assert files.requests - before[0] <= 8
        assert files.bytes - before[1] < 16 * 1024


def test_neighbours_of_a_left_over_unit_do_not_prove_it(tmp_path: Path) -> None:
    """The queues name all of them still, and go on in the next segment: but with other messages."""
    store = stores.StoreBuilder(tmp_path, segment_size=8192, queue_file_size=4000, index=False)
    while store.end < 8192 - 300:
        store.append(topic=f"T{len(store.messages) % 3}", body=b"b" * 20)
    once = {message.position for message in store.messages}
    store.forget_last(12)
    store.append(topic="T0", body=b"b" * 7000)  # it goes into a segment of its own
    for number in range(60):
        store.append(topic=f"T{number % 2}", body=b"b" * 20)
    store.close()
    live = {message.position for message in store.messages}
    log = Snapshot.find(str(tmp_path), Files()).log
    left_over = [position for position in sorted(once - live) if log.header(position) is not None]
    assert len(left_over) > 5
    for position in left_over:
        assert Snapshot.find(str(tmp_path), Files()).log.liveness(position) is not Evidence.LIVE
        assert log.liveness(position) is not Evidence.LIVE


@pytest.mark.parametrize("size", [100, 1500, 3000, 100_000])
def test_what_headers_cost(size: int, tmp_path: Path) -> None:
    """Alone, and of two messages side by side, wherever in a segment."""
    store = stores.StoreBuilder(tmp_path, segment_size=1 << 19, index=False)
    for _ in range(300 if size < 10_000 else 12):
        store.append(body=b"b" * size)
    store.close()
    opened = Snapshot.find(str(tmp_path), Files())
    log, files = opened.log, opened.files
    is_small = size < 2048 - 200
    for one, other in itertools.pairwise(store.messages):
        before = files.requests
        found = log.header(one.position)
        assert found is not None
        assert (found.position, found.size) == one[:2]
        assert files.requests - before <= (1 if is_small else 2)
        before = files.requests
        both = log.two_headers(one.position, other.position)
        assert [(found[0].position, found[0].size) for found in both] == [one[:2], other[:2]]
        if one.position >> 19 == other.position >> 19:
            assert files.requests - before <= (1 if is_small else 3)
