"""A read as Spark sees it: partitions are planned once, and a task reads each of them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from rmqstore_spark.columns import COLUMNS
from rmqstore_spark.query.option_types import Pushdown
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.spark.worker import called_by_spark, is_run_by, told

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

        with called_by_spark(), told("planning a read") as result:
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
    """A reader that Spark may push filters to. Where its switch is off, Spark refuses any reader with this method."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Narrow the read. All filters are returned, so Spark evaluates them again, and pruning need not be exact."""
        if self._options.as_original:  # filters are about other values than the stored ones
            return filters
        from rmqstore_spark.spark.pushdown import selection_of

        selection = self._options.selection.narrowed(selection_of(filters))
        self._options = replace(self._options, selection=selection)
        return filters


def takes_filters(pushdown: Pushdown) -> bool:
    """Should a reader that is made in this process take pushed filters?

    Only the worker that Spark starts for pushing filters (spark.sql.python.filterPushdown.enabled) needs such a reader.
    With `auto`, Spark must also keep the filters of several scans apart: PySpark 4.1 to 4.3 applies the last pushed
    filters to every scan of a DataFrame. The fix (SPARK-58551) comes with `pushLimit`.
    """
    if pushdown == "off" or (pushdown == "auto" and not hasattr(DataSourceReader, "pushLimit")):
        return False
    return is_run_by(PUSHDOWN_WORKER)


def arrow_schema_of(schema: StructType) -> "pa.Schema":
    """The schema that Spark compares each record batch with: our Arrow types, and the user's declared nullability."""
    import pyarrow as pa

    return pa.schema([pa.field(f.name, COLUMNS[f.name].arrow, f.nullable) for f in schema.fields])
