"""Table `offsets`: each consumer group's progress in each queue, as RocketMQ's consumerProgress shows it for a running
broker. A group's offset is that of the next message that it will get (config/consumerOffset.json)."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore_spark.columns import BOOL, INT, LONG, TEXT, TIME, Column
from rmqstore_spark.garbage import collector_paused
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import EVERYTHING, Selection
from rmqstore_spark.read.run.damage_reports import say_if_unread
from rmqstore_spark.store.format.stretches import numbers_in
from rmqstore_spark.store.queue_bounds import UnitNumbers
from rmqstore_spark.store.queue_times import QueueTimes, times_of
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumer_offsets import ConsumerOffsets
from rmqstore_spark.store.structures.many_headers import NO_TIME
from rmqstore_spark.tables.columns import array, numbers
from rmqstore_spark.tables.queues import QueueFacts, queue_facts, say_what_is_lost
from rmqstore_spark.tables.table import Part, Table

_OF_QUEUES = {"minOffset", "maxOffset", "lag", "expired"}
_OF_TIMES = {"lastConsumedTimestamp", "lagMillis"}

_Longs = npt.NDArray[np.int64]
_Ints = npt.NDArray[np.int32]
_Flags = npt.NDArray[np.bool_]
_Rows = slice | _Longs


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    wanted = consumed(store, options.selection)
    if not wanted:  # nothing to look up; finding the queues might take a read of the whole log
        say_if_unread(store, "consumerOffset.json", OFFSETS.name)
        return iter(())
    asked = set(options.columns or OFFSETS.schema.names)
    facts = None
    if asked & (_OF_QUEUES | _OF_TIMES):
        facts = queue_facts(store, _queues_of(wanted), wanted if asked & _OF_TIMES else None)
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
    are_some = np.zeros(len(offsets.offsets), np.bool_)
    for _, topic, rows in offsets.stretches():
        if selection.wants_topic(topic):
            queue_ids = offsets.queue_ids[rows].tolist()
            are_some[rows] = [selection.queue(topic, queue_id) is not None for queue_id in queue_ids]
    return offsets.where(are_some)


def _queues_of(wanted: ConsumerOffsets) -> Selection:
    """The queues that groups have consumed."""
    assigned: dict[str, set[int]] = defaultdict(set)
    for _, topic, rows in wanted.stretches():
        assigned[topic].update(wanted.queue_ids[rows].tolist())
    return Selection(assigned={topic: frozenset(ids) for topic, ids in assigned.items()})


class Progress:
    """How far consumer groups are in the queues of a store. What is worked out for rows of `consumed` has an item for
    each of them.

    Attributes:
        consumed: the rows.
    """

    def __init__(self, store: Snapshot, consumed: ConsumerOffsets, facts: QueueFacts | None) -> None:
        self.consumed = consumed
        self._store = store
        self._facts = facts
        self._which = self._queues_of_rows([] if facts is None else facts.names)
        # The last one is of a queue without a message yet.
        self._least, self._end = (
            np.append(of, 0).astype(np.int64) for of in (((), ()) if facts is None else (facts.least, facts.end))
        )
        self._times = np.append(np.empty((2, 0), np.int64) if facts is None else facts.times, [[NO_TIME]] * 2, axis=1)
        self._one_by_one = QueueTimes(store)

    def _queues_of_rows(self, names: list[tuple[str, int]]) -> _Ints:
        """The index of each row's queue among these; -1 where there is no such queue, and their number where it has no
        message yet."""
        consumed, found = self.consumed, self.consumed.index_in(names)
        configured = np.fromiter((self._store.topics.get(topic, 0) for _, topic in consumed.names), np.int64)
        for piece in consumed.pieces():
            is_empty = (found[piece] < 0) & (consumed.queue_ids[piece] < configured[consumed.names_of(piece)])
            found[piece][is_empty] = len(names)
        return found

    def are_known(self, rows: _Rows) -> _Flags:
        """Whether the queues of some rows exist; their numbers are of no meaning where they do not."""
        return self._which[rows] >= 0

    def bounds(self, rows: _Rows) -> tuple[_Longs, _Longs]:
        """The first offset that is left of the queue of each of some rows, and the offset after its last one."""
        which = self._which[rows]
        return self._least[which], self._end[which]

    def lag(self, rows: _Rows) -> _Longs:
        """Messages that some rows are behind."""
        least, end = self.bounds(rows)
        return end - np.maximum(self.consumed.offsets[rows], least)

    def times(self, rows: _Longs) -> tuple[_Longs, _Longs]:
        """For some rows, the store time (us) of the last message that the group consumed, and the milliseconds of store
        time from that or else from the first message left to the last message. NO_TIME where there is none."""
        which, offsets, is_known = self._which[rows], self.consumed.offsets[rows], self.are_known(rows)
        first, last = self._times[:, which]
        least, end = self.bounds(rows)
        is_at_end = offsets == end
        is_left = is_known & (least < offsets) & (offsets <= end)
        consumed = np.where(is_left & is_at_end, last, NO_TIME)
        missing = np.flatnonzero(is_left & (consumed == NO_TIME))
        consumed[missing] = self._looked_up(rows[missing], is_at_end[missing])
        since = np.where(consumed == NO_TIME, first, consumed)
        # Times are of whole milliseconds; in microseconds a difference may be too large.
        is_timed = (last != NO_TIME) & (since != NO_TIME)
        millis = np.where(is_timed, np.maximum(0, last // 1000 - since // 1000), NO_TIME)
        millis[self.lag(rows) <= 0] = 0
        return consumed, np.where(is_known, millis, NO_TIME)

    def longest(self, parts: list[slice]) -> list[int | None]:
        """For each of some parts of the rows the longest of the times from the last consumed message to the last
        message (ms); None where none is known."""
        starts, sizes = np.array([(part.start, part.stop - part.start) for part in parts], np.int64).reshape(-1, 2).T
        rows, stops = numbers_in(starts, sizes), np.cumsum(sizes)
        _, millis = self.times(rows)
        most = [int(some.max(initial=NO_TIME)) for some in np.split(millis, stops)[: len(parts)]]
        return [None if each == NO_TIME else each for each in most]

    def _looked_up(self, rows: _Longs, are_last: _Flags) -> _Longs:
        """The store times (us) of the messages before the offsets of some rows, whose queues have messages.

        Args:
            are_last: which of them are the last of their queue; these are looked for in its files alone.
        """
        facts = self._facts
        if facts is None or not len(rows):
            return np.full(len(rows), NO_TIME, np.int64)
        which, offsets = self._which[rows], self.consumed.offsets[rows] - 1
        have_files = np.array([queue is not None for queue in facts.queues], np.bool_)[which]
        found = np.full(len(rows), NO_TIME, np.int64)
        if facts.consumed_times is not None:
            found[have_files] = facts.consumed_times[rows[have_files]]
        else:
            found[have_files] = self._in_files(facts, which[have_files], offsets[have_files])
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


def _batches(progress: Progress, are_timed: bool) -> Iterator[pa.RecordBatch]:
    """The rows of the table, some at a time.

    Args:
        are_timed: whether times are asked for.
    """
    consumed = progress.consumed
    groups, topics = (array([name[at] for name in consumed.names], TEXT) for at in (0, 1))
    for here in consumed.pieces():
        names, known = numbers(consumed.names_of(here), LONG), progress.are_known(here)  # pa.array() imports pandas
        (least, end), lag = progress.bounds(here), progress.lag(here)
        last = millis = np.full(len(known), NO_TIME)
        if are_timed:
            with collector_paused():
                last, millis = progress.times(np.arange(here.start, here.stop))
        yield pa.RecordBatch.from_arrays(
            [
                groups.take(names),
                topics.take(names),
                numbers(consumed.queue_ids[here], INT),
                numbers(consumed.offsets[here], LONG),
                numbers(least, LONG, known),
                numbers(end, LONG, known),
                numbers(lag, LONG, known),
                numbers(last, TIME, last != NO_TIME),
                numbers(millis, LONG, millis != NO_TIME),
                numbers(consumed.offsets[here] < least, BOOL, known),
            ],
            schema=OFFSETS.schema,
        )


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
    note="The columns from minOffset on are null if the queue does not exist.",
    options=frozenset({"subscribe", "subscribePattern", "assign"}),
    rows=_rows,
)
