"""What the log says of a queue's unit: whether its message is there, damaged, expired, or another one stands there.

A queue is [expired ..., of the live log ..., left over ...]: physical offsets ascend within the live part, and the
units after the live part are left over from a truncation. A damaged message keeps its place: its unit belongs to the
live part, too, if the unit points into a damaged stretch. Where the message itself does not show that, the segment is
read as any reader does, from a place where a unit surely begins.
"""

import bisect
import functools
import logging
from array import array
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from native_io import Dispatcher, Filter, UnitKind
from rmqstore_spark.store.evidence import Evidence
from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.format.queue_block import QueueBlock, QueueUnit
from rmqstore_spark.store.message_headers import headers_of
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.many_headers import Place
from rmqstore_spark.store.structures.segments import Damage, Extent

log = logging.getLogger(__name__)

_WALKS_AT_ONCE = 16  # along segments: each has some megabytes in memory


class UnitEvidence:
    """Looks units up in the log of a store, and keeps the answers."""

    def __init__(self, store: Snapshot) -> None:
        self._store = store
        self._headers: dict[int, Header | None] = {}
        self._live_ends: dict[int, int] = {}  # as far as known, by where the segment starts
        self._surveys: dict[int, _Survey] = {}  # by where the segment starts
        self.begin = store.log.extents[0].start if store.log.extents else store.end

    def look_up(self, places: Iterable[Place]) -> None:
        """Look up the messages that are said to be at these places, in the order of the log."""
        self._headers.update(headers_of(self._store, places))

    def learn(self, headers: Iterable[tuple[int, Header | None]]) -> None:
        """Keep what the log has at some physical offsets."""
        self._headers.update(headers)

    def expect(self, positions: npt.NDArray[np.int64]) -> None:
        """are_surely_live() is asked next of units at these physical offsets, after other questions about them: ask
        for the beginnings of the segments that follow theirs."""
        files, extents = self._store.files, self._store.log.extents
        if files.is_slow:
            after = np.unique(np.searchsorted([each.start for each in extents], positions, "right"))
            followed = (extents[index] for index in after.tolist() if index < len(extents))
            files.prefetch((each.segment.path, each.start - each.segment.start) for each in followed)

    def are_surely_live(self, positions: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of these units of the log are live, as far as a fact about a whole segment answers."""
        found = np.zeros(len(positions), np.bool_)
        live = self._store.log
        of_extents = [(each, (positions >= each.start) & (positions < each.stop)) for each in live.extents]
        asked = [(extent, here) for extent, here in of_extents if here.any()]
        ends = self._store.files.schedule.mapped(live.live_end, [extent for extent, _ in asked])
        for (extent, here), live_end in zip(asked, ends, strict=True):
            self._live_ends[extent.start] = live_end
            found |= here & (positions + sizes <= min(live_end, extent.stop))
        return found

    def prove(self, positions: npt.NDArray[np.int64]) -> None:
        """Messages at these physical offsets, ascending, are asked for one by one next. Where requests take long, the
        last one of each segment is proved live before, side by side: that answers for those before it. Where nothing
        but a walk along the segment proves it, it is walked along, as each message by itself would have it."""
        live, files = self._store.log, self._store.files
        if files.is_slow:
            stops = np.searchsorted(positions, [extent.stop for extent in live.extents])
            last: list[int] = positions[stops[np.diff(stops, prepend=0) > 0] - 1].tolist()
            found = files.schedule.mapped(live.liveness, last)
            unsure = [at for at, each in zip(last, found, strict=True) if each is Evidence.UNSURE]
            walk = functools.partial(live.liveness, may_walk_far=True)
            for first in range(0, len(unsure), _WALKS_AT_ONCE):
                files.schedule.mapped(walk, unsure[first : first + _WALKS_AT_ONCE])

    def forget(self) -> None:
        """Free the memory of the messages that were looked up."""
        self._headers.clear()

    def message(self, queue: Queue, unit: QueueUnit) -> Header | None:
        """The live message that a queue has this unit for; None where the log has no such message."""
        if not unit.is_message:
            return None
        header = self._header(unit.position)
        if header is None or not self._is_of(header, queue, unit) or not self._is_live(header):
            return None
        return header

    def settled(self, queue: Queue, unit: QueueUnit) -> QueueUnit:
        """A unit whose message is live, with as many messages as the log has there."""
        count = unit.messages if queue.is_by_offset else self._messages_at(queue, unit.position)
        if count in (0, unit.messages):
            return unit
        log.warning(
            "%s: expected %d messages in the unit of queueOffset %d, as the log has, found %d; the log's number "
            "counts, and rmqstore_spark.rebuild(store) makes the queue anew",
            queue.directory,
            count,
            unit.queue_offset,
            unit.messages,
        )
        return unit._replace(messages=count)

    def _messages_at(self, queue: Queue, position: int) -> int:
        """The number of messages that a broker counts in a unit of the log, by its properties; 0 where it cannot."""
        extent, dispatcher = self._store.log.extent_at(position), Dispatcher(batch_topics=[queue.topic])
        if extent is not None:
            with self._store.reader(extent.segment) as reader:
                reader.feed_one(position, dispatcher)
        units = QueueBlock.of(dispatcher.finish().units.data, is_batch=True)
        return int(units.messages[0]) if len(units) and units.are_messages[0] else 0

    def of(self, queue: Queue, unit: QueueUnit | None, known: int | None = None) -> Evidence:
        """What the log says of a unit.

        Args:
            known: a physical offset before the unit's, at which a live unit begins.
        """
        if unit is None or unit.kind is UnitKind.NOTHING:
            return Evidence.ABSENT
        if unit.kind is UnitKind.PRE_BLANK or unit.position < self.begin:
            return Evidence.EXPIRED
        if unit.position >= self._store.end:
            return Evidence.LEFT_OVER
        if unit.kind is UnitKind.LOST:
            return Evidence.DAMAGED
        if self.message(queue, unit) is not None:
            return Evidence.LIVE
        header = self._header(unit.position)
        if header is not None and self._is_live(header):
            # A queueOffset has no checksum.
            is_mine = (header.topic, header.queue_id, header.size) == (queue.topic, queue.queue_id, unit.size)
            return Evidence.DAMAGED if is_mine and header.is_queued else Evidence.LEFT_OVER
        extent = self._store.log.extent_at(unit.position)
        if extent is None:  # its segment is missing
            return Evidence.DAMAGED
        is_damaged = self._survey(extent, unit.position, known).is_damaged(unit.position, unit.size)
        return Evidence.DAMAGED if is_damaged else Evidence.LEFT_OVER

    def _header(self, position: int) -> Header | None:
        if position not in self._headers:
            self._headers[position] = self._store.log.header(position)
        return self._headers[position]

    def _is_of(self, header: Header, queue: Queue, unit: QueueUnit) -> bool:
        if header.size != unit.size:
            return False
        return header.is_queued and self._store.log.is_in(header, queue, unit.queue_offset)

    def _is_live(self, header: Header) -> bool:
        log, end = self._store.log, header.position + header.size
        extent = log.extent_at(header.position)
        if extent is None or end > extent.stop:
            return False
        # A fact about a whole segment answers for all queues. What is live stays live.
        if end <= self._live_ends.get(extent.start, -1):
            return True
        self._live_ends[extent.start] = live_end = log.live_end(extent)
        if end <= live_end or log.liveness(header.position, header.size, may_walk_far=True) is Evidence.LIVE:
            return True
        return self._survey(extent, header.position, None).has(header.position)  # a walk does not get past damage

    def _survey(self, extent: Extent, position: int, known: int | None) -> "_Survey":
        """The survey of the segment that a physical offset is in, from that offset or an earlier one on."""
        survey = self._surveys.get(extent.start)
        if survey is None or position < survey.start:
            is_near = survey is None and known is not None and extent.start <= known <= position
            start = known if is_near and known is not None else extent.start
            survey = self._surveys[extent.start] = _Survey(self._store, extent, start)
        return survey


class _Survey:
    """Where messages and damage are in a segment, as a reader meets them: 8 bytes a message, 16 a damage, of which a
    segment may have hundreds of thousands.

    Args:
        start: the physical offset of a live unit.
    """

    def __init__(self, store: Snapshot, extent: Extent, start: int) -> None:
        self.start = start
        self._starts = array("q")
        self._damage_starts, self._damage_stops = array("q"), array("q")
        with store.reader(extent.segment, verify_crc=True) as reader:
            for found in store.past_damage(reader).select(start, extent.stop, Filter()):
                if isinstance(found, Damage):
                    self._damage_starts.append(found.start)
                    self._damage_stops.append(found.stop)
                else:
                    self._starts.extend(found.positions.tolist())

    def has(self, position: int) -> bool:
        """Does a whole message begin at a physical offset?"""
        index = bisect.bisect_left(self._starts, position)
        return index < len(self._starts) and self._starts[index] == position

    def is_damaged(self, position: int, size: int) -> bool:
        """Can a message of that size have stood at a physical offset, inside a damaged stretch?"""
        index = bisect.bisect_right(self._damage_starts, position) - 1
        return index >= 0 and position + size <= self._damage_stops[index]
