"""A read of a table, `messages` or another one, as tasks that any engine can read, each in any process."""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Unpack

import pyarrow as pa
import pyarrow.compute as pc

from rmqstore_spark.query.expressions import understood
from rmqstore_spark.query.option_texts import StorageOptions
from rmqstore_spark.query.options import MESSAGES, ReadOptions, check_columns, option_texts
from rmqstore_spark.read.pieces.task import Task
from rmqstore_spark.read.plan.planner import plan
from rmqstore_spark.read.run.batches import ReadSettings, read_task
from rmqstore_spark.store.io.storage import is_storage_option
from rmqstore_spark.tables.registry import TableTask, plan_table, read_part, table_of
from rmqstore_spark.tables.wanted import Wanted, dataset_schema, known_columns


@dataclass(frozen=True, eq=False)
class StoreTask:
    """A part of a read. It can be pickled, without secrets, and read in any process, several times and by several
    threads.

    Attributes:
        size: the bytes of the store that it covers, at the most; None for a table of which they are few.
    """

    size: int | None
    _wanted: Wanted = field(repr=False)
    _piece: Task | TableTask = field(repr=False)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the record batches."""
        return self._wanted.schema

    def read(self, **storage: Unpack[StorageOptions]) -> Iterator[pa.RecordBatch]:
        """The rows, as record batches.

        Args:
            storage: options that say how a remote store is reached; what was pickled lacks its secrets. Default: the
                environment.

        Raises:
            OptionError: an option is not one of those.
            DamagedStoreError: mode FAILFAST, and something is damaged.
            StorageError: the store is not the one that was planned on.
        """
        wanted = self._wanted
        known = {name: value for name, value in storage.items() if is_storage_option(name)}
        others = dict.fromkeys(storage.keys() - known.keys(), "")
        given = wanted.options.storage.with_options({**option_texts(known, {}), **others})
        options = replace(wanted.options, storage=given)
        schema = pa.schema(map(wanted.whole.field, wanted.needed))
        if isinstance(self._piece, TableTask):
            return wanted.rows(read_part(table_of(options), self._piece, options, schema))
        piece: Task = pickle.loads(pickle.dumps(self._piece))  # with files that no other thread uses
        return wanted.rows(read_task(piece, ReadSettings.of(options, schema)))

    def __reduce__(self) -> tuple[type["StoreTask"], tuple[int | None, Wanted, Task | TableTask]]:
        options = self._wanted.options
        public = replace(self._wanted, options=replace(options, storage=options.storage.without_secrets()))
        return StoreTask, (self.size, public, self._piece)


def plan_tasks(options: ReadOptions, filter: pc.Expression | None = None) -> list[StoreTask]:
    """The tasks of a read.

    Args:
        filter: the rows wanted; None: all that the options select.

    Raises:
        OptionError: as by Wanted.of(), plan() and plan_table(); or the filter is about an unknown column.
        RmqStoreError: the stores cannot be read.
        pyarrow.ArrowInvalid: the filter does not fit the columns.
    """
    default = dataset_schema(replace(options, columns=None)).names
    columns = default if options.columns is None else options.columns
    # A filter may be about columns that are not asked for.
    tested = frozenset[str]() if filter is None else understood(filter).columns or frozenset()
    check_columns(sorted(tested), sorted(known_columns(options)))
    whole = dict.fromkeys([*default, *columns, *sorted(tested)])
    wanted = Wanted.of(replace(options, columns=list(whole)), columns, filter)
    if options.table == MESSAGES:
        return [StoreTask(task.nbytes, wanted, task) for task in plan(wanted.options, columns=wanted.needed).tasks]
    table = table_of(options)
    return [
        StoreTask(None if table.nbytes is None else table.nbytes(task.part), wanted, task)
        for task in plan_table(table, wanted.options)
    ]
