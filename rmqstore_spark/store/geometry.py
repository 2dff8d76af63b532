"""What a broker was told when it wrote a store, read off its files: it must be told the same when it goes on."""

import itertools
import os
from collections import Counter
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
_ITEMS = 64  # of an index file that are read at a time
_MESSAGES = 16  # of them, that are looked at in the log


def segment_size(store: Snapshot, may_be_cut: bool = False) -> int | None:
    """The bytes that a segment of a store should have; None where nothing tells: it has none, or only one, which was
    cut.

    Args:
        may_be_cut: whether an only one is taken for cut where nothing but its length tells. It may have been cut among
            its zeros, and nobody tells a broker such a length.

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
        return at + head.size - segment.start  # the blank says where its file ends
    reaches_over = at + head.size + FORMAT["BLANK_SIZE"] > segment.end and head.size <= MOST_BYTES
    is_cut = status in (Status.NO_BLANK, Status.MORE) or (status is Status.BAD_TOTAL_SIZE and reaches_over)
    is_cut |= may_be_cut and size % _KIB > 0
    return None if is_cut or segment.start % size else size


def usual_queue_file(queues: Iterable[Queue], is_batch: bool = False) -> int:
    """The bytes that each file of these simple queues, or of those of BatchCQ topics, should have; 0 where nothing
    tells."""
    some = [queue for queue in queues if queue.is_batch == is_batch]
    rows = ([(file.first * queue.unit_size, file.size) for file in queue.in_files] for queue in some)
    return usual_size(rows, some[0].unit_size if some else 1)


def queue_file_size(store: Snapshot, topics: Iterable[str] | None = None, may_differ: bool = False) -> int | None:
    """The size of the files of simple ConsumeQueues; None where there is none.

    Args:
        topics: whose files are looked at, and one other; None for all topics.
        may_differ: whether some may have another size than most.

    Raises:
        DamagedStoreError: they differ, hold no whole number of units, or are larger than any broker's.
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

    A file does not say, but only with the right numbers its slots and entries make sense.

    Args:
        slots: what the user says, or None.
        items: the same.
        may_differ: whether some may be broken, or of another size than most.

    Raises:
        RmqStoreError: the files are of different sizes, or of none that fits, or cannot be listed.
        OptionError: they are without entries, and the user does not say.
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
    for path in sorted(sizes, key=lambda path: -counts[sizes[path]]):  # those that most are like come first
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
    """The bytes of a store's index files, the oldest first; 0 of what only has the name of one."""
    paths = [os.path.join(directory, name) for name in file_names(directory, files)]
    return {path: 0 if (found := file_status(path, files)) is None else found.st_size for path in paths}


def indexes_tags(store: Snapshot, slots: int) -> bool:
    """Has the store's broker also put tags into the index? Those since 5.4 do, as `topic#T#tags`.

    The newest messages with tags tell that are in the index and in the log. The index may be ahead of the log, as in
    any copy of a store that was made while its broker ran, and messages without tags tell nothing; nor does an index
    file that cannot be read.

    Args:
        slots: how many an index file has.
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
    """Has a file items of tags? None where no message in it tells. Some items in a row are read, first the newest ones,
    then such that are twice as far from the end each time."""
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
    """Physical offsets in the log of some of these items' messages, the newest one of them first."""
    at = np.unique(items["position"])
    at = at[at < store.end][::-1]
    return at[:: max(1, len(at) // count)][:count].tolist()  # type: ignore[no-any-return]


def _has_tag_item(store: Snapshot, items: Any, position: int) -> bool | None:
    """Has a message an item of its tags? None where that cannot be told: it has no tags, or is not in the log, or is
    the last one of these items, of which more may be in another file, or not yet."""
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
