"""ConsumeQueue and index files anew from the commitlog: as a broker would, but at the speed of the disk."""

import itertools
import logging
import os
from collections import deque
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from native_io import Dispatcher, UnitKind
from rmqstore_spark.cores import cores
from rmqstore_spark.errors import DamagedStoreError, NotAStoreError, one_line
from rmqstore_spark.progress import Progress
from rmqstore_spark.store.due_times import later_than_usual
from rmqstore_spark.store.format.clock import milliseconds_now
from rmqstore_spark.store.format.light_queues import is_light
from rmqstore_spark.store.format.queue_block import (
    MOST_OFFSETS,
    PRE_BLANK,
    UNIT,
    UNIT_SIZE,
    QueueBlock,
    lost_unit,
)
from rmqstore_spark.store.format.sizes import Sizes
from rmqstore_spark.store.geometry import indexes_tags
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.queue_bounds import queue_bounds
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.config import Table
from rmqstore_spark.store.structures.kinds import refuse_to_write
from rmqstore_spark.store.structures.layout import find_store, queue_path
from rmqstore_spark.store.structures.segments import Extent
from rmqstore_spark.write.build import topics
from rmqstore_spark.write.build.batchqueues import directory_of, keep_other_batches
from rmqstore_spark.write.build.gaps import Gaps
from rmqstore_spark.write.build.logfiles import LogReader
from rmqstore_spark.write.build.store_files import StoreFiles
from rmqstore_spark.write.build.tails import Queue
from rmqstore_spark.write.build.target import (
    Target,
    check_can_exchange,
    check_kinds,
    check_writable,
    inspect_to_rebuild,
)
from rmqstore_spark.write.fs import disk
from rmqstore_spark.write.fs.background import Lane
from rmqstore_spark.write.fs.lock import StoreLock
from rmqstore_spark.write.fs.workshop import workshop
from rmqstore_spark.write.publish.change import Change
from rmqstore_spark.write.publish.journal import (
    BATCHES_REBUILT,
    BATCHES_REBUILT_WITHOUT_INDEX,
    REBUILT,
    REBUILT_WITHOUT_INDEX,
)
from rmqstore_spark.write.publish.sweep import sweep

logger = logging.getLogger(__name__)

_MOST_TOLD = 20
_ONE_KIND = (
    "config/topics.json has to say of each topic what its queues are: `attributes` with `queue.type` BatchCQ, and else "
    "no queues in batchconsumequeue/; bring back the broker's topics.json"
)
_Run = tuple[Queue, int, memoryview]  # first queue offset, ConsumeQueue units
_STEPS = 16  # windows of the log whose entries are put into files at a time


def rebuild(root: str, sizes: Sizes, index: bool) -> int:
    """Make ConsumeQueue and index files anew from the commitlog, and put them in place of the existing ones.

    The store need not have been stopped cleanly: afterwards there is no `abort`, and a `checkpoint` that covers
    everything. Queues of which the commitlog has no message (expired ones) stay as they are. Light queues (LMQ)
    are made anew from the offsets that messages have in them.

    Args:
        root: the store directory, absolute.
        sizes: of the new files; None takes the size of the existing files.
        index: whether to make index files.

    Returns:
        How many messages the queues have got.

    Raises:
        DamagedStoreError: the commitlog is damaged. The store is unchanged, here and in all other cases.
    """
    if disk.kind_at(os.path.join(root, "commitlog")) != "a directory":
        refuse_to_write(find_store(root, None, Files()).root, Files())  # no store: the same error as when read
    with disk.Tree(root) as tree:
        check_kinds(tree)
        with StoreLock(tree):
            try:
                return _rebuild(tree, sizes, index)
            finally:
                tree.remove_empty(workshop(tree.path))


def _rebuild(tree: disk.Tree, sizes: Sizes, index: bool) -> int:
    tree.make_directory(workshop(tree.path))
    check_can_exchange(tree, workshop(tree.path))
    change = Change(tree)
    change.recover()
    sweep(tree)
    check_writable(tree, may_have_abort=True)
    target = inspect_to_rebuild(tree, sizes)
    change.begin()
    try:
        count = _make(tree, target, change.new, index)
        change.publish(_exchanged(index, tree.is_directory(directory_of(change.new))))
    except Exception:
        change.give_up()
        raise
    return count


def _make(tree: disk.Tree, target: Target, new: str, index: bool) -> int:
    store = target.store
    assert store is not None
    for name in ("consumequeue", "index"):
        tree.make_directory(os.path.join(new, name))
    known = topics.load(tree)
    batch_topics = topics.of_batches(known, store.queues)
    if batch_topics:
        tree.make_directory(directory_of(new))
    progress = Progress(f"rebuilding {target.root}", store.log.size)
    last_timestamp = 0
    later = later_than_usual(store)
    with StoreFiles(tree, new, target, goes_on=False, has_index=index, batch_topics=batch_topics, later=later) as files:
        queues = _Queues(tree, target, known, files, store.log.size)
        with Lane(4) as puts:
            for part in _dispatch_all(store, target.sizes.slots, batch_topics):
                queues.put(part.runs)
                puts.submit(files.put_keys, part.key_hash, part.key_position, part.key_timestamp)
                last_timestamp = part.last_timestamp or last_timestamp
                progress.add(part.nbytes)
            puts.wait()
            files.finish_index()
        queues.tell()
        files.queues.go_on_at(_kept_ends(store), target.sizes.segment, store.log.size)
        _keep_others(tree, store, os.path.join(new, "consumequeue"), files, target.sizes.queue_file)
        if batch_topics:
            keep_other_batches(tree, store, files.batches, directory_of(new), target.sizes.batch_file)
        missing = topics.lacking(known, topics.with_queues(known, queues.needed, store.queues))
        now = milliseconds_now()
        files.put_config({"topics.json": topics.merge(known, missing, now, batch_topics)} if missing else {})
        with LogReader(tree.files, os.path.join(target.root, "commitlog"), target.sizes.segment) as log_reader:
            files.finish(log_reader.store_timestamp, last_timestamp, target.end, store.written)
    return queues.count


def _exchanged(index: bool, has_batches: bool) -> tuple[str, ...]:
    if has_batches:
        return BATCHES_REBUILT if index else BATCHES_REBUILT_WITHOUT_INDEX
    return REBUILT if index else REBUILT_WITHOUT_INDEX


class _Queues:
    """Puts the units of a log into queues, as a broker would, and notes which messages get no unit.

    Large because a rebuild does for a whole log what a broker does for one message.

    Args:
        known: the contents of topics.json.
        span: bytes of the log.

    Attributes:
        count: the number of messages that queues have got.
        needed: how many queues each topic needs.
    """

    def __init__(self, tree: disk.Tree, target: Target, known: Table, files: StoreFiles, span: int) -> None:
        self._tree = tree
        self._known = known
        self._files = files
        self._segment = target.sizes.segment
        self._gaps = Gaps(span)
        self.count = 0
        self.needed: dict[str, int] = {}
        self._without: dict[Queue, int] = {}  # by the physical offset of the first message that gets none
        self._again: dict[Queue, int] = {}
        self._later: dict[Queue, int] = {}

    def put(self, runs: list[_Run]) -> None:
        """Put the next units, in the order of the log."""
        for queue, queue_offset, units in runs:
            topic, queue_id = queue
            if queue_path(*queue) is not None and topic in self._files.batch_topics:
                self._put_batches(queue, units)
                continue
            if queue_path(*queue) is None or not 0 <= queue_offset < MOST_OFFSETS - len(units):
                self._without.setdefault(queue, _position(units))
                continue
            if topic not in self.needed and not is_light(topic):
                topics.refuse_batches(self._tree, self._known, topic, _ONE_KIND)
            if not is_light(topic):  # which have no place in topics.json
                self.needed[topic] = max(self.needed.get(topic, 0), queue_id + 1)
            taken = self._files.queues.put(queue, queue_offset, units, self._lost_before(queue, queue_offset, units))
            self.count += 0 if is_light(topic) else taken
            if taken < len(units) // UNIT_SIZE:
                self._again.setdefault(queue, _position(units))

    def _put_batches(self, queue: Queue, units: memoryview) -> None:
        """Put the next units of a BatchCQ: a broker puts each behind the queue's end, wherever its offsets begin."""
        topic, queue_id = queue
        self.needed[topic] = max(self.needed.get(topic, 0), queue_id + 1)
        self.count += self._files.batches.put(queue, units)
        block = QueueBlock.of(units, is_batch=True)
        for position in block.positions[~block.are_messages][:1].tolist():
            self._without.setdefault(queue, position)

    def _lost_before(self, queue: Queue, queue_offset: int, units: memoryview) -> bytes | None:
        """The unit to put into a queue for each message that is missing before a run of units; None where none is
        missing.

        Such units stand for messages that a salvage could not find: a salvage has ended a segment there. A broker
        ignores other gaps, and so do we.
        """
        first, last = _position(units), _position(units[-UNIT_SIZE:])
        gap = self._gaps.follow(queue, queue_offset, len(units) // UNIT_SIZE, last)
        if gap is None or gap.count < 0:
            return None
        start = first - first % self._segment
        if gap.place >= start or not self._gaps.has_space(gap):
            self._later.setdefault(queue, first)
            return None
        return lost_unit(start)

    def tell(self) -> None:
        """Log the queues whose messages get no units, or units at other offsets than the log says, and why."""
        told = (
            (
                self._without,
                "expected a name, and a queueOffset (of a batch: INNER_BASE and INNER_NUM), that a queue's files can "
                "have; such messages get no ConsumeQueue units, but are read from the log like any other",
            ),
            (
                self._again,
                "expected a queueOffset after those of the queue's messages before, found one that was given already; "
                "what has such a one gets no ConsumeQueue unit, as with a broker, but is read from the log like any "
                "other",
            ),
            (
                self._later,
                "expected the queueOffset after that of the queue's message before, found a later one; consumers get "
                "it and what comes after it at other queue offsets than the log says, as with a broker; `rmqstore "
                "salvage` makes a store in which both agree",
            ),
        )
        for queues, what in told:
            _tell_of(self._tree.path, queues, what)


def _position(units: memoryview) -> int:
    """The physical offset of the first of some ConsumeQueue units."""
    position: int = UNIT.unpack_from(units)[0]
    return position


def _kept_ends(store: Snapshot) -> dict[tuple[str, int], int]:
    """The ends of queues that lack their last messages, but which a salvage has let go on after these."""
    lasts = ((queue, queue.any_unit(queue.end - 1)) for queue in store.queues.own)
    return {(queue.topic, queue.queue_id): unit.end for queue, unit in lasts if unit and unit.kind is UnitKind.LOST}


def _tell_of(root: str, queues: dict[tuple[str, int], int], what: str) -> None:
    """Log the queues whose messages get no units, and why."""
    for (topic, queue_id), position in itertools.islice(queues.items(), _MOST_TOLD):
        logger.warning(
            "%s: commitLogOffset %d: topic %r, queue %d: %s", one_line(root), position, one_line(topic), queue_id, what
        )
    if len(queues) > _MOST_TOLD:
        logger.warning("%s: and likewise for %d more queues", one_line(root), len(queues) - _MOST_TOLD)


def _keep_others(tree: disk.Tree, store: Snapshot, new: str, files: StoreFiles, size: int) -> None:
    """Take over the queues that no message of the log has made anew. Units after the log's end are of messages that
    were cut off; without them a queue begins where it went on before them. The same holds for a queue with files of
    another size than the others, as brokers do not start with such files: none of its units has a message that still
    exists. A BatchCQ topic has no simple queues: a broker would not start with them. A queue of a topic that no message
    can have stays as it is."""
    made, queues = files.queues.ends, files.queues
    others = (
        queue
        for queue in store.queues
        if queue.sizes and (queue.topic, queue.queue_id) not in made and queue.topic not in files.batch_topics
    )
    for bounds in queue_bounds(store, others):
        queue = bounds.queue
        has_others = queue.unit_size == UNIT_SIZE and any(found != size for _, found in queue.sizes)
        is_possible = queue_path(queue.topic, queue.queue_id) is not None
        if (bounds.end < queue.end or has_others) and queue.units_vouch and is_possible:
            queues.begin_at((queue.topic, queue.queue_id), bounds.end, PRE_BLANK)
            continue
        target = os.path.join(new, queue.topic, str(queue.queue_id))
        tree.make_directory(target)
        for path, _ in queue.sizes:
            tree.link(path, os.path.join(target, os.path.basename(path)))


@dataclass(frozen=True)
class _Part:
    """The entries that follow from some units in a row."""

    runs: list[_Run]
    key_hash: npt.NDArray[np.int32]
    key_position: npt.NDArray[np.int64]
    key_timestamp: npt.NDArray[np.int64]
    last_timestamp: int
    nbytes: int


def _dispatch_all(store: Snapshot, slots: int, batch_topics: Collection[str]) -> Iterator[_Part]:
    """The parts of the log in its order. Segments are worked on side by side, one for each core."""
    workers = cores()
    tags = indexes_tags(store, slots)
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[list[_Part]]] = deque()
        extents = deque(store.log.extents)
        while extents or waiting:
            while extents and len(waiting) <= workers:
                waiting.append(
                    pool.submit(lambda extent: list(_dispatch(store, extent, tags, batch_topics)), extents.popleft())
                )
            yield from waiting.popleft().result()


def _dispatch(store: Snapshot, extent: Extent, tags: bool, batch_topics: Collection[str]) -> Iterator[_Part]:
    dispatcher = Dispatcher(index_tags=tags, light_queues=True, batch_topics=batch_topics)
    with store.reader(extent.segment, verify_crc=True) as reader:
        steps = store.past_damage(reader).feed(extent.start, extent.stop, dispatcher)
        for step, damage in enumerate(steps, 1):
            if damage is not None:
                raise DamagedStoreError(
                    f"{damage.place}; nothing was changed: rmqstore salvage makes a new store of what is whole"
                )
            if step % _STEPS == 0:
                yield _part(dispatcher, store.root)
    yield _part(dispatcher, store.root)


def _part(dispatcher: Dispatcher, root: str) -> _Part:
    found = dispatcher.finish()
    if found.inner_batches:
        raise NotAStoreError(
            f"{root}: expected batches (sysFlag 0x80) in topics with queue.type BatchCQ only, found some in another "
            f"topic; {_ONE_KIND}"
        )
    names = dispatcher.queues
    runs = [(names[number], offset, units) for number, offset, units in found.runs()]
    return _Part(
        runs,
        found.key_hash,
        found.key_position,
        found.key_timestamp,
        found.last_timestamp,
        found.nbytes,
    )
