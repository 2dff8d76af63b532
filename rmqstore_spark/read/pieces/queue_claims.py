"""The claims of the ConsumeQueues on a piece of the log: the places where selected messages can be."""

import bisect
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from native_io import fingerprint, java_hash
from rmqstore_spark.query.selection import ALL, REPLACEMENT, Numbers, Selection
from rmqstore_spark.read.pieces.task import Queued
from rmqstore_spark.store.format.clock import went_back, widened
from rmqstore_spark.store.format.queue_block import QueueBlock
from rmqstore_spark.store.format.units import Claims
from rmqstore_spark.store.snapshot import StoreRef
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.queue_cursor import QueueCursor
from rmqstore_spark.store.structures.queues import ConsumeQueues


class ContradictedError(Exception):
    """The log disagrees with an accelerator about the place of a message."""


def no_message(reader: SegmentReader, position: int) -> ContradictedError:
    """The error for a physical offset where the log has no such message."""
    where = f"{reader.segment.path}: commitLogOffset {position}"
    return ContradictedError(f"{where} does not hold the message that an index or a ConsumeQueue says")


def asked_queues(store: StoreRef, selection: Selection) -> list[Queue]:
    """The queues that can have selected messages. Where topics are named, no other directory is listed."""
    if not selection.has_each_once:
        return store.queues.of_topics(sorted(selection.only_in or ()))
    return _selected(store.queues, store.queues.without_light, selection)


def selected_queues(queues: ConsumeQueues, selection: Selection) -> list[Queue]:
    """The selected queues, also those of light topics. Where topics are named, no other directory is listed."""
    return _selected(queues, queues.of_topics, selection)


def _selected(
    queues: ConsumeQueues, of_topics: Callable[[list[str] | None], list[Queue]], selection: Selection
) -> list[Queue]:
    """The selected ones of some queues, which are asked for by their topics."""
    topics = selection.named_topics
    if topics is None:
        selection.topic.learn(queues.topics)
    some = of_topics(None if topics is None else sorted(topics))
    if selection.wants_all_queues:  # many queues are asked one by one
        return some
    return [queue for queue in some if selection.queue(queue.topic, queue.queue_id) is not None]


def unindexed_queues(store: StoreRef, selection: Selection) -> list[Queue]:
    """The queues that can have selected messages, of which no index has the keys. No directory of other queues is
    listed."""
    topics = selection.named_topics
    some = store.queues.unindexed(None if topics is None else sorted(topics))
    return [queue for queue in some if selection.queue(queue.topic, queue.queue_id) is not None]


def is_asked(queue: Queue, selection: Selection) -> bool:
    """Can a queue that has each message once, and not for a light queue, have selected messages?"""
    return selection.queue(queue.topic, queue.queue_id) is not None


def are_in(values: npt.NDArray[np.int64], numbers: Numbers) -> npt.NDArray[np.bool_]:
    """For each of the values, whether it is among the numbers."""
    within: npt.NDArray[np.bool_] = (values >= numbers.least) & (values <= numbers.most)
    return within if numbers.among is None else within & np.isin(values, list(numbers.among))


class QueueCursors:
    """Walks along queues, piece by piece.

    Attributes:
        queues: the queues; a queue's index here is its number.
    """

    def __init__(self, queues: list[Queue]) -> None:
        self.queues = queues
        self._reached: tuple[int, list[int]] | None = None  # a physical offset, and each queue's first unit from there

    def units(self, start: int, stop: int) -> list[QueueBlock]:
        """The units of each queue that point into [start, stop), as far as they ascend."""
        if self._reached is None or self._reached[0] != start:
            self._reached = start, [QueueCursor(queue).seek(start) for queue in self.queues]
        found = [queue.units(number, stop) for queue, number in zip(self.queues, self._reached[1], strict=True)]
        self._reached = stop, [number for _, number in found]
        return [units.ascending() for units, _ in found]


class QueueClaims:
    """Asks the ConsumeQueues, piece by piece.

    Args:
        selection: what is selected.
        queues: the queues of a store that can have selected messages.
    """

    def __init__(
        self, selection: Selection, queues: Callable[[StoreRef, Selection], list[Queue]] = asked_queues
    ) -> None:
        self._selection = selection
        self._queues = queues
        self._cursors: dict[StoreRef, QueueCursors] = {}
        tags = selection.tags
        # For bytes that are no UTF-8, the broker hashed the text that Java makes of them.
        can_hash = tags is not None and not any(REPLACEMENT in tag for tag in tags)
        self._tags_codes = [java_hash(tag) for tag in tags or ()] if can_hash else None

    def of(self, piece: Queued, reader: SegmentReader) -> Claims:
        """The claims of the queues on a piece.

        Raises:
            ContradictedError: the queues have changed since planning, or the log does not agree with them.
        """
        if piece.store not in self._cursors:
            self._cursors[piece.store] = QueueCursors(self._queues(piece.store, self._selection))
        cursors = self._cursors[piece.store]
        found = cursors.units(piece.start, piece.stop)
        where = piece.store.layout.queues
        if piece.expected is not None:
            positions = np.concatenate([np.empty(0, np.int64), *(units.positions for units in found)])
            if (len(positions), fingerprint(positions)) != piece.expected:
                raise ContradictedError(f"{where}: units have changed since the read was planned")
        narrow = piece.store.files.prices.linear_below
        asked = zip(cursors.queues, found, strict=True)
        claims = _merged([self._claimed(queue, units, narrow, reader, piece.ascends) for queue, units in asked])
        if not self._selection.has_each_once:  # a message's offset is that in its topic's queue
            return Claims(np.unique(claims.positions))
        if not (np.diff(claims.positions) > 0).all():
            raise ContradictedError(f"{where}: a message is in two queues")
        return claims

    def _claimed(
        self, queue: Queue, units: QueueBlock, narrow: int, reader: SegmentReader, ascends: bool
    ) -> QueueBlock:
        """The units of a queue that may point to selected messages."""
        offsets = self._selection.offsets_in(queue.topic, queue.queue_id)
        positions = self._selection.commit_log_offset
        assert offsets is not None
        keep = are_in(units.positions, positions)
        keep &= self._have_rows_in(queue, units, offsets, reader)
        if self._tags_codes is not None and queue.has_hashes_of_rows(self._selection.explodes):
            # A tags code that is no int is not a hash, but an address in consumequeue_ext/.
            is_hash = units.tags_codes == units.tags_codes.astype(np.int32)
            keep &= np.isin(units.tags_codes, self._tags_codes) | ~is_hash | queue.may_lack_hashes(units)
        kept = units if keep.all() else units.only(keep)
        return self._in_time(kept, narrow, reader) if ascends else kept

    def _have_rows_in(
        self, queue: Queue, units: QueueBlock, offsets: Numbers, reader: SegmentReader
    ) -> npt.NDArray[np.bool_]:
        """For each unit of a queue, whether its message may give a row with one of these queue offsets."""
        if offsets == ALL:
            return np.ones(len(units), np.bool_)
        needed = offsets.least if offsets.among is None else offsets.most
        spans = queue.offsets_of_rows(units, self._selection.explodes, (needed, offsets.most), reader.header)
        if spans is None:
            what = "units of batches that do not follow each other, or whose last one the log does not have"
            raise ContradictedError(f"{queue.directory}: {what}")
        firsts, lasts = spans
        within: npt.NDArray[np.bool_] = (firsts <= offsets.most) & (lasts >= offsets.least)
        if offsets.among is None:
            return within
        numbers = np.array(sorted(number for number in offsets.among if number in ALL), np.int64)
        return within & (np.searchsorted(numbers, lasts, side="right") > np.searchsorted(numbers, firsts))

    def _in_time(self, units: QueueBlock, narrow: int, reader: SegmentReader) -> QueueBlock:
        """The units without those at both ends that are too old or too new, found by binary search."""
        times = self._selection.store_timestamp
        if times == ALL or len(units.positions) < narrow:
            return units

        def timestamp(position: int) -> int:
            header = reader.header(position)
            if header is None or header.store_timestamp is None:
                raise no_message(reader, position)
            return header.store_timestamp // 1000

        positions = units.positions.tolist()
        if went_back(timestamp(positions[0]), timestamp(positions[-1])):
            return units  # the clock went back somewhere between them
        earliest, latest = widened(times.least, times.most)
        first = bisect.bisect_left(positions, earliest, key=timestamp)
        after = bisect.bisect_right(positions, latest, lo=first, key=timestamp)
        return units.only(slice(first, after))


def _merged(parts: list[QueueBlock]) -> Claims:
    """The units of several queues, ordered by position."""
    parts = parts or [QueueBlock.of(b"")]
    positions = np.concatenate([units.positions for units in parts])
    sizes = np.concatenate([units.sizes for units in parts])
    queue_offsets = np.concatenate([units.queue_offsets for units in parts])
    order = np.argsort(positions, kind="stable")
    return Claims(positions[order], sizes[order].astype(np.int32), queue_offsets[order])
