"""Messages of a tiered store that are copied: of the tier alone, or those that the broker's own store does not have.

Each queue is a log of its own there, and nothing tells in which order a broker took the messages of two queues. In the
copy they come by store time, those of a queue in their order, and keep their queue offsets; like messages that a broker
has expired, they get other physical offsets. Of messages that a killed broker has brought again, some may stand before
others with lower queue offsets: these are put in order. A topic that has a batch gets queues of batches. What the
broker's own store does not have any more is older than all that it has, so it comes first; what it does not have yet,
as an older copy, comes last.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rmqstore_spark.errors import DamagedStoreError, OptionError
from rmqstore_spark.jobs.copying.rows import Rows, merged, together
from rmqstore_spark.jobs.copying.selected import COLUMNS, selected
from rmqstore_spark.jobs.copying.source import Source
from rmqstore_spark.jobs.copying.waiting import Waiting
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.read.plan.joined import refuse_several_brokers, tier_beside
from rmqstore_spark.read.plan.prune import pruned
from rmqstore_spark.read.plan.split import SplitPoints
from rmqstore_spark.read.plan.store_options import options_by_store
from rmqstore_spark.read.plan.stores import files_of, open_stores
from rmqstore_spark.read.run.messages import messages_in
from rmqstore_spark.read.run.stored import StoredUnits
from rmqstore_spark.store.brought import BROUGHT_AT_ONCE
from rmqstore_spark.store.format.by_queue import Integers
from rmqstore_spark.store.format.message import INNER_BATCH
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.segments import Damage
from rmqstore_spark.store.tiered_log import TieredLog

_ADVICE = "restore it from a backup, or write what a read with mode=DROPMALFORMED gives: tiers are not salvaged"
_MOST_OPEN = 64  # files of queues


class UnknownBatchesError(Exception):
    """A topic of a tier has batches, which topics.json does not say, or there is none."""


@dataclass(frozen=True)
class FromTier:
    """Messages of one queue's log in a tiered store that are copied.

    Attributes:
        log: the queue's log.
        options: select them.
        is_after: whether they come after all messages of the broker's own store, not before.
    """

    log: TieredLog
    options: ReadOptions
    is_after: bool


def sources_of(options: ReadOptions) -> tuple[list[Snapshot], list[FromTier]]:
    """The stores to copy that are whole, and what is copied from tiered stores.

    Raises:
        RmqStoreError: a path is no store, or options do not go together.
    """
    files = files_of(options)
    stores = open_stores(options, files, with_queue_logs=True)
    whole = [store for store in stores if store.is_whole]
    refuse_several_brokers([store.layout for store in stores if not store.is_whole])
    asked = tier_beside(stores, options, files) if whole else options_by_store(options, stores)
    return whole, [_from_tier(log, own) for log, own in asked if isinstance(log, TieredLog)] if asked else []


def _from_tier(log: TieredLog, options: ReadOptions) -> FromTier:
    offsets = options.selection.queue(*log.queue)
    least, end = log.known
    return FromTier(log, options, least < end and offsets is not None and offsets.least >= end)


def refuse_salvage(parts: Sequence[FromTier]) -> None:
    """Refuse a salvage of a tiered store.

    Raises:
        OptionError: there is one.
    """
    for part in parts:
        raise OptionError(
            f"{part.log.root}: a tiered store is copied, and not salvaged: read what is whole with "
            "mode=DROPMALFORMED, and write that to a store"
        )


class TierRows:
    """The messages of a tier that are copied, as rows. A context manager.

    Args:
        parts: which ones.
        first: the number of the first of their sources.
        verify_crc: whether the checksums of bodies must be right.
        batch_topics: the topics whose queues are BatchCQs.
    """

    def __init__(self, parts: Sequence[FromTier], first: int, verify_crc: bool, batch_topics: Collection[str]) -> None:
        self._parts = parts
        self.sources = [
            Source(first + number, part.log, Waiting.nothing(), {}, None, batch_topics)
            for number, part in enumerate(parts)
        ]
        self._verify_crc = verify_crc
        self._open = _Opened()

    def __enter__(self) -> TierRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def before(self) -> Iterator[Rows]:
        """What comes before all messages of the broker's own store.

        Raises:
            DamagedStoreError: a file, or what should be in one, is damaged or missing.
            UnknownBatchesError: a topic that is not among batch_topics has a batch.
        """
        return self._merged(is_after=False)

    def after(self) -> Iterator[Rows]:
        """What comes after them. Errors as of before()."""
        return self._merged(is_after=True)

    def _merged(self, is_after: bool) -> Iterator[Rows]:
        of_phase = [at for at, part in enumerate(self._parts) if part.is_after == is_after]
        yield from merged([self._rows(self.sources[at], self._parts[at]) for at in of_phase])

    def _rows(self, source: Source, part: FromTier) -> Iterator[Rows]:
        for fault in part.log.faults:
            raise fault.error(_ADVICE)
        rows = selected(source, self._batches(part), {part.log.root: _Units(self._open, part.log)}, None)
        rows = (some for some in rows if len(some.positions))
        return _ascending(part.log, _in_order(rows) if part.log.has_brought_again else rows)

    def _batches(self, part: FromTier) -> Iterator[pa.RecordBatch]:
        selection = part.options.selection
        for piece in pruned(part.log, selection, SplitPoints()):
            for found in messages_in(piece, selection, COLUMNS, self._verify_crc):
                if isinstance(found, Damage):
                    raise found.error(_ADVICE)
                if part.log.queue[0] not in self.sources[0].batch_topics and _has_batches(found):
                    raise UnknownBatchesError
                yield found


def _in_order(rows: Iterator[Rows]) -> Iterator[Rows]:
    """The messages of a queue by queue offset. Of them wait only those near the last one in the log: no message has a
    lower queue offset than one much earlier there."""
    waiting: list[Rows] = []
    for some in rows:
        all_of_them = together([*waiting, some])
        all_of_them = all_of_them.only(np.argsort(all_of_them.queue_offsets, kind="stable"))
        may_follow = all_of_them.positions >= int(some.positions.max()) - BROUGHT_AT_ONCE
        end = int(np.argmax(may_follow))
        waiting = [all_of_them.only(slice(end, None))]
        if end:
            yield all_of_them.only(slice(end))
    yield from waiting


def _ascending(log: TieredLog, rows: Iterator[Rows]) -> Iterator[Rows]:
    """The same rows.

    Raises:
        DamagedStoreError: a queue offset does not come after the one before.
    """
    last = -1
    for some in rows:
        before = np.concatenate([[last], some.queue_offsets[:-1]])
        wrong = np.flatnonzero(some.queue_offsets <= before)
        if len(wrong):
            at = int(wrong[0])
            position = int(some.positions[at])
            extent = log.log.extent_at(position)
            raise DamagedStoreError(
                f"{log.root if extent is None else extent.segment.path}: position {position}: topic {log.queue[0]!r}, "
                f"queue {log.queue[1]}: expected a queueOffset after {before[at]}, found {some.queue_offsets[at]}: one "
                f"of these numbers is damaged, or killed brokers brought more than {BROUGHT_AT_ONCE >> 20} MiB of this "
                f"queue again; {_ADVICE}"
            )
        last = int(some.queue_offsets[-1])
        yield some


def topics_of_batches(parts: Sequence[FromTier]) -> set[str]:
    """The topics of a tier that have a batch, so that their queues must be BatchCQs: nothing else in a tier says it.
    Reads all messages but for what follows the first batch of a topic."""
    found: set[str] = set()
    for part in parts:
        if part.log.queue[0] not in found and _any_batch(part):
            found.add(part.log.queue[0])
    return found


def _any_batch(part: FromTier) -> bool:
    selection = part.options.selection
    pieces = pruned(part.log, selection, SplitPoints())
    batches = (found for piece in pieces for found in messages_in(piece, selection, ["sysFlag"], verify_crc=False))
    return any(not isinstance(found, Damage) and _has_batches(found) for found in batches)


def _has_batches(batch: pa.RecordBatch) -> bool:
    return bool((batch.column("sysFlag").to_numpy() & INNER_BATCH).any())


class _Opened:
    """The readers of queues' logs that have a file open: not too many at a time."""

    def __init__(self) -> None:
        self._readers: OrderedDict[int, tuple[contextlib.ExitStack, StoredUnits]] = OrderedDict()

    def of(self, log: TieredLog) -> StoredUnits:
        """The reader of a log."""
        found = self._readers.pop(id(log), None)
        if found is None:
            if len(self._readers) == _MOST_OPEN:
                self._readers.popitem(last=False)[1][0].close()
            stack = contextlib.ExitStack()
            found = stack, stack.enter_context(StoredUnits(log))
        self._readers[id(log)] = found
        return found[1]

    def close(self) -> None:
        """Close all."""
        for stack, _ in self._readers.values():
            stack.close()
        self._readers.clear()


@dataclass(frozen=True)
class _Units:
    """Reads units of a log, like StoredUnits."""

    opened: _Opened
    log: TieredLog

    def read_into(self, memory: memoryview, positions: Integers, sizes: Integers) -> None:
        """As of StoredUnits, for any order of positions."""
        cuts = [0, *(np.flatnonzero(np.diff(positions) < 0) + 1).tolist(), len(positions)]
        at = 0
        for first, after in itertools.pairwise(cuts):
            nbytes = int(sizes[first:after].sum())
            part = memory[at : at + nbytes]
            self.opened.of(self.log).read_into(part, positions[first:after], sizes[first:after])
            at += nbytes
