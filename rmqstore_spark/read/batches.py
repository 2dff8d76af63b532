"""From a task's byte ranges to record batches: decoding, decompression, and what to do about damage."""

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from native_io import COLUMNS as UNIT_COLUMNS
from native_io import FORMAT, Filter
from rmqstore_spark.columns import batch_of
from rmqstore_spark.errors import DamagedStoreError
from rmqstore_spark.option_types import Mode
from rmqstore_spark.options import ReadOptions
from rmqstore_spark.read.find import SelectedUnits
from rmqstore_spark.read.origins import ORIGIN_COLUMNS, ORIGIN_NEEDS, Origins
from rmqstore_spark.read.parts import Parts
from rmqstore_spark.read.pinned import hold_trusted
from rmqstore_spark.read.queue_rows import QueueRows
from rmqstore_spark.read.task import Covered, Indexed, Queued, Range, Scanned, Task
from rmqstore_spark.read.told import say_mended, say_passed_over
from rmqstore_spark.selection import EVERYTHING, Selection
from rmqstore_spark.store.bodies import BadBodyError, decompress
from rmqstore_spark.store.commitlog import SegmentReader
from rmqstore_spark.store.read_ahead import ReadAhead
from rmqstore_spark.store.segments import Damage, damage_in
from rmqstore_spark.store.storage import Storage
from rmqstore_spark.store.units import BatchBuilder, Budget, Positions

# Spark moves batches of about 1 MB best. The first ones are small, so that show() and limit() answer at once.
BATCH_BYTES = 1024 * 1024
BATCH_ROWS = 16 * 1024
FIRST_BATCH_ROWS = 64
_INDEXED_AHEAD = 64  # messages, of all pieces together


@dataclass(frozen=True)
class ReadSettings:
    """How a task reads.

    Attributes:
        schema: the record batches' schema: which columns, in which order, and which of them may be null.
        storage: how remote stores are reached; None: as their files know.
        batch_bytes: of Arrow data in a batch; 0: as Spark moves them best.
    """

    schema: pa.Schema
    mode: Mode = "FAILFAST"
    verify_crc: bool = True
    decompress: bool = True
    selection: Selection = EVERYTHING
    storage: Storage | None = None
    batch_bytes: int = 0

    @classmethod
    def of(cls, options: ReadOptions, schema: pa.Schema, batch_bytes: int = 0) -> "ReadSettings":
        """As options say, all of them: whoever reads tasks takes this one."""
        return cls(
            schema,
            options.mode,
            options.verify_crc,
            options.decompress,
            options.selection,
            options.storage,
            batch_bytes,
        )


def read_task(task: Task, settings: ReadSettings) -> Iterator[pa.RecordBatch]:
    """The record batches of a task, in log order.

    Raises:
        DamagedStoreError: mode FAILFAST, and something is damaged.
        OptionError: a column that the schema declares NOT NULL is null.
    """
    _reach(task, settings)
    yield from _TaskReader(_own(settings, task)).read_all(task, _ahead_of([task], settings))


class TaskReaders:
    """Reads many tasks in one process, several at a time in threads of the caller's: the memory of one is used again
    for the next. Each reads by copies of the stores of its own, as a task of Spark's does: threads share nothing then.

    Args:
        tasks: all of them, in the order in which they are to be read.
    """

    def __init__(self, settings: ReadSettings, tasks: Sequence[Task]) -> None:
        self._settings = settings
        self._ahead = _ahead_of(tasks, settings)
        self._free: list[_TaskReader] = []
        self._all: list[_TaskReader] = []

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        """As read_task()."""
        if task.selection is not None:
            reader = _TaskReader(_own(self._settings, task))
            yield from reader.read_all(reader.copy_of(task), self._ahead)
            return
        reader = self._reader()
        yield from reader.read_all(reader.copy_of(task), self._ahead)
        self._free.append(reader)

    def read_part(self, parts: Parts, number: int) -> Iterator[pa.RecordBatch]:
        """The same of a part of one of them."""
        if parts.is_void(number):
            return
        reader = self._reader()
        yield from reader.read_part(parts, number)
        self._free.append(reader)

    def close(self) -> None:
        """Close what is open. Nothing may be read afterwards."""
        for reader in self._all:
            reader.close()

    def _reader(self) -> "_TaskReader":
        try:
            return self._free.pop()
        except IndexError:
            reader = _TaskReader(self._settings)
            self._all.append(reader)
            return reader


def _own(settings: ReadSettings, task: Task) -> ReadSettings:
    return settings if task.selection is None else replace(settings, selection=task.selection)


def _reach(task: Task, settings: ReadSettings) -> None:
    """Tell a task that came from elsewhere how remote stores are reached."""
    if settings.storage is not None:
        for piece in task.ranges:
            for read in (piece, *piece.spares):
                read.store.files.set_credentials(settings.storage)


def _ahead_of(tasks: Sequence[Task], settings: ReadSettings) -> ReadAhead:
    """What tasks scan, to be fetched ahead; and what is first looked at by an index, which is asked for now."""
    ahead = ReadAhead()
    indexed = [piece for task in tasks for piece in task.ranges if isinstance(piece, Indexed)]
    for each in indexed[:_INDEXED_AHEAD]:
        first = each.positions[: max(1, _INDEXED_AHEAD // len(indexed))]
        each.store.files.prefetch((each.segment.path, at) for at in (first - each.segment.start).tolist())
    for task in tasks:
        last = _own(settings, task).selection.commit_log_offset.most
        for piece in task.ranges:
            if isinstance(piece, Scanned):
                segment, stop = piece.segment, min(piece.stop, last + 1)
                piece.store.files.prefetch_range(
                    ahead, segment.path, segment.pin, piece.start - segment.start, stop - segment.start
                )
    return ahead


class _TaskReader:
    def __init__(self, settings: ReadSettings) -> None:
        self._settings = settings
        self._copied: Task | None = None
        self._copy = Task()
        self._open: SegmentReader | None = None  # of the task that is read in parts
        self._batch_bytes = settings.batch_bytes or BATCH_BYTES
        names = settings.schema.names
        # Bodies can be decompressed only with the flag that tells how, and told where they fail.
        self._decompresses = settings.decompress and "body" in names
        of_units = [name for name in names if name in UNIT_COLUMNS]
        helpers = ["sysFlag", "commitLogOffset", "storeSize"] if self._decompresses else []
        self._has_origins = not ORIGIN_COLUMNS.isdisjoint(names)
        helpers += ORIGIN_NEEDS if self._has_origins else []
        columns = of_units + [name for name in helpers if name not in of_units]
        self._builder = BatchBuilder(columns, Budget(BATCH_ROWS, self._batch_bytes), FIRST_BATCH_ROWS)
        everything = settings.selection.is_everything
        self._selected_units = None if everything else SelectedUnits(settings.selection, settings.verify_crc)
        self._queue_rows = QueueRows(names, settings.selection)
        self._is_plain = self._builder.decoder.columns == tuple(names) and settings.schema.equals(self._builder.schema)

    def copy_of(self, task: Task) -> Task:
        """The task with stores that nobody else uses; as long as it is asked for the same one, the same."""
        if self._copied is not task:
            self.close()
            self._copied, self._copy = task, pickle.loads(pickle.dumps(task))
            _reach(self._copy, self._settings)
        return self._copy

    def close(self) -> None:
        """Close the file whose parts were read."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def read_part(self, parts: Parts, number: int) -> Iterator[pa.RecordBatch]:
        """The messages of a part of a task. Where the part's end is none, it goes on to that of the task."""
        (whole,) = self.copy_of(parts.task).ranges
        if self._open is None:
            self._open = whole.store.reader(whole.segment, self._settings.verify_crc)
        start, stop = parts.bounds(number, self._open)
        if start >= stop:
            return
        for damage in self._decoded_by(self._open, replace(whole, start=start, stop=stop), None):
            if damage is not None:
                yield from self._finish(whole, whole.spares)
                parts.end_with(number)
                yield from self._read(replace(whole, start=damage.start), whole.spares, [])
                return
            yield from self._finish_full(whole, whole.spares)
        yield from self._finish(whole, whole.spares)

    def read_all(self, task: Task, ahead: ReadAhead) -> Iterator[pa.RecordBatch]:
        for store, fault in task.faults:
            yield from self.damaged(store, fault)
        for piece in task.ranges:
            piece.store.files.read_from(ahead)
            hold_trusted(piece)
            if isinstance(piece, Covered):
                for rows, arrays in self._queue_rows.read(piece):
                    yield batch_of(arrays, rows, self._settings.schema)
            else:
                yield from self._read(piece, piece.spares, [])

    def _read(self, piece: Range, spares: Sequence[Range], given: list[Positions]) -> Iterator[pa.RecordBatch]:
        """The messages of a piece.

        Args:
            spares: copies that are read where it is damaged.
            given: which messages an accelerator has led to already: these are added here, and do not come again from
                a copy that is read because of damage before them.
        """
        units = self._selected_units
        if units is None:
            found = self._decoded(piece, None)
        elif not given and (chosen := units.filter_of(piece)) is not None:
            found = self._decoded(piece, chosen)
        else:
            found = self._selected(piece, units, given)
        for damage in found:
            if damage is not None:
                yield from self._finish(piece, spares)
                yield from self._mended(piece, damage, spares, given)
            else:
                yield from self._finish_full(piece, spares)
        yield from self._finish(piece, spares)

    def _mended(
        self, piece: Range, damage: Damage, spares: Sequence[Range], given: list[Positions]
    ) -> Iterator[pa.RecordBatch]:
        """What copies have instead of something damaged, and what the mode makes of the rest."""
        spare = _spare_at(damage.start, spares)
        if spare is None:
            yield from self.damaged(piece.store.root, damage)
            return
        others = [other for other in spares if other is not spare]
        say_mended(damage.place, spare.segment.path)
        stop = min(damage.stop, spare.stop)
        yield from self._read(Scanned(spare.segment, damage.start, stop, spare.store), others, given)
        if stop < damage.stop:
            yield from self._mended(piece, damage.after(stop), others, given)

    def _decoded(self, piece: Range, chosen: Filter | None) -> Iterator[Damage | None]:
        """Decode the units of a piece, all or those that a filter chooses; yields after each step, and what is
        damaged."""
        with piece.store.reader(piece.segment, self._settings.verify_crc) as reader:
            yield from self._decoded_by(reader, piece, chosen)

    def _decoded_by(self, reader: SegmentReader, piece: Range, chosen: Filter | None) -> Iterator[Damage | None]:
        damage = piece.store.past_damage(reader)
        return damage.decode(piece.start, piece.stop, self._builder, chosen)

    def _selected(self, piece: Range, units: SelectedUnits, given: list[Positions]) -> Iterator[Damage | None]:
        """The same with the selected units alone."""
        for found in units.read(piece):
            if isinstance(found, Damage):
                yield found
                continue
            if isinstance(piece, Queued | Indexed):
                given.append(found.positions.copy())
            elif given:
                found = found.only(~np.isin(found.positions, np.concatenate(given)))
            while len(found.positions):
                free = self._builder.budget.rows
                found.only(slice(free)).add_to(self._builder)
                found = found.only(slice(free, None))
                yield None

    def damaged(self, store: str, damage: Damage) -> Iterator[pa.RecordBatch]:
        """What the mode makes of a damaged region."""
        if self._settings.mode == "FAILFAST":
            raise DamagedStoreError(str(damage))
        say_passed_over(damage.place)
        if self._settings.mode == "PERMISSIVE":
            known = {"commitLogOffset": damage.start, "file": damage.path, "store": store, "corrupt": damage.reason}
            arrays = [pa.array([known.get(field.name)], field.type) for field in self._settings.schema]
            yield batch_of(arrays, 1, self._settings.schema)

    def _finish_full(self, piece: Range, spares: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """The rows decoded so far, if they are enough for a batch."""
        if self._builder.is_full:
            yield from self._finish(piece, spares)

    def _finish(self, piece: Range, spares: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """The rows decoded so far, which all are of one segment."""
        decoder = self._builder.decoder
        if decoder.rows == 0:
            return
        any_compressed = self._decompresses and decoder.compressed > 0
        batch = self._builder.finish()
        if any_compressed:
            yield from self._decompressed(batch, piece, spares)
        elif self._is_plain:
            yield batch
        else:
            yield self._arrange(batch, piece, None)

    def _arrange(self, batch: pa.RecordBatch, piece: Range, corrupt: pa.Array | None) -> pa.RecordBatch:
        """The columns as they were asked for."""
        arrays = []
        origins = Origins(batch, lambda: piece.store.known_topics) if self._has_origins else None
        for field in self._settings.schema:
            match field.name:
                case "file":
                    arrays.append(pa.repeat(pa.scalar(piece.segment.path), batch.num_rows))
                case "store":
                    arrays.append(pa.repeat(pa.scalar(piece.store.root), batch.num_rows))
                case "corrupt":
                    arrays.append(pa.nulls(batch.num_rows, field.type) if corrupt is None else corrupt)
                case name if origins is not None and name in ORIGIN_COLUMNS:
                    arrays.append(origins.column(name))
                case name:
                    arrays.append(batch.column(name))
        return batch_of(arrays, batch.num_rows, self._settings.schema)

    def _decompressed(self, batch: pa.RecordBatch, piece: Range, spares: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """The rows with their bodies decompressed, cut where that would make a batch too large. Where a body is not
        what its flag says, a copy has the row, or the mode says what becomes of it."""
        stored, flags = batch.column("body"), batch.column("sysFlag").to_pylist()
        bodies: list[bytes | None] = []
        start = size = 0
        for row, flag in enumerate(flags):
            body = stored[row].as_py()
            if flag & FORMAT["SYSFLAG_COMPRESSED"]:
                try:
                    body = decompress(body, flag)
                except BadBodyError as why:
                    yield from self._with_bodies(batch.slice(start, row - start), bodies, piece)
                    yield from self._without_body(batch.slice(row, 1), piece, spares, str(why))
                    bodies, start, size = [], row + 1, 0
                    continue
            bodies.append(body)
            size += len(body)
            if size >= self._batch_bytes:
                yield from self._with_bodies(batch.slice(start, row + 1 - start), bodies, piece)
                bodies, start, size = [], row + 1, 0
        yield from self._with_bodies(batch.slice(start), bodies, piece)

    def _without_body(
        self, row: pa.RecordBatch, piece: Range, spares: Sequence[Range], reason: str
    ) -> Iterator[pa.RecordBatch]:
        """What becomes of a row whose body cannot be decompressed."""
        start = row.column("commitLogOffset")[0].as_py()
        damage = damage_in(piece.segment, start, start + row.column("storeSize")[0].as_py(), reason)
        if _spare_at(start, spares) is not None:
            yield from self._mended(piece, damage, spares, [])
            return
        if self._settings.mode == "FAILFAST":
            raise DamagedStoreError(str(damage))
        say_passed_over(damage.place)
        if self._settings.mode == "PERMISSIVE":
            yield from self._with_bodies(row, [None], piece, reason)

    def _with_bodies(
        self, rows: pa.RecordBatch, bodies: list[bytes | None], piece: Range, corrupt: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows with other bodies, if there are any.

        Args:
            corrupt: what is wrong with all of them.
        """
        if not rows.num_rows:
            return
        at = rows.schema.get_field_index("body")
        rows = rows.set_column(at, "body", pa.array(bodies, pa.binary()))
        yield self._arrange(rows, piece, pa.array([corrupt] * rows.num_rows, pa.string()))


def _spare_at(position: int, spares: Sequence[Range]) -> Range | None:
    """The first of some copies that has a physical offset."""
    return next((spare for spare in spares if spare.start <= position < spare.stop), None)
