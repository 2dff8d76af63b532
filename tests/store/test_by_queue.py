"""Rows are sorted by queue: each once, those of one queue together, in their own order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rmqstore_spark.store.format.by_queue import by_queue

_ROWS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0, 1, 7, -1, 2**31 - 1, -(2**31)])))


@given(_ROWS)
def test_as_a_dict_of_lists_has_it(rows: list[tuple[int, int]]) -> None:
    topics = ["a", "b", "c"]
    expected: dict[tuple[str, int], list[int]] = {}
    for number, (code, queue_id) in enumerate(rows):
        expected.setdefault((topics[code], queue_id), []).append(number)
    codes, queue_ids = (np.array([row[at] for row in rows], np.int64) for at in (0, 1))
    found = by_queue(topics, codes, queue_ids)
    assert {queue: numbers.tolist() for queue, numbers in found.runs()} == expected
    assert [found.queues[number] for number in found.numbers.tolist()] == [
        (topics[rows[at][0]], rows[at][1]) for at in found.order.tolist()
    ]
