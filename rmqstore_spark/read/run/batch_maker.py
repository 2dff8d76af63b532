"""From decoded units to record batches: the requested columns, bodies decompressed, batches of a certain size."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from native_io import BATCH_INDEX
from native_io import COLUMNS as UNIT_COLUMNS
from rmqstore_spark.columns import batch_of
from rmqstore_spark.read.pieces.task import Range
from rmqstore_spark.read.run.dispatched import DISPATCH_COLUMN, DISPATCH_NEEDS, dispatched
from rmqstore_spark.read.run.logic_offsets import LOGIC_COLUMNS, LOGIC_NEEDS, logic_columns
from rmqstore_spark.read.run.original import ORIGINAL_COLUMNS, as_sent
from rmqstore_spark.read.run.origins import ORIGIN_COLUMNS, ORIGIN_NEEDS, Origins
from rmqstore_spark.store.format.bodies import BadBodyError, decompress
from rmqstore_spark.store.format.units import BatchBuilder, Budget
from rmqstore_spark.store.structures.segments import Damage, damage_in

# Spark moves batches of about 1 MB best. The first ones are small, so that show() and limit() answer at once.
BATCH_BYTES = 1024 * 1024
BATCH_ROWS = 16 * 1024
FIRST_BATCH_ROWS = 64
_OF_THE_COMMITLOG = frozenset({"commitLogOffset", "offsetMsgId"})  # null where the commitlog's offset is not known


class BadBody(NamedTuple):
    """A message whose body cannot be decompressed.

    Attributes:
        row: the row of the message.
        damage: the unit, and the fault of its body.
    """

    row: pa.RecordBatch
    damage: Damage


class BatchMaker:
    """Makes record batches of the units in a builder.

    Large because what is done to columns after the kernel (bodies, origins, batches) is settled once, for all batches.

    Args:
        schema: the schema of the batches: their columns, in order, and which of them may be null.
        decompresses: whether compressed bodies are decompressed.
        nbytes: bytes of Arrow data in a batch; 0: the size that Spark moves best.
        explodes: whether each message of a batch gets a row, else the unit does.
        as_original: whether messages are as their producer sent them.

    Attributes:
        builder: takes units, all of one segment until finish() is called.
    """

    def __init__(
        self,
        schema: pa.Schema,
        decompresses: bool,
        nbytes: int = 0,
        *,
        explodes: bool = False,
        as_original: bool = False,
    ) -> None:
        names = schema.names
        self._schema = schema
        self._nbytes = nbytes or BATCH_BYTES
        # Decompression needs the flag that names the method, and commitLogOffset and storeSize for its errors.
        self._decompresses = decompresses and "body" in names
        self._as_original = as_original and not ORIGINAL_COLUMNS.isdisjoint(names)
        self._has_origins = self._as_original or not ORIGIN_COLUMNS.isdisjoint(names)
        of_units = [name for name in names if name in UNIT_COLUMNS or name == BATCH_INDEX]
        helpers = ["sysFlag", "commitLogOffset", "storeSize"] if self._decompresses else []
        helpers += ORIGIN_NEEDS if self._has_origins else []
        helpers += DISPATCH_NEEDS if DISPATCH_COLUMN in names else []
        self._has_logic = not LOGIC_COLUMNS.isdisjoint(names)
        helpers += LOGIC_NEEDS if self._has_logic else []
        columns = of_units + [name for name in dict.fromkeys(helpers) if name not in of_units]
        budget = Budget(BATCH_ROWS, self._nbytes)
        self.builder = BatchBuilder(columns, budget, FIRST_BATCH_ROWS, explodes=explodes, expands=self._decompresses)
        self._is_plain = (
            not self._as_original
            and self.builder.decoder.columns == tuple(names)
            and schema.equals(self.builder.schema)
        )
        self._has_offsets = not _OF_THE_COMMITLOG.isdisjoint(names)

    def finish(self, piece: Range) -> Iterator[pa.RecordBatch | BadBody]:
        """The rows of all units that the builder holds.

        Args:
            piece: the piece that the units are from.
        """
        decoder = self.builder.decoder
        if decoder.rows == 0:
            return
        any_expanded = self._decompresses and decoder.compressed > 0
        unexpanded = decoder.unexpanded if any_expanded else []
        batch = self.builder.finish()
        if unexpanded:
            yield from self._decompressed(batch, set(unexpanded), piece)
            return
        is_plain = self._is_plain and not (self._has_offsets and piece.segment.of_queue)
        for part in _cut(batch, self._nbytes) if any_expanded else (batch,):
            yield part if is_plain else self._arranged(part, piece, None)

    def without_body(self, bad: BadBody, piece: Range) -> pa.RecordBatch:
        """The row of a message whose body cannot be decompressed."""
        return self._with_bodies(bad.row, [None], piece, bad.damage.reason)

    def lost(self, damage: Damage, store: str) -> pa.RecordBatch:
        """The row for something damaged in a store."""
        start = None if damage.of_queue else damage.start
        known = {"commitLogOffset": start, "file": damage.path, "store": store, "corrupt": damage.reason}
        return batch_of([pa.array([known.get(field.name)], field.type) for field in self._schema], 1, self._schema)

    def _arranged(self, batch: pa.RecordBatch, piece: Range, corrupt: pa.Array | None) -> pa.RecordBatch:
        """The requested columns, in order."""
        arrays = []
        origins = Origins(batch, lambda: piece.store.known_topics) if self._has_origins else None
        logic = logic_columns(batch, piece.store.static_parts) if self._has_logic else {}
        sent = as_sent(batch, origins) if self._as_original and origins is not None else {}
        for field in self._schema:
            match field.name:
                case "file":
                    arrays.append(pa.repeat(pa.scalar(piece.segment.path), batch.num_rows))
                case "store":
                    arrays.append(pa.repeat(pa.scalar(piece.store.root), batch.num_rows))
                case "corrupt":
                    arrays.append(pa.nulls(batch.num_rows, field.type) if corrupt is None else corrupt)
                case name if piece.segment.of_queue and name in _OF_THE_COMMITLOG:
                    arrays.append(pa.nulls(batch.num_rows, field.type))
                case name if name in logic:
                    arrays.append(logic[name])
                case name if name in sent:
                    arrays.append(sent[name])
                case name if name == DISPATCH_COLUMN:
                    arrays.append(dispatched(batch))
                case name if origins is not None and name in ORIGIN_COLUMNS:
                    arrays.append(origins.column(name))
                case name:
                    arrays.append(batch.column(name))
        return batch_of(arrays, batch.num_rows, self._schema)

    def _decompressed(
        self, batch: pa.RecordBatch, unexpanded: set[int], piece: Range
    ) -> Iterator[pa.RecordBatch | BadBody]:
        """The rows with their bodies decompressed, cut where a batch would become too large, and where a body is not
        compressed as its flag says.

        Args:
            unexpanded: rows whose body the kernel has not decompressed.
        """
        stored, flags = batch.column("body"), batch.column("sysFlag").to_pylist()
        bodies: list[bytes | None] = []
        start = size = 0
        for row, flag in enumerate(flags):
            body = stored[row].as_py()
            if row in unexpanded:
                try:
                    body = decompress(body, flag)
                except BadBodyError as why:
                    if row > start:
                        yield self._with_bodies(batch.slice(start, row - start), bodies, piece)
                    yield _bad_body(batch.slice(row, 1), piece, str(why))
                    bodies, start, size = [], row + 1, 0
                    continue
            bodies.append(body)
            size += len(body)
            if size >= self._nbytes:
                yield self._with_bodies(batch.slice(start, row + 1 - start), bodies, piece)
                bodies, start, size = [], row + 1, 0
        if start < batch.num_rows:
            yield self._with_bodies(batch.slice(start), bodies, piece)

    def _with_bodies(
        self, rows: pa.RecordBatch, bodies: list[bytes | None], piece: Range, corrupt: str | None = None
    ) -> pa.RecordBatch:
        """The rows with other bodies.

        Args:
            corrupt: the fault of all of these rows.
        """
        at = rows.schema.get_field_index("body")
        rows = rows.set_column(at, "body", pa.array(bodies, pa.binary()))
        return self._arranged(rows, piece, pa.array([corrupt] * rows.num_rows, pa.string()))


def _cut(batch: pa.RecordBatch, nbytes: int) -> Iterator[pa.RecordBatch]:
    """The rows in batches that end with the body with which they have at least so many bytes of bodies."""
    bodies = batch.column("body")
    ends = np.frombuffer(bodies.buffers()[1], np.int32)[1 : len(bodies) + 1]
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = min(int(np.searchsorted(ends, before + nbytes)) + 1, len(ends))
        yield batch.slice(start, stop - start) if stop - start < len(ends) else batch
        start = stop


def _bad_body(row: pa.RecordBatch, piece: Range, reason: str) -> BadBody:
    start = row.column("commitLogOffset")[0].as_py()
    return BadBody(row, damage_in(piece.segment, start, start + row.column("storeSize")[0].as_py(), reason))
