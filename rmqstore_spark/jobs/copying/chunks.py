"""From rows of messages to chunks of units for the writer: where a segment has to begin, and which fields change."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from rmqstore_spark.errors import OptionError
from rmqstore_spark.jobs.copying.rows import Rows
from rmqstore_spark.store.format.by_queue import Integers, QueueName
from rmqstore_spark.store.format.message import TRANSACTION_COMMIT, TRANSACTION_TYPE
from rmqstore_spark.store.format.system_topics import HALF_TOPIC, ROCKSDB_HALF_TOPIC
from rmqstore_spark.waiting_numbers import WaitingPairs
from rmqstore_spark.write.build.batchqueues import messages_in
from rmqstore_spark.write.build.kept_offsets import KeptOffsets
from rmqstore_spark.write.build.kept_units import have_longer_hosts, put_fields, put_store_host
from rmqstore_spark.write.build.staging import CHUNK_SIZE, Chunk

_V6_HOST = 16 + 4  # bytes of an address and a port
_HALF_TOPICS = (HALF_TOPIC, ROCKSDB_HALF_TOPIC)


class _Halves:
    """The places of half messages in the new log; committed messages refer to them."""

    def __init__(self) -> None:
        # Old and new physical offsets by the source's number; a log is copied in its order.
        self._places: dict[int, WaitingPairs] = {}

    def prepared(self, rows: Rows, positions: Integers) -> Integers | None:
        """The preparedTransactionOffsets of the next messages; None if all stay as they are.

        Args:
            positions: the messages' physical offsets in the new log.
        """
        source = rows.source.number
        halves = [code for code, topic in enumerate(rows.topics) if topic in _HALF_TOPICS]
        here = np.flatnonzero(np.isin(rows.codes, halves)) if halves else np.zeros(0, np.int64)
        if len(here):
            self._places.setdefault(source, WaitingPairs()).add(rows.positions[here], positions[here])
        committed = np.flatnonzero((rows.flags & TRANSACTION_TYPE) == TRANSACTION_COMMIT)
        if not len(committed) or source not in self._places:
            return None
        prepared = rows.prepared.copy()
        prepared[committed] = self._places[source].seconds(prepared[committed])
        return prepared


def chunks_of(
    rows: Iterable[Rows], order: KeptOffsets, begins: Mapping[int, int], store_host: bytes | None
) -> Iterator[Chunk]:
    """The messages in chunks. Each chunk is as large as allowed, or ends where a segment has to end.

    Args:
        order: checks queue offsets.
        begins: by source number, the physical offset of the message that has to begin a segment.
        store_host: the storeHost that all messages get, as stored; None: each keeps its own.

    Raises:
        OptionError: a message has a storeHost of another length.
    """
    halves, offsets = _Halves(), Counter[QueueName]()
    parts: list[Rows] = []
    nbytes, is_after_gap = 0, False
    for some in rows:
        if store_host is not None:
            _refuse_other_hosts(some, store_host)
        for part, begins_segment in _cut(_renumbered(some, offsets), order, begins):
            for number, piece in enumerate(_pieces(part, CHUNK_SIZE)):
                size = int(piece.sizes.sum())
                is_begin = begins_segment and number == 0
                if parts and (is_begin or nbytes + size > CHUNK_SIZE):
                    yield _chunk(parts, halves, is_after_gap, store_host)
                    parts, nbytes, is_after_gap = [], 0, False
                is_after_gap |= is_begin
                parts.append(piece)
                nbytes += size
    if parts:
        yield _chunk(parts, halves, is_after_gap, store_host)


def _renumbered(rows: Rows, offsets: Counter[QueueName]) -> Rows:
    """The rows with new queue offsets in topics that begin anew.

    Args:
        offsets: the next queue offset of each queue that begins anew, in all sources.
    """
    for code, topic in enumerate(rows.topics):
        if not rows.source.waiting.begins_anew(topic):
            continue
        new = rows.queue_offsets.copy()
        for row in np.flatnonzero(rows.codes == code).tolist():
            queue = topic, int(rows.queue_ids[row])
            new[row] = offsets[queue]
            offsets[queue] += 1
        rows = replace(rows, queue_offsets=new, renamed=True)
    return rows


def _cut(rows: Rows, order: KeptOffsets, begins: Mapping[int, int]) -> Iterator[tuple[Rows, bool]]:
    """The messages in pieces, each with whether it has to begin a segment."""
    queued = np.flatnonzero(rows.is_queued)
    positions = rows.positions[queued]
    begin = np.flatnonzero(positions == begins[rows.source.number]).tolist()
    found = order.look(
        rows.topics,
        rows.codes[queued],
        rows.queue_ids[queued],
        rows.queue_offsets[queued],
        next(iter(begin), None),
        _counts(rows)[queued],
    )
    cuts = [0, *queued[found].tolist(), len(rows.positions)]
    for number, (start, stop) in enumerate(itertools.pairwise(cuts)):
        if start < stop:
            yield rows.only(slice(start, stop)), number > 0


def _counts(rows: Rows) -> Integers:
    """How many queue offsets each message takes: more than one if it is a batch. The units of BatchCQ topics are read
    for it."""
    topics = rows.source.batch_topics
    counts = np.ones(len(rows.codes), np.int64)
    here = np.flatnonzero(np.array([topic in topics for topic in rows.topics], bool)[rows.codes])
    if not len(here):
        return counts
    ends = np.cumsum(rows.sizes[here])
    for some in np.split(here, np.searchsorted(ends, range(CHUNK_SIZE, int(ends[-1]), CHUNK_SIZE))):
        memory = memoryview(bytearray(int(rows.sizes[some].sum())))
        rows.units.read_into(memory, rows.positions[some], rows.sizes[some])
        counts[some] = messages_in(memory, rows.sizes[some], topics)
    return counts


def _pieces(rows: Rows, most: int) -> Iterator[Rows]:
    """The messages in pieces of at most `most` bytes; a larger message is a piece by itself."""
    ends = np.cumsum(rows.sizes)
    start = before = 0
    while start < len(ends):
        stop = max(int(np.searchsorted(ends, before + most, "right")), start + 1)
        yield rows.only(slice(start, stop))
        start, before = stop, int(ends[stop - 1])


def _refuse_other_hosts(rows: Rows, store_host: bytes) -> None:
    """Refuse messages that an address of this length would make longer or shorter."""
    is_longer = have_longer_hosts(rows.flags)
    other = np.flatnonzero(is_longer != (len(store_host) == _V6_HOST))
    if len(other):
        at = int(other[0])
        raise OptionError(
            f"option 'storeHost': expected an IPv{6 if is_longer[at] else 4} address, as the message at "
            f"commitLogOffset {rows.positions[at]} of {rows.source.store.root} has one, found one of the other length, "
            "which does not fit into its place; leave the option out, or give an address that does"
        )


def _chunk(parts: list[Rows], halves: _Halves, is_after_gap: bool, store_host: bytes | None) -> Chunk:
    return Chunk(np.concatenate([part.sizes for part in parts]), _reads(parts, halves, store_host), is_after_gap)


def _reads(parts: list[Rows], halves: _Halves, store_host: bytes | None) -> Callable[[memoryview, Integers], None]:
    def read_into(memory: memoryview, positions: Integers) -> None:
        at = first = 0
        for part in parts:
            stop = at + int(part.sizes.sum())
            part.units.read_into(memory[at:stop], part.positions, part.sizes)
            prepared = halves.prepared(part, positions[first : first + len(part.sizes)])
            if part.renamed or prepared is not None:
                put_fields(
                    memory[at:stop],
                    part.sizes,
                    part.flags,
                    queue_ids=part.queue_ids,
                    queue_offsets=part.queue_offsets,
                    prepared=part.prepared if prepared is None else prepared,
                )
            if store_host is not None:
                put_store_host(memory[at:stop], part.sizes, part.flags, store_host)
            at, first = stop, first + len(part.sizes)

    return read_into
