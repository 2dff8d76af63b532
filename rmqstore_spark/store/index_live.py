"""Which items of an index file are of messages that the log still has: a log may have been cut off since."""

from typing import Any

import numpy as np

from rmqstore_spark.store.indexfile import IndexReader, key_hash
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.store.units import BatchBuilder


def live_items(store: OpenStore, reader: IndexReader, slots: int) -> tuple[Any, int]:
    """The items of an index file up to the last one whose message is in the log, and the store time (ms) of that one.

    Between the place where a log was cut off and its end there are other messages now, so an item counts where the
    message that begins at its position has a key of its hash. All items before it are of the same history.

    Args:
        slots: how many the file has.

    Returns:
        An array with the fields of Item, perhaps empty; the time is 0 then.

    Raises:
        RmqStoreError: the file or the log cannot be read.
    """
    items = reader.item_array(slots, 1, reader.header.index_count - 1)
    beyond = np.flatnonzero(items["position"] >= store.end)
    stop = int(beyond[0]) if len(beyond) else len(items)
    while stop:
        last = items[stop - 1]
        timestamp = _time_of(store, int(last["position"]), int(last["key_hash"]))
        if timestamp is not None:
            return items[:stop], timestamp
        stop -= 1
    return items[:0], 0


def _time_of(store: OpenStore, position: int, wanted: int) -> int | None:
    """The store time (ms) of the message at a physical offset; None where there is none with a key of that hash."""
    extent = store.log.extent_at(position)
    if extent is None:
        return None
    with store.reader(extent.segment) as reader:
        run = reader.run_at(position, extent.segment.end)
        header = reader.header(position)
    if run is None or header is None or header.store_timestamp is None:
        return None
    builder = BatchBuilder(["topic", "tags", "keys", "msgId"])
    run.only(slice(1)).add_to(builder)
    ((topic, tags, keys, unique),) = zip(*(column.to_pylist() for column in builder.finish().columns), strict=True)
    words = [*(keys or "").split(" "), unique or "", f"T#{tags}"]
    return header.store_timestamp // 1000 if wanted in {key_hash(topic, word) for word in words} else None
