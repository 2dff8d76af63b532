"""How fast the log of a store grows, and when its disk will be full at that rate."""

import bisect
import os
from dataclasses import dataclass

from rmqstore_spark.store.snapshot import Snapshot

DAY = 24 * 3600 * 1000  # ms
_LEAST = 10 * 1000  # ms: what came in less time tells nothing of a day


@dataclass(frozen=True)
class Growth:
    """What came into a log lately.

    Attributes:
        nbytes: bytes of the log, of the time below.
        millis: the store time that they took, in ms; about a day where the log goes back so far.
        free: bytes that are free on the disk of the last segment; None in object storage and HDFS.
    """

    nbytes: int
    millis: int
    free: int | None

    @property
    def is_telling(self) -> bool:
        """Is the time long enough to tell how fast the log grows?"""
        return self.millis >= _LEAST

    @property
    def per_day(self) -> float:
        """Bytes in a day."""
        return self.nbytes * DAY / self.millis

    @property
    def until_full(self) -> int | None:
        """The time in ms after which the disk is full, if nothing expires; None if unknown."""
        return None if self.free is None else int(self.free * self.millis / self.nbytes)


def growth(store: Snapshot) -> Growth | None:
    """How a log has grown from the last segment that began a day or more before its last message; from its beginning
    where there is none. None where store times do not tell."""
    extents, log = store.log.extents, store.log
    last = log.timestamp(extents[-1].stop) if extents else None
    if last is None:
        return None

    def is_late(number: int) -> bool:
        began = log.timestamp(extents[number].start)
        return began is None or began > last - DAY

    at = max(0, bisect.bisect_left(range(len(extents)), True, key=is_late) - 1)
    first = log.timestamp(extents[at].start)
    nbytes = extents[-1].stop - extents[at].start
    if first is None or first >= last or not nbytes:
        return None
    return Growth(nbytes, last - first, _free(store, extents[-1].segment.path))


def _free(store: Snapshot, path: str) -> int | None:
    if not store.files.are_paths_the_systems:
        return None
    disk = os.statvfs(os.path.dirname(path))
    return disk.f_bavail * disk.f_frsize
