"""The log ends behind the last message that it has: of logs that were cut, damaged and robbed of queues."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

from oracle import reference, stores
from oracle.damaged_logs import DamagedLog, damaged_log

from rmqstore_spark.store.format.message import Mark
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.log_end import LogEnd
from rmqstore_spark.store.snapshot import Snapshot


def _finder(root: Path) -> LogEnd:
    store = Snapshot.find(str(root), Files())
    return LogEnd(store.layout, store.segments, store.queues, store.files, lambda: store.checkpoint)


def _least(found: DamagedLog) -> int:
    """The end of the last whole message that its queue has."""
    units = {
        (topic, queue_id, number): (unit.physical_offset, unit.size)
        for topic, queue_id, number, unit in reference.read_queues(found.store.root)
        if (found.store.root / "consumequeue").exists()
    }
    whole = {row["commitLogOffset"] for row in found.rows}
    known = [
        message.end
        for message in found.store.messages
        if message.position in whole
        and message.queued
        and units.get((message.topic, message.queue_id, message.queue_offset)) == (message.position, message.size)
    ]
    return max(known, default=0)


def test_the_end_of_damaged_logs(tmp_path: Path, rng: random.Random) -> None:
    """Never before a whole message that its queue has, nor after the last; and not before any whole one where
    something tells what is live. Its last message is one of the live ones, and no whole one comes after it."""
    counts = {"damaged": 0, "known": 0}
    for number in range(60):
        root = tmp_path / str(number)
        found = damaged_log(root, rng)
        if (root / "abort").exists() and any("zero" in each for each in found.story):
            continue  # a message whose last page is zeros is torn, though no check covers its properties
        end = _finder(root).find()
        # Noise may read as a store time later than those of the messages after it. A read then ends with that damage.
        is_told = any(lost.position < end.position < lost.end for lost in found.lost)
        assert end.position >= _least(found) or found.is_unsure or is_told, found.story
        if not found.is_unsure and not is_told and found.rows:
            whole = [row["commitLogOffset"] for row in found.rows]
            last = found.store.messages[-1]
            sizes = {message.position: message.size for message in found.store.messages}
            assert whole[-1] + sizes[whole[-1]] <= end.position <= last.end, found.story
            if end.last is not None:  # its body may be damaged: no body is read for that
                assert end.last.position >= whole[-1], found.story
                assert sizes[end.last.position] == end.last.size, found.story
            _assert_known(found, whole, end.position, rng)
        counts["damaged"] += bool(found.lost)
        counts["known"] += _least(found) > 0
        shutil.rmtree(root)
    assert min(counts.values()) > 0, counts


def _assert_known(found: DamagedLog, whole: list[int], end: int, rng: random.Random) -> None:
    """Who has been at a live message before finds the same end from there."""
    messages = {message.position: number for number, message in enumerate(found.store.messages)}
    number = messages[rng.choice(whole)]
    before = found.store.messages[max(0, number - 1)]
    if before.position in whole:
        known = found.store.messages[number].position, Mark(before.position, before.store_timestamp, 0)
        assert _finder(found.store.root).find(known).position == end, (found.story, known)


def test_an_old_unit_that_ends_within_a_live_message(tmp_path: Path) -> None:
    """A message is lost to zeros, and the next one is whole; a queue unit left over from a cut points at it as well,
    with another size. What it names is no message: the log goes on to the end of the whole one."""
    store = stores.StoreBuilder(tmp_path / "store")
    store.append("Kept", b"first")
    lost = store.append("Lost", b"zeros")
    live = store.append("Live", b"b" * 800)
    store.close()
    with store.segment(lost).open("r+b") as log:
        log.seek(lost)
        log.write(bytes(live - lost))
    old = store.root / "consumequeue" / "Cut" / "0"
    old.mkdir(parents=True)
    (old / f"{0:020d}").write_bytes(struct.pack(">qiq", live, 106, 0).ljust(200, b"\0"))
    (store.root / "checkpoint").unlink()  # which would have the log walked from its last message
    assert _finder(store.root).find().position == store.end
