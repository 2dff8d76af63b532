"""The newest message of each key of each queue of compaction topics (compacted.py)."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore_spark.store.format.message import are_queued

COLUMNS = ["topic", "queueId", "queueOffset", "keys", "sysFlag", "commitLogOffset", "body"]
_NO_SPACES = "\x85\xa0\u2007\u202f"  # for Java, unlike Python
_MANY = 1 << 20  # messages, of which those that are superseded are let go at once
_MOST_ID = (1 << 32) - 1

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


class _OfQueue:
    """What is known of a queue's messages. The commitlog's come first.

    Args:
        ranked: the rows of messages in the order in which a later one of a key counts.
    """

    def __init__(self, ranked: Callable[[_Messages], _Longs]) -> None:
        self._ranked = ranked
        self._newest: _Messages | None = None
        self._more: list[_Messages] = []
        self._count = 0

    def add(self, messages: _Messages) -> None:
        """Add messages that come after all others."""
        self._more.append(messages)
        self._count += len(messages.offsets)
        if self._count > max(_MANY, 0 if self._newest is None else len(self._newest.offsets)):
            self.newest()

    def newest(self) -> _Messages | None:
        """The newest message of each key."""
        if self._more:
            known = _Messages.joined([*([] if self._newest is None else [self._newest]), *self._more])
            self._newest = known.last_of_keys(self._ranked(known))
            self._more, self._count = [], 0
        return self._newest


def _as_stored(messages: _Messages) -> _Longs:
    return np.arange(len(messages.offsets))


def _by_offset(messages: _Messages) -> _Longs:
    """By queue offset; of equal ones the first counts."""
    return np.lexsort((-np.arange(len(messages.offsets)), messages.offsets))


class Newest:
    """The newest message of each key of each queue.

    The commitlog is added first. Where it has a message, the copy in the compaction log is not asked: no checksum
    covers the key.
    """

    def __init__(self) -> None:
        self._own: defaultdict[Queue, _OfQueue] = defaultdict(lambda: _OfQueue(_as_stored))
        self._compacted: defaultdict[Queue, _OfQueue] = defaultdict(lambda: _OfQueue(_by_offset))
        self._in_commitlog: defaultdict[Queue, list[_Longs]] = defaultdict(list)
        self._known: dict[Queue, _Longs] = {}

    def add_commitlog(self, batch: pa.RecordBatch, piece: int) -> None:
        """Add the messages of a piece of the commitlog, with COLUMNS; pieces come in its order, so a later message is
        the newer one, also where a topic was deleted and began anew."""
        for queue, rows in _by_queue(batch):
            self._in_commitlog[queue].append(batch.column(2).to_numpy()[rows].astype(np.int64))
            self._own[queue].add(_with_keys(batch, rows, piece))

    def add_compaction_log(self, batch: pa.RecordBatch, piece: int) -> None:
        """Add the messages of a piece of a compaction log, with COLUMNS."""
        for queue, rows in _by_queue(batch):
            known = self._known_of(queue)
            offsets = batch.column(2).to_numpy()[rows]
            if len(known):  # one before all of them is compared with the last
                rows = rows[known[np.searchsorted(known, offsets, "right") - 1] != offsets]
            self._compacted[queue].add(_with_keys(batch, rows, piece))

    def _known_of(self, queue: Queue) -> _Longs:
        """The queue offsets of the messages that the commitlog has, ascending."""
        if queue not in self._known:
            own = self._in_commitlog.pop(queue, [])
            self._known[queue] = np.unique(np.concatenate([np.empty(0, np.int64), *own]))
        return self._known[queue]

    def positions(self, pieces: int) -> list[_Longs]:
        """The offsets of the chosen messages in each of so many pieces, ascending."""
        found: list[list[_Longs]] = [[np.empty(0, np.int64)] for _ in range(pieces)]
        for queue in {*self._own, *self._compacted}:
            newest = self._newest_of(queue)
            for piece in np.unique(newest.pieces[newest.have_body]).tolist():
                found[piece].append(newest.positions[newest.have_body & (newest.pieces == piece)])
        return [np.sort(np.concatenate(each)) for each in found]

    def _newest_of(self, queue: Queue) -> _Messages:
        """Of messages with the same queue offset that of the commitlog."""
        sides = (of[queue].newest() for of in (self._compacted, self._own) if queue in of)
        both = _Messages.joined([each for each in sides if each is not None])
        return both.last_of_keys(np.argsort(both.offsets, kind="stable"))


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
