"""A stretch of the log, read once: its damage, and its messages' queue units and index items.

The kernel derives from the units what a broker would put into queues and index (native_io.Dispatcher), and the result
is compared with the files.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from native_io import Dispatched, Dispatcher, Walked
from rmqstore_spark.errors import RmqStoreError
from rmqstore_spark.store.format.message import COMPRESSION_TYPES, compression_type
from rmqstore_spark.store.io.read_ahead import ReadAhead
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.expected_units import ExpectedUnits
from rmqstore_spark.store.structures.segments import Damage, Extent
from rmqstore_spark.tables.check.damaged import Damaged
from rmqstore_spark.tables.check.index_items import IndexSpan, IndexStretch
from rmqstore_spark.tables.check.log_view import LogView
from rmqstore_spark.tables.check.lost import Hole, Holes
from rmqstore_spark.tables.check.problems import Finding
from rmqstore_spark.tables.check.queue_units import QueueStretch
from rmqstore_spark.tables.check.unwritten import problem_of

_AT_ONCE = 32 * 1024 * 1024  # bytes of the log whose derived units and items are in memory at once


Block = tuple[Extent, ...]  # pieces of the log that follow each other


@dataclass(frozen=True)
class LogPart:
    """Consecutive blocks of the log, and the index files that they are compared with.

    Attributes:
        has_queues: whether the store has ConsumeQueue files at all.
        index: the index files that may have items of these blocks.
        covered: the first and the last physical offset that the store's index has; messages strictly between them
            must be in it.
    """

    blocks: tuple[Block, ...]
    has_queues: bool
    index: tuple[IndexSpan, ...]
    covered: tuple[int, int] | None

    @property
    def size(self) -> int:
        """The bytes of the log in these blocks."""
        return sum(piece.stop - piece.start for block in self.blocks for piece in block)


class _Scanner:
    """A dispatcher that takes windows as a decoder does.

    Attributes:
        reached: the first physical offset that the dispatcher has not passed.
    """

    def __init__(self, dispatcher: Dispatcher, start: int) -> None:
        self.dispatcher = dispatcher
        self.reached = start

    def dispatch(self, window: memoryview, **bounds: Any) -> Walked:
        """See commitlog.UnitSink."""
        walked = self.dispatcher.dispatch(window, **bounds)
        self.reached = walked.at
        return walked


def check_log(store: Snapshot, view: LogView, part: LogPart) -> Iterator[Finding]:
    """Problems of a part of the log, and of its messages' queue units and index items."""
    queues = QueueStretch(store, view)
    index = IndexStretch(store, view, part.index, part.covered)
    ahead = ReadAhead()
    for piece in itertools.chain.from_iterable(part.blocks):
        segment = piece.segment
        start, stop = piece.start - segment.start, piece.stop - segment.start
        store.files.prefetch_range(ahead, segment.path, segment.pin, start, stop)
    store.files.read_from(ahead)
    for block in part.blocks:
        yield from _check_block(store, view, block, queues if part.has_queues else None, index if part.index else None)
        yield from queues.not_dispatched()


def _check_block(
    store: Snapshot, view: LogView, block: Block, queues: QueueStretch | None, index: IndexStretch | None
) -> Iterator[Finding]:
    start, damaged, holes = block[0].start, Damaged(), Holes(store)
    expected = ExpectedUnits() if queues is None else queues.expected
    scanner = _Scanner(expected.dispatcher(index is not None and index.has_tags), start)

    def compared(stop: int) -> Iterator[Finding]:
        found = scanner.dispatcher.finish()
        yield from holes.rest()
        yield from _odd_bodies(view, found.odd_bodies.tolist())
        if queues is not None:
            yield from queues.check(found, scanner.dispatcher.queues, stop, damaged)
        if index is not None:

            def again(tags: bool) -> Dispatched:
                return _dispatched(store, block, start, stop, tags)

            try:
                yield from index.check(found, again, start, stop, damaged)
            except RmqStoreError as why:
                if not any(view.moment.is_gone(why, piece.segment.path, store.files) for piece in block):
                    raise

    for piece in block:
        try:
            with store.reader(piece.segment, verify_crc=True) as reader:
                for damage in store.past_damage(reader).feed(piece.start, piece.stop, scanner):
                    if damage is not None:
                        damaged.add(damage.start, damage.stop)
                        finding = _finding(damage, problem_of(reader, damage, view.moment))
                        yield from holes.add(Hole(damage, finding, piece.segment.header))
                    elif scanner.reached - start > _AT_ONCE:
                        yield from compared(scanner.reached)
                        start, damaged = scanner.reached, Damaged()
        except RmqStoreError as why:
            if not view.moment.is_gone(why, piece.segment.path, store.files):
                raise
            yield Finding("expiredMeanwhile", piece.segment.path, position=piece.start, expected="a segment")
    yield from compared(block[-1].stop)


def _dispatched(store: Snapshot, block: Block, start: int, stop: int, tags: bool) -> Dispatched:
    """The queue units and index items of the units that begin in [start, stop), computed once more."""
    scanner = _Scanner(ExpectedUnits().dispatcher(tags), start)
    for piece in block:
        if start < piece.stop and piece.start < stop:
            with store.reader(piece.segment, verify_crc=True) as reader:
                first, last = max(start, piece.start), min(stop, piece.stop)
                for _ in store.past_damage(reader).feed(first, last, scanner):
                    pass
    return scanner.dispatcher.finish()


def _odd_bodies(view: LogView, positions: Sequence[int]) -> Iterator[Finding]:
    """Findings for the units at these physical offsets, whose bodies are not compressed as their sysFlags say."""
    for position in positions:
        extent, header = view.store.log.extent_at(position), view.header(position)
        if extent is None or header is None:
            continue  # a broker has cut its log meanwhile
        number = compression_type(header.sys_flag)
        said = COMPRESSION_TYPES.get(number)
        yield Finding(
            "wrongCompression",
            extent.segment.path,
            position - extent.segment.start,
            position,
            header.topic,
            header.queue_id,
            header.queue_offset,
            "a compression type from 0 to 3" if said is None else f"a body compressed by {said}, as sysFlag says",
            f"type {number}" if said is None else "another one",
        )


def _finding(damage: Damage, problem: str) -> Finding:
    return Finding(
        problem,
        damage.path,
        damage.position,
        damage.start,
        found=damage.reason,
        expected="a message",
        count=damage.stop - damage.start,
    )
