"""The newest message of each key of each queue of compaction topics (compacted.py).

Messages that are superseded are let go at once. Those that are left wait in the order of their keys, in files where
they are many, so that what is held does not grow with the keys; and so do the places of those that are chosen.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore_spark.sorting import Batches, begins, in_order
from rmqstore_spark.store.format.message import are_queued
from rmqstore_spark.temporary import IN_MEMORY
from rmqstore_spark.waiting_numbers import WaitingNumbers

COLUMNS = ["topic", "queueId", "queueOffset", "keys", "sysFlag", "commitLogOffset", "body"]
_NO_SPACES = "\x85\xa0\u2007\u202f"  # for Java, unlike Python
_MOST_ID = (1 << 32) - 1
_MOST = IN_MEMORY // 4  # bytes of messages that are kept, as they take some times as much while they are compared
_SPANS = 256  # of queue offsets, which are joined at once

_KEY = ["topic", "queueId", "keys"]
_ROWS = pa.schema(
    [
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("keys", pa.large_string()),
        ("isOwn", pa.bool_()),  # of the commitlog
        # Of several messages of a key in one log that with the greatest rank counts: of the commitlog the last one; of
        # a compaction log that with the greatest queue offset, of equal ones the first one.
        ("rank", pa.int64()),
        ("rankWithin", pa.int64()),
        ("queueOffset", pa.int64()),
        ("piece", pa.int32()),
        ("position", pa.int64()),
        ("hasBody", pa.bool_()),
    ]
)
_ORDER = [
    *((name, "ascending") for name in _KEY),
    ("isOwn", "descending"),
    ("rank", "descending"),
    ("rankWithin", "descending"),
]
_CHOSEN = pa.schema([_ROWS.field("piece"), _ROWS.field("position")])

_Longs = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]
Queue = tuple[str, int]  # topic and queueId


class _Messages(NamedTuple):
    """Messages of one queue, which have keys.

    Attributes:
        keys: the KEYS text of each (large_string).
        offsets: queue offsets.
        pieces, positions: the number of the piece that each is in, and its offset in that piece's log.
        have_body: which are values; the others delete their key.
    """

    keys: pa.Array
    offsets: _Longs
    pieces: _Longs
    positions: _Longs
    have_body: _Flags

    def only(self, rows: _Longs) -> "_Messages":
        """Some of the messages."""
        keys = self.keys.take(_indices(rows))
        return _Messages(keys, self.offsets[rows], self.pieces[rows], self.positions[rows], self.have_body[rows])

    @classmethod
    def joined(cls, some: Sequence["_Messages"]) -> "_Messages":
        """Those of several, one after the other."""
        if len(some) == 1:
            return some[0]
        keys, *columns = zip(*some, strict=True)
        return cls(pa.concat_arrays(keys), *map(np.concatenate, columns))

    def last_of_keys(self, order: _Longs) -> "_Messages":
        """Of each key the last message, in this order of the messages."""
        codes = self.keys.dictionary_encode().indices.to_numpy()
        last = np.full(len(codes), -1)
        last[codes[order]] = order  # of several the last one stays
        rows = np.sort(last[last >= 0])
        return self if len(rows) == len(codes) else self.only(rows)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(column.nbytes for column in self)

    def rows(self, queue: Queue, *, is_own: bool) -> pa.RecordBatch:
        """The messages of a queue as _ROWS."""
        count = len(self.offsets)
        topic, queue_id = queue
        return pa.record_batch(
            [
                pa.repeat(topic, count),
                pa.repeat(pa.scalar(queue_id, pa.int32()), count),
                self.keys,
                pa.repeat(is_own, count),
                self.pieces if is_own else self.offsets,
                self.positions if is_own else pa.repeat(0, count),
                self.offsets,
                pa.array(self.pieces, pa.int32()),
                self.positions,
                self.have_body,
            ],
            schema=_ROWS,
        )


def _as_stored(messages: _Messages) -> _Longs:
    return np.arange(len(messages.offsets))


def _by_offset(messages: _Messages) -> _Longs:
    """By queue offset; of equal ones the first counts."""
    return np.lexsort((-np.arange(len(messages.offsets)), messages.offsets))


class _OfLogs:
    """The newest messages of each key of each queue in one kind of log: in the commitlog, or in compaction logs.

    Args:
        is_own: whether the messages are those of the commitlog. There a later message is the newer one, also where a
            topic was deleted and began anew; in a compaction log it is the one with the greater queue offset.
    """

    def __init__(self, *, is_own: bool) -> None:
        self._is_own = is_own
        self._ranked: Callable[[_Messages], _Longs] = _as_stored if is_own else _by_offset
        self._queues: defaultdict[Queue, list[_Messages]] = defaultdict(list)
        self._nbytes = 0

    def add(self, queue: Queue, messages: _Messages) -> Batches:
        """Add messages that come after all others of this queue. Yields those that are too many to be kept."""
        self._queues[queue].append(messages)
        self._nbytes += messages.nbytes
        if self._nbytes > _MOST:
            for name, some in self._queues.items():
                self._queues[name] = [self._newest(some)]
            self._nbytes = sum(some.nbytes for (some,) in self._queues.values())
            if self._nbytes > _MOST // 2:
                yield from self.rest()

    def rest(self) -> Batches:
        """The messages that are kept, which are kept no longer."""
        for queue, some in self._queues.items():
            yield self._newest(some).rows(queue, is_own=self._is_own)
        self._queues.clear()
        self._nbytes = 0

    def _newest(self, some: list[_Messages]) -> _Messages:
        known = _Messages.joined(some)
        return known.last_of_keys(self._ranked(known))


class _InCommitlog:
    """The queue offsets of each queue that the commitlog has. These mostly follow one another, so spans are kept."""

    def __init__(self) -> None:
        self._spans: defaultdict[Queue, list[_Longs]] = defaultdict(list)  # rows: first and last ones

    def add(self, queue: Queue, offsets: _Longs) -> None:
        """Add some."""
        spans = self._spans[queue]
        spans.append(_joined(np.stack([offsets, offsets])))
        if len(spans) > _SPANS:
            spans[:] = [_joined(np.concatenate(spans, axis=1))]

    def has(self, queue: Queue, offsets: _Longs) -> _Flags:
        """Which of these does the commitlog have?"""
        spans = self._spans.get(queue)
        if spans is None:
            return np.zeros(len(offsets), bool)
        if len(spans) > 1:
            spans[:] = [_joined(np.concatenate(spans, axis=1))]
        firsts, lasts = spans[0]
        at = np.searchsorted(firsts, offsets, "right") - 1
        known: _Flags = (at >= 0) & (offsets <= lasts[at])
        return known


class Newest:
    """The newest message of each key of each queue, as rows, and with them older ones that chosen() drops.

    The commitlog is added first. Where it has a message, the copy in the compaction log is not asked: no checksum
    covers the key.
    """

    def __init__(self) -> None:
        self._own = _OfLogs(is_own=True)
        self._compacted = _OfLogs(is_own=False)
        self._in_commitlog = _InCommitlog()

    def add_commitlog(self, batch: pa.RecordBatch, piece: int) -> Batches:
        """Add the messages of a piece of the commitlog, with COLUMNS; pieces come in its order. Yields rows, where
        there are too many to be kept."""
        for queue, rows in _by_queue(batch):
            self._in_commitlog.add(queue, batch.column(2).to_numpy()[rows].astype(np.int64))
            yield from self._own.add(queue, _with_keys(batch, rows, piece))

    def add_compaction_log(self, batch: pa.RecordBatch, piece: int) -> Batches:
        """Add the messages of a piece of a compaction log, with COLUMNS."""
        for queue, rows in _by_queue(batch):
            rows = rows[~self._in_commitlog.has(queue, batch.column(2).to_numpy()[rows].astype(np.int64))]
            yield from self._compacted.add(queue, _with_keys(batch, rows, piece))

    def rest(self) -> Batches:
        """All other rows."""
        yield from self._own.rest()
        yield from self._compacted.rest()


def _joined(spans: _Longs) -> _Longs:
    """Spans in order, those that touch one another as one."""
    firsts, lasts = spans[:, np.argsort(spans[0], kind="stable")]
    lasts = np.maximum.accumulate(lasts)
    starts = np.flatnonzero(np.append(True, firsts[1:] - 1 > lasts[:-1]))
    return np.stack([firsts[starts], lasts[np.append(starts[1:], len(lasts)) - 1]])


def chosen(rows: Batches, pieces: int) -> list[_Longs]:
    """The last values of keys: the positions of their messages in each of so many pieces, ascending. Many are in a file
    that is mapped.

    Args:
        rows: what Newest gives.
    """
    found = WaitingNumbers(_CHOSEN, _last_values(in_order(_ROWS, rows, _ORDER)))
    return [found.of(piece) for piece in range(pieces)]


def _last_values(ordered: Batches) -> Batches:
    """Of each key the message that counts, if it has a value: of each log the first one; of both that with the greater
    queue offset, of equal ones that of the commitlog."""
    left = _ROWS.empty_table()
    for batch in ordered:
        rows = pa.concat_tables([left, pa.Table.from_batches([batch])]).combine_chunks()
        firsts = rows.take(pa.array(np.flatnonzero(begins(rows, [*_KEY, "isOwn"]))))
        starts = np.flatnonzero(begins(firsts, _KEY))
        left = firsts.slice(int(starts[-1])) if len(starts) else firsts
        yield from _counting(firsts.slice(0, len(firsts) - len(left)))
    yield from _counting(left)


def _counting(firsts: pa.Table) -> Batches:
    """Of each key one of its one or two rows, if it is a value."""
    if not len(firsts):
        return
    starts = np.flatnonzero(begins(firsts, _KEY))
    offsets = firsts["queueOffset"].to_numpy()
    others = np.append(starts[1:], len(firsts)) - 1  # the row of the compaction log, or the same one
    rows = firsts.take(pa.array(np.where(offsets[others] > offsets[starts], others, starts)))
    yield from rows.filter(rows["hasBody"]).select(_CHOSEN.names).to_batches()


def _by_queue(batch: pa.RecordBatch) -> Iterator[tuple[Queue, _Longs]]:
    """The queues of a batch's messages, each with the rows that are in it."""
    queued = np.flatnonzero(are_queued(batch.column(4).to_numpy()))
    topic = batch.column(0).dictionary_encode()
    codes = topic.indices.to_numpy().astype(np.int64)[queued]
    queue_ids = batch.column(1).to_numpy().astype(np.int64)[queued]
    names, index = np.unique(codes << 32 | queue_ids & _MOST_ID, return_inverse=True)
    topics = topic.dictionary.to_pylist()
    for at in range(len(names)):
        rows = queued[index == at] if len(names) > 1 else queued
        yield (topics[codes[index == at][0]], int(queue_ids[index == at][0])), rows


def _with_keys(batch: pa.RecordBatch, rows: _Longs, piece: int) -> _Messages:
    """Those of some messages that have keys."""
    keys = batch.column(3)
    ends = _ends(keys)
    starts, sizes = ends[rows], ends[rows + 1] - ends[rows]
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    firsts = np.zeros(len(rows), np.uint8)
    firsts[sizes > 0] = data[starts[sizes > 0]]
    are_keys = (firsts > 0x20) & (firsts < 0x7F)
    for at in np.flatnonzero((sizes > 0) & ~are_keys).tolist():
        are_keys[at] = not _is_blank(keys[int(rows[at])].as_py() or "")
    rows = rows[are_keys]
    sizes = np.diff(_ends(batch.column(6)))
    offsets, positions = (batch.column(number).to_numpy()[rows].astype(np.int64) for number in (2, 5))
    texts = keys.cast(pa.large_string())
    texts = texts if len(rows) == len(keys) else texts.take(_indices(rows))
    return _Messages(texts, offsets, np.full(len(rows), piece), positions, sizes[rows] > 0)


def _indices(rows: _Longs) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows))])


def _ends(column: pa.Array) -> _Longs:
    """Where the texts of a column begin in its bytes, and where the last one ends."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    return offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)


def _is_blank(key: str) -> bool:
    """Is a text no key? A broker compares KEYS as a whole, but takes no message whose KEYS have only white space
    (org.apache.rocketmq.store.kv.CompactionLog.asyncPutMessage)."""
    return all(character.isspace() and character not in _NO_SPACES for character in key)
