"""A store that is copied, and what has to be known of it before its messages."""

from collections.abc import Mapping
from dataclasses import dataclass

from rmqstore_spark.jobs.copying.waiting import Waiting
from rmqstore_spark.store.format.by_queue import QueueName
from rmqstore_spark.store.snapshot import Snapshot


@dataclass(frozen=True)
class Source:
    """A store that is copied; of several replicas of one, which are copied as one, the newest.

    Attributes:
        number: which of the sources it is, from 0 on: physical offsets of different sources are different things.
        store: the store.
        waiting: what becomes of messages that a broker keeps for itself.
        first_queue: the number that queue 0 of each topic gets; 0 where a topic is not in it.
        queues: how many queues each topic has; None where no other source comes after it.
    """

    number: int
    store: Snapshot
    waiting: Waiting
    first_queue: Mapping[str, int]
    queues: Mapping[str, int] | None

    def new_name(self, topic: str, queue_id: int) -> QueueName:
        """What a queue of it is called in the copy."""
        return topic, self.first_queue.get(topic, 0) + queue_id
