"""The log for questions about single units, asked by parts that read something else."""

import os
from collections.abc import Iterator

from native_io import Dispatcher, Filter
from rmqstore_spark.kept import kept
from rmqstore_spark.read.pieces.task import Range
from rmqstore_spark.read.plan.split import SplitPoints
from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.format.queue_block import QueueUnit
from rmqstore_spark.store.format.units import Run
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.queue_members import Members, Offsets, members_of
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.layout import queue_path
from rmqstore_spark.store.structures.segments import Damage, Extent
from rmqstore_spark.tables.check.damaged import Damaged
from rmqstore_spark.tables.check.moment import Moment, first_segment

_WINDOW = 16 << 20  # bytes of the log that are searched for damage at once
_FAR = 1 << 30  # bytes of the log that are searched for messages that may be missing


class LogView:
    """A store's log. Nothing is read before it is asked for, and bodies are never read.

    Args:
        root: the store directory.
        commitlogs: the directories that its commitlog has files in.
        files: reaches files, and counts requests and bytes.
        moment: when the check began.
    """

    def __init__(self, root: str, commitlogs: list[str], files: Files, moment: Moment) -> None:
        self._where = root, files, commitlogs
        self.moment = moment
        self._split_points = SplitPoints()
        self._damaged: dict[int, Damaged] = {}  # around each window of the log that was asked for, by its start
        self._read: dict[tuple[int, int], Damaged] = {}  # in each part of the log that was read: of several windows

    @kept
    def store(self) -> Snapshot:
        """The store, with a log that ends where it ended at that moment."""
        return Snapshot.find(*self._where, end=self.moment.end)

    @kept
    def start(self) -> int:
        """The first physical offset that had not expired when it was first asked for."""
        extents = self.store.log.extents
        return extents[0].start if extents else self.store.end

    def start_now(self) -> int:
        """The first physical offset that has not expired by now."""
        _, files, commitlogs = self._where
        return first_segment(commitlogs, files)

    @property
    def end(self) -> int:
        """The physical offset at which the log ended."""
        return self.moment.end

    def header(self, position: int) -> Header | None:
        """The header of the unit at a physical offset; None if there is no unit. After the log's end there is none,
        whatever a truncation has left there."""
        extent = self.store.log.extent_at(position)
        if extent is None:
            return None
        with self.store.reader(extent.segment) as reader:
            header = reader.header(position)
        return header if header is not None and position + header.size <= self.end else None

    def is_of(self, queue: Queue, queue_offset: int, unit: QueueUnit) -> bool:
        """Is the message at a unit's physical offset that of this queue and offset?"""
        header = self.header(unit.position)
        if header is None or not queue.may_be_of(unit, header):
            return False
        return header.is_queued and self.store.log.is_in(header, queue, queue_offset)

    def is_lost(self, position: int) -> bool:
        """Is there damage at a physical offset, or a gap between segments?"""
        extent = self.store.log.extent_at(position)
        if extent is None:
            return self.start <= position < self.end
        start = extent.start + (position - extent.start) // _WINDOW * _WINDOW
        if start not in self._damaged:
            whole = Range(extent.segment, extent.start, extent.stop, self.store)
            part = self._split_points.around(whole, start, min(start + _WINDOW, extent.stop) - 1)
            self._damaged[start] = self._damaged_in(part)
        return position in self._damaged[start]

    def _damaged_in(self, part: Range) -> Damaged:
        """The damage in a part of the log that begins and ends where units do."""
        if (part.start, part.stop) not in self._read:
            damaged = self._read[part.start, part.stop] = Damaged()
            with self.store.reader(part.segment) as reader:
                for found in self.store.past_damage(reader).select(part.start, part.stop, _nothing()):
                    if isinstance(found, Damage):
                        damaged.add(found.start, found.stop)
        return self._read[part.start, part.stop]

    def present(self, wanted: Offsets, start: int, stop: int) -> Offsets:
        """The wanted messages that are in the last gibibyte of a part of the log, which begins with the segment of
        `start`."""
        found: Offsets = {}
        ways = members_of(wanted)
        for extent in self.store.log.extents if ways else ():
            if extent.stop <= max(start, stop - _FAR) or extent.start >= stop:
                continue
            for name, offset in self._places_in(extent, ways):
                if offset in wanted.get(name, ()):
                    found.setdefault(name, set()).add(offset)
        return found

    def _places_in(self, extent: Extent, ways: list[Members]) -> Iterator[tuple[tuple[str, int], int]]:
        """The queues that messages are in, each with a message's offset there."""
        return (place for way in ways for run in self._runs_in(extent, way.chosen) for place in way.places(run))

    def has_key(self, position: int, key_hash: int) -> bool:
        """Is there a message with an index key of this hash at a physical offset?"""
        extent = self.store.log.extent_at(position)
        if extent is None:
            return False
        dispatcher = Dispatcher(index_tags=True)
        with self.store.reader(extent.segment) as reader:
            reader.feed_one(position, dispatcher)
        return key_hash in dispatcher.finish().key_hash

    def queued(self) -> Iterator[Header]:
        """The messages that belong in a queue."""
        headers = (header for run in self._runs(Filter()) for header in run.headers())
        return filter(_is_queued, headers)

    def has_time_from(self, timestamp: int) -> bool:
        """Has the log a message that was stored at a time (ms) or later? Store times need not ascend."""
        return any(True for _ in self._runs(Filter(store_timestamp=(timestamp, (1 << 63) - 1))))

    def _runs(self, chosen: Filter) -> Iterator[Run]:
        for extent in self.store.log.extents:
            yield from self._runs_in(extent, chosen)

    def _runs_in(self, extent: Extent, chosen: Filter) -> Iterator[Run]:
        with self.store.reader(extent.segment) as reader:
            for run in self.store.past_damage(reader).select(extent.start, extent.stop, chosen):
                if isinstance(run, Run):
                    yield run


def commitlogs_of(store: Snapshot) -> list[str]:
    """The directories that a store's commitlog has files in: none where it is empty."""
    return list(dict.fromkeys(os.path.dirname(segment.path) for segment in store.layout.segments))


def _is_queued(header: Header) -> bool:
    return header.is_queued and queue_path(header.topic, header.queue_id) is not None


def _nothing() -> Filter:
    return Filter(judge=lambda topic, queue_id: None)
