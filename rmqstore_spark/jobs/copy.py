"""Copies and salvages: from one or more stores to a new one.

Each step makes a plain value for the next one: logs (replicas of one store are one log), config/, sources (each with
the messages that a broker keeps for later), the messages of all sources in one order, chunks of units, a new store;
and after a salvage the losses. The parts are in copying/.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from rmqstore_spark.errors import DamagedStoreError, OptionError, RmqStoreError, StorageError, counted
from rmqstore_spark.jobs.copying.chunks import chunks_of
from rmqstore_spark.jobs.copying.compaction import CompactionFiles, compaction_files
from rmqstore_spark.jobs.copying.config import Config, config_files, say_what_stays_behind, started
from rmqstore_spark.jobs.copying.excluded import LeftOut, check_topics, left_out, report, without_left_out
from rmqstore_spark.jobs.copying.index import say_what_is_not_used
from rmqstore_spark.jobs.copying.lost import after_log, batch_ends_of, bounds_of, lost_outside, with_times
from rmqstore_spark.jobs.copying.lost_waiting import lost_waiting
from rmqstore_spark.jobs.copying.report import Losses, of_config, of_end, of_queues
from rmqstore_spark.jobs.copying.rows import merged
from rmqstore_spark.jobs.copying.selected import BODY_COLUMNS, COLUMNS, DAMAGE_COLUMNS, selected
from rmqstore_spark.jobs.copying.source import Source
from rmqstore_spark.jobs.copying.tiered import (
    FromTier,
    TierRows,
    UnknownBatchesError,
    refuse_salvage,
    sources_of,
    topics_of_batches,
)
from rmqstore_spark.jobs.copying.waiting import waiting_of
from rmqstore_spark.query.copy_options import CopyOptions
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.read.plan.again import again
from rmqstore_spark.read.plan.copies import Copies, alone, copies_of
from rmqstore_spark.read.plan.related import refuse_copies
from rmqstore_spark.read.run.damage_reports import listening
from rmqstore_spark.read.run.stored import StoredUnits
from rmqstore_spark.read.scan import Scan
from rmqstore_spark.store.bounds_search import QueueBounds
from rmqstore_spark.store.due_times import later_than_usual
from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.format.sizes import FileSizes, Sizes
from rmqstore_spark.store.geometry import indexes_tags
from rmqstore_spark.store.io.files import is_link, status_of
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.segments import MODES_AT_DAMAGE
from rmqstore_spark.tables.check.problems import SCHEMA, Finding, to_batch
from rmqstore_spark.write.build.kept_offsets import KeptOffsets, Lost
from rmqstore_spark.write.build.tails import Queue
from rmqstore_spark.write.build.target import batch_file_of, sizes_to_rebuild
from rmqstore_spark.write.build.topics import of_batches
from rmqstore_spark.write.new_store import Ends, NewStore, write_new_store

_TO_SALVAGE = "`rmqstore salvage` makes a new store of what is whole"
_LAST_TO_TRY = 1024  # of a queue's last messages, in search of one that is whole

_Value = TypeVar("_Value")

Batches = Iterator[pa.RecordBatch]
Bounds = Mapping[Queue, QueueBounds]  # of a source's queues, by their names in the copy


@dataclass(frozen=True)
class Copied:
    """The result of a copy.

    Attributes:
        messages: the number of messages copied.
        lost: the losses, as a table like that of `check`; empty if nothing is lost.
        excluded: what was left out by each of the options for that, and what a search finds of it in the copy.
    """

    messages: int
    lost: pa.Table
    excluded: pa.Table

    def __repr__(self) -> str:
        excluded = f", excluded=<{counted(self.excluded.num_rows, 'row')}>" if self.excluded.num_rows else ""
        return f"Copied(messages={self.messages}, lost=<{counted(self.lost.num_rows, 'row')}>{excluded})"


@dataclass(frozen=True)
class CopyJob:
    """A copy: the sources, the target and how.

    Attributes:
        stores: the stores to copy that have a commitlog; none where a tiered store is copied alone.
        tier: what is copied from a tiered store.
        options: which messages are copied, and how they are read: mode FAILFAST in a copy, PERMISSIVE in a salvage.
            With `deduplicate` all stores are replicas of one store.
        target: the new store's directory, absolute.
        own: the options of the copy itself.
        is_salvage: whether damage is skipped.
    """

    stores: list[Snapshot]
    tier: list[FromTier]
    options: ReadOptions
    target: str
    own: CopyOptions
    is_salvage: bool

    @classmethod
    def of(cls, options: ReadOptions, target: str, written: CopyOptions, *, is_salvage: bool) -> CopyJob:
        """The copy that options ask for. Errors are those of sources_of()."""
        stores, tier = sources_of(options)
        own = replace(
            options, tiered=None, read_beside=frozenset({"tiered", "compacted"} if options.tiered else {"compacted"})
        )
        return cls(stores, tier, own, target, written, is_salvage)

    @property
    def is_whole(self) -> bool:
        """Are all messages copied?"""
        return self.options.is_everything


def copy(job: CopyJob) -> Copied:
    """Make a new store from others, with everything that is asked for, or make nothing.

    Raises:
        RmqStoreError: the copy is not possible. Nothing was written; or, where the text says so, the new store is
            there.
    """
    _refuse_sources(job)
    if job.is_salvage:
        refuse_salvage(job.tier)
    _refuse_to_exclude(job)
    try:
        return _copy(job, set())
    except UnknownBatchesError:  # found while messages were read: nothing was written
        return _copy(job, topics_of_batches(job.tier))


def _copy(job: CopyJob, topics_of_tier: set[str]) -> Copied:
    """copy(), once it is known that it may be.

    Args:
        topics_of_tier: topics of the tier whose queues are BatchCQs, besides those that topics.json names.

    Raises:
        RmqStoreError: as of copy().
        UnknownBatchesError: the tier has batches of another topic.
    """
    logs = _logs(job)
    losses = Losses() if job.is_salvage else None
    with listening(is_once=job.is_salvage), _telling_of_salvage(job):  # a salvage reads a damaged log several times
        sources = list(_sources(job, logs))
        batch_topics = topics_of_tier.union(*(source.batch_topics for source in sources))
        _refuse_two_kinds(sources, batch_topics)
        tier = TierRows(job.tier, len(sources), job.options.verify_crc, batch_topics)
        configs = _configs(job, logs, tier)
        starts = [each for each in started(sources, job.own.starts) if each.queue[0] not in job.own.excluded_topics]
        batches = [_batches(job, log) for log in logs]
        gone = [_left_out(job, log) for log in logs]  # after the read is planned: what comes later is not copied
        sources = [_without(source, some) for source, some in zip(sources, gone, strict=True)]
        compacted = compaction_files([log.newest for log in logs], job.options, job.own)
        bounds = [_of_kept_topics(job, bounds_of(source)) for source in sources]
        batch_ends = dict(end for source in sources for end in _of_kept_topics(job, batch_ends_of(source)).items())
        named = sources or tier.sources[:1]
        order = KeptOffsets(
            named[0].store.root if len(named) == 1 else job.target,
            sum(segment.end - segment.start for store in _all_logs(job) for segment in store.segments),
        )
        begins = {
            source.number: _begin_of_segment(job, source, some) for source, some in zip(sources, bounds, strict=True)
        } | {source.number: -1 for source in tier.sources}
        with contextlib.ExitStack() as opened:
            opened.enter_context(tier)
            streams = [
                selected(
                    source, some, {store.root: opened.enter_context(StoredUnits(store)) for store in log.stores}, losses
                )
                for source, some, log in zip(sources, batches, logs, strict=True)
            ]
            written = write_new_store(
                job.target,
                _with_batches(_new_store(job, logs, bounds, compacted), batch_topics, batch_ends),
                chunks_of(
                    itertools.chain(tier.before(), merged(streams), tier.after()), order, begins, job.own.store_host
                ),
                functools.partial(config_files, named, configs, job.is_whole, batch_topics, starts=starts),
            )
        copied = list(zip(sources, configs[: len(sources)], bounds, strict=True))
        with _telling_of_copy(job, written.messages):
            # The new store is there: what a broker deletes now is no reason to fail.
            lost = again(lambda: list(_lost(job, copied, losses, _gaps(job, copied, gone, order, written.ends))))
            told = pa.Table.from_batches([to_batch(lost, is_salvaged=True)], SCHEMA)
            excluded = report(job.target, job.own, itertools.chain(*gone))
    return Copied(written.messages, told, excluded)


# ---- before messages are read


def _refuse_sources(job: CopyJob) -> None:
    """Refuse sources that may not be copied, or not to this target.

    Raises:
        RmqStoreError: a source is refused.
    """
    for store in _all_logs(job):
        _ = store.seen  # found before the messages are planned: StoredUnits compares it when it reads their bytes
        for directory in {store.root, *(os.path.dirname(segment.path) for segment in store.segments)}:
            refuse_inside(directory, job.target)
        _refuse_links(store)


def refuse_inside(source: str, target: str) -> None:
    """Refuse a target inside its source: the copy would change the source.

    Raises:
        OptionError: the target is inside the source.
    """
    here, there = os.path.realpath(source), os.path.realpath(target)
    if there == here or there.startswith(here + os.sep):
        raise OptionError(f"{target}: expected a directory outside {source}, which is only read; give another one")


def _refuse_links(store: Snapshot) -> None:
    """Refuse links below a store: they may lead to private files. An option can name a commitlog elsewhere.

    Raises:
        DamagedStoreError: a segment, or the directory of the commitlog, is a link.
        DeletedMeanwhileError: a segment has been deleted since the store was opened.
    """
    usual = os.path.join(store.root, "commitlog")
    for path in [usual, *(segment.path for segment in store.segments)]:
        if path == usual and not any(os.path.dirname(segment.path) == usual for segment in store.segments):
            continue
        if is_link(path, store.files):
            raise DamagedStoreError(
                f"{path}: expected no link, as what it leads to would be copied; replace it by the file itself, or "
                "name the directory that the segments are in with option storePathCommitLog"
            )


def _logs(job: CopyJob) -> list[Copies]:
    """The logs to copy.

    Raises:
        DamagedStoreError: files of a log are missing, and this is no salvage.
        OptionError: some stores are copies of one store without `deduplicate`, or stores are not with it.
    """
    logs = _logs_of(job.stores, job.options.deduplicate)
    for log in logs:
        if (faults := log.faults()) and not job.is_salvage:
            raise faults[0][1].error(_TO_SALVAGE)
    return logs


def _logs_of(stores: list[Snapshot], deduplicate: bool) -> list[Copies]:
    if not deduplicate:
        refuse_copies(stores, "name one of them, or give deduplicate=true to have each message once")
        return alone(stores)
    logs = copies_of(stores)
    if 1 < len(logs) < len(stores):
        raise OptionError(
            f"{logs[0].stores[0].root} and others: deduplicate=true merges replicas of one store, and these are of "
            f"{len(logs)} stores; copy the replicas of each first, and merge the results"
        )
    return logs


def _all_logs(job: CopyJob) -> list[Snapshot]:
    return [*job.stores, *(part.log for part in job.tier)]


def _configs(job: CopyJob, logs: list[Copies], tier: TierRows) -> list[Config]:
    """config/ of each log's store; a tiered store alone has none. The log warns of what a store may have and its copy
    will not.

    Raises:
        DamagedStoreError: a file cannot be parsed, and this is no salvage.
    """
    if not logs:
        return [Config.nothing(source.store) for source in tier.sources[:1]]
    configs = [Config.of(log.newest, len(logs) == 1).without(job.own.excluded_topics) for log in logs]
    for log, config in zip(logs, configs, strict=True):
        if not job.is_salvage:
            config.refuse_unread()
        say_what_stays_behind(log.newest)
        if job.own.has_index:
            say_what_is_not_used(log.newest)
    return configs


def _sources(job: CopyJob, logs: list[Copies]) -> Iterator[Source]:
    """Each log's newest store, with the facts that its messages need."""
    is_one = len(logs) == 1
    before: dict[str, int] = {}  # by topic, the number of queues in the sources before
    for number, log in enumerate(logs):
        store = log.newest
        _ = store.log
        waiting = waiting_of(store, job.options, is_one)
        batch_topics = of_batches({"topicConfigTable": store.topic_entries}, store.queues)
        if is_one:
            yield Source(number, store, waiting, {}, None, batch_topics)
            return
        queues = _queue_counts(store)
        first_queue = {topic: at for topic, at in before.items() if not waiting.begins_anew(topic)}
        yield Source(number, store, waiting, first_queue, queues, batch_topics)
        for topic, count in queues.items():
            before[topic] = before.get(topic, 0) + count


def _refuse_two_kinds(sources: list[Source], batch_topics: set[str]) -> None:
    """Refuse topics whose queues are BatchCQs in one source, or that have batches in the tier, and are simple in
    another source: a topic has queues of one kind.

    Raises:
        OptionError: there is one.
    """
    for source in sources:
        known = {*source.store.topics, *source.store.queues.topics}
        for topic in sorted((batch_topics & known) - set(source.batch_topics)):
            raise OptionError(
                f"{source.store.root}: topic {topic!r} has simple queues: expected BatchCQs as in another of the "
                "stores, or in the tiered store; leave the topic out (--topic), or copy the stores one by one"
            )


def _with_batches(new: NewStore, topics: set[str], ends: Ends) -> NewStore:
    """A new store with BatchCQ topics.

    Args:
        ends: where their queues go on.
    """
    return replace(new, batch_topics=frozenset(topics), ends={**new.ends, **ends})


def _refuse_to_exclude(job: CopyJob) -> None:
    """Refuse to leave out what is not there, or where it cannot be done for all messages.

    Raises:
        OptionError: naming the option.
    """
    if not job.own.exclusions:
        return
    if job.tier:
        raise OptionError(
            f"option {job.own.exclusions[0].option!r}: a tiered store is copied with all of its messages, or by what "
            "options select; copy it without this option, and then the copy with it"
        )
    check_topics(job.stores, job.own)


def _left_out(job: CopyJob, log: Copies) -> list[LeftOut]:
    if not job.own.exclusions:
        return []
    return list(left_out(log.newest, [store.root for store in log.stores], job.options, job.own))


def _without(source: Source, gone: Sequence[LeftOut]) -> Source:
    """A source without messages that are left out."""
    return replace(source, left_out=[each.positions for each in gone if len(each.positions)])


def _of_kept_topics(job: CopyJob, found: Iterable[tuple[Queue, _Value]]) -> dict[Queue, _Value]:
    """What is known of queues, without the topics that are left out; nothing where not all messages are copied."""
    if not job.is_whole:
        return {}
    return {queue: value for queue, value in found if queue[0] not in job.own.excluded_topics}


def _queue_counts(store: Snapshot) -> dict[str, int]:
    """The number of queues of each topic, from the broker's configuration or the queues' directories."""
    counts = dict(store.topics)
    for topic in store.queues.topics:
        for queue in store.queues.all_of_topic(topic):
            counts[topic] = max(counts.get(topic, 0), queue.queue_id + 1)
    return counts


def _batches(job: CopyJob, log: Copies) -> Batches:
    """The messages of a log. Bodies are read only where a body that cannot be decompressed matters: the message is
    lost, or another replica has it. A batch stays one unit, selected if any of its messages is."""
    has_replicas = len(log.stores) > 1
    columns = [
        *COLUMNS,
        *(DAMAGE_COLUMNS if job.is_salvage else []),
        *(BODY_COLUMNS if job.is_salvage or has_replicas else []),
        *(["store"] if has_replicas else []),
    ]
    options = replace(job.options, paths=[store.root for store in log.stores], explode_batches=False)
    return Scan(options, columns).batches()


def _new_store(job: CopyJob, logs: list[Copies], bounds: Sequence[Bounds], compacted: CompactionFiles) -> NewStore:
    sizes = _sizes(job)
    return NewStore(
        nbytes=sum(log.size for log in logs)
        + sum(part.log.log.size for part in job.tier)
        + sum(file.size for file in compacted.files),
        sizes=sizes,
        ends={**{name: each.end for some in bounds for name, each in some.items()}, **compacted.ends},
        has_index=job.own.has_index,
        index_tags=any(indexes_tags(store, sizes.slots) for store in job.stores),
        others=compacted.files,
        later={name: each for store in reversed(job.stores) for name, each in later_than_usual(store).items()},
        mode=functools.reduce(operator.and_, map(_mode_of, _all_logs(job)), 0o777) | 0o700,
    )


def _sizes(job: CopyJob) -> FileSizes:
    """The file sizes of the first store, with segments as large as the largest of all stores."""
    found = [sizes_to_rebuild(store, Sizes(), may_be_cut=job.is_salvage) for store in job.stores]
    if not found:
        return Sizes().or_defaults()
    return replace(
        found[0],
        segment=max(each.segment for each in found),
        batch_file=batch_file_of(job.stores) or found[0].batch_file,
    )


def _mode_of(store: Snapshot) -> int:
    """The mode for directories that lets exactly those read who may read the store's messages."""
    segments = [segment.path for segment in store.segments[:1] + store.segments[-1:]]
    mode = 0o777
    for path in (store.root, *map(os.path.dirname, segments), *segments):
        found = status_of(path, store.files).st_mode
        mode &= found if stat.S_ISDIR(found) else found | (found & 0o444) >> 2  # readers may search
    return mode


def _begin_of_segment(job: CopyJob, source: Source, bounds: Bounds) -> int:
    """The physical offset of the message that has to begin a segment, so that queues whose last messages are lost can
    go on after these (queuefiles.QueueWriter.go_on_at): the last message of all that are in queues. -1 if no queue, or
    only the queue of that message, lacks any."""
    lasts = source.store.files.schedule.mapped(functools.partial(_last_kept, job, source), bounds.values())
    there = {name: last for name, last in zip(bounds, lasts, strict=True) if last is not None}
    newest = max((last.position for last in there.values()), default=-1)
    lacking = (name for name, last in there.items() if last.queue_offset + 1 < bounds[name].end)
    return newest if any(there[name].position < newest for name in lacking) else -1


def _last_kept(job: CopyJob, source: Source, bounds: QueueBounds) -> Header | None:
    """The last message of a queue that the copy has, as far as that can be known before."""
    last = bounds.last
    if not job.is_salvage and (last is None or not source.are_left_out(np.array([last.position]))[0]):
        return last
    return _last_whole(source, bounds)


def _last_whole(source: Source, bounds: QueueBounds) -> Header | None:
    """The last message of a queue that is whole, its body included, and not left out."""
    store, tried = source.store, 0
    for number in bounds.numbers[::-1]:
        unit = bounds.queue.unit(number)
        if unit is not None and source.are_left_out(np.array([unit.position]))[0]:
            continue
        tried += 1
        if tried > _LAST_TO_TRY:
            return None
        extent = None if unit is None else store.log.extent_at(unit.position)
        if unit is not None and extent is not None:
            with store.reader(extent.segment, verify_crc=True) as reader:
                header = reader.header(unit.position)
            if header is not None and header.queue_offset == number:
                return header
    return None


# ---- damage


@contextlib.contextmanager
def _telling_of_salvage(job: CopyJob) -> Iterator[None]:
    try:
        yield
    except DamagedStoreError as why:
        if job.is_salvage or why.advice not in ("", MODES_AT_DAMAGE):  # a copy has no option mode
            raise
        raise DamagedStoreError(why.what, _TO_SALVAGE) from None


@contextlib.contextmanager
def _telling_of_copy(job: CopyJob, messages: int) -> Iterator[None]:
    """What fails once the new store is there says that it is."""
    try:
        yield
    except RmqStoreError as why:
        raise StorageError(
            f"{why}: the new store {job.target} is whole, with all {counted(messages, 'message')}, do not copy them "
            "again; but what it lacks could not be listed: `rmqstore check` of the old store may tell"
        ) from why


def _gaps(
    job: CopyJob,
    sources: Sequence[tuple[Source, Config, Bounds]],
    gone: Sequence[Sequence[LeftOut]],
    order: KeptOffsets,
    ends: Ends,
) -> list[Lost]:
    """The messages that queues lack, as far as a salvage knows also before their first and after their last one. Those
    that were to be left out are not among them, but where the queue gives their queue offsets out again, as they were
    the last ones."""
    gaps = list(order.lost)
    for (source, config, bounds), some in zip(sources, gone, strict=True):
        if job.is_salvage and job.is_whole:
            gaps += lost_outside(source, config, bounds, order, ends)
        elif some:
            reused = ((name, ends[name], each.end) for name, each in bounds.items() if name in ends)
            gaps += [Lost(name, now, end - now, is_reused=True) for name, now, end in reused if now < end]
        gaps = without_left_out(gaps, source, some)
    if job.is_salvage and len(sources) == 1:
        gaps = [with_times(sources[0][0], gap) for gap in gaps]
    return gaps


def _lost(
    job: CopyJob, sources: Sequence[tuple[Source, Config, Bounds]], losses: Losses | None, gaps: Sequence[Lost]
) -> Iterator[Finding]:
    """The losses. In a salvage: damage in the logs, by source; then a row for each log after whose end index files or
    the checkpoint know of messages; then files of config/ that could not be parsed. In every copy: the messages that
    queues lack because of damage, or because options did not select them: `gaps`. In a salvage: those that waited."""
    for source, _, _ in sources:
        yield from losses.damages.get(source.number, []) if losses is not None else []
    if job.is_salvage and job.is_whole:
        for source, _, _ in sources:
            yield from of_end(source, after_log(source))
    for _, config, _ in sources:
        yield from of_config(config)
    yield from of_queues(gaps, job.is_whole)
    if job.is_salvage and job.is_whole and losses is not None:
        for source, _, _ in sources:
            yield from lost_waiting(source, job.options, losses.damages.get(source.number, []))
