"""The place of a time or a consumer group in the queues of a store, in the form of the option `startingOffsets`."""

from collections.abc import Collection
from typing import NamedTuple

from rmqstore_spark.query.selection import EVERYTHING, Selection, Texts
from rmqstore_spark.read.plan.groups import check_group
from rmqstore_spark.store.format.by_queue import QueueName
from rmqstore_spark.store.queue_bounds import ManyBounds, queue_bounds
from rmqstore_spark.store.queue_times import QueueTimes
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.unqueued import unqueued

Positions = dict[str, dict[str, int]]  # by topic and queueId


class Place(NamedTuple):
    """What a queue has, as queue offsets.

    Attributes:
        least: of the first message; `end` where there is none.
        first: of the first message at a time or later; `end` where there is none.
        end: the offset after the last message.
    """

    least: int
    first: int
    end: int


def places_at(store: Snapshot, time: int | None, topics: Collection[str] | None = None) -> dict[QueueName, Place]:
    """What each queue has, and where it stood at a time. Messages that no queue file has are found in the log, as in
    the table `queues`.

    Args:
        time: a store time in microseconds; None for a time before all messages.
        topics: these alone; None: all but light queues, whose messages are in other queues.
    """
    queues = store.queues.without_light() if topics is None else store.queues.of_topics(topics)
    bounds = list(queue_bounds(store, queues))
    times = QueueTimes(store)
    least: dict[QueueName, int] = {}
    first: dict[QueueName, int] = {}
    ends: dict[QueueName, int] = {}
    _ = store.times  # once, for all queues
    firsts = [each.least for each in bounds] if time is None else times.first_from_each(bounds, time)
    for each, at in zip(bounds, firsts, strict=True):
        name = each.queue.topic, each.queue.queue_id
        least[name], ends[name] = each.least, each.end
        if at < each.end:
            first[name] = at
    selection = EVERYTHING if topics is None else Selection(topic=Texts(among=frozenset(topics)))
    for message in unqueued(store, selection, ManyBounds.of(bounds)):
        name, offset = (message.topic, message.queue_id), message.offset
        if least.get(name, 0) == ends.get(name, 0):  # the first message that is left
            least[name] = offset
        ends[name] = max(ends.get(name, 0), offset + 1)
        if time is None or message.time >= time:
            first[name] = min(first.get(name, offset), offset)
    return {name: Place(min(least[name], end), first.get(name, end), end) for name, end in ends.items()}


def positions_at(store: Snapshot, time: int) -> Positions:
    """For each queue the first offset with a store time (microseconds) of `time` or later, else the queue's end."""
    found: Positions = {}
    for (topic, queue_id), place in places_at(store, time).items():
        found.setdefault(topic, {})[str(queue_id)] = place.first
    return found


def positions_of(store: Snapshot, group: str) -> Positions:
    """A consumer group's next offset in each queue of the store for which the group has one.

    Raises:
        OptionError: the group has no offset.
    """
    check_group([store], group, "offsets_of")
    found: Positions = {}
    for topic in sorted(topic for name, topic in store.consumer_offsets if name == group):
        existing = {queue.queue_id for queue in store.queues.all_of_topic(topic)}
        for queue_id, offset in sorted(store.consumer_offsets[group, topic].items()):
            if queue_id in existing or queue_id < store.topics.get(topic, 0):
                found.setdefault(topic, {})[str(queue_id)] = offset
    return found
