"""From a task's ranges to record batches: decoding, decompression, and the handling of damage."""

import pickle
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from rmqstore_spark.columns import batch_of
from rmqstore_spark.query.option_types import Mode
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.query.selection import EVERYTHING, Selection
from rmqstore_spark.read.pieces.pinned import hold_trusted
from rmqstore_spark.read.pieces.queue_rows import QueueRows
from rmqstore_spark.read.pieces.task import Covered, Indexed, Scanned, Task
from rmqstore_spark.read.run.batch_maker import BadBody, BatchMaker
from rmqstore_spark.read.run.damage_reports import say_passed_over
from rmqstore_spark.read.run.parts import Parts
from rmqstore_spark.read.run.unit_source import Step, UnitSource, replica_at
from rmqstore_spark.store.io.read_ahead import ReadAhead
from rmqstore_spark.store.io.storage import Storage
from rmqstore_spark.store.structures.commitlog import SegmentReader
from rmqstore_spark.store.structures.segments import Damage

Batches = Iterator[pa.RecordBatch]

_INDEXED_AHEAD = 64  # messages, of all pieces together


@dataclass(frozen=True)
class ReadSettings:
    """The settings by which tasks are read.

    Large because each option that says how messages become rows has a field.

    Attributes:
        schema: the schema of the batches: their columns, in order, and which of them may be null.
        storage: access to remote stores; None: as the stores' own files know.
        batch_bytes: bytes of Arrow data in a batch; 0: the size that Spark moves best.
    """

    schema: pa.Schema
    mode: Mode = "FAILFAST"
    verify_crc: bool = True
    decompress: bool = True
    explode_batches: bool = True
    as_original: bool = False
    selection: Selection = EVERYTHING
    storage: Storage | None = None
    batch_bytes: int = 0

    @classmethod
    def of(cls, options: ReadOptions, schema: pa.Schema, batch_bytes: int = 0) -> "ReadSettings":
        """The settings that options ask for. Every reader of tasks takes its settings from here."""
        return cls(
            schema,
            options.mode,
            options.verify_crc,
            options.decompress,
            options.explode_batches,
            options.as_original,
            options.selection,
            options.storage,
            batch_bytes,
        )


def read_task(task: Task, settings: ReadSettings) -> Batches:
    """The record batches of a task, in log order.

    Raises:
        DamagedStoreError: mode FAILFAST, and something is damaged.
        OptionError: a column that the schema declares NOT NULL is null.
    """
    _reach(task, settings)
    yield from _TaskReader(_own(settings, task)).read_all(task, _ahead_of([task], settings))


class TaskReaders:
    """Reads many tasks in one process, several at a time in threads of the caller: a task uses the memory of an earlier
    one again. Each thread reads with its own copies of the stores, as a Spark task does, so threads share nothing.

    Args:
        tasks: all tasks, in the order in which they are read.
    """

    def __init__(self, settings: ReadSettings, tasks: Sequence[Task]) -> None:
        self._settings = settings
        self._ahead = _ahead_of(tasks, settings)
        self._free: list[_TaskReader] = []
        self._all: list[_TaskReader] = []

    def read(self, task: Task) -> Batches:
        """The batches of a task; as read_task()."""
        if task.selection is not None:
            reader = _TaskReader(_own(self._settings, task))
            yield from reader.read_all(reader.copy_of(task), self._ahead)
            return
        reader = self._reader()
        yield from reader.read_all(reader.copy_of(task), self._ahead)
        self._free.append(reader)

    def read_part(self, parts: Parts, number: int) -> Batches:
        """The batches of a part of a task; as read_task()."""
        if parts.is_void(number):
            return
        reader = self._reader()
        yield from reader.read_part(parts, number)
        self._free.append(reader)

    def close(self) -> None:
        """Close all open files. Nothing may be read afterwards."""
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
    """Tell the stores of a task that came from elsewhere how remote files are reached."""
    if settings.storage is not None:
        for piece in task.ranges:
            for read in (piece, *piece.spares):
                read.store.set_credentials(settings.storage)


def _ahead_of(tasks: Sequence[Task], settings: ReadSettings) -> ReadAhead:
    """The ranges that tasks scan, to be fetched ahead; for those that an index names, the first messages, asked for
    now."""
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
    """Reads tasks, one at a time: selects units, chooses where to read them, and handles damage."""

    def __init__(self, settings: ReadSettings) -> None:
        self._settings = settings
        self._copied: Task | None = None
        self._copy = Task()
        self._open: SegmentReader | None = None  # the segment of the task that is read in parts
        self._maker = BatchMaker(
            settings.schema,
            settings.decompress,
            settings.batch_bytes,
            explodes=settings.explode_batches,
            as_original=settings.as_original,
        )
        self._units = UnitSource(settings.selection, settings.verify_crc, self._maker.builder)
        self._queue_rows = QueueRows(settings.schema.names, settings.selection)

    def copy_of(self, task: Task) -> Task:
        """The task with stores that no other thread uses; the last copy again if it is of the same task."""
        if self._copied is not task:
            self.close()
            self._copied, self._copy = task, pickle.loads(pickle.dumps(task))
            _reach(self._copy, self._settings)
        return self._copy

    def close(self) -> None:
        """Close the segment whose parts were read."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def read_part(self, parts: Parts, number: int) -> Batches:
        """The messages of a part of a task. Where the part's end is no unit start, the part goes on to the end of the
        task."""
        (whole,) = self.copy_of(parts.task).ranges
        if self._open is None:
            self._open = whole.store.reader(whole.segment, self._settings.verify_crc)
        start, stop = parts.bounds(number, self._open)
        if start >= stop:
            return
        damage = yield from self._batches(
            self._units.read_to_damage(replace(whole, start=start, stop=stop), self._open)
        )
        if damage is not None:
            parts.end_with(number)
            yield from self._batches(self._units.read(replace(whole, start=damage.start)))

    def read_all(self, task: Task, ahead: ReadAhead) -> Batches:
        for store, fault in task.faults:
            yield from self._lost(store, fault)
        for piece in task.ranges:
            piece.store.files.read_from(ahead)
            hold_trusted(piece)
            if isinstance(piece, Covered):
                for rows, arrays in self._queue_rows.read(piece):
                    yield batch_of(arrays, rows, self._settings.schema)
            else:
                yield from self._batches(self._units.read(piece))

    def _batches(self, steps: Iterable[Step]) -> Generator[pa.RecordBatch, None, Damage | None]:
        """The batches of the units that a source decodes, step by step; the generator returns the source's result."""
        coming = iter(steps)
        while True:
            try:
                step = next(coming)
            except StopIteration as end:
                answer: Damage | None = end.value
                return answer
            if step.lost is not None:
                yield from self._lost(step.piece.store.root, step.lost)
            elif step.is_last or self._maker.builder.is_full:
                for made in self._maker.finish(step.piece):
                    if isinstance(made, BadBody):
                        yield from self._replaced(made, step)
                    else:
                        yield made

    def _replaced(self, bad: BadBody, step: Step) -> Batches:
        """The handling of a message whose body cannot be decompressed: a replica has the message, or the mode
        decides."""
        if replica_at(bad.damage.start, step.replicas) is not None:
            yield from self._batches(self._units.replaced(step.piece, bad.damage, step.replicas))
        elif self._is_shown(bad.damage):
            yield self._maker.without_body(bad, step.piece)

    def _lost(self, store: str, damage: Damage) -> Batches:
        if self._is_shown(damage):
            yield self._maker.lost(damage, store)

    def _is_shown(self, damage: Damage) -> bool:
        """Does something damaged get a row?

        Raises:
            DamagedStoreError: the mode is FAILFAST.
        """
        if self._settings.mode == "FAILFAST":
            raise damage.error()
        say_passed_over(damage.place)
        return self._settings.mode == "PERMISSIVE"
