"""Topics and queues that options name, and no store has: more often a typo than intended."""

import logging
from collections.abc import Collection, Iterator, Mapping

from rmqstore_spark.errors import OptionError, nearest, one_line, quoted, some_of
from rmqstore_spark.query.selection import Selection
from rmqstore_spark.read.plan.unqueued import queues_know_all
from rmqstore_spark.store.snapshot import Snapshot

log = logging.getLogger(__name__)

_MOST_SHOWN = 1024  # queues of a topic: RocketMQ's own benchmark topic has so many


def check_topics(subscribe: frozenset[str], stores: list[Snapshot]) -> None:
    """Refuse topics that no store knows from a ConsumeQueue, the broker's topics, or consumers' offsets. Where only a
    scan could tell that the log has no message of these topics either, or nothing at all is known of topics, there is
    only a warning: the topics may have been deleted.

    Raises:
        OptionError: naming one of the topics.
    """
    unknown, known = _unknown_of(subscribe, stores)
    topics = {topic for topic in unknown if not any(store.queues.may_be_lost(topic) for store in stores)}
    if topics and known and all(map(queues_know_all, stores)):
        raise OptionError(_unknown(min(topics), known))
    for topic in sorted(unknown):
        log.warning("%s; searching the log for messages that may be left", _unknown(topic, known))


def say_unknown_topics(subscribe: frozenset[str], stores: list[Snapshot]) -> None:
    """Log such topics. For tables: their rows are complete without these topics, and a program may ask for a future
    topic."""
    unknown, known = _unknown_of(subscribe, stores)
    for topic in sorted(unknown):
        log.warning("%s", one_line(_unknown(topic, known)))


def _unknown_of(subscribe: frozenset[str], stores: list[Snapshot]) -> tuple[set[str], set[str]]:
    """Topics that nothing knows; and, where there are any, the topics that are known."""
    unknown = {topic for topic in subscribe if not any(_queues(store, topic) for store in stores)}
    if not unknown:
        return set(), set()
    known = {queue.topic for store in stores for queue in store.stored_queues.every}
    for store in stores:
        known |= set(store.topics) | store.consumed_topics
    return unknown - known, known


def check_queues(selection: Selection, stores: list[Snapshot]) -> None:
    """Refuse queues that no store has, and of which no log can have a message. Where nothing is known of queues, none
    is refused.

    Raises:
        OptionError: naming one of the queues.
    """
    named = list(selection.offsets) + _assigned(selection.assigned)
    unknown = list(_unknown_queues(named, stores, set()))
    if unknown and all(map(queues_know_all, stores)):
        raise OptionError(unknown[0])
    for each in unknown:
        log.warning("%s; searching the log for messages that may be left", one_line(each))


def say_unknown_queues(assigned: Mapping[str, frozenset[int]] | None, stores: list[Snapshot]) -> None:
    """Log such queues of `assign`, as say_unknown_topics() does. Queues with an offset of a consumer group are
    known."""
    consumed = {
        (topic, queue_id)
        for store in (stores if assigned else ())
        for (_, topic), queues in store.consumer_offsets.items()
        for queue_id in queues
    }
    for unknown in _unknown_queues(_assigned(assigned), stores, consumed):
        log.warning("%s", one_line(unknown))


def _assigned(assigned: Mapping[str, frozenset[int]] | None) -> list[tuple[str, int]]:
    return [(topic, queue_id) for topic, ids in (assigned or {}).items() for queue_id in sorted(ids)]


def _unknown_queues(
    named: list[tuple[str, int]], stores: list[Snapshot], others: set[tuple[str, int]]
) -> Iterator[str]:
    """A text for the queues that neither a store nor `others` has."""
    if all((topic, queue_id) in others or _is_known(topic, queue_id, stores) for topic, queue_id in named):
        return
    known: dict[str, set[int]] = {}
    for store in stores:
        for queue in store.stored_queues.every:
            known.setdefault(queue.topic, set()).add(queue.queue_id)
    if not known:
        return
    for store in stores:
        for topic, count in store.topics.items():
            known.setdefault(topic, set()).update(range(min(count, _MOST_SHOWN)))
    for topic, queue_id in named:
        if (topic, queue_id) in others or _is_known(topic, queue_id, stores):
            continue
        if topic not in known:
            yield _unknown(topic, known)
        else:
            some = sorted(known[topic])
            there = ", ".join(map(str, some[:_MOST_SHOWN])) + ", ..." * (len(some) > _MOST_SHOWN)
            yield f"topic {quoted(topic)} has no queue {queue_id}; it has {there}"


def _is_known(topic: str, queue_id: int, stores: list[Snapshot]) -> bool:
    return any(queue_id in _queues(store, topic) or queue_id < store.topics.get(topic, 0) for store in stores)


def _queues(store: Snapshot, topic: str) -> set[int]:
    """The queues of a topic that a store has; the directories of other topics are not listed."""
    return {queue.queue_id for queue in store.stored_queues.all_of_topic(topic)}


def _unknown(topic: str, known: Collection[str]) -> str:
    users_first = sorted(known, key=lambda name: (name.startswith(("%", "RMQ_SYS_")), name))
    return f"unknown topic {quoted(topic)}.{nearest(topic, list(known))} The store has {some_of(users_first)}"
