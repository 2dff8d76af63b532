"""The places at which ranges of the log can be cut: starts of units that a ConsumeQueue names and the log confirms, or
that a walk finds. Guessed places are never used: a message's body could fake a unit."""

import copy
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from rmqstore_spark.kept import kept
from rmqstore_spark.progress import Progress
from rmqstore_spark.read.pieces.task import Range
from rmqstore_spark.store.evidence import Evidence
from rmqstore_spark.store.format.queue_block import QueueUnit
from rmqstore_spark.store.io.schedule import REQUESTS_AT_ONCE
from rmqstore_spark.store.live_log import LiveLog
from rmqstore_spark.store.snapshot import Snapshot, as_snapshot
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.queue_cursor import QueueCursor

_QUEUES_TO_SPLIT_BY = 8
_NEAR = 8  # a piece may be larger than its target by this fraction (one in so many)
# The queues to try before giving up on others: so many, and one more for so many ranges.
_QUEUES_TO_TRY, _RANGES_PER_QUEUE = 64, 8
_RANGES_TO_LEARN_FROM = 32  # where requests take long


class SplitPoints:
    """The starts of units in logs, as ConsumeQueues say and the log confirms. Knowledge of queues is kept for the next
    question. For one thread at a time."""

    def __init__(self) -> None:
        self._named_units: dict[Snapshot, _NamedUnits] = {}

    def of(self, store: Snapshot) -> "_NamedUnits":
        """The units that queues name in a store."""
        if store not in self._named_units:
            self._named_units[store] = _NamedUnits(store)
        return self._named_units[store]

    def around(self, whole: Range, least: int, most: int) -> Range:
        """The smallest part of a range that surely holds all its units that begin in [least, most]."""
        with whole.store.reader(whole.segment) as reader:
            if least == most and (only := _message_at(whole, least, reader)) is not None:
                return only
            named = self.of(as_snapshot(whole.store))
            named.meet(whole, reader)
            start = max(named.before(least, whole, reader), default=whole.start)
            stop = min(named.after(most, whole, reader), default=whole.stop)
        return replace(whole, start=max(start, whole.start), stop=min(stop, whole.stop))


class Splitter:
    """Cuts ranges into pieces, at starts of units only.

    Args:
        target: about how many bytes of the log a piece has.
        may_walk: whether to walk through a segment where no ConsumeQueue helps.
        points: known starts of units in the logs.

    Attributes:
        target: see Args.
        points: see Args.
    """

    def __init__(self, target: int, may_walk: bool, points: SplitPoints | None = None) -> None:
        self.target = target
        self._may_walk = may_walk
        self.points = SplitPoints() if points is None else points

    def split_all(self, ranges: list[Range], least: int = 0) -> list[Range]:
        """The pieces of some ranges, in order. Arguments as of split()."""
        if not ranges:
            return []
        progress = Progress("planning: cutting the log into pieces", len(ranges), "ranges of it")
        if ranges[0].store.files.is_slow:
            return self._split_side_by_side(ranges, max(self.target, least), progress)
        pieces: list[Range] = []
        for whole in ranges:
            pieces += self.split(whole, least)
            progress.add()
        return pieces

    def split(self, whole: Range, least: int = 0) -> list[Range]:
        """The pieces of a range, in order; the range itself where it is small, or where no unit start can be found.

        Args:
            whole: the range.
            least: no piece is smaller than about so many bytes.
        """
        target = max(self.target, least)
        if _is_small(whole, target):
            return [whole]
        named = self.points.of(as_snapshot(whole.store))
        every = _Stretch(whole, whole.start + target, whole.stop - target // 2)
        return _pieces(whole, _queued_starts(every, target, named) or self._walked(whole, target, named))

    def _walked(self, whole: Range, target: int, named: "_NamedUnits") -> list[int]:
        """Unit starts of a range in which queues name none."""
        if not self._may_walk or named.are_live_in(whole):
            return []
        with whole.store.reader(whole.segment) as reader:
            return list(_walked_starts(whole, target, reader))

    def _split_side_by_side(self, ranges: list[Range], target: int, progress: Progress) -> list[Range]:
        """split() of ranges of one store, where requests take long: stretches of all ranges are searched side by side,
        each along the same queues."""
        named = self.points.of(as_snapshot(ranges[0].store))
        large = [whole for whole in ranges if not _is_small(whole, target)]
        named.meet_all(large)
        mapped = ranges[0].store.files.schedule.mapped

        def search(stretch: _Stretch) -> list[int]:
            return _queued_starts(stretch, target, named.copied())

        def walk(whole: Range) -> list[int]:
            return self._walked(whole, target, named.copied())

        cuts: dict[int, list[int]] = {whole.start: [] for whole in ranges}
        stretches = _stretches(large, target)
        for stretch, found in zip(stretches, mapped(search, stretches), strict=True):
            cuts[stretch.whole.start] += found
        without = [whole for whole in large if not cuts[whole.start]]
        cuts |= {whole.start: found for whole, found in zip(without, mapped(walk, without), strict=True)}
        progress.add(len(ranges))
        return [piece for whole in ranges for piece in _pieces(whole, _apart(cuts[whole.start], target))]


@dataclass(frozen=True)
class _Stretch:
    """A part of a range in which cuts are sought.

    Attributes:
        whole: the range.
        first, stop: the cuts are in [first, stop).
    """

    whole: Range
    first: int
    stop: int


def _stretches(ranges: list[Range], target: int) -> list[_Stretch]:
    """All parts of ranges in which cuts are sought, each for as many cuts as make no more parts than there may be
    requests at a time, or else a range."""
    dues = [range(whole.start + target, whole.stop - target // 2, target) for whole in ranges]
    share = max(1, sum(map(len, dues)) // REQUESTS_AT_ONCE)
    return [
        _Stretch(whole, first, min(first + share * target, due.stop))
        for whole, due in zip(ranges, dues, strict=True)
        for first in due[::share]
    ]


def _apart(cuts: list[int], target: int) -> list[int]:
    """Those of some cuts, in ascending order, that are far enough from the one before."""
    found: list[int] = []
    for cut in cuts:
        if not found or cut - found[-1] >= target - target // _NEAR:
            found.append(cut)
    return found


def _is_small(whole: Range, target: int) -> bool:
    return whole.stop - whole.start <= target + target // 4


def _pieces(whole: Range, cuts: list[int]) -> list[Range]:
    bounds = [whole.start, *cuts, whole.stop]
    return [replace(whole, start=start, stop=stop) for start, stop in itertools.pairwise(bounds)]


def _message_at(whole: Range, position: int, reader: SegmentReader) -> Range | None:
    """The one unit at a physical offset, if it is live and known to its queue; else None."""
    header = reader.header(position)
    if header is None or not whole.store.queues.vouch_for(header):
        return None
    if as_snapshot(whole.store).log.liveness(position, header.size) is not Evidence.LIVE:
        return None
    return replace(whole, start=position, stop=position + header.size)


def _queued_starts(stretch: _Stretch, target: int, named: "_NamedUnits") -> list[int]:
    """Unit starts that a ConsumeQueue names and the log confirms, at distances of not much more than `target` bytes."""
    whole, due, cuts = stretch.whole, stretch.first, []
    with whole.store.reader(whole.segment) as reader:
        found = named.near(due, stretch.stop, target, whole) if named.meet(whole, reader) else []
        while found:
            cut = next((unit.position for along, unit in found if along.holds(unit, reader)), None)
            if cut is not None:
                cuts.append(cut)
            due = max(target + (due if cut is None else cut), found[0][1].position + 1)
            found = named.near(due, stretch.stop, target, whole) if due < stretch.stop else []
    return cuts


def _walked_starts(whole: Range, target: int, reader: SegmentReader) -> Iterator[int]:
    """Unit starts found by walking from unit to unit; none after damage."""
    at, least = whole.start, whole.stop - target // 2
    while at + target < least:
        last, walked = reader.walk(at, at + target)
        at = walked.at
        unit = reader.header(at)
        if last is None and unit is not None:  # the unit is larger than a partition should be
            at += unit.size
            unit = reader.header(at)
        if unit is None or at >= least:
            return
        yield at


def _queues_of(whole: Range) -> list[tuple[str, int]]:
    """The queues of a range's first messages."""
    with whole.store.reader(whole.segment) as reader:
        return _first_queues(whole, reader)


def _first_queues(whole: Range, reader: SegmentReader) -> list[tuple[str, int]]:
    return [(header.topic, header.queue_id) for header in reader.first_headers(whole.start) if header.is_queued]


class _Along:
    """A queue along which units are named.

    Attributes:
        queue: the queue.
    """

    def __init__(self, queue: Queue, log: LiveLog) -> None:
        self.queue = queue
        self._cursor = QueueCursor(queue)
        self._log = log

    @kept
    def _last_live(self) -> tuple[int, int] | None:
        """The queue's last live unit, as of LiveLog.last_live_unit(). Of most queues nobody asks for it: the first one
        along which a unit is near enough will do."""
        return self._log.last_live_unit(self.queue)

    def copied(self) -> "_Along":
        """The same, for another thread."""
        other = copy.copy(self)
        other._cursor = copy.copy(self._cursor)
        return other

    def look_at_ends(self) -> None:
        """Find out what is asked of the queue as a whole, and where a search along it may begin."""
        self._cursor.look_at_ends()
        _ = self._last_live

    def first_from(self, position: int) -> QueueUnit | None:
        """The queue's first unit that points to `position` or after it; None where there is none."""
        return self._cursor.unit(self._cursor.seek(position))

    def last_before(self, position: int, whole: Range) -> QueueUnit | None:
        """The queue's last unit before a physical offset that is live as far as is known; None where there is none."""
        number = self._cursor.seek(position) - 1
        if self._last_live is None:
            live = self._log.live_end(whole)
            number = min(number, QueueCursor(self.queue).seek(live) - 1) if live < position else number
        else:
            number = min(number, self._last_live[0])
        return self.queue.unit(number)

    def is_live(self, unit: QueueUnit, whole: Range) -> bool:
        """Is a unit of the queue live, provided that the log confirms it? Only a part of the queue's units is of the
        present log; an old unit can begin in the last live bytes, but then it ends after them.

        LiveLog.evidence() would answer this and holds() at once, but looks up each unit in the log and may walk. A
        split point is chosen among many units, of which these answers cost nothing once the queue's last live unit is
        known (LiveLog.last_live_unit); the log is read for the chosen one alone."""
        if self._last_live is not None and unit.number <= self._last_live[0]:
            return unit.position <= self._last_live[1]
        return unit.position + unit.size <= self._log.live_end(whole)

    def holds(self, unit: QueueUnit, reader: SegmentReader) -> bool:
        """Does the log confirm a unit? A message's body could fake a unit, but only the broker writes the queue."""
        return reader.has_message(self.queue, unit.queue_offset, unit)


class _NamedUnits:
    """Units that some of a store's queues name near any place of its log.

    The log determines these queues: the queues of the first messages of a range are taken, among which busy ones are
    most frequent. So the cost is the same in a store of many queues.
    """

    def __init__(self, store: Snapshot) -> None:
        self._store = store
        self._queues: list[_Along] = []  # the last useful one comes first
        self._tried: set[tuple[str, int]] = set()
        self._ranges = 0
        self._met_in: int | None = None  # the start of the range whose queues were learned last
        self._learns = True  # of a range where the known queues do not help

    def meet(self, whole: Range, reader: SegmentReader) -> bool:
        """Have some queues to go along: if there are none, the queues of the range's first messages. False when no
        queue with a unit is found."""
        self._ranges += 1
        if not self._queues and self._learns:
            self._learn(whole, reader)
        if not self._queues and self._learns and self._ranges == 1:
            self._take(itertools.islice(self._store.stored_queues.some(), _QUEUES_TO_TRY))
        return bool(self._queues)

    def meet_all(self, ranges: list[Range]) -> None:
        """Have some queues to go along in ranges that are cut side by side. Where there are many ranges, no queue is
        learned later from any of them, so that requests do not grow with the log."""
        apart = -(-len(ranges) // _RANGES_TO_LEARN_FROM)
        self._learns = apart <= 1
        self._ranges += 1
        if ranges and not self._queues:
            self._learn_from(ranges[::apart])
        self._store.files.schedule.mapped(_Along.look_at_ends, self._queues)

    def _learn_from(self, ranges: list[Range]) -> None:
        """Take those queues of the first messages of some ranges that have most units; else some of the store's."""
        mapped, stored = self._store.files.schedule.mapped, self._store.stored_queues
        counts = Counter(name for names in mapped(_queues_of, ranges) for name in names)
        names = [name for name, _ in counts.most_common(_QUEUES_TO_TRY)]
        self._tried.update(names)
        queues = [queue for name in names for queue in stored.all_of_queue(*name)]
        units = mapped(lambda queue: queue.end - queue.first, queues)
        busiest = sorted(range(len(queues)), key=lambda at: -units[at])
        if not self._take(queues[at] for at in busiest):
            self._take(itertools.islice(stored.some(), _QUEUES_TO_TRY))

    def copied(self) -> "_NamedUnits":
        """The same queues, for another thread."""
        other = copy.copy(self)
        other._queues = [along.copied() for along in self._queues]
        other._tried = set(self._tried)
        return other

    def are_live_in(self, whole: Range) -> bool:
        """Can the queues tell that any unit in a range is live?"""
        return bool(self._queues) and self._store.log.live_end(whole) > whole.start

    def near(self, due: int, stop: int, target: int, whole: Range) -> list[tuple[_Along, QueueUnit]]:
        """The first units that the queues name in [due, stop), the nearest first; only one if it is near enough. The
        units are live if the log confirms them."""
        found = self._near(due, stop, target, whole)
        is_far = not found or found[0][1].position - due > target
        if is_far and self._learns and self._met_in != whole.start:
            with whole.store.reader(whole.segment) as reader:
                if self._learn(whole, reader):
                    found = self._near(due, stop, target, whole)
        return found

    def before(self, position: int, whole: Range, reader: SegmentReader) -> Iterator[int]:
        """The starts of live units of a range: for each queue its last unit that does not begin after `position`."""
        for along in self._queues:
            unit = along.last_before(position + 1, whole)
            if unit is not None and unit.position <= position and self._is_in(unit, along, whole, reader):
                yield unit.position

    def after(self, position: int, whole: Range, reader: SegmentReader) -> Iterator[int]:
        """The starts of live units of a range: for each queue its first unit that begins after `position`."""
        for along in self._queues:
            unit = along.first_from(position + 1)
            if unit is not None and self._is_in(unit, along, whole, reader):
                yield unit.position

    @staticmethod
    def _is_in(unit: QueueUnit, along: _Along, whole: Range, reader: SegmentReader) -> bool:
        is_inside = whole.start < unit.position < whole.stop
        return is_inside and along.is_live(unit, whole) and along.holds(unit, reader)

    def _near(self, due: int, stop: int, target: int, whole: Range) -> list[tuple[_Along, QueueUnit]]:
        found: list[tuple[_Along, QueueUnit]] = []
        for along in list(self._queues):
            unit = along.first_from(due)
            if unit is None or not due <= unit.position < stop or not along.is_live(unit, whole):
                continue
            found.append((along, unit))
            if unit.position - due <= target // _NEAR:
                self._queues.remove(along)
                self._queues.insert(0, along)
                break  # near enough
        return sorted(found, key=lambda pair: pair[1].fields)

    def _learn(self, whole: Range, reader: SegmentReader) -> bool:
        """Take the queues of a range's first messages, those with most of them first, in place of queues that were of
        no use lately. False when there is no new one."""
        self._met_in = whole.start
        counts = Counter(_first_queues(whole, reader))
        new = [name for name, _ in counts.most_common() if name not in self._tried]
        allowed = _QUEUES_TO_TRY + self._ranges // _RANGES_PER_QUEUE - len(self._tried)
        new = new[: min(allowed, _QUEUES_TO_SPLIT_BY)]
        self._tried.update(new)
        return self._take(queue for name in new for queue in self._store.stored_queues.all_of_queue(*name))

    def _take(self, queues: Iterable[Queue]) -> bool:
        """Take those of some queues that have a unit; False when none has."""
        queues = list(queues)
        self._store.files.schedule.mapped(lambda queue: queue.end, queues[:_QUEUES_TO_SPLIT_BY])  # side by side
        in_use = (queue for queue in queues if queue.end > queue.first)
        new = [_Along(queue, self._store.log) for queue in itertools.islice(in_use, _QUEUES_TO_SPLIT_BY)]
        self._queues = (new + self._queues)[:_QUEUES_TO_SPLIT_BY]
        return bool(new)
