"""The log of one queue alone, whose offsets are its own: of a compaction topic, or in a tiered store.

A queue's log holds the same units as the commitlog, one after the other, and each unit's physicalOffset is its position
in this log: so each is read as a log of its own, a Snapshot, and everything that reads a log reads it. Nothing in it
says where in a commitlog a message was. All its units are live: a broker cuts no such log.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import ClassVar

from native_io import Status
from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.kept import kept
from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.live_log import LiveLog
from rmqstore_spark.store.log_end import End
from rmqstore_spark.store.snapshot import AskedOffsets, LogQueue, Snapshot
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.config import OFFSETS, OffsetsFiles
from rmqstore_spark.store.structures.consumer_offsets import ConsumerOffsets
from rmqstore_spark.store.structures.kinds import KINDS, Kind
from rmqstore_spark.store.structures.layout import Layout, SegmentFile
from rmqstore_spark.store.structures.segments import Damage, Extent, Segment
from rmqstore_spark.store.structures.written import Record

_BLOCK = 512 * 1024  # bytes
_MOST = (1 << 63) - 1


class QueueLog(Snapshot):
    """A queue's own log, as it was found.

    Large because it answers in its own way what a commitlog's store is asked.

    Args:
        layout: names the queue and the files of its log.
    """

    is_whole: ClassVar[bool] = False
    has_physical_offsets: ClassVar[bool] = False
    is_of_known_queues: ClassVar[bool] = True

    def __init__(self, layout: Layout, files: Files) -> None:
        super().__init__(layout, files)
        assert layout.queue is not None
        self.queue = layout.queue

    def kinds(self, among: Sequence[Kind] = KINDS) -> Iterator[Kind]:
        """None: a queue's own log has nothing beside it."""
        return iter(())

    @kept
    def consumed_topics(self) -> set[str]:
        """None: groups' offsets are known in the broker's own store."""
        return set()

    @kept
    def consumer_offsets(self) -> ConsumerOffsets:
        """None: groups' offsets are known in the broker's own store."""
        return ConsumerOffsets.of({})

    def offsets_in(self, topics: Collection[str] | None) -> ConsumerOffsets:
        """None: groups' offsets are known in the broker's own store."""
        return self.consumer_offsets

    @property
    def offsets_files(self) -> OffsetsFiles:
        """None is read here."""
        return OffsetsFiles(OFFSETS[0], None)

    @property
    def sound_offsets(self) -> frozenset[str]:
        """None: no file is read here."""
        return frozenset()

    def refuse_unread_offsets(self, topics: Collection[str] | None = None) -> None:
        """None are read here."""

    def may_be_copy_of(self, other: Snapshot) -> bool:
        """Are two logs of the same queue?"""
        return super().may_be_copy_of(other) and self.layout.queue == other.layout.queue

    def may_have(self, asked: AskedOffsets) -> bool:
        """Is the queue asked for?"""
        return asked(*self.queue) is not None

    def may_hold(self, starts: Sequence[int], asked: AskedOffsets) -> list[bool]:
        """Which parts may hold these offsets, which ascend along the log: by the first message of each part."""
        span = asked(*self.queue)
        if span is None or (span[0] <= 0 and span[1] >= _MOST):
            return [span is not None] * len(starts)
        least, most = span
        firsts = list(map(self._number_at, starts))
        return [
            (first is None or first <= most) and (after is None or after > least)
            for first, after in zip(firsts, [*firsts[1:], None], strict=False)
        ]

    def _number_at(self, position: int) -> int | None:
        """The queue offset of the message at a physical offset, if all later ones have higher queue offsets."""
        header = self.log.header(position)
        return None if header is None else header.queue_offset

    def queues_of_log(self) -> list[LogQueue]:
        """The queue that this log is of."""
        first, last = self.ends() or (None, None)
        end = 0 if last is None else self.number_after(last.position) or last.queue_offset + 1
        return [LogQueue(*self.queue, first, last, end)]

    def ends(self) -> tuple[Header, Header] | None:
        """The messages with the lowest and the highest queue offset; None where there is none."""
        first = last = None
        for extent in self.log.extents:
            with self.reader(extent.segment) as reader:
                at = reader.find(extent.start, extent.stop)
                first = None if at is None else reader.header(at)
            if first is not None:
                break
        last = self.last_message
        for extent in reversed(self.log.extents if last is None else ()):
            with self.reader(extent.segment) as reader:
                _, last = units_end(reader, extent.start, is_last=True)
            if last is not None:
                break
        return None if first is None or last is None else (first, last)

    @kept
    def _segments_of(self) -> tuple[list[Segment], list[Damage]]:
        segments: list[Segment] = []
        for file in self.layout.segments:
            if segments and file.start < segments[-1].start + segments[-1].size:
                raise DamagedStoreError(
                    f"{file.path}: begins at position {file.start} of its log, but {segments[-1].path} reaches to "
                    f"{segments[-1].start + segments[-1].size}: these files are not of one log; restore them from a "
                    "backup"
                )
            segments.append(self._segment(file))
        return segments, self._missing()

    def _missing(self) -> list[Damage]:
        """What is missing between the files and after them."""
        return []

    def _segment(self, file: SegmentFile) -> Segment:
        return Segment(file.path, file.start, file.start + file.size, file.size, file.pin, of_queue=True)

    @kept
    def written(self) -> Record:
        """Nothing: only brokers write queues' logs."""
        return Record()

    @kept
    def _found(self) -> tuple[list[Extent], Header | None]:
        """The parts of the segments that hold units, and the last message, if known."""
        ends = [(segment, *self._stop(segment)) for segment in self.segments]
        used = [(Extent(segment, segment.start, stop), last) for segment, stop, last in ends if stop > segment.start]
        return [extent for extent, _ in used], used[-1][1] if used else None

    @kept
    def _end(self) -> End:
        extents, last = self._found
        return End(extents[-1].stop if extents else 0, self.segments, last)

    @kept
    def log(self) -> LiveLog:
        """The log, up to its last unit."""
        return LiveLog(self._found[0], self._end.timestamp, self.queues, self.reader)

    def _stop(self, segment: Segment) -> tuple[int, Header | None]:
        """Where the units of a segment end, and the last of them, if known."""
        with self.reader(segment) as reader:
            return units_end(reader, segment.start, is_last=segment is self.segments[-1])


def units_end(reader: SegmentReader, start: int, is_last: bool) -> tuple[int, Header | None]:
    """Where the units of a segment of a queue's log end, and the last of them. Damage with units after it is before
    that end. What follows the last unit of a log is not part of it: a broker that is killed may leave half a unit,
    which a broker that starts drops. In an earlier segment only zeros may follow, or a blank; other bytes are damage.

    Args:
        start: where a unit begins.
    """
    at, last = start, None
    while True:
        position, walked = reader.walk(at, reader.file_end)
        last, at = position if position is not None else last, walked.at
        if walked.status in (Status.LIMIT, Status.BLANK):
            break
        data_end = _data_end(reader, at)
        over = None if last is None else reader.find(last + 1, at)  # half a message may reach over where one begins
        if over is not None:
            last, at = None, over
            continue
        found = reader.find(at + 1, data_end)
        if found is None:
            at = at if is_last else max(at, data_end)
            break
        at = found
    return at, None if last is None else reader.header(last)


def _data_end(reader: SegmentReader, start: int) -> int:
    """The offset after the last byte from `start` on that is not zero; `start` where all are."""
    end = min(reader.data_end(), reader.file_end)
    while start < end:
        begin = max(start, end - _BLOCK)
        used = len(reader.read(begin, end - begin).rstrip(b"\0"))
        if used:
            return begin + used
        end = begin
    return start
