"""Table functions of SQL: `rmqstore_get` and `rmqstore_history` are Store.get and Store.history.

Their columns are the same, and `store` and `asked` (the id, key or name that a row was found for), as a query may ask
for many: an array of them, or a table with a column of them, whose rows Spark spreads over its tasks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from rmqstore_spark.columns import DEFAULT_COLUMNS, TEXT, arrow_schema
from rmqstore_spark.errors import OptionError
from rmqstore_spark.jobs.history import SCHEMA, STORE, histories
from rmqstore_spark.query.option_texts import path_options, required
from rmqstore_spark.query.options import CALL_OPTIONS, STORE_OPTIONS, Option, ReadOptions, option_texts, parse_options
from rmqstore_spark.read.scan import Scan
from rmqstore_spark.spark.schema import struct_of
from rmqstore_spark.spark.worker import called_by_spark, refuse_relative
from rmqstore_spark.store.io.storage import is_secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What Spark hands to a function: a column of a scalar's values, all the same, or the rows of a TABLE(...).
Argument: TypeAlias = pa.Array | pa.RecordBatch

_ASKED = pa.field("asked", TEXT)
_GET_COLUMNS = [*DEFAULT_COLUMNS, STORE.name]
GET_SCHEMA = arrow_schema(_GET_COLUMNS).append(_ASKED)
_GET_OPTIONS = {name: option for name, option in CALL_OPTIONS.items() if name not in ("columns", "msgId")}
HISTORY_SCHEMA = SCHEMA.append(STORE).append(_ASKED)


class Get:
    """`rmqstore_get(path, id, option => value, ...)`: the messages with an id, as Store.get() finds them."""

    def eval(self, path: Argument, id: Argument, **options: Argument) -> Iterator[pa.RecordBatch]:
        """The messages, in the default columns."""
        return _rows(path, id, options, _GET_OPTIONS, _got)


class History:
    """`rmqstore_history(path, name, option => value, ...)`: what happened to messages, as Store.history() tells it."""

    def eval(self, path: Argument, name: Argument, **options: Argument) -> Iterator[pa.RecordBatch]:
        """The events, in order of time for each name."""
        return _rows(path, name, options, STORE_OPTIONS, _events)


def register_functions(spark: "SparkSession") -> None:
    """Register the functions with a session, also with one of Spark Connect."""
    from pyspark.sql.functions import arrow_udtf

    for name, handler, schema in (("get", Get, GET_SCHEMA), ("history", History, HISTORY_SCHEMA)):
        spark.udtf.register(f"rmqstore_{name}", arrow_udtf(handler, returnType=struct_of(schema)))  # type: ignore[arg-type]


def _got(given: dict[str, str], asked: str) -> Iterable[pa.RecordBatch]:
    return Scan(_options({**given, "msgId": required("id", asked)}), _GET_COLUMNS).batches()


def _events(given: dict[str, str], asked: str) -> Iterable[pa.RecordBatch]:
    for table in histories(_options(given), required("name", asked)):
        yield from table.to_batches()


def _rows(
    path: Argument,
    names: Argument,
    options: Mapping[str, Argument],
    known: Mapping[str, Option],
    found: Callable[[dict[str, str], str], Iterable[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """The rows that are found for each of the names; NULL finds none."""
    with called_by_spark():
        asked = [name for name in _names(names) if name is not None]
        if not asked:
            return
        for name in options:
            if is_secret(name):
                raise OptionError(
                    f"option {name!r}: Spark would show its value in plans and event logs; set the environment "
                    "variable of that name on the executors"
                )
        texts = option_texts({name: _only(value) for name, value in options.items()}, known)
        given = {**texts, **path_options(_only(path))}
        for name in asked:
            for batch in found(given, name):
                yield batch.append_column(_ASKED, pa.repeat(name, batch.num_rows))


def _options(given: dict[str, str]) -> ReadOptions:
    options = parse_options(given)
    refuse_relative([*options.paths, *(options.store_path_commit_log or [])])
    return options


def _names(argument: Argument) -> list[Any]:
    """The ids, keys or names that a query asks for: a text, an array of texts, or a table with one column of texts.

    Raises:
        OptionError: the argument is none of these.
    """
    column = argument
    if isinstance(argument, pa.RecordBatch):
        if argument.num_columns != 1:
            raise OptionError(
                f"TABLE(...): expected one column, of what is asked for, found {', '.join(argument.schema.names)}; "
                "select one"
            )
        column = argument.column(0)
    elif isinstance(argument, pa.ListArray):
        column = argument.flatten()
    names: list[Any] = column.to_pylist()
    return names


def _only(argument: Argument) -> Any:
    """The value of an argument that is the same in each row."""
    if isinstance(argument, pa.RecordBatch):
        raise OptionError("expected a value, found TABLE(...), which may only say what is asked for")
    return argument[0].as_py()
