"""How far an index file agrees with the log: the log may have been truncated since, or have messages that the index
lacks."""

from typing import Any

import numpy as np

from rmqstore_spark.store.evidence import Evidence
from rmqstore_spark.store.format.message import TRANSACTION_ROLLBACK, TRANSACTION_TYPE
from rmqstore_spark.store.format.units import BatchBuilder, Run
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.indexfile import IndexReader, key_hash

_MOST_WALKED = 64 * 1024 * 1024  # bytes of the log after the message that an index file ends with
_BEGIN = 32 * 1024  # bytes of the log that are searched for the first message with a key
_Names = tuple[int, str, list[str], str | None]  # sysFlag, topic, UNIQ_KEY and the words of KEYS, TAGS


def live_items(store: Snapshot, reader: IndexReader, slots: int) -> tuple[Any, int]:
    """The items of an index file up to the last one whose message is in the log, and the store time (ms) of that
    message.

    A truncated log has other messages now after the cut, so an item counts only if the message that begins at its
    position has a key with its hash. All earlier items are of the same history.

    Args:
        slots: the file's number of slots.

    Returns:
        An array with the fields of Item, and the time. The time is 0 if the array is empty.

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


def has_last(store: Snapshot, reader: IndexReader, slots: int) -> bool:
    """Has the log the message of an index file's last item? Arguments and errors are those of live_items()."""
    last = reader.item_array(slots, reader.header.index_count - 1, 1)
    return len(last) == 1 and _time_of(store, int(last[0]["position"]), int(last[0]["key_hash"])) is not None


def has_no_more(store: Snapshot, first: int) -> bool:
    """Has the log no message that belongs in an index after the message at a physical offset? False also where so much
    log follows that the answer would take long.

    Raises:
        RmqStoreError: the log cannot be read.
    """
    at = first
    while at < store.end:
        extent = store.log.extent_at(at)
        if extent is None or at - first > _MOST_WALKED:
            return False
        with store.reader(extent.segment) as reader:
            run = reader.run_at(at, extent.stop)
            if run is None and not reader.is_closed_at(at):
                return False
        if run is None:
            at = extent.segment.end
            continue
        names = _names_of(run)
        if any(words and flag & TRANSACTION_TYPE != TRANSACTION_ROLLBACK for flag, _, words, _ in names[at == first :]):
            return False
        (last,) = run.only(slice(-1, None)).headers()
        at = last.position + last.size
    return True


def first_named(store: Snapshot) -> tuple[int, int] | None:
    """The physical offset, and the hash of a key, of the first message in the log that belongs in an index; None where
    one read of the log's beginning shows no such message.

    Raises:
        RmqStoreError: the log cannot be read.
    """
    first = store.log.extents[0]
    with store.reader(first.segment) as reader:
        run = reader.run_at(first.start, first.start + _BEGIN, _BEGIN)
        headers = [] if run is None else run.headers()
        names = [] if run is None else _names_of(run)
    for header, (flag, topic, words, _) in zip(headers, names, strict=True):
        if words and flag & TRANSACTION_TYPE != TRANSACTION_ROLLBACK:
            return header.position, key_hash(topic, words[0])
    return None


def _names_of(run: Run) -> list[_Names]:
    builder = BatchBuilder(["sysFlag", "topic", "msgId", "keys", "tags"])
    run.add_to(builder)
    columns = (column.to_pylist() for column in builder.finish().columns)
    return [
        (flag, topic, [*filter(None, [unique, *(keys or "").split(" ")])], tags)
        for flag, topic, unique, keys, tags in zip(*columns, strict=True)
    ]


def _time_of(store: Snapshot, position: int, wanted: int) -> int | None:
    """The store time (ms) of the live message at a physical offset; None where no message there has a key with that
    hash."""
    extent = store.log.extent_at(position)
    if extent is None or store.log.liveness(position, may_walk_far=True) is not Evidence.LIVE:
        return None
    with store.reader(extent.segment) as reader:
        run = reader.run_at(position, extent.segment.end)
        header = reader.header(position)
    if run is None or header is None or header.store_timestamp is None:
        return None
    ((_, topic, words, tags),) = _names_of(run.only(slice(1)))
    hashes = {key_hash(topic, word) for word in (*words, f"T#{tags}")}
    return header.store_timestamp // 1000 if wanted in hashes else None
