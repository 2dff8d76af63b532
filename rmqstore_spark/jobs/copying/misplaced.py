"""Messages whose queueId or queueOffset is damaged. No checksum covers these; the ConsumeQueues know better."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore_spark.store.consumequeue import MOST_OFFSETS, Queue
from rmqstore_spark.store.message import SMALLEST_UNIT, are_queued
from rmqstore_spark.store.snapshot import Snapshot

_ID_BITS = 32

Integers = npt.NDArray[np.int64]


class Misplaced:
    """Finds them among the messages of a store, which come in the order of its log."""

    def __init__(self, store: Snapshot) -> None:
        self._store = store
        # Of each queue's last message: queue offset and physical one.
        self._last: dict[tuple[str, int], tuple[int, int]] = {}
        self._before: dict[int, int] = {}  # by the index of a message that of the one before it in its queue

    def look(self, batch: pa.RecordBatch, following: pa.RecordBatch | None = None) -> list[tuple[int, str]]:
        """Those among the next messages: their numbers in the batch, ascending, and what is wrong with each.

        Only where a queue's offsets do not go on one by one the ConsumeQueues are asked. Where they cannot tell, the
        messages before and after it do.

        Args:
            following: the messages after them, if there are more.
        """
        rows = [batch, following] if following is not None else [batch]
        columns = ("topic", "queueId", "queueOffset", "commitLogOffset", "sysFlag")
        both = pa.Table.from_batches([each.select(columns) for each in rows]).combine_chunks()
        queued = np.flatnonzero(are_queued(both["sysFlag"].to_numpy()))
        if not len(queued):
            return []
        topic = both["topic"].combine_chunks().dictionary_encode()
        topics, codes = topic.dictionary.to_pylist(), topic.indices.to_numpy().astype(np.int64)[queued]
        queue_ids, offsets, positions = (both[name].to_numpy().astype(np.int64)[queued] for name in columns[1:4])
        keys = (codes << _ID_BITS) + queue_ids
        count = int(np.searchsorted(queued, batch.num_rows))
        found: dict[int, str] = {}
        for queue, here in self._breaks(topics, keys, offsets, count):
            self._look_at(queue, here, offsets, positions, found)
        self._remember(topics, keys[:count], offsets, positions, found)
        return sorted((int(queued[i]), reason) for i, reason in found.items() if i < count)

    def _look_at(
        self, queue: tuple[str, int], at: Integers, offsets: Integers, positions: Integers, found: dict[int, str]
    ) -> None:
        """Look at a message, whose index comes first; then come those of the next ones of its queue, one or two, or
        none; before it the one before, or -1 where that is of an earlier batch."""
        before_at, i, *after_at = at.tolist()
        while before_at in found:
            before_at = self._before.get(before_at, -1)
        before = self._last.get(queue) if before_at < 0 else (int(offsets[before_at]), int(positions[before_at]))
        after = [int(offsets[j]) for j in after_at if j >= 0 and 0 <= offsets[j] < MOST_OFFSETS]
        reason = self._reason(*queue, int(offsets[i]), int(positions[i]), before, after)
        if reason is not None:
            found[i] = f"queue {queue[1]} of topic {queue[0]!r}, queueOffset {offsets[i]}: {reason}"

    def _reason(
        self, topic: str, queue_id: int, offset: int, position: int, before: tuple[int, int] | None, after: list[int]
    ) -> str | None:
        """What shows that a message is not where it says; None where nothing does.

        Args:
            before: the queue offset and the physical one of the message before it in its queue, if there is one.
            after: the queue offsets of the next ones, as far as they are known.
        """
        queues = self._store.queues.of_topic(topic)
        own = [queue for queue in queues if queue.queue_id == queue_id]
        if any((unit := queue.unit(offset)) is not None and unit.position == position for queue in own):
            return None
        known = _elsewhere(queues, position) or self._contradicted(own, offset, position)
        if known is None and not 0 <= offset < MOST_OFFSETS:
            return "no queue has so many messages"
        return known or _is_odd(offset, position, before, after)

    def _breaks(
        self, topics: list[str], keys: Integers, offsets: Integers, count: int
    ) -> Iterator[tuple[tuple[str, int], Integers]]:
        """Which of the first `count` messages have another offset than comes next in their queue, are the first ones of
        it, or come just before such a one: then that may be right, and they be wrong. Of each its queue, and the
        indexes of the message before it in it, of itself and of two after it; -1 where there is none."""
        order = np.argsort(keys, kind="stable")
        sorted_keys, ordered = keys[order], offsets[order]
        is_first = np.append(True, sorted_keys[1:] != sorted_keys[:-1])
        is_break = np.append(True, ordered[1:] != ordered[:-1] + 1) | is_first
        for first in np.flatnonzero(is_first).tolist():
            queue = _queue_of(topics, int(sorted_keys[first]))
            is_break[first] = queue not in self._last or self._last[queue][0] + 1 != ordered[first]
        is_break[:-1] |= is_break[1:] & ~is_first[1:]
        firsts = np.flatnonzero(is_first)
        padded = np.concatenate([[-1], order, [-1, -1]])
        self._before = {}
        for at in np.flatnonzero(is_break & (order < count)).tolist():
            number = int(np.searchsorted(firsts, at, "right")) - 1
            first, end = int(firsts[number]), int(firsts[number + 1]) if number + 1 < len(firsts) else len(order)
            here = padded[at : at + 4].copy()
            here[0] = here[0] if at > first else -1
            here[2 + max(0, end - at - 1) :] = -1
            self._before[int(here[1])] = int(here[0])
            yield _queue_of(topics, int(sorted_keys[at])), here

    def _remember(
        self, topics: list[str], keys: Integers, offsets: Integers, positions: Integers, found: dict[int, str]
    ) -> None:
        """What the last message of each queue is, of those that are not misplaced."""
        right = np.array([i for i in range(len(keys)) if i not in found], np.int64) if found else np.arange(len(keys))
        _, last = np.unique(keys[right][::-1], return_index=True)
        for i in right[::-1][last].tolist():
            self._last[_queue_of(topics, int(keys[i]))] = int(offsets[i]), int(positions[i])

    def _contradicted(self, own: list[Queue], offset: int, position: int) -> str | None:
        """What shows that a message cannot be in its queue where it says, though the queue does not have it anywhere:
        other messages that it has around there."""
        for queue in own:
            for number in sorted({offset - 1, offset, offset + 1, min(offset, queue.end - 1)}):
                other = self._confirmed(queue, number)
                if other is not None and (number == offset or (number < offset) != (other < position)):
                    return f"its ConsumeQueue has the message {number} at commitLogOffset {other}"
        return None

    def _confirmed(self, queue: Queue, number: int) -> int | None:
        """Where a queue has a message, if the log has it there."""
        unit = queue.unit(number)
        header = None if unit is None else self._store.log.header(unit.position)
        if header is None or (header.topic, header.queue_id, header.queue_offset) != (
            queue.topic,
            queue.queue_id,
            number,
        ):
            return None
        return header.position


def _elsewhere(queues: list[Queue], position: int) -> str | None:
    """Where a topic's ConsumeQueues have a message."""
    for queue in queues:
        number = queue.search(position)
        unit = queue.unit(number)
        if unit is not None and unit.position == position:
            return f"its ConsumeQueue has this message in queue {queue.queue_id} at {number}"
    return None


def _queue_of(topics: list[str], key: int) -> tuple[str, int]:
    return topics[key >> _ID_BITS], key & ((1 << _ID_BITS) - 1)


def _is_odd(offset: int, position: int, before: tuple[int, int] | None, after: list[int]) -> str | None:
    """What its neighbours in its queue say against a message: with which of them the others go on. Where offsets begin
    anew and go on from there, a topic was deleted and made anew."""
    if before is not None and offset == before[0] + 1:
        return None
    if not after:
        if before is None or (before[0] < offset and _has_space(offset - before[0], position - before[1])):
            return None
        return f"the last message of this queue before it has {before[0]}, at commitLogOffset {before[1]}"
    if before is not None and after[0] - before[0] in (1, 2):
        return f"the messages of this queue before and after it have {before[0]} and {after[0]}"
    # Is it the next one that is odd? Then the one after that goes on from here.
    if len(after) == 1:
        goes_on = (
            after[0] == 0 or (offset ^ (after[0] - 1)).bit_count() != 1
        )  # with one other bit this one would come just before it
    else:
        goes_on = after[1] == offset + 2 or (after[1] == offset + 1 and after[0] < offset)
    goes_back = after[0] <= offset and not goes_on
    if goes_back and not (before is not None and after[0] <= before[0]):
        return f"the message of this queue after it has {after[0]}"
    if before is not None and offset <= before[0] < after[0]:
        return f"the messages of this queue before and after it have {before[0]} and {after[0]}"
    return None


def _has_space(count: int, nbytes: int) -> bool:
    """Can so many messages be in so many bytes of a log?"""
    return count * SMALLEST_UNIT <= nbytes
