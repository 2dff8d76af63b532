"""Where the queues of some topics go on: after the last message that the log has of each, whole or damaged.

Their units tell where that is (store/queue_bounds.py). But a queue that has lost its last units does not show it, and
who goes on with an offset that was given already makes two messages of one offset. So the log is asked as well whether
it has later messages of a queue: from the last one on that the queue knows, as far as that is not too far back, and all
the way where a queue ends just where a file does, as it does when it has lost the next one.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from native_io import Filter
from rmqstore_spark.errors import DamagedStoreError, one_line
from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.queue_bounds import QueueBounds, queue_bounds
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import topic_entries
from rmqstore_spark.store.structures.layout import queue_path
from rmqstore_spark.store.structures.segments import Damage
from rmqstore_spark.store.unit_evidence import UnitEvidence

log = logging.getLogger(__name__)

# What makes all queues anew where there are BatchCQ topics.
WITH_A_BROKER = (
    "only a broker makes queues of BatchCQ topics: put a file `abort` into the store, take `checkpoint` away, start a "
    "broker on it and stop it"
)

_FAR = 1 << 30  # bytes before the log's end; the last segment is never too far
_MOST = (1 << 63) - 1

Queue = tuple[str, int]  # topic, queueId
Known = Mapping[str, Mapping[int, int]]  # by topic and queueId


def queue_ends(store: Snapshot, topics: Iterable[str], known: Known | None = None) -> dict[Queue, int]:
    """The next queue offset of each queue of some topics that there is. One of which only the log has messages, as
    those of a deleted topic, goes on after them. Light queues are not in here.

    Args:
        known: where the queues of some topics went on when the log ended where it does now, if that is known.

    Raises:
        DamagedStoreError: the ConsumeQueues lag, so that some would go on with wrong offsets; or there are units of
            live messages after what they have else.
    """
    topics, known = list(topics), known or {}
    evidence = UnitEvidence(store)
    before = {(topic, queue_id): end for topic in topics for queue_id, end in known.get(topic, {}).items()}
    asked = _Asked(store, {topic for topic in topics if topic not in known}, before)
    queues = (queue for topic in topics for queue in store.queues.of_topic(topic) if not queue.is_lmq)
    for bounds in queue_bounds(store, queues, evidence):
        _refuse_units_after(store, bounds, evidence)
        asked.add(bounds)
    _refuse_unqueued(store)
    return asked.ends()


def queued_messages(
    store: Snapshot, start: int, stop: int, least: Callable[[str, int], int | None]
) -> Iterator[Header]:
    """The messages of queues in a stretch of the log, damage left out.

    Args:
        start: a unit begins there.
        least: the first queue offset that is asked for of a topic and queueId; None for no message of it.
    """

    def judge(topic: bytes, queue_id: int) -> tuple[int, int] | None:
        first = least(topic.decode("utf-8", "replace"), queue_id)
        return None if first is None else (first, _MOST)

    for extent in store.log.extents:
        if extent.stop <= start or extent.start >= stop:
            continue
        with store.reader(extent.segment) as reader:
            past_damage = store.past_damage(reader)
            for run in past_damage.select(max(start, extent.start), min(stop, extent.stop), Filter(judge=judge)):
                if not isinstance(run, Damage):
                    yield from (header for header in run.headers() if header.is_queued)


def _refuse_units_after(store: Snapshot, bounds: QueueBounds, evidence: UnitEvidence) -> None:
    """Whoever goes on with a queue writes over what comes after its end. That must be of no live message."""
    queue = bounds.queue
    for block in queue.blocks(bounds.end):
        units = block.only(block.are_messages & (block.positions >= evidence.begin) & (block.positions < store.end))
        evidence.look_up(units.positions.tolist())
        for unit in units:
            if evidence.message(queue, unit) is not None:
                raise DamagedStoreError(
                    f"{queue.directory}: expected no unit of a message after queueOffset {bounds.end}, where the queue "
                    f"seems to end, found that of {unit.number}; {_what_helps(store)}"
                )


@dataclass
class _Asked:
    """Asks the log for later messages of queues.

    Args:
        topics: those of which there may be queues that have no files.
        known: where queues of the others went on.
    """

    store: Snapshot
    topics: set[str]
    known: dict[Queue, int]
    _ends: dict[Queue, int] = field(default_factory=dict)
    _since: dict[Queue, int] = field(default_factory=dict)  # a physical offset, before which a queue is known
    _odd: set[Queue] = field(default_factory=set)  # may have lost a file
    _without_files: set[Queue] = field(default_factory=set)

    def add(self, bounds: QueueBounds) -> None:
        """A queue, as its units have it."""
        queue, end = bounds.queue, bounds.end
        name = queue.topic, queue.queue_id
        was = self.known.get(name, 0)
        if not queue.in_files:
            self._without_files.add(name)
            end = was
        if end < was:
            raise self._lags(name, was - 1, "a message that was there before")
        self._ends[name] = end
        if not queue.in_files or end == queue.stop or any(end == file.first for file in queue.in_files):
            self._odd.add(name)
        if name in self._odd or queue.topic in self.topics:
            self._since[name] = 0 if bounds.last is None else bounds.last.position + bounds.last.size

    def ends(self) -> dict[Queue, int]:
        """Where they go on.

        Raises:
            DamagedStoreError: one lags.
        """
        later: dict[Queue, int] = {}
        for header in self._later_messages():
            name = header.topic, header.queue_id
            if name in self._ends and name not in self._without_files:
                raise self._lags(name, header.queue_offset, f"the message at commitLogOffset {header.position}")
            later[name] = max(later.get(name, 0), header.queue_offset + 1)
        for (topic, queue_id), end in later.items():
            log.warning(
                "%s: topic %r, queue %d: the log has messages up to queueOffset %d, but there is no ConsumeQueue: a "
                "deleted topic's, or it was lost (rmqstore_spark.rebuild makes it anew); it goes on after them",
                *(one_line(self.store.root), one_line(topic), queue_id, end - 1),
            )
        return {**self.known, **self._ends, **later}

    def _later_messages(self) -> Iterator[Header]:
        """Messages that queues do not know, but that come after those that they know."""
        before_end = 0
        for extent in reversed(self.store.log.extents):
            is_far = before_end > 0 and before_end + extent.stop - extent.start > _FAR
            before_end += extent.stop - extent.start
            since = {n: at for n, at in self._since.items() if at < extent.stop and (n in self._odd or not is_far)}
            topics = set() if is_far else self.topics
            if not since and not topics:
                continue
            start = max(extent.start, 0 if topics else min(since.values()))
            for header in queued_messages(self.store, start, extent.stop, self._least(since, topics)):
                if header.position >= since.get((header.topic, header.queue_id), 0):
                    yield header

    def _least(self, since: Mapping[Queue, int], topics: set[str]) -> Callable[[str, int], int | None]:
        def least(topic: str, queue_id: int) -> int | None:
            if (topic, queue_id) in self._ends:
                return self._ends[topic, queue_id] if (topic, queue_id) in since else None
            return 0 if topic in topics else None

        return least

    def _lags(self, queue: Queue, queue_offset: int, what: str) -> DamagedStoreError:
        return DamagedStoreError(
            f"{self.store.root}: the ConsumeQueues lag the commitlog: queue {queue[1]} of {queue[0]}: expected a unit "
            f"for queueOffset {queue_offset}, {what}, found none; {_what_helps(self.store)}"
        )


def _refuse_unqueued(store: Snapshot) -> None:
    """Refuse a log whose last message its queue does not know. A broker fills the queues in the order of the log, so
    where they know that one, none lags."""
    last = _last_queued(store)
    if last is not None and not store.queues.vouch_for(last):
        raise DamagedStoreError(
            f"{store.root}: the ConsumeQueues lag the commitlog: expected a unit for the message of queue "
            f"{last.queue_id} of {last.topic} at commitLogOffset {last.position}, found none; {_what_helps(store)}"
        )


def _what_helps(store: Snapshot) -> str:
    """What makes queues right that lag or are damaged."""
    types = [entry.get("attributes") for entry in topic_entries(store.root, store.files).values()]
    if store.queues.batch or any("BatchCQ" in each.values() for each in types if isinstance(each, dict)):
        return WITH_A_BROKER
    return "call rmqstore_spark.rebuild(store) first"


def _last_queued(store: Snapshot) -> Header | None:
    """The last message of the log that is to be in a queue."""
    if store.last_message is not None and _is_queued(store.last_message):
        return store.last_message
    for extent in reversed(store.log.extents):
        found = None
        with store.reader(extent.segment) as reader:
            for header in reader.headers(extent.start, extent.stop):
                found = header if _is_queued(header) else found
        if found is not None:
            return found
    return None


def _is_queued(header: Header) -> bool:
    return header.is_queued and queue_path(header.topic, header.queue_id) is not None
