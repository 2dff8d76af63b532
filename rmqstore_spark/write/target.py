"""The store that is written to, as it is before: file sizes, where the log ends, where each queue goes on."""

import bisect
import contextlib
import os
import stat
from dataclasses import dataclass, replace

from rmqstore_spark.errors import DamagedStoreError, NotAStoreError, OptionError, RmqStoreError
from rmqstore_spark.store.commitlog import Segment, SegmentReader, headers, segments_of
from rmqstore_spark.store.consumequeue import ConsumeQueues, Queue
from rmqstore_spark.store.decode import BatchBuilder
from rmqstore_spark.store.files import Files
from rmqstore_spark.store.geometry import index_geometry, queue_file_size
from rmqstore_spark.store.indexfile import key_hash, last_entries
from rmqstore_spark.store.layout import Layout, find_store, queue_path
from rmqstore_spark.store.log_end import LogEnd
from rmqstore_spark.store.message import Header
from rmqstore_spark.store.sizes import FileSizes, Sizes
from rmqstore_spark.write.disk import Tree, make_directories
from rmqstore_spark.write.journal import WORKSHOP

# What brokers of any version put into a store directory. One that holds anything else is never deleted.
_BROKERS_OWN = {
    *("commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "checkpoint", "abort"),
    *("abort.bak", "lock", "config", "timerwheel", "timerlog", "compaction", "kvStore", "epochFileCheckpoint"),
    *("epochFileCheckpoint.bak", "brokerIdentity", "brokerIdentity-temp", "tiered_index_file", "transaction"),
    *("rocksdbstore", WORKSHOP),
}
_ENTRIES_TO_LOOK_AT = 64
_TOPICS = ("topics.json", "topics.json.bak")
# What may be in a directory that is to become a store. Where only the commitlog is missing, it is elsewhere.
_BEFORE_A_STORE = {"config", "lock", "lost+found", WORKSHOP}


@dataclass(frozen=True)
class Target:
    """A store before it is written to.

    Attributes:
        segments: those that have messages.
        end: physical offset where the next message goes.
        last_timestamp: store time (ms) of the last message, 0 if there is none.
        queues: where each queue goes on. A queue that is not in here, but has files, is none that the log confirms.
    """

    root: str
    sizes: FileSizes
    segments: tuple[Segment, ...]
    end: int
    last_timestamp: int
    queues: dict[tuple[str, int], int]


def make_root(root: str) -> Tree:
    """A directory to write a store into, made where it is missing.

    Raises:
        RmqStoreError: there is something else, or it cannot be made.
    """
    if not os.path.lexists(root):
        make_directories(root)
    elif not os.path.isdir(root):
        raise NotAStoreError(f"{root}: this is no directory; give a directory to write the store into")
    return Tree(root)


def check_places(tree: Tree) -> None:
    """See that what has a name of its own in a store is what it is to be. The store's directory itself may be a link or
    a mount point, but nothing in it: a link may lead out of it, and no file can be renamed on to another file system.

    Raises:
        RmqStoreError: naming the first thing that is not.
    """
    for name in ("commitlog", "consumequeue", "index", "config", WORKSHOP, os.path.join(WORKSHOP, "commit")):
        tree.refuse_other_than(os.path.join(tree.path, name), stat.S_ISDIR, "a directory")
    for name in ("lock", "checkpoint", "abort", *(os.path.join("config", name) for name in _TOPICS)):
        tree.refuse_other_than(os.path.join(tree.path, name), stat.S_ISREG, "a file")
    workshop = tree.find(os.path.join(tree.path, WORKSHOP))
    if workshop is not None and workshop.st_uid not in (tree.itself.st_uid, os.geteuid()):
        raise RmqStoreError(
            f"{os.path.join(tree.path, WORKSHOP)}: expected the owner of the store, user {tree.itself.st_uid}, found "
            f"user {workshop.st_uid}; delete it if no write is under way"
        )


def is_new(tree: Tree) -> bool:
    """Is there no store yet, but a place for one?

    Raises:
        NotAStoreError: there is something else.
    """
    root = tree.path
    entries = set(tree.names(root))
    if "commitlog" in entries:
        return False
    foreign = sorted(entries - _BEFORE_A_STORE)
    if foreign and set(foreign) <= _BROKERS_OWN:
        raise NotAStoreError(
            f"{root}: expected a directory commitlog/ beside {foreign[0]}, found none; "
            "a store whose commitlog is elsewhere (storePathCommitLog) is not written to"
        )
    if foreign:
        raise NotAStoreError(
            f"{root}: expected a store, an empty directory or none, found {foreign[0]!r} in it; give another directory"
        )
    return True


def check_writable(tree: Tree, may_have_abort: bool = False) -> None:
    """Refuse what cannot be written to, as far as a look at the directories tells.

    Raises:
        RmqStoreError: a crashed broker's store, or one of a kind that is not written.
    """
    root = tree.path
    if tree.find(os.path.join(root, "abort")) is not None and not may_have_abort:
        raise RmqStoreError(
            f"{os.path.join(root, 'abort')}: the broker runs or did not stop cleanly: expected no such file; start the "
            "broker and stop it (mqshutdown broker), or call rmqstore_spark.rebuild(store) if there is none any more"
        )
    owner = tree.itself.st_uid
    if os.geteuid() not in (0, owner):
        raise RmqStoreError(
            f"{root}: belongs to user {owner}, whose broker could not go on with files of user {os.geteuid()}; "
            "write as that user"
        )
    for directory in (root, *(os.path.join(root, name) for name in ("commitlog", "consumequeue", "index", "config"))):
        if tree.is_directory(directory):
            tree.refuse_unwritable(directory)
    queues = os.path.join(root, "consumequeue")
    if tree.find(os.path.join(queues, "CURRENT")) is not None:
        raise NotAStoreError(f"{queues}: a RocksDB (storeType=defaultRocksDB), which cannot be written to")


def check_queue_places(tree: Tree) -> None:
    """check_places() for the directories of topics and queues, of which there may be many.

    Raises:
        RmqStoreError: one of them is a link.
    """
    queues = os.path.join(tree.path, "consumequeue")
    for topic, is_link, is_directory in tree.kinds(queues):
        if is_link:
            tree.refuse_other_than(os.path.join(queues, topic), stat.S_ISDIR, "a directory")
        for queue, is_link_too, _ in tree.kinds(os.path.join(queues, topic)) if is_directory else []:
            if is_link_too:
                tree.refuse_other_than(os.path.join(queues, topic, queue), stat.S_ISDIR, "a directory")


def refuse_foreign_files(tree: Tree) -> None:
    """Before a whole store is replaced: is there anything in it that no broker has put there?

    Raises:
        NotAStoreError: naming it.
    """
    foreign = sorted(set(tree.names(tree.path)) - _BROKERS_OWN)
    foreign += find_store(tree.path, None, tree).strays
    if foreign:
        raise NotAStoreError(
            f"{os.path.join(tree.path, foreign[0])}: mode overwrite would delete this, which is no part of a store; "
            "move it away, or delete the store yourself"
        )


def sizes_of(tree: Tree, layout: Layout, wanted: Sizes) -> FileSizes:
    """The sizes that a store's files have, else those wanted, else RocketMQ's.

    Raises:
        OptionError: the store has others than those wanted.
        DamagedStoreError: its files differ in size.
    """
    segments, faults = segments_of(layout)
    if faults:
        raise DamagedStoreError(f"{faults[0]}; a store that is not whole is not written to")
    segment = segments[0].size if segments else None
    queue_file = queue_file_size(layout, tree)
    slots, items = index_geometry(os.path.join(layout.root, "index"), tree, wanted.slots, wanted.items)

    def settle(option: str, has: int | None, wants: int | None) -> int | None:
        if has is not None and wants is not None and has != wants:
            raise OptionError(f"option {option!r}: expected {has}, as this store has it, found {wants}; leave it away")
        return has or wants

    return Sizes(
        settle("mappedFileSizeCommitLog", segment, wanted.segment),
        settle("mappedFileSizeConsumeQueue", queue_file, wanted.queue_file),
        settle("maxHashSlotNum", slots, wanted.slots),
        settle("maxIndexNum", items, wanted.items),
    ).or_defaults()


def sizes_to_rebuild(tree: Tree, layout: Layout, wanted: Sizes) -> FileSizes:
    """The sizes for files that are made anew: those wanted, else those of the files that are there, if they can be
    known; they may be what is broken."""
    segment = layout.segments[0].size if layout.segments else None
    queue_file, slots, items = wanted.queue_file, wanted.slots, wanted.items
    if queue_file is None:
        with contextlib.suppress(DamagedStoreError):
            queue_file = queue_file_size(layout, tree)
    if slots is None or items is None:
        with contextlib.suppress(DamagedStoreError, OptionError):
            found = index_geometry(os.path.join(layout.root, "index"), tree, slots, items)
            slots, items = slots or found[0], items or found[1]
    return Sizes(segment, queue_file, slots, items).or_defaults()


def inspect(tree: Tree, wanted: Sizes) -> Target:
    """Look at a store that is to go on. The lock is held.

    Raises:
        DamagedStoreError: messages in it are damaged, or ConsumeQueue does not know its last ones.
    """
    layout = find_store(tree.path, None, tree)
    if layout.strays:
        raise DamagedStoreError(f"{layout.strays[0]}: not a commitlog file; a broker would not start: move it away")
    sizes = sizes_of(tree, layout, wanted)
    queues = ConsumeQueues(layout.consumequeue, tree)
    target = find_end(layout, sizes, queues, tree)
    return replace(
        target,
        last_timestamp=_check_last_segment(target, queues, tree),
        queues=_queues_go_on(target, queues, tree),
    )


def find_end(layout: Layout, sizes: FileSizes, queues: ConsumeQueues, files: Files) -> Target:
    """Where the log ends. What comes before is not checked yet.

    Raises:
        DamagedStoreError: a segment is missing, or has another size.
    """
    segments, faults = segments_of(layout)
    if faults:
        raise DamagedStoreError(f"{faults[0]}; a store that is not whole is not written to")
    end = LogEnd(layout, segments, queues, files).find()
    used = tuple(segment for segment in end.segments if segment.start < end.position)
    return Target(layout.root, sizes, used, end.position, 0, {})


def _check_last_segment(target: Target, queues: ConsumeQueues, files: Files) -> int:
    """Read the last segment, behind which the log goes on; the store time (ms) of its last message, 0 without one.

    Raises:
        DamagedStoreError: a broker would cut the log off there.
    """
    if not target.segments:
        return 0
    segment = target.segments[-1]
    with SegmentReader(segment, True, queues, files) as reader:
        last, at, status = reader.walk(segment.start, target.end)
        if at != target.end or segment.end != segment.start + target.sizes.segment:
            raise DamagedStoreError(
                f"{segment.path}: position {at - segment.start} (commitLogOffset {at}): damaged ({status.name}): "
                f"expected messages up to commitLogOffset {target.end}; a damaged store is not written to: "
                "copy what can be read (mode=DROPMALFORMED) into a new one"
            )
        header = reader.header(last) if last is not None else None
    return header.store_timestamp // 1000 if header is not None and header.store_timestamp is not None else 0


def _queues_go_on(target: Target, queues: ConsumeQueues, files: Files) -> dict[tuple[str, int], int]:
    """Where each queue goes on: behind its last unit that the log confirms. Behind it may be the remains of a cut log.

    Raises:
        DamagedStoreError: ConsumeQueue is behind the log.
    """
    next_offsets = {}
    begin = queued_to = target.segments[0].start if target.segments else target.end
    for queue in queues:
        live = _LiveUnits(target, queue, begin, files)
        end = bisect.bisect_left(range(queue.search(target.end)), True, lo=queue.first, key=lambda at: not live.has(at))
        if live.may_go_on(end):
            next_offsets[queue.topic, queue.queue_id] = end
            unit = queue.unit(end - 1) if end > queue.first else None
            if unit is not None and unit.position >= begin:
                queued_to = max(queued_to, unit.position + unit.size)
    _refuse_unqueued(target, queued_to, queues, files)
    return next_offsets


class _LiveUnits:
    """Which units of a queue are the live log's."""

    def __init__(self, target: Target, queue: Queue, begin: int, files: Files) -> None:
        self._target = target
        self._queue = queue
        self._begin = begin
        self._files = files

    def has(self, queue_offset: int) -> bool:
        """Does the log confirm a unit, or has its message expired?"""
        unit = self._queue.unit(queue_offset)
        if unit is None or unit.position < self._begin:  # None: pre-blank
            return True
        header = self._header(unit.position)
        return header is not None and (header.queue_offset, header.size) == (queue_offset, unit.size)

    def may_go_on(self, end: int) -> bool:
        """Is what lies behind `end` the remains of a cut log, and no more? A message of this queue with a greater
        queueOffset means that a broker has lost count; and LMQ queues have messages of other ones."""
        if self._queue.is_lmq:
            return False
        unit = self._queue.unit(end)
        header = self._header(unit.position) if unit is not None else None
        return header is None or header.queue_offset <= end

    def _header(self, position: int) -> Header | None:
        segment = _segment_of(self._target, position)
        if segment is None:
            return None
        with SegmentReader(segment, False, ConsumeQueues(None, self._files), self._files) as reader:
            header = reader.header(position)
        mine = (self._queue.topic, self._queue.queue_id)
        return header if header is not None and (header.topic, header.queue_id) == mine else None


def indexes_tags(tree: Tree, target: Target) -> bool:
    """Has the store's broker also put tags into the index? Those since 5.4 do, as `topic#T#tags`."""
    entries = last_entries(os.path.join(target.root, "index"), tree, target.sizes.slots, _ENTRIES_TO_LOOK_AT)
    builder = BatchBuilder(["topic", "tags"])
    for position in sorted({position for _, position in entries}):
        segment = _segment_of(target, position)
        if segment is None:
            continue
        with SegmentReader(segment, False, ConsumeQueues(None, tree), tree) as reader:
            run = reader.run_at(position, segment.end)
        if run is not None:
            builder.append(run.window, run.positions[:1], base=run.base)
            ((topic, tags),) = zip(*(column.to_pylist() for column in builder.finish().columns), strict=True)
            if (key_hash(topic, f"T#{tags}"), position) in entries:
                return True
    return False


def _segment_of(target: Target, position: int) -> Segment | None:
    return next((s for s in target.segments if s.start <= position < s.end), None)


def _refuse_unqueued(target: Target, start: int, queues: ConsumeQueues, files: Files) -> None:
    """Refuse a log with messages behind all that ConsumeQueue knows: their queues would go on with wrong offsets."""
    at = start
    for segment in target.segments:
        if segment.end <= at:
            continue
        with SegmentReader(segment, False, queues, files) as reader:
            at, stop = max(at, segment.start), min(segment.end, target.end)
            while at < stop and (run := reader.run_at(at, stop)) is not None:
                for header in headers(run):
                    if header.is_queued and queue_path(header.topic, header.queue_id) is not None:
                        raise DamagedStoreError(
                            f"{target.root}: ConsumeQueue is behind the commitlog: expected a unit for the message of "
                            f"queue {header.queue_id} of {header.topic} at commitLogOffset {header.position}, found "
                            "none; call rmqstore_spark.rebuild(store) first"
                        )
                    at = header.position + header.size


def check_can_exchange(tree: Tree, directory: str) -> None:
    """Refuse a file system that cannot let two directories swap their names in one step.

    Raises:
        RmqStoreError: it cannot.
    """
    if not tree.can_exchange(directory):
        raise RmqStoreError(
            f"{directory}: this file system cannot exchange two directories in one step (renameat2), so a write could "
            "be seen half done; write to a local directory (ext4, XFS, Btrfs) and copy the store"
        )
