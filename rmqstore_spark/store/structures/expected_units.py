"""The units that queues have to have, as they follow from the log: one for each message in a simple queue, and one for
each batch in a BatchCQ, which says more."""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from native_io import Dispatcher
from rmqstore_spark.store.format.queue_block import QueueBlock
from rmqstore_spark.store.structures.queues import ConsumeQueues


class ExpectedUnits:
    """What a dispatcher makes of the log for the queues of a store.

    Args:
        batch_topics: the topics whose queues are BatchCQs; not those that have simple queues as well.
    """

    def __init__(self, batch_topics: Collection[str] = ()) -> None:
        self._batch_topics = batch_topics

    @classmethod
    def of(cls, queues: ConsumeQueues) -> "ExpectedUnits":
        """What some queues have to have."""
        return cls(queues.topics_of_batches)

    def dispatcher(self, index_tags: bool) -> Dispatcher:
        """What makes the units, and with them the items of an index."""
        return Dispatcher(index_tags=index_tags, light_queues=True, batch_topics=self._batch_topics)

    def parsed(self, topic: str, units: memoryview, queue_offsets: npt.NDArray[np.int64]) -> QueueBlock:
        """Units that the dispatcher has made for a queue of a topic, numbered by their queue offsets."""
        found = QueueBlock.of(units, 0, topic in self._batch_topics)
        found.number(queue_offsets, are_offsets=topic not in self._batch_topics)
        return found

    def differ(self, topic: str, units: QueueBlock, actual: QueueBlock) -> npt.NDArray[np.bool_]:
        """Which of a queue's units differ from the expected ones, except in their tagsCodes. What the expected ones do
        not say, as they are those of a simple queue, the queue's are taken to say right."""
        if topic not in self._batch_topics:
            actual.messages, actual.store_times = units.messages, units.store_times
        are_wrong: npt.NDArray[np.bool_] = (actual.positions != units.positions) | (actual.sizes != units.sizes)
        are_wrong |= actual.queue_offsets != units.queue_offsets
        are_wrong |= (actual.messages != units.messages) | (actual.store_times != units.store_times)
        return are_wrong
