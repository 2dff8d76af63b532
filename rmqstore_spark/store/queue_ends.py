"""Where the queues of some topics go on: after the last message, whole or damaged, that the log has of each queue.

The queues' units tell where (store/queue_bounds.py). But a queue that has lost its last units does not show the loss,
and a writer that goes on with an offset already given makes two messages of one offset. So the log is searched for
later messages of a queue as well: from the last message that the queue knows, unless that is too far back, and without
a limit where a queue ends exactly at the end of a file, as a queue does that has lost its next file.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from native_io import Filter
from rmqstore_spark.errors import DamagedStoreError, one_line
from rmqstore_spark.store.bounds_search import QueueBounds
from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.queue_bounds import queue_bounds
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.layout import queue_path
from rmqstore_spark.store.structures.many_headers import Place
from rmqstore_spark.store.structures.segments import Damage
from rmqstore_spark.store.unit_evidence import UnitEvidence

log = logging.getLogger(__name__)

_WHAT_HELPS = "call rmqstore_spark.rebuild(store) first"
_FAR = 1 << 30  # bytes before the log's end; the last segment is never too far
_MOST = (1 << 63) - 1

Queue = tuple[str, int]  # topic, queueId
Known = Mapping[str, Mapping[int, int]]  # by topic and queueId


def queue_ends(store: Snapshot, topics: Iterable[str], known: Known | None = None) -> dict[Queue, int]:
    """The next queue offset of each existing queue of some topics. A queue that only the log has messages of, as of a
    deleted topic, goes on after these messages. Light queues are left out.

    Args:
        known: where the queues of some topics went on when the log ended where it does now, if known.

    Raises:
        DamagedStoreError: the ConsumeQueues lag, so that some would go on with wrong offsets; or there are units of
            live messages after a queue's end.
    """
    topics, known = list(topics), known or {}
    evidence = UnitEvidence(store)
    before = {(topic, queue_id): end for topic in topics for queue_id, end in known.get(topic, {}).items()}
    asked = _Asked(store, {topic for topic in topics if topic not in known}, before)
    queues = (queue for topic in topics for queue in store.queues.of_topic(topic) if not queue.is_additional)
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
        start: the physical offset of a unit.
        least: gives the first queue offset wanted of a topic and queueId; None for no message of that queue.
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
    """Refuse a queue with units of live messages after its end: a writer that goes on with the queue overwrites
    them."""
    queue = bounds.queue
    for block in queue.blocks(bounds.end):
        units = block.only(block.are_messages & (block.positions >= evidence.begin) & (block.positions < store.end))
        evidence.look_up(map(Place, units.positions.tolist(), units.sizes.tolist()))
        for unit in units:
            if evidence.message(queue, unit) is not None:
                raise DamagedStoreError(
                    f"{queue.directory}: expected no unit of a message after queueOffset {bounds.end}, where the queue "
                    f"seems to end, found that of {unit.number}; {_WHAT_HELPS}"
                )


@dataclass
class _Asked:
    """Searches the log for later messages of queues.

    Args:
        topics: the topics that may have queues without files.
        known: where queues of the other topics went on.
    """

    store: Snapshot
    topics: set[str]
    known: dict[Queue, int]
    _ends: dict[Queue, int] = field(default_factory=dict)
    _since: dict[Queue, int] = field(default_factory=dict)  # the physical offset up to which a queue knows its messages
    _odd: set[Queue] = field(default_factory=set)  # queues that may have lost a file
    _without_files: set[Queue] = field(default_factory=set)

    def add(self, bounds: QueueBounds) -> None:
        """Add a queue, with the bounds that its units give."""
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
        """The queue offset at which each queue goes on.

        Raises:
            DamagedStoreError: a queue lags.
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
        """Messages that queues do not know, after the ones that they know."""
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
            f"for queueOffset {queue_offset}, {what}, found none; {_WHAT_HELPS}"
        )


def _refuse_unqueued(store: Snapshot) -> None:
    """Refuse a log whose last message its queue does not know. A broker fills the queues in the order of the log, so no
    queue lags if the last message is queued."""
    last = _last_queued(store)
    if last is not None and not store.queues.vouch_for(last):
        raise DamagedStoreError(
            f"{store.root}: the ConsumeQueues lag the commitlog: expected a unit for the message of queue "
            f"{last.queue_id} of {last.topic} at commitLogOffset {last.position}, found none; {_WHAT_HELPS}"
        )


def _last_queued(store: Snapshot) -> Header | None:
    """The last message of the log that belongs in a queue."""
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
