"""A read of a table other than `messages`, as Spark sees it: one task for each part of the table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rmqstore_spark.errors import OptionError, counted
from rmqstore_spark.query.options import ReadOptions
from rmqstore_spark.spark.schema import struct_of
from rmqstore_spark.spark.worker import called_by_spark, logged

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqstore_spark.tables.registry import TableTask


def spark_schema(options: ReadOptions) -> StructType:
    """The columns of a table that the options ask for.

    Raises:
        OptionError: there is no such table or column, or an option does not go with the table.
    """
    from rmqstore_spark.tables.registry import schema_of, table_of

    return struct_of(schema_of(table_of(options), options.columns))


def check_types(schema: StructType, types: Mapping[str, str]) -> None:
    """Refuse a schema that gives columns other types than the table has.

    Args:
        types: the table's types by column, in Spark's DDL.

    Raises:
        OptionError: the text names the column.
    """
    for field in schema.fields:
        expected, found = types[field.name], field.dataType.simpleString()
        if found != expected:
            raise OptionError(f"column {field.name!r} is of type {expected}, not {found}; cast it in the query")


class TableReader(DataSourceReader):
    """Plans once, then reads parts.

    Raises:
        OptionError: there is no such table or column, a column has another type, or the table does not take an option.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        import pyarrow as pa

        from rmqstore_spark.tables.registry import schema_of, table_of

        arrow = schema_of(table_of(options), schema.names)
        check_types(schema, {field.name: field.dataType.simpleString() for field in struct_of(arrow).fields})
        self._options = options
        # Spark compares each batch with the nullability that the user declared.
        fields = [field.with_nullable(own.nullable) for field, own in zip(arrow, schema.fields, strict=True)]
        self._schema = pa.schema(fields)

    def partitions(self) -> Sequence[InputPartition]:
        """The parts of the table in each store."""
        from rmqstore_spark.tables.registry import plan_table, table_of

        options = self._options
        with called_by_spark(), logged(f"planning a read of table {options.table}") as result:
            tasks = plan_table(table_of(options), options)
            result += [counted(len(tasks), "task"), *options.paths]
            return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of a part."""
        from rmqstore_spark.tables.registry import read_part, table_of

        # Spark turns an empty list of partitions into one partition without a value (4.1: into None).
        task: TableTask | None = partition.value if partition is not None else None
        if task is None:
            return
        with called_by_spark():
            yield from read_part(table_of(self._options), task, self._options, self._schema)
