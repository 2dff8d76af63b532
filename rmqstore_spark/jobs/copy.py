"""From some stores to a new one."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from rmqstore_spark.errors import DamagedStoreError, OptionError, counted
from rmqstore_spark.jobs.copying.config import Config, config_files, say_what_stays_behind
from rmqstore_spark.jobs.copying.index import say_what_is_not_used
from rmqstore_spark.jobs.copying.lost import after_log, bounds_of, lost_outside
from rmqstore_spark.jobs.copying.report import report
from rmqstore_spark.jobs.copying.rows import BODY_COLUMNS, COLUMNS, DAMAGE_COLUMNS, Chunks, Halves, Source, merged
from rmqstore_spark.jobs.copying.told_once import told_once
from rmqstore_spark.jobs.copying.waiting import Offsets, waiting_of
from rmqstore_spark.options import ReadOptions
from rmqstore_spark.read.copies import Copies, alone, copies_of
from rmqstore_spark.read.scan import Scan
from rmqstore_spark.read.stored import StoredUnits
from rmqstore_spark.read.twins import refuse_twins
from rmqstore_spark.store.files import status_of
from rmqstore_spark.store.geometry import indexes_tags
from rmqstore_spark.store.message import Header
from rmqstore_spark.store.queue_bounds import QueueBounds
from rmqstore_spark.store.sizes import FileSizes, Sizes
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.write.copying import write_copy
from rmqstore_spark.write.kept_offsets import KeptOffsets
from rmqstore_spark.write.queuefiles import Queue
from rmqstore_spark.write.target import sizes_to_rebuild

_LAST_TO_TRY = 1024  # of a queue's last messages, until one is whole


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
    stores: list[Snapshot],
    options: ReadOptions,
    table: Callable[..., pa.Table],
    target: str,
    *,
    is_salvage: bool,
    index: bool,
) -> Copied:
    """Make a new store of others.

    Args:
        stores: those that are copied.
        options: which messages are copied, and how they are read. With `deduplicate` all stores are copies of one.
        table: reads a table of a store by name: table(store, name, ...).
        target: the new store's directory, absolute.
        is_salvage: whether damage is passed over.
        index: whether to make index files.

    Raises:
        RmqStoreError: nothing was written.
    """
    is_whole = options.is_everything  # all topics
    for store in stores:
        _ = store.seen  # before its messages are planned: their bytes are read by what that says of them (StoredUnits)
        for directory in {store.root, *(os.path.dirname(segment.path) for segment in store.segments)}:
            refuse_inside(directory, target)
        _refuse_links(store)
    logs = _logs(stores, options.deduplicate)
    for log in logs:
        if (faults := log.faults()) and not is_salvage:
            raise _to_salvage(faults[0][1])
    configs = [Config.of(log.newest, is_one=len(logs) == 1) for log in logs]
    for log, config in zip(logs, configs, strict=True):
        if not is_salvage:
            config.refuse_unread()
        say_what_stays_behind(log.newest)
        if index:
            say_what_is_not_used(log.newest)
    with told_once() if is_salvage else contextlib.nullcontext():
        sources = _sources(logs, options, table, is_salvage)
        sizes = _sizes(stores, is_salvage)
        span = sum(segment.end - segment.start for store in stores for segment in store.segments)
        order = KeptOffsets(sources[0].store.root if len(sources) == 1 else target, span)
        bounds = [dict(bounds_of(source)) if is_whole else {} for source in sources]
        begins = {
            id(source.waiting): _begin_of_segment(source.store, some, is_salvage)
            for source, some in zip(sources, bounds, strict=True)
        }
        chunks = Chunks(order, Halves(), begins)
        with contextlib.ExitStack() as opened, _telling_of_salvage(is_salvage):
            streams = [
                source.rows({store.root: opened.enter_context(StoredUnits(store)) for store in log.stores})
                for source, log in zip(sources, logs, strict=True)
            ]
            ends = write_copy(
                target,
                chunks.of(merged(streams)),
                sum(log.size for log in logs),
                sizes,
                {name: each.end for some in bounds for name, each in some.items()},
                functools.partial(config_files, sources, configs, is_whole=is_whole),
                index,
                any(indexes_tags(store, sizes.slots) for store in stores),
                functools.reduce(operator.and_, map(_mode_of, stores)) | 0o700,
            )
        after = []
        if is_salvage and is_whole:
            for source, config, some in zip(sources, configs, bounds, strict=True):
                order.lost += lost_outside(source, config, some, order, ends)
                after.append((source, list(after_log(source))))
        return Copied(chunks.count, report(sources, configs, order.lost, after))


def _mode_of(store: Snapshot) -> int:
    """Who may read a store's messages, as the mode of a directory."""
    segments = [segment.path for segment in store.segments[:1] + store.segments[-1:]]
    mode = 0o777
    for path in (store.root, *map(os.path.dirname, segments), *segments):
        found = status_of(path, store.files).st_mode
        mode &= found if stat.S_ISDIR(found) else found | (found & 0o444) >> 2  # what may be read, may be searched
    return mode


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


def _refuse_links(store: Snapshot) -> None:
    """What a link below a store leads to may be private, so it is not copied. Options name a commitlog elsewhere.

    Raises:
        DamagedStoreError: a segment is a link, or the directory of the commitlog.
    """
    usual = os.path.join(store.root, "commitlog")
    for path in [usual, *(segment.path for segment in store.segments)]:
        if path == usual and not any(os.path.dirname(segment.path) == usual for segment in store.segments):
            continue
        if stat.S_ISLNK(store.files.lstat(path).st_mode):
            raise DamagedStoreError(
                f"{path}: expected no link, as what it leads to would be copied; put the file itself there, or name "
                "the directory that the segments are in with option storePathCommitLog"
            )


def _logs(stores: list[Snapshot], deduplicate: bool) -> list[Copies]:
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
    options: ReadOptions,
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
        scan = Scan(replace(options, paths=[each.root for each in log.stores]), columns)
        sources.append(Source(store, scan.batches(), waiting, {}, queues))
        if queues is not None:
            sources[-1].first_queue = {topic: at for topic, at in first_queue.items() if not waiting.begins_anew(topic)}
            for topic, count in queues.items():
                first_queue[topic] = first_queue.get(topic, 0) + count
    return sources


def _queue_counts(store: Snapshot) -> dict[str, int]:
    """How many queues each topic has: those that the broker was told of, or that are there."""
    counts = dict(store.topics)
    for topic in store.queues.topics:
        for queue in store.queues.of_topic(topic):
            counts[topic] = max(counts.get(topic, 0), queue.queue_id + 1)
    return counts


def _sizes(stores: list[Snapshot], is_salvage: bool) -> FileSizes:
    """File sizes: those of the first store, with segments as large as the largest."""
    found = [sizes_to_rebuild(store, Sizes(), may_be_cut=is_salvage) for store in stores]
    return FileSizes(max(each.segment for each in found), found[0].queue_file, found[0].slots, found[0].items)


def _begin_of_segment(store: Snapshot, bounds: Mapping[Queue, QueueBounds], is_salvage: bool) -> int:
    """The physical offset of a message with which a segment has to begin, so that the queues which lack their last
    messages can go on after them (queuefiles.QueueWriter.go_on_at): the last one of all that are in queues. -1 where no
    queue but its own lacks any."""
    lasts = store.files.schedule.mapped(
        lambda each: _last_whole(store, each) if is_salvage else each.last, bounds.values()
    )
    there = {name: last for name, last in zip(bounds, lasts, strict=True) if last is not None}
    newest = max((last.position for last in there.values()), default=-1)
    lacking = (name for name, last in there.items() if last.queue_offset + 1 < bounds[name].end)
    return newest if any(there[name].position < newest for name in lacking) else -1


def _last_whole(store: Snapshot, bounds: QueueBounds) -> Header | None:
    """The last message of a queue whose body is whole, too."""
    for number in bounds.numbers[: -_LAST_TO_TRY - 1 : -1]:
        unit = bounds.queue.unit(number)
        extent = None if unit is None else store.log.extent_at(unit.position)
        if unit is not None and extent is not None:
            with store.reader(extent.segment, verify_crc=True) as reader:
                header = reader.header(unit.position)
            if header is not None and header.queue_offset == number:
                return header
    return None
