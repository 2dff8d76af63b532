"""Between which store times the messages of a part of the log can be.

The times of our writer's messages are recorded (written.py), as far as the log still has the messages. A broker wrote
all other messages in the order of its clock (store/format/clock.py). Where the two meet, store times may go back by any
amount.
"""

import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rmqstore_spark.kept import kept
from rmqstore_spark.store.evidence import Evidence
from rmqstore_spark.store.format import clock
from rmqstore_spark.store.format.message import Mark
from rmqstore_spark.store.live_log import LiveLog
from rmqstore_spark.store.structures.written import Record, Written

_END = 1 << 63


@dataclass(frozen=True)
class _Region:
    """A part of the log, as physical offsets [start, stop).

    Attributes:
        least, most: the bounds of its messages' store times (ms); None if unknown.
        fall: the most (ms) by which a message is older than one before it; None if unknown.
        last: store time (ms) of its last message; None if unknown.
    """

    start: int
    stop: int
    least: int | None = None
    most: int | None = None
    fall: int | None = None
    last: int | None = None

    @property
    def ascends(self) -> bool:
        """Do store times go back by no more than CLOCK_SLACK?"""
        return self.fall is not None and self.fall <= clock.CLOCK_SLACK


class LogTimes:
    """The store times of a log.

    Args:
        log: the log.
        record: what our writer noted down about the log.
        mark: gives what tells the message at a physical offset from others (Mark); None where there is no message.
    """

    def __init__(self, log: LiveLog, record: Record, mark: Callable[[int], Mark | None]) -> None:
        self._log = log
        self._record = record
        self._mark = mark

    def may_hold(
        self,
        start: int,
        stop: int,
        least: int,
        most: int,
        ends: tuple[int | None, int | None] | None = None,
    ) -> bool:
        """May the log have messages in [start, stop), where units begin, with store times (ms) in [least, most]?

        Args:
            ends: store times (ms) of the first message there, and of the last message or the one after it; None where a
                time is unknown. Read from the log if not given.
        """
        return any(self._may(region, start, stop, least, most, ends) for region in self._met(start, stop))

    def ascends(self, start: int, stop: int) -> bool:
        """Do store times in [start, stop) go back by no more than CLOCK_SLACK, as far as a broker's clock was right?"""
        first = next(self._met(start, stop), None)
        return first is None or (first.ascends and stop <= first.stop)

    def has(self, written: Written) -> bool:
        """Has the log all of a written stretch? True if the log has the stretch's last message, as a log only grows or
        is truncated."""
        last = written.last
        is_there = last is not None and self._mark(last.position) == last
        return last is not None and is_there and self._log.liveness(last.position, may_walk_far=True) is Evidence.LIVE

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, int | None]]:
        """[start, stop) in pieces: the start, the stop and the most (ms) by which a message is older than one before
        it; 0 where a broker's clock was right, None if unknown."""
        for region in self._met(start, stop):
            yield max(start, region.start), min(stop, region.stop), region.fall

    def _may(
        self,
        region: _Region,
        start: int,
        stop: int,
        least: int,
        most: int,
        ends: tuple[int | None, int | None] | None,
    ) -> bool:
        if (region.most is not None and region.most < least) or (region.least is not None and region.least > most):
            return False
        if not region.ascends or (region.least is not None and start <= region.start and region.stop <= stop):
            return True
        at = self._log.timestamp
        first, following = ends if ends is not None else (at(start) if start >= region.start else None, None)
        if start < region.start:
            first = at(region.start)
        if stop >= region.stop:
            following = region.last
        elif ends is None:
            following = at(stop)
        return clock.may_hold(first, following, least, most)

    def _met(self, start: int, stop: int) -> Iterator[_Region]:
        at = bisect.bisect_right(self._regions, start, key=lambda region: region.start) - 1
        for region in self._regions[max(0, at) :]:
            if region.start >= stop:
                return
            yield region

    @kept
    def _regions(self) -> list[_Region]:
        """The regions of all physical offsets, in the log and outside it."""
        stretches = [(written, self.has(written)) for written in self._record.stretches]
        # If the log has none of a record's stretches, the record may be another log's: no time in the log is known
        # then.
        if not self._record.is_whole or (stretches and not any(is_there for _, is_there in stretches)):
            return [_Region(0, _END)]
        regions: list[_Region] = []
        at = 0
        for written, is_there in stretches:
            if at < written.start:  # truncated together with the stretch: both have other messages now
                last = written.before if is_there else None
                regions.append(_Region(at, written.start, fall=0, last=last))
            if is_there:
                regions += _of_runs(written)
            else:
                regions.append(_Region(written.start, written.stop))
            at = written.stop
        return [*regions, _Region(at, _END, fall=0)]


def _of_runs(written: Written) -> Iterator[_Region]:
    start = written.start
    for run in written.runs:
        yield _Region(start, run.stop, run.least, run.most, run.fall)
        start = run.stop
