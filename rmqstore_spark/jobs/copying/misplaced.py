"""Messages whose queueId or queueOffset is damaged. No checksum covers these fields; the ConsumeQueues know better."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from rmqstore_spark.store.format.by_queue import ByQueue, Integers, QueueName, by_queue
from rmqstore_spark.store.format.message import SMALLEST_UNIT, are_queued
from rmqstore_spark.store.format.queue_block import MOST_OFFSETS
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.queue_cursor import QueueCursor


class Misplaced:
    """Finds misplaced messages among the messages of a store, which come in the order of its log."""

    def __init__(self, store: Snapshot) -> None:
        self._store = store
        # Of each queue's last message: queue offset and physical offset.
        self._last: dict[tuple[str, int], tuple[int, int]] = {}
        self._before: dict[int, int] = {}  # by a message's index, the index of the message before it in its queue

    def look(self, batch: pa.RecordBatch, following: pa.RecordBatch | None = None) -> list[tuple[int, str]]:
        """The misplaced ones of the next messages: their numbers in the batch, ascending, each with the reason.

        The ConsumeQueues are asked only where a queue's offsets do not ascend one by one. Where they do not know, the
        messages before and after decide.

        Args:
            following: the messages after the batch, if there are more.
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
        rows_by_queue = by_queue(topics, codes, queue_ids)
        count = int(np.searchsorted(queued, batch.num_rows))
        found: dict[int, str] = {}
        for queue, here in self._breaks(rows_by_queue, offsets, count):
            self._look_at(queue, here, offsets, positions, found)
        self._remember(rows_by_queue, count, offsets, positions, found)
        return sorted((int(queued[i]), reason) for i, reason in found.items() if i < count)

    def _look_at(
        self, queue: tuple[str, int], at: Integers, offsets: Integers, positions: Integers, found: dict[int, str]
    ) -> None:
        """Check one message.

        Args:
            at: indexes: of the message before it in its queue (-1 if that is in an earlier batch), of the message
                itself, and of the next two of its queue, as far as there are any (else -1).
        """
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
        """The reason why a message is not where its fields say; None if there is none.

        Args:
            before: the queue offset and the physical offset of the message before it in its queue, if there is one.
            after: the queue offsets of the next messages of its queue, as far as they are known.
        """
        queues = self._store.queues.of_topic(topic)
        own = [queue for queue in queues if queue.queue_id == queue_id]
        if any((unit := queue.unit(offset)) is not None and unit.position == position for queue in own):
            return None
        known = _elsewhere(queues, position) or self._contradicted(own, offset, position)
        if known is None and not 0 <= offset < MOST_OFFSETS:
            return "no queue has so many messages"
        return known or _is_odd(offset, position, before, after)

    def _breaks(self, rows: ByQueue, offsets: Integers, count: int) -> Iterator[tuple[QueueName, Integers]]:
        """The messages, among the first `count`, that may be misplaced: those whose offset is not the next one of their
        queue or that begin a queue, and those just before such a message, which may be the wrong ones. Yields the
        queue, and the indexes of the message before, of the message and of two messages after it; -1 for none."""
        ordered, firsts, numbers = offsets[rows.order], rows.firsts[:-1], rows.numbers
        is_first = np.zeros(len(ordered), bool)
        is_first[firsts] = True
        is_break = np.append(True, ordered[1:] != ordered[:-1] + 1) | is_first
        for queue, first in zip(rows.queues, firsts.tolist(), strict=True):
            is_break[first] = queue not in self._last or self._last[queue][0] + 1 != ordered[first]
        is_break[:-1] |= is_break[1:] & ~is_first[1:]
        padded = np.concatenate([[-1], rows.order, [-1, -1]])
        self._before = {}
        for at in np.flatnonzero(is_break & (rows.order < count)).tolist():
            number = int(numbers[at])
            first, end = int(rows.firsts[number]), int(rows.firsts[number + 1])
            here = padded[at : at + 4].copy()
            here[0] = here[0] if at > first else -1
            here[2 + max(0, end - at - 1) :] = -1
            self._before[int(here[1])] = int(here[0])
            yield rows.queues[number], here

    def _remember(
        self, rows: ByQueue, count: int, offsets: Integers, positions: Integers, found: dict[int, str]
    ) -> None:
        """Remember the last message of each queue among the first `count` messages that are not misplaced."""
        is_right = rows.order < count
        if found:
            is_right &= ~np.isin(rows.order, list(found))
        right, numbers = rows.order[is_right], rows.numbers[is_right]
        is_last = np.append(numbers[1:] != numbers[:-1], True)[: len(right)]
        for i, number in zip(right[is_last].tolist(), numbers[is_last].tolist(), strict=True):
            self._last[rows.queues[number]] = int(offsets[i]), int(positions[i])

    def _contradicted(self, own: list[Queue], offset: int, position: int) -> str | None:
        """The reason why a message cannot be at its offset in its queue, though the queue has it nowhere else: other
        messages that the queue has around that offset."""
        for queue in own:
            for number in sorted({offset - 1, offset, offset + 1, min(offset, queue.end - 1)}):
                other = self._confirmed(queue, number)
                if other is not None and (number == offset or (number < offset) != (other < position)):
                    return f"its ConsumeQueue has the message {number} at commitLogOffset {other}"
        return None

    def _confirmed(self, queue: Queue, number: int) -> int | None:
        """The physical offset that a queue has for a number, if the log has that message there."""
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
    """Another place of a topic's ConsumeQueues that has the message, in words."""
    for queue in queues:
        number = QueueCursor(queue).seek(position)
        unit = queue.unit(number)
        if unit is not None and unit.position == position:
            return f"its ConsumeQueue has this message in queue {queue.queue_id} at {number}"
    return None


def _is_odd(offset: int, position: int, before: tuple[int, int] | None, after: list[int]) -> str | None:
    """The reason that its queue's other messages give against a message: they go on without it. Where offsets begin
    anew and go on from there, the topic was deleted and made anew, and nothing is odd."""
    if before is not None and offset == before[0] + 1:
        return None
    if not after:
        if before is None or (before[0] < offset and _has_space(offset - before[0], position - before[1])):
            return None
        return f"the last message of this queue before it has {before[0]}, at commitLogOffset {before[1]}"
    if before is not None and after[0] - before[0] in (1, 2):
        return f"the messages of this queue before and after it have {before[0]} and {after[0]}"
    # Is the next message the odd one? Then the one after the next goes on from here.
    if len(after) == 1:
        goes_on = (
            after[0] == 0 or (offset ^ (after[0] - 1)).bit_count() != 1
        )  # with one bit changed this message would come just before the next
    else:
        goes_on = after[1] == offset + 2 or (after[1] == offset + 1 and after[0] < offset)
    goes_back = after[0] <= offset and not goes_on
    if goes_back and not (before is not None and after[0] <= before[0]):
        return f"the message of this queue after it has {after[0]}"
    if before is not None and offset <= before[0] < after[0]:
        return f"the messages of this queue before and after it have {before[0]} and {after[0]}"
    return None


def _has_space(count: int, nbytes: int) -> bool:
    """Can `count` messages fit into `nbytes` of a log?"""
    return count * SMALLEST_UNIT <= nbytes
