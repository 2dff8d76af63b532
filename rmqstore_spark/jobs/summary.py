"""A store on one screen: its size, its time span, the largest topics, and the groups that lag."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqstore_spark.store.elsewhere import Elsewhere, elsewhere
from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import topic_entries
from rmqstore_spark.tables.offsets import progress
from rmqstore_spark.tables.queues import QueueFacts, queue_facts
from rmqstore_spark.tables.topics import kind_of

# How much of the log is sampled, so that a summary takes only seconds on a disk that has to seek:
_TOPICS_SAMPLED = 20  # the topics with most messages
_QUEUES_SAMPLED = 2  # the largest queues of a topic
_SAMPLES = 16  # messages of a queue
IN_SUMMARIES = {"messages", "topics", "queues", "groups", "offsets"}  # the tables that a summary shows in short
RATES = 24  # parts of the store's time span, with a rate for each


@dataclass(frozen=True)
class TopicSummary:
    """A topic with messages.

    Attributes:
        nbytes: estimated from some messages; None if the topic was not sampled.
        rates: estimated messages in each of RATES equal parts of the store's time span; empty if not sampled.
    """

    topic: str
    kind: str
    queues: int
    messages: int
    nbytes: float | None
    rates: list[float]


@dataclass(frozen=True)
class GroupSummary:
    """A consumer group's progress in all its queues.

    Attributes:
        lag: messages.
        lag_millis: the longest lag of a queue, in ms; None if no queue tells.
    """

    group: str
    topics: list[str]
    lag: int
    lag_millis: int | None


@dataclass(frozen=True)
class Summary:
    """A store. Times are microseconds since 1970, None if the store has no message.

    Large because each field is a line of the screen.

    Attributes:
        nbytes: the size of all messages.
        messages: the number of messages in queues.
        topics: the topics with messages, the one with most messages first.
        empty_topics: the number of other topics in the configuration.
        groups: the group that lags most first.
        unknown: the places that the tables of messages, topics, queues, groups and offsets do not know.
    """

    root: str
    nbytes: int
    segments: int
    first_time: int | None
    last_time: int | None
    messages: int
    queues: int
    topics: list[TopicSummary]
    empty_topics: int
    groups: list[GroupSummary]
    unknown: list[Elsewhere]


def summarize(store: Snapshot) -> Summary:
    """Summarize a store, with a few requests for each queue."""
    entries = topic_entries(store.root, store.files)
    facts = [queue for queue in queue_facts(store) if queue.kind != "lmq"]
    by_topic: dict[str, list[QueueFacts]] = defaultdict(list)
    for queue in facts:
        if queue.end > queue.least:
            by_topic[queue.topic].append(queue)
    first = min((queue.first_time for queue in facts if queue.first_time is not None), default=None)
    last = max((queue.last_time for queue in facts if queue.last_time is not None), default=None)
    topics: list[TopicSummary] = []
    for topic, queues in sorted(by_topic.items(), key=lambda each: (-_count(each[1]), each[0])):
        samples = _Samples(store, queues if len(topics) < _TOPICS_SAMPLED else [])
        rates = samples.rates(first or 0, last or 0)
        kind = kind_of(topic, entries.get(topic))
        topics.append(TopicSummary(topic, kind, len(queues), _count(queues), samples.nbytes(), rates))
    return Summary(
        root=store.root,
        nbytes=store.log.size,
        segments=len(store.log.extents),
        first_time=first,
        last_time=last,
        messages=_count(facts),
        queues=len(facts),
        topics=topics,
        empty_topics=len(entries.keys() - by_topic.keys()),
        groups=_groups(store, facts),
        unknown=[place for place in elsewhere(store) if place.tables & IN_SUMMARIES],
    )


def _count(queues: list[QueueFacts]) -> int:
    return sum(queue.end - queue.least for queue in queues)


class _Samples:
    """Some messages of a topic's largest queues, spread evenly along them."""

    def __init__(self, store: Snapshot, queues: list[QueueFacts]) -> None:
        self._all = _count(queues)
        largest = sorted((q for q in queues if q.kind == "simple"), key=lambda queue: queue.least - queue.end)
        self._queues = {queue.queue_id: queue for queue in largest[:_QUEUES_SAMPLED]}
        self._messages = {queue_id: list(_some(store, queue)) for queue_id, queue in self._queues.items()}

    def nbytes(self) -> float | None:
        """The estimated bytes of the topic's messages."""
        sizes = [header.size for some in self._messages.values() for header in some]
        return sum(sizes) / len(sizes) * self._all if sizes else None

    def rates(self, first: int, last: int) -> list[float]:
        """The estimated messages in each of RATES equal parts of the time between two store times."""
        edges = np.linspace(first, max(last, first + 1), RATES + 1)
        total: npt.NDArray[np.float64] = np.zeros(RATES)
        for queue_id, some in self._messages.items():
            before = self._queues[queue_id].least - 1
            known = [(h.store_timestamp, h.queue_offset - before) for h in some if h.store_timestamp is not None]
            if known:
                at, so_far = np.array(known, np.int64).T
                at_edges = np.interp(edges, np.maximum.accumulate(at), so_far, left=0)
                at_edges[0] = 0
                total += np.diff(at_edges)
        sampled = total.sum()
        return [float(rate) for rate in total * (self._all / sampled)] if sampled else []


def _some(store: Snapshot, facts: QueueFacts) -> Iterator[Header]:
    queue = store.queues.queue(facts.topic, facts.queue_id)
    for offset in sorted(set(np.linspace(facts.least, facts.end - 1, _SAMPLES).astype(int).tolist())):
        unit = None if queue is None else queue.unit(offset)
        header = None if unit is None else store.log.header(unit.position)
        if header is not None:
            yield header


def _groups(store: Snapshot, facts: list[QueueFacts]) -> list[GroupSummary]:
    table = progress(store, facts).select(["group", "topic", "lag", "lagMillis"])
    topics: dict[str, set[str]] = defaultdict(set)
    lags: dict[str, int] = defaultdict(int)
    millis: dict[str, int] = {}
    for group, topic, lag, lag_millis in zip(*(column.to_pylist() for column in table.columns), strict=True):
        topics[group].add(topic)
        lags[group] += max(0, lag or 0)
        if lag_millis is not None:
            millis[group] = max(millis.get(group, 0), lag_millis)
    groups = [GroupSummary(group, sorted(topics[group]), lags[group], millis.get(group)) for group in topics]
    return sorted(groups, key=lambda each: (-each.lag, each.group))
