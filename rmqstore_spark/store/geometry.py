"""What a broker was told when it wrote a store, read off its files: it must be told the same when it goes on."""

import os
from collections.abc import Iterable

from rmqstore_spark.errors import DamagedStoreError, OptionError
from rmqstore_spark.store.consumequeue import UNIT_SIZE
from rmqstore_spark.store.files import Files
from rmqstore_spark.store.indexfile import IndexFile, file_names, file_size, key_hash, last_entries
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.store.sizes import MOST_BYTES
from rmqstore_spark.store.units import BatchBuilder

_ENTRIES_TO_LOOK_AT = 64


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
            file = IndexFile.open(path, files, [slots] if slots else [])
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

    Args:
        slots: how many an index file has.

    Raises:
        DamagedStoreError: the newest index file is broken.
    """
    entries = last_entries(os.path.join(store.root, "index"), store.files, slots, _ENTRIES_TO_LOOK_AT)
    builder = BatchBuilder(["topic", "tags"])
    for position in sorted({position for _, position in entries}):
        extent = store.log.extent_at(position)
        if extent is None:
            continue
        with store.reader(extent.segment) as reader:
            run = reader.run_at(position, extent.segment.end)
        if run is not None:
            run.only(slice(1)).add_to(builder)
            ((topic, tags),) = zip(*(column.to_pylist() for column in builder.finish().columns), strict=True)
            if (key_hash(topic, f"T#{tags}"), position) in entries:
                return True
    return False
