"""The list of all tables, and how each is read. No other module knows how many tables there are.

A table's module is loaded when the table is asked for. `messages` is not in the list: a read without the option `table`
reads messages, and read/plan/planner.py plans it.
"""

import functools
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from rmqstore_spark.columns import as_schema, batch_of
from rmqstore_spark.errors import NotAStoreError, OptionError, nearest, quoted
from rmqstore_spark.progress import Progress
from rmqstore_spark.query.options import MESSAGES, ReadOptions, Use, check_columns, going_with
from rmqstore_spark.query.selection import Selection
from rmqstore_spark.read.plan.again import again, begun_again
from rmqstore_spark.read.plan.check_names import check_queues, check_topics, say_unknown_queues, say_unknown_topics
from rmqstore_spark.read.plan.joined import refuse_several_brokers
from rmqstore_spark.read.plan.store_options import with_offsets
from rmqstore_spark.read.plan.stores import files_of, open_stores
from rmqstore_spark.read.run.parallel import Job, in_order
from rmqstore_spark.store.elsewhere import say_what_is_unknown
from rmqstore_spark.store.io.files import Files
from rmqstore_spark.store.logs import find_log
from rmqstore_spark.store.snapshot import Snapshot
from rmqstore_spark.store.structures.proofs import Proof, hold
from rmqstore_spark.tables.table import Part, Table

OF_ALL_TABLES = going_with(Use.TABLE).keys()
_READERS = 4  # threads that read parts of a table where they mostly wait for requests
_STORE = "store"  # the column that every table has by name


# The module of each table, below rmqstore_spark.tables, in the order in which tables are shown.
TABLES = {
    "topics": "topics:TOPICS",
    "queues": "queues:QUEUES",
    "groups": "groups:GROUPS",
    "offsets": "offsets:OFFSETS",
    "usage": "usage:USAGE",
    "segments": "segments:SEGMENTS",
    "checkpoint": "checkpoint:CHECKPOINT",
    "epochs": "epochs:EPOCHS",
    "logicqueues": "logicqueues:LOGIC_QUEUES",
    "consumequeue": "consumequeue:CONSUMEQUEUE",
    "indexfiles": "indexfiles:INDEXFILES",
    "index": "index:INDEX",
    "delayed": "delayed:DELAYED",
    "transactions": "transactions:TRANSACTIONS",
    "inflight": "inflight:INFLIGHT",
    "traces": "traces:TRACES",
    "check": "check.table:CHECK",
}


@dataclass(frozen=True)
class TableTask:
    """One task of a table.

    Attributes:
        root: the store directory; the task opens the store anew.
        part: one of Table.parts.
        selection: the selection for this store; only the plan knows it where options name a consumer group.
        seen: proofs of what the plan saw in the store; none if the store has no log.
        queue: the queue whose own log it is of, in a tiered store.
    """

    root: str
    part: Part
    selection: Selection
    seen: tuple[Proof, ...]
    queue: tuple[str, int] | None = None

    def hold(self, files: Files) -> None:
        """Check that the store is still the one that the plan saw.

        Raises:
            StorageError: the store is another one.
        """
        hold(self.seen, files)


def table(name: str) -> Table:
    """The table with a name.

    Raises:
        OptionError: there is no such table; the text names the nearest.
    """
    if name not in TABLES:
        known = [MESSAGES, *TABLES]
        raise OptionError(f"unknown table {quoted(name)}.{nearest(name, known)} The tables are {', '.join(known)}")
    module, _, variable = TABLES[name].partition(":")
    found: Table = getattr(importlib.import_module(f"rmqstore_spark.tables.{module}"), variable)
    return found


def table_of(options: ReadOptions) -> Table:
    """The table that the options ask for.

    Raises:
        OptionError: there is no such table, it lacks a column, or it does not take an option.
    """
    found = table(options.table)
    if unfit := sorted(options.given - OF_ALL_TABLES - found.options):
        fit = ", ".join(sorted(found.options)) or "none"
        raise OptionError(
            f"option {unfit[0]!r} does not go with table {found.name!r}, of which a row is {found.row}; "
            f"those that select its rows are: {fit}"
        )
    if options.columns is not None:
        schema_of(found, options.columns)
    return found


def takes(name: str, option: str) -> bool:
    """Does a table take an option, whose name is compared in any case?

    Raises:
        OptionError: there is no such table.
    """
    return option.lower() in {known.lower() for known in OF_ALL_TABLES | table(name).options}


def schema_of(table: Table, columns: list[str] | None = None) -> pa.Schema:
    """The schema of a table's columns in this order; of all columns except `store` if none are named.

    Raises:
        OptionError: the table lacks one of the columns.
    """
    if columns is None:
        return table.schema
    types = column_types(table)
    check_columns(columns, types)
    return pa.schema([pa.field(name, types[name]) for name in columns])


def column_types(table: Table) -> dict[str, pa.DataType]:
    """All columns of a table and their types, also of those that exist by name only."""
    return {field.name: field.type for field in (*table.schema, *as_schema(table.by_name))} | {_STORE: pa.string()}


def plan_table(table: Table, options: ReadOptions, stores: list[Snapshot] | None = None) -> list[TableTask]:
    """The tasks that read a table of the stores that the options name, in the stores' order.

    Args:
        stores: these stores, if they are already open.

    Raises:
        OptionError: the offsets name a queue, or a group, that no store has; or a selected topic or queue is unknown,
            and the table's rows are made of all messages that options select. In other tables that only causes a
            warning in the log, as they may still come.
        RmqStoreError: a path is no store, or the store cannot be read.
    """
    if stores is None:
        return again(lambda: plan_table(table, options, _stores(table, options)))
    for store in stores:
        say_what_is_unknown(store, table.name, topics=options.selection.named_topics)
    if table.options.issuperset(going_with(Use.SELECT)):
        check_topics(options.subscribe, stores)
        check_queues(options.selection, stores)
    else:
        say_unknown_topics(options.subscribe, stores)
        say_unknown_queues(options.selection.assigned, stores)
        check_queues(replace(options.selection, assigned=None), stores)
    tasks: list[TableTask] = []
    for store, own in with_offsets(options, stores):
        seen = _seen(table, store, own)
        tasks += [
            TableTask(store.root, part, own.selection, seen, store.layout.queue) for part in table.parts(store, own)
        ]
    return tasks


def _stores(table: Table, options: ReadOptions) -> list[Snapshot]:
    stores = open_stores(options, files_of(options), with_queue_logs=table.of_queue_logs)
    refuse_several_brokers([store.layout for store in stores if not store.is_whole])
    return stores


def _seen(table: Table, store: Snapshot, options: ReadOptions) -> tuple[Proof, ...]:
    found = [store.glimpsed, *table.seen(store, options)]
    return tuple(proof for proof in found if proof is not None)


def read_part(
    table: Table,
    task: TableTask,
    options: ReadOptions,
    schema: pa.Schema,
    store: Snapshot | None = None,
    beside: Files | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a task.

    Args:
        schema: the schema of the record batches: which columns, and which of them may be null.
        store: the task's store, if it is already open.
        beside: access to the store's files in this process that may be shared, if the store is not open.

    Raises:
        StorageError: the store is not the one that the plan saw, or is replaced meanwhile.
    """
    if store is None:
        yield from begun_again(lambda: read_part(table, task, options, schema, _found(task, options, beside)))
        return
    task.hold(store.files)
    own = replace(options, selection=task.selection, starting_group=None, columns=list(schema.names))
    for batch in table.rows(store, own, task.part):
        yield _arranged(batch, store, schema)
    task.hold(store.files)


def _found(task: TableTask, options: ReadOptions, beside: Files | None) -> Snapshot:
    files = files_of(options)
    if beside is not None:
        files.share(beside)
    try:
        return find_log(task.root, files, options.store_path_commit_log, committed=options.committed, queue=task.queue)
    except NotAStoreError:
        task.hold(files)  # its error tells what the plan saw
        raise


def read_table(options: ReadOptions, stores: list[Snapshot] | None = None) -> pa.Table:
    """A whole table of the stores that the options name, read in this process.

    Args:
        stores: these stores, where they are open already.

    Raises:
        RmqStoreError: an error of plan_table() or of reading the table.
    """
    schema = schema_of(table_of(options), options.columns)
    if stores is None:
        return again(lambda: read_table(options, _stores(table_of(options), options)))
    return pa.Table.from_batches(_batches(options, stores), schema)


def table_batches(options: ReadOptions, stores: list[Snapshot] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of the table as they are read. Arguments and errors are those of read_table()."""
    if stores is not None:
        yield from _batches(options, stores)
        return
    yield from begun_again(lambda: _batches(options, _stores(table_of(options), options)))


def _batches(options: ReadOptions, stores: list[Snapshot]) -> Iterator[pa.RecordBatch]:
    found = table_of(options)
    schema = schema_of(found, options.columns)
    tasks = plan_table(found, options, stores)

    def done_by(task: TableTask) -> int:
        return 1 if found.nbytes is None else found.nbytes(task.part)

    progress = Progress(f"table {found.name}", sum(map(done_by, tasks)), None if found.nbytes else "parts")
    if len(tasks) > len(stores):
        yield from in_order(
            [
                Job(
                    _reading(
                        found, task, options, schema, stores[0].files, functools.partial(progress.add, done_by(task))
                    )
                )
                for task in tasks
            ],
            _READERS if stores[0].files.is_slow else None,
        )
        return
    by_log = {
        (store.root, store.layout.queue): store for store in stores
    }  # one task each: reuse what the store has found out
    for task in tasks:
        yield from read_part(found, task, options, schema, by_log[task.root, task.queue])
        progress.add(done_by(task))


def _reading(
    table: Table,
    task: TableTask,
    options: ReadOptions,
    schema: pa.Schema,
    beside: Files,
    done: Callable[[], None],
) -> Callable[[], Iterator[pa.RecordBatch]]:
    def read() -> Iterator[pa.RecordBatch]:
        yield from read_part(table, task, options, schema, beside=beside)
        done()

    return read


def _arranged(batch: pa.RecordBatch, store: Snapshot, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a batch that the schema names."""
    arrays = [
        pa.repeat(store.root, batch.num_rows) if field.name == _STORE else batch.column(field.name) for field in schema
    ]
    return batch_of(arrays, batch.num_rows, schema)
