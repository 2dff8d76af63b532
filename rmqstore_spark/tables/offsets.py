"""Table `offsets`: each consumer group's progress in each queue, as RocketMQ's consumerProgress shows it for a running
broker. A group's offset is that of the next message that it will get (config/consumerOffset.json)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore_spark.columns import BOOL, INT, LONG, TEXT, TIME, Column
from rmqstore_spark.garbage import collector_paused
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import EVERYTHING, Selection
from rmqstore_spark.store.elsewhere import say_if_unread
from rmqstore_spark.store.queue_times import QueueTimes, times_of
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumer_offsets import ConsumerOffsets
from rmqstore_spark.tables.columns import array, numbers
from rmqstore_spark.tables.queues import QueueFacts, queue_facts
from rmqstore_spark.tables.table import Part, Table

_ROWS_AT_ONCE = 64 * 1024
_OF_QUEUES = {"minOffset", "maxOffset", "lag", "expired"}
_OF_TIMES = {"lastConsumedTimestamp", "lagMillis"}
_NEVER = -(1 << 63)  # in the place of an unknown time: no number of whole milliseconds, in microseconds

_Longs = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    wanted = consumed(store, options.selection)
    if not store.consumer_offsets:
        say_if_unread(store, "consumerOffset.json", OFFSETS.name)
    if not wanted:  # nothing to look up; finding the queues might take a read of the whole log
        return iter(())
    asked = set(options.columns or OFFSETS.schema.names)
    facts = queue_facts(store, _queues_of(wanted)) if asked & (_OF_QUEUES | _OF_TIMES) else ()
    progress = Progress(store, wanted, list(facts))
    with collector_paused():
        times = progress.times(slice(None)) if asked & _OF_TIMES else None
    return _batches(progress, times)


def consumed(store: Snapshot, selection: Selection = EVERYTHING) -> ConsumerOffsets:
    """All progress in selected queues.

    Raises:
        DamagedStoreError: the file of offsets is so large that it is not read whatever its form is.
    """
    store.refuse_unread_offsets()
    offsets = store.consumer_offsets
    if selection.wants_all_queues:
        return offsets
    some = {
        (group, topic): queues
        for group, topic in offsets
        if selection.wants_topic(topic)
        and (queues := {n: at for n, at in offsets[group, topic].items() if selection.queue(topic, n) is not None})
    }
    return ConsumerOffsets.of(some)


def _queues_of(wanted: ConsumerOffsets) -> Selection:
    """The queues that groups have consumed."""
    assigned: dict[str, set[int]] = defaultdict(set)
    queue_ids = wanted.queue_ids.tolist()
    for _, topic, rows in wanted.stretches():
        assigned[topic].update(queue_ids[rows])
    return Selection(assigned={topic: frozenset(ids) for topic, ids in assigned.items()})


class Progress:
    """How far consumer groups are in the queues of a store. Arrays have an item for each row of `consumed`.

    Attributes:
        consumed: the rows.
        is_known: whether the queue exists; other numbers are of no meaning where it does not.
        least, end: the queue's bounds.
        lag: messages.
    """

    def __init__(self, store: Snapshot, consumed: ConsumerOffsets, known: list[QueueFacts]) -> None:
        self.consumed = consumed
        self._store = store
        self._facts = [*known, QueueFacts("", 0, "simple", 0, 0)]  # the last one is of a queue without a message yet
        self._which = self._queues_of_rows(known)
        self.is_known = self._which >= 0
        self.least, self.end = (
            _of(getattr(facts, name) for facts in self._facts)[self._which] for name in ("least", "end")
        )
        self.lag = self.end - np.maximum(consumed.offsets, self.least)

    def _queues_of_rows(self, known: list[QueueFacts]) -> _Longs:
        """The index of each row's queue among the facts; -1 where there is no such queue."""
        found = self.consumed.index_in([(facts.topic, facts.queue_id) for facts in known])
        configured = _of(self._store.topics.get(topic, 0) for _, topic in self.consumed.names)
        is_empty = (found < 0) & (self.consumed.queue_ids < np.repeat(configured, np.diff(self.consumed.bounds)))
        return np.where(is_empty, len(known), found)

    def times(self, rows: slice) -> tuple[_Longs, _Longs]:
        """For some rows, the store time (us) of the last message that the group consumed, and the milliseconds of store
        time from that or else from the first message left to the last message. _NEVER where there is none."""
        which, offsets, is_known = self._which[rows], self.consumed.offsets[rows], self.is_known[rows]
        first, last = (
            _of_times(getattr(facts, name) for facts in self._facts)[which] for name in ("first_time", "last_time")
        )
        least, end = self.least[rows], self.end[rows]
        is_at_end = offsets == end
        is_left = is_known & (least < offsets) & (offsets <= end)
        consumed = np.where(is_left & is_at_end, last, _NEVER)
        missing = np.flatnonzero(is_left & (consumed == _NEVER))
        consumed[missing] = self._looked_up(which[missing], offsets[missing] - 1, is_at_end[missing])
        since = np.where(consumed == _NEVER, first, consumed)
        # Times are of whole milliseconds; in microseconds a difference may be too large.
        millis = np.where((last == _NEVER) | (since == _NEVER), _NEVER, np.maximum(0, last // 1000 - since // 1000))
        millis[self.lag[rows] <= 0] = 0
        return consumed, np.where(is_known, millis, _NEVER)

    def longest(self, rows: slice) -> int | None:
        """The longest of the times from the last consumed message to the last message (ms) in some rows; None where
        none is known."""
        _, millis = self.times(rows)
        known = millis[millis != _NEVER]
        return int(known.max()) if len(known) else None

    def _looked_up(self, which: _Longs, offsets: _Longs, are_last: _Flags) -> _Longs:
        """The store times of messages, by the index of their queue and their queue offset.

        Args:
            are_last: which of them are the last of their queue; these are looked for in its files alone.
        """
        if not len(which):
            return offsets
        order = np.lexsort((offsets, which))
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = (np.diff(which[order]) != 0) | (np.diff(offsets[order]) != 0)
        unique = order[is_new]
        found = np.full(len(unique), _NEVER, np.int64)
        starts = np.flatnonzero(np.diff(which[unique], prepend=-1)).tolist()
        stretches = [
            (start, offsets[unique[start:stop]].tolist(), self._facts[which[unique[start]]])
            for start, stop in zip(starts, [*starts[1:], len(unique)], strict=True)
        ]
        in_files = ((facts.queue, some) for _, some, facts in stretches if facts.queue is not None)
        times = times_of(self._store, in_files)
        one_by_one = QueueTimes(self._store)
        for start, some, facts in stretches:
            if facts.queue is not None:
                of_these = next(times)
            else:
                of_these = [one_by_one.at(facts.topic, facts.queue_id, offset) for offset in some]
            for at, (offset, in_file) in enumerate(zip(some, of_these, strict=True), start):
                time = in_file if are_last[unique[at]] else facts.times.get(offset, in_file)
                found[at] = _NEVER if time is None else time
        back = np.empty(len(order), np.int64)
        back[order] = np.cumsum(is_new) - 1
        return found[back]


def _of(values: Iterable[int]) -> _Longs:
    return np.fromiter(values, np.int64)


def _of_times(values: Iterable[int | None]) -> _Longs:
    return _of(_NEVER if value is None else value for value in values)


def _batches(progress: Progress, times: tuple[_Longs, _Longs] | None) -> Iterator[pa.RecordBatch]:
    """The rows of the table.

    Args:
        times: of all rows; None where they are not asked for.
    """
    consumed, is_known = progress.consumed, progress.is_known
    stretch = np.repeat(np.arange(len(consumed.names)), np.diff(consumed.bounds))
    groups, topics = (array([name[at] for name in consumed.names], TEXT) for at in (0, 1))
    last, millis = times or (np.full(len(is_known), _NEVER),) * 2
    for start in range(0, len(is_known), _ROWS_AT_ONCE):
        here = slice(start, start + _ROWS_AT_ONCE)
        names, known = numbers(stretch[here], LONG), is_known[here]  # pa.array() would import pandas
        yield pa.RecordBatch.from_arrays(
            [
                groups.take(names),
                topics.take(names),
                numbers(consumed.queue_ids[here], INT),
                numbers(consumed.offsets[here], LONG),
                numbers(progress.least[here], LONG, known),
                numbers(progress.end[here], LONG, known),
                numbers(progress.lag[here], LONG, known),
                numbers(last[here], TIME, last[here] != _NEVER),
                numbers(millis[here], LONG, millis[here] != _NEVER),
                numbers(consumed.offsets[here] < progress.least[here], BOOL, known),
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
