"""Table `consumequeue`: the units of the ConsumeQueues as they stand there. Nothing is compared with the log.

Unused units and those that only fill the beginning of a queue are left out; units that a truncation has left over are
not (docs/format.md). A unit of a BatchCQ is one row: queueOffset is that of its first message, and `messages` is the
number of its messages.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.columns import BYTES, INT, LONG, TEXT, TIME, Column
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import ALL, Numbers
from rmqstore_spark.read.pieces.pinned import queue_proofs
from rmqstore_spark.read.pieces.queue_claims import selected_queues
from rmqstore_spark.store.format.queue_block import QueueBlock
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.consumequeue import Queue, QueueFile
from rmqstore_spark.store.structures.consumequeue_ext import LAST_ADDRESS, ExtUnit, is_address, read_ext
from rmqstore_spark.store.structures.proofs import Proof
from rmqstore_spark.tables.columns import timestamps
from rmqstore_spark.tables.table import Table

_PART_BYTES = 32 * 1024 * 1024
_BATCH_UNITS = 64 * 1024


class QueuePart(NamedTuple):
    """The units of a queue with the numbers [first, stop)."""

    topic: str
    queue_id: int
    is_batch: bool
    first: int
    stop: int


def parts(store: Snapshot, options: ReadOptions) -> list[list[QueuePart]]:
    """The parts of the table: small queues together, large queues in several parts."""
    return grouped(selected_queues(store, options.selection), store.files)


def grouped(queues: list[Queue], files: Files) -> list[list[QueuePart]]:
    """Queues in parts that cost about the same to read."""
    found: list[list[QueuePart]] = []
    size = 0
    for queue in queues:
        for first, stop, nbytes in _stretches(queue):
            if not found or size + nbytes > _PART_BYTES:
                found.append([])
                size = 0
            found[-1].append(QueuePart(queue.topic, queue.queue_id, queue.is_batch, first, stop))
            size += nbytes + 2 * files.prices.request
    return found


def _stretches(queue: Queue) -> Iterator[tuple[int, int, int]]:
    """The pieces of a queue, cut between files: [first, stop) and bytes of each."""
    first, nbytes = 0, 0
    for file in queue.in_files:
        if nbytes + file.allocated > _PART_BYTES and file.first > first:
            yield first, file.first, nbytes
            first, nbytes = file.first, 0
        nbytes += min(file.size, file.allocated)
    if queue.in_files:
        yield first, 1 << 62, nbytes


def rows(store: Snapshot, options: ReadOptions, part: list[QueuePart]) -> Iterator[pa.RecordBatch]:
    """The units of a part, queue by queue, in batches."""
    waiting: list[FileUnits] = []
    count = 0
    for piece in part:
        queue = store.queues.queue(piece.topic, piece.queue_id, piece.is_batch)
        selected = options.selection.queue(piece.topic, piece.queue_id)
        if queue is None or selected is None:
            continue
        for units in used_units(queue, piece.first, piece.stop, selected):
            waiting.append(units)
            count += len(units.units)
            if count >= _BATCH_UNITS:
                yield _batch(store, waiting)
                waiting, count = [], 0
    if waiting:
        yield _batch(store, waiting)


class FileUnits(NamedTuple):
    """Used units of one file of a queue."""

    queue: Queue
    file: QueueFile
    units: QueueBlock


def used_units(queue: Queue, first: int, stop: int, selected: Numbers) -> Iterator[FileUnits]:
    """The used units with the numbers [first, stop), file by file, some at a time.

    Args:
        selected: the queue offsets to return.
    """
    for file in queue.in_files:
        begin, end = max(first, file.first), min(stop, file.end)
        if not queue.is_batch:
            begin, end = max(begin, selected.least), min(end, selected.most + 1)
        if begin >= end:
            continue
        size = queue.unit_size
        with queue.opened(file) as opened:
            end = min(end, file.first - (-opened.data_end() // size))
            for at in range(begin, end, _BATCH_UNITS):
                data = opened.read((at - file.first) * size, min(_BATCH_UNITS, end - at) * size)
                units = QueueBlock.of(data, at, queue.is_batch)
                keep = units.are_messages
                if queue.is_batch and selected != ALL:
                    keep &= units.queue_offsets <= selected.most
                    keep &= units.queue_offsets + units.messages > selected.least
                if keep.any():
                    yield FileUnits(queue, file, units.only(keep))


def _batch(store: Snapshot, some: list[FileUnits]) -> pa.RecordBatch:
    """The rows of some units. Rare columns are only made where a unit has them."""
    counts = [len(each.units) for each in some]
    which = pa.array(np.repeat(np.arange(len(some)), counts))

    def of_queue(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind).take(which)

    units = QueueBlock.joined([each.units for each in some])
    inside = [(each.units.numbers - each.file.first) * each.queue.unit_size for each in some]
    is_known = np.repeat([each.queue.is_batch for each in some], counts)
    hashes, times, bit_maps = pa.array(units.tags_codes), units.store_times, None
    if is_address(units.tags_codes.min(initial=0)):
        hashes, ext_times, is_ext, bit_maps = _ext(store, some, units.tags_codes)
        times, is_known = np.where(is_ext, ext_times, times), is_known | is_ext
    arrays = [
        of_queue([each.queue.topic for each in some], pa.string()),
        of_queue([each.queue.queue_id for each in some], pa.int32()),
        pa.array(units.queue_offsets),
        pa.array(units.positions),
        pa.array(units.sizes.astype(np.int32)),
        pa.array(units.tags_codes),
        of_queue([each.file.path for each in some], pa.string()),
        pa.array(np.concatenate(inside), mask=np.repeat([not each.file.has_positions for each in some], counts)),
        pa.array(units.messages.astype(np.int32)),
        hashes,
        timestamps(times, is_known),
        pa.nulls(len(units), pa.binary()) if bit_maps is None else bit_maps,
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=CONSUMEQUEUE.schema)


def _ext(
    store: Snapshot, some: list[FileUnits], tags_codes: npt.NDArray[np.int64]
) -> tuple[pa.Array, npt.NDArray[np.int64], npt.NDArray[np.bool_], pa.Array]:
    """tagsHash, store times (ms), a mask of the units that have store times, and filterBitMap."""
    found: list[ExtUnit | None] = []
    for each in some:
        codes = each.units.tags_codes.tolist()
        addresses = [code for code in codes if is_address(code)]
        ext = read_ext(store.root, each.queue.topic, each.queue.queue_id, addresses, store.files)
        found += map(ext.get, codes)
    is_ext = np.array([unit is not None for unit in found])
    is_plain = pa.array(tags_codes > LAST_ADDRESS)
    hashes = pa.array([None if unit is None else unit.tags_code for unit in found], pa.int64())
    times = np.array([0 if unit is None else unit.store_timestamp for unit in found], np.int64)
    bit_maps = pa.array([None if unit is None else unit.filter_bit_map for unit in found], pa.binary())
    return pc.if_else(is_plain, pa.array(tags_codes), hashes), times, is_ext, bit_maps


def _seen(store: Snapshot, options: ReadOptions) -> Iterable[Proof | None]:
    return queue_proofs(store, selected_queues(store, options.selection))


CONSUMEQUEUE = Table(
    name="consumequeue",
    row="a unit of a ConsumeQueue, as stored",
    columns=(
        Column("topic", TEXT, "topic of the queue"),
        Column("queueId", INT, "number of the queue"),
        Column("queueOffset", LONG, "queue offset of the message; in a BatchCQ, of the first one"),
        Column("commitLogOffset", LONG, "physical offset of the message"),
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
)
