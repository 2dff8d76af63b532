"""The live edge of a store: the end of the whole messages of its log that surely stay, found repeatedly at little cost.

The bytes that a broker has written are in the system's memory, which outlives the broker: after a kill the recovery
keeps every whole unit, and cuts the log at the first that is not whole (CommitLog.recoverAbnormally, 4.9 to 5.5). So
the edge is where the log ends (store/log_end.py). The last unit waits until its ConsumeQueue or a later unit proves
that it was written to its end; where nobody holds the store's lock, it waits until two looks saw the same whole unit.
Messages that are lost in an outage of the machine, or that a replicated broker cuts when another one becomes master,
may have been seen here before: then the log no longer has the message that was last before the edge, and the loss is
detected.

An idle look is one request, or two where the last message is large: for the last message's head, and for the zeros
where the next message will be. More of the store is looked at only when something new is there. In object storage the
segments are listed first, as nothing else shows new messages there.
"""

import bisect
import contextlib
import logging
import os
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from native_io import Filter, Status
from rmqstore_spark.errors import DamagedStoreError, DataLossError, DeletedMeanwhileError
from rmqstore_spark.store.format.message import MARK_SIZE, Mark, mark_of
from rmqstore_spark.store.io.files import Files, Pin
from rmqstore_spark.store.log_end import End, LogEnd
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.kinds import led_by, wrapped_logs
from rmqstore_spark.store.structures.layout import announce, name_of, segment_paths
from rmqstore_spark.store.structures.segments import Damage, Segment

log = logging.getLogger(__name__)

_NEXT_SIZE = 8  # bytes of the next unit: a total size and a magic, never zero both
_NEAR = 4096  # bytes of a last message that are read rather than skipped with a second request
_SECONDS = 1.0  # between looks at files that seldom change
_COPIES = 3  # newer copies of another segment, after which the missing rest of a copy is taken to be missing for good
_MOST_SECONDS = 60.0  # between looks at bytes that stay in the place of the next unit and are none


ADVICE = "begin with a new checkpoint, or give failOnDataLoss=false to go on with what is there"


class Reached(NamedTuple):
    """A place in a log.

    Attributes:
        position: a physical offset: a unit's start, or where the log ends.
        last: the last message before the position, None where there is none or it is not known.
    """

    position: int
    last: Mark | None


class AnyEdge(Protocol):
    """Follows a log: that of a store, or of a queue in a tiered store."""

    def look(self, read: int | None = None) -> Reached:
        """The edge as of now; never before the last one.

        Args:
            read: the position up to which the log was read, if that is to be checked.
        """

    def is_restarted(self) -> bool:
        """May a broker have started, and have cut the log, since its end was searched for?"""

    def meets(self, place: Reached, since: int) -> None:
        """Make sure that the messages of the log lead from `since` to a place that the log had."""


def check(store: Snapshot, reached: Reached) -> None:
    """Make sure that a log still has a place, and everything after it.

    Raises:
        DataLossError: the log does not have the place; the text says what is gone.
    """
    position, last = reached
    if not store.segments:
        raise DataLossError(f"{store.root}: the log is empty, but it was read to commitLogOffset {position}; {ADVICE}")
    begin, end = store.segments[0].start, store.segments[-1].end
    if position < begin:
        raise DataLossError(
            f"{store.root}: commitLogOffsets {position} to {begin - 1} are gone: their segments were deleted before "
            f"they were read; {ADVICE}"
        )
    if position > end:
        raise _changed(store, reached, f"now its files end at {end}")
    if last is not None and last.position >= begin and (found := mark_at(store, last.position)) != last:
        raise _changed(store, reached, _another(last, found), may_be_damage=found is None)


def after_loss(store: Snapshot, position: int) -> Reached:
    """The place to go on at in a log that has lost the messages at a physical offset: the first unit that it has from
    there on, or its end; the offset itself where damage is there."""
    begin = store.segments[0].start if store.segments else 0
    if not store.segments or position < begin:
        return Reached(begin, None)
    found = _reached_by(store, _end_of(store).find(), None)
    return found if found.position <= position else _around(store, position, found.position)[1]


def before_loss(store: Snapshot, position: int) -> Reached:
    """The last place before a physical offset at which a log has lost messages: the end of a message, or of the log;
    the offset itself where damage is there."""
    if not store.segments:
        return Reached(position, None)
    found = _reached_by(store, _end_of(store).find(), None)
    if found.position <= position:
        return min(found, Reached(position, None), key=lambda place: place.position)
    return _around(store, position, found.position)[0]


def is_in_damage(store: Snapshot, place: Reached) -> bool:
    """Is a place not where its last message ends? Then a batch met damage there, and ended inside it."""
    position, last = place
    segment = _segment_at(store.segments, position)
    if last is None or segment is None or position == segment.start:
        return False
    if last.position < segment.start:
        return True
    with store.reader(segment) as reader:
        header = reader.header(last.position)
    # Older versions kept the place behind the header of an entry whose unit was not whole yet.
    return header is not None and header.position + header.size not in (position, position - segment.header)


def past_mended(store: Snapshot, position: int) -> int:
    """The end of the message that reaches over a physical offset: a batch ended there inside damage, and the message
    counts to that batch now that the damage is mended. Without such a message, the offset itself."""
    return _around(store, position, store.segments[-1].end)[1].position


class Edge:
    """Follows the log of one store.

    Large because a look goes on from the one before: the fields are what that one saw, and when to search anew.

    Args:
        root: the store directory.
        files: how to reach files, as they are now, and where requests and bytes are counted.
        commitlogs: the commitlog's directories where they are not <root>/commitlog.
        known: a place that the log had; None where the end must be searched for.
        clock: seconds that pass.
    """

    def __init__(
        self,
        root: str,
        files: Files,
        commitlogs: list[str] | None = None,
        known: Reached | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root
        self._files = files
        self._commitlogs = commitlogs
        self._clock = clock
        self._store: Snapshot | None = None
        self._reached = known
        self._was_started: list[object] | None = None  # the last answer of _started()
        self._look_again = clock() + _SECONDS
        self._patience = _SECONDS
        # The segment whose copy lacks its end; and of each segment, the objects seen since.
        self._incomplete: tuple[tuple[int, Pin | None], dict[int, set[Pin | None]]] | None = None

    def look(self, read: int | None = None) -> Reached:
        """The edge as of now; never before the last one. The cost depends on how much is new.

        Args:
            read: the physical offset up to which the log was read, if that is to be checked: the bytes after it are
                read next, so they are checked against the log at once if a broker has started.

        Raises:
            NotAStoreError: the store is gone.
            DataLossError: the log has lost or changed messages that it had.
            DamagedStoreError: several files claim the same physical offsets.
        """
        if self._store is None or self._reached is None:
            return self._search()
        try:
            return self._look(self._reached, read is not None and read < self._reached.position)
        except (DamagedStoreError, DeletedMeanwhileError):
            return self._search()

    def is_restarted(self) -> bool:
        """May a broker have started since the log's end was searched for? Such a broker may have cut the log."""
        self._files = self._files.fresh()
        return self._started() != self._was_started

    def meets(self, place: Reached, since: int) -> None:
        """Make sure, as of the last look, that the messages of the log lead to a place that the log had.

        Args:
            since: a physical offset to which they lead, at or before it.

        Raises:
            DataLossError: the messages do not lead there.
        """
        if self._store is not None and self._reached is not None:
            _meet(self._store, place, self._reached.position, since)

    # ---- a look

    def _look(self, reached: Reached, is_unread: bool) -> Reached:
        store = self._store
        if store is None or self._files.is_snapshot:
            store = self._open()
            check(store, reached)
        if is_unread and self._started() != self._was_started:
            return self._search()
        segment = _segment_at(store.segments, reached.position)
        if segment is None:
            if not self._is_there(reached.position) and not self._is_due():
                return reached
            store = self._open()
            segment = _segment_at(store.segments, reached.position)
            if segment is None:
                return reached
        with store.reader(segment) as reader:
            is_same, following = _peek(reader, reached)
            has_grown = reader.file_end > segment.start + segment.size  # a cut file that was mended, or a copy
        if not is_same and reached.last is not None:
            found = mark_at(store, reached.last.position)
            raise _changed(store, reached, _another(reached.last, found), may_be_damage=found is None)
        if not any(following):
            self._patience = _SECONDS
            # A log that goes on in the next segment has lost the rest of this one.
            if self._is_due() and (
                has_grown or self._started() != self._was_started or self._begins_with_unit(segment.end)
            ):
                return self._search()
            return reached
        # A broker that has started may have cut the log before what stands here.
        return self._search() if self._started() != self._was_started else self._go_on(store, segment, reached)

    def _go_on(self, store: Snapshot, segment: Segment, reached: Reached) -> Reached:
        """Look at new bytes in the place of the next unit."""
        last = reached.last
        if last is not None and store.segments[0].start <= last.position < segment.start:  # else it was checked before
            check(store, reached)
        found = _reached_by(store, _end_of(store).onward(*reached), reached)
        if found.position == reached.position and segment is store.segments[-1] and self._is_there(segment.end):
            store = self._open()
            found = _reached_by(store, _end_of(store).onward(*reached), reached)
        if found.position > reached.position:
            self._reached = found
            self._look_again = self._clock() + _SECONDS
            self._patience = _SECONDS
            return found
        # The bytes are half a unit, the rest of a unit of a log that was cut, or damage, if a later look proves it.
        if self._is_due():
            self._patience = min(2 * self._patience, _MOST_SECONDS)
            self._look_again = self._clock() + self._patience
            return self._search()
        return reached

    def _search(self) -> Reached:
        """Search for the edge anew. After a broker has started, the last segment is walked through from its start: if
        the log was cut there, the message that was last may still be in the file, but no longer belongs to the log.
        """
        known = self._reached
        store = self._open(is_whole=True)
        started = self._started()  # once: a broker that starts from now on is noticed at the next look
        is_restarted = started != self._was_started
        if known is not None:
            check(store, known)
        last = None if known is None or is_restarted or is_in_damage(store, known) else known.last
        self._was_started = started
        hint = None if known is None or last is None else (known.position, last)
        found = _reached_by(store, _end_of(store).find(hint), known)
        if known is not None:
            if self._files.is_snapshot:
                found = self._complete(store, known, found)
            _meet(store, known, found.position, 0 if is_restarted else known.position)
            found = max(found, known, key=lambda place: place.position)
        self._reached = found
        return found

    def _open(self, is_whole: bool = False) -> Snapshot:
        """The store with its segments as they are now.

        Args:
            is_whole: whether most of it is looked at.
        """
        if self._store is not None:
            self._files = self._files.fresh()
        if is_whole:
            announce(self._root, self._files)
        self._store = Snapshot.find(self._root, self._files, self._commitlogs)
        return self._store

    def _is_due(self) -> bool:
        """Is it time for one of the looks that are made once in a while?"""
        now = self._clock()
        if now < self._look_again:
            return False
        self._look_again = now + _SECONDS
        return True

    def _started(self) -> list[object]:
        """A value that changes when a broker starts here: the times at which it wrote its files, in nanoseconds; in
        object storage the identities of these objects. A start may go unnoticed there, but then a cut is noticed when
        the message that was last is overwritten. Where another node may have entries taken back, it changes, too, when
        one becomes the leader."""
        found = list[object]()
        names = ("lock", "abort") if self._files.is_snapshot else ("lock",)
        paths = [os.path.join(self._root, name) for name in names]
        if self._store is not None and any(segment.wrapping for segment in self._store.segments[-1:]):
            with contextlib.suppress(OSError):
                paths += led_by(self._root, self._files)
        for path in paths:
            with contextlib.suppress(OSError):
                found.append(self._files.pin(path) or self._files.status(path).st_mtime_ns)
        return found

    def _is_there(self, start: int) -> bool:
        """Is there a segment of this name?"""
        return any(map(self._files.exists, self._paths_of(start)))

    def _paths_of(self, start: int) -> list[str]:
        """The paths that the segment of a physical offset can have: also where the last one is that was seen."""
        segments = [] if self._store is None else self._store.segments
        beside = {os.path.dirname(segment.path) for segment in segments[-1:]}
        if not segments and self._commitlogs is None:
            beside.update(wrapped_logs(self._root, self._files.names(self._root), self._files))
        paths = segment_paths(self._root, self._commitlogs, start)
        return list(dict.fromkeys([*paths, *(os.path.join(each, name_of(start)) for each in sorted(beside))]))

    def _complete(self, store: Snapshot, known: Reached, found: Reached) -> Reached:
        """The end of a log that is copied to object storage repeatedly, where the newest segments may come before the
        rest of older ones. The edge waits for that rest until so many newer copies of others came that the rest never
        will."""
        there = _reached_by(store, _end_of(store).onward(*known), known)
        at = _segment_at(store.segments, there.position)
        if found.position <= (there.position if at is None else at.end):
            return found
        start, pin = (there.position, None) if at is None else (at.start, at.pin)
        if self._incomplete is None or self._incomplete[0] != (start, pin):
            log.warning(
                "%s: the log goes on in a later segment, but the part after commitLogOffset %d is not there yet; "
                "waiting for it",
                *(store.root, there.position),
            )
            self._incomplete = (start, pin), {}
        seen = self._incomplete[1]
        for segment in store.segments:
            seen.setdefault(segment.start, set()).add(segment.pin)
        return found if max(map(len, seen.values())) > _COPIES else there

    def _begins_with_unit(self, start: int) -> bool:
        wrapping = self._store.segments[-1].wrapping if self._store is not None and self._store.segments else None
        at = start + (0 if wrapping is None else wrapping.header)
        end = at + MARK_SIZE
        for path in self._paths_of(start):
            if self._files.exists(path):
                with SegmentReader(Segment(path, start, end, end - start, wrapping=wrapping), self._files) as reader:
                    return _mark_in(reader, at) is not None
        return False


def _end_of(store: Snapshot) -> LogEnd:
    return LogEnd(store.layout, store.segments, store.queues, store.files, lambda: store.checkpoint, is_followed=True)


def _reached_by(store: Snapshot, end: End, known: Reached | None) -> Reached:
    """The place of an end. Where the last unit of the log waits for a proof, the last message is the one before.

    A segment's closing blank is passed with the first message of the next segment only: a broker that was killed
    between the two goes on in the blank's place.
    """
    following = _segment_at(store.segments, end.position)
    is_behind_blank = following is not None and store.segments[0].start < following.start == end.position
    last = end.last
    if last is not None:
        return Reached(last.position + last.size if is_behind_blank else end.position, mark_at(store, last.position))
    if known is not None and end.position == known.position:
        return known
    segment = _segment_at(store.segments, end.position - 1)
    if segment is None:
        return Reached(end.position, None)
    start = segment.start if known is None else max(segment.start, known.position)
    with store.reader(segment) as reader:
        position, _ = reader.walk(start, end.position)
        if position is not None and is_behind_blank:
            return place_after(reader, position)
        if position is not None:
            return Reached(end.position, _mark_in(reader, position))
    if is_behind_blank:
        return known or Reached(end.position, None)
    # Nothing but damage is between.
    is_next = known is not None and start == known.position
    return Reached(end.position, known.last if known is not None and is_next else _last_before(store, segment))


def _last_before(store: Snapshot, following: Segment) -> Mark | None:
    """The last message of the segment before this one, as far as there is no damage."""
    segment = _segment_at(store.segments, following.start - 1)
    if segment is None:
        return None
    with store.reader(segment) as reader:
        position, _ = reader.walk(segment.start, segment.end)
        return None if position is None else _mark_in(reader, position)


def _changed(store: Snapshot, reached: Reached, now: str, *, may_be_damage: bool = False) -> DataLossError:
    damage = "is damaged there (once that is mended, start the query again), " if may_be_damage else ""
    return DataLossError(
        f"{store.root}: the log is not the one that was read to commitLogOffset {reached.position}: {now}; it {damage}"
        f"was truncated and written again, or replaced by an older copy; {ADVICE}"
    )


def _around(store: Snapshot, position: int, end: int) -> tuple[Reached, Reached]:
    """The last place up to a physical offset at which a unit ends, and the first one from there on, in a log that goes
    on to `end`. Both are the offset itself where damage is there, or a segment is missing."""
    here, segment = Reached(position, None), _segment_at(store.segments, position)
    if segment is None or position == segment.start:
        return here, here
    before = Reached(segment.start, None)
    with store.reader(segment) as reader:
        last = position + segment.header
        for found in store.past_damage(reader).select(segment.start, min(end, segment.end), Filter(), last):
            if isinstance(found, Damage):
                before = Reached(min(found.stop, position), before.last)
                if found.stop >= position:
                    return before, before
                continue
            some = [int(each) for each in found.positions[: np.searchsorted(found.positions, last)][-2:]]
            if not some:
                continue
            after = place_after(reader, some[-1])
            if after.position > position and len(some) > 1:
                before = place_after(reader, some[0])
            if after.position >= position:
                return after if after.position == position else before, after
            before = after
    return before, Reached(segment.end, before.last)  # a blank is there


def _meet(store: Snapshot, place: Reached, end: int, since: int) -> None:
    """Make sure that the messages of a log that ends at `end` lead from the physical offset `since` to a place."""
    position, last = place
    # The message that was last may need a proof again, though it had one before.
    segment = None if last is None else _segment_at(store.segments, last.position)
    if end < position and (last is None or segment is None or end + segment.header != last.position):
        raise _changed(store, place, f"now it ends at {end}")
    segment = _segment_at(store.segments, position)
    if segment is None:
        return
    with store.reader(segment) as reader:
        _, walked = reader.walk(max(since, segment.start), position)
        is_another = walked.status is Status.BLANK or reader.header(walked.at) is not None
        if walked.at != position and is_another and not _was_damage(reader, last, walked.at):
            raise _changed(store, place, f"now what begins at {walked.at} reaches beyond that")


def _was_damage(reader: SegmentReader, last: Mark | None, at: int) -> bool:
    """Does a physical offset come just after the last message of a batch? Then the batch, which has gone on behind the
    offset, met damage there."""
    if last is None or last.position < reader.segment.start:
        return last is not None and at == reader.segment.start
    header = reader.header(last.position)
    return header is not None and header.position + header.size == at


def mark_at(store: Snapshot, position: int) -> Mark | None:
    """The mark of the message at a position of a log; None where there is none."""
    segment = _segment_at(store.segments, position)
    if segment is None:
        return None
    with store.reader(segment) as reader:
        return _mark_in(reader, position)


def _another(last: Mark, found: Mark | None) -> str:
    return f"expected the message at {last.position} with {mark_text(last)}, found {mark_text(found)}"


def mark_text(mark: Mark | None) -> str:
    """What tells a message from others, for texts."""
    return "none" if mark is None else f"storeTimestamp {mark.store_timestamp} and bodyCRC {mark.body_crc}"


def _segment_at(segments: list[Segment], position: int) -> Segment | None:
    """The segment that a physical offset is in."""
    index = bisect.bisect_right(segments, position, key=lambda segment: segment.start) - 1
    return segments[index] if index >= 0 and position < segments[index].end else None


def _peek(reader: SegmentReader, reached: Reached) -> tuple[bool, bytes]:
    """Is the last message still there, if it is in this segment; and the bytes after it."""
    position, last = reached
    if last is None or last.position < reader.segment.start:
        return True, reader.read(position, _NEXT_SIZE)
    size = position - last.position
    if size <= _NEAR:
        data = reader.read(last.position, size + _NEXT_SIZE)
        return mark_of(data[:size], last.position) == last, data[size:]
    return _mark_in(reader, last.position) == last, reader.read(position, _NEXT_SIZE)


def _mark_in(reader: SegmentReader, position: int) -> Mark | None:
    return mark_of(reader.read(position, MARK_SIZE), position)


def place_after(reader: SegmentReader, position: int) -> Reached:
    """The place after a message.

    Args:
        position: the message's physical offset.

    Raises:
        DamagedStoreError: there is no message.
    """
    header = reader.header(position)
    mark = _mark_in(reader, position if header is None else header.position)
    if header is None:
        raise DamagedStoreError(f"{reader.segment.path}: expected a message at commitLogOffset {position}, found none")
    return Reached(header.position + header.size, mark)
