"""The files of a commitlog as one log, and what is wrong with it.

Source: org.apache.rocketmq.store.MappedFileQueue.
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from native_io import Wrapping
from rmqstore_spark.errors import DamagedStoreError, one_line
from rmqstore_spark.store.format.sizes import usual_size
from rmqstore_spark.store.io.files import Pin
from rmqstore_spark.store.structures.layout import SegmentFile
from rmqstore_spark.store.structures.proofs import Proof

MODES_AT_DAMAGE = "mode=DROPMALFORMED reads the rest, mode=PERMISSIVE shows the place in column 'corrupt'"


@dataclass(frozen=True)
class Segment:
    """A commitlog file, holding the physical offsets [start, end).

    `end` is where the segment should end: `size` differs from `end - start` where the file was cut or padded. `pin` is
    the remote object, where the file is one. `wrapping` is the bytes before each unit; None: the unit before. `proofs`
    are what a plan saw in the store: they have to hold when the segment is opened. `of_queue`: a file of one queue's
    own log (store/queue_log.py). Its offsets are of that log, so they are no commitLogOffset, and it may end after any
    unit, without a blank.
    """

    path: str
    start: int
    end: int
    size: int
    pin: Pin | None = None
    wrapping: Wrapping | None = None
    proofs: tuple[Proof, ...] = field(default=(), compare=False, repr=False)
    of_queue: bool = False

    @property
    def header(self) -> int:
        """The number of bytes before each unit."""
        return 0 if self.wrapping is None else self.wrapping.header


@dataclass(frozen=True)
class Extent:
    """The units of a segment that begin at the physical offsets [start, stop)."""

    segment: Segment
    start: int
    stop: int


@dataclass(frozen=True)
class Damage:
    """The physical offsets [start, stop) of a file are not what the format demands. `of_queue`: as of Segment."""

    path: str
    start: int
    stop: int
    position: int  # of `start`, in the file (bytes)
    reason: str
    of_queue: bool = False

    @property
    def place(self) -> str:
        """A text that says where the damage is, and what is wrong there."""
        where = "" if self.of_queue else f" (commitLogOffset {self.start})"
        return one_line(
            f"{self.path}: position {self.position}{where}: {self.reason}; "
            f"{self.stop - self.start} bytes cannot be read"
        )

    def after(self, start: int) -> "Damage":
        """The part of the damage from a physical offset on."""
        return replace(self, start=start, position=self.position + start - self.start)

    def error(self, advice: str = MODES_AT_DAMAGE) -> DamagedStoreError:
        """The error that a read ends with here, unless its mode is another."""
        return DamagedStoreError(self.place, advice)


def damage_in(segment: Segment, start: int, stop: int, reason: str) -> Damage:
    """A damage of the physical offsets [start, stop) in a segment."""
    return Damage(segment.path, start, stop, start - segment.start, reason, segment.of_queue)


def index_of(segments: Sequence[Segment], position: int) -> int | None:
    """The index of the segment that a physical offset is in; None where that segment is missing.

    Args:
        segments: by start.
    """
    index = bisect.bisect_right(segments, position, key=lambda segment: segment.start) - 1
    return index if index >= 0 and position < segments[index].end else None


def segments_of(files: tuple[SegmentFile, ...]) -> tuple[list[Segment], list[Damage]]:
    """The segments of a store by start, and what is wrong with their names and sizes.

    Args:
        files: the commitlog's files, by start.

    Raises:
        DamagedStoreError: two files claim the same physical offsets.
    """
    found = list(files)
    while found and found[-1].size == 0:  # a crash between creating and mapping a file; brokers delete it
        found.pop()
    usual = usual_size([[(file.start, file.size) for file in found]])
    segments: list[Segment] = []
    faults: list[Damage] = []
    for file in found:
        if segments:
            faults += _gap(segments[-1], file)
        segments.append(Segment(file.path, file.start, file.start + usual, file.size, file.pin, file.wrapping))
        if file.size != usual:
            faults.append(
                Damage(
                    file.path,
                    file.start + min(file.size, usual),
                    file.start + max(file.size, usual),
                    min(file.size, usual),
                    f"expected a file of {usual} bytes like its neighbours, found {file.size}: it was cut or padded, "
                    "perhaps by a copy that did not finish",
                )
            )
    return segments, faults


def _gap(before: Segment, file: SegmentFile) -> list[Damage]:
    if file.start < before.end:
        raise DamagedStoreError(
            f"{file.path}: begins at physical offset {file.start}, but {before.path} reaches to {before.end}: "
            "these files are not of one commitlog; put each store into a directory of its own"
        )
    if file.start == before.end:
        return []
    return [
        Damage(
            file.path,
            before.end,
            file.start,
            0,
            f"a gap in the commitlog: expected a file {before.end:020d} after {before.path}, found {file.start:020d}; "
            "bring the missing segments back (those of a commitlog in several directories: option storePathCommitLog)",
        )
    ]
