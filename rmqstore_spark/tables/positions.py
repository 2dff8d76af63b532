"""The place of a time or a consumer group in the queues of a store, in the form of the option `startingOffsets`."""

from rmqstore_spark.query.selection import EVERYTHING
from rmqstore_spark.read.plan.groups import check_group
from rmqstore_spark.store.queue_bounds import ManyBounds, queue_bounds
from rmqstore_spark.store.queue_times import QueueTimes
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.tables.unqueued import unqueued

Positions = dict[str, dict[str, int]]  # by topic and queueId


def positions_at(store: Snapshot, time: int) -> Positions:
    """For each queue the first offset with a store time (microseconds) of `time` or later, else the queue's end. Light
    queues are left out, as their messages are in other queues. Messages that no queue file has are found in the log, as
    in the table `queues`."""
    times = QueueTimes(store)
    bounds = list(queue_bounds(store, (queue for queue in store.queues.with_batch if not queue.is_lmq)))
    first: dict[tuple[str, int], int] = {}
    ends: dict[tuple[str, int], int] = {}
    for each in bounds:
        name = each.queue.topic, each.queue.queue_id
        ends[name], at = each.end, times.first_from(each, time)
        if at < each.end:
            first[name] = at
    for message in unqueued(store, EVERYTHING, ManyBounds.of(bounds)):
        name = message.topic, message.queue_id
        ends[name] = max(ends.get(name, 0), message.offset + 1)
        if message.time >= time:
            first[name] = min(first.get(name, message.offset), message.offset)
    found: Positions = {}
    for (topic, queue_id), end in ends.items():
        found.setdefault(topic, {})[str(queue_id)] = first.get((topic, queue_id), end)
    return found


def positions_of(store: Snapshot, group: str) -> Positions:
    """A consumer group's next offset in each queue of the store for which the group has one.

    Raises:
        OptionError: the group has no offset.
    """
    check_group([store], group, "offsets_of")
    found: Positions = {}
    for (name, topic), queues in sorted(store.consumer_offsets.items()):
        existing = {queue.queue_id for queue in store.queues.all_of_topic(topic)}
        for queue_id, offset in sorted(queues.items()):
            if name == group and (queue_id in existing or queue_id < store.topics.get(topic, 0)):
                found.setdefault(topic, {})[str(queue_id)] = offset
    return found
