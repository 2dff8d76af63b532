"""What the ConsumeQueues claim of a piece of the log: where selected messages can be, and what no queue knows."""

import bisect

import numpy as np

from native_io import java_hash
from rmqstore_spark.read.clock import went_back, widened
from rmqstore_spark.read.kernel_filter import kernel_filter
from rmqstore_spark.read.task import Queued
from rmqstore_spark.selection import ALL, EVERYTHING, REPLACEMENT, Numbers, Selection
from rmqstore_spark.store.commitlog import SegmentReader
from rmqstore_spark.store.consumequeue import Queue, QueueUnits
from rmqstore_spark.store.message import SCHEDULE_TOPIC
from rmqstore_spark.store.opened import OpenStore
from rmqstore_spark.store.queue_coverage import Coverage, QueueCursors
from rmqstore_spark.store.units import Claims


class ContradictedError(Exception):
    """The log has something else where an accelerator says that a message is."""


def no_message(reader: SegmentReader, position: int) -> ContradictedError:
    """The error for a physical offset where the log has no such message."""
    where = f"{reader.segment.path}: commitLogOffset {position}"
    return ContradictedError(f"{where} does not hold the message that an index or a ConsumeQueue says")


class QueueClaims:
    """Asks the ConsumeQueues, piece by piece.

    Args:
        selection: what is selected.
    """

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._cursors: dict[OpenStore, QueueCursors] = {}
        self._believed: set[tuple[QueueCursors, int]] = set()
        self._all_units = kernel_filter(EVERYTHING)
        tags = selection.tags
        # The broker hashed what Java makes of bytes that are no UTF-8.
        can_hash = tags is not None and not any(REPLACEMENT in tag for tag in tags)
        self._tags_codes = [java_hash(tag) for tag in tags or ()] if can_hash else None

    def of(self, piece: Queued, reader: SegmentReader) -> tuple[Claims, list[tuple[int, int]]]:
        """What they claim of a piece, and the parts that are to be read in the log itself, in its order; the last part
        is at the piece's end.

        Raises:
            ContradictedError: the queues contradict each other, or the log does not agree with them.
        """
        cursors = self._cursors_of(piece.store)
        asked = {number for number, queue in enumerate(cursors.queues) if self._offsets(queue) is not None}
        coverage = cursors.cover(piece.start, piece.stop, asked)
        if coverage is None:
            raise ContradictedError(f"{piece.store.layout.consumequeue}: units contradict each other")
        self._believe(cursors, coverage, reader)
        narrow = piece.store.files.prices.narrow
        claimed = (self._claimed(cursors.queues[i], units, narrow, reader) for i, units in coverage.units.items())
        claims = _merged(list(claimed))
        if not (np.diff(claims.positions) > 0).all():
            raise ContradictedError(f"{piece.store.layout.consumequeue}: a message is in two queues")
        live = piece.live_end
        gaps = [(start, min(stop, live)) for start, stop in coverage.gaps if start < live]
        return claims, [*gaps, (live, piece.stop)]

    def _cursors_of(self, store: OpenStore) -> QueueCursors:
        if store not in self._cursors:
            self._cursors[store] = QueueCursors(store.queues.with_batch)
            self._selection.topic.learn({queue.topic for queue in self._cursors[store].queues if not queue.is_lmq})
        return self._cursors[store]

    def _believe(self, cursors: QueueCursors, coverage: Coverage, reader: SegmentReader) -> None:
        """Look at one unit of each queue that is new here: directories may have been mixed up, and then what is known
        of a selected queue stands under another name."""
        new = [number for number in coverage.firsts if (cursors, number) not in self._believed]
        claims = _merged([coverage.firsts[number] for number in new])
        found: dict[int, tuple[str, int, int]] = {}
        first = 0
        while first < len(claims):
            run, first, hold = reader.pick(claims, first, self._all_units)
            for header in run.headers() if run is not None else ():
                found[header.position] = header.topic, header.queue_id, header.queue_offset
            if not hold:
                raise no_message(reader, int(claims.positions[first]))
        for number in new:
            queue, unit = cursors.queues[number], coverage.firsts[number]
            position = int(unit.positions[0])
            if found[position] != (queue.topic, queue.queue_id, int(unit.queue_offsets[0])):
                raise no_message(reader, position)
            self._believed.add((cursors, number))

    def _offsets(self, queue: Queue) -> Numbers | None:
        return None if queue.is_lmq else self._selection.queue(queue.topic, queue.queue_id)

    def _claimed(self, queue: Queue, units: QueueUnits, narrow: int, reader: SegmentReader) -> QueueUnits:
        """The units of a queue that may point to selected messages."""
        offsets, positions = self._offsets(queue), self._selection.commit_log_offset
        assert offsets is not None
        keep = (units.queue_offsets >= offsets.least) & (units.queue_offsets <= offsets.most)
        keep &= (units.positions >= positions.least) & (units.positions <= positions.most)
        if self._tags_codes is not None and queue.topic != SCHEDULE_TOPIC:
            # What is no int is no hash, but an address in consumequeue_ext/.
            is_hash = units.tags_codes == units.tags_codes.astype(np.int32)
            keep &= np.isin(units.tags_codes, self._tags_codes) | ~is_hash
        return self._in_time(units.only(keep), narrow, reader)

    def _in_time(self, units: QueueUnits, narrow: int, reader: SegmentReader) -> QueueUnits:
        """Without those at both ends that are too old or too new, found by binary search."""
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


def _merged(parts: list[QueueUnits]) -> Claims:
    """The units of several queues by position."""
    if not parts:
        return Claims(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))
    positions = np.concatenate([units.positions for units in parts])
    order = np.argsort(positions, kind="stable")
    sizes = np.concatenate([units.sizes for units in parts])
    queue_offsets = np.concatenate([units.queue_offsets for units in parts])
    return Claims(positions[order], sizes[order], queue_offsets[order])
