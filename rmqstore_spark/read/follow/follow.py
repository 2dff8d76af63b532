"""Stores that are followed: the present ends of their logs, and the tasks of a batch between two offsets.

A batch depends on its two offsets only, so it can be planned again, by another process. The state kept here only saves
work.
"""

import logging
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import ClassVar

from rmqstore_spark.errors import DataLossError, NotAStoreError
from rmqstore_spark.query.option_values import GroupOffsets
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import Numbers, Selection
from rmqstore_spark.query.stream_options import StreamOptions
from rmqstore_spark.read.follow.admission import cut_bytes, cut_messages
from rmqstore_spark.read.follow.edge import (
    AnyEdge,
    Edge,
    Reached,
    after_loss,
    before_loss,
    check,
    is_in_damage,
    past_mended,
)
from rmqstore_spark.read.follow.stream_offset import Queue, StoreOffset, StreamOffset
from rmqstore_spark.read.follow.stream_start import ask_for_starts, check_word, start_of_new, starts_of
from rmqstore_spark.read.pieces.task import Range, Task
from rmqstore_spark.read.plan.check_names import check_queues, check_topics
from rmqstore_spark.read.plan.planner import plan_parts
from rmqstore_spark.read.plan.prune import ranges_of
from rmqstore_spark.read.plan.related import refuse_copies
from rmqstore_spark.read.plan.stores import files_of, open_stores
from rmqstore_spark.store.evidence import Evidence
from rmqstore_spark.store.format.message import MARK_SIZE, Mark
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.io.guest import Manners
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.layout import expand

log = logging.getLogger(__name__)

# Looks may take so much of the time: the next look waits for this many times the duration of the last one.
_PAUSES = 25
_LEAST_SECONDS = 0.01  # between looks at logs
_LIST_SECONDS = 1.0  # between looks at what a glob matches
_STARTS_AT_ONCE = 256  # queues whose start is looked for in one batch


class Follower:
    """Follows the stores that options name.

    Large because stores come, vanish, come back and are listed again while a stream runs, and each of these is
    remembered until the next batch. What is otherwise for the logs of a tiered store is a method of its own, and other
    there (tier.TierFollower).

    Args:
        options: what to read, and where a new stream begins.
        files: access to the stores' files, if it does not follow from the options.
        gets_start: whether latest() is always given where the stream is, as by Spark since 4.2.
        clock: seconds that pass.

    Raises:
        OptionError: the start needs to be told where the stream is.
    """

    _what: ClassVar[str] = "this store"

    def __init__(
        self,
        options: StreamOptions,
        files: Files | None = None,
        gets_start: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not gets_start:
            check_word(options.start)
        self._options = options
        self._files = files or files_of(replace(options.read, manners=Manners()))  # for looks
        self._files_of_tasks = files or files_of(options.read)
        self._gets_start = gets_start
        self._clock = clock
        self._edges: dict[str, AnyEdge] = {}
        self._joined: dict[str, StoreOffset] = {}
        self._target: dict[str, Reached] | None = None
        self._known: tuple[StreamOffset | None, bool, StreamOffset] | None = None
        self._look_at = 0.0
        self._roots: list[str] = []
        self._is_new_list = False  # listed anew since stores that join were looked for
        self._list_at = 0.0
        self._turn: int | None = None  # which store is the first one in the next limited batch
        self._looks: Counter[str] = Counter()  # by store: looks at the starts of its queues
        self._apart: set[str] = set()  # stores that are not copies of each other
        self._warned: set[str] = set()
        self.newest = StreamOffset()  # where the logs ended at the last look

    def initial(self) -> StreamOffset:
        """The start of a new stream: startingOffsets and startingTimestamp, resolved as of now.

        Raises:
            NotAStoreError: a path is no store.
            OptionError: no store has a topic, queue or group that the options name.
        """
        read = self._options.read
        # A store without a log joins when it has one.
        opened = [store for store in open_stores(read, self._files) if store.segments]
        roots = [store.root for store in opened]
        self._refuse_copies(roots)
        ask_for_starts(opened, self._options)
        reached = {root: self._edge(root, None).look() for root in roots}
        # Opened after the look: their queues must know the messages that were seen.
        self._files = self._files.fresh()
        stores = open_stores(read, self._files)
        check_topics(read.subscribe, stores)
        check_queues(self._selection_of_options(), stores)
        some = {store: reached[store.root] for store in stores if store.root in reached}
        return StreamOffset(starts_of(some, self._options) if some else {}, self._options.since)

    def latest(self, start: StreamOffset | None, is_limited: bool) -> StreamOffset:
        """The end of the next batch: `start` itself where there is nothing new.

        Args:
            start: where the stream is; None where the caller does not know.
            is_limited: whether the limits of a batch hold.

        Raises:
            DataLossError: messages are gone, and that is an error (failOnDataLoss).
            RmqStoreError: a store cannot be read.
        """
        began = self._clock()
        if self._known is not None and self._known[:2] == (start, is_limited) and began < self._look_at:
            return self._known[2]
        self._files = self._files.fresh()
        found = self._all_edges() if start is None else self._after(start, is_limited)
        ended = self._clock()
        self._look_at = ended + max(_LEAST_SECONDS, _PAUSES * (ended - began))
        self._known = start, is_limited, found
        return found

    def stop_here(self) -> None:
        """From now on, go no further than the logs reach now."""
        self._files = self._files.fresh()
        self._edges.clear()
        self._target = {root: self._edge(root, None).look() for root in self._list() if self._has_log(root)}

    def before(self, root: str, place: StoreOffset) -> tuple[Snapshot, ReadOptions]:
        """The log of a store up to a place in it, and what to read of it: all that does not come from there on."""
        return self._open(root, place.position), self._options.read

    def plan(self, start: StreamOffset, end: StreamOffset, columns: Collection[str] | None = None) -> list[Task]:
        """The tasks of the batch between two offsets.

        Args:
            columns: the requested columns of a message; None for all columns.

        Raises:
            DataLossError: messages between the offsets are gone, and that is an error (failOnDataLoss).
            DamagedStoreError: mode FAILFAST, and names or sizes of segments are wrong.
        """
        for root in sorted(start.stores.keys() - end.stores.keys()):
            self._vanished(root)
        files = self._files_of_tasks.fresh()
        parts: list[tuple[Snapshot, list[Range], Selection]] = []
        tasks: list[Task] = []
        for root, to in sorted(end.stores.items()):
            begin = start.stores.get(root)
            if begin is None and self._gets_start:
                continue  # the store has joined, and is read from the next batch on
            if begin is not None and to.position <= begin.position:
                continue
            try:
                store = self._opened(root, files, to.position)
                is_sure = root in self._edges and not self._edges[root].is_restarted()
                first = min((segment.start for segment in store.segments), default=0)
                since = first if begin is None else self._surviving(store, begin, is_sure)
                store, to = self._to_the_end(store, to, since, is_sure)
            except (NotAStoreError, DataLossError) as why:
                self._lose(why)
                self._say_what_is_left_out(root, 0 if begin is None else begin.position, to.position)
                continue
            faults = tuple(
                (root, fault) for fault in store.faults if _meet(fault.start, fault.stop, since, to.position)
            )
            if faults and self._options.read.mode == "FAILFAST":
                raise faults[0][1].error()
            if faults:
                tasks.append(Task(faults=faults))
            selection = self._selection_from(store, since, begin or StoreOffset(since), start.since)
            if not selection.is_nothing:
                ranges = [_with_proof(r, to.last) for r in _clipped(store, since)]
                parts.append((store, ranges, selection))
        return plan_parts(parts, self._options.read, columns) + tasks

    def _to_the_end(self, store: Snapshot, to: StoreOffset, since: int, is_sure: bool) -> tuple[Snapshot, StoreOffset]:
        """A store up to the end of a batch, with the whole message there; if that end is gone, and this is no error, up
        to the rest of the log before it."""
        try:
            self._hold(store, to, is_sure, since)
        except DataLossError as why:
            self._lose(why)
            left = before_loss(self._opened(store.root, store.files), to.position)
            self._say_what_is_left_out(store.root, max(since, left.position), to.position)
            return self._opened(store.root, store.files, left.position), StoreOffset(*left)
        end = self._past_mended(store, to)
        return (store, to) if end == to.position else (self._opened(store.root, store.files, end), StoreOffset(end))

    # ---- the ends of batches

    def _after(self, start: StreamOffset, is_limited: bool) -> StreamOffset:
        roots = self._list()
        stores, newest = dict(start.stores), dict(start.stores)
        backlog: dict[str, Reached] = {}
        for root, since in start.stores.items():
            if root not in roots:
                if self._is_wanted(root):
                    self._vanished(root)
                continue
            reached, is_sound = self._reached(root, since)
            if not is_sound:
                # A batch without rows takes the stream to where it can go on, which may be before its last place.
                stores[root] = self._moved(root, since, reached)
            elif reached.position > since.position:
                newest[root] = replace(since, position=reached.position, last=reached.last)
                backlog[root] = reached
        if self._is_new_list:
            self._is_new_list = False
            self._refuse_copies(roots)
            self._join([root for root in roots if root not in start.stores], start)
        stores |= {root: joined for root, joined in self._joined.items() if root not in stores}
        for root, reached in self._admitted(start, backlog, is_limited):
            stores[root] = self._moved(root, start.stores[root], reached)
        self.newest = StreamOffset({**stores, **newest}, start.since)
        return StreamOffset(stores, start.since)

    def _all_edges(self) -> StreamOffset:
        """The edges, where the stream's place is not told. A store that is gone keeps its place: if the store comes
        back, the stream goes on there."""
        roots = self._list()
        places = {root: Reached(known.position, known.last) for root, known in self.newest.stores.items()}
        for root in places.keys() - set(roots):
            self._vanished(root)
        if self._is_new_list:
            self._is_new_list = False
            self._refuse_copies(roots)
        for root in filter(self._has_log, roots):
            try:
                places[root] = self._edge(root, None).look()
            except NotAStoreError as why:
                self._lose(why)
            except DataLossError as why:
                self._lose(why)
                self._edges.pop(root)
                places[root] = self._edge(root, None).look()
        self.newest = StreamOffset(
            {root: self._placed(root, place) for root, place in places.items()}, self._options.since
        )
        return self.newest

    def _reached(self, root: str, since: StoreOffset) -> tuple[Reached, bool]:
        """The present end of a log, and whether the log still has the stream's place. If not, the first value is the
        place to go on at."""
        was = Reached(since.position, since.last)
        try:
            reached = self._looked(root, was)
        except NotAStoreError as why:
            self._lose(why)
            return was, True
        except DataLossError as why:
            self._lose(why)
            self._edges.pop(root)
            place = self._after_loss(root, since.position)
            self._say_where_it_goes_on(root, since.position, place.position)
            return place, False
        target = reached if self._target is None else self._target.get(root, was)
        return min(reached, target, key=lambda place: place.position), True

    def _looked(self, root: str, was: Reached) -> Reached:
        """The edge. It may have been ahead of the stream before: messages not read yet may be gone again, or be
        replaced by others. Only the stream's place counts."""
        try:
            reached = self._edge(root, was).look(was.position)
            if reached.position >= was.position:
                return reached
        except DataLossError as why:
            log.info(
                "%s; the stream has read to commitLogOffset %d, and goes on if that is still there", why, was.position
            )
        self._edges.pop(root)
        reached = self._edge(root, was).look()
        if self._target is not None and root in self._target:
            self._target[root] = reached  # the old target is gone
        return reached

    def _say_what_is_left_out(self, root: str, begin: int, end: int) -> None:
        if begin < end:
            self._warn(f"{root}: this batch leaves out commitLogOffsets {begin} to {end - 1}")

    def _say_where_it_goes_on(self, root: str, was: int, position: int) -> None:
        """Log what is left out after a loss, or what may come twice."""
        if position > was:
            self._warn(f"{root}: goes on at commitLogOffset {position}: {was} to {position - 1} are left out")
        elif position < was:
            self._warn(
                f"{root}: goes back to commitLogOffset {position}, where the log ends now: should messages that were "
                f"read up to {was} come back, they are read again"
            )

    def _vanished(self, root: str) -> None:
        self._edges.pop(root, None)
        self._lose(
            DataLossError(
                f"{root}: {self._what} was read so far, but the paths do not name it any more, or it is gone; bring it "
                "back, begin with a new checkpoint, or give failOnDataLoss=false to go on without it"
            )
        )

    def _join(self, roots: Iterable[str], start: StreamOffset) -> None:
        """Find the start of the stream in stores that are new to it: they are read from the next batch on."""
        for root in roots:
            if root in self._joined or not self._has_log(root):
                continue
            if self._target is not None and root not in self._target:
                continue
            chosen = [each.topics for each in start.stores.values()]
            known = {topic for topics in chosen if topics is not None for topic in topics}
            topics = known if isinstance(self._options.start, GroupOffsets) and chosen else None
            reached = self._edge(root, None).look()
            self._joined[root] = self._start_of_new(root, reached, topics)
            log.info("%s: the stream reads this store, too", root)

    def _admitted(
        self, start: StreamOffset, backlog: dict[str, Reached], is_limited: bool
    ) -> Iterable[tuple[str, Reached]]:
        """The stores with the part of their backlog that the next batch reads."""
        most_bytes, most_messages = self._options.max_bytes, self._options.max_messages
        if not is_limited or (most_bytes is None and most_messages is None):
            return list(backlog.items())
        sizes = {root: reached.position - start.stores[root].position for root, reached in backlog.items()}
        total = sum(sizes.values())
        found: list[tuple[str, Reached]] = []
        left = most_messages
        for root in self._in_turn(start, backlog):
            reached, size = backlog[root], sizes[root]
            if left == 0:
                continue
            since = start.stores[root]
            store = self._open(root, reached.position)
            ranges = _clipped(store, self._surviving(store, since))
            if most_bytes is not None and (cut := cut_bytes(ranges, max(1, most_bytes * size // total))) is not None:
                reached = cut
                ranges = [replace(r, stop=min(r.stop, cut.position)) for r in ranges if r.start < cut.position]
            if most_messages is not None and left is not None:
                share = min(left, max(1, most_messages * size // total))
                reached = cut_messages(ranges, self._selection(since, start.since), share) or reached
                left -= share
            found.append((root, reached))
        return found

    def _in_turn(self, start: StreamOffset, backlog: Collection[str]) -> list[str]:
        """The stores in an order in which each is first at some time, so that none waits for ever when few messages are
        read at a time. A query that is started anew for each batch knows of no turn; then its offset decides, as if by
        chance."""
        if self._turn is None:
            self._turn = zlib.crc32(repr(start.as_json()).encode())
        self._turn += 1
        roots = sorted(backlog)
        return [roots[(index + self._turn) % len(roots)] for index in range(len(roots))]

    def _moved(self, root: str, since: StoreOffset, reached: Reached) -> StoreOffset:
        """A store's offset without the starts of those queues that the log has passed."""
        starts = since.starts
        if starts:
            self._looks[root] += 1
            names = sorted(starts)
            at = self._looks[root] * _STARTS_AT_ONCE % len(names)
            store = self._open(root, reached.position)
            passed = {
                name for name in [*names[at:], *names[:at]][:_STARTS_AT_ONCE] if _has_passed(store, name, starts[name])
            }
            starts = {name: first for name, first in starts.items() if name not in passed}
        return StoreOffset(reached.position, reached.last, starts, since.topics)

    # ---- stores

    def _list(self) -> list[str]:
        """The directories that the paths name."""
        now = self._clock()
        if not self._roots or now >= self._list_at:
            self._roots = self._logs_in(expand(self._options.read.paths, self._files))
            self._is_new_list = True
            ended = self._clock()
            self._list_at = ended + max(_LIST_SECONDS, _PAUSES * (ended - now))
        return self._roots

    def _logs_in(self, roots: list[str]) -> list[str]:
        """The directories with a log of their own in those that the paths name."""
        return roots

    def _is_wanted(self, root: str) -> bool:
        """Is a log that the stream has read still selected?"""
        return True

    def _placed(self, root: str, place: Reached) -> StoreOffset:
        return StoreOffset(*place)

    def _start_of_new(self, root: str, reached: Reached, topics: Collection[str] | None) -> StoreOffset:
        return start_of_new(self._open(root), reached, self._options, topics)

    def _refuse_copies(self, roots: Iterable[str]) -> None:
        """See that new stores are no copies of those known already."""
        new = [root for root in roots if root not in self._apart and self._has_log(root)]
        known = [root for root in roots if root in self._apart]
        if new and len(new) + len(known) > 1:
            refuse_copies([self._open(root) for root in new + known], "name one of them")
        self._apart |= set(new)

    def _edge(self, root: str, known: Reached | None) -> AnyEdge:
        if root not in self._edges:
            self._edges[root] = self._new_edge(root, known)
        return self._edges[root]

    def _new_edge(self, root: str, known: Reached | None) -> AnyEdge:
        return Edge(root, self._files, self._options.read.store_path_commit_log, known, self._clock)

    def _open(self, root: str, end: int | None = None) -> Snapshot:
        return self._opened(root, self._files, end)

    def _opened(self, root: str, files: Files, end: int | None = None) -> Snapshot:
        """The log in a directory, up to an end if one is given: then most of it is looked at."""
        if end is not None:
            files.list_tree(root)
        return Snapshot.find(root, files, self._options.read.store_path_commit_log, end)

    def _has_log(self, root: str) -> bool:
        """Does a store have a log already? A directory that a glob matches may get one later."""
        try:
            return root in self._edges or bool(self._open(root).segments)
        except NotAStoreError as why:
            self._warn(str(why))
            return False

    def _surviving(self, store: Snapshot, since: StoreOffset, is_sure: bool = True) -> int:
        """The physical offset from which on a log still has the messages after a stream's offset."""
        try:
            self._hold(store, since, is_sure)
        except DataLossError as why:
            self._lose(why)
            position = self._after_loss(store.root, since.position).position
            self._say_where_it_goes_on(store.root, since.position, position)
            return position
        return self._past_mended(store, since)

    def _past_mended(self, store: Snapshot, place: StoreOffset) -> int:
        """The physical offset of a place, or the end of the message in which it is now that damage there is mended."""
        if not is_in_damage(store, Reached(place.position, place.last)):
            return place.position
        return past_mended(self._opened(store.root, store.files), place.position)

    def _after_loss(self, root: str, position: int) -> Reached:
        """The place to go on at in a log that has lost the messages at a position."""
        return after_loss(self._open(root), position)

    def _hold(self, store: Snapshot, place: StoreOffset, is_sure: bool, since: int = 0) -> None:
        """Make sure that a log still has a place.

        Args:
            is_sure: whether no broker can have cut the log since its edge was looked for. Else the message before the
                place proves nothing: the messages since `since` have to lead there.
            since: a physical offset from which messages lead to the place.

        Raises:
            DataLossError: the log no longer has the place.
        """
        reached = Reached(place.position, place.last)
        check(store, reached)
        if is_sure:
            return
        edge = self._edges.get(store.root)
        if edge is None or edge.is_restarted():
            self._files = self._files.fresh()
            edge = self._new_edge(store.root, reached)
            edge.look()
            self._edges[store.root] = edge
        else:
            edge.meets(reached, since)

    def _lose(self, why: NotAStoreError | DataLossError) -> None:
        """Report a loss: an error, or a warning with failOnDataLoss=false."""
        if self._options.fail_on_data_loss:
            raise why if isinstance(why, DataLossError) else DataLossError(str(why))
        self._warn(f"failOnDataLoss=false: {why}")

    def _warn(self, text: str) -> None:
        """Log a warning, once for each text."""
        if text not in self._warned:
            if len(self._warned) > 1000:
                self._warned.clear()
            self._warned.add(text)
            log.warning("%s", text)

    # ---- the contents of batches

    def _selection_from(self, store: Snapshot, position: int, since: StoreOffset, least: int | None) -> Selection:
        """The selection in a store after an offset, for a read from a position on."""
        return self._selection(since, least)

    def _selection(self, since: StoreOffset, least: int | None) -> Selection:
        """The selection in a store after an offset."""
        selection = self._options.read.selection
        if since.topics is not None:
            selection = selection.in_topics(since.topics)
        return replace(
            selection.in_queues({name: Numbers(least=first) for name, first in since.starts.items()}),
            store_timestamp=Numbers() if least is None else Numbers(least=least),
        )

    def _selection_of_options(self) -> Selection:
        """The selection with the queues that startingOffsets names, to check that they exist."""
        start = self._options.start
        named = start if isinstance(start, dict) else {}
        offsets = {(topic, queue_id): Numbers() for topic, queues in named.items() for queue_id in queues}
        return self._options.read.selection.in_queues(offsets)


def _clipped(store: Snapshot, begin: int) -> list[Range]:
    """The ranges of a log from a physical offset on."""
    return [replace(r, start=max(r.start, begin)) for r in ranges_of(store) if r.stop > begin]


def _with_proof(r: Range, last: Mark | None) -> Range:
    """A range whose segment may be copied anew before a task reads it: a new object is accepted if it has the last
    planned message, too."""
    pin, at = r.segment.pin, -1 if last is None else last.position - r.segment.start
    if pin is None or not 0 <= at < r.segment.size:
        return r
    with r.store.reader(r.segment) as reader:
        proof = at, reader.read(r.segment.start + at, MARK_SIZE)
    return replace(r, segment=replace(r.segment, pin=replace(pin, proof=proof)))


def _has_passed(store: Snapshot, name: Queue, first: int) -> bool:
    """Does a log have the message with a queue offset? A unit left over by a cut does not count: its message is yet to
    come."""
    units = store.queues.units_with(*name, first)
    return any(store.log.evidence(queue, unit.number, unit) is Evidence.LIVE for queue, unit in units)


def _meet(start: int, stop: int, begin: int, end: int) -> bool:
    return start < end and stop > begin
