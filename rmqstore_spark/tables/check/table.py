"""Table `check`: whatever is wrong or suspicious in a store. fsck for stores.

The log is read once, in blocks that begin where units do, some by each task, and the units and items that a broker
derives from their messages are compared with queues and index files. Other tasks check queues, index files and config
by themselves. All tasks judge the store as it was at one moment (moment.py).
A fault that shows from two sides is reported twice; the consequences of damage in the log are not reported again.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from rmqstore_spark.errors import DeletedMeanwhileError, one_line
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.read.pieces.pinned import pinned_segment, queue_proofs
from rmqstore_spark.read.plan.pack import target_size
from rmqstore_spark.read.plan.prune import ranges_of
from rmqstore_spark.read.plan.split import Splitter
from rmqstore_spark.store.geometry import usual_queue_files
from rmqstore_spark.store.io.files import ignore_unreadable
from rmqstore_spark.store.queue_log import QueueLog
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.kinds import is_writable
from rmqstore_spark.store.structures.proofs import Proof
from rmqstore_spark.store.structures.segments import Extent, Segment
from rmqstore_spark.tables.check.config import check_config
from rmqstore_spark.tables.check.ends import Ends, check_ends
from rmqstore_spark.tables.check.index_files import beyond, check_index_file, spans_of
from rmqstore_spark.tables.check.index_items import IndexSpan
from rmqstore_spark.tables.check.layout import (
    check_layout,
    check_queue_directories,
    has_queues,
)
from rmqstore_spark.tables.check.log import Block, LogPart, check_log
from rmqstore_spark.tables.check.log_view import LogView, commitlogs_of
from rmqstore_spark.tables.check.moment import Moment, moment_of
from rmqstore_spark.tables.check.problems import COLUMNS, PROBLEMS, Finding, to_batch
from rmqstore_spark.tables.check.queue_logs import QueueLogs, check_queue_logs
from rmqstore_spark.tables.check.queues import QueuesPart, check_queues
from rmqstore_spark.tables.consumequeue import grouped
from rmqstore_spark.tables.index import index_proofs
from rmqstore_spark.tables.table import Table

_ROWS = 4096
_TOPICS = 1000  # topics whose directories one task lists
_BLOCK = 32 * 1024 * 1024  # bytes of the log that are compared with queues and index at once


@dataclass(frozen=True)
class _Directories:
    """The directories of some topics' queues."""

    above: str
    topics: tuple[str, ...]


@dataclass(frozen=True)
class _Config:
    """config/; `log_start`: the first physical offset that has not expired."""

    log_start: int


_Work = LogPart | QueuesPart | IndexSpan | _Directories | _Config | Ends | QueueLogs | tuple[Finding, ...]


@dataclass(frozen=True)
class Part:
    """One task's part of a check: of a store with its commitlog in these directories, as it was at a moment."""

    commitlogs: list[str]
    moment: Moment
    work: _Work


@functools.singledispatch
def parts(store: Snapshot, options: ReadOptions) -> list[Part]:
    """The parts of a check; the log comes first, as it takes longest. A kind of log that has checks of its own
    registers them below."""
    moment = moment_of(store)  # before anything else is looked at
    told = list(check_layout(store))
    spans = spans_of(store, moment, told)
    told += beyond(store, spans, moment)
    queues = store.queues.every
    work: list[_Work] = [*_log_parts(store, options, spans), *_queue_parts(store, queues), *spans]
    for directory in store.queues.directories:
        topics = store.queues.topics_in(directory)
        work += [_Directories(directory, tuple(topics[at : at + _TOPICS])) for at in range(0, len(topics), _TOPICS)]
    extents = store.log.extents
    last = store.last_message
    newest = None if last is None or last.store_timestamp is None else last.store_timestamp // 1000
    work += [_Config(extents[0].start if extents else store.end), Ends(newest), QueueLogs(), tuple(told)]
    return [Part(commitlogs_of(store), moment, each) for each in work]


@parts.register
def _of_queue_log(store: QueueLog, options: ReadOptions) -> list[Part]:
    return [Part([], Moment(0, False, False, 0), QueueLogs())]


def _log_parts(store: Snapshot, options: ReadOptions, spans: list[IndexSpan]) -> Iterator[LogPart]:
    growing = next((span for span in spans if span.is_growing), spans[-1] if spans else None)
    covered = (spans[0].first, growing.last) if growing is not None else None
    are_queues = has_queues(store)
    for blocks in _packed(_blocks(store), target_size(store.log.size, options)):
        start, stop = blocks[0][0].start, blocks[-1][-1].stop
        index = tuple(span for span in spans if span.last >= start and span.first < stop)
        # A part of the log between two files is in none of them.
        yield LogPart(_pinned(store, blocks), are_queues, index or tuple(spans[:1]), covered)


def _pinned(store: Snapshot, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """The same blocks with proofs, which are compared with the segments when these are opened."""
    entered: dict[int, Segment] = {}

    def pin(piece: Extent) -> Extent:
        if piece.segment.start not in entered:
            entered[piece.segment.start] = pinned_segment(store, piece.segment, piece.start, piece.stop)
        return replace(piece, segment=entered[piece.segment.start])

    return tuple(tuple(map(pin, block)) for block in blocks)


def _blocks(store: Snapshot) -> Iterator[Block]:
    """The log in blocks that do not depend on the tasks, so that the findings do not either."""
    splitter = Splitter(_BLOCK, may_walk=True)
    block: list[Extent] = []
    for piece in splitter.split_all(ranges_of(store)):
        if block and piece.stop - block[0].start > _BLOCK:
            yield tuple(block)
            block = []
        block.append(Extent(piece.segment, piece.start, piece.stop))
    if block:
        yield tuple(block)


def _packed(blocks: Iterable[Block], target: int) -> Iterator[tuple[Block, ...]]:
    """Groups of blocks for one task each, of about `target` bytes."""
    packed: list[Block] = []
    for block in blocks:
        if packed and block[-1].stop - packed[0][0].start > target:
            yield tuple(packed)
            packed = []
        packed.append(block)
    if packed:
        yield tuple(packed)


def _queue_parts(store: Snapshot, queues: list[Queue]) -> Iterator[QueuesPart]:
    usual = usual_queue_files(queues)
    for group in grouped(queues, store.files):
        yield QueuesPart(tuple(group), usual)


def rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    """The findings of a part of a store.

    Raises:
        DeletedMeanwhileError: they may only show that somebody has begun to write the store.
    """
    found = iter(_findings(store, part))
    can_write = None
    while some := list(itertools.islice(found, _ROWS)):
        if any(PROBLEMS[each.problem].severity != "info" for each in some) and part.moment.is_over(
            store.layout, store.files
        ):
            raise DeletedMeanwhileError(
                f"{one_line(store.root)}: a broker or a write has begun to change the store since the check began, so "
                "that what was found says nothing: check it again, or a copy of it"
            )
        if can_write is None:
            can_write = not options.store_path_commit_log and is_writable(store.root, store.files)
        yield to_batch(some, is_writable=can_write)


def _findings(store: Snapshot, part: Part) -> Iterator[Finding]:
    view = LogView(store.root, part.commitlogs, store.files, part.moment)
    match part.work:
        case LogPart() as work:
            yield from check_log(store, view, work)
        case QueuesPart() as work:
            yield from check_queues(store, view, work)
        case IndexSpan() as work:
            yield from check_index_file(store.files, work, part.moment)
        case _Directories() as work:
            yield from check_queue_directories(store, work.above, list(work.topics))
        case _Config() as work:
            yield from check_config(store, work.log_start)
        case Ends() as work:
            yield from check_ends(store, view, work)
        case QueueLogs():
            yield from check_queue_logs(store, part.moment)
        case work:
            yield from work


def nbytes(part: Part) -> int:
    """The bytes of the log that a part reads; the rest of what it reads is small."""
    return part.work.size if isinstance(part.work, LogPart) else 0


def _seen(store: Snapshot, options: ReadOptions) -> Iterator[Proof | None]:
    yield from queue_proofs(store, store.queues.every)
    with ignore_unreadable():
        yield from index_proofs(store)


CHECK = Table(
    name="check",
    row="a problem, or something suspicious",
    columns=COLUMNS,
    note="The whole log is read, once.",
    options=frozenset({"maxPartitionBytes", "minPartitions"}),
    rows=rows,
    parts=parts,
    nbytes=nbytes,
    seen=_seen,
    of_queue_logs=True,
)
