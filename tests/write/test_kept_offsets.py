"""KeptOffsets against the same rule said message by message."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.write.kept_offsets import KeptOffsets, Lost

Message = tuple[str, int, int]


def expected(messages: list[Message], forced: int) -> tuple[list[int], list[Lost]]:
    """With which messages a segment begins, one of which has to in any case, and what is lost."""
    begins: list[int] = []
    lost = []
    last: dict[tuple[str, int], tuple[int, int]] = {}
    for number, (topic, queue_id, offset) in enumerate(messages):
        before, at = last.get((topic, queue_id), (offset - 1, number))
        if number == forced:
            begins.append(number)
        if offset > before + 1:
            lost.append(Lost((topic, queue_id), before + 1, offset - before - 1))
            if not begins or begins[-1] <= at:
                begins.append(number)
        last[topic, queue_id] = offset, number
    return begins, lost


@pytest.mark.parametrize("_", range(30))
def test_gaps(rng: random.Random, _: int) -> None:
    queues = [(f"T{n % 3}", n % 4) for n in range(rng.randrange(1, 9))]
    ends = {queue: rng.randrange(5) for queue in queues}
    messages = []
    for _number in range(rng.randrange(1, 200)):
        queue = rng.choice(queues)
        ends[queue] += rng.choice((1,) * 9 + (rng.randrange(1, 9),))
        messages.append((*queue, ends[queue]))
    order = KeptOffsets("store", 1 << 30)
    begins, at, forced = [], 0, rng.randrange(-1, len(messages))
    while at < len(messages):
        some = messages[at : at + rng.randrange(1, 60)]
        topics = sorted({topic for topic, _, _ in some})
        codes = np.array([topics.index(topic) for topic, _, _ in some], np.int64)
        ids, offsets = (np.array([each[i] for each in some], np.int64) for i in (1, 2))
        here = forced - at if at <= forced < at + len(some) else None
        begins += [at + row for row in order.look(topics, codes, ids, offsets, here)]
        at += len(some)
    assert (begins, order.lost) == expected(messages, forced)
    assert order.ends == {queue: ends[queue] + 1 for queue in order.ends}


@pytest.mark.parametrize(
    ("offsets", "why"),
    [
        ([3, 4, 4], "expected queueOffset 5 or a later one, found 4: its topic was deleted"),
        ([3, 2], "expected queueOffset 4 or a later one, found 2"),
        ([3, 1 << 60], "expected queueOffset 4, found 1152921504606846976: there was no space in the log"),
    ],
)
def test_refused(offsets: list[int], why: str) -> None:
    order = KeptOffsets("store", 1 << 20)
    zeros = np.zeros(len(offsets), np.int64)
    with pytest.raises(DamagedStoreError, match=why):
        order.look(["T"], zeros, zeros, np.array(offsets, np.int64))
