"""The Spark face: what Spark asks of a data source, answered by the modules below."""

import functools
import gc
import os
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    Filter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from rmqstore_spark.columns import COLUMNS, DEFAULT_COLUMNS
from rmqstore_spark.errors import OptionError, RmqStoreError
from rmqstore_spark.options import (
    Pushdown,
    ReadOptions,
    WriteOptions,
    check_columns,
    parse_options,
    parse_write_options,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqstore_spark.partition import Task
    from rmqstore_spark.store.write.commit import Settings
    from rmqstore_spark.store.write.staging import Staged

FORMAT_NAME = "rmqstore"
PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


@contextmanager
def called_by_spark() -> Iterator[None]:
    """What every call of Spark's is wrapped in. It changes the process, so outside Spark's workers it does nothing.

    The errors this package raises on purpose reach the user as one line. Spark prints the traceback of a worker's
    error unless a variable is set; the worker ends with the error, so no later one loses its traceback.

    Garbage collection leaves out what the worker has now, modules for the most part. Spark collects after each task,
    and looks at each of the 85,000 objects that the libraries have made: 30 to 100 ms, in which the next task waits.
    """
    if "SPARK_JOB_ARTIFACT_UUID" not in os.environ:  # only Spark's workers have it
        yield
        return
    freeze_modules()
    try:
        yield
    except RmqStoreError as error:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise error from None


@functools.cache
def freeze_modules() -> None:
    """Once in a process: what is frozen by then and becomes garbage later, stays."""
    gc.freeze()


class RmqStoreDataSource(DataSource):
    """`spark.read.format("rmqstore")`. The options are in rmqstore_spark.options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT_NAME

    def _read_options(self) -> ReadOptions:
        return parse_options(self.options)

    def schema(self) -> str:
        """The columns asked for, or all but those that come only by name. Not called when the user gives a schema."""
        with called_by_spark():
            names = self._read_options().columns or DEFAULT_COLUMNS
            return ", ".join(f"{name} {COLUMNS[name].spark}" for name in names)

    def reader(self, schema: StructType) -> "RmqStoreReader":
        """A reader of these columns."""
        with called_by_spark():
            options = self._read_options()
            check_schema(schema)
            if options.columns is not None and options.columns != schema.names:
                raise OptionError(
                    f"option 'columns' names {', '.join(options.columns)}, but the schema {', '.join(schema.names)}; "
                    "give one of them"
                )
            return (PushdownReader if takes_filters(options.pushdown) else RmqStoreReader)(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> "RmqStoreWriter":
        """A writer of these columns, unless it is clear already that the store cannot be written to."""
        from rmqstore_spark.store.write.commit import check, prepare

        with called_by_spark():
            options = parse_write_options(self.options)
            check_input(schema, options)
            writer = RmqStoreWriter(options, overwrite)
            check(writer.root, writer.settings)
            prepare(writer.root, writer.job)
            return writer


class RmqStoreReader(DataSourceReader):
    """Plans once, then reads partitions."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """The byte ranges each task reads: a snapshot of the stores as they are now."""
        from rmqstore_spark.planner import plan

        with called_by_spark():
            return [InputPartition(task) for task in plan(self._options).tasks]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of a partition."""
        # Spark makes an empty list of partitions into one without a value (4.1: into None).
        task: Task | None = partition.value if partition is not None else None
        if task is None:
            return
        from rmqstore_spark.reader import ReadSettings, read_task

        with called_by_spark():
            settings = ReadSettings(
                schema=arrow_schema_of(self._schema),
                mode=self._options.mode,
                verify_crc=self._options.verify_crc,
                decompress=self._options.decompress,
                selection=self._options.selection,
            )
            yield from read_task(task, settings)


class PushdownReader(RmqStoreReader):
    """A reader that Spark may push filters to. Where Spark's switch is off, it refuses any reader with this method."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Narrow what is read. All filters go back, so Spark evaluates them again: pruning need not be exact."""
        from rmqstore_spark.pushed import selection_of

        selection = self._options.selection.narrowed(selection_of(filters))
        self._options = replace(self._options, selection=selection)
        return filters


def takes_filters(pushdown: Pushdown) -> bool:
    """Whether a reader made here and now shall take pushed filters.

    Only the worker that Spark starts to push some (spark.sql.python.filterPushdown.enabled) asks for that. With
    `auto`, Spark must also keep them apart: PySpark 4.1 to 4.3 applies what was pushed last to every scan of a
    DataFrame. What mends that (SPARK-58551) brings `pushLimit`.
    """
    if pushdown == "off" or (pushdown == "auto" and not hasattr(DataSourceReader, "pushLimit")):
        return False
    # The daemon imports the worker's module, and without a daemon it is __main__.
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return PUSHDOWN_WORKER in sys.modules or getattr(spec, "name", None) == PUSHDOWN_WORKER


@dataclass
class StagedMessage(WriterCommitMessage):
    """What a task tells the driver: where its units are."""

    staged: "Staged"


class RmqStoreWriter(DataSourceArrowWriter):
    """Encodes rows in tasks, and commits them all at once on the driver.

    Attributes:
        root: the store directory, absolute.
        job: a name of its own.
    """

    def __init__(self, options: WriteOptions, overwrite: bool) -> None:
        from rmqstore_spark.store.layout import place_to_write

        self.root = place_to_write(options.path)
        self._options = options
        self._overwrite = overwrite
        self.job = uuid.uuid4().hex

    @property
    def settings(self) -> "Settings":
        """How the store is written."""
        from rmqstore_spark.store.write.commit import Settings

        return Settings(self._options.sizes, self._options.message_index_enable, self._overwrite)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Encode a task's rows. Nobody hears of them before commit()."""
        from pyspark import TaskContext

        from rmqstore_spark.writer import stage

        with called_by_spark():
            task = TaskContext.get()
            partition, attempt = (task.partitionId(), task.taskAttemptId()) if task else (0, 0)
            name = f"{partition:05d}-{attempt}-{uuid.uuid4().hex}"
            return StagedMessage(stage(iterator, self._options, self.root, self.job, name, partition))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what the tasks have encoded, in the order of the partitions."""
        from rmqstore_spark.store.write.commit import commit, forget

        with called_by_spark():
            staged = [message.staged for message in messages if isinstance(message, StagedMessage)]
            commit(self.root, staged, self.settings)
            forget(self.root, self.job)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Throw away what the tasks have encoded. Some of them may still run."""
        from rmqstore_spark.store.write.commit import forget

        forget(self.root, self.job)


_ALSO_ACCEPTED = {
    "binary": {"string"},
    "int": {"smallint", "tinyint"},
    "bigint": {"int", "smallint", "tinyint"},
}


def check_input(schema: StructType, options: WriteOptions) -> None:
    """Refuse columns that cannot be written.

    Raises:
        OptionError: naming the column.
    """
    check_columns(schema.names)
    for field in schema.fields:
        column, found = COLUMNS[field.name], field.dataType.simpleString()
        accepted = {column.spark} | _ALSO_ACCEPTED.get(column.spark, set())
        if field.name not in ("body", "topic"):
            accepted.add("void")
        if found not in accepted and not column.derived:
            raise OptionError(f"column {field.name!r}: expected type {column.spark}, found {found}; cast it")
    if "body" not in schema.names:
        raise OptionError("column 'body': expected one of type binary or string, found none")
    if "topic" not in schema.names and options.topic is None:
        raise OptionError("column 'topic': expected one of type string, or option 'topic', found neither")


def check_schema(schema: StructType) -> None:
    """Refuse a schema of columns that do not exist, or of other types.

    Raises:
        OptionError: naming the column.
    """
    check_columns(schema.names)
    for field in schema.fields:
        expected, found = COLUMNS[field.name].spark, field.dataType.simpleString()
        if found != expected:
            raise OptionError(f"column {field.name!r} is of type {expected}, not {found}; cast it in the query")


def arrow_schema_of(schema: StructType) -> "pa.Schema":
    """What Spark compares each record batch with: our Arrow types, the nullability that the user declared."""
    import pyarrow as pa

    return pa.schema([pa.field(f.name, COLUMNS[f.name].arrow, f.nullable) for f in schema.fields])
