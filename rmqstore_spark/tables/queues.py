"""Table `queues`: the contents of each queue, as RocketMQ's topicStatus shows them for a running broker.

Offsets are those that the log confirms (store/queue_bounds.py). For queues that are lost or lack messages, the log
itself is read, message by message (unqueued.py).
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from native_io import UnitKind
from rmqstore_spark.columns import INT, LONG, TEXT, TIME, Column
from rmqstore_spark.errors import counted, one_line
from rmqstore_spark.garbage import collector_paused
from rmqstore_spark.kept import kept
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import EVERYTHING, Selection
from rmqstore_spark.read.pieces.queue_claims import selected_queues
from rmqstore_spark.read.run.damage_reports import say_lost, say_passed_over
from rmqstore_spark.store.queue_bounds import ManyBounds, UnitNumbers, many_bounds
from rmqstore_spark.store.snapshot import LogQueue, Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue
from rmqstore_spark.store.structures.consumer_offsets import ConsumerOffsets
from rmqstore_spark.store.structures.many_headers import NO_TIME
from rmqstore_spark.store.structures.queue_heads import QUEUES_AT_ONCE, short_queues
from rmqstore_spark.tables.columns import array, numbers
from rmqstore_spark.tables.table import Part, Table
from rmqstore_spark.tables.unqueued import Unqueued, unqueued

_ROWS_AT_ONCE = 8192
_NUMBERS_AT_ONCE = 256 * 1024  # that wait until they are looked at together

_Longs = npt.NDArray[np.int64]
_Ints = npt.NDArray[np.int32]


class Ahead(NamedTuple):
    """Messages at the end of a queue that would be after the log's end; `queue_offset`: of the first one."""

    topic: str
    queue_id: int
    queue_offset: int
    messages: int


@dataclass(frozen=True, eq=False)
class QueueFacts:
    """The facts about queues, by topic and queueId: lists and arrays with an item for each queue.

    Large because a queue has as many facts.

    Attributes:
        names: topic and queueId.
        kinds: what queueType says, for users.
        are_additional: which have messages that other queues have as well (Queue.is_additional).
        least, end: queue offsets.
        positions: rows: physical offsets of the first and of the last message; -1 where there is none.
        times: rows: store times (us) of these; NO_TIME where there is none, or it is not known.
        files, nbytes: the number of files, and their bytes on the disk.
        queues: the queue that finds messages by their queue offset; None where there is none.
        unqueued: store times, by the index of the queue and the queue offset, of messages that no queue file has and a
            group consumed last.
        consumed_times: for each of the offsets that were asked about, the store time (us) of the message before it, by
            the queue's files; NO_TIME where nothing was found. None where nothing was asked.
        lost: how many units between `least` and `end` only lead consumers over messages that a salvage has not found;
            None where there are none.
        ahead: what queues know of messages after the log's end, light queues left out: the log has lost its end. In a
            store that a broker has left without a clean stop, or writes, that is nothing odd, and not told.
    """

    names: list[tuple[str, int]]
    kinds: list[str]
    are_additional: npt.NDArray[np.bool_]
    least: _Longs
    end: _Longs
    positions: _Longs
    times: _Longs
    files: _Longs
    nbytes: _Longs
    queues: list[Queue | None]
    unqueued: dict[tuple[int, int], int] = field(default_factory=dict)
    consumed_times: _Longs | None = None
    lost: _Longs | None = None
    ahead: tuple[Ahead, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    @property
    def counts(self) -> _Longs:
        """Messages of each queue."""
        return self.end - self.least - (0 if self.lost is None else self.lost)

    @kept
    def topics(self) -> tuple[list[str], _Longs]:
        """The topics that have queues, in order, and where the queues of each begin and the last ones end."""
        texts = [topic for topic, _ in self.names]
        starts = [at for at, topic in enumerate(texts) if at == 0 or topic != texts[at - 1]]
        return [texts[at] for at in starts], np.array([*starts, len(texts)], np.int64)

    def without_light(self) -> "QueueFacts":
        """Those of queues that have each message once, as of only()."""
        return self.only(~self.are_additional) if self.are_additional.any() else self

    def only(self, which: "npt.NDArray[np.bool_] | Sequence[int]") -> "QueueFacts":
        """Those of some queues, without what was found of consumed messages, and after the log's end."""
        rows = np.arange(len(self))[which]
        some = rows.tolist()
        return QueueFacts(
            names=[self.names[row] for row in some],
            kinds=[self.kinds[row] for row in some],
            are_additional=self.are_additional[rows],
            least=self.least[rows],
            end=self.end[rows],
            positions=self.positions[:, rows],
            times=self.times[:, rows],
            files=self.files[rows],
            nbytes=self.nbytes[rows],
            queues=[self.queues[row] for row in some],
            lost=None if self.lost is None else self.lost[rows],
        )


def queue_facts(
    store: Snapshot,
    selection: Selection = EVERYTHING,
    asked: ConsumerOffsets | None = None,
    of_logs: list[LogQueue] | None = None,
) -> QueueFacts:
    """The queues of a store whose topic and queueId are selected.

    Args:
        asked: offsets; the times of the messages before them are wanted, too.
        of_logs: the queues that logs tell by themselves; by default that of the store's log.
    """
    with collector_paused():
        assumed = None if selection.assigned is None else store.queues.assumed(selection.assigned)
        queues = selected_queues(store.queues, selection) if assumed is None else _selected(assumed, selection)
        before = None if asked is None else Before(asked, slice(0, len(asked.offsets)), queues)
        bounds = many_bounds(store, queues, None if before is None else before.numbers)
        if assumed is not None:
            bounds = bounds.of_existing()
        found = _Rows(bounds, store.queues_of_log() if of_logs is None else of_logs)
        offsets_of = functools.cache(store.consumer_offsets.of_queue)
        for message in unqueued(store, selection, bounds):
            is_consumed = message.offset + 1 in offsets_of(message.topic, message.queue_id)
            found.add(message, store.queues.kind_of_lost, is_consumed)
        facts = replace(found.facts(), ahead=tuple(_ahead(store, bounds)))
    if store.written.has_lost:
        facts = replace(facts, lost=_lost_in(store, facts))
    return facts if before is None else replace(facts, consumed_times=before.times(bounds.asked_times))


def _ahead(store: Snapshot, bounds: ManyBounds) -> Iterator[Ahead]:
    rows = np.flatnonzero(bounds.ahead).tolist()
    if rows and not store.layout.abort and not store.files.is_locked(store.layout.lock):
        for row in rows:
            yield Ahead(*bounds.names[row], int(bounds.end[row]), int(bounds.ahead[row]))


def say_what_is_lost(store: Snapshot, facts: QueueFacts) -> None:
    """Say what the log has lost, as far as that is known where only queues are looked at: tables of queues tell of
    messages that are gone, or do not tell of some that were there."""
    for fault in [*store.faults, *store.never_brought()]:
        say_passed_over(fault.place)
    if facts.ahead:
        first, count = facts.ahead[0], sum(each.messages for each in facts.ahead)
        say_lost(
            f"{store.root}: the log has lost its end: it ends at {store.end}, and queues know of "
            f"{counted(count, 'later message')}, the first with queueOffset {first.queue_offset} in topic "
            f"{one_line(first.topic)}, queueId {first.queue_id}"
        )


def _selected(queues: list[Queue], selection: Selection) -> list[Queue]:
    if replace(selection, assigned=None).wants_all_queues:
        return queues
    return [queue for queue in queues if selection.queue(queue.topic, queue.queue_id) is not None]


def _lost_in(store: Snapshot, facts: QueueFacts) -> _Longs:
    """The number of units of lost messages in each queue, from its first message on."""
    lost = np.zeros(len(facts), np.int64)
    rows = [row for row, queue in enumerate(facts.queues) if queue is not None]
    for at in range(0, len(rows), QUEUES_AT_ONCE):
        some = rows[at : at + QUEUES_AT_ONCE]
        units, counts = short_queues([queue for row in some if (queue := facts.queues[row]) is not None], store.files)
        which = np.repeat(some, np.maximum(counts, 0))
        are_lost = (units.kinds == UnitKind.LOST) & (units.numbers >= facts.least[which])
        lost += np.bincount(which[are_lost & (units.numbers < facts.end[which])], minlength=len(facts))
        for row, count in zip(some, counts, strict=True):
            queue = facts.queues[row]
            if count < 0 and queue is not None:
                blocks = queue.blocks(int(facts.least[row]), int(facts.end[row]))
                lost[row] = sum(int((block.kinds == UnitKind.LOST).sum()) for block in blocks)
    return lost


class Before:
    """The queue offsets before those of some rows that are asked about, in queues that find them.

    Attributes:
        numbers: these queue offsets, each once.
    """

    def __init__(self, asked: ConsumerOffsets, rows: slice, queues: list[Queue]) -> None:
        self._asked = asked
        self._rows = rows
        self._index = asked.index_in([(queue.topic, queue.queue_id) for queue in queues])
        self._are_by_offset = np.array([queue.is_by_offset for queue in queues] + [False], np.bool_)  # -1: no queue
        self.numbers = UnitNumbers.nothing(len(queues))
        waiting: list[UnitNumbers] = []
        for piece in asked.pieces(rows):
            _, which, before = self._in(piece)
            waiting.append(UnitNumbers.of(len(queues), which, before)[0])
            if sum(len(each.numbers) for each in waiting) > max(_NUMBERS_AT_ONCE, len(self.numbers.numbers)):
                self.numbers, waiting = self.numbers.with_more(waiting), []
        if waiting:
            self.numbers = self.numbers.with_more(waiting)

    def _in(self, piece: slice) -> tuple[_Longs, _Ints, _Longs]:
        """Which of some rows ask, the index of the queue of each, and the queue offset before it."""
        which, offsets = self._index(piece), self._asked.offsets[piece]
        rows = np.flatnonzero(self._are_by_offset[which] & (offsets > 0))
        return rows, which[rows], offsets[rows] - 1

    def times(self, of_numbers: _Longs) -> _Longs:
        """For each of the rows what is known of the offset before its own, given this for `numbers`; NO_TIME where
        nothing is."""
        times = np.full(self._rows.stop - self._rows.start, NO_TIME, np.int64)
        for piece in self._asked.pieces(self._rows):
            rows, which, before = self._in(piece)
            times[piece.start - self._rows.start + rows] = of_numbers[self.numbers.index_of(which, before)]
        return times


# The numbers of a queue, as _Rows has them.
_LEAST, _END, _FIRST_POSITION, _LAST_POSITION, _FIRST_TIME, _LAST_TIME, _FILES, _NBYTES = range(8)
_NOTHING = 0, 0, -1, -1, NO_TIME, NO_TIME, 0, 0


class _Rows:
    """The facts of queues, as they are found."""

    def __init__(self, bounds: ManyBounds, of_logs: list[LogQueue]) -> None:
        self._names = list(bounds.names)
        self._kinds, self._are_additional = _kinds(bounds.queues)
        self._numbers = np.stack(
            [bounds.least, bounds.end, *bounds.positions, *bounds.times, bounds.files, bounds.nbytes]
        )
        self._queues: list[Queue | None] = list(bounds.by_offset)
        self._more: list[list[int]] = []  # the numbers of further queues
        self._unqueued: dict[tuple[int, int], int] = {}
        self._by_name: dict[tuple[str, int], int] = {}
        for queue in of_logs:
            self._put((queue.topic, queue.queue_id), "simple", _of_log(queue))

    def add(self, message: Unqueued, kind: str, is_consumed: bool) -> None:
        """Add a message that the queue's files do not have; messages come in the order of the log.

        Args:
            kind: of a queue that is not known yet.
            is_consumed: whether a group consumed it last.
        """
        if not self._by_name:
            self._by_name = {name: row for row, name in enumerate(self._names)}
        name, offset = (message.topic, message.queue_id), message.offset
        row = self._by_name.get(name)
        if row is None:
            row = self._by_name[name] = len(self._names)
            self._put(name, kind, list(_NOTHING))
        known = self._numbers.shape[1]
        numbers = self._numbers[:, row] if row < known else self._more[row - known]
        if numbers[_FIRST_POSITION] < 0:
            numbers[_LEAST] = numbers[_END] = offset
            numbers[_FIRST_POSITION], numbers[_FIRST_TIME] = message.position, message.time
        numbers[_END] = max(numbers[_END], offset + 1)
        numbers[_LAST_POSITION], numbers[_LAST_TIME] = message.position, message.time
        if is_consumed:
            self._unqueued[row, offset] = message.time

    def _put(self, name: tuple[str, int], kind: str, numbers: list[int]) -> None:
        self._names.append(name)
        self._kinds.append(kind)
        self._are_additional.append(False)
        self._queues.append(None)
        self._more.append(numbers)

    def facts(self) -> QueueFacts:
        """All of them."""
        numbers = np.concatenate([self._numbers, np.array(self._more, np.int64).reshape(-1, 8).T], axis=1)
        order = _order(self._names)
        places = {row: at for at, row in enumerate(order)} if self._unqueued else {}
        numbers = numbers[:, order]
        return QueueFacts(
            [self._names[row] for row in order],
            [self._kinds[row] for row in order],
            np.array(self._are_additional, np.bool_)[order],
            numbers[_LEAST],
            numbers[_END],
            numbers[_FIRST_POSITION : _LAST_POSITION + 1],
            numbers[_FIRST_TIME : _LAST_TIME + 1],
            numbers[_FILES],
            numbers[_NBYTES],
            [self._queues[row] for row in order],
            {(places[row], offset): time for (row, offset), time in self._unqueued.items()},
        )


def _kinds(queues: list[Queue]) -> tuple[list[str], list[bool]]:
    """The kind of each queue, and whether it is additional. All of a topic that are of one class answer alike."""
    names = [(type(queue), queue.topic) for queue in queues]
    known = {name: (queue.kind, queue.is_additional) for name, queue in dict(zip(names, queues, strict=True)).items()}
    return [known[name][0] for name in names], [known[name][1] for name in names]


def _order(names: list[tuple[str, int]]) -> list[int]:
    """The indices of names, in their order; equal ones stay in theirs."""
    ranks = {topic: rank for rank, topic in enumerate(sorted({topic for topic, _ in names}))}
    topics, queue_ids = (np.fromiter(of, np.int64) for of in ((ranks[t] for t, _ in names), (n for _, n in names)))
    found: list[int] = np.lexsort((queue_ids, topics)).tolist()
    return found


def _of_log(queue: LogQueue) -> list[int]:
    """The numbers of the queue that a log is of, by the log's first and last message. It has no offsets in a
    commitlog."""
    _, _, first, last, end = queue
    if first is None or last is None:
        return list(_NOTHING)
    times = [NO_TIME if each.store_timestamp is None else each.store_timestamp for each in (first, last)]
    return [first.queue_offset, end, -1, -1, *times, 0, 0]


def _rows(store: Snapshot, options: ReadOptions, part: Part) -> Iterator[pa.RecordBatch]:
    with collector_paused():
        facts = queue_facts(store, options.selection)
        say_what_is_lost(store, facts)
        found = list(_batches(facts))
    yield from found


def _batches(facts: QueueFacts) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(facts), _ROWS_AT_ONCE):
        here = slice(at, at + _ROWS_AT_ONCE)
        topics, queue_ids = zip(*facts.names[here], strict=True)
        positions, times = facts.positions[:, here], facts.times[:, here]
        yield pa.RecordBatch.from_arrays(
            [
                array(topics, TEXT),
                array(queue_ids, INT),
                array(facts.kinds[here], TEXT),
                *(numbers(of[here], LONG) for of in (facts.least, facts.end, facts.counts)),
                *(numbers(of, LONG, of >= 0) for of in positions),
                *(numbers(of, TIME, of != NO_TIME) for of in times),
                numbers(facts.files[here], INT),
                numbers(facts.nbytes[here], LONG),
            ],
            schema=QUEUES.schema,
        )


QUEUES = Table(
    name="queues",
    row="a queue",
    columns=(
        Column("topic", TEXT, "topic of the queue"),
        Column("queueId", INT, "number of the queue in its topic"),
        Column("queueType", TEXT, "simple, batch, lmq or rocksdb"),
        Column("minOffset", LONG, "queue offset of the first message that is left"),
        Column("maxOffset", LONG, "queue offset after the last message"),
        Column("messages", LONG, "number of messages that are left"),
        Column("firstCommitLogOffset", LONG, "physical offset of the first message that is left"),
        Column("lastCommitLogOffset", LONG, "physical offset of the last message"),
        Column("firstStoreTimestamp", TIME, "store time of the first message that is left"),
        Column("lastStoreTimestamp", TIME, "store time of the last message"),
        Column("files", INT, "number of ConsumeQueue files"),
        Column("sizeOnDisk", LONG, "bytes that these files take on the disk"),
    ),
    options=frozenset({"subscribe", "subscribePattern", "assign"}),
    rows=_rows,
    of_queue_logs=True,
)
