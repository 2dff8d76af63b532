"""Messages whose queueId or queueOffset is damaged. No checksum covers these; the ConsumeQueues know better."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore_spark.store.consumequeue import Queue
from rmqstore_spark.store.message import are_queued
from rmqstore_spark.store.opened import OpenStore

_ID_BITS = 32

Integers = npt.NDArray[np.int64]


class Misplaced:
    """Finds them among the messages of a store, which come in the order of its log."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._next: dict[tuple[str, int], int] = {}  # queue offset after each queue's last message

    def look(self, batch: pa.RecordBatch) -> list[tuple[int, str]]:
        """Those among the next messages: their numbers in the batch, ascending, and what is wrong with each.

        Only where a queue's offsets do not go on one by one the ConsumeQueues are asked. Where they cannot tell, the
        messages before and after it do.
        """
        flags = batch.column("sysFlag").to_numpy()
        queued = np.flatnonzero(are_queued(flags))
        if not len(queued):
            return []
        topic = batch.column("topic").dictionary_encode()
        topics, codes = topic.dictionary.to_pylist(), topic.indices.to_numpy().astype(np.int64)[queued]
        queue_ids, offsets, positions = (
            batch.column(name).to_numpy().astype(np.int64)[queued]
            for name in ("queueId", "queueOffset", "commitLogOffset")
        )
        found = []
        for i, before, after in self._breaks(topics, (codes << _ID_BITS) + queue_ids, offsets):
            queue = topics[int(codes[i])], int(queue_ids[i])
            reason = self._reason(*queue, int(offsets[i]), int(positions[i]), before, after)
            if reason is not None:
                where = f"queue {queue[1]} of topic {queue[0]!r}, queueOffset {offsets[i]}"
                found.append((int(queued[i]), f"{where}: {reason}"))
        return sorted(found)

    def _reason(
        self, topic: str, queue_id: int, offset: int, position: int, before: int | None, after: int | None
    ) -> str | None:
        """What shows that a message is not where it says; None where nothing does.

        Args:
            before: the queue offset of the message before it in its queue, as far as it is known; after: likewise.
        """
        queues = self._store.queues.of_topic(topic)
        own = [queue for queue in queues if queue.queue_id == queue_id]
        if any((unit := queue.unit(offset)) is not None and unit.position == position for queue in own):
            return None
        known = _elsewhere(queues, position) or self._contradicted(own, offset, position)
        if known is None and _is_between(before, offset, after):
            return f"the messages of this queue before and after it have {before} and {after}"
        return known

    def _breaks(
        self, topics: list[str], keys: Integers, offsets: Integers
    ) -> Iterator[tuple[int, int | None, int | None]]:
        """Which messages have another offset than comes next in their queue, are the first ones of it, or come just
        before such a one: then that may be right, and they be wrong. Each with the offsets of its queue's messages
        before and after it, as far as they are known."""
        order = np.argsort(keys, kind="stable")
        keys, offsets = keys[order], offsets[order]
        is_first = np.append(True, keys[1:] != keys[:-1])
        is_break = np.append(True, offsets[1:] != offsets[:-1] + 1) | is_first
        firsts = np.flatnonzero(is_first).tolist()
        befores: dict[int, int] = {}
        for first, after in zip(firsts, [*firsts[1:], len(keys)], strict=True):
            queue = topics[int(keys[first]) >> _ID_BITS], int(keys[first]) & ((1 << _ID_BITS) - 1)
            if queue in self._next:
                befores[first] = self._next[queue] - 1
            is_break[first] = self._next.get(queue) != offsets[first]
            self._next[queue] = int(offsets[after - 1]) + 1
        is_break[:-1] |= is_break[1:] & ~is_first[1:]
        for at in np.flatnonzero(is_break).tolist():
            before = befores.get(at) if is_first[at] else int(offsets[at - 1])
            is_last = at + 1 == len(keys) or bool(is_first[at + 1])
            yield int(order[at]), before, None if is_last else int(offsets[at + 1])

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


def _is_between(before: int | None, offset: int, after: int | None) -> bool:
    """Do the messages before and after one go on without it, or with one that is not it?"""
    return before is not None and after is not None and before + 1 != offset and after - before in (1, 2)
