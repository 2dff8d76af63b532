"""What a broker was told when it wrote a store, read off its files: it must be told the same when it goes on."""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from rmqstore_spark.errors import DamagedStoreError, OptionError
from rmqstore_spark.store.consumequeue import UNIT_SIZE
from rmqstore_spark.store.files import Files
from rmqstore_spark.store.indexfile import IndexFile, IndexReader, file_names, file_size, key_hash
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.store.sizes import MOST_BYTES
from rmqstore_spark.store.units import BatchBuilder

_ITEMS = 64  # of an index file that are read at a time
_MESSAGES = 16  # of them, that are looked at in the log


def queue_file_size(store: OpenStore, topics: Iterable[str] | None = None) -> int | None:
    """The size of the files of simple ConsumeQueues; None where there is none.

    Args:
        topics: whose files are looked at, and one other; None for all topics.

    Raises:
        DamagedStoreError: they differ, hold no whole number of units, or are larger than any broker's.
    """
    first, size = next((queue.sizes[0] for queue in store.queues.some() if queue.sizes), ("", None))
    some = store.queues if topics is None else (q for topic in topics for q in store.queues.of_topic(topic))
    for queue in some:
        for path, found in queue.sizes:
            if found != size or found == 0 or found % UNIT_SIZE:
                raise DamagedStoreError(
                    f"{path}: expected a ConsumeQueue file of {size} bytes like {first}, found {found}; "
                    "call rmqstore_spark.rebuild(store)"
                )
    if size is not None and size > MOST_BYTES:
        raise DamagedStoreError(
            f"{first}: expected a ConsumeQueue file of at most {MOST_BYTES} bytes, as a broker can map no more, found "
            f"{size}; call rmqstore_spark.rebuild(store)"
        )
    return size


def index_geometry(directory: str, files: Files, slots: int | None, items: int | None) -> tuple[int | None, int | None]:
    """How many slots and items a store's index files have; (None, None) where there is no file.

    A file does not say, but only with the right numbers its slots and entries make sense.

    Args:
        slots: what the user says, or None.
        items: the same.

    Raises:
        DamagedStoreError: the files are of different sizes, or of none that fits.
        OptionError: they are without entries, and the user does not say.
    """
    sizes = {name: files.status(os.path.join(directory, name)).st_size for name in file_names(directory, files)}
    usual = next(iter(sizes.values()), 0)
    for name, size in sizes.items():
        if size != usual:
            raise DamagedStoreError(
                f"{os.path.join(directory, name)}: expected an index file of {usual} bytes like its neighbours, "
                f"found {size}; call rmqstore_spark.rebuild(store)"
            )
    if usual > MOST_BYTES:
        raise DamagedStoreError(
            f"{os.path.join(directory, next(iter(sizes)))}: expected an index file of at most {MOST_BYTES} bytes, as a "
            f"broker can map no more, found {usual}; call rmqstore_spark.rebuild(store)"
        )
    for name in sizes:
        path = os.path.join(directory, name)
        try:
            file = IndexFile.open(path, files, [slots] if slots else [], may_read_all=True)
        except DamagedStoreError as why:
            raise DamagedStoreError(f"{why}; call rmqstore_spark.rebuild(store)") from None
        if file is not None:
            return file.slots, file.items
    if sizes and (slots is None or items is None or file_size(slots, items) != usual):
        raise OptionError(
            f"{directory}: index files of {usual} bytes without an entry: "
            "give options 'maxHashSlotNum' and 'maxIndexNum' as in broker.conf, or delete them"
        )
    return (slots, items) if sizes else (None, None)


def indexes_tags(store: OpenStore, slots: int) -> bool:
    """Has the store's broker also put tags into the index? Those since 5.4 do, as `topic#T#tags`.

    The newest messages with tags tell that are in the index and in the log. The index may be ahead of the log, as in
    any copy of a store that was made while its broker ran, and messages without tags tell nothing.

    Args:
        slots: how many an index file has.

    Raises:
        DamagedStoreError: an index file is broken.
    """
    directory = os.path.join(store.root, "index")
    for name in reversed(file_names(directory, store.files)):
        with IndexReader(os.path.join(directory, name), store.files) as reader:
            if reader.is_empty or reader.header.begin_position >= store.end:
                continue
            told = _tells_of_tags(store, reader, slots)
        if told is not None:
            return told
    return False


def _tells_of_tags(store: OpenStore, reader: IndexReader, slots: int) -> bool | None:
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


def _some(store: OpenStore, items: Any, count: int) -> list[int]:
    """Physical offsets in the log of some of these items' messages, the newest one of them first."""
    at = np.unique(items["position"])
    at = at[at < store.end][::-1]
    return at[:: max(1, len(at) // count)][:count].tolist()  # type: ignore[no-any-return]


def _has_tag_item(store: OpenStore, items: Any, position: int) -> bool | None:
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
