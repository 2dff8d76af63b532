"""What we write for brokers of any version."""

from __future__ import annotations

import random
from pathlib import Path

from support import writing

from interop import rocketmq
from rmqstore_spark.store.format.sizes import Sizes

BENCH = rocketmq.Sizes()
SIZES = Sizes(BENCH.segment, BENCH.queue_file, BENCH.index_slots, BENCH.index_items)
# So that there are several of each kind of file.
SMALL = rocketmq.Sizes(segment=64 * 1024, queue_file=400, index_slots=50, index_items=120)


def small_store(root: Path, rng: random.Random, count: int = 300) -> None:
    sizes = Sizes(SMALL.segment, SMALL.queue_file, SMALL.index_slots, SMALL.index_items)
    writing.write(root, rows(rng, count // 2), rows(rng, count - count // 2), sizes=sizes)


def rows(rng: random.Random, count: int, topic: str | None = None) -> list[writing.Row]:
    """As clients of any version can ask for them."""
    made = writing.some_rows(rng, count)
    for number, row in enumerate(made):
        if row["topic"].startswith("%") or topic:
            row["topic"] = topic or "Topic_C"
        row["bornHost"], row["storeHost"] = "10.1.2.3:99", "127.0.0.1:10911"
        row["body"] = row["body"] or b"x"
        row["keys"] = f"key-{number % 9}"
        # A client looks for an id from the time on that is in it: here the beginning of the month.
        row["msgId"] = f"7F000001{number:04X}{rng.getrandbits(32):08X}00000000{number:04X}"
        del row["storeTimestamp"]
    return made
