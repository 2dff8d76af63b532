"""ConsumeQueue and index files anew from the commitlog: as a broker would, but at the speed of the disk."""

import contextlib
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from native_io import Dispatcher
from rmqstore_spark.errors import DamagedStoreError, NotAStoreError
from rmqstore_spark.store import checkpoint
from rmqstore_spark.store.commitlog import Segment, SegmentReader
from rmqstore_spark.store.consumequeue import ConsumeQueues
from rmqstore_spark.store.files import Counters
from rmqstore_spark.store.layout import SEGMENT_NAME, find_store
from rmqstore_spark.store.sizes import Sizes
from rmqstore_spark.store.write import disk, journal, topics
from rmqstore_spark.store.write.commit import Progress, milliseconds_now
from rmqstore_spark.store.write.indexfile import IndexWriter
from rmqstore_spark.store.write.lanes import Lane
from rmqstore_spark.store.write.lock import StoreLock
from rmqstore_spark.store.write.logfiles import LogReader
from rmqstore_spark.store.write.queuefiles import QueueWriter
from rmqstore_spark.store.write.target import (
    Target,
    check_can_exchange,
    check_writable,
    find_end,
    indexes_tags,
    sizes_to_rebuild,
)

_STEPS = 16  # windows of the log whose outcome is put into files at a time


def rebuild(root: str, sizes: Sizes, index: bool) -> int:
    """Make ConsumeQueue and index files anew from the commitlog, and put them in place of what is there.

    The store needs no broker's clean stop: afterwards there is no `abort`, and a `checkpoint` that knows all of it.
    Queues of which the commitlog has no message (they have expired, or are LMQ's) stay as they are.

    Args:
        root: the store directory, absolute.
        sizes: of the new files; None takes those of the files that are there.
        index: whether to make index files.

    Returns:
        How many messages the queues have got.

    Raises:
        DamagedStoreError: the commitlog is damaged. The store is as it was, here and in all other cases.
    """
    if not os.path.isdir(os.path.join(root, "commitlog")):
        raise NotAStoreError(f"{root}: not a RocketMQ store: expected a directory commitlog/ in it, found none")
    with StoreLock(root):
        disk.make_directory(journal.workshop(root))
        check_can_exchange(journal.workshop(root))
        change = journal.Commit(root)
        change.recover()
        change.sweep()
        check_writable(root, may_have_abort=True)
        counters = Counters()
        layout = find_store(root, None, counters)
        queues = ConsumeQueues(layout.consumequeue, counters)
        target = find_end(layout, sizes_to_rebuild(layout, sizes), queues, counters)
        change.begin()
        try:
            count = _make(target, change.new, index)
            change.publish(("consumequeue", "index") if index else ("consumequeue",))
        except Exception:
            change.recover()
            raise
        disk.remove_empty(journal.workshop(root))
        return count


def _make(target: Target, new: str, index: bool) -> int:
    old_queues, new_queues = (os.path.join(top, "consumequeue") for top in (target.root, new))
    for name in ("consumequeue", "index", "config"):
        disk.make_directory(os.path.join(new, name))
    queues = QueueWriter(None, new_queues, target.sizes.queue_file, {})
    entries = IndexWriter(
        os.path.join(new, "index"), os.path.join(new, "index"), target.sizes.slots, target.sizes.items
    )
    progress = Progress(target.root, sum(min(s.end, target.end) - s.start for s in target.segments))
    count, last_timestamp = 0, 0
    needed: dict[str, int] = {}
    with entries, Lane(4) as puts:
        for part in _dispatch_all(target):
            for (topic, queue_id), _, _ in part.runs:
                needed[topic] = max(needed.get(topic, 0), queue_id + 1)
            for run in part.runs:
                queues.put(*run)
            if index:
                puts.submit(entries.put, part.key_hash, part.key_position, part.key_timestamp)
            count += part.count
            last_timestamp = part.last_timestamp or last_timestamp
            progress.add(part.nbytes)
        puts.wait()
        entries.finish()
    queues.finish(LogReader(os.path.join(target.root, "commitlog"), target.sizes.segment).store_timestamp)
    _keep_others(old_queues, new_queues)
    known = topics.load(target.root)
    missing = {topic: n for topic, n in needed.items() if topic not in known.get("topicConfigTable", {})}
    if missing:
        disk.write_file(os.path.join(new, "config", "topics.json"), topics.merge(known, missing, milliseconds_now()))
    indexed = entries.end_timestamp
    if not index:
        indexed = checkpoint.index_timestamp(os.path.join(target.root, "checkpoint"), Counters())
    disk.write_file(os.path.join(new, "checkpoint"), checkpoint.encode(last_timestamp, indexed, target.end))
    return count


def _keep_others(old: str, new: str) -> None:
    """Take over the queues that nothing in the log has made anew."""
    for queue in ConsumeQueues(old, Counters()):
        source, target = (os.path.join(top, queue.topic, str(queue.queue_id)) for top in (old, new))
        if os.path.isdir(source) and not os.path.exists(target):
            disk.make_directory(target)
            for name in sorted(filter(SEGMENT_NAME.fullmatch, os.listdir(source))):
                disk.link(os.path.join(source, name), os.path.join(target, name))


@dataclass(frozen=True)
class _Part:
    """What follows from some units in a row."""

    runs: list[tuple[tuple[str, int], int, memoryview]]  # queue, first queue offset, ConsumeQueue units
    key_hash: npt.NDArray[np.int32]
    key_position: npt.NDArray[np.int64]
    key_timestamp: npt.NDArray[np.int64]
    last_timestamp: int
    count: int
    nbytes: int


def _dispatch_all(target: Target) -> Iterator[_Part]:
    """The parts of the log in its order. Segments are worked on side by side, one for each core."""
    workers = os.cpu_count() or 1
    tags = False
    with contextlib.suppress(DamagedStoreError):  # the index may be what is broken
        tags = indexes_tags(target)
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[list[_Part]]] = deque()
        segments = deque(target.segments)
        while segments or waiting:
            while segments and len(waiting) <= workers:
                waiting.append(pool.submit(lambda s: list(_dispatch(s, target, tags)), segments.popleft()))
            yield from waiting.popleft().result()


class _Scanner:
    """A dispatcher that is handed windows as a decoder is."""

    def __init__(self, tags: bool) -> None:
        self.dispatcher = Dispatcher(index_tags=tags)
        self.scan = self.dispatcher.dispatch


def _dispatch(segment: Segment, target: Target, tags: bool) -> Iterator[_Part]:
    scanner = _Scanner(tags)
    stop = min(segment.end, target.end)
    with SegmentReader(segment, True, ConsumeQueues(None, Counters()), Counters()) as reader:
        for step, damage in enumerate(reader.decode(segment.start, stop, scanner, lambda: 1 << 30), 1):
            if damage is not None:
                raise DamagedStoreError(
                    f"{damage}; nothing was changed: copy what can be read into a new store instead"
                )
            if step % _STEPS == 0:
                yield _part(scanner.dispatcher, target)
    yield _part(scanner.dispatcher, target)


def _part(dispatcher: Dispatcher, target: Target) -> _Part:
    found = dispatcher.finish()
    if found.inner_batches:
        raise NotAStoreError(
            f"{target.root}: messages of a BatchCQ topic (sysFlag 0x80), whose queues are of another kind and cannot "
            "be rebuilt; start a broker with `abort` in the store and no `checkpoint`"
        )
    names = dispatcher.queues
    runs = [(names[number], offset, units) for number, offset, units in found.runs()]
    return _Part(
        runs,
        found.key_hash,
        found.key_position,
        found.key_timestamp,
        found.last_timestamp,
        len(found.position),
        int(found.size.sum()),
    )
