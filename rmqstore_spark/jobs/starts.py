"""Where consumer groups go on: the queue offset in each queue, for a word, a time, or offsets that a user gives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from rmqstore_spark.columns import INT, LONG, TEXT, Column, as_schema
from rmqstore_spark.errors import DamagedStoreError, OptionError, nearest, quoted
from rmqstore_spark.query.copy_values import Start
from rmqstore_spark.query.instants import Instant
from rmqstore_spark.query.option_values import EARLIEST, LATEST
from rmqstore_spark.read.plan.groups import check_group
from rmqstore_spark.store.format.by_queue import QueueName
from rmqstore_spark.store.format.system_topics import RETRY_PREFIX
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import has_one_offset
from rmqstore_spark.tables.columns import batches
from rmqstore_spark.tables.positions import Place, places_at

_EMPTY = Place(0, 0, 0)
_MOST_QUEUES = 1 << 16  # of a topic
_COLUMNS = (
    Column("group", TEXT, "the consumer group"),
    Column("topic", TEXT, "topic of the queue"),
    Column("queueId", INT, "number of the queue"),
    Column("consumerOffset", LONG, "where the group went on so far; null where it had no offset"),
    Column("newOffset", LONG, "where it goes on now"),
    Column("minOffset", LONG, "queue offset of the first message that is left"),
    Column("maxOffset", LONG, "queue offset after the last message"),
    Column("again", LONG, "messages between the two that the group gets a second time"),
    Column("skipped", LONG, "messages between the two that it does not get"),
)
SCHEMA = as_schema(_COLUMNS)


class Started(NamedTuple):
    """Where a group goes on in a queue.

    Attributes:
        before: where it went on so far; None where it had no offset there.
        offset: where it goes on.
        place: what the queue has.
    """

    group: str
    queue: QueueName
    before: int | None
    offset: int
    place: Place


def starts_of(store: Snapshot, starts: Mapping[str, Start], option: str) -> Iterator[Started]:
    """Where groups go on in the queues of a store.

    A word or a time holds for all queues of the topics, and all light queues, that the group has consumed, except its
    retry topic: what waits there for another try still does, as after the broker's own reset of offsets. Offsets hold
    for the queues that they name. A group that has one offset in a topic has it in queue 0.

    Args:
        starts: by group.
        option: the option that names them, for errors.

    Raises:
        OptionError: a group, topic, queue or offset that the store does not have.
        DamagedStoreError: a topic has more queues by its configuration than any that works.
    """
    for group, start in starts.items():
        if isinstance(start, dict):
            yield from _given(store, group, start, option)
            continue
        try:
            check_group([store], group, option)
        except OptionError as why:  # config/ may have been lost
            raise OptionError(f'{why}; for a group without one name the queues, {{"topic": {{"0": 17}}}}') from None
        topics = _topics_of(store, group)
        if not topics:
            raise OptionError(
                f"{option}: group {quoted(group)} has offsets of its retry topic alone: expected other topics that it "
                'consumes; name the queues, {"topic": {"0": 17}}'
            )
        time = math.ceil(start.milliseconds) * 1000 if isinstance(start, Instant) else None
        places = _with_empty(store, topics, places_at(store, time, topics))
        for queue, place in sorted(places.items()):
            if queue[1] > 0 and _has_one_offset(store, group):
                continue
            offset = place.end if start == "latest" else place.first
            yield Started(group, queue, _known(store, group, queue), offset, place)


def _topics_of(store: Snapshot, group: str) -> list[str]:
    """The topics whose offsets a word or a time changes."""
    return [topic for name, topic in store.consumer_offsets if name == group and not topic.startswith(RETRY_PREFIX)]


def _with_empty(store: Snapshot, topics: Iterable[str], places: Mapping[QueueName, Place]) -> dict[QueueName, Place]:
    """The same, with the queues that have had no message yet.

    Raises:
        DamagedStoreError: a topic has more queues by its configuration than any that works.
    """
    configured = {topic: store.topics.get(topic, 0) for topic in topics}
    for topic, count in configured.items():
        if count > _MOST_QUEUES:
            raise DamagedStoreError(
                f"{store.root}: config/topics.json: topic {quoted(topic)}: expected at most {_MOST_QUEUES:,} queues, "
                f"found {count:,}; correct the number"
            )
    empty = ((topic, queue_id) for topic, count in configured.items() for queue_id in range(count))
    return dict.fromkeys(empty, _EMPTY) | dict(places)


def _given(store: Snapshot, group: str, start: Mapping[str, Mapping[int, int]], option: str) -> Iterator[Started]:
    known = {*store.topics, *store.queues.topics}
    for topic in start:
        if topic not in known and not store.queues.all_of_topic(topic):  # a light queue
            near = nearest(topic, sorted(known))
            raise OptionError(f"{option}: for group {quoted(group)}: the store has no topic {quoted(topic)}.{near}")
    places = _with_empty(store, start, places_at(store, None, sorted(start)))
    for topic, queues in sorted(start.items()):
        for queue_id, offset in sorted(queues.items()):
            place = places.get((topic, queue_id))
            where = f"{option}: for group {quoted(group)}: queue {queue_id} of topic {quoted(topic)}"
            if place is None:
                ids = ", ".join(str(number) for name, number in sorted(places) if name == topic)
                raise OptionError(f"{where}: the store has no such queue; the topic has {ids or 'none'}")
            found = {EARLIEST: place.least, LATEST: place.end}.get(offset, offset)
            if queue_id > 0 and _has_one_offset(store, group):
                raise OptionError(
                    f"{where}: a broker with enableLmq has one offset of such a group in a topic, whatever the queue: "
                    "expected queue 0 alone"
                )
            if not place.least <= found <= place.end:
                raise OptionError(
                    f"{where}: expected an offset from {place.least}, of the first message that is left, to "
                    f"{place.end}, the end, found {offset}"
                )
            yield Started(group, (topic, queue_id), _known(store, group, (topic, queue_id)), found, place)


def _has_one_offset(store: Snapshot, group: str) -> bool:
    return has_one_offset(group, store.offsets_files.name)


def _known(store: Snapshot, group: str, queue: QueueName) -> int | None:
    topic, queue_id = queue
    found = store.consumer_offsets.get((group, topic))
    return None if found is None else found.get(queue_id)


def as_table(found: Iterable[Started]) -> pa.Table:
    """Where groups went on and go on, as a table."""
    return pa.Table.from_batches(batches(SCHEMA, map(_row, found)), SCHEMA)


def _row(found: Started) -> tuple[object, ...]:
    place, old, new = found.place, found.before, found.offset
    inside = None if old is None else min(max(old, place.least), place.end)
    again = None if inside is None else max(0, inside - new)
    skipped = None if inside is None else max(0, new - inside)
    return (found.group, *found.queue, old, new, place.least, place.end, again, skipped)
