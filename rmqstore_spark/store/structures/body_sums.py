"""CRC-32 of bodies that may stand in each other, at little more than the cost of reading the segment once.

Crafted bytes can look like a message at every offset, each message with all the others in its body: to sum up each body
by itself would take hours. So once the summed bytes exceed the passed bytes several times over, the sums up to each
step are kept, and a body's sum follows from two of them (as native_io/sums.h does within a window).
"""

from native_io import crc32, crc32_between
from rmqstore_spark.store.structures.window import WINDOW_SIZE, Window

_STEP = 4096  # bytes
_OFTEN = 4  # times that each byte may be summed up before sums are kept


class BodySums:
    """Sums up bytes of a segment.

    Args:
        window: shows the segment's bytes.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self._begin = self._end = 0  # the bytes passed so far, as physical offsets
        self._spent = 0
        self._until: list[int] = []  # sums of the bytes from _begin up to each step; empty while none are kept

    def of(self, start: int, stop: int) -> int:
        """The CRC-32 of the bytes at the physical offsets [start, stop), as far as the file has them."""
        if self._end == 0 or start < self._begin:
            self._begin, self._end, self._spent, self._until = start, start, 0, []
        self._end = max(self._end, stop)
        self._spent += stop - start
        if not self._until and self._spent <= _OFTEN * (self._end - self._begin):
            return self._summed(0, start, stop)
        return crc32_between(self._sum_until(start), self._sum_until(stop), stop - start)

    def _sum_until(self, stop: int) -> int:
        """The CRC-32 of all bytes from `_begin` up to `stop`."""
        self._until = self._until or [0]
        steps = (stop - self._begin) // _STEP
        while len(self._until) <= steps:
            data = memoryview(self._window.read(self._begin + (len(self._until) - 1) * _STEP, WINDOW_SIZE))
            if len(data) < _STEP:
                break  # the file has become shorter
            for at in range(0, len(data) - _STEP + 1, _STEP):
                self._until.append(crc32(data[at : at + _STEP], before=self._until[-1]))
        known = min(steps, len(self._until) - 1)
        return self._summed(self._until[known], self._begin + known * _STEP, stop)

    def _summed(self, before: int, start: int, stop: int) -> int:
        """The CRC-32 of the bytes [start, stop) and those before them, given the sum of the latter."""
        for at in range(start, stop, WINDOW_SIZE):
            before = crc32(self._window.seen(at, min(WINDOW_SIZE, stop - at)), before=before)
        return before
