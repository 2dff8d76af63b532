"""A read as Spark sees it: partitions are planned once, and a task reads each of them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.query.option_types import Pushdown
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.spark.worker import called_by_spark, is_run_by, logged

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqstore_spark.read.pieces.task import Task

PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class RmqStoreReader(DataSourceReader):
    """Plans once, then reads partitions."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """The byte ranges that each task reads: a snapshot of the stores as they are now."""
        from rmqstore_spark.read.explain import summary
        from rmqstore_spark.read.plan.planner import plan

        with called_by_spark(), logged("planning a read") as result:
            planned = plan(self._options, columns=self._schema.names)
            result += summary(planned)
            return [InputPartition(task) for task in planned.tasks]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of a partition."""
        # Spark turns an empty list of partitions into one partition without a value (4.1: into None).
        task: Task | None = partition.value if partition is not None else None
        if task is None:
            return
        from rmqstore_spark.read.run.batches import ReadSettings, read_task

        with called_by_spark():
            yield from read_task(task, ReadSettings.of(self._options, arrow_schema_of(self._schema)))


class PushdownReader(RmqStoreReader):
    """A reader that is given filters, as Sail does. Spark refuses one that has this method while its switch is off."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Narrow the read. All filters are returned, so they are evaluated again, and pruning need not be exact."""
        return _narrow(self, filters)


class SwitchedReader(RmqStoreReader):
    """A reader that Spark may push filters to where its switch is on, and that it does not refuse where it is off.

    Nobody knows the switch when the reader is made. Spark 5.0 starts the worker that pushes filters also for a LIMIT,
    which has a switch of its own; where filters are switched off, it refuses a reader with a `pushFilters` of its own
    there, too. So the method is one of the object, and says that it is the base class's.

    There is no `pushLimit` (Spark 5.0): one whose switch is off is refused, too; Spark offers no limit where filters
    were returned, as all of them are; and a task stops reading when Spark has the rows that it needs.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        vars(self)["pushFilters"] = _AsInBaseClass(self)


class _AsInBaseClass:
    """`pushFilters` of a reader. `__func__` is where Spark looks whether a method is that of its base class."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: RmqStoreReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        return _narrow(self._reader, filters)


def _narrow(reader: RmqStoreReader, filters: list[Filter]) -> list[Filter]:
    """Have the reader read less than before where these filters say so. All of them are left for Spark."""
    if not reader._options.as_original:  # else the filters are about other values than the stored ones
        from rmqstore_spark.spark.pushdown import selection_of

        selection = reader._options.selection.narrowed(selection_of(filters))
        reader._options = replace(reader._options, selection=selection)
    return filters


def takes_filters(pushdown: Pushdown) -> bool:
    """Should a reader that is made in this process take pushed filters?

    Only the worker that Spark starts for pushing filters (spark.sql.python.filterPushdown.enabled) needs such a reader;
    Spark 5.0 starts it for limits, too. With `auto`, Spark must also keep the filters of several scans apart: PySpark
    4.1 to 4.3 applies the last pushed filters to every scan of a DataFrame. SPARK-58551 mended it, and has `pushLimit`.
    """
    if pushdown == "off" or (pushdown == "auto" and not hasattr(DataSourceReader, "pushLimit")):
        return False
    return is_run_by(PUSHDOWN_WORKER)


def arrow_schema_of(schema: StructType) -> "pa.Schema":
    """The schema that Spark compares each record batch with: our Arrow types, and the user's declared nullability."""
    import pyarrow as pa

    return pa.schema([pa.field(f.name, COLUMNS[f.name].arrow, f.nullable) for f in schema.fields])
