"""The damaged parts of the log, for the question whether a message was in one of them."""

from array import array
from bisect import bisect_right


class Damaged:
    """Stretches of the log, which take 16 bytes each, however many they are; those that follow each other are one."""

    def __init__(self) -> None:
        self._starts, self._stops = array("q"), array("q")

    def add(self, start: int, stop: int) -> None:
        """Add the physical offsets [start, stop), which come after all others."""
        if self._stops and self._stops[-1] == start:
            self._stops[-1] = stop
        else:
            self._starts.append(start)
            self._stops.append(stop)

    def __contains__(self, position: int) -> bool:
        at = bisect_right(self._starts, position) - 1
        return at >= 0 and position < self._stops[at]
