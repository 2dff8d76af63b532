"""Table `consumequeue`: the units of the ConsumeQueues as they stand there. Nothing is compared with the log.

Unused units and those that only fill the beginning of a queue are left out; units that a truncation has left over are
not (docs/format.md). A unit of a BatchCQ is one row: queueOffset is that of its first message, and `messages` is the
number of its messages.
"""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.columns import BYTES, INT, LONG, TEXT, TIME, Column
from rmqstore_spark.garbage import collector_paused
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import ALL, EVERYTHING, Numbers, Selection
from rmqstore_spark.read.pieces.pinned import queue_proofs
from rmqstore_spark.read.pieces.queue_claims import selected_queues
from rmqstore_spark.store.format.queue_block import QueueBlock
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.io.read_ahead import ReadAhead
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import OnlyFile, Queue, QueueFile, QueueName
from rmqstore_spark.store.structures.consumequeue_ext import LAST_ADDRESS, ExtUnit, is_address, read_ext
from rmqstore_spark.store.structures.proofs import Proof
from rmqstore_spark.store.structures.queue_heads import QUEUES_AT_ONCE, find_files, short_queues
from rmqstore_spark.store.structures.queues import ConsumeQueues
from rmqstore_spark.tables.columns import timestamps
from rmqstore_spark.tables.table import Table

_PART_BYTES = 32 * 1024 * 1024
_BATCH_UNITS = 16 * 1024
_OPEN = 1 << 62  # in place of the number after the last unit


class QueuePart(NamedTuple):
    """The units of a queue with the numbers [first, stop).

    Attributes:
        only_file: the queue's one file, where the plan has seen that it has no other.
    """

    queue: QueueName
    first: int
    stop: int
    only_file: OnlyFile | None = None


def parts(store: Snapshot, options: ReadOptions) -> list[list[QueuePart]]:
    """The parts of the table: small queues together, large queues in several parts."""
    with collector_paused():
        return grouped(selected_queues(store.stored_queues, options.selection), store.files)


def grouped(queues: list[Queue], files: Files) -> list[list[QueuePart]]:
    """Queues in parts that cost about the same to read."""
    found: list[list[QueuePart]] = []
    size = 0
    for at in range(0, len(queues), QUEUES_AT_ONCE):
        find_files(queues[at : at + QUEUES_AT_ONCE], files)
    for queue in queues:
        name = queue.name
        for first, stop, nbytes in _stretches(queue):
            if not found or size + nbytes > _PART_BYTES:
                found.append([])
                size = 0
            found[-1].append(QueuePart(name, first, stop, queue.only_file))
            size += nbytes + 2 * files.prices.request
    return found


def _stretches(queue: Queue) -> Iterable[tuple[int, int, int]]:
    """The pieces of a queue, cut between files: [first, stop) and bytes of each."""
    if queue.only_file is not None:
        return [(0, _OPEN, min(queue.only_file.size, queue.only_file.allocated))]
    return _between_files(queue)


def _between_files(queue: Queue) -> Iterator[tuple[int, int, int]]:
    first, nbytes = 0, 0
    for file in queue.in_files:
        if nbytes + file.allocated > _PART_BYTES and file.first > first:
            yield first, file.first, nbytes
            first, nbytes = file.first, 0
        nbytes += min(file.size, file.allocated)
    if queue.in_files:
        yield first, _OPEN, nbytes


def rows(store: Snapshot, options: ReadOptions, part: list[QueuePart]) -> Iterator[pa.RecordBatch]:
    """The units of a part, queue by queue, in batches."""
    waiting: list[FileUnits] = []
    count = 0
    if store.files.is_slow:
        queues = [store.stored_queues.named(piece.queue) for piece in part]
        fetch_ahead(store.files, [(p, q) for p, q in zip(part, queues, strict=True) if q], options.selection)
    for at in range(0, len(part), QUEUES_AT_ONCE):
        for units in _units_of(store, options.selection, part[at : at + QUEUES_AT_ONCE]):
            waiting.append(units)
            count += len(units.units)
            if count >= _BATCH_UNITS:
                yield _batch(store, waiting)
                waiting, count = [], 0
    if waiting:
        yield _batch(store, waiting)


class FileUnits(NamedTuple):
    """Used units of some files of queues, file by file.

    Attributes:
        files: each with its queue.
        counts: the number of each file's units.
    """

    files: list[tuple[Queue, QueueFile]]
    counts: npt.NDArray[np.int64]
    units: QueueBlock


def _units_of(store: Snapshot, selection: Selection, pieces: list[QueuePart]) -> Iterator[FileUnits]:
    """The units of at most QUEUES_AT_ONCE pieces. Short queues are read together."""
    asked = list(_asked_for(store.stored_queues, selection, pieces))
    units, counts = short_queues([queue for _, queue, _ in asked], store.files)
    stops = np.cumsum(np.maximum(counts, 0)).tolist()
    least = np.array([max(piece.first, selected.least) for piece, _, selected in asked], np.int64)
    most = np.array([min(piece.stop - 1, selected.most) for piece, _, selected in asked], np.int64)
    which = np.repeat(np.arange(len(asked)), np.maximum(counts, 0))
    keep = units.are_messages & (units.numbers >= least[which]) & (units.numbers <= most[which])
    first = 0  # of the short queues that wait
    for at in [*np.flatnonzero(np.array(counts) < 0).tolist(), len(asked)]:
        start, stop = (stops[n - 1] if n else 0 for n in (first, at))
        kept = np.flatnonzero(keep[start:stop]) + start
        if len(kept):
            some = [(queue, queue.in_files[0]) for _, queue, _ in asked[first:at]]
            yield FileUnits(some, np.bincount(which[kept] - first, minlength=at - first), units.only(kept))
        if at < len(asked):
            piece, _, selected = asked[at]
            queue = store.stored_queues.named(piece.queue)  # which lists its files: the plan's may be gone
            yield from used_units(queue, piece.first, piece.stop, selected) if queue is not None else ()
        first = at + 1


def _asked_for(
    queues: ConsumeQueues, selection: Selection, pieces: list[QueuePart]
) -> Iterator[tuple[QueuePart, Queue, Numbers]]:
    """The selected ones of some pieces, each with its queue, which knows its only file, and the offsets selected."""
    wants_all = selection.wants_all_queues
    for piece in pieces:
        queue = queues.named(piece.queue)
        selected = ALL if wants_all else selection.queue(piece.queue.topic, piece.queue.queue_id)
        if queue is not None and selected is not None:
            if piece.only_file is not None:
                queue.know_file(*piece.only_file)
            yield piece, queue, selected


def fetch_ahead(files: Files, pieces: list[tuple[QueuePart, Queue]], selection: Selection = EVERYTHING) -> None:
    """Announce that the selected units of pieces of queues are read next, queue by queue."""
    if not files.is_slow:
        return
    ahead = ReadAhead()
    for piece, queue in pieces:
        selected = selection.queue(queue.topic, queue.queue_id)
        for file in queue.in_files if queue.is_in_files and selected is not None else ():
            begin, end = _asked_in(file, queue, piece.first, piece.stop, selected or ALL)
            if begin < end:
                start, stop = ((number - file.first) * queue.unit_size for number in (begin, end))
                with contextlib.suppress(OSError):
                    files.prefetch_range(ahead, file.path, files.pin(file.path), start, stop)
    files.read_from(ahead)


def _asked_in(file: QueueFile, queue: Queue, first: int, stop: int, selected: Numbers) -> tuple[int, int]:
    """The numbers [begin, end) of the units of a file among which those asked for are; the arguments are those of
    used_units()."""
    begin, end = queue.numbers_of(selected.least, selected.most)
    return max(begin, first, file.first), min(end, stop, file.end)


def used_units(queue: Queue, first: int, stop: int, selected: Numbers) -> Iterator[FileUnits]:
    """The used units with the numbers [first, stop), file by file, some at a time.

    Args:
        selected: the queue offsets to return.
    """
    for file in queue.in_files:
        begin, end = _asked_in(file, queue, first, stop, selected)
        if begin >= end:
            continue
        size = queue.unit_size
        with queue.opened(file) as opened:
            end = min(end, file.first - (-opened.data_end() // size))
            opened.expect((begin - file.first) * size, (end - file.first) * size)
            for at in range(begin, end, _BATCH_UNITS):
                data = opened.load((at - file.first) * size, min(_BATCH_UNITS, end - at) * size, _memory)
                units = queue.parsed(data, at)
                keep = units.are_messages
                if selected != ALL:
                    keep &= units.queue_offsets <= selected.most
                    keep &= units.queue_offsets + units.messages > selected.least
                if keep.any():
                    yield FileUnits([(queue, file)], np.array([int(keep.sum())]), units.only(keep))


def _memory(size: int) -> memoryview:
    return memoryview(bytearray(size))


def _batch(store: Snapshot, some: list[FileUnits]) -> pa.RecordBatch:
    """The rows of some units. Rare columns are only made where a unit has them."""
    files = [file for each in some for file in each.files]
    counts = np.concatenate([each.counts for each in some])
    which = pa.array(np.repeat(np.arange(len(files)), counts))

    def of_file(values: list[Any]) -> npt.NDArray[Any]:
        return np.repeat(np.array(values), counts)

    def of_queue(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind).take(which)

    units = QueueBlock.joined([each.units for each in some])
    inside = (units.numbers - of_file([file.first for _, file in files])) * of_file([q.unit_size for q, _ in files])
    hashes, times, bit_maps = pa.array(units.tags_codes), units.store_times, None
    is_known = times != 0
    if is_address(units.tags_codes.min(initial=0)):
        hashes, ext_times, is_ext, bit_maps = _ext(store, files, counts, units.tags_codes)
        times, is_known = np.where(is_ext, ext_times, times), is_known | is_ext
    arrays = [
        of_queue([queue.topic for queue, _ in files], pa.string()),
        of_queue([queue.queue_id for queue, _ in files], pa.int32()),
        pa.array(units.queue_offsets),
        pa.array(units.positions),
        pa.array(units.sizes.astype(np.int32)),
        pa.array(units.tags_codes),
        of_queue([file.path for _, file in files], pa.string()),
        pa.array(inside, mask=of_file([not file.has_positions for _, file in files])),
        pa.array(units.messages.astype(np.int32)),
        hashes,
        timestamps(times, is_known),
        pa.nulls(len(units), pa.binary()) if bit_maps is None else bit_maps,
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=CONSUMEQUEUE.schema)


def _ext(
    store: Snapshot,
    files: list[tuple[Queue, QueueFile]],
    counts: npt.NDArray[np.int64],
    tags_codes: npt.NDArray[np.int64],
) -> tuple[pa.Array, npt.NDArray[np.int64], npt.NDArray[np.bool_], pa.Array]:
    """tagsHash, store times (ms), a mask of the units that have store times, and filterBitMap."""
    found: list[ExtUnit | None] = []
    stops = np.cumsum(counts).tolist()
    for (queue, _), start, stop in zip(files, [0, *stops], stops, strict=False):
        codes = tags_codes[start:stop].tolist()
        addresses = [code for code in codes if is_address(code)]
        ext = read_ext(store.root, queue.topic, queue.queue_id, addresses, store.files)
        found += map(ext.get, codes)
    is_ext = np.array([unit is not None for unit in found])
    is_plain = pa.array(tags_codes > LAST_ADDRESS)
    hashes = pa.array([None if unit is None else unit.tags_code for unit in found], pa.int64())
    times = np.array([0 if unit is None else unit.store_timestamp for unit in found], np.int64)
    bit_maps = pa.array([None if unit is None else unit.filter_bit_map for unit in found], pa.binary())
    return pc.if_else(is_plain, pa.array(tags_codes), hashes), times, is_ext, bit_maps


def _seen(store: Snapshot, options: ReadOptions) -> Iterable[Proof | None]:
    return queue_proofs(store, selected_queues(store.stored_queues, options.selection))


CONSUMEQUEUE = Table(
    name="consumequeue",
    row="a unit of a ConsumeQueue, as stored",
    columns=(
        Column("topic", TEXT, "topic of the queue"),
        Column("queueId", INT, "number of the queue"),
        Column("queueOffset", LONG, "queue offset of the message; in a BatchCQ, of the first one"),
        Column(
            "commitLogOffset",
            LONG,
            "physical offset of the message; in a tiered store, its position in the queue's log",
        ),
        Column("size", INT, "bytes of the message in the log"),
        Column(
            "tagsCode",
            LONG,
            "hash of the tags; in SCHEDULE_TOPIC_XXXX the time at which the message is due; or an address in "
            "consumequeue_ext/",
        ),
        Column("file", TEXT, "path of the ConsumeQueue file, or of the RocksDB's directory"),
        Column("filePosition", LONG, "position of the unit in this file; null in a RocksDB"),
        Column("messages", INT, "number of messages in the unit; above 1 only in a BatchCQ"),
        Column("tagsHash", LONG, "tagsCode, or the hash at the address that it is"),
        Column("storeTimestamp", TIME, "store time, in a BatchCQ or from consumequeue_ext/; else null"),
        Column("filterBitMap", BYTES, "bit map of filters from consumequeue_ext/; else null"),
    ),
    options=frozenset({"subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets"}),
    rows=rows,
    parts=parts,
    seen=_seen,
    of_queue_logs=True,
)
