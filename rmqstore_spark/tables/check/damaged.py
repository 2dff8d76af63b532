"""The damaged parts of the log, for the question whether a message was in one of them."""

from array import array
from bisect import bisect_right

import numpy as np
import numpy.typing as npt


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

    def have(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of some physical offsets are in them?"""
        if not self._starts:
            return np.zeros(len(positions), np.bool_)
        starts, stops = np.frombuffer(self._starts, np.int64), np.frombuffer(self._stops, np.int64)
        at = np.searchsorted(starts, positions, "right") - 1
        found: npt.NDArray[np.bool_] = (at >= 0) & (positions < stops[at])
        return found
