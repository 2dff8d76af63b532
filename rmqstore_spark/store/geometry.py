"""File sizes that a store's broker was configured with, inferred from the files. A broker that continues the store
needs the same settings."""

import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from native_io import FORMAT, Status
from rmqstore_spark.errors import DamagedStoreError, OptionError, RmqStoreError, StorageError
from rmqstore_spark.store.format.message import HEAD_SIZE, Head
from rmqstore_spark.store.format.queue_block import UNIT_SIZE
from rmqstore_spark.store.format.sizes import MOST_BYTES, usual_size
from rmqstore_spark.store.format.units import BatchBuilder
from rmqstore_spark.store.io.files import Files, file_status, ignore_unreadable
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.indexfile import IndexFile, IndexReader, file_names, file_size, key_hash

_KIB = 1024
_ITEMS = 64  # items of an index file that are read at a time
_MESSAGES = 16  # messages of those items that are looked up in the log


def segment_size(store: Snapshot, may_be_cut: bool = False) -> int | None:
    """The size in bytes that a segment of a store should have; None if unknown: the store has no segment, or a single
    one that was cut.

    Args:
        may_be_cut: whether a single segment counts as cut where only its length is known. The cut may lie among its
            zeros, and no broker is configured with such a length.

    Raises:
        RmqStoreError: two files claim the same physical offsets, or one cannot be read.
    """
    if not store.segments:
        return None
    segment = store.segments[0]
    size = segment.end - segment.start
    if len(store.segments) > 1:
        return size
    with store.reader(segment) as reader:
        last = store.last_message
        _, (_, at, status, *_) = reader.walk(segment.start if last is None else last.position, segment.end)
        head = Head.of(reader.read(at, HEAD_SIZE))
    if status is Status.BAD_BLANK and 0 < head.size <= MOST_BYTES:
        return at + head.size - segment.start  # the blank says where the segment's file ends
    reaches_over = at + head.size + FORMAT["BLANK_SIZE"] > segment.end and head.size <= MOST_BYTES
    is_cut = status in (Status.NO_BLANK, Status.MORE) or (status is Status.BAD_TOTAL_SIZE and reaches_over)
    is_cut |= may_be_cut and size % _KIB > 0
    return None if is_cut or segment.start % size else size


def usual_queue_file(queues: Iterable[Queue]) -> int:
    """The size in bytes that each file of these queues, all of one form, should have; 0 if unknown."""
    some = list(queues)
    rows = ([(file.first * queue.unit_size, file.size) for file in queue.on_disk] for queue in some)
    return usual_size(rows, some[0].unit_size if some else 1)


def usual_queue_files(queues: Iterable[Queue]) -> dict[str, int]:
    """Of each form of queues, usual_queue_file()."""
    forms: defaultdict[str, list[Queue]] = defaultdict(list)
    for queue in queues:
        forms[queue.form].append(queue)
    return {form: usual_queue_file(some) for form, some in forms.items()}


def queue_file_size(store: Snapshot, topics: Iterable[str] | None = None, may_differ: bool = False) -> int | None:
    """The size in bytes of the files of simple ConsumeQueues; None where there is no file.

    Args:
        topics: the topics whose files are checked, together with one other topic; None for all topics.
        may_differ: whether some files may differ in size from most of them.

    Raises:
        DamagedStoreError: the files differ in size, hold no whole number of units, or are larger than any broker's.
    """
    first = itertools.islice((queue for queue in store.queues.some() if queue.sizes), 1)
    named = store.queues if topics is None else (q for topic in topics for q in store.queues.of_topic(topic))
    some = {queue.directory: queue for queue in itertools.chain(first, named)}.values()
    usual = usual_queue_file(some)
    sizes = [each for queue in some for each in queue.sizes]
    for path, found in sizes:
        if (found != usual or not found) and not may_differ:
            expected = f"{usual} bytes like others" if usual else f"a multiple of {UNIT_SIZE} bytes"
            raise DamagedStoreError(
                f"{path}: expected a ConsumeQueue file of {expected}, found {found}; call rmqstore_spark.rebuild(store)"
            )
    if usual > MOST_BYTES:
        raise DamagedStoreError(
            f"{sizes[0][0]}: expected a ConsumeQueue file of at most {MOST_BYTES} bytes, as a broker can map no more, "
            f"found {usual}; call rmqstore_spark.rebuild(store)"
        )
    return usual or None


def index_geometry(
    directory: str, files: Files, slots: int | None, items: int | None, may_differ: bool = False
) -> tuple[int | None, int | None]:
    """How many slots and items a store's index files have; (None, None) where there is no file.

    An index file does not store these numbers, but its slots and entries are consistent only with the right ones.

    Args:
        slots: what the user says, or None.
        items: the same.
        may_differ: whether some may be broken, or of another size than most.

    Raises:
        RmqStoreError: the files have different sizes, or a size that fits no numbers, or cannot be listed.
        OptionError: the files have no entries, and the user gives no numbers.
    """
    sizes = _index_sizes(directory, files)
    usual = usual_size([(0, size)] for size in sizes.values())
    for path, size in sizes.items():
        if size != usual and not may_differ:
            raise DamagedStoreError(
                f"{path}: expected an index file of {usual} bytes like its neighbours, found {size}; "
                "call rmqstore_spark.rebuild(store)"
            )
    if usual > MOST_BYTES:
        raise DamagedStoreError(
            f"{next(iter(sizes))}: expected an index file of at most {MOST_BYTES} bytes, as a broker can map no more, "
            f"found {usual}; call rmqstore_spark.rebuild(store)"
        )
    counts = Counter(sizes.values())
    for path in sorted(sizes, key=lambda path: -counts[sizes[path]]):  # the most common size comes first
        file = None
        try:
            file = IndexFile.open(path, files, [slots] if slots else [], may_read_all=True)
        except StorageError:
            raise
        except RmqStoreError as why:
            if not may_differ:
                raise DamagedStoreError(f"{why}; call rmqstore_spark.rebuild(store)") from None
        if file is not None:
            return file.slots, file.items
    if sizes and (slots is None or items is None or file_size(slots, items) != usual):
        raise OptionError(
            f"{directory}: index files of {usual} bytes without an entry: "
            "give options 'maxHashSlotNum' and 'maxIndexNum' as in broker.conf, or delete them"
        )
    return (slots, items) if sizes else (None, None)


def _index_sizes(directory: str, files: Files) -> dict[str, int]:
    """The sizes in bytes of a store's index files by path, oldest first; 0 for an entry that only has the name of an
    index file."""
    paths = [os.path.join(directory, name) for name in file_names(directory, files)]
    return {path: 0 if (found := file_status(path, files)) is None else found.st_size for path in paths}


def indexes_tags(store: Snapshot, slots: int) -> bool:
    """Has the store's broker also put tags into the index? Brokers since 5.4 do, as `topic#T#tags`.

    The newest messages with tags that are both in the index and in the log decide. The index may be ahead of the log,
    as in any copy of a store made while its broker ran. Messages without tags, and index files that cannot be read,
    decide nothing.

    Args:
        slots: the number of slots of an index file.
    """
    directory, told = os.path.join(store.root, "index"), None
    with ignore_unreadable():
        for name in reversed(file_names(directory, store.files)):
            with ignore_unreadable(), IndexReader(os.path.join(directory, name), store.files) as reader:
                if not reader.is_empty and reader.header.begin_position < store.end:
                    told = _tells_of_tags(store, reader, slots)
            if told is not None:
                return told
    return False


def _tells_of_tags(store: Snapshot, reader: IndexReader, slots: int) -> bool | None:
    """Has an index file items for tags? None where no message in the file decides. Runs of items are read: the newest
    first, each next run twice as far from the end."""
    back = 0
    while (stop := reader.header.index_count - back) > 1:
        first = max(1, stop - _ITEMS)
        items = reader.item_array(slots, first, stop - first)
        some = _MESSAGES if back == 0 else _MESSAGES // 4
        told = [_has_tag_item(store, items, position) for position in _some(store, items, some)]
        if True in told or False in told:
            return True in told
        back = 2 * back or _ITEMS
    return None


def _some(store: Snapshot, items: Any, count: int) -> list[int]:
    """Physical offsets of the messages of some of these items, newest first."""
    at = np.unique(items["position"])
    at = at[at < store.end][::-1]
    return at[:: max(1, len(at) // count)][:count].tolist()  # type: ignore[no-any-return]


def _has_tag_item(store: Snapshot, items: Any, position: int) -> bool | None:
    """Has a message an item for its tags? None if unknown: the message has no tags, is not in the log, or is the last
    one among these items, so that its other items may be in another file or not yet written."""
    extent = store.log.extent_at(position)
    if extent is None:
        return None
    with store.reader(extent.segment) as reader:
        run = reader.run_at(position, extent.segment.end)
    if run is None:
        return None
    builder = BatchBuilder(["topic", "tags"])
    run.only(slice(1)).add_to(builder)
    ((topic, tags),) = zip(*(column.to_pylist() for column in builder.finish().columns), strict=True)
    if not tags:
        return None
    if bool(((items["position"] == position) & (items["key_hash"] == key_hash(topic, f"T#{tags}"))).any()):
        return True
    return None if position == items["position"][-1] else False
