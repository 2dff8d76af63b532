"""Messages whose queueId or queueOffset is damaged. No checksum covers these; the ConsumeQueues know better."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore_spark.store.consumequeue import Queue
from rmqstore_spark.store.message import TRANSACTION_COMMIT, TRANSACTION_TYPE
from rmqstore_spark.store.opened import OpenStore

_ID_BITS = 32


class Misplaced:
    """Finds them among the messages of a store, which come in the order of its log."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._next: dict[tuple[str, int], int] = {}  # queue offset after each queue's last message

    def look(self, batch: pa.RecordBatch) -> list[tuple[int, str]]:
        """Those among the next messages: their numbers in the batch, ascending, and what is wrong with each.

        Only where a queue's offsets do not go on one by one the ConsumeQueues are asked.
        """
        flags = batch.column("sysFlag").to_numpy()
        queued = np.flatnonzero(np.isin(flags & TRANSACTION_TYPE, (0, TRANSACTION_COMMIT)))
        if not len(queued):
            return []
        topic = batch.column("topic").dictionary_encode()
        topics, codes = topic.dictionary.to_pylist(), topic.indices.to_numpy().astype(np.int64)[queued]
        queue_ids, offsets, positions = (
            batch.column(name).to_numpy().astype(np.int64)[queued]
            for name in ("queueId", "queueOffset", "commitLogOffset")
        )
        found = []
        for i in self._breaks(topics, (codes << _ID_BITS) + queue_ids, offsets):
            queue = topics[int(codes[i])], int(queue_ids[i])
            known = self._known(*queue, int(offsets[i]), int(positions[i]))
            if known is not None:
                other, offset = known
                found.append(
                    (
                        int(queued[i]),
                        f"queue {queue[1]} of topic {queue[0]!r}, queueOffset {offsets[i]}: its ConsumeQueue has this "
                        f"message in queue {other.queue_id} at {offset}",
                    )
                )
        return sorted(found)

    def _breaks(self, topics: list[str], keys: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> list[int]:
        """Which messages have another offset than comes next in their queue, are the first ones of it, or come just
        before such a one: then that may be right, and they be wrong."""
        order = np.argsort(keys, kind="stable")
        keys, offsets = keys[order], offsets[order]
        is_first = np.append(True, keys[1:] != keys[:-1])
        is_break = np.append(True, offsets[1:] != offsets[:-1] + 1) | is_first
        firsts = np.flatnonzero(is_first).tolist()
        for first, after in zip(firsts, [*firsts[1:], len(keys)], strict=True):
            queue = topics[int(keys[first]) >> _ID_BITS], int(keys[first]) & ((1 << _ID_BITS) - 1)
            is_break[first] = self._next.get(queue) != offsets[first]
            self._next[queue] = int(offsets[after - 1]) + 1
        is_break[:-1] |= is_break[1:] & ~is_first[1:]
        return [int(each) for each in order[is_break]]

    def _known(self, topic: str, queue_id: int, offset: int, position: int) -> tuple[Queue, int] | None:
        """The queue of the topic that has a message, and at which offset, where that is another place; None where it is
        the same one, or no queue has it."""
        queues = self._store.queues.of_topic(topic)
        own = [queue for queue in queues if queue.queue_id == queue_id]
        if any((unit := queue.unit(offset)) is not None and unit.position == position for queue in own):
            return None
        for queue in queues:
            number = queue.search(position)
            unit = queue.unit(number)
            if unit is not None and unit.position == position:
                return queue, number
        return None
