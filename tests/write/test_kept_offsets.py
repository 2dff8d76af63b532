"""Which messages of a copy begin a segment, so that their queue offsets stay: KeptOffsets says it of whole batches, and
here a loop says it message by message."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.write.build.kept_offsets import KeptOffsets, Lost

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


# Of each message which queue it is for, and how far its offset is beyond the one before; mostly it is the next.
_MESSAGES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.one_of(st.just(1), st.just(1), st.integers(1, 8))),
    min_size=1,
    max_size=200,
)


@given(_MESSAGES, st.lists(st.integers(1, 60), min_size=1), st.integers(-1, 199))
def test_gaps(drawn: list[tuple[int, int, int]], sizes: list[int], forced: int) -> None:
    """Looked at in pieces of these sizes."""
    ends: dict[tuple[str, int], int] = {}
    messages: list[Message] = []
    for topic, queue_id, step in drawn:
        queue = f"T{topic}", queue_id
        ends[queue] = ends.get(queue, topic + queue_id) + step
        messages.append((*queue, ends[queue]))
    order = KeptOffsets("store", 1 << 30)
    begins: list[int] = []
    at = 0
    for size in itertools.cycle(sizes):
        some = messages[at : at + size]
        topics = sorted({topic for topic, _, _ in some})
        codes = np.array([topics.index(topic) for topic, _, _ in some], np.int64)
        ids, offsets = (np.array([each[i] for each in some], np.int64) for i in (1, 2))
        here = forced - at if at <= forced < at + len(some) else None
        begins += [at + row for row in order.look(topics, codes, ids, offsets, here)]
        at += len(some)
        if at == len(messages):
            break
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
