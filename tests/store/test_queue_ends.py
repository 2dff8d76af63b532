"""A queue goes on behind every message that the log has of it, or the store is refused in one line: of stores that were
cut, damaged, expired and robbed."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

from oracle.worn_stores import TOPICS, Queue, Worn, worn_store

from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.queue_ends import queue_ends
from rmqstore_spark.store.snapshot import Snapshot

_ASKED = (*TOPICS, "Last")


def _least_ends(worn: Worn) -> dict[Queue, int]:
    """Below these no queue may go on: whole messages of the log, and damaged ones that a queue still names."""
    least: dict[Queue, int] = {}
    queues = {(message.topic, message.queue_id) for message in worn.store.messages if message.queued}
    for message in (*worn.whole, *(known for queue in queues for known in worn.known(queue))):
        queue = message.topic, message.queue_id
        least[queue] = max(least.get(queue, 0), message.queue_offset + 1)
    return least


def _ends(root: Path, known: dict[str, dict[int, int]] | None = None) -> dict[Queue, int] | str:
    """Those, or the error."""
    try:
        return queue_ends(Snapshot.find(str(root), Files()), _ASKED, known)
    except DamagedStoreError as why:
        return str(why)


def _outcome(worn: Worn) -> str:
    root = worn.store.root
    least, found = _least_ends(worn), _ends(root)
    is_sound = not worn.damaged and not worn.robbed
    if isinstance(found, str):
        assert not is_sound, found
        assert "\n" not in found
        assert str(root) in found
        return "refused"
    assert {queue: end for queue, end in least.items() if found.get(queue, 0) < end} == {}, found
    if not worn.damaged:  # else an old unit that points to damage may be taken for that message's
        assert {queue: found[queue] for queue in least} == least
    known: dict[str, dict[int, int]] = {}
    for (topic, queue_id), end in found.items():
        known.setdefault(topic, {})[queue_id] = end
    assert _ends(root, known) == found  # who has seen them before is told the same
    return "sound" if is_sound else "worn"


def test_ends_of_worn_stores(tmp_path: Path, rng: random.Random) -> None:
    outcomes: Counter[str] = Counter()
    for number in range(36):
        root = tmp_path / str(number)
        worn = worn_store(root, rng, damage=number % 3 > 0, rob=number % 2 > 0)
        outcomes[_outcome(worn)] += 1
        shutil.rmtree(root)
    assert min(outcomes[each] for each in ("sound", "worn")) > 2, outcomes


def test_a_queue_that_lost_its_last_units(tmp_path: Path, rng: random.Random) -> None:
    """Some of them, in one of its files: it shows no sign of that, but the log has its messages."""
    refused = 0
    for number in range(24):
        root = tmp_path / str(number)
        worn = worn_store(root, rng, damage=False, rob=False)
        queue = rng.choice(sorted({(m.topic, m.queue_id) for m in worn.whole}))
        path = max(worn.store.queue_directory(*queue).iterdir())
        data = path.read_bytes()
        units = -(-len(data.rstrip(b"\0")) // 20)
        lost = rng.randrange(1, min(units, 4) + 1) if units else 0
        path.write_bytes(data[: 20 * (units - lost)].ljust(len(data), b"\0"))
        worn.robbed.add(queue)
        refused += _outcome(worn) == "refused"
    assert refused > 5


def test_a_queue_that_went_back_is_refused(tmp_path: Path, rng: random.Random) -> None:
    """Whoever knows that a queue had more messages than it has now is told, and never given their offsets again."""
    for number in range(10):
        root = tmp_path / str(number)
        worn = worn_store(root, rng, damage=False, rob=False)
        found = _ends(root)
        assert not isinstance(found, str)
        (topic, queue_id), end = rng.choice(sorted(found.items()))
        refused = _ends(root, {topic: {queue_id: end + rng.randrange(1, 5)}})
        has_files = any(worn.store.queue_directory(topic, queue_id).glob("*"))
        assert not has_files or (isinstance(refused, str) and "lag the commitlog" in refused)
