"""The data source itself: what `format("rmqstore")` names, and which columns it can have."""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from rmqstore_spark.columns import COLUMNS, DEFAULT_COLUMNS
from rmqstore_spark.errors import OptionError
from rmqstore_spark.options import MESSAGES, ReadOptions, check_columns, parse_options, parse_write_options
from rmqstore_spark.spark.reader import PushdownReader, RmqStoreReader, takes_filters
from rmqstore_spark.spark.table_reader import TableReader, check_types, spark_schema
from rmqstore_spark.spark.worker import called_by_spark
from rmqstore_spark.spark.writer import RmqStoreWriter, check_input
from rmqstore_spark.store.storage import refuse_shown

FORMAT_NAME = "rmqstore"


class RmqStoreDataSource(DataSource):
    """`spark.read.format("rmqstore")`. The options are in rmqstore_spark.options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT_NAME

    def _read_options(self) -> ReadOptions:
        refuse_shown(self.options)
        return parse_options(self.options)

    def schema(self) -> str | StructType:
        """The columns asked for, or all but those that come only by name. Not called when the user gives a schema."""
        with called_by_spark():
            options = self._read_options()
            if options.table != MESSAGES:
                return spark_schema(options)
            names = options.columns or DEFAULT_COLUMNS
            return ", ".join(f"{name} {COLUMNS[name].spark}" for name in names)

    def reader(self, schema: StructType) -> "RmqStoreReader | TableReader":
        """A reader of these columns."""
        with called_by_spark():
            options = self._read_options()
            if options.columns is not None and options.columns != schema.names:
                raise OptionError(
                    f"option 'columns' names {', '.join(options.columns)}, but the schema {', '.join(schema.names)}; "
                    "give one of them"
                )
            if options.table != MESSAGES:
                return TableReader(options, schema)
            check_schema(schema)
            return (PushdownReader if takes_filters(options.pushdown) else RmqStoreReader)(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> "RmqStoreWriter":
        """A writer of these columns, unless it is clear already that the store cannot be written to."""
        from rmqstore_spark.write.commit import check, prepare

        with called_by_spark():
            options = parse_write_options(self.options)
            check_input(schema, options)
            writer = RmqStoreWriter(options, overwrite)
            check(writer.root, writer.settings)
            prepare(writer.root, writer.job)
            return writer


def check_schema(schema: StructType) -> None:
    """Refuse a schema of columns that messages do not have, or of other types.

    Raises:
        OptionError: naming the column.
    """
    check_columns(schema.names)
    check_types(schema, {name: column.spark for name, column in COLUMNS.items()})
