"""The data source that `format("rmqstore")` names, and the columns that it can have."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from rmqstore_spark.columns import COLUMNS, DEFAULT_COLUMNS, arrow_schema
from rmqstore_spark.errors import OptionError
from rmqstore_spark.query.options import (
    MESSAGES,
    ONLY_OF_STREAMS,
    ReadOptions,
    WriteOptions,
    check_columns,
    parse_options,
    parse_write_options,
)
from rmqstore_spark.query.stream_options import parse_stream_options
from rmqstore_spark.spark.reader import PushdownReader, RmqStoreReader, SwitchedReader, takes_filters
from rmqstore_spark.spark.schema import struct_of
from rmqstore_spark.spark.stream_writer import RmqStoreStreamWriter
from rmqstore_spark.spark.table_reader import TableReader, check_types, spark_schema
from rmqstore_spark.spark.worker import called_by_spark, refuse_relative
from rmqstore_spark.spark.writer import RmqStoreWriter, advise_to_copy
from rmqstore_spark.store.io.storage import refuse_shown

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqstore_spark.spark.stream_reader import RefusedStreamReader, RmqStoreStreamReader

FORMAT_NAME = "rmqstore"
_OF_QUERIES = ("checkpointlocation", "queryname")  # Spark's own options of a stream, which Spark passes on to sinks
# Options that Spark adds by itself when a table is created over the source.
_SPARKS_OWN = re.compile(r"(location|provider|owner)\Z|option\.", re.IGNORECASE)
_TYPES = {name: column.spark for name, column in COLUMNS.items()}


class RmqStoreDataSource(DataSource):
    """`spark.read.format("rmqstore")`. The options are in rmqstore_spark.query.options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT_NAME

    @property
    def _given(self) -> dict[str, str]:
        return {name: text for name, text in self.options.items() if not _SPARKS_OWN.match(name)}

    def _read_options(self) -> ReadOptions:
        refuse_shown(self.options)
        return _anywhere(parse_options(self._given))

    def _read_or_stream_options(self) -> ReadOptions:
        """The options, as far as they say which columns there are. Spark does not tell whether it asks for a read or a
        stream, and not every option fits both. Options that are wrong for both raise an error with both reasons, but
        for other tables than messages, which no stream has."""
        try:
            return self._read_options()
        except OptionError as why:
            try:
                return _anywhere(parse_stream_options(self._given).read)
            except OptionError as other:
                if any(name.lower() in ONLY_OF_STREAMS for name in self.options):
                    raise other from None
                is_of_table = any(name.lower() == "table" and text != MESSAGES for name, text in self.options.items())
                is_one = is_of_table or str(why) == str(other)
                raise (why if is_one else OptionError(f"{why}; as a stream: {other}")) from None

    def schema(self) -> StructType:
        """The columns asked for, or all except those that are only returned when named. Spark does not call this when
        the user gives a schema."""
        with called_by_spark():
            options = self._read_or_stream_options()
            if options.table != MESSAGES:
                return spark_schema(options)
            return struct_of(arrow_schema(options.columns or DEFAULT_COLUMNS))

    def reader(self, schema: "StructType | pa.Schema") -> "RmqStoreReader | TableReader":
        """A reader of these columns. Sail, which has an Arrow schema, keeps the filters of several scans apart."""
        is_sails = not isinstance(schema, StructType)
        schema = struct_of(schema)
        with called_by_spark():
            options = self._read_options()
            check_names(options, schema)
            if options.table != MESSAGES:
                return TableReader(options, schema)
            check_schema(schema)
            if is_sails:
                return (RmqStoreReader if options.pushdown == "off" else PushdownReader)(options, schema)
            return (SwitchedReader if takes_filters(options.pushdown) else RmqStoreReader)(options, schema)

    def streamReader(self, schema: StructType) -> "RmqStoreStreamReader | RefusedStreamReader":
        """A reader that follows the stores."""
        from rmqstore_spark.spark.stream_reader import RefusedStreamReader, RmqStoreStreamReader

        with called_by_spark():
            try:
                options = parse_stream_options(self._given)
                check_names(_anywhere(options.read), schema)
                check_schema(schema)
                return RmqStoreStreamReader(options, schema)
            except OptionError as why:
                return RefusedStreamReader(why)

    def writer(self, schema: "StructType | pa.Schema", overwrite: bool) -> "RmqStoreWriter":
        """A writer of these columns. Raises here already if the write is known to be impossible."""
        with called_by_spark():
            writer, columns = RmqStoreWriter(_to_write(self._given), overwrite), struct_of(schema)
            writer.prepare(columns)
            advise_to_copy(columns.names)
            return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> "RmqStoreStreamWriter":
        """A writer of these columns for one micro-batch; in another process, the writer that commits that batch."""
        with called_by_spark():
            given = {name: text for name, text in self._given.items() if name.lower() not in _OF_QUERIES}
            writer = RmqStoreStreamWriter(_to_write(given), overwrite)
            writer.prepare(schema)
            return writer


def _anywhere(options: ReadOptions) -> ReadOptions:
    """The same options with paths that do not depend on this process's working directory."""
    refuse_relative([*options.paths, *(options.store_path_commit_log or [])])
    return options


def _to_write(given: Mapping[str, str]) -> WriteOptions:
    options = parse_write_options(given)
    refuse_relative(filter(None, (options.path, options.config_from)))
    return options


def check_names(options: ReadOptions, schema: StructType) -> None:
    """Refuse a schema and an option `columns` that contradict each other.

    Raises:
        OptionError: the text names both.
    """
    if options.columns is not None and options.columns != schema.names:
        raise OptionError(
            f"option 'columns' names {', '.join(options.columns)}, but the schema {', '.join(schema.names)}; "
            "give one of them"
        )


def check_schema(schema: StructType) -> None:
    """Refuse a schema with columns that messages do not have, or with other types.

    Raises:
        OptionError: the text names the column.
    """
    check_columns(schema.names)
    check_types(schema, _TYPES)
