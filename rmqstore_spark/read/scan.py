"""Messages as record batches in the calling process: the way in which `Store`, tables, copies and the command line
read.

Spark's tasks come from the same planner; each of them is read by read_task().
"""

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from rmqstore_spark.columns import arrow_schema
from rmqstore_spark.cores import workers
from rmqstore_spark.progress import Progress
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.read.pieces.task import Task
from rmqstore_spark.read.plan.again import begun_again
from rmqstore_spark.read.plan.planner import Plan, plan, plan_stores
from rmqstore_spark.read.plan.stores import files_of
from rmqstore_spark.read.run.batches import ReadSettings, TaskReaders, read_task
from rmqstore_spark.read.run.parallel import BATCH_BYTES, Job, in_order
from rmqstore_spark.read.run.parts import PART_BYTES, Parts
from rmqstore_spark.store.snapshot import Snapshot

Batches = Iterator[pa.RecordBatch]

DECODING_WHERE_SLOW = 0.5  # of the cores
# Bytes of the log in a task: small, so that threads do not run far ahead of the taker.
TASK_BYTES = 32 * 1024 * 1024
TASK_BYTES_WHERE_SLOW = 64 * 1024 * 1024
_LARGE_TASK = 1024 * 1024 * 1024  # bytes of the log: of a task in parts, and of one that nobody waits for


@dataclass(frozen=True)
class Scan:
    """The messages to read, of which stores, and how.

    Attributes:
        options: the stores, the selected messages, and how to read them.
        columns: the columns of the batches.
        stores: stores that are open already, no two of them copies of one: paths and a consumer group in the options do
            not count then. None: the stores that the options name, as they are when batches are asked for.
    """

    options: ReadOptions
    columns: list[str]
    stores: tuple[Snapshot, ...] | None = None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        return arrow_schema(self.columns)

    def batches(self) -> Batches:
        """The messages in the order of the log. All cores that this process may use work ahead of the taker, up to a
        limit. The read is planned by this call.

        Raises:
            RmqStoreError: as by plan(); and as by read_task(), while batches are taken.
        """
        selection = self.options.selection
        if self.stores is not None or not (selection.names or selection.ids):
            return self._begun()
        # A look-up begins again when a broker deletes files meanwhile: deleted messages are simply not found.
        begun = [self._begun()]
        return begun_again(lambda: begun.pop() if begun else self._begun())

    def _begun(self) -> Batches:
        files = files_of(self.options) if self.stores is None else self.stores[0].files
        # Slow storage keeps some of the cores busy with bringing the bytes.
        threads = max(1, int(workers() * (DECODING_WHERE_SLOW if files.is_slow else 1)))
        task_bytes = TASK_BYTES_WHERE_SLOW if files.is_slow else TASK_BYTES
        # Planning so large a task is no more work than its segments are.
        are_cut = threads > 1 and not files.is_slow and self.options.is_everything
        options = self.options
        if options.max_partition_bytes is None:
            waits = files.is_slow or (threads > 1 and not are_cut)
            options = replace(options, max_partition_bytes=task_bytes if waits else _LARGE_TASK)
        puts_off = not files.is_slow
        if self.stores is None:
            planned = plan(options, files, self.columns, puts_off=puts_off)
        else:
            planned = plan_stores(list(self.stores), options, files, self.columns, puts_off=puts_off)
        settings = ReadSettings.of(options, self.schema, BATCH_BYTES if threads > 1 else 0)
        # Where little is decoded, larger parts give larger batches.
        part_bytes = (PART_BYTES if "body" in self.columns else task_bytes) if are_cut else 0
        return _read_all(planned, settings, threads, part_bytes)


def _read_all(planned: Plan, settings: ReadSettings, threads: int, part_bytes: int) -> Batches:
    """The batches of all tasks of a plan.

    Args:
        part_bytes: bytes of the log in a part of a task; 0: no task is cut.
    """
    tasks = planned.tasks
    progress = Progress("messages", sum(task.nbytes for task in tasks), is_said=False)
    ready = planned.ready()
    first = list(itertools.islice(ready, 2))
    if len(first) == 1 and not part_bytes:
        yield from read_task(first[0], settings)
        progress.add(first[0].nbytes)
        return
    readers = TaskReaders(settings, tasks)
    try:
        yield from in_order(_jobs(itertools.chain(first, ready), readers, progress, part_bytes), threads)
    finally:
        readers.close()


def _jobs(tasks: Iterable[Task], readers: TaskReaders, progress: Progress, part_bytes: int) -> Iterator[Job]:
    """The jobs of a read, in order. Arguments as of _read_all()."""
    for task in tasks:
        if not part_bytes or not Parts.is_worth(task, part_bytes):
            yield Job(functools.partial(_read, task, readers, progress))
            continue
        parts = Parts(task, part_bytes)
        for number in range(parts.count):
            read = functools.partial(_read_part, parts, number, readers, progress)
            yield Job(read, functools.partial(parts.is_void, number))


def _read(task: Task, readers: TaskReaders, progress: Progress) -> Batches:
    """The batches of a task."""
    yield from readers.read(task)
    progress.add(task.nbytes)


def _read_part(parts: Parts, number: int, readers: TaskReaders, progress: Progress) -> Batches:
    """The batches of a part of a task."""
    yield from readers.read_part(parts, number)
    progress.add(parts.bytes_done(number))
