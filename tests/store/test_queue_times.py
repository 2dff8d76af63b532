"""Offsets from a time on are right also in queues with damaged messages."""

from __future__ import annotations

import json
import random
from pathlib import Path

from oracle import stores

from rmqstore_spark import Store


def test_damaged_messages_say_nothing_of_time(tmp_path: Path, rng: random.Random) -> None:
    builder = stores.StoreBuilder(tmp_path)
    for number in range(40):
        builder.append("T", b"x" * 20, store_timestamp=1_700_000_000_000 + 10 * number)
    builder.close()
    path = builder.segment(0)
    good = path.read_bytes()
    for _ in range(30):
        damaged = set(rng.sample(range(1, 39), rng.randrange(1, 12)))
        data = bytearray(good)
        for number in damaged:
            at = builder.messages[number].position
            data[at + 4 : at + 8] = b"\xff" * 4
        path.write_bytes(data)
        first = rng.randrange(1, 40)
        found = json.loads(Store(tmp_path).offsets_at(1_700_000_000_000 + 10 * first - 5))["T"]["0"]
        whole = [number for number in range(40) if number not in damaged]
        before = [number for number in whole if number < first]
        assert before[-1] < found <= next(number for number in whole if number >= first), (first, damaged)
