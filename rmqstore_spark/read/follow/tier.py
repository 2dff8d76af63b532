"""Tiered stores that are followed: each queue's log grows by itself, so each has a place of its own in the offset.

A log is looked at by its files alone: messages are brought in order, and a file has its real length. So all that is
whole in the last file stays, and half a message waits for its rest, also where its unit is in the queue already (a
broker writes the units of a file that is full before their messages). The queue's units do not count at all, as they
may end before the log for good.

A broker that is killed between messages and their units brings these messages again, behind what is there; half a
message may stand between. A stream takes the first of two, as a batch that is planned again has to have the same rows:
no batch reaches beyond the point where queue offsets go back, and from there on only later ones than those read are
wanted. The copies of a batch of messages, which a broker brings one after the other, are read together: the first one.

A log that has lost what is to be read next, or that began anew (a broker does so where messages are missing between its
own store and the tier), is a loss, as of other stores (failOnDataLoss). A stream that goes on all the same begins with
the first message that is there, and reads none again: it knows the queue offset up to which it has read.
"""

import contextlib
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import ClassVar

from rmqstore_spark.errors import DataLossError, DeletedMeanwhileError, NotAStoreError, RmqStoreError, quoted
from rmqstore_spark.kept import kept
from rmqstore_spark.query.option_values import GroupOffsets
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import Numbers, Selection
from rmqstore_spark.query.stream_options import StreamOptions
from rmqstore_spark.read.follow.edge import ADVICE, Reached, mark_at, mark_text
from rmqstore_spark.read.follow.follow import Follower
from rmqstore_spark.read.follow.stream_offset import StoreOffset, StreamOffset, queue_of
from rmqstore_spark.read.follow.stream_start import start_of_log
from rmqstore_spark.read.pieces.task import Task
from rmqstore_spark.read.plan.check_names import check_queues, check_topics
from rmqstore_spark.read.plan.groups import check_group
from rmqstore_spark.read.plan.stores import files_of, open_stores
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.layout import expand
from rmqstore_spark.store.structures.tiered import queues_of_tier, tiered_log
from rmqstore_spark.store.tiered_log import TieredLog, TieredLogUpTo

_UNITS_WITHIN = 3.0  # seconds from messages to their units, many times what a broker needs


def follower_of(
    options: StreamOptions,
    files: Files | None = None,
    gets_start: bool = True,
    clock: Callable[[], float] = time.monotonic,
) -> Follower:
    """The Follower for what the paths name. Arguments and errors are the Follower's."""
    kind = TierFollower if _name_a_tier(options, files) else Follower
    return kind(options, files, gets_start, clock)


def _name_a_tier(options: StreamOptions, files: Files | None) -> bool:
    if options.read.store_path_commit_log:
        return False
    with contextlib.suppress(RmqStoreError, OSError):
        files = files or files_of(options.read)
        return any(_is_tier(root, files) for root in expand(options.read.paths, files))
    return False


def _is_tier(root: str, files: Files) -> bool:
    if "commitlog" in files.names(root):
        return False
    try:
        Snapshot.find(root, files)
    except NotAStoreError:
        return next(queues_of_tier(root, files), None) is not None
    return False


class LogEdge:
    """Follows the log of one queue, as Edge does that of a store.

    Args:
        opened: the log as it is now.
        known: a place that the log had; None where the end must be searched for.
        clock: seconds that pass.
    """

    def __init__(
        self,
        opened: Callable[[], TieredLog],
        known: Reached | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._opened = opened
        self._reached = known
        self._clock = clock
        self._seen: object = None  # the files of the last look
        self._next: Reached | None = None  # up to which queue offsets ascend
        self._strange: tuple[int, float] | None = None  # a position where no message is, and since when

    def look(self, read: int | None = None) -> Reached:
        """The end of the whole messages as of now; where the stream's place is given, as far as queue offsets ascend
        from there on. While no file changes, only the directory is listed.

        Raises:
            DataLossError: the log has lost or changed messages that it had.
            DamagedStoreError: several files claim the same positions.
        """
        try:
            return self._looked(self._opened(), read)
        except DeletedMeanwhileError:
            return self._looked(self._opened(), read)

    def _looked(self, log: TieredLog, read: int | None) -> Reached:
        end = self._look(log)
        if read is None or read >= end.position:
            return end
        if self._next is not None and read < self._next.position:
            return self._next
        if log.whole_at(read) is None and not past_half(log, read) and self._may_be_half(read):
            return Reached(read, end.last if self._next is None else self._next.last)
        position, last = log.onward(read, end.position)
        self._next = Reached(position, end.last if last is None else mark_at(log, last))
        return self._next

    def _may_be_half(self, position: int) -> bool:
        """May units still show that a killed broker has left half a message here?"""
        if self._strange is None or self._strange[0] != position:
            self._strange = position, self._clock()
        return self._clock() - self._strange[1] < _UNITS_WITHIN

    def _look(self, log: TieredLog) -> Reached:
        known = self._reached
        if known is not None and log.layout.segments == self._seen:
            return known
        if known is not None:
            check_log(log, known)
        start = known.position if known is not None else next((each.start for each in log.segments), 0)
        position, last = log.whole_to(start)
        if last is not None:
            self._reached = Reached(position, mark_at(log, last.position))
        else:
            self._reached = Reached(position, None if known is None else known.last)
        self._seen = log.layout.segments
        return self._reached

    def is_restarted(self) -> bool:
        """Never: a broker that starts takes nothing back that is whole here."""
        return False

    def meets(self, place: Reached, since: int) -> None:
        """Make sure that the log has a place."""
        check_log(self._opened(), place)


def past_half(log: TieredLog, position: int) -> int | None:
    """Where the log goes on after the half of a message that a killed broker has left at a position; None where there
    is none."""
    extent = log.log.extent_at(position)
    if extent is None or not any(log.brought.again(position, position + 1)):
        return None
    with log.reader(extent.segment, verify_crc=True) as reader:
        found = reader.find(position + 1, extent.stop)
    return extent.stop if found is None else found


def check_log(log: TieredLog, place: Reached) -> None:
    """Make sure that a queue's log still has a place, and everything after it.

    Raises:
        DataLossError: the log does not have the place; the text says what is gone.
    """
    position, last = place
    files = log.layout.segments
    if not files and not position:
        return
    topic, queue_id = log.queue
    name = f"{log.root}: the log of topic {quoted(topic)}, queue {queue_id}"
    if not files:
        raise DataLossError(f"{name} is empty or gone, but was read to position {position}; {ADVICE}")
    if position < files[0].start:
        raise DataLossError(
            f"{name}: positions {position} to {files[0].start - 1} are gone: their files were deleted before they were "
            f"read; {ADVICE}"
        )
    end = files[-1].start + files[-1].size
    found = f"now its files end at {end}" if position > end else None
    if found is None and last is not None and last.position >= files[0].start:
        mark = mark_at(log, last.position)
        found = None if mark == last else f"expected {mark_text(last)} at {last.position}, found {mark_text(mark)}"
    if found is not None:
        raise DataLossError(
            f"{name} is not the one that was read to position {position}: {found}; the broker began it anew, or it was "
            f"replaced by an older copy; {ADVICE}"
        )


class TierFollower(Follower):
    """Follows the queues' logs of tiered stores: each is named by the directory of the queue."""

    _what: ClassVar[str] = "the log of this queue"

    @kept
    def _tiers(self) -> dict[str, str]:
        """The tiered store of each queue that was met, by the directory of the queue."""
        return {}

    def initial(self) -> StreamOffset:
        """The start of a new stream: startingOffsets and startingTimestamp, resolved as of now.

        Raises:
            NotAStoreError: a path is no store.
            OptionError: no store has a topic or queue that the options name, or a consumer group is named.
        """
        read = self._options.read
        logs = open_stores(read, self._files, with_queue_logs=True)
        if isinstance(self._options.start, GroupOffsets):
            check_group(logs, self._options.start.group, "option 'startingOffsets'")
        check_topics(read.subscribe, logs)
        check_queues(self._selection_of_options(), logs)
        names = [directory for directory in self._list() if self._has_log(directory)]
        reached = {directory: self._edge(directory, None).look() for directory in names}
        return StreamOffset(
            {name: self._start_of(name, place, is_new=False) for name, place in reached.items()}, self._options.since
        )

    def latest(self, start: StreamOffset | None, is_limited: bool) -> StreamOffset:
        """The end of the next batch; arguments and errors as of Follower.latest()."""
        self._note(start)
        return super().latest(start, is_limited)

    def plan(self, start: StreamOffset, end: StreamOffset, columns: Collection[str] | None = None) -> list[Task]:
        """The tasks of the batch between two offsets; arguments and errors as of Follower.plan()."""
        self._note(start)
        self._note(end)
        return super().plan(start, end, columns)

    def before(self, root: str, place: StoreOffset) -> tuple[Snapshot, ReadOptions]:
        """As of Follower. The whole log tells which messages are there twice; queue offsets tell what comes later."""
        read = self._options.read
        earlier = {queue: Numbers(most=first - 1) for queue, first in place.starts.items()}
        return self._opened(root, self._files), replace(read, selection=read.selection.in_queues(earlier))

    def _note(self, offset: StreamOffset | None) -> None:
        if offset is not None:
            self._tiers |= {name: place.tier for name, place in offset.stores.items() if place.tier is not None}

    # ---- logs in place of stores

    def _logs_in(self, roots: list[str]) -> list[str]:
        selection, found = self._options.read.selection, list[str]()
        for root in roots:
            for _, directory in queues_of_tier(root, self._files, lambda *queue: selection.queue(*queue) is not None):
                self._tiers[directory] = root
                found.append(directory)
        return found

    def _is_wanted(self, root: str) -> bool:
        return self._options.read.selection.queue(*queue_of(root)) is not None

    def _opened(self, root: str, files: Files, end: int | None = None) -> TieredLog:
        tier = self._tiers[root]
        files.list_tree(tier)
        layout = tiered_log(tier, queue_of(root), root, files)
        return TieredLog(layout, files) if end is None else TieredLogUpTo(layout, files, end)

    def _new_edge(self, root: str, known: Reached | None) -> LogEdge:
        return LogEdge(lambda: self._opened(root, self._files), known, self._clock)

    def _refuse_copies(self, roots: Iterable[str]) -> None:
        """Queues of one tier are no copies, and those of several are not compared."""

    def _placed(self, root: str, place: Reached) -> StoreOffset:
        return self._moved(root, StoreOffset(0, starts={queue_of(root): 0}, tier=self._tiers[root]), place)

    def _start_of_new(self, root: str, reached: Reached, topics: Collection[str] | None) -> StoreOffset:
        return self._start_of(root, reached, is_new=True)

    def _start_of(self, root: str, reached: Reached, *, is_new: bool) -> StoreOffset:
        log = self._opened(root, self._files, reached.position)
        return replace(start_of_log(log, reached, self._options, is_new=is_new), tier=self._tiers[root])

    def _moved(self, root: str, since: StoreOffset, reached: Reached) -> StoreOffset:
        ((queue, first),) = since.starts.items()
        if reached.last is not None and reached.last != since.last:
            number = self._opened(root, self._files, reached.position).number_after(reached.last.position)
            first = first if number is None else max(first, number)
        return replace(since, position=reached.position, last=reached.last, starts={queue: first})

    # ---- what is lost

    def _hold(self, store: Snapshot, place: StoreOffset, is_sure: bool, since: int = 0) -> None:
        assert isinstance(store, TieredLog)
        check_log(store, Reached(place.position, place.last))

    def _surviving(self, store: Snapshot, since: StoreOffset, is_sure: bool = True) -> int:
        try:
            self._hold(store, since, is_sure)
        except DataLossError as why:
            self._lose(why)
            return next((segment.start for segment in store.segments), since.position)
        assert isinstance(store, TieredLog)
        if store.whole_at(since.position) is not None:
            return since.position
        return past_half(TieredLog(store.layout, store.files), since.position) or since.position

    def _to_the_end(self, store: Snapshot, to: StoreOffset, since: int, is_sure: bool) -> tuple[Snapshot, StoreOffset]:
        assert isinstance(store, TieredLog)
        try:
            self._hold(store, to, is_sure)
        except DataLossError as why:
            self._lose(why)
            end, _ = store.whole_to(since)
            end = end if end < to.position else since  # else another log stands there
            return TieredLogUpTo(store.layout, store.files, end, since), StoreOffset(end)
        return TieredLogUpTo(store.layout, store.files, to.position, since), to

    def _after_loss(self, root: str, position: int) -> Reached:
        return Reached(next((segment.start for segment in self._open(root).segments), 0), None)

    # ---- the contents of batches

    def _selection_from(self, store: Snapshot, position: int, since: StoreOffset, least: int | None) -> Selection:
        """Most reads begin with the first queue offset that is wanted: then they all have the same selection, and share
        tasks."""
        header = store.log.header(position)
        first = next(iter(since.starts.values()), 0)
        is_passed = header is not None and header.queue_offset >= first
        return self._selection(replace(since, starts={}) if is_passed else since, least)
