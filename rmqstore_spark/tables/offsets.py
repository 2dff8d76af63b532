"""Table `offsets`: each consumer group's progress in each queue, as RocketMQ's consumerProgress shows it for a running
broker. A group's offset is that of the next message that it will get (config/consumerOffset.json)."""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore_spark.columns import BOOL, INT, LONG, TEXT, TIME, Column
from rmqstore_spark.garbage import collector_paused
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import EVERYTHING, Selection
from rmqstore_spark.read.run.damage_reports import say_if_unread
from rmqstore_spark.store.queue_bounds import UnitNumbers
from rmqstore_spark.store.queue_times import QueueTimes, times_of
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumer_offsets import ROWS_AT_ONCE, ConsumerOffsets
from rmqstore_spark.store.structures.many_headers import NO_TIME
from rmqstore_spark.tables.columns import array, numbers
from rmqstore_spark.tables.queues import Before, QueueFacts, queue_facts, say_what_is_lost
from rmqstore_spark.tables.table import Part, Table

_OF_QUEUES = {"minOffset", "maxOffset", "lag", "expired"}
_OF_TIMES = {"lastConsumedTimestamp", "lagMillis"}

_TIMED_AT_ONCE = 1024 * 1024  # rows whose times are looked up together
_MOST_QUEUE_ID = (1 << 32) - 1
_LOW_HALF = (1 << 32) - 1  # of a number

_Longs = npt.NDArray[np.int64]
_Ints = npt.NDArray[np.int32]
_Flags = npt.NDArray[np.bool_]


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    wanted = consumed(store, options.selection)
    if not wanted:  # nothing to look up; finding the queues might take a read of the whole log
        say_if_unread(store, store.offsets_files.name, OFFSETS.name)
        return iter(())
    asked = set(options.columns or OFFSETS.schema.names)
    facts = None
    if asked & (_OF_QUEUES | _OF_TIMES):
        are_few = len(wanted.offsets) <= _TIMED_AT_ONCE
        assigned: dict[str, set[int]] = defaultdict(set)
        for topic, queue_id in _queues_of(wanted):
            assigned[topic].add(queue_id)
        queues = Selection(assigned={topic: frozenset(ids) for topic, ids in assigned.items()})
        facts = queue_facts(store, queues, wanted if asked & _OF_TIMES and are_few else None)
        say_what_is_lost(store, facts)
    return _batches(Progress(store, wanted, facts), bool(asked & _OF_TIMES))


def consumed(store: Snapshot, selection: Selection = EVERYTHING) -> ConsumerOffsets:
    """All progress in selected queues.

    Raises:
        DamagedStoreError: the file of offsets is so large that it is not read whatever its form is.
    """
    topics = selection.named_topics
    store.refuse_unread_offsets(topics)
    offsets = store.offsets_in(topics)
    if selection.wants_all_queues:
        return offsets
    index = offsets.index_in([queue for queue in _queues_of(offsets) if selection.queue(*queue) is not None])
    return offsets.where(lambda rows: index(rows) >= 0)


def _queues_of(offsets: ConsumerOffsets) -> list[tuple[str, int]]:
    """The queues that groups have consumed."""
    found = np.empty(0, np.int64)  # of each the index of its topic, and its queueId
    for piece in offsets.pieces():
        topics = offsets.names.topic_of[offsets.names_of(piece)].astype(np.int64)
        found = np.union1d(found, topics << 32 | offsets.queue_ids[piece])
    texts = map(offsets.names.topics.__getitem__, (found >> 32).tolist())
    return list(zip(texts, (found & _MOST_QUEUE_ID).tolist(), strict=True))


class Some(NamedTuple):
    """How far consumer groups are, for some rows.

    Attributes:
        which: the index of the queue of each among the queues that are known; -1 where it does not exist, and their
            number where it has no message yet.
        offsets: the groups' offsets.
        least, end: the first offset that is left of each one's queue, and the offset after its last one; of no meaning
            where it does not exist.
    """

    which: _Ints
    offsets: _Longs
    least: _Longs
    end: _Longs

    @property
    def are_known(self) -> _Flags:
        """Whether the queues exist."""
        return self.which >= 0

    @property
    def lag(self) -> _Longs:
        """Messages that the groups are behind."""
        return self.end - np.maximum(self.offsets, self.least)

    @classmethod
    def joined(cls, parts: "list[Some]") -> "Some":
        """All rows of some."""
        return parts[0] if len(parts) == 1 else cls(*map(np.concatenate, zip(*parts, strict=True)))


class Progress:
    """How far consumer groups are in the queues of a store. Of all rows nothing is kept: what is worked out is of some.

    Large because the fields are what is the same for all rows, found once.

    Attributes:
        consumed: the rows.
    """

    def __init__(self, store: Snapshot, consumed: ConsumerOffsets, facts: QueueFacts | None) -> None:
        self.consumed = consumed
        self._store = store
        self._facts = facts
        self._count = 0 if facts is None else len(facts)
        self._index = consumed.index_in([] if facts is None else facts.names)
        self._configured = np.fromiter((store.topics.get(topic, 0) for topic in consumed.names.topics), np.int64)
        # The last one is of a queue without a message yet.
        self._least, self._end = (
            np.append(of, 0).astype(np.int64) for of in (((), ()) if facts is None else (facts.least, facts.end))
        )
        self._times = np.append(np.empty((2, 0), np.int64) if facts is None else facts.times, [[NO_TIME]] * 2, axis=1)
        self._one_by_one = QueueTimes(store)

    def of(self, rows: slice) -> Some:
        """That of some rows."""
        consumed, which = self.consumed, self._index(rows)
        configured = self._configured[consumed.names.topic_of[consumed.names_of(rows)]]
        which[(which < 0) & (consumed.queue_ids[rows] < configured)] = self._count
        return Some(which, consumed.offsets[rows], self._least[which], self._end[which])

    def times(self, some: Some, before: _Longs | None = None) -> tuple[_Longs, _Longs]:
        """For some rows, the store time (us) of the last message that the group consumed, and the milliseconds of store
        time from that or else from the first message left to the last message. NO_TIME where there is none.

        Args:
            before: what before() has of these rows; None: it is looked up where it is needed.
        """
        first, last = self._times[:, some.which]
        is_at_end = some.offsets == some.end
        is_left = some.are_known & (some.least < some.offsets) & (some.offsets <= some.end)
        consumed = np.where(is_left & is_at_end, last, NO_TIME)
        missing = np.flatnonzero(is_left & (consumed == NO_TIME))
        consumed[missing] = self._looked_up(
            some.which[missing],
            some.offsets[missing] - 1,
            is_at_end[missing],
            None if before is None else before[missing],
        )
        since = np.where(consumed == NO_TIME, first, consumed)
        # Times are of whole milliseconds; in microseconds a difference may be too large.
        is_timed = (last != NO_TIME) & (since != NO_TIME)
        millis = np.where(is_timed, np.maximum(0, last // 1000 - since // 1000), NO_TIME)
        millis[some.lag <= 0] = 0
        return consumed, np.where(some.are_known, millis, NO_TIME)

    def before(self, rows: slice) -> _Longs | None:
        """For each of some rows the store time (us) of the message before its offset, by the queue's files; NO_TIME
        where nothing was found. None where queues are not known."""
        facts = self._facts
        if facts is None:
            return None
        if facts.consumed_times is not None:
            return facts.consumed_times[rows]
        queues = [queue for queue in facts.queues if queue is not None]
        before = Before(self.consumed, rows, queues)
        return before.times(times_of(self._store, queues, before.numbers))

    def lags(self, parts: list[slice]) -> list[int]:
        """For each of some parts of the rows, which follow each other, the messages that all of its rows are behind.
        Sums are Python's, of two halves of each number: those of offsets that are nonsense may not fit an int64."""
        bounds = np.array([part.start for part in parts] + [part.stop for part in parts[-1:]], np.int64)
        lags = [0] * len(parts)
        for piece in self.consumed.pieces(slice(*bounds[[0, -1]].tolist())) if parts else ():
            some = self.of(piece)
            behind = np.where(some.are_known, np.maximum(some.lag, 0), 0)
            first, stop = np.searchsorted(bounds, (piece.start + 1, piece.stop)).tolist()
            at = np.clip(bounds[first - 1 : stop + 1] - piece.start, 0, len(behind))
            high, low = (
                np.diff(np.append(0, np.cumsum(half))[at]).tolist() for half in (behind >> 32, behind & _LOW_HALF)
            )
            for number, (upper, lower) in enumerate(zip(high, low, strict=True), first - 1):
                lags[number] += (upper << 32) + lower
        return lags

    def longest(self, parts: list[slice]) -> list[int | None]:
        """For each of some parts of the rows the longest of the times from the last consumed message to the last
        message (ms); None where none is known."""
        most = [NO_TIME] * len(parts)
        pieces = [(number, piece) for number, part in enumerate(parts) for piece in self.consumed.pieces(part)]
        for some in _together(pieces):
            _, millis = self.times(Some.joined([self.of(rows) for _, rows in some]))
            stops = np.cumsum([rows.stop - rows.start for _, rows in some])
            for (number, _), each in zip(some, np.split(millis, stops[:-1]), strict=True):
                most[number] = max(most[number], int(each.max(initial=NO_TIME)))
        return [None if each == NO_TIME else each for each in most]

    def _looked_up(self, which: _Ints, offsets: _Longs, are_last: _Flags, before: _Longs | None) -> _Longs:
        """The store times (us) of messages, given the index of their queue, which has messages, and their offset.

        Args:
            are_last: which of them are the last of their queue; these are looked for in its files alone.
            before: what is known by the queues' files; None: it is looked up.
        """
        facts = self._facts
        found = np.full(len(which), NO_TIME, np.int64)
        if facts is None or not len(which):
            return found
        have_files = np.array([queue is not None for queue in facts.queues], np.bool_)[which]
        found[have_files] = (
            self._in_files(facts, which[have_files], offsets[have_files]) if before is None else before[have_files]
        )
        for at in np.flatnonzero(~have_files).tolist():
            topic, queue_id = facts.names[which[at]]
            time = self._one_by_one.at(topic, queue_id, int(offsets[at]))
            found[at] = NO_TIME if time is None else time
        if facts.unqueued:
            pairs = zip(which.tolist(), offsets.tolist(), are_last.tolist(), strict=True)
            for at, (queue, offset, is_last) in enumerate(pairs):
                if not is_last:
                    found[at] = facts.unqueued.get((queue, offset), found[at])
        return found

    def _in_files(self, facts: QueueFacts, which: _Ints, offsets: _Longs) -> _Longs:
        """The store times (us) of messages by their queue's files, given the index of their queue and their offset."""
        unique, of = np.unique(which, return_inverse=True)
        queues = [queue for queue in (facts.queues[row] for row in unique.tolist()) if queue is not None]
        asked, index = UnitNumbers.of(len(queues), of, offsets)
        return times_of(self._store, queues, asked)[index]


def _together(pieces: list[tuple[int, slice]]) -> Iterator[list[tuple[int, slice]]]:
    """Numbered pieces of the rows in lists, so that what is looked up in queues is looked up for many rows at once."""
    some: list[tuple[int, slice]] = []
    size = 0
    for number, rows in pieces:
        some.append((number, rows))
        size += rows.stop - rows.start
        if size >= ROWS_AT_ONCE:
            yield some
            some, size = [], 0
    if some:
        yield some


def _batches(progress: Progress, are_timed: bool) -> Iterator[pa.RecordBatch]:
    """The rows of the table, some at a time.

    Args:
        are_timed: whether times are asked for.
    """
    consumed = progress.consumed
    groups, topics = (array(texts, TEXT) for texts in (consumed.names.groups, consumed.names.topics))
    for rows, before in _before(progress) if are_timed else ((rows, None) for rows in consumed.pieces()):
        names, some = consumed.names_of(rows), progress.of(rows)
        known = some.are_known
        last = millis = np.full(len(known), NO_TIME)
        if are_timed:
            with collector_paused():
                last, millis = progress.times(some, before)
        yield pa.RecordBatch.from_arrays(
            [
                groups.take(numbers(consumed.names.group_of[names], INT)),  # pa.array() imports pandas
                topics.take(numbers(consumed.names.topic_of[names], INT)),
                numbers(consumed.queue_ids[rows], INT),
                numbers(some.offsets, LONG),
                numbers(some.least, LONG, known),
                numbers(some.end, LONG, known),
                numbers(some.lag, LONG, known),
                numbers(last, TIME, last != NO_TIME),
                numbers(millis, LONG, millis != NO_TIME),
                numbers(some.offsets < some.least, BOOL, known),
            ],
            schema=OFFSETS.schema,
        )


def _before(progress: Progress) -> Iterator[tuple[slice, _Longs | None]]:
    """All rows, some at a time, with what Progress.before() has of them: it is looked up for very many at once, as they
    are in the same queues."""
    for block in progress.consumed.pieces(at_once=_TIMED_AT_ONCE):
        with collector_paused():
            before = progress.before(block)
        for rows in progress.consumed.pieces(block):
            yield rows, None if before is None else before[rows.start - block.start : rows.stop - block.start]


OFFSETS = Table(
    name="offsets",
    row="the position of a consumer group in a queue",
    columns=(
        Column("group", TEXT, "the consumer group"),
        Column("topic", TEXT, "topic of the queue"),
        Column("queueId", INT, "number of the queue"),
        Column("consumerOffset", LONG, "queue offset of the next message for the group"),
        Column("minOffset", LONG, "queue offset of the first message that is left"),
        Column("maxOffset", LONG, "queue offset after the last message"),
        Column(
            "lag",
            LONG,
            "number of messages left that the group has not consumed, whatever their tags; below 0 if the queue ends "
            "before the group's offset",
        ),
        Column("lastConsumedTimestamp", TIME, "store time of the last message that the group consumed"),
        Column(
            "lagMillis",
            LONG,
            "milliseconds of store time from the last consumed message, or else the first one left, to the last "
            "message",
        ),
        Column("expired", BOOL, "whether the group's next message has been deleted"),
    ),
    note="The columns from minOffset on are null if the queue does not exist. The queues of a static topic are the "
    "broker's own, the parts of logic queues (table `logicqueues`): of a part that a group has passed, `lag` counts "
    "what is behind the last offset that it left there.",
    options=frozenset({"subscribe", "subscribePattern", "assign"}),
    rows=_rows,
)
