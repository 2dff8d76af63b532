"""The store that is written to, as it is before the write: file sizes, the end of the log, the end of each queue."""

import os
import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from rmqstore_spark.errors import DamagedStoreError, NotAStoreError, OptionError, RmqStoreError
from rmqstore_spark.store.format.sizes import FileSizes, Sizes
from rmqstore_spark.store.geometry import index_geometry, queue_file_size, segment_size, usual_queue_file
from rmqstore_spark.store.io.files import ignore_unreadable
from rmqstore_spark.store.queue_ends import queue_ends
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.kinds import KINDS, refuse_to_write
from rmqstore_spark.store.structures.layout import find_store
from rmqstore_spark.store.structures.segments import Segment
from rmqstore_spark.store.structures.written import WORKSHOP, record_path
from rmqstore_spark.write.build import checked
from rmqstore_spark.write.fs.disk import Tree, kind_at, make_directories
from rmqstore_spark.write.fs.workshop import write_ids_path

# The entries that brokers of any version put into a store directory. A directory with any other entry is never deleted.
_BROKERS_OWN = {
    *("commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "checkpoint", "abort"),
    *("abort.bak", "lock", "config", "timerwheel", "timerlog", "epochFileCheckpoint"),
    *("epochFileCheckpoint.bak", "brokerIdentity", "brokerIdentity-temp", "tiered_index_file", "transaction"),
    *(kind.path.partition("/")[0] for kind in KINDS),
    WORKSHOP,
}
_QUEUES = ("consumequeue", "batchconsumequeue")
_DIRECTORIES = ("commitlog", *_QUEUES, "index", "config")
_TOPICS = ("topics.json", "topics.json.bak")
# Entries allowed in a directory that is to become a store. Where only the commitlog is missing, it is elsewhere.
_BEFORE_A_STORE = {"config", "lock", "lost+found", WORKSHOP}


@dataclass(frozen=True)
class Target:
    """A store before it is written to.

    Attributes:
        store: the store as it is; None where there is none yet.
        last_timestamp: store time (ms) of the last message, 0 if there is none.
        queues: where each queue goes on (store.queue_ends).
        start: the physical offset at which the log of a new store begins, which is the start of a segment.
        known: where queues of other topics, too, were found to go on when the log ended at its present end.
    """

    root: str
    sizes: FileSizes
    store: Snapshot | None = None
    last_timestamp: int = 0
    queues: dict[tuple[str, int], int] = field(default_factory=dict)
    start: int = 0
    known: checked.Queues = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The physical offset of the next message."""
        return self.start if self.store is None else self.store.end

    @property
    def segments(self) -> list[Segment]:
        """The segments that have messages."""
        return [] if self.store is None else [extent.segment for extent in self.store.log.extents]


def make_root(root: str, mode: int = 0o777) -> Tree:
    """A directory to write a store into, made where it is missing.

    Args:
        mode: the mode of a directory that is made, subject to the umask.

    Raises:
        RmqStoreError: the path is something else than a directory, or cannot be made.
    """
    found = kind_at(root)
    if found is None:
        make_directories(root, mode)
    elif found != "a directory":
        raise NotAStoreError(f"{root}: this is no directory; give a directory to write the store into")
    return Tree(root)


def check_kinds(tree: Tree, with_queues: bool = True, with_topics: bool = True) -> None:
    """See that a store is of a kind that can be written to, and that its entries with fixed names are of the right
    type. The store's directory itself may be a link or a mount point, but no entry in it may be one: a link may lead
    out of the store, and a file cannot be renamed on to another file system.

    Args:
        with_queues: whether to look at the directories of topics and queues, too, which may be many.
        with_topics: whether to look at topics.json.

    Raises:
        RmqStoreError: naming the first entry that is wrong.
    """
    for name in (*_DIRECTORIES, WORKSHOP, os.path.join(WORKSHOP, "commit")):
        tree.refuse_other_than(os.path.join(tree.path, name), stat.S_ISDIR, "a directory")
    topics = [os.path.join("config", name) for name in _TOPICS] if with_topics else []
    for name in ("lock", "checkpoint", "abort", *topics):
        tree.refuse_other_than(os.path.join(tree.path, name), stat.S_ISREG, "a file")
    for path in (write_ids_path(tree.path), record_path(tree.path)):
        tree.refuse_other_than(path, stat.S_ISREG, "a file")
    workshop = tree.find(os.path.join(tree.path, WORKSHOP))
    if workshop is not None and workshop.st_uid not in (tree.itself.st_uid, os.geteuid()):
        raise RmqStoreError(
            f"{os.path.join(tree.path, WORKSHOP)}: expected the owner of the store, user {tree.itself.st_uid}, found "
            f"user {workshop.st_uid}; delete it if no write is under way"
        )
    refuse_to_write(tree.path, tree.files)
    if with_queues:
        for name in _QUEUES:
            _check_kinds_of_queues(tree, os.path.join(tree.path, name))


def _check_kinds_of_queues(tree: Tree, queues: str) -> None:
    for topic, is_link, is_directory in tree.kinds(queues):
        if is_link:
            tree.refuse_other_than(os.path.join(queues, topic), stat.S_ISDIR, "a directory")
        for queue, is_link_too, _ in tree.kinds(os.path.join(queues, topic)) if is_directory else []:
            if is_link_too:
                tree.refuse_other_than(os.path.join(queues, topic, queue), stat.S_ISDIR, "a directory")


def is_new(tree: Tree) -> bool:
    """Is there a directory for a store, but no store in it yet?

    Raises:
        NotAStoreError: the directory holds something else.
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
    """Refuse a store that cannot be written to, as far as a look at the directories tells.

    Raises:
        RmqStoreError: the store is that of a crashed broker, or of a kind that is not written.
    """
    root = tree.path
    if tree.find(os.path.join(root, "abort")) is not None and not may_have_abort:
        raise RmqStoreError(
            f"{os.path.join(root, 'abort')}: the broker runs or did not stop cleanly: expected no such file; start the "
            "broker and stop it (mqshutdown broker), or call rmqstore_spark.rebuild(store) if there is no broker any "
            "more"
        )
    owner = tree.itself.st_uid
    if os.geteuid() not in (0, owner):
        raise RmqStoreError(
            f"{root}: belongs to user {owner}, whose broker could not go on with files of user {os.geteuid()}; "
            "write as that user"
        )
    for directory in (root, *(os.path.join(root, name) for name in _DIRECTORIES)):
        if tree.is_directory(directory):
            tree.refuse_unwritable(directory)


def refuse_foreign_files(tree: Tree) -> None:
    """Before a whole store is replaced, refuse a directory with entries that no broker has put there.

    Raises:
        NotAStoreError: naming the entry.
    """
    foreign = sorted(set(tree.names(tree.path)) - _BROKERS_OWN)
    layout = find_store(tree.path, None, tree.files)
    foreign += layout.strays
    if foreign:
        raise NotAStoreError(
            f"{os.path.join(tree.path, foreign[0])}: mode overwrite would delete this, which is not part of a store; "
            "move it away, or delete the store yourself"
        )


def sizes_of(store: Snapshot, asked: Sizes, topics: Iterable[str] = ()) -> FileSizes:
    """The sizes of a store's files; for those it does not have, the sizes asked for, else RocketMQ's defaults.

    Args:
        topics: the topics that are written to, whose queues are looked at.

    Raises:
        OptionError: the store's files have other sizes than asked for.
        DamagedStoreError: its files differ in size.
    """
    _refuse_faults(store)
    segment = segment_size(store)
    queue_file = queue_file_size(store, topics)
    slots, items = index_geometry(os.path.join(store.root, "index"), store.files, asked.slots, asked.items)

    def settle(option: str, has: int | None, asked: int | None) -> int | None:
        if has is not None and asked is not None and has != asked:
            raise OptionError(f"option {option!r}: expected {has}, as this store has it, found {asked}; remove it")
        return has or asked

    return Sizes(
        settle("mappedFileSizeCommitLog", segment, asked.segment),
        settle("mappedFileSizeConsumeQueue", queue_file, asked.queue_file),
        settle("maxHashSlotNum", slots, asked.slots),
        settle("maxIndexNum", items, asked.items),
    ).or_defaults()


def sizes_to_rebuild(store: Snapshot, asked: Sizes, may_be_cut: bool = False) -> FileSizes:
    """The sizes for files that are made anew: the sizes asked for, else the most frequent among the existing files
    (some of which may be broken), else RocketMQ's defaults.

    Args:
        may_be_cut: as of segment_size().
    """
    queue_file, slots, items = asked.queue_file, asked.slots, asked.items
    if queue_file is None:
        with ignore_unreadable():
            queue_file = queue_file_size(store, may_differ=True)
    if slots is None or items is None:
        with ignore_unreadable():
            index = os.path.join(store.root, "index")
            found = index_geometry(index, store.files, slots, items, may_differ=True)
            slots, items = slots or found[0], items or found[1]
    sizes = Sizes(segment_size(store, may_be_cut), queue_file, slots, items).or_defaults()
    batch_file = batch_file_of([store])
    return replace(sizes, batch_file=batch_file) if batch_file else sizes


def batch_file_of(stores: Iterable[Snapshot]) -> int:
    """The size of files of BatchCQs, as of the first of some stores that has such queues; 0 where it is not known. A
    question of the writer, not of a form: it makes queues of two forms, and settles the sizes of both."""
    having = (store.queues.batch for store in stores if store.queues.batch)
    return usual_queue_file(next(having, []))


def inspect(tree: Tree, asked: Sizes, topics: Collection[str]) -> Target:
    """Look at a store that is to go on. The caller holds the lock.

    Args:
        topics: the topics that are written to. No other queue is looked at.

    Raises:
        DamagedStoreError: messages of the store are damaged, or the ConsumeQueues lack its last messages.
    """
    store = Snapshot.find(tree.path, tree.files)
    if store.layout.strays:
        raise DamagedStoreError(
            f"{store.layout.strays[0]}: not a commitlog file; a broker would not start: move it away"
        )
    sizes = sizes_of(store, asked, topics)
    last, known = store.last_message, None
    if store.log.extents and last is not None and last.store_timestamp is not None:
        known = checked.recall(tree, store.log.extents[-1].segment, store.end)
    if known is None or last is None or last.store_timestamp is None:
        last_timestamp = _check_last_segment(store, sizes)
    else:
        last_timestamp = last.store_timestamp // 1000
    return Target(store.root, sizes, store, last_timestamp, queue_ends(store, topics, known), known=known or {})


def inspect_to_rebuild(tree: Tree, asked: Sizes) -> Target:
    """Look at a store whose queues and index are to be made anew. The contents of the log are not checked yet.

    Raises:
        DamagedStoreError: a segment is missing, or has another size.
    """
    store = Snapshot.find(tree.path, tree.files)
    sizes = sizes_to_rebuild(store, asked)
    _refuse_faults(store)
    return Target(store.root, sizes, store)


def _refuse_faults(store: Snapshot) -> None:
    if store.faults:
        raise store.faults[0].error("a damaged store is not written to")


def _check_last_segment(store: Snapshot, sizes: FileSizes) -> int:
    """Read the last segment, at whose end the log goes on; returns the store time (ms) of its last message, 0 without
    one.

    Raises:
        DamagedStoreError: a broker would cut the log off in this segment.
    """
    if not store.log.extents:
        return 0
    segment = store.log.extents[-1].segment
    with store.reader(segment, verify_crc=True) as reader:
        last, walked = reader.walk(segment.start, store.end)
        at, status = walked.at, walked.status
        if at != store.end or segment.end != segment.start + sizes.segment:
            raise DamagedStoreError(
                f"{segment.path}: position {at - segment.start} (commitLogOffset {at}): damaged ({status.name}): "
                f"expected messages up to commitLogOffset {store.end}; a damaged store is not written to: "
                "copy what can be read (mode=DROPMALFORMED) into a new one"
            )
        header = reader.header(last) if last is not None else None
    return header.store_timestamp // 1000 if header is not None and header.store_timestamp is not None else 0


def check_can_exchange(tree: Tree, directory: str) -> None:
    """Refuse a file system that cannot let two directories swap their names in one step.

    Raises:
        RmqStoreError: the file system cannot exchange directories.
    """
    if not tree.can_exchange(directory):
        raise RmqStoreError(
            f"{directory}: this file system cannot exchange two directories in one step (renameat2), so a write could "
            "be seen half done; write to a local directory (ext4, XFS, Btrfs) and copy the store"
        )
