"""A store that is copied, and the facts about it that its messages need."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqstore_spark.jobs.copying.waiting import Waiting
from rmqstore_spark.store.format.by_queue import Integers, QueueName
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.waiting_numbers import WaitingNumbers


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
        left_out: the physical offsets of messages that options leave out, by each of these.
    """

    number: int
    store: Snapshot
    waiting: Waiting
    first_queue: Mapping[str, int]
    queues: Mapping[str, int] | None
    batch_topics: Collection[str] = ()
    left_out: Sequence[WaitingNumbers] = ()

    def are_left_out(self, positions: Integers) -> npt.NDArray[np.bool_]:
        """True for the messages at these physical offsets that options leave out."""
        found = np.zeros(len(positions), np.bool_)
        for each in self.left_out:
            found |= each.are_in(positions)
        return found

    def new_name(self, topic: str, queue_id: int) -> QueueName:
        """The name in the copy of one of the source's queues."""
        return topic, self.first_queue.get(topic, 0) + queue_id

    def old_name(self, topic: str, queue_id: int) -> QueueName:
        """The name in the source of one of the copy's queues, if it is there at all."""
        return topic, queue_id - self.first_queue.get(topic, 0)
