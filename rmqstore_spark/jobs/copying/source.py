"""A store that is copied, and the facts about it that its messages need."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rmqstore_spark.jobs.copying.waiting import Waiting
from rmqstore_spark.store.format.by_queue import Integers, QueueName
from rmqstore_spark.store.snapshot import Snapshot


@dataclass(frozen=True)
class Source:
    """A store that is copied; of several replicas, which are copied as one store, the newest.

    Attributes:
        number: the source's number, from 0 on; a physical offset means something only together with it.
        store: the store.
        waiting: decides about messages that a broker keeps for itself.
        first_queue: by topic, the number that queue 0 gets; 0 for other topics.
        queues: by topic, the number of queues; None for the last source.
        batch_topics: the topics whose queues are BatchCQs.
        left_out: the physical offsets of messages that options leave out; ascending.
    """

    number: int
    store: Snapshot
    waiting: Waiting
    first_queue: Mapping[str, int]
    queues: Mapping[str, int] | None
    batch_topics: Collection[str] = ()
    left_out: Integers = field(default_factory=lambda: np.zeros(0, np.int64))

    def are_left_out(self, positions: Integers) -> npt.NDArray[np.bool_]:
        """True for the messages at these physical offsets that options leave out."""
        if not len(self.left_out):
            return np.zeros(len(positions), np.bool_)
        at = np.minimum(np.searchsorted(self.left_out, positions), len(self.left_out) - 1)
        return np.asarray(self.left_out[at] == positions)

    def new_name(self, topic: str, queue_id: int) -> QueueName:
        """The name in the copy of one of the source's queues."""
        return topic, self.first_queue.get(topic, 0) + queue_id
