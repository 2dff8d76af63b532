"""The log of one queue alone, whose offsets are its own: of a compaction topic, or in a tiered store.

A queue's log holds the same units as the commitlog, one after the other, and each unit's physicalOffset is its position
in this log: so each is read as a log of its own, a Snapshot, and everything that reads a log reads it. Nothing in it
says where in a commitlog a message was. All its units are live: a broker cuts no such log.
"""

from collections.abc import Iterator

from native_io import Status
from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.kept import kept
from rmqstore_spark.store.format.message import Header
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.live_log import LiveLog
from rmqstore_spark.store.log_end import End
from rmqstore_spark.store.snapshot import Snapshot, StoreRef
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.compaction import compaction_logs
from rmqstore_spark.store.structures.layout import Layout, SegmentFile
from rmqstore_spark.store.structures.segments import Damage, Extent, Segment
from rmqstore_spark.store.structures.written import Record

_BLOCK = 512 * 1024  # bytes


class QueueLog(Snapshot):
    """A queue's own log, as it was found. This is that of a compaction topic: its files have their full size from the
    start, and between them names may be missing.

    Args:
        layout: names the queue and the files of its log.
    """

    def __init__(self, layout: Layout, files: Files) -> None:
        super().__init__(layout, files)
        assert layout.queue is not None
        self.queue = layout.queue

    @kept
    def _segments_of(self) -> tuple[list[Segment], list[Damage]]:
        segments: list[Segment] = []
        for file in self.layout.segments:
            if segments and file.start < segments[-1].end:
                raise DamagedStoreError(
                    f"{file.path}: begins at position {file.start} of its log, but {segments[-1].path} reaches to "
                    f"{segments[-1].end}: these files are not of one log; restore them from a backup"
                )
            segments.append(self._segment(file))
        return segments, []

    def _segment(self, file: SegmentFile) -> Segment:
        return Segment(file.path, file.start, file.start + file.size, file.size, file.pin, of_queue=True)

    @kept
    def written(self) -> Record:
        """Nothing: only brokers write queues' logs."""
        return Record()

    @kept
    def _found(self) -> tuple[list[Extent], Header | None]:
        """The parts of the segments that hold units, and the last message, if known."""
        extents: list[Extent] = []
        last = None
        for segment in self.segments:
            stop, found = self._stop(segment)
            if stop > segment.start:
                extents.append(Extent(segment, segment.start, stop))
                last = found
        return extents, last

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
        found = reader.find(at + 1, data_end) if at + 1 < data_end else None
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


def compaction_logs_of(store: StoreRef) -> Iterator[QueueLog]:
    """The compaction logs of a store, by topic and queueId."""
    return (QueueLog(layout, store.files) for layout in compaction_logs(store.root, store.files))
