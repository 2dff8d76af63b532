"""The log of a queue of a compaction topic (store/structures/compaction.py), as a log of its own."""

import os
from collections.abc import Iterator, Sequence
from typing import ClassVar

from rmqstore_spark.kept import kept
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.queue_log import QueueLog, units_end
from rmqstore_spark.store.snapshot import StoreRef
from rmqstore_spark.store.structures.compaction import LostFile, QueueUnit, compaction_logs, last_unit
from rmqstore_spark.store.structures.layout import Layout, names_there, start_in
from rmqstore_spark.store.structures.segments import Damage, Segment


class CompactionLog(QueueLog):
    """The log of a queue of a compaction topic: its files have their full size from the start, and between them names
    may be missing.

    Args:
        lost_files: those of its files that are not there, though its queue has them.
    """

    what: ClassVar[str] = "a compaction log"

    def __init__(self, layout: Layout, files: Files, lost_files: Sequence[LostFile] = ()) -> None:
        super().__init__(layout, files)
        self.lost_files = lost_files

    @kept
    def _known(self) -> dict[int, QueueUnit | None]:
        return {segment.start: self._last_unit(segment) for segment in self.segments}

    def look_at_units(self) -> None:
        """Look at the last queue unit of each file, before the log is looked at: see lost()."""
        _ = self._known

    def _last_unit(self, segment: Segment) -> QueueUnit | None:
        return last_unit(self.root, self.queue, os.path.basename(segment.path), self.files)

    def lost(self) -> list[Damage]:
        """What the queue has and the log has not: whole files, and ends of files."""
        return [_missing_file(file) for file in self.lost_files] + self._lost_ends()

    def _lost_ends(self) -> list[Damage]:
        """The parts at the ends of files that have no message, and whose last one has a queue unit: a broker writes
        the unit after the message. One that a pass has made meanwhile does not count.

        A unit is nearly always in the queue's file of the same name. A broker that begins a file while a pass replaces
        others may lose the queue's one, and goes on in the one before."""
        known = self._known
        extents = {extent.segment.start: extent.stop for extent in self.log.extents}
        stops = {segment.start: extents.get(segment.start, segment.start) for segment in self.segments}
        lost: list[Damage] = []
        for segment in self.segments:
            unit = known[segment.start]
            if unit is None or unit.position < stops[segment.start]:
                continue
            up_to = [each for each in self.segments if each.start <= unit.position]
            owner, stop = up_to[-1], stops[up_to[-1].start]
            if unit.position < stop or unit.queue_offset <= max(self._last_offset(each, stops) for each in up_to):
                continue
            if unit == self._last_unit(segment) and not self._has_file_since(owner, unit.position):
                reason = (
                    f"expected messages up to the one at {unit.position}, with queueOffset {unit.queue_offset}, which "
                    "has a unit in compactionCq/, found the end of the log: it has lost its end"
                )
                lost.append(
                    Damage(owner.path, stop, unit.position + unit.size, stop - owner.start, reason, of_queue=True)
                )
        return lost

    def _has_file_since(self, after: Segment, position: int) -> bool:
        """Is there a later file now that may hold this position? A broker has begun it since the log was looked at."""
        directory = os.path.dirname(after.path)
        starts = filter(None, map(start_in, names_there(directory, self.files.fresh())))
        return any(after.start < start <= position for start in starts)

    def _last_offset(self, segment: Segment, stops: dict[int, int]) -> int:
        """The queueOffset of the last message of a file; -1 where there is none."""
        if stops[segment.start] == segment.start:
            return -1
        with self.reader(segment) as reader:
            _, last = units_end(reader, segment.start, is_last=True)
        return -1 if last is None else last.queue_offset


def _missing_file(file: LostFile) -> Damage:
    reason = (
        f"expected a file with messages up to queueOffset {file.unit.queue_offset}, which have units in compactionCq/, "
        "found none; a broker that was killed while a pass replaced files left them as *.delete, and the new ones in "
        "compacting/"
    )
    return Damage(file.path, file.start, file.unit.position + file.unit.size, 0, reason, of_queue=True)


def compaction_logs_of(store: StoreRef) -> Iterator[CompactionLog]:
    """The compaction logs of a store, by topic and queueId."""
    found = compaction_logs(store.root, store.files)
    return (CompactionLog(layout, store.files, lost_files) for layout, lost_files in found)
