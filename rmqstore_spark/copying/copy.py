"""From some stores to a new one."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from rmqstore_spark.copying.config import Config, config_files, say_what_stays_behind
from rmqstore_spark.copying.report import report
from rmqstore_spark.copying.rows import BODY_COLUMNS, COLUMNS, DAMAGE_COLUMNS, Chunks, Halves, Source, merged
from rmqstore_spark.copying.told_once import told_once
from rmqstore_spark.copying.waiting import Offsets, waiting_of
from rmqstore_spark.errors import DamagedStoreError, OptionError, counted
from rmqstore_spark.read.copies import Copies, alone, copies_of
from rmqstore_spark.read.stored import StoredUnits
from rmqstore_spark.read.twins import refuse_twins
from rmqstore_spark.store.geometry import indexes_tags
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.store.queue_bounds import QueueBounds, queue_bounds
from rmqstore_spark.store.sizes import FileSizes, Sizes
from rmqstore_spark.write.copying import write_copy
from rmqstore_spark.write.kept_offsets import KeptOffsets, Lost
from rmqstore_spark.write.kept_units import NewPlaces
from rmqstore_spark.write.queuefiles import Queue
from rmqstore_spark.write.target import sizes_to_rebuild


@dataclass(frozen=True)
class Copied:
    """What a copy has.

    Attributes:
        messages: how many.
        lost: what could not be copied: a table like that of `check`. Empty where nothing is lost.
    """

    messages: int
    lost: pa.Table

    def __repr__(self) -> str:
        return f"Copied(messages={self.messages}, lost=<{counted(self.lost.num_rows, 'row')}>)"


def copy(
    stores: list[OpenStore],
    read: Callable[[list[OpenStore], list[str]], Iterable[pa.RecordBatch]],
    table: Callable[..., pa.Table],
    target: str,
    *,
    is_salvage: bool,
    is_whole: bool,
    index: bool,
    deduplicate: bool = False,
) -> Copied:
    """Make a new store of others.

    Args:
        stores: those that are copied.
        read: gives the messages of a store, or of several copies of one, that are to be copied, with the named columns,
            in the order of the log.
        table: reads a table of a store by name: table(store, name, ...).
        target: the new store's directory, absolute.
        is_salvage: whether damage is passed over.
        is_whole: whether all topics are copied.
        index: whether to make index files.
        deduplicate: whether several of the stores may be copies of one; then all are.

    Raises:
        RmqStoreError: nothing was written.
    """
    for store in stores:
        for directory in {store.root, *(os.path.dirname(segment.path) for segment in store.segments)}:
            refuse_inside(directory, target)
    logs = _logs(stores, deduplicate)
    for log in logs:
        if (faults := log.faults()) and not is_salvage:
            raise _to_salvage(faults[0][1])
    configs = [Config.of(log.newest, is_one=len(logs) == 1) for log in logs]
    for log, config in zip(logs, configs, strict=True):
        if not is_salvage:
            config.refuse_unread()
        say_what_stays_behind(log.newest)
    with told_once() if is_salvage else contextlib.nullcontext():
        sources = _sources(logs, read, table, is_salvage)
        sizes = _sizes(stores)
        span = sum(segment.end - segment.start for store in stores for segment in store.segments)
        order = KeptOffsets(sources[0].store.root if len(sources) == 1 else target, span)
        chunks = Chunks(order, Halves(NewPlaces(sizes.segment)))
        with contextlib.ExitStack() as opened, _telling_of_salvage(is_salvage):
            streams = [
                source.rows({store.root: opened.enter_context(StoredUnits(store)) for store in log.stores})
                for source, log in zip(sources, logs, strict=True)
            ]
            write_copy(
                target,
                chunks.of(merged(streams)),
                sum(log.size for log in logs),
                sizes,
                lambda: _ends(sources) if is_whole else {},
                functools.partial(config_files, sources, configs, is_whole=is_whole),
                index,
                any(_indexes_tags(store, sizes.slots) for store in stores),
            )
        lost = order.lost + (_lost_outside(sources, order) if is_salvage and is_whole else [])
        return Copied(chunks.count, report(sources, configs, lost))


@contextlib.contextmanager
def _telling_of_salvage(is_salvage: bool) -> Iterator[None]:
    try:
        yield
    except DamagedStoreError as why:
        if is_salvage:
            raise
        raise _to_salvage(why) from None


def _to_salvage(why: object) -> DamagedStoreError:
    return DamagedStoreError(f"{why}; `rmqstore salvage` makes a new store of what is whole")


def refuse_inside(source: str, target: str) -> None:
    """A copy in a directory of its source would change that.

    Raises:
        OptionError: it is to be there.
    """
    here, there = os.path.realpath(source), os.path.realpath(target)
    if there == here or there.startswith(here + os.sep):
        raise OptionError(f"{target}: expected a directory outside {source}, which is only read; give another one")


def _logs(stores: list[OpenStore], deduplicate: bool) -> list[Copies]:
    """What is copied, as logs.

    Raises:
        OptionError: there are copies of one store, and that is not asked for, or other stores come, too.
    """
    if not deduplicate:
        refuse_twins(stores, "name one of them, or give deduplicate=true to have each message once")
        return alone(stores)
    logs = copies_of(stores)
    if 1 < len(logs) < len(stores):
        raise OptionError(
            f"{logs[0].stores[0].root} and others: deduplicate=true makes one store of copies of one, and these are of "
            f"{len(logs)}; copy those of each alone, and what comes of that into one"
        )
    return logs


def _sources(
    logs: list[Copies],
    read: Callable[[list[OpenStore], list[str]], Iterable[pa.RecordBatch]],
    table: Callable[..., pa.Table],
    is_salvage: bool,
) -> list[Source]:
    """Each store with what has to be known of it before its messages. Bodies are read where something is made of one
    that cannot be decompressed: it is lost, or another copy has it."""
    columns = [*COLUMNS, *(DAMAGE_COLUMNS if is_salvage else [])]
    if is_salvage or any(len(log.stores) > 1 for log in logs):
        columns += BODY_COLUMNS
    is_one = len(logs) == 1
    offsets, first_queue = Offsets(), dict[str, int]()
    sources = []
    for log in logs:
        store = log.newest
        _ = store.log
        if len(log.stores) > 1:
            columns = [*columns, "store"]
        waiting = waiting_of(store, functools.partial(table, store), is_one, offsets)
        queues = None if is_one else _queue_counts(store)
        sources.append(Source(store, read(log.stores, columns), waiting, {}, queues))
        if queues is not None:
            sources[-1].first_queue = {topic: at for topic, at in first_queue.items() if not waiting.begins_anew(topic)}
            for topic, count in queues.items():
                first_queue[topic] = first_queue.get(topic, 0) + count
    return sources


def _queue_counts(store: OpenStore) -> dict[str, int]:
    """How many queues each topic has: those that the broker was told of, or that are there."""
    counts = dict(store.topics)
    for topic in store.queues.topics:
        for queue in store.queues.of_topic(topic):
            counts[topic] = max(counts.get(topic, 0), queue.queue_id + 1)
    return counts


def _sizes(stores: list[OpenStore]) -> FileSizes:
    """File sizes: those of the first store, with segments as large as the largest."""
    found = [sizes_to_rebuild(store, Sizes()) for store in stores]
    return FileSizes(max(each.segment for each in found), found[0].queue_file, found[0].slots, found[0].items)


def _ends(sources: list[Source]) -> dict[Queue, int]:
    """Where queues go on that may have no message any more."""
    return {name: bounds.end for source in sources for name, bounds in _bounds(source)}


def _lost_outside(sources: list[Source], order: KeptOffsets) -> list[Lost]:
    """What queues lack before their first message, and after their last one, as far as ConsumeQueues know of it."""
    lost = []
    for source in sources:
        store = source.store
        begin = store.log.extents[0].start if store.log.extents else store.end
        for name, bounds in _bounds(source):
            if name not in order.ends:
                continue
            queue = bounds.queue
            first = queue.search(begin, stop=bounds.end)
            if queue.unit(first) is not None and first < order.starts[name]:
                lost.append(Lost(name, first, order.starts[name] - first))
            if bounds.end > order.ends[name]:
                lost.append(Lost(name, order.ends[name], bounds.end - order.ends[name]))
    return lost


def _bounds(source: Source) -> Iterator[tuple[Queue, QueueBounds]]:
    """Those of the simple queues of a source that go on in the copy, by their names there."""
    queues = source.store.queues
    some = (
        queue
        for topic in queues.topics
        if not source.waiting.begins_anew(topic)
        for queue in queues.of_topic(topic)
        if not queue.is_lmq
    )
    for bounds in queue_bounds(source.store, some):
        topic, queue_id = bounds.queue.topic, bounds.queue.queue_id
        yield (topic, source.first_queue.get(topic, 0) + queue_id), bounds


def _indexes_tags(store: OpenStore, slots: int) -> bool:
    try:
        return indexes_tags(store, slots)
    except DamagedStoreError:
        return False
