"""Offsets from a time on are right also in queues with damaged messages."""

from __future__ import annotations

import json
import random
from pathlib import Path

from oracle import stores

from rmqstore_spark import Store
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.logs import find_logs
from rmqstore_spark.store.queue_bounds import queue_bounds
from rmqstore_spark.store.queue_times import QueueTimes


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


def test_many_queues_are_searched_as_each_is(tmp_path: Path, rng: random.Random) -> None:
    """The searches go side by side; each answer is that of a search alone, and of all messages' times."""
    builder = stores.StoreBuilder(tmp_path)
    times: dict[tuple[str, int], list[int]] = {}
    now = 1_700_000_000_000
    for _ in range(400):
        now += rng.choice((0, 0, 1, 7))
        topic, queue_id = rng.choice("ABC"), rng.choice((0, 0, 0, 1, 2, 3, rng.randrange(40)))
        builder.append(topic, b"x" * rng.randrange(50), queue_id=queue_id, store_timestamp=now)
        times.setdefault((topic, queue_id), []).append(now)
    builder.close()
    (store,) = find_logs(str(tmp_path), Files())
    bounds = list(queue_bounds(store, store.queues.without_light(None)))
    for _ in range(30):
        time = 1000 * rng.randint(1_700_000_000_000 - 2, now + 2)
        found = QueueTimes(store).first_from_each(bounds, time)
        assert found == [QueueTimes(store).first_from(each, time) for each in bounds]
        expected = [times[each.queue.topic, each.queue.queue_id] for each in bounds]
        assert found == [sum(1000 * each < time for each in some) for some in expected]


def test_the_time_of_one_message(tmp_path: Path, rng: random.Random) -> None:
    builder = stores.StoreBuilder(tmp_path, segment_size=4096, queue_file_size=200)
    for _ in range(100):
        now = 1_700_000_000_000 + rng.randrange(-50, 1000)
        builder.append(rng.choice("AB"), b"x" * rng.randrange(80), rng.randrange(2), store_timestamp=now)
    builder.expire(1)
    builder.close()
    (store,) = find_logs(str(tmp_path), Files())
    times = QueueTimes(store)
    there = {(m.topic, m.queue_id, m.queue_offset): 1000 * m.store_timestamp for m in builder.messages}
    for topic in "ABC":
        for queue_id in range(3):
            for offset in range(-1, 101):
                assert times.at(topic, queue_id, offset) == there.get((topic, queue_id, offset))
