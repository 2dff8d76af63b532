"""The wanted messages of a piece of the log, found the way that the planner chose.

Whatever an accelerator says, each message is checked on the log. Where the log says otherwise, the accelerator is not
believed for the whole piece: then it is read from end to end, and what was given already is left out.
"""

import bisect
import logging
from collections.abc import Iterator

import numpy as np

from native_io import Filter, java_hash
from rmqstore_spark.read.clock import CLOCK_SLACK
from rmqstore_spark.read.task import Home, Indexed, Queued, Range, Scan
from rmqstore_spark.selection import ALL, EVERYTHING, REPLACEMENT, Numbers, Selection
from rmqstore_spark.store.commitlog import Claims, Damage, Positions, Run, SegmentReader, headers
from rmqstore_spark.store.consumequeue import ConsumeQueues, Queue, QueueUnits
from rmqstore_spark.store.decode import BatchBuilder
from rmqstore_spark.store.files import Files
from rmqstore_spark.store.message import SCHEDULE_TOPIC
from rmqstore_spark.store.queue_coverage import Coverage, QueueCursors

log = logging.getLogger(__name__)

_WORTH_NARROWING = 64  # fewer units of a queue are looked at one by one
_TIMES = Numbers(-((1 << 63) // 1000), ((1 << 63) - 1) // 1000)  # milliseconds that fit an Arrow timestamp[us]


class _ContradictedError(Exception):
    """The log has something else where an accelerator says that a message is."""


class WantedUnits:
    """Finds wanted units, piece by piece.

    Args:
        selection: which ones.
        verify_crc: whether the bodyCRC of a wanted one must be right.
        files: how to reach files, and where requests and bytes are counted.
    """

    def __init__(self, selection: Selection, verify_crc: bool, files: Files) -> None:
        self._selection = selection
        self._verify_crc = verify_crc
        self._files = files
        self._filter = kernel_filter(selection)
        self._checked = BatchBuilder(selection.checked_columns) if selection.checked_columns else None
        self._cursors: dict[Home, QueueCursors] = {}
        self._believed: set[tuple[QueueCursors, int]] = set()
        self._all_units = kernel_filter(EVERYTHING)
        tags = selection.tags
        # The broker hashed what Java makes of bytes that are no UTF-8.
        can_hash = tags is not None and not any(REPLACEMENT in tag for tag in tags)
        self._tags_codes = [java_hash(tag) for tag in tags or ()] if can_hash else None

    def read(self, piece: Range) -> Iterator[Run | Damage]:
        """The wanted units of a piece, run by run, and the damage that is met while they are looked for."""
        queues = ConsumeQueues(piece.home.consumequeue, self._files)
        with SegmentReader(piece.segment, self._verify_crc, queues, self._files) as reader:
            given: list[Positions] = []
            try:
                for run in self._by_accelerator(piece, reader):
                    given.append(run.positions.copy())
                    yield run
                if not isinstance(piece, Scan):
                    return
            except _ContradictedError as why:
                log.warning("%s; reading %d bytes of the commitlog instead", why, piece.stop - piece.start)
            for found in self._scanned(piece, reader):
                if given and isinstance(found, Run):
                    yield found.only(~np.isin(found.positions, np.concatenate(given)))
                else:
                    yield found

    def _by_accelerator(self, piece: Range, reader: SegmentReader) -> Iterator[Run]:
        match piece:
            case Queued():
                return self._by_queues(piece, reader)
            case Indexed():
                return self._by_index(piece, reader)
        return iter(())

    def _scanned(self, piece: Range, reader: SegmentReader) -> Iterator[Run | Damage]:
        for found in reader.select(piece.start, piece.stop, self._filter, self._selection.commit_log_offset.most):
            yield found if isinstance(found, Damage) else self._checked_run(found)

    def _checked_run(self, run: Run) -> Run:
        """Of units that the kernel wants those that are wanted."""
        if self._checked is None:
            return run
        run.add_to(self._checked)
        return run.only(self._selection.mask(self._checked.finish()).to_numpy(zero_copy_only=False))

    def _picked(self, reader: SegmentReader, claims: Claims) -> Iterator[Run]:
        first = 0
        while first < len(claims):
            run, first, hold = reader.pick(claims, first, self._filter)
            if run is not None:
                yield self._checked_run(run)
            if not hold:
                raise _no_message(reader, int(claims.positions[first]))

    def _by_queues(self, piece: Queued, reader: SegmentReader) -> Iterator[Run]:
        cursors = self._cursors_of(piece.home)
        wanted = {number for number, queue in enumerate(cursors.queues) if self._offsets(queue) is not None}
        coverage = cursors.cover(piece.start, piece.stop, wanted)
        if coverage is None:
            raise _ContradictedError(f"{piece.home.consumequeue}: units contradict each other")
        self._believe(cursors, coverage, reader)
        claims = _merged([self._claimed(cursors.queues[i], units, reader) for i, units in coverage.units.items()])
        if not (np.diff(claims.positions) > 0).all():
            raise _ContradictedError(f"{piece.home.consumequeue}: a message is in two queues")
        live = piece.live_end
        gaps = [(start, min(stop, live)) for start, stop in coverage.gaps if start < live]
        first = 0
        for start, stop in [*gaps, (live, piece.stop)]:
            behind = int(np.searchsorted(claims.positions, start))
            yield from self._picked(reader, claims.part(first, behind))
            first = behind
            yield from self._between(start, stop, reader)

    def _by_index(self, piece: Indexed, reader: SegmentReader) -> Iterator[Run]:
        yield from self._picked(reader, Claims(piece.positions[piece.positions < piece.live_end]))
        yield from self._between(piece.live_end, piece.stop, reader)

    def _between(self, start: int, stop: int, reader: SegmentReader) -> Iterator[Run]:
        """The wanted units of what no accelerator knows."""
        for found in reader.select(start, stop, self._filter, self._selection.commit_log_offset.most):
            if isinstance(found, Damage):
                raise _ContradictedError(str(found))
            yield self._checked_run(found)

    def _cursors_of(self, home: Home) -> QueueCursors:
        if home not in self._cursors:
            queues = ConsumeQueues(home.consumequeue, self._files, home.batchconsumequeue)
            self._cursors[home] = QueueCursors(queues.with_batch)
            self._selection.topic.learn({queue.topic for queue in self._cursors[home].queues if not queue.is_lmq})
        return self._cursors[home]

    def _believe(self, cursors: QueueCursors, coverage: Coverage, reader: SegmentReader) -> None:
        """Look at one unit of each queue that is new here: directories may have been mixed up, and then what is known
        of a wanted queue stands under another name."""
        new = [number for number in coverage.firsts if (cursors, number) not in self._believed]
        claims = _merged([coverage.firsts[number] for number in new])
        found: dict[int, tuple[str, int, int]] = {}
        first = 0
        while first < len(claims):
            run, first, hold = reader.pick(claims, first, self._all_units)
            for header in headers(run) if run is not None else ():
                found[header.position] = header.topic, header.queue_id, header.queue_offset
            if not hold:
                raise _no_message(reader, int(claims.positions[first]))
        for number in new:
            queue, unit = cursors.queues[number], coverage.firsts[number]
            position = int(unit.positions[0])
            if found[position] != (queue.topic, queue.queue_id, int(unit.queue_offsets[0])):
                raise _no_message(reader, position)
            self._believed.add((cursors, number))

    def _offsets(self, queue: Queue) -> Numbers | None:
        return None if queue.is_lmq else self._selection.queue(queue.topic, queue.queue_id)

    def _claimed(self, queue: Queue, units: QueueUnits, reader: SegmentReader) -> QueueUnits:
        """The units of a queue that may point to wanted messages."""
        offsets, places = self._offsets(queue), self._selection.commit_log_offset
        assert offsets is not None
        keep = (units.queue_offsets >= offsets.least) & (units.queue_offsets <= offsets.most)
        keep &= (units.positions >= places.least) & (units.positions <= places.most)
        if self._tags_codes is not None and queue.topic != SCHEDULE_TOPIC:
            # What is no int is no hash, but an address in consumequeue_ext/.
            is_hash = units.tags_codes == units.tags_codes.astype(np.int32)
            keep &= np.isin(units.tags_codes, self._tags_codes) | ~is_hash
        return self._in_time(units.only(keep), reader)

    def _in_time(self, units: QueueUnits, reader: SegmentReader) -> QueueUnits:
        """Without those at both ends that are too old or too new, found by binary search."""
        wanted = self._selection.store_timestamp
        if wanted == ALL or len(units.positions) < _WORTH_NARROWING:
            return units

        def timestamp(position: int) -> int:
            header = reader.header(position)
            if header is None or header.store_timestamp is None:
                raise _no_message(reader, position)
            return header.store_timestamp // 1000

        positions = units.positions.tolist()
        if timestamp(positions[-1]) < timestamp(positions[0]) - CLOCK_SLACK:
            return units  # the clock went back somewhere between them
        first = bisect.bisect_left(positions, wanted.least - CLOCK_SLACK, key=timestamp)
        behind = bisect.bisect_right(positions, wanted.most + CLOCK_SLACK, lo=first, key=timestamp)
        return units.only(slice(first, behind))


def kernel_filter(selection: Selection) -> Filter:
    """The part of a selection that the kernel can test."""

    def judge(topic: bytes, queue_id: int) -> tuple[int, int] | None:
        wanted = selection.queue(topic.decode("utf-8", "replace"), queue_id)
        return None if wanted is None else (wanted.least, wanted.most)

    times = selection.store_timestamp
    if times != ALL:  # a time that does not fit the column is null there, and null is in no range
        times = times & _TIMES
    return Filter(
        store_timestamp=(times.least, times.most),
        commit_log_offset=(selection.commit_log_offset.least, selection.commit_log_offset.most),
        judge=None if selection.wants_all_queues else judge,
    )


def _no_message(reader: SegmentReader, position: int) -> _ContradictedError:
    where = f"{reader.segment.path}: commitLogOffset {position}"
    return _ContradictedError(f"{where} does not hold the message that an index or a ConsumeQueue says")


def _merged(parts: list[QueueUnits]) -> Claims:
    """The units of several queues by position."""
    if not parts:
        return Claims(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))
    positions = np.concatenate([units.positions for units in parts])
    order = np.argsort(positions, kind="stable")
    sizes = np.concatenate([units.sizes for units in parts])
    queue_offsets = np.concatenate([units.queue_offsets for units in parts])
    return Claims(positions[order], sizes[order], queue_offsets[order])
