"""What happens to ConsumeQueues: topics are deleted, queues and files are lost, units are not written yet."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from machine.past import Past


def lose(past: Past, rng: random.Random) -> None:
    """Any of these, or, most often, nothing."""
    if rng.random() < 0.5:
        return
    for name in rng.sample(sorted(LOSSES), rng.choice((1, 1, 2))):
        if LOSSES[name](past, rng):
            past.queues_are_whole = False
            past.events.append(name)


def _directories(past: Past) -> list[Path]:
    return sorted(path for path in past.root.glob("*consumequeue/*/*") if path.is_dir())


def _unit_size(path: Path) -> int:
    """Of the queue that a file belongs to."""
    return 46 if path.parts[-4] == "batchconsumequeue" else 20


def _delete_topic(past: Past, rng: random.Random) -> bool:
    """As deleteTopic does: its messages stay in the log until they expire."""
    topics = sorted(path for path in past.root.glob("*consumequeue/*"))
    if not topics:
        return False
    topic = rng.choice(topics)
    shutil.rmtree(topic)
    path = past.root / "config" / "topics.json"
    table = json.loads(path.read_text())
    table["topicConfigTable"].pop(topic.name, None)
    path.write_text(json.dumps(table))
    return True


def _lose_queue(past: Past, rng: random.Random) -> bool:
    found = _directories(past)
    if found:
        shutil.rmtree(rng.choice(found))
    return bool(found)


def _lose_all(past: Past, rng: random.Random) -> bool:
    shutil.rmtree(past.root / "consumequeue", ignore_errors=True)
    shutil.rmtree(past.root / "batchconsumequeue", ignore_errors=True)
    return True


def _leave_empty_directory(past: Past, rng: random.Random) -> bool:
    shutil.rmtree(past.root / "consumequeue", ignore_errors=True)
    (past.root / "consumequeue" / "Empty" / "0").mkdir(parents=True)
    return True


def _lose_file(which: int) -> Callable[[Past, random.Random], bool]:
    def lose_file(past: Past, rng: random.Random) -> bool:
        several = [files for path in _directories(past) if len(files := sorted(path.iterdir())) > 1]
        if several:
            rng.choice(several)[which].unlink()
        return bool(several)

    return lose_file


def _zero_end(past: Past, rng: random.Random) -> bool:
    """The last units of a queue were not on the disk when the machine stopped."""
    found = [files for path in _directories(past) if (files := sorted(path.iterdir()))]
    if not found:
        return False
    path = rng.choice(found)[-1]
    data = path.read_bytes()
    size = _unit_size(path)
    used = max((at + size for at in range(0, len(data), size) if any(data[at : at + size])), default=0)
    if used:
        kept = rng.randrange(0, used, size)
        path.write_bytes(data[:kept].ljust(len(data), b"\0"))
    return bool(used)


def _cut_first_file(past: Past, rng: random.Random) -> bool:
    """It has no bytes, or only zeros."""
    found = [files for path in _directories(past) if (files := sorted(path.iterdir()))]
    if found:
        path = rng.choice(found)[0]
        path.write_bytes(bytes(rng.choice((0, path.stat().st_size))))
    return bool(found)


def _zero_page(past: Past, rng: random.Random) -> bool:
    """Some units in the middle are zeros."""
    found = [path for path in past.root.glob("*consumequeue/*/*/*") if any(path.read_bytes())]
    if not found:
        return False
    path = rng.choice(sorted(found))
    data = bytearray(path.read_bytes())
    size = _unit_size(path)
    start = rng.randrange(0, len(data), size)
    stop = min(len(data), start + rng.choice((size, 3 * size, 65_520 // 20 * size)))
    data[start:stop] = bytes(stop - start)
    path.write_bytes(data)
    return True


LOSSES: dict[str, Callable[[Past, random.Random], bool]] = {
    "a topic deleted": _delete_topic,
    "a queue lost": _lose_queue,
    "all queues lost": _lose_all,
    "one empty queue": _leave_empty_directory,
    "a queue's last file lost": _lose_file(-1),
    "a queue's first file lost": _lose_file(0),
    "a queue's end lost": _zero_end,
    "a queue's first file empty": _cut_first_file,
    "zeros in a queue": _zero_page,
}
