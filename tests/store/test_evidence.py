"""The evidence for a message is never stronger than the truth: of stores that were cut, damaged, expired and robbed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from oracle.stores import StoreBuilder
from oracle.worn_stores import LIGHT, worn_store

from rmqstore_spark.store.evidence import Evidence
from rmqstore_spark.store.format.queue_block import QueueUnit
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.live_log import LiveLog
from rmqstore_spark.store.snapshot import Snapshot


@pytest.mark.parametrize("largest", [0, 1 << 24])
@pytest.mark.parametrize("walk", [0, 1 << 17])
def test_evidence_of_units(
    largest: int, walk: int, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any order, of a log that knows nothing yet and of one that was asked before. What is there and live is never
    called anything less than UNSURE, and where the log may walk, and nothing is damaged, always LIVE."""
    monkeypatch.setattr("rmqstore_spark.store.live_log._LARGEST_SENT", largest)
    monkeypatch.setattr("rmqstore_spark.store.live_log._WORTH_WALKING", walk)
    counts: dict[Evidence, int] = {}
    for number in range(25):
        root = tmp_path / str(number)
        worn = worn_store(root, rng)
        lost = {message.position for message in worn.damaged}
        live = {message[:5] for message in worn.store.messages if message.queued and message.position not in lost}
        units = [(*named, unit) for named, unit in worn.units().items() if named[0] != LIGHT]
        store = Snapshot.find(str(root), Files())
        for topic, queue_id, offset, unit in rng.sample(units, min(len(units), 40)):
            log = store.log if rng.random() < 0.7 else Snapshot.find(str(root), Files()).log
            queue = store.queues.queue(topic, queue_id)
            assert queue is not None
            is_live = (unit.physical_offset, unit.size, topic, queue_id, offset) in live
            may_walk_far = rng.random() < 0.5
            raw = QueueUnit(offset, unit.physical_offset, unit.size, 0, offset, 1)
            found = log.evidence(queue, offset, raw, may_walk_far)
            counts[found] = counts.get(found, 0) + 1
            assert is_live or found is not Evidence.LIVE, (worn, topic, queue_id, offset)
            assert not is_live or found >= Evidence.UNSURE, (worn, topic, queue_id, offset)
            if may_walk_far and not lost:
                assert is_live == (found is Evidence.LIVE)
        shutil.rmtree(root)
    print(counts)
    assert counts.keys() >= {Evidence.ABSENT, Evidence.LIVE}


def test_what_is_proved_of_a_segment_only_grows(tmp_path: Path, rng: random.Random) -> None:
    """And never beyond its live units, whatever is asked, also of a log whose end is not known."""
    proved = 0
    for number in range(25):
        root = tmp_path / str(number)
        worn = worn_store(root, rng)
        store = Snapshot.find(str(root), Files())
        for log in (store.log, store.log_without_end()):
            proved += _ask_at_random(log, {message.position: message.size for message in worn.store.messages}, rng)
        shutil.rmtree(root)
    assert proved > 0


def _ask_at_random(log: LiveLog, live: dict[int, int], rng: random.Random) -> int:
    """How many questions proved more."""
    known: dict[int, int] = {}
    grown = 0
    for _ in range(30):
        position = rng.choice([*live, rng.randrange(max(live) + 100)])
        extent = log.extent_at(position)
        if rng.random() < 0.3 and extent is not None:
            log.live_end(extent)
        else:
            log.liveness(position, may_walk_far=rng.random() < 0.5)
        now = log.proved
        assert all(now[start] >= to for start, to in known.items())
        for start, to in now.items():
            if to > known.get(start, start) and to < max(live):
                grown += 1
                assert any(start <= at < to for at in live)
                assert not any(at < to < at + size for at, size in live.items())  # where a unit ends or begins
        known = now
    return grown


def test_it_is_ordered() -> None:
    order = [Evidence.EXPIRED, Evidence.ABSENT, Evidence.DAMAGED, Evidence.LEFT_OVER, Evidence.UNSURE, Evidence.LIVE]
    assert sorted(Evidence) == order


def test_units_behind_a_closing_blank(tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log was cut within a segment and went on in the next one: whole messages are left over in the closed one."""
    monkeypatch.setattr("rmqstore_spark.store.live_log._LARGEST_SENT", 0)
    left_over = 0
    for number in range(8):
        builder = StoreBuilder(tmp_path / str(number), segment_size=8192, queue_file_size=2000)
        for _ in range(rng.randrange(60, 120)):
            builder.append(f"T{rng.randrange(3)}", b"b" * rng.randrange(300))
        once = {message.position: message for message in builder.messages}
        builder.forget_last(rng.randrange(5, 30))
        builder.append("T0", b"b" * 8000)  # it goes into a segment of its own
        builder.close()
        live = {message.position for message in builder.messages}
        for position in rng.sample(sorted(once), 30):
            log = Snapshot.find(str(builder.root), Files()).log
            if log.header(position) is not None:
                found = log.liveness(position, once[position].size, may_walk_far=True)
                assert (found is Evidence.LIVE) == (position in live)
                left_over += position not in live
    assert left_over > 0
