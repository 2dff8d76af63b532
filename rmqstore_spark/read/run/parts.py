"""A large task in small parts, so that several may read it at the same time.

Decoded data stays in the processor's cache on its way to the taker, if little else is decoded meanwhile. So threads
that read at the same time should be close together in the log: a part is the next MiB or two.
"""

import itertools
import threading

from rmqstore_spark.read.pieces.task import Scanned, Task
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.window import WINDOW_SIZE

PART_BYTES = 3 * WINDOW_SIZE  # of the log; beginning a part costs as much as decoding 100 KiB
_FEWEST = 4  # the least number of parts
_NEAR = 8 * 1024  # bytes in which a unit mostly begins; a large unit, as of a batch, is searched for in larger steps


class Parts:
    """A task that is cut into parts, and the state that the readers of its parts share.

    The beginning of a part is a guess: the first place after an even cut where a whole unit seems to be, which a
    message's body could fake. The part before proves the guess, as it must end there, unit after unit. Where it does
    not, it becomes the last part: it goes on to the end of the task, and all that was read of later parts is void.

    Args:
        task: a task for which is_worth() is true.
        size: about how many bytes of the log a part should have.
    """

    def __init__(self, task: Task, size: int) -> None:
        self.task = task
        (self._piece,) = task.ranges
        self.count = task.nbytes // size
        self._last = self.count - 1
        self._begins = {0: self._piece.start, self.count: self._piece.stop}
        self._unreported = {number: self.cut(number + 1) - self.cut(number) for number in range(self.count)}
        self._lock = threading.Lock()
        self._searching = threading.Lock()

    @staticmethod
    def is_worth(task: Task, size: int) -> bool:
        """Is a task the whole of a long range in a file, of which any part of this size can be read at once?"""
        if len(task.ranges) != 1 or task.faults or task.selection is not None:
            return False
        (piece,) = task.ranges
        return isinstance(piece, Scanned) and not piece.store.files.is_slow and task.nbytes >= _FEWEST * size

    def cut(self, number: int) -> int:
        """The physical offset from which on a part begins; for number `count`, the end."""
        return self._piece.start + (self._piece.stop - self._piece.start) * number // self.count

    def bounds(self, number: int, reader: SegmentReader) -> tuple[int, int]:
        """The start and end of a part: physical offsets, which are unit starts if the part is not void.

        Args:
            reader: reads the segment.
        """
        with self._searching:
            return self._begin(number, reader), self._begin(number + 1, reader)

    def _begin(self, number: int, reader: SegmentReader) -> int:
        """The first place from a cut on where a unit seems to begin; the end of the task where there is none. No part
        is searched for more than one cut."""
        at = number
        while at not in self._begins:
            found = _first(reader, self.cut(at), self.cut(at + 1))
            if found is None:
                at += 1
            else:
                self._begins[at] = found
        for passed in range(number, at):
            self._begins[passed] = self._begins[at]
        return self._begins[number]

    def is_void(self, number: int) -> bool:
        """Is a part not wanted because an earlier part includes it?"""
        return number > self._last

    def end_with(self, number: int) -> None:
        """Let a part go on to the end of the task."""
        with self._lock:
            self._last = min(self._last, number)

    def bytes_done(self, number: int) -> int:
        """How many bytes of the task are done with this part, beyond the bytes reported before."""
        with self._lock:
            later = range(number + 1, self.count) if number == self._last else range(0)
            return sum(self._unreported.pop(each, 0) for each in (number, *later))


def _first(reader: SegmentReader, start: int, stop: int) -> int | None:
    """The first place in [start, stop) where a unit seems to begin: found in a read about as large as it is far off.
    Holes are not read: behind the closing blank of a segment there may be a gigabyte of them. Where they are is asked
    only if no unit begins nearby: in memory (tmpfs) that takes as long as the file is large."""
    near = min(start + _NEAR, stop)
    for begin, end in itertools.chain([(start, near)], reader.data_extents(near, stop)):
        step = _NEAR
        while begin < end:
            far = min(begin + step, end)
            found = reader.find(begin, far)
            if found is not None:
                return found
            begin, step = far, 2 * step
    return None
