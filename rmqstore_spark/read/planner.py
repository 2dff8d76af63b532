"""From stores to partitions: what each task reads.

Knows no Spark. It is run once for a read, so that what comes out is a snapshot of the stores as they were then.
"""

import logging
import os
from collections.abc import Collection
from dataclasses import dataclass, field

from rmqstore_spark.errors import DamagedStoreError, OptionError, nearest, one_line
from rmqstore_spark.options import ReadOptions
from rmqstore_spark.read.access_path import Access, choose
from rmqstore_spark.read.live_log import Log
from rmqstore_spark.read.prune import narrowed
from rmqstore_spark.read.split import Splitter
from rmqstore_spark.read.task import Home, Range, Task
from rmqstore_spark.read.unqueued import queues_know_all
from rmqstore_spark.selection import Selection
from rmqstore_spark.store.commitlog import Damage, segments_of
from rmqstore_spark.store.config import offset_topics, topic_queues
from rmqstore_spark.store.consumequeue import ConsumeQueues
from rmqstore_spark.store.files import Files
from rmqstore_spark.store.layout import expand, find_store
from rmqstore_spark.store.log_end import LogEnd

log = logging.getLogger(__name__)

_SMALL_PARTITION = 4 * 1024 * 1024  # smaller ones only where minPartitions asks for them
_OPEN_COST = 256 * 1024  # what a further range costs a task, in bytes it could have read meanwhile
_SEGMENTS_TO_WALK = 16  # without ConsumeQueue, more segments than these are not walked through for split points


@dataclass(frozen=True)
class _Store:
    log: Log
    index: str | None
    faults: list[Damage]


@dataclass
class Plan:
    """The tasks of a read, how each store is read, and what making them has cost."""

    tasks: list[Task] = field(default_factory=list)
    accesses: list[tuple[Log, Access]] = field(default_factory=list)
    files: Files = field(default_factory=Files)


def plan(options: ReadOptions) -> Plan:
    """Plan a read.

    Raises:
        NotAStoreError: a path is no store.
        OptionError: storePathCommitLog is given for more than one store; `assign` or the offsets name a queue, or
            `subscribe` a topic, that no store has.
        DamagedStoreError: mode FAILFAST, and names or sizes of segments are wrong.
    """
    result = Plan()
    roots = expand(options.paths)
    if options.store_path_commit_log and len(roots) > 1:
        raise OptionError(f"option 'storePathCommitLog' belongs to one store, but the path gives {len(roots)}")
    stores = [_look_at(root, options, result.files) for root in roots]
    faults = [(store.log.home.root, fault) for store in stores for fault in store.faults]
    if faults and options.mode == "FAILFAST":
        raise DamagedStoreError(str(faults[0][1]))
    selection = options.selection
    logs = [store.log for store in stores]
    _check_topics(options.subscribe, logs)
    _check_queues(selection, logs)

    ranges = [r for store in stores for r in store.log.ranges]
    target = _target(sum(r.stop - r.start for r in ranges), options)
    may_walk = len(ranges) <= max(_SEGMENTS_TO_WALK, options.min_partitions or 0)
    splitter = Splitter(logs, target, may_walk)
    for store in stores:
        wanted = [] if selection.is_nothing else narrowed(store.log, selection, splitter)
        result.accesses.append((store.log, choose(store.log, store.index, wanted, selection, splitter)))
    pieces = [piece for _, access in result.accesses for piece in access.pieces]
    result.tasks = _pack(pieces, _target(sum(size for _, size in pieces), options, len(pieces)))
    if faults:
        result.tasks.append(Task(faults=tuple(faults)))
    return result


def _look_at(root: str, options: ReadOptions, files: Files) -> _Store:
    layout = find_store(root, options.store_path_commit_log, files)
    for stray in layout.strays:
        log.warning("%s: not a commitlog file, ignored; a broker would not start with it", one_line(stray))
    segments, faults = segments_of(layout)
    queues = ConsumeQueues(layout.consumequeue, files, layout.batchconsumequeue)
    home = Home(root, layout.consumequeue, layout.batchconsumequeue)
    end = LogEnd(layout, segments, queues, files).find()
    ranges: list[Range] = []
    for segment in reversed(end.segments):
        # A cut file is read as far as it goes: what is missing behind is one of the faults.
        stop = min(segment.end, segment.start + segment.size, end.position)
        if stop > segment.start:
            ranges.insert(0, Range(home, segment, segment.start, stop))
    return _Store(Log(home, ranges, end.timestamp, queues, files), layout.index, faults)


def _check_topics(subscribe: frozenset[str], logs: list[Log]) -> None:
    """Refuse topics that nothing in any store knows: neither a ConsumeQueue, nor the broker's topics, nor a consumer's
    offsets. Where a scan alone could tell that the log has no message of them either, or nothing at all is known of
    topics, that is only a warning: they may have been deleted."""
    unknown = set(subscribe)
    known: set[str] = set()
    for each in logs:
        known.update(queue.topic for queue in each.queues.with_batch)
    if unknown <= known:
        return
    for each in logs:
        known |= set(topic_queues(each.home.root, each.files)) | offset_topics(each.home.root, each.files)
    unknown -= known
    if unknown and known and all(map(queues_know_all, logs)):
        raise OptionError(_unknown(min(unknown), known))
    for topic in sorted(unknown):
        log.warning("%s; messages that the log may still have of it are looked for", _unknown(topic, known))


def _unknown(topic: str, known: Collection[str]) -> str:
    users_first = sorted(known, key=lambda name: (name.startswith(("%", "RMQ_SYS_")), name))
    some = ", ".join(map(repr, users_first[:5])) or "none"
    return f"unknown topic {topic!r}.{nearest(topic, list(known))} The store has {some}{', ...' * (len(known) > 5)}"


def _check_queues(selection: Selection, logs: list[Log]) -> None:
    """Refuse queues that options name and no store has. Where nothing is known of queues, none is refused."""
    named = list(selection.offsets) + [(t, q) for t, ids in (selection.assigned or {}).items() for q in sorted(ids)]
    if not named:
        return
    known: dict[str, set[int]] = {}
    for each in logs:
        for queue in each.queues.with_batch:
            known.setdefault(queue.topic, set()).add(queue.queue_id)
    if not known:
        return
    for each in logs:
        for topic, count in topic_queues(each.home.root, each.files).items():
            known.setdefault(topic, set()).update(range(min(count, 1 + max((q for t, q in named), default=0))))
    for topic, queue_id in named:
        if topic not in known:
            raise OptionError(_unknown(topic, known))
        if queue_id not in known[topic]:
            raise OptionError(
                f"topic {topic!r} has no queue {queue_id}; it has {', '.join(map(str, sorted(known[topic])))}"
            )


def _target(total: int, options: ReadOptions, pieces: int = 0) -> int:
    """Bytes a partition should have: as Spark's file sources reckon, with the driver's cores for the cluster's, which
    planning cannot see. So many pieces are to be divided evenly, and they are not all of one size."""
    if options.min_partitions is not None:
        return min(options.max_partition_bytes, max(1, total // options.min_partitions))
    share = (total + pieces * _OPEN_COST) // (os.cpu_count() or 1)
    return min(options.max_partition_bytes, max(_SMALL_PARTITION, share + share // 16))


def _pack(pieces: list[tuple[Range, int]], target: int) -> list[Task]:
    """Put pieces, each with its bytes to read, together where they are small: Spark pays some 20 ms for a task."""
    open_cost = min(_OPEN_COST, target // 16)
    tasks: list[Task] = []
    packed: list[Range] = []
    size = 0
    for piece, bytes_to_read in pieces:
        cost = bytes_to_read + open_cost
        if packed and size + cost > target:
            tasks.append(Task(tuple(packed)))
            packed, size = [], 0
        packed.append(piece)
        size += cost
    if packed:
        tasks.append(Task(tuple(packed)))
    return tasks
